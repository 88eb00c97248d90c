//! [`Together`]: an HTTP/2 connection and all of its streams in one task. What one read brings for many streams wakes that
//! task once, and what they all have to say leaves in one write; with a task for each stream, as the library would have
//! it, each wakes the connection's by itself, from whichever thread it runs on.

use std::{
    fmt,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered, task::AtomicWaker};
use hyper::rt::Executor;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a connection is given as its executor: keeps what it is to run until [`Together`] takes it.
#[derive(Clone, Default)]
pub struct Begun(Arc<Mutex<Vec<Work>>>);

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begun").finish_non_exhaustive()
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Begun {
    fn execute(&self, work: F) {
        // As in a task of its own, a panic ends one stream and no other.
        let work = AssertUnwindSafe(work).catch_unwind().map(|_| ());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(work));
    }
}

/// Wakes the task, but while it runs and will look by itself: a stream that sends wakes its connection, and a task that wakes
/// itself is taken for one that has much to do, and given to another thread.
#[derive(Default)]
struct Task {
    waker: AtomicWaker,
    runs: AtomicBool,
}

/// One of the task's two parts was woken.
struct Part {
    task: Arc<Task>,
    woken: AtomicBool,
}

impl Part {
    fn of(task: &Arc<Task>) -> (Arc<Self>, Waker) {
        let part = Arc::new(Self { task: Arc::clone(task), woken: AtomicBool::new(false) });
        (Arc::clone(&part), Waker::from(part))
    }
}

impl Wake for Part {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, SeqCst);
        if !self.task.runs.load(SeqCst) {
            self.task.waker.wake();
        }
    }
}

/// How often its parts may wake each other before others have their turn.
const ROUNDS: u32 = 16;

/// A connection `C` and what it has begun. Ends, with what the connection ended with, once all of it has.
pub struct Together<C: Future> {
    /// Dropped first, so that streams that end by it still find their connection.
    running: FuturesUnordered<Work>,
    begun: Begun,
    /// Gone once it has ended: some of what it began waits for that.
    connection: Option<Pin<Box<C>>>,
    ended: Option<C::Output>,
    task: Arc<Task>,
    of_streams: (Arc<Part>, Waker),
    of_connection: (Arc<Part>, Waker),
}

impl<C: Future> fmt::Debug for Together<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Together").field("running", &self.running.len()).finish_non_exhaustive()
    }
}

impl<C: Future> Together<C> {
    /// A connection that was given `begun` as its executor.
    pub fn new(connection: C, begun: Begun) -> Self {
        let task = Arc::<Task>::default();
        Self {
            running: FuturesUnordered::new(),
            begun,
            connection: Some(Box::pin(connection)),
            ended: None,
            of_streams: Part::of(&task),
            of_connection: Part::of(&task),
            task,
        }
    }

    /// The connection itself, until it has ended.
    pub fn connection(&mut self) -> Option<Pin<&mut C>> {
        self.connection.as_mut().map(Pin::as_mut)
    }

    fn is_woken(&self) -> bool {
        self.of_streams.0.woken.load(SeqCst) || self.of_connection.0.woken.load(SeqCst)
    }

    /// Polls the streams, and then the connection, which writes what they had to say. True if there is more to do.
    fn round(&mut self) -> bool {
        let cx = &mut Context::from_waker(&self.of_streams.1);
        // The set pauses after two that woke themselves, as a stream does that gets room to send.
        for _ in 0..=self.running.len() {
            self.of_streams.0.woken.store(false, SeqCst);
            while let Poll::Ready(Some(())) = self.running.poll_next_unpin(cx) {}
            if !self.of_streams.0.woken.load(SeqCst) {
                break;
            }
        }
        self.of_connection.0.woken.store(false, SeqCst);
        let cx = &mut Context::from_waker(&self.of_connection.1);
        if let Some(connection) = &mut self.connection
            && let Poll::Ready(ended) = connection.as_mut().poll(cx)
        {
            self.ended = Some(ended);
            self.connection = None;
        }
        let begun = std::mem::take(&mut *self.begun.0.lock().unwrap_or_else(PoisonError::into_inner));
        let has_begun = !begun.is_empty();
        self.running.extend(begun);
        has_begun || self.is_woken()
    }
}

impl<C: Future<Output: Unpin>> Future for Together<C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = &mut *self;
        this.task.waker.register(cx.waker());
        this.task.runs.store(true, SeqCst);
        let has_more = (0..ROUNDS).all(|_| this.round());
        this.task.runs.store(false, SeqCst);
        if this.running.is_empty()
            && let Some(ended) = this.ended.take()
        {
            return Poll::Ready(ended);
        }
        // Woken since the last look, too, when that told nobody.
        if has_more || this.is_woken() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use tokio::sync::watch;

    use super::*;

    /// What streams say, and the connection that writes it: how much each time, until it is told to end.
    #[derive(Default)]
    struct Written {
        said: AtomicU32,
        writes: Mutex<Vec<u32>>,
        waker: AtomicWaker,
        ends: AtomicBool,
    }

    struct Connection(Arc<Written>);

    impl Future for Connection {
        type Output = &'static str;

        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<&'static str> {
            self.0.waker.register(cx.waker());
            let said = self.0.said.swap(0, SeqCst);
            if said > 0 {
                self.0.writes.lock().unwrap().push(said);
            }
            if self.0.ends.load(SeqCst) { Poll::Ready("ended") } else { Poll::Pending }
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// Streams that say something each time they are told to, wake their connection as the library's do, and themselves.
    fn streams(count: u32) -> (Together<Connection>, Arc<Written>, watch::Sender<u32>) {
        let (written, begun) = (Arc::<Written>::default(), Begun::default());
        let (tell, told) = watch::channel(0);
        for _ in 0..count {
            let (written, mut told) = (Arc::clone(&written), told.clone());
            begun.execute(async move {
                while told.changed().await.is_ok() {
                    tokio::task::yield_now().await;
                    written.said.fetch_add(1, SeqCst);
                    written.waker.wake();
                }
            });
        }
        (Together::new(Connection(Arc::clone(&written)), begun), written, tell)
    }

    #[test]
    fn what_all_streams_have_to_say_is_written_at_once_and_by_one_wake_up() {
        let (mut together, written, tell) = streams(20);
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let cx = &mut Context::from_waker(&waker);
        assert!(Pin::new(&mut together).poll(cx).is_pending());
        for turn in 1..4 {
            tell.send(turn).unwrap();
            assert_eq!(wakes.0.load(SeqCst), turn, "one for all of them, and none by themselves before");
            assert!(Pin::new(&mut together).poll(cx).is_pending());
            assert_eq!(*written.writes.lock().unwrap(), vec![20; turn as usize]);
        }
    }

    #[test]
    fn it_ends_with_its_connection_once_its_streams_have() {
        let (mut together, written, tell) = streams(3);
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut together).poll(cx).is_pending());
        written.ends.store(true, SeqCst);
        written.waker.wake();
        assert!(Pin::new(&mut together).poll(cx).is_pending());
        drop(tell);
        assert_eq!(Pin::new(&mut together).poll(cx), Poll::Ready("ended"));
    }

    #[test]
    fn a_stream_that_panics_ends_no_other() {
        let (mut together, written, tell) = streams(3);
        together.begun.execute(async { panic!("as a stream of its own") });
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut together).poll(cx).is_pending());
        tell.send(1).unwrap();
        assert!(Pin::new(&mut together).poll(cx).is_pending());
        assert_eq!(*written.writes.lock().unwrap(), [3]);
    }
}
