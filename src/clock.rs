//! Time, as values. This is the only file that reads a clock; everything below the sockets takes [`Stamp`]s.
//!
//! A [`Clock`] is copied to whoever must read it. [`Clock::start`] runs on tokio's clock, so a test that pauses the runtime's
//! time pauses the gauge with it. [`Clock::system`], the program's, asks the operating system itself where that is known to be
//! the same clock: a reading costs 60 instructions there, and 200 by way of tokio's and the library's instants.

mod offset;

use std::{
    num::NonZeroU64,
    ops::{Add, AddAssign},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

pub use self::offset::WallTime;
use self::offset::{Look, Offset};

/// An instant: nanoseconds since the [`Clock`]'s origin, never zero, so an absent stamp costs no space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stamp(NonZeroU64);

impl Stamp {
    /// The clock's beginning, before every other stamp.
    pub const ORIGIN: Self = Self(NonZeroU64::MIN);

    /// The stamp `nanos` nanoseconds after the origin; absent for 0.
    pub const fn from_nanos(nanos: u64) -> Option<Self> {
        match NonZeroU64::new(nanos) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// Nanoseconds since the clock's origin.
    pub const fn nanos(self) -> u64 {
        self.0.get()
    }

    /// Time from `earlier` to this stamp; zero if `earlier` is later (differences never go negative).
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// This stamp moved back by `span`, not beyond the origin.
    pub fn minus(self, span: Nanos) -> Self {
        Self(NonZeroU64::new(self.nanos().saturating_sub(span.0)).unwrap_or(NonZeroU64::MIN))
    }
}

impl Add<Nanos> for Stamp {
    type Output = Self;

    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// A span of time in nanoseconds, never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// The span in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// This span less `other`, not below zero.
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Self {
        Self::from_nanos(span.0)
    }
}

/// A stamp that one task writes and others read; absent until stored.
#[derive(Debug, Default)]
pub struct AtomicStamp(AtomicU64);

impl AtomicStamp {
    /// A cell without a stamp.
    pub const fn absent() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The stamp, if one was stored.
    pub fn load(&self) -> Option<Stamp> {
        Stamp::from_nanos(self.0.load(Ordering::Acquire))
    }

    /// Stores a stamp, or takes it away.
    pub fn store(&self, stamp: Option<Stamp>) {
        self.0.store(stamp.map_or(0, Stamp::nanos), Ordering::Release);
    }

    /// Stores a stamp unless there is one.
    pub fn store_once(&self, stamp: Stamp) {
        if self.0.load(Ordering::Relaxed) == 0 {
            let _ = self.0.compare_exchange(0, stamp.nanos(), Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

/// When bytes arrived, and who says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When.
    pub at: Stamp,
    /// When they were read.
    pub read: Stamp,
    /// The kernel saw them arrive; otherwise both are when they were read.
    pub by_kernel: bool,
}

/// The source of stamps, and where the wall clock stands against them.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Origin,
    offset: &'static Offset,
}

/// When a clock began.
#[derive(Clone, Copy, Debug)]
struct Origin {
    instant: tokio::time::Instant,
    /// The same by the operating system's monotonic clock, in nanoseconds; absent where that is not read.
    system: Option<u64>,
}

impl Clock {
    /// A clock whose origin is now. A program has one: a few bytes of each stay for good.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads time")]
    pub fn start() -> Self {
        Self::from(Origin { instant: tokio::time::Instant::now(), system: None })
    }

    /// The same for the program: as cheap as the system has it, and never paused.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads time")]
    pub fn system() -> Self {
        let system = cfg!(target_os = "linux").then(monotonic);
        Self::from(Origin { instant: tokio::time::Instant::now(), system })
    }

    fn from(origin: Origin) -> Self {
        let offset = Offset::new(|| look(origin));
        Self { origin, offset: Box::leak(Box::new(offset)) }
    }

    /// The present.
    #[inline]
    pub fn now(&self) -> Stamp {
        present(self.origin)
    }

    /// Arrival of bytes that have just been read, and that the kernel received at `received` by the wall clock. Steps of
    /// that clock do not show: where one may have come between, it is the present, as it is without the kernel's word.
    #[inline]
    pub fn arrival(&self, received: Option<WallTime>) -> Arrival {
        let now = self.now();
        let by_kernel =
            received.and_then(|received| self.offset.arrival(received, now, wall_time(), || look(self.origin)));
        Arrival { at: by_kernel.unwrap_or(now), read: now, by_kernel: by_kernel.is_some() }
    }

    /// The wall-clock time of a stamp, by where the wall clock stood when it was last looked at: by a read whose stamp the
    /// kernel gave, or by [`Clock::follow`]. Not before 1970.
    pub fn wall(&self, stamp: Stamp) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(u64::try_from(self.offset.wall(stamp).0).unwrap_or(0))
    }

    /// Looks whether the wall clock was stepped, for [`Clock::wall`] to follow where no read does. Not with paused time,
    /// which would look like one step after the other.
    pub fn follow(&self) {
        self.offset.follow(self.now(), wall_time(), || look(self.origin));
    }

    /// The instant of a stamp, for timers.
    pub fn instant(&self, stamp: Stamp) -> tokio::time::Instant {
        self.origin.instant + Duration::from_nanos(stamp.nanos() - 1)
    }
}

#[inline]
#[expect(clippy::disallowed_methods, reason = "the one place that reads time")]
fn present(origin: Origin) -> Stamp {
    let nanos = match origin.system {
        Some(system) => monotonic().saturating_sub(system),
        None => Nanos::from(tokio::time::Instant::now().duration_since(origin.instant)).0,
    };
    Stamp(NonZeroU64::MIN.saturating_add(nanos))
}

/// The clock that the library's and tokio's instants are of, on Linux.
fn monotonic() -> u64 {
    u64::try_from(nanos(ClockId::Monotonic)).unwrap_or(0)
}

/// A clock before 1970 stands still there: whatever the kernel says of it is too far off to be believed.
fn wall_time() -> WallTime {
    WallTime(nanos(ClockId::Realtime).max(0))
}

fn nanos(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

fn look(origin: Origin) -> Look {
    Look { before: present(origin), wall: wall_time(), after: present(origin) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_saturate() {
        let early = Stamp::from_nanos(5).unwrap();
        let late = Stamp::from_nanos(9).unwrap();
        assert_eq!(late.since(early), Nanos(4));
        assert_eq!(early.since(late), Nanos::ZERO);
        assert_eq!(early.minus(Nanos(100)).nanos(), 1);
    }

    #[test]
    fn an_absent_stamp_costs_no_space() {
        assert_eq!(size_of::<Option<Stamp>>(), 8);
        let cell = AtomicStamp::absent();
        assert_eq!(cell.load(), None);
        cell.store_once(Stamp::from_nanos(7).unwrap());
        cell.store_once(Stamp::from_nanos(8).unwrap());
        assert_eq!(cell.load(), Stamp::from_nanos(7));
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_paused_time() {
        let clock = Clock::start();
        let before = clock.now();
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert_eq!(clock.now().since(before), Nanos(250_000_000));
        assert_eq!(clock.wall(clock.now()).duration_since(clock.wall(before)).unwrap().as_millis(), 250);
    }

    #[test]
    fn the_kernels_word_is_told_by_our_clock() {
        let clock = Clock::start();
        let before = clock.now();
        let received = wall_time();
        let after = clock.now();
        std::thread::sleep(Duration::from_millis(20));
        let arrival = clock.arrival(Some(received));
        // A machine may be too busy to tell, but not every time.
        assert!(arrival.by_kernel || (0..1000).any(|_| clock.arrival(Some(wall_time())).by_kernel));
        if arrival.by_kernel {
            let (earliest, latest) = (before.minus(Nanos(5_000)), after + Nanos(5_000));
            assert!((earliest..=latest).contains(&arrival.at), "{arrival:?} of {before:?} to {after:?}");
        }
        let unsaid = clock.arrival(None);
        assert!(!unsaid.by_kernel && unsaid.at > arrival.at);
    }
}
