//! Where the wall clock stands against our stamps, and which wall-clock stamps of the kernel can be told by it.
//!
//! Both clocks run at one rate: what slews one slews the other. So their difference is a constant, measured once, until
//! somebody *steps* the wall clock. Every use looks at both clocks and compares; when they disagree with the constant the
//! reader was either interrupted between the two looks, or there was a step. A second, closer look tells which.
//!
//! After a step, bytes that arrived before it still carry the old time. Where they could be taken for later ones they
//! are not believed. A step that was taken back before anybody looked is not seen.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use super::{AtomicStamp, Stamp};

/// A reading of the wall clock: nanoseconds since 1970, in UTC as the system has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WallTime(pub i64);

/// The wall clock, and our own just before and after it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look {
    pub(super) before: Stamp,
    pub(super) wall: WallTime,
    pub(super) after: Stamp,
}

impl Look {
    fn width(self) -> u64 {
        self.after.since(self.before).0
    }

    /// The wall clock less ours, in the middle between the two readings of ours.
    fn ahead(self) -> i64 {
        self.wall.0.saturating_sub(signed(self.before.nanos() + self.width() / 2))
    }
}

/// Two looks in a row are some 30 ns apart. What is further apart than this needs a closer look, and a step smaller than
/// this is taken for none: it is the error of a stamp. Where a clock takes longer to read than that allows for, twice as
/// long as reading takes stands in its place: else every read would need a closer look, one after the other.
const TOLERANCE: u64 = 1_000;
/// No clock takes longer: who was interrupted at every look of the start must not be blind to steps for good.
const SLOWEST: u64 = 20_000;

/// Looks taken to find one without an interruption.
const LOOKS: usize = 5;

/// The difference of the two clocks.
#[derive(Debug)]
pub(super) struct Offset {
    /// The wall clock less ours, in nanoseconds.
    ahead: AtomicI64,
    /// What seems to have arrived before this may have been stamped before a step.
    believed_from: AtomicStamp,
    stepping: Mutex<()>,
    /// In nanoseconds: [`TOLERANCE`], or more with slow clocks.
    tolerance: u64,
}

impl Offset {
    /// The difference as it stands now.
    pub(super) fn new(look: impl FnMut() -> Look) -> Self {
        let look = narrowest(look);
        Self {
            ahead: AtomicI64::new(look.ahead()),
            believed_from: AtomicStamp::absent(),
            stepping: Mutex::new(()),
            tolerance: (2 * look.width()).clamp(TOLERANCE, SLOWEST),
        }
    }

    /// The wall clock at this stamp, as the last look had it.
    pub(super) fn wall(&self, stamp: Stamp) -> WallTime {
        WallTime(signed(stamp.nanos()).saturating_add(self.ahead.load(Ordering::Acquire)))
    }

    /// Takes note of a step, if there was one. `now` and `wall` are both clocks, read one after the other.
    pub(super) fn follow(&self, now: Stamp, wall: WallTime, look: impl FnMut() -> Look) {
        if !self.agrees(now, wall) {
            self.look_closer(look);
        }
    }

    /// When bytes arrived that the kernel received at `received` by the wall clock. `now` and `wall` are both clocks, read
    /// one after the other once the bytes were here. Absent if that can't be told.
    pub(super) fn arrival(
        &self,
        received: WallTime,
        now: Stamp,
        wall: WallTime,
        look: impl FnMut() -> Look,
    ) -> Option<Stamp> {
        if !self.agrees(now, wall) && !self.look_closer(look) {
            return None;
        }
        // A step is written down in the other order, so whoever has the new difference has the doubt, too.
        let ahead = self.ahead.load(Ordering::Acquire);
        let arrival = Stamp::from_nanos(u64::try_from(received.0.saturating_sub(ahead)).ok()?)?;
        let doubted = self.believed_from.load().is_some_and(|from| arrival < from);
        (!doubted && arrival.since(now).0 <= self.tolerance).then(|| arrival.min(now))
    }

    fn agrees(&self, now: Stamp, wall: WallTime) -> bool {
        let ahead = wall.0.saturating_sub(signed(now.nanos()));
        ahead.abs_diff(self.ahead.load(Ordering::Acquire)) <= self.tolerance
    }

    /// Tells an interruption from a step, and takes note of a step. False if the reader is interrupted all the time.
    #[cold]
    fn look_closer(&self, look: impl FnMut() -> Look) -> bool {
        // Looked at one after the other: an older look must not take back what a newer one saw.
        let _one = self.stepping.lock().unwrap_or_else(PoisonError::into_inner);
        let look = narrowest(look);
        if look.width() > self.tolerance {
            return false;
        }
        let ahead = look.ahead();
        let step = ahead.saturating_sub(self.ahead.load(Ordering::Acquire));
        if step.unsigned_abs() > self.tolerance {
            tracing::info!(seconds = step as f64 / 1e9, "the wall clock was stepped");
            // What was stamped before now would seem to have come this much later than it did, if the clock went back.
            let back = super::Nanos(u64::try_from(step.saturating_neg()).unwrap_or(0));
            let doubted = self.believed_from.load().map_or(look.after, |from| from.max(look.after));
            self.believed_from.store(Some(doubted + back));
            self.ahead.store(ahead, Ordering::Release);
        }
        true
    }
}

