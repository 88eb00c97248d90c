//! Who is in flight and who waits for a first output, of one (upstream, model). Pure: takes stamps, has no timer.
//!
//! A deadline passes without anything happening, so nobody is called when it does. It is counted when somebody next
//! looks: the scrape, the first output or the end of the exchange. A scrape looks at everyone first and so shows what a
//! timer would have counted by then.

use std::{collections::BTreeMap, sync::Arc};

use crate::clock::{Nanos, Stamp};

/// How far back a peak is remembered.
const PEAK_SECONDS: u64 = 60;
const PEAK_SLOTS: usize = 60;

/// The exchanges of one (upstream, model) that have not ended.
#[derive(Debug)]
pub(super) struct Room {
    /// By ticket.
    here: BTreeMap<u64, Present>,
    /// Those of them that are tunnels: their turns are the load, not they.
    tunnels: u32,
    /// Time in flight of those that have left.
    done: u128,
    /// Sum of the beginnings of those that are here: with it the time integral of any moment is one subtraction.
    begun: u128,
    /// Most in flight by second, as (second, most), one slot per second modulo their number.
    peaks: [(u64, u32); PEAK_SLOTS],
    tickets: u64,
}

/// An exchange that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Present {
    /// Its `request_head`.
    pub(super) head: Stamp,
    /// The model as requested.
    pub(super) model: Option<Arc<str>>,
    /// The request asks for a stream.
    pub(super) stream: bool,
    /// The request's departure; absent before it.
    pub(super) sent: Option<Stamp>,
    /// From there to the first output; absent before it.
    pub(super) ttft: Option<Nanos>,
    /// It has become a tunnel.
    pub(super) tunnel: bool,
    /// How many deadlines, the shortest first, are counted as missed already.
    missed: usize,
}

impl Present {
    pub(super) const fn new(head: Stamp, model: Option<Arc<str>>, stream: bool) -> Self {
        Self { head, model, stream, sent: None, ttft: None, tunnel: false, missed: 0 }
    }

    /// The wait for a first output, of a request for a stream that has none yet.
    pub(super) fn waiting(&self) -> Option<Waiting> {
        (self.stream && self.ttft.is_none()).then_some(Waiting { since: self.sent, missed: self.missed })
    }
}

/// A wait for a first output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiting {
    /// The request's departure; absent before it.
    pub(super) since: Option<Stamp>,
    /// How many deadlines, the shortest first, are counted as missed already.
    pub(super) missed: usize,
}

impl Room {
    pub(super) fn new() -> Self {
        Self { here: BTreeMap::new(), tunnels: 0, done: 0, begun: 0, peaks: [(0, 0); PEAK_SLOTS], tickets: 0 }
    }

    /// An exchange comes in. Returns how many are here then, tunnels aside, and its ticket.
    pub(super) fn enter(&mut self, exchange: Present) -> (u32, u64) {
        self.begun += u128::from(exchange.head.nanos());
        self.tickets += 1;
        self.here.insert(self.tickets, exchange);
        (self.in_flight().saturating_sub(self.tunnels), self.tickets)
    }

    /// The request left (again, if there was an earlier attempt).
    pub(super) fn sent(&mut self, ticket: u64, at: Stamp) {
        if let Some(exchange) = self.here.get_mut(&ticket) {
            exchange.sent = Some(at);
        }
    }

    /// It has become a tunnel.
    pub(super) fn tunnelled(&mut self, ticket: u64) {
        if let Some(exchange) = self.here.get_mut(&ticket)
            && !std::mem::replace(&mut exchange.tunnel, true)
        {
            self.tunnels += 1;
        }
    }

    /// The first output came. Returns the wait that is over; absent if there was none.
    pub(super) fn served(&mut self, ticket: u64, ttft: Nanos) -> Option<Waiting> {
        let exchange = self.here.get_mut(&ticket)?;
        let waiting = exchange.waiting();
        exchange.ttft.get_or_insert(ttft);
        waiting
    }

    /// An exchange leaves. Returns its wait, if it still waited.
    pub(super) fn leave(&mut self, ticket: u64, end: Stamp) -> Option<Waiting> {
        // The number only falls here, so every peak is either seen now or still there at the next look.
        let (second, in_flight) = (end.nanos() / 1_000_000_000, self.in_flight());
        let slot = &mut self.peaks[usize::try_from(second % PEAK_SECONDS).unwrap_or(0)];
        *slot = (second, if slot.0 == second { slot.1.max(in_flight) } else { in_flight });
        let exchange = self.here.remove(&ticket)?;
        self.tunnels -= u32::from(exchange.tunnel);
        self.begun = self.begun.saturating_sub(u128::from(exchange.head.nanos()));
        self.done += u128::from(end.since(exchange.head).0);
        exchange.waiting()
    }

