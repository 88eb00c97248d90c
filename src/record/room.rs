//! Who is in flight and who waits for a first output, of one (upstream, model). Pure: takes stamps, has no timer.
//!
//! A deadline passes without anything happening, so nobody is called when it does. It is counted when somebody next
//! looks: the scrape, the first output or the end of the exchange. A scrape looks at everyone first and so shows what a
//! timer would have counted by then.

use std::collections::HashMap;

use crate::clock::{Nanos, Stamp};

/// How far back a peak is remembered.
const PEAK_SECONDS: u64 = 60;
const PEAK_SLOTS: usize = 60;

/// The exchanges of one (upstream, model) that have not ended.
#[derive(Debug)]
pub(super) struct Room {
    in_flight: u32,
    /// Those of them that are tunnels: their turns are the load, not they.
    tunnels: u32,
    /// Time in flight of those that have left.
    done: u128,
    /// Sum of the beginnings of those that are here: with it the time integral of any moment is one subtraction.
    begun: u128,
    /// Most in flight by second, as (second, most), one slot per second modulo their number.
    peaks: [(u64, u32); PEAK_SLOTS],
    waiting: HashMap<u64, Waiting>,
    tickets: u64,
}

/// A request for a stream that has no output yet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Waiting {
    /// Its departure; absent before it.
    pub(super) since: Option<Stamp>,
    /// How many deadlines, the shortest first, are counted as missed already.
    pub(super) missed: usize,
}

impl Room {
    pub(super) fn new() -> Self {
        Self {
            in_flight: 0,
            tunnels: 0,
            done: 0,
            begun: 0,
            peaks: [(0, 0); PEAK_SLOTS],
            waiting: HashMap::new(),
            tickets: 0,
        }
    }

    /// An exchange that began at `head` comes in; one that waits gets a ticket. Returns how many are here then, tunnels
    /// aside.
    pub(super) fn enter(&mut self, head: Stamp, waits: bool) -> (u32, Option<u64>) {
        self.in_flight += 1;
        self.begun += u128::from(head.nanos());
        let ticket = waits.then(|| {
            self.tickets += 1;
            self.waiting.insert(self.tickets, Waiting::default());
            self.tickets
        });
        (self.in_flight.saturating_sub(self.tunnels), ticket)
    }

    /// The request left (again, if there was an earlier attempt).
    pub(super) fn sent(&mut self, ticket: u64, at: Stamp) {
        if let Some(waiting) = self.waiting.get_mut(&ticket) {
            waiting.since = Some(at);
        }
    }

    /// One of those that are here has become a tunnel.
    pub(super) fn tunnelled(&mut self) {
        self.tunnels += 1;
    }

    /// One of the tunnels is about to leave.
    pub(super) fn tunnel_leaves(&mut self) {
        self.tunnels = self.tunnels.saturating_sub(1);
    }

    /// The wait is over. Absent if it was before.
    pub(super) fn served(&mut self, ticket: u64) -> Option<Waiting> {
        self.waiting.remove(&ticket)
    }

    /// An exchange that began at `head` leaves. Returns its wait, if it still waited.
    pub(super) fn leave(&mut self, head: Stamp, ticket: Option<u64>, end: Stamp) -> Option<Waiting> {
        // The number only falls here, so every peak is either seen now or still there at the next look.
        let second = end.nanos() / 1_000_000_000;
        let slot = &mut self.peaks[usize::try_from(second % PEAK_SECONDS).unwrap_or(0)];
        *slot = (second, if slot.0 == second { slot.1.max(self.in_flight) } else { self.in_flight });
        self.in_flight = self.in_flight.saturating_sub(1);
        self.begun = self.begun.saturating_sub(u128::from(head.nanos()));
        self.done += u128::from(end.since(head).0);
        self.waiting.remove(&ticket?)
    }

    /// Counts the deadlines (ascending) that have passed: `missed` is called with the index of each, once per exchange.
    pub(super) fn overdue(&mut self, now: Stamp, deadlines: &[Nanos], mut missed: impl FnMut(usize)) {
        for waiting in self.waiting.values_mut() {
            let Some(since) = waiting.since else { continue };
            while deadlines.get(waiting.missed).is_some_and(|deadline| now.since(since) > *deadline) {
                missed(waiting.missed);
                waiting.missed += 1;
            }
        }
    }

