//! The clock, the wait for sockets, and the sockets. Linux 5.11: before, a wait had whole milliseconds.

use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream},
    num::NonZeroU64,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    event::{Timespec, epoll},
    io::Errno,
    time::{ClockId, clock_gettime},
};
use socket2::{Domain, Socket, Type};

/// Nanoseconds of the monotonic clock, which is the same in every process of the machine.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Waits end when they should, not up to 50 us later.
pub(crate) fn exact_timers() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

pub(crate) const READ: epoll::EventFlags = epoll::EventFlags::IN;
pub(crate) const WRITE: epoll::EventFlags = epoll::EventFlags::OUT;

/// One epoll, by level.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, events: Vec::with_capacity(512) })
    }

    pub(crate) fn add(&self, socket: impl AsFd, token: u64, interest: epoll::EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, epoll::EventData::new_u64(token), interest)?)
    }

    pub(crate) fn change(&self, socket: impl AsFd, token: u64, interest: epoll::EventFlags) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(token), interest)?)
    }

    /// Waits for sockets to be ready, at the latest until that time, and gives their tokens.
    pub(crate) fn wait(&mut self, until: Option<u64>, tokens: &mut Vec<u64>) -> io::Result<()> {
        let timeout = until.map(|until| {
            let left = until.saturating_sub(now());
            Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 }
        });
        self.events.clear();
        tokens.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        tokens.extend(self.events.iter().map(|event| event.data.u64()));
        Ok(())
    }
}

/// A listener that no burst of connections overflows.
pub(crate) fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&local(port).into())?;
    socket.listen(4096)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A connection that is being made.
pub(crate) fn connect(port: u16) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&local(port).into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        _ => Ok(socket.into()),
    }
}

fn local(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// What a call brought, `None` if it would have had to wait.
pub(crate) fn ready<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}