    /// Counts the deadlines (ascending) that have passed: `missed` is called with the index of each, once per exchange.
    pub(super) fn overdue(&mut self, now: Stamp, deadlines: &[Nanos], mut missed: impl FnMut(usize)) {
        for exchange in self.here.values_mut() {
            let Some(Waiting { since: Some(since), .. }) = exchange.waiting() else { continue };
            while deadlines.get(exchange.missed).is_some_and(|deadline| now.since(since) > *deadline) {
                missed(exchange.missed);
                exchange.missed += 1;
            }
        }
    }

    /// Those that are here, by ticket.
    pub(super) fn here(&self) -> impl Iterator<Item = (u64, &Present)> {
        self.here.iter().map(|(ticket, exchange)| (*ticket, exchange))
    }

    /// How many are here.
    pub(super) fn in_flight(&self) -> u32 {
        u32::try_from(self.here.len()).unwrap_or(u32::MAX)
    }

    /// Most that were here at once in the last 60 s, to the second.
    pub(super) fn peak(&self, now: Stamp) -> u32 {
        let oldest = (now.nanos() / 1_000_000_000).saturating_sub(PEAK_SECONDS - 1);
        let recent = self.peaks.iter().filter(|(second, _)| *second >= oldest).map(|(_, most)| *most);
        recent.fold(self.in_flight(), u32::max)
    }

    /// Nanoseconds in flight, summed over all that are or were here.
    pub(super) fn time(&self, now: Stamp) -> u64 {
        let running = u128::from(self.in_flight()) * u128::from(now.nanos());
        u64::try_from((self.done + running).saturating_sub(self.begun)).unwrap_or(u64::MAX)
    }

    /// The longest wait for a first output; zero when nobody waits.
    pub(super) fn oldest(&self, now: Stamp) -> Nanos {
        let waits = self.here.values().filter_map(|exchange| Some(now.since(exchange.waiting()?.since?)));
        waits.max().unwrap_or(Nanos::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Stamp {
        Stamp::from_nanos(seconds * SECOND).unwrap()
    }

    fn enter(room: &mut Room, head: u64, stream: bool) -> (u32, u64) {
        room.enter(Present::new(at(head), None, stream))
    }

    #[test]
    fn the_time_integral_is_exact_at_any_moment() {
        let mut room = Room::new();
        let (_, first) = enter(&mut room, 10, false);
        let (_, second) = enter(&mut room, 12, false);
        assert_eq!(room.time(at(15)), (5 + 3) * SECOND);
        room.leave(first, at(16));
        assert_eq!(room.time(at(20)), (6 + 8) * SECOND);
        room.leave(second, at(20));
        assert_eq!(room.time(at(99)), (6 + 8) * SECOND);
    }

    #[test]
    fn a_peak_is_seen_for_sixty_seconds_by_everyone_who_looks() {
        let mut room = Room::new();
        let tickets = [100, 101, 102].map(|head| enter(&mut room, head, false).1);
        for ticket in tickets {
            room.leave(ticket, at(110));
        }
        assert_eq!((room.peak(at(110)), room.peak(at(110))), (3, 3));
        assert_eq!(room.peak(at(169)), 3);
        assert_eq!(room.peak(at(170)), 0);
        enter(&mut room, 230, false);
        assert_eq!(room.peak(at(500)), 1, "one that is still here counts however long ago it came");
    }

    #[test]
    fn deadlines_pass_once_each_and_only_after_the_departure() {
        let mut room = Room::new();
        let deadlines = [Nanos(SECOND), Nanos(3 * SECOND)];
        let (_, ticket) = enter(&mut room, 10, true);
        let missed = |room: &mut Room, now| {
            let mut indices = Vec::new();
            room.overdue(at(now), &deadlines, |index| indices.push(index));
            indices
        };
        assert!(missed(&mut room, 20).is_empty());
        room.sent(ticket, at(20));
        assert!(missed(&mut room, 21).is_empty(), "a deadline is met to its last nanosecond");
        assert_eq!(missed(&mut room, 22), [0]);
        assert!(missed(&mut room, 23).is_empty());
        assert_eq!(missed(&mut room, 30), [1]);
        assert_eq!(room.served(ticket, Nanos(11 * SECOND)), Some(Waiting { since: Some(at(20)), missed: 2 }));
        assert_eq!(room.leave(ticket, at(31)), None);
    }

    #[test]
    fn the_oldest_wait_is_that_of_who_left_first() {
        let mut room = Room::new();
        let (_, first) = enter(&mut room, 1, true);
        let (load, second) = enter(&mut room, 2, true);
        assert_eq!((load, room.oldest(at(9))), (2, Nanos::ZERO));
        room.sent(second, at(4));
        room.sent(first, at(5));
        assert_eq!(room.oldest(at(9)), Nanos(5 * SECOND));
        room.served(second, Nanos(5 * SECOND));
        assert_eq!(room.oldest(at(9)), Nanos(4 * SECOND));
        room.leave(first, at(9));
        assert_eq!(room.oldest(at(9)), Nanos::ZERO);
    }
}
