//! Wake-ups finer than the runtime's timer, which rounds up to whole milliseconds: at 100 tokens per second that would
//! lay all streams on one grid and send their events in bursts. One thread sleeps until the nearest deadline; nothing
//! spins.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    future::poll_fn,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread,
};

use crate::clock::{Clock, Stamp};

/// The thread's handle: it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Timer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: BinaryHeap<Reverse<Entry>>,
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    due: Stamp,
    waker: Waker,
}

impl Timer {
    pub(super) fn start(clock: Clock) -> io::Result<Self> {
        let shared = Arc::new(Shared { clock, state: Mutex::default(), changed: Condvar::new() });
        let run = Arc::clone(&shared);
        thread::Builder::new().name("sim-timer".to_owned()).spawn(move || run.run())?;
        Ok(Self { shared })
    }

    fn wake_at(&self, due: Stamp, waker: Waker) {
        let mut state = self.shared.lock();
        let nearest = state.waiting.peek().is_none_or(|Reverse(entry)| due < entry.due);
        state.waiting.push(Reverse(Entry { due, waker }));
        drop(state);
        if nearest {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut due = Vec::new();
        let mut state = self.lock();
        while !state.closed {
            let now = self.clock.now();
            while state.waiting.peek().is_some_and(|Reverse(entry)| entry.due <= now) {
                due.extend(state.waiting.pop().map(|Reverse(entry)| entry.waker));
            }
            if !due.is_empty() {
                // Waking runs foreign code, and a woken task may want to wait again.
                drop(state);
                due.drain(..).for_each(Waker::wake);
                state = self.lock();
                continue;
            }
            state = match state.waiting.peek() {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Reverse(entry)) => {
                    let span = entry.due.since(now).into();
                    self.changed.wait_timeout(state, span).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// One waiter at a timer: it waits for one stamp at a time.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: Arc<Timer>,
    set: Option<(Stamp, Waker)>,
}

impl Alarm {
    pub(super) fn new(timer: Arc<Timer>) -> Self {
        Self { timer, set: None }
    }

    /// Ready once `due` has passed, never before.
    pub(super) fn poll(&mut self, due: Stamp, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.shared.clock.now() >= due {
            self.set = None;
            return Poll::Ready(());
        }
        // A second poll for the same stamp from the same task is already on the timer's list.
        if !self.set.as_ref().is_some_and(|(set, waker)| *set == due && waker.will_wake(cx.waker())) {
            self.timer.wake_at(due, cx.waker().clone());
            self.set = Some((due, cx.waker().clone()));
        }
        Poll::Pending
    }

    pub(super) async fn until(&mut self, due: Stamp) {
        poll_fn(|cx| self.poll(due, cx)).await;
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Nanos;

    #[tokio::test]
    async fn waiters_wake_in_order_and_never_early() {
        let clock = Clock::start();
        let timer = Arc::new(Timer::start(clock).unwrap());
        let start = clock.now();
        let woken = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = [30_u64, 10, 20, 0]
            .into_iter()
            .map(|millis| {
                let (mut alarm, woken) = (Alarm::new(Arc::clone(&timer)), Arc::clone(&woken));
                tokio::spawn(async move {
                    let due = start + Nanos(millis * 1_000_000);
                    alarm.until(due).await;
                    assert!(clock.now() >= due);
                    woken.lock().unwrap().push(millis);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), [0, 10, 20, 30]);
    }
}
