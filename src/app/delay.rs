//! How late the workers run. A timer of the kernel's becomes ready at a known instant, like a socket does when bytes come;
//! from there to the run of the task that waits for it is what every event of every stream waits, too.
//!
//! tokio's own timers round to milliseconds, so this is a timerfd. It is set some thirty times a second, at no fixed
//! rhythm: what happens periodically would else be seen each time or never. Of several runtimes each is looked at, as often in
//! all.

use std::{io, sync::Arc, time::Duration};

use rustix::{
    fd::OwnedFd,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};
use tokio::{io::unix::AsyncFd, runtime::Handle, task::JoinHandle};

use crate::{net::waited_for, tap::Shared};

/// From one look to the next at any of them, in microseconds.
const PAUSE: std::ops::Range<u64> = 20_000..40_000;

/// Watches until dropped.
pub(super) struct Watch(Vec<JoinHandle<()>>);

impl Watch {
    /// Tells the recorder how late these runtimes' workers run.
    pub(super) fn start<'a>(shared: &Arc<Shared>, runtimes: impl IntoIterator<Item = &'a Handle>) -> Self {
        let watching = runtimes.into_iter().map(|runtime| {
            let shared = Arc::clone(shared);
            runtime.spawn(async move {
                if let Err(error) = watch(&shared).await {
                    tracing::warn!(%error, "how late the workers run is not measured");
                }
            })
        });
        Self(watching.collect())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

async fn watch(shared: &Shared) -> io::Result<()> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let timer = waited_for(timer)?;
    let runtimes = u32::try_from(shared.cores()).unwrap_or(u32::MAX);
    loop {
        let pause = Duration::from_micros(fastrand::u64(PAUSE)) * runtimes;
        // Just before the kernel's clock starts: what is measured is too long by the call, a microsecond, and never too short.
        let due = shared.clock.now() + pause.into();
        set(&timer, pause)?;
        let mut ready = timer.readable().await?;
        shared.recorder.runtime_delay(shared.clock.now().since(due));
        // Where no read looks at the wall clock, this does: the records' times follow a step.
        shared.clock.follow();
        // Setting it anew makes it unready.
        ready.clear_ready();
    }
}

fn set(timer: &AsyncFd<OwnedFd>, pause: Duration) -> io::Result<()> {
    let once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let after = Timespec::try_from(pause).map_err(io::Error::other)?;
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: once, it_value: after })?;
    Ok(())
}