    /// How many are here.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Most that were here at once in the last 60 s, to the second.
    pub(super) fn peak(&self, now: Stamp) -> u32 {
        let oldest = (now.nanos() / 1_000_000_000).saturating_sub(PEAK_SECONDS - 1);
        let recent = self.peaks.iter().filter(|(second, _)| *second >= oldest).map(|(_, most)| *most);
        recent.fold(self.in_flight, u32::max)
    }

    /// Nanoseconds in flight, summed over all that are or were here.
    pub(super) fn time(&self, now: Stamp) -> u64 {
        let running = u128::from(self.in_flight) * u128::from(now.nanos());
        u64::try_from((self.done + running).saturating_sub(self.begun)).unwrap_or(u64::MAX)
    }

    /// The longest wait for a first output; zero when nobody waits.
    pub(super) fn oldest(&self, now: Stamp) -> Nanos {
        self.waiting.values().filter_map(|waiting| Some(now.since(waiting.since?))).max().unwrap_or(Nanos::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Stamp {
        Stamp::from_nanos(seconds * SECOND).unwrap()
    }

    #[test]
    fn the_time_integral_is_exact_at_any_moment() {
        let mut room = Room::new();
        room.enter(at(10), false);
        room.enter(at(12), false);
        assert_eq!(room.time(at(15)), (5 + 3) * SECOND);
        room.leave(at(10), None, at(16));
        assert_eq!(room.time(at(20)), (6 + 8) * SECOND);
        room.leave(at(12), None, at(20));
        assert_eq!(room.time(at(99)), (6 + 8) * SECOND);
    }

    #[test]
    fn a_peak_is_seen_for_sixty_seconds_by_everyone_who_looks() {
        let mut room = Room::new();
        for head in [100, 101, 102] {
            room.enter(at(head), false);
        }
        for head in [100, 101, 102] {
            room.leave(at(head), None, at(110));
        }
        assert_eq!((room.peak(at(110)), room.peak(at(110))), (3, 3));
        assert_eq!(room.peak(at(169)), 3);
        assert_eq!(room.peak(at(170)), 0);
        room.enter(at(230), false);
        assert_eq!(room.peak(at(500)), 1, "one that is still here counts however long ago it came");
    }

    #[test]
    fn deadlines_pass_once_each_and_only_after_the_departure() {
        let mut room = Room::new();
        let deadlines = [Nanos(SECOND), Nanos(3 * SECOND)];
        let (_, ticket) = room.enter(at(10), true);
        let missed = |room: &mut Room, now| {
            let mut indices = Vec::new();
            room.overdue(at(now), &deadlines, |index| indices.push(index));
            indices
        };
        assert!(missed(&mut room, 20).is_empty());
        room.sent(ticket.unwrap(), at(20));
        assert!(missed(&mut room, 21).is_empty(), "a deadline is met to its last nanosecond");
        assert_eq!(missed(&mut room, 22), [0]);
        assert!(missed(&mut room, 23).is_empty());
        assert_eq!(missed(&mut room, 30), [1]);
        assert_eq!(room.served(ticket.unwrap()), Some(Waiting { since: Some(at(20)), missed: 2 }));
        assert_eq!(room.leave(at(10), ticket, at(31)), None);
    }

    #[test]
    fn the_oldest_wait_is_that_of_who_left_first() {
        let mut room = Room::new();
        let (_, first) = room.enter(at(1), true);
        let (load, second) = room.enter(at(2), true);
        assert_eq!((load, room.oldest(at(9))), (2, Nanos::ZERO));
        room.sent(second.unwrap(), at(4));
        room.sent(first.unwrap(), at(5));
        assert_eq!(room.oldest(at(9)), Nanos(5 * SECOND));
        room.served(second.unwrap());
        assert_eq!(room.oldest(at(9)), Nanos(4 * SECOND));
        room.leave(at(1), first, at(9));
        assert_eq!(room.oldest(at(9)), Nanos::ZERO);
    }
}
