//! What the kernel knows and no safe library tells: when a socket's bytes were received, how its network does; and the wait
//! for a descriptor that is no socket.
//!
//! The only file with `unsafe` code. It calls the system and copies plain values out; nothing of it lives longer than a
//! call. Linux, 64 bits, where the time in a control message is two 64-bit numbers; `no_kernel.rs` stands in elsewhere.
#![expect(unsafe_code, reason = "calls without a safe wrapper: recvmsg with receive stamps, TCP_INFO, AsyncFd")]

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use libc::{c_int, c_void, cmsghdr, iovec, msghdr, socklen_t, timespec};
use tokio::io::{ReadBuf, unix::AsyncFd};

use super::told::{Received, TcpInfo};
use crate::clock::{Nanos, WallTime};

/// Whether there is anything to ask on this platform.
pub(super) const KNOWS: bool = true;

/// Has the kernel stamp what this socket receives, or what the connections of this listener do (`SO_TIMESTAMPNS`,
/// socket(7)). The stamp is taken where the network device hands the packet over, long before any process runs.
///
/// The first socket on a machine that asks switches the stamps on for every packet; that takes the kernel a moment, and
/// what arrives meanwhile has none.
///
/// # Errors
/// If the system refuses.
pub(super) fn stamp_arrivals(socket: &impl AsFd) -> io::Result<()> {
    let on: c_int = 1;
    // SAFETY: the descriptor is open, for it is borrowed; the value is an int that outlives the call, and its size is said.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast::<c_void>(),
            length::<c_int>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
const fn length<T>() -> socklen_t {
    size_of::<T>() as socklen_t
}

/// Room for the one control message asked for (32 bytes), aligned as its header must be, and some to spare.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Reads what there is into the room of `buf`, at most so many bytes.
///
/// # Errors
/// As recv(2), `WouldBlock` if nothing is there.
pub(super) fn receive(socket: &impl AsFd, buf: &mut ReadBuf<'_>, most: usize) -> io::Result<Received> {
    let received = call(socket, buf, most, 0)?;
    // SAFETY: the kernel has filled so many bytes of the room.
    unsafe { buf.assume_init(received.bytes) };
    buf.advance(received.bytes);
    Ok(received)
}

/// The same without taking anything: the next read finds it all once more.
///
/// # Errors
/// As [`receive`].
pub(super) fn peek(socket: &impl AsFd, buf: &mut ReadBuf<'_>, most: usize) -> io::Result<Received> {
    call(socket, buf, most, libc::MSG_PEEK)
}

fn call(socket: &impl AsFd, buf: &mut ReadBuf<'_>, most: usize, flags: c_int) -> io::Result<Received> {
    let mut control = Control([0; 64]);
    // SAFETY: nothing but whole bytes are written there, and never an uninitialised one: the kernel only fills.
    let room = unsafe { buf.unfilled_mut() };
    let mut into = iovec { iov_base: room.as_mut_ptr().cast::<c_void>(), iov_len: room.len().min(most) };
    // SAFETY: a `msghdr` is integers and pointers, for all of which zero is a value.
    let mut message: msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut into;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast::<c_void>();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the descriptor is open, for it is borrowed; every pointer in the message is to memory borrowed here for
    // longer than the call, with its true length beside it.
    let received = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    let Ok(bytes) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
    Ok(Received { bytes, at: stamp_in(&message) })
}

/// The receive stamp among a message's control messages.
fn stamp_in(message: &msghdr) -> Option<WallTime> {
    // SAFETY: the kernel has set the control buffer's length to what it filled, and the buffer is still borrowed.
    let mut header: *const cmsghdr = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: the pointer is to a whole header within what the kernel filled, else it were null.
        let (level, kind, filled) = unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
            // SAFETY: arithmetic on a constant.
            let whole = unsafe { libc::CMSG_LEN(length::<timespec>()) };
            // SAFETY: the data lie right behind the header, and their length was looked at; read as unaligned bytes.
            let time = (filled >= whole as _)
                .then(|| unsafe { libc::CMSG_DATA(header).cast::<timespec>().read_unaligned() })?;
            return Some(WallTime(time.tv_sec.checked_mul(1_000_000_000)?.checked_add(time.tv_nsec)?));
        }
        // SAFETY: as for the first header.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

/// A socket that somebody else owns and this may ask about as long as it is open: no descriptor is duplicated, which would
/// keep the connection alive. The lock is held while the kernel is asked, so that the owner can't close it meanwhile.
#[derive(Debug, Default)]
pub(super) struct Lent(Mutex<Option<RawFd>>);

impl Lent {
    /// From now on this socket is asked. Its owner calls [`Lent::take_back`] before it closes it.
    pub(super) fn lend(&self, socket: &impl AsFd) {
        *self.descriptor() = Some(socket.as_fd().as_raw_fd());
    }

    /// It is about to be closed.
    pub(super) fn take_back(&self) {
        *self.descriptor() = None;
    }

    /// What TCP knows of it; absent once it was taken back, and if nothing was lent.
    pub(super) fn tcp_info(&self) -> Option<TcpInfo> {
        let descriptor = self.descriptor();
        let mut answer = [0_u8; 256];
        let mut filled = length::<[u8; 256]>();
        // SAFETY: the answer is plain bytes that outlive the call, with their true length beside them. The descriptor is open,
        // for its owner waits for the lock before it closes it; were it not, the kernel would answer of another socket or not
        // at all, and touch no other memory for that.
        let result = unsafe {
            libc::getsockopt(
                (*descriptor)?,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                answer.as_mut_ptr().cast::<c_void>(),
                &raw mut filled,
            )
        };
        (result == 0).then(|| TcpInfo::read(answer.get(..filled as usize).unwrap_or(&answer)))
    }

    fn descriptor(&self) -> MutexGuard<'_, Option<RawFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TcpInfo {
    /// Reads `struct tcp_info` of linux/tcp.h, which grows at its end from kernel to kernel: what an older one does not say
    /// is absent. Times there are in microseconds.
    fn read(answer: &[u8]) -> Self {
        let field = |at: usize| answer.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        // No round trip yet: 0 in the one, all ones in the other.
        let span = |at| {
            field(at).filter(|micros| !matches!(*micros, 0 | u32::MAX)).map(|micros| Nanos(u64::from(micros) * 1_000))
        };
        Self { rtt: span(68), min_rtt: span(148), retransmits: field(100) }
    }
}

/// Has tokio wait for this descriptor. Call inside a runtime.
///
/// # Errors
/// If it is of a kind that can't be waited for.
pub fn waited_for(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open as long as it lives, and is the same descriptor all the time.
    Ok(unsafe { AsyncFd::register(descriptor) }?)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        mem::MaybeUninit,
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    use super::*;
    use crate::clock::{Clock, Nanos};

    fn pair(stamped: bool) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        if stamped {
            stamp_arrivals(&listener).unwrap();
        }
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = listener.accept().unwrap().0;
        // Switching the stamps on takes the kernel a moment.
        while stamped && {
            ours.write_all(b".").unwrap();
            read(&socket, 1).1.unwrap().at.is_none()
        } {
            std::thread::sleep(Duration::from_millis(1));
        }
        (socket, ours)
    }

    fn read(socket: &TcpStream, room: usize) -> (Vec<u8>, io::Result<Received>) {
        let mut memory = vec![MaybeUninit::uninit(); room];
        let mut buf = ReadBuf::uninit(&mut memory);
        let received = receive(socket, &mut buf, usize::MAX);
        (buf.filled().to_vec(), received)
    }

    #[test]
    fn what_is_received_is_stamped_when_it_came() {
        let (socket, mut peer) = pair(true);
        let clock = Clock::start();
        let before = clock.now();
        peer.write_all(b"hello").unwrap();
        let mut peeked = [0];
        socket.peek(&mut peeked).unwrap();
        let after = clock.now();
        std::thread::sleep(Duration::from_millis(50));
        let (bytes, received) = read(&socket, 100);
        assert_eq!(bytes, b"hello");
        let arrival = clock.arrival(received.unwrap().at);
        let (earliest, latest) = (before.minus(Nanos(5_000)), after + Nanos(5_000));
        assert!((earliest..=latest).contains(&arrival.at), "{before:?} {arrival:?} {after:?}");
    }

    #[test]
    fn a_part_has_its_segments_stamp() {
        let (socket, mut peer) = pair(true);
        peer.write_all(b"hello").unwrap();
        let first = read(&socket, 2);
        let rest = read(&socket, 100);
        assert_eq!((first.0, rest.0), (b"he".to_vec(), b"llo".to_vec()));
        assert_eq!(first.1.unwrap().at, rest.1.unwrap().at);
    }

    #[test]
    fn the_end_and_nothing_have_no_stamp() {
        let (socket, peer) = pair(true);
        socket.set_nonblocking(true).unwrap();
        assert_eq!(read(&socket, 9).1.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(peer);
        socket.set_nonblocking(false).unwrap();
        let end = read(&socket, 9).1.unwrap();
        assert_eq!((end.bytes, end.at), (0, None));
    }

    #[test]
    fn who_did_not_ask_gets_no_stamp() {
        let (socket, mut peer) = pair(false);
        peer.write_all(b"hello").unwrap();
        let (bytes, received) = read(&socket, 100);
        assert_eq!((bytes, received.unwrap().at), (b"hello".to_vec(), None));
    }

    #[test]
    fn what_was_filled_before_stays() {
        let (socket, mut peer) = pair(true);
        peer.write_all(b"world").unwrap();
        let mut memory = [MaybeUninit::uninit(); 8];
        let mut buf = ReadBuf::uninit(&mut memory);
        buf.put_slice(b"hello");
        assert_eq!(receive(&socket, &mut buf, usize::MAX).unwrap().bytes, 3);
        assert_eq!(buf.filled(), b"hellowor");
    }

    #[test]
    fn tcp_tells_of_the_way_while_the_socket_is_open() {
        let (socket, mut peer) = pair(false);
        let lent = Lent::default();
        assert_eq!(lent.tcp_info(), None);
        lent.lend(&peer);
        peer.write_all(b"hello").unwrap();
        read(&socket, 5).1.unwrap();
        let info = lent.tcp_info().unwrap();
        let (rtt, least) = (info.rtt.unwrap(), info.min_rtt.unwrap());
        assert!(least > Nanos::ZERO && least <= rtt && rtt < Nanos(1_000_000_000), "{info:?}");
        assert_eq!(info.retransmits, Some(0));
        lent.take_back();
        assert_eq!(lent.tcp_info(), None);
    }

    #[test]
    fn an_older_kernel_says_less() {
        let mut answer = [0; 200];
        answer[68..72].copy_from_slice(&20_u32.to_ne_bytes());
        answer[100..104].copy_from_slice(&3_u32.to_ne_bytes());
        answer[148..152].copy_from_slice(&15_u32.to_ne_bytes());
        let all = TcpInfo { rtt: Some(Nanos(20_000)), min_rtt: Some(Nanos(15_000)), retransmits: Some(3) };
        assert_eq!(TcpInfo::read(&answer), all);
        assert_eq!(TcpInfo::read(&answer[..152]), all);
        assert_eq!(TcpInfo::read(&answer[..151]), TcpInfo { min_rtt: None, ..all });
        assert_eq!(TcpInfo::read(&answer[..104]), TcpInfo { min_rtt: None, ..all });
        assert_eq!(TcpInfo::read(&answer[..72]), TcpInfo { min_rtt: None, retransmits: None, ..all });
        assert_eq!(TcpInfo::read(&[]), TcpInfo { rtt: None, min_rtt: None, retransmits: None });
        answer[68..72].fill(0);
        answer[148..152].fill(0xff);
        assert_eq!(TcpInfo::read(&answer), TcpInfo { rtt: None, min_rtt: None, ..all }, "before the first round trip");
    }
}
