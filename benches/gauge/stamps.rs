//! What the kernel's receive stamps cost: reads of a real loopback connection through the gauge's own socket, stamped by
//! the kernel beside stamped at their return, in turn. Both read the clock; a stamped one reads the wall clock as well, and
//! calls recvmsg for recv.
//!
//! ```text
//! gauge stamps
//! ```
//!
//! *read* is one read of bytes that are there; *read and wake-up* is a chunk that is written, waited for and read, which is
//! what an event of a stream costs at the least. Medians, since the machine does other things.

use std::{sync::Arc, time::Duration};

use streamgauge::{
    clock::{Clock, Nanos, Stamp},
    config,
    net::{ConnStats, MeteredIo, StampWrites, listener::Listener},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::median;

/// An event of a chat stream.
const CHUNK: usize = 200;
/// Reads in one sample, so that the clock around them weighs little.
const READS: usize = 64;
const SAMPLES: usize = 2_000;

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let clock = Clock::start();
        let mut user = Connection::new(clock, false).await;
        let mut kernel = Connection::new(clock, true).await;
        let begin = clock.now();
        let (mut reads, mut chunks) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for _ in 0..SAMPLES {
            for (at, connection) in [&mut user, &mut kernel].into_iter().enumerate() {
                reads[at].push(connection.reads().await);
                chunks[at].push(connection.chunks().await);
            }
        }
        println!("| ns | at the return | by the kernel | difference | ratio |\n|---|---|---|---|---|");
        for (name, [user, kernel]) in [("read", reads), ("read and wake-up", chunks)] {
            let (user, kernel) = (median(user), median(kernel));
            println!("| {name} | {user:.0} | {kernel:.0} | {:+.0} | {:.2} |", kernel - user, kernel / user);
        }
        assert!(kernel.stats.stamped_by_kernel(begin), "what was measured is what is said");
        assert!(!user.stats.stamped_by_kernel(begin), "what was measured is what is said");
    });
}

struct Connection {
    clock: Clock,
    stats: Arc<ConnStats>,
    io: MeteredIo,
    peer: TcpStream,
    _listener: Listener,
}

impl Connection {
    async fn new(clock: Clock, by_kernel: bool) -> Self {
        let address = config::Listener { address: ([127, 0, 0, 1], 0).into(), tls: None };
        let listener = Listener::bind(&address, by_kernel).expect("a port");
        let peer = TcpStream::connect(listener.address().expect("an address")).await.expect("a connection");
        peer.set_nodelay(true).expect("a socket");
        let stats = Arc::new(ConnStats::default());
        let io = MeteredIo::new(listener.accept().await, Arc::clone(&stats), clock, StampWrites::After);
        let mut connection = Self { clock, stats, io, peer, _listener: listener };
        // Switching the stamps on takes the kernel a moment.
        let mut since = Stamp::ORIGIN;
        for _ in 0..2_000 {
            connection.chunks().await;
            if connection.stats.stamped_by_kernel(since) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            since = clock.now();
        }
        connection
    }

    /// Nanoseconds of one read of bytes that are there.
    async fn reads(&mut self) -> f64 {
        self.peer.write_all(&[b'x'; CHUNK * READS]).await.expect("a reader");
        let mut buffer = [0; CHUNK];
        // Waits until they are there.
        self.io.read_exact(&mut buffer).await.expect("a writer");
        let begin = self.clock.now();
        for _ in 1..READS {
            self.io.read_exact(&mut buffer).await.expect("a writer");
        }
        each(self.clock.now().since(begin), READS - 1)
    }

    /// Nanoseconds of one chunk that is written, waited for and read into a buffer with room to spare.
    async fn chunks(&mut self) -> f64 {
        let mut buffer = [0; 8 * CHUNK];
        let begin = self.clock.now();
        for _ in 0..READS {
            self.peer.write_all(&[b'x'; CHUNK]).await.expect("a reader");
            assert_eq!(self.io.read(&mut buffer).await.expect("a writer"), CHUNK);
        }
        each(self.clock.now().since(begin), READS)
    }
}

fn each(span: Nanos, count: usize) -> f64 {
    span.seconds() * 1e9 / count as f64
}