fn narrowest(mut look: impl FnMut() -> Look) -> Look {
    let mut best = look();
    for _ in 1..LOOKS {
        let next = look();
        if next.width() < best.width() {
            best = next;
        }
    }
    best
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Two clocks that run together until the wall clock is stepped.
    struct Clocks {
        now: Cell<u64>,
        ahead: Cell<i64>,
        /// How long the reader is interrupted between two readings.
        interrupted: Cell<u64>,
    }

    const START: i64 = 1_700_000_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    impl Clocks {
        fn new() -> (Self, Offset) {
            let clocks = Self { now: Cell::new(SECOND), ahead: Cell::new(START), interrupted: Cell::new(0) };
            let offset = Offset::new(|| clocks.look());
            (clocks, offset)
        }

        fn stamp(&self) -> Stamp {
            self.now.set(self.now.get() + 25);
            Stamp::from_nanos(self.now.get()).unwrap()
        }

        fn wall(&self) -> WallTime {
            WallTime(self.stamp().nanos().cast_signed() + self.ahead.get())
        }

        fn look(&self) -> Look {
            let before = self.stamp();
            self.pass(self.interrupted.get());
            Look { before, wall: self.wall(), after: self.stamp() }
        }

        fn pass(&self, nanos: u64) {
            self.now.set(self.now.get() + nanos);
        }

        /// Reads, as the clock does, what the kernel received at `received`.
        fn read(&self, offset: &Offset, received: WallTime) -> Option<Stamp> {
            let now = self.stamp();
            self.pass(self.interrupted.get());
            offset.arrival(received, now, self.wall(), || self.look())
        }

        /// A packet arrives, and lies there for `nanos`: when it truly came, and what is made of it.
        fn packet(&self, offset: &Offset, nanos: u64) -> (u64, Option<Stamp>) {
            let received = self.wall();
            let came = self.now.get();
            self.pass(nanos);
            (came, self.read(offset, received))
        }

        #[track_caller]
        fn assert_exact(&self, offset: &Offset, lying: u64) {
            let (came, arrival) = self.packet(offset, lying);
            let arrival = arrival.expect("it is believed").nanos();
            assert!(arrival.abs_diff(came) <= 100, "{arrival} for {came}");
        }
    }

    #[test]
    fn the_kernels_stamp_is_told_by_our_clock() {
        let (clocks, offset) = Clocks::new();
        for lying in [0, 1_000, SECOND, 3_600 * SECOND] {
            clocks.assert_exact(&offset, lying);
        }
    }

    #[test]
    fn an_interruption_between_two_looks_is_no_step() {
        let (clocks, offset) = Clocks::new();
        // Interrupted at the read, not at the closer look.
        let received = clocks.wall();
        let came = clocks.now.get();
        let now = clocks.stamp();
        clocks.pass(5_000_000);
        let arrival = offset.arrival(received, now, clocks.wall(), || clocks.look());
        assert!(arrival.unwrap().nanos().abs_diff(came) <= 100);
        assert_eq!(offset.believed_from.load(), None);
        clocks.assert_exact(&offset, 50_000);
    }

    #[test]
    fn who_is_interrupted_all_the_time_can_not_tell() {
        let (clocks, offset) = Clocks::new();
        clocks.interrupted.set(2_000);
        assert_eq!(clocks.packet(&offset, 0).1, None);
        clocks.interrupted.set(0);
        clocks.assert_exact(&offset, 0);
    }

    #[test]
    fn slewing_moves_both_clocks() {
        let (clocks, offset) = Clocks::new();
        for _ in 0..1_000 {
            // Whatever the rate: both show it.
            clocks.pass(100_500_000);
            clocks.assert_exact(&offset, 10_000);
        }
        assert_eq!(offset.believed_from.load(), None);
    }

    #[test]
    fn after_a_step_forward_only_what_came_later_is_believed() {
        let (clocks, offset) = Clocks::new();
        let before = clocks.wall();
        clocks.pass(1_000_000);
        clocks.ahead.set(START + 2 * SECOND.cast_signed());
        let unseen = clocks.wall();
        clocks.pass(1_000_000);
        assert_eq!(clocks.read(&offset, before), None, "stamped before the step, read after it");
        assert_eq!(clocks.read(&offset, unseen), None, "stamped after the step, before it was seen");
        clocks.assert_exact(&offset, 0);
        clocks.assert_exact(&offset, SECOND);
        assert_eq!(clocks.read(&offset, before), None, "still lying there");
    }

    #[test]
    fn after_a_step_back_what_came_before_it_is_never_taken_for_later() {
        let (clocks, offset) = Clocks::new();
        let step = 30_000_000_u64;
        let before = clocks.wall();
        clocks.ahead.set(START - step.cast_signed());
        assert_eq!(clocks.packet(&offset, 0).1, None, "the step is seen here");
        for _ in 0..10 {
            clocks.pass(step / 10);
            assert_eq!(clocks.read(&offset, before), None, "whether its time has come again or not");
        }
        // Past the step's length nothing older can look like this.
        clocks.pass(step / 10);
        clocks.assert_exact(&offset, 0);
        assert_eq!(clocks.read(&offset, before), None);
    }

    #[test]
    fn the_wall_clock_follows_a_step_with_the_first_look_behind_it() {
        let (clocks, offset) = Clocks::new();
        let off = |clocks: &Clocks| offset.wall(clocks.stamp()).0.abs_diff(clocks.wall().0);
        assert!(off(&clocks) <= 100);
        for step in [3_600 * SECOND.cast_signed(), -30_000_000] {
            clocks.ahead.set(clocks.ahead.get() + step);
            assert!(off(&clocks) > TOLERANCE, "nobody has looked");
            offset.follow(clocks.stamp(), clocks.wall(), || clocks.look());
            assert!(off(&clocks) <= 100);
        }
        // A read is such a look, too.
        clocks.ahead.set(START);
        assert_eq!(clocks.packet(&offset, 0).1, None);
        assert!(off(&clocks) <= 100);
    }

    #[test]
    fn a_slow_clock_is_no_step() {
        let clocks = Clocks { now: Cell::new(SECOND), ahead: Cell::new(START), interrupted: Cell::new(3_000) };
        let offset = Offset::new(|| clocks.look());
        let mut closer = 0;
        for _ in 0..100 {
            let (received, now) = (clocks.wall(), clocks.stamp());
            clocks.pass(3_000);
            let arrival = offset.arrival(received, now, clocks.wall(), || {
                closer += 1;
                clocks.look()
            });
            assert!(arrival.is_some());
        }
        assert_eq!(closer, 0, "no read takes the lock");
        // What is larger than its grain is one.
        clocks.ahead.set(START + 50_000);
        assert_eq!(clocks.packet(&offset, 0).1, None);
    }

    #[test]
    fn steps_in_a_row_add_up() {
        let (clocks, offset) = Clocks::new();
        let before = clocks.wall();
        for back in 1..=3 {
            clocks.ahead.set(START - back * 1_000_000);
            assert_eq!(clocks.packet(&offset, 0).1, None);
        }
        for _ in 0..40 {
            clocks.pass(100_000);
            assert_eq!(clocks.read(&offset, before), None);
        }
        clocks.assert_exact(&offset, 0);
    }

    #[test]
    fn nothing_arrives_later_than_it_was_read_or_before_there_was_a_clock() {
        let (clocks, offset) = Clocks::new();
        let received = WallTime(clocks.wall().0 + 1_000_000);
        assert_eq!(clocks.read(&offset, received), None);
        assert_eq!(clocks.read(&offset, WallTime(0)), None);
        assert_eq!(clocks.read(&offset, WallTime(i64::MIN)), None);
        assert_eq!(clocks.read(&offset, WallTime(i64::MAX)), None);
        let now = clocks.stamp();
        let just = WallTime(now.nanos().cast_signed() + START + 200);
        let arrival = offset.arrival(just, now, clocks.wall(), || clocks.look());
        assert_eq!(arrival, Some(now), "within the error of a stamp");
    }

    proptest::proptest! {
        /// Whatever is stepped and however long packets lie: an arrival that is believed is the true one.
        #[test]
        fn what_is_believed_is_true(events in proptest::collection::vec((0_u64..3_000_000, -2_000_000_i64..2_000_000, 0_usize..4), 1..60)) {
            let (clocks, offset) = Clocks::new();
            let mut lying = std::collections::VecDeque::new();
            for (pass, step, kind) in events {
                clocks.pass(pass);
                match kind {
                    0 if step.unsigned_abs() > TOLERANCE => {
                        // Of two steps between looks only the sum can be seen: here each is looked at before the next.
                        offset.arrival(clocks.wall(), clocks.stamp(), clocks.wall(), || clocks.look());
                        clocks.ahead.set(clocks.ahead.get() + step);
                    }
                    1 | 2 => lying.push_back((clocks.wall(), clocks.now.get())),
                    _ => {
                        // A step taken back before anybody looks can't be seen.
                        offset.arrival(clocks.wall(), clocks.stamp(), clocks.wall(), || clocks.look());
                        if let Some((received, came)) = lying.pop_front()
                            && let Some(arrival) = clocks.read(&offset, received)
                        {
                            proptest::prop_assert!(arrival.nanos().abs_diff(came) <= 1_000, "{arrival:?} for {came}");
                        }
                    }
                }
            }
        }
    }
}
