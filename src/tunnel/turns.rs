//! The turns of a session: who asked, whose response comes, what has not left for the client yet. Each is booked exactly
//! once. Takes stamps, except where a turn is dropped.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    clock::{Nanos, Stamp},
    dialect::{
        Endpoint, Facts, ObserverOff, RequestFacts, Signal,
        session::{Asked, Told},
    },
    exchange::{Cause, Exchange, Sent},
    net::ConnStats,
    observation::StampSource,
    tap::Shared,
};

/// Turns that may end with one read. A session has one after the other; messages that inflate to thousands of turns are no
/// session.
const MOST: usize = 16;

/// The turns of one session.
pub(super) struct Turns<'a> {
    tunnel: &'a Exchange,
    shared: &'a Shared,
    endpoint: Endpoint,
    client: Arc<ConnStats>,
    upstream: Arc<ConnStats>,
    /// The model that was asked for last.
    model: Option<String>,
    /// Not ended, in the session's order.
    open: VecDeque<Place<'a>>,
    /// Ended, but not known to have left for the client.
    leaving: Vec<Turn<'a>>,
    client_left: bool,
    /// Bytes from the client since the newest turn began.
    up: u64,
    /// Bytes of the upstream's read at hand, while no turn has them.
    at_hand: u64,
    /// The client's pending writes and stalls that are accounted for, by turns or from before the session's first one.
    accounted: (Nanos, u32),
    /// Stalls of the client before the read at hand.
    stalls: u32,
    had: Had,
}

/// What turns had of all that passed the tunnel, which therefore is not the tunnel's own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Had {
    /// Bytes from the client.
    pub(super) up: u64,
    /// Bytes from the upstream.
    pub(super) down: u64,
    /// Time the client's writes were pending.
    pub(super) waited: Nanos,
    /// How often that was for longer than 10 ms.
    pub(super) stalls: u32,
}

/// A turn's place in the session.
enum Place<'a> {
    /// The provider heard the client's speech end. Whether it will respond is not known before it does, so until then there
    /// is no exchange.
    Heard(Stamp),
    Begun(Turn<'a>),
}

/// One turn, booked when it is dropped at the latest.
struct Turn<'a> {
    exchange: Option<Box<Exchange>>,
    shared: &'a Shared,
    /// The client's pending time when the last event came.
    pending_at_end: Option<Nanos>,
}

impl<'a> Turns<'a> {
    /// A session in this tunnel without any turn yet. `model` is what the tunnel's own request asked for.
    pub(super) fn new(
        tunnel: &'a Exchange,
        shared: &'a Shared,
        endpoint: Endpoint,
        (client, upstream): (Arc<ConnStats>, Arc<ConnStats>),
        model: Option<String>,
    ) -> Self {
        let stalls = client.stalls();
        Self {
            tunnel,
            shared,
            endpoint,
            client,
            upstream,
            model,
            open: VecDeque::new(),
            leaving: Vec::new(),
            client_left: false,
            up: 0,
            at_hand: 0,
            accounted: (Nanos::ZERO, 0),
            stalls,
            had: Had::default(),
        }
    }

    /// Bytes of the client's have gone up: those of the messages [`Turns::asked`] is told of next included.
    pub(super) fn up(&mut self, bytes: u64) {
        self.up += bytes;
    }

    /// The model is known to be this one.
    pub(super) fn model(&mut self, model: Option<&str>) {
        if self.model.as_deref() != model && model.is_some() {
            self.model = model.map(str::to_owned);
        }
    }

    /// A message of the client's that came whole at `arrival` has left like this.
    pub(super) fn asked(&mut self, asked: Asked, arrival: Stamp, sent: Sent) {
        match asked {
            Asked::Nothing => {}
            Asked::Goodbye => self.client_left(),
            Asked::Response { model } => {
                self.model(model.as_deref());
                let turn = self.asked_turn(arrival, sent);
                self.open.push_back(Place::Begun(turn));
            }
            Asked::Again => {
                if let Some(exchange) = self.open.back_mut().and_then(Place::exchange) {
                    let bytes = std::mem::take(&mut self.up);
                    exchange.upload().add(bytes);
                    self.had.up += bytes;
                    exchange.asked_again(arrival, self.shared.clock.wall(arrival), sent);
                } else if self.open.pop_back().is_some() {
                    let turn = self.asked_turn(arrival, sent);
                    self.open.push_back(Place::Begun(turn));
                }
            }
        }
    }

    /// A read of the upstream's socket has brought so many bytes at `arrival`: those of the messages [`Turns::told`] is told
    /// of next included.
    pub(super) fn down(&mut self, bytes: u64, arrival: Stamp) {
        let stalls = self.client.stalls();
        let stalled = std::mem::replace(&mut self.stalls, stalls) != stalls;
        self.at_hand = 0;
        if stalled {
            // While the client took nothing nobody read: when these bytes came is not the provider's doing.
            self.open.iter_mut().filter_map(Place::exchange).for_each(Exchange::taint);
        }
        if let Some(exchange) = self.open.iter_mut().find_map(Place::exchange) {
            exchange.carried(arrival, bytes);
            self.had.down += bytes;
        } else {
            self.at_hand = bytes;
        }
    }

    /// A message of the provider's came whole at `arrival`.
    ///
    /// # Errors
    /// `Overflow` if more turns end at once than a session has.
    pub(super) fn told(&mut self, told: Told, arrival: Stamp) -> Result<(), ObserverOff> {
        match told {
            Told::Last(..) | Told::Unasked(_) if self.leaving.len() >= MOST => return Err(ObserverOff::Overflow),
            Told::Nothing => {}
            Told::Goodbye => self.upstream_ended(arrival),
            Told::Heard => self.open.push_back(Place::Heard(arrival)),
            Told::HeardAgain => {
                if let Some(Place::Heard(heard)) = self.open.back_mut() {
                    *heard = arrival;
                }
            }
            Told::Event(place, signal) => self.event(place, signal, arrival),
            Told::Last(place, signal, facts) => {
                self.event(place, signal, arrival);
                if let Some(Place::Begun(turn)) = self.open.remove(place) {
                    self.last(turn, *facts, arrival);
                }
            }
            Told::Unasked(facts) => {
                let mut exchange = self.begin(arrival, None);
                exchange.unasked();
                let turn = self.turn(exchange, arrival);
                self.last(turn, *facts, arrival);
            }
        }
        Ok(())
    }

    /// All that was told of has left for the client at `departure`.
    pub(super) fn departed(&mut self, departure: Stamp) {
        for turn in std::mem::take(&mut self.leaving) {
            self.close_turn(turn, departure, Cause::Ended);
        }
        let pending = self.client.pending_until(departure);
        for exchange in self.open.iter_mut().filter_map(Place::exchange) {
            exchange.passed_on(departure, pending);
        }
    }

    /// The client has said goodbye, or its side has ended.
    pub(super) fn client_left(&mut self) {
        self.client_left = true;
    }

    /// The upstream has said goodbye, or its side has ended: no response comes any more.
    pub(super) fn upstream_ended(&mut self, arrival: Stamp) {
        let (now, pending) = (self.shared.clock.now(), self.client.pending_until(arrival));
        for mut turn in std::mem::take(&mut self.open).into_iter().filter_map(Place::begun) {
            if let Some(exchange) = turn.exchange.as_deref_mut() {
                exchange.response_end(arrival, pending);
            }
            turn.pending_at_end = Some(pending);
            match self.blame(Cause::Ended) {
                Cause::Ended => self.leaving.push(turn),
                cause => self.close_turn(turn, now, cause),
            }
        }
    }

    /// The session is no longer read.
    pub(super) fn lost_sight(&mut self, off: ObserverOff) {
        let now = self.shared.clock.now();
        for mut turn in std::mem::take(&mut self.open).into_iter().filter_map(Place::begun) {
            if let Some(exchange) = turn.exchange.as_deref_mut() {
                exchange.lost_sight(off);
            }
            self.close_turn(turn, now, Cause::Ended);
        }
    }

    /// Closes every turn there is: the tunnel ends like this.
    pub(super) fn close(&mut self, cause: Cause) {
        let (now, cause) = (self.shared.clock.now(), self.blame(cause));
        let begun = std::mem::take(&mut self.open).into_iter().filter_map(Place::begun);
        for turn in std::mem::take(&mut self.leaving).into_iter().chain(begun) {
            self.close_turn(turn, now, cause);
        }
    }

    /// What turns had, those under way included.
    pub(super) const fn had(&self) -> Had {
        self.had
    }

    fn asked_turn(&mut self, arrival: Stamp, sent: Sent) -> Turn<'a> {
        let mut exchange = self.begin(arrival, Some(true));
        exchange.asked(sent);
        self.turn(exchange, arrival)
    }

    /// An event of the turn in this place, which begins with it if nobody asked for it.
    fn event(&mut self, place: usize, signal: Signal, arrival: Stamp) {
        if let Some(&Place::Heard(heard)) = self.open.get(place) {
            let mut exchange = self.begin(heard, Some(true));
            exchange.heard();
            let turn = self.turn(exchange, heard);
            if let Some(place) = self.open.get_mut(place) {
                *place = Place::Begun(turn);
            }
        }
        let pending = self.client.pending_until(arrival);
        if let Some(exchange) = self.open.get_mut(place).and_then(Place::exchange) {
            let bytes = std::mem::take(&mut self.at_hand);
            if bytes > 0 {
                exchange.carried(arrival, bytes);
                self.had.down += bytes;
            }
            exchange.told(arrival, signal, pending);
        }
    }

    /// The turn's last event came at `arrival`.
    fn last(&mut self, mut turn: Turn<'a>, facts: Facts, arrival: Stamp) {
        if let Some(exchange) = turn.exchange.as_deref_mut() {
            exchange.said(arrival, facts);
        }
        turn.pending_at_end = Some(self.client.pending_until(arrival));
        self.leaving.push(turn);
    }

    /// Who hangs up on a client that has left breaks nothing off.
    const fn blame(&self, cause: Cause) -> Cause {
        match cause {
            Cause::Ended | Cause::Reset if self.client_left => Cause::ClientGone,
            other => other,
        }
    }

    /// An exchange that began at `arrival`, with all that the client has sent since the one before it.
    fn begin(&mut self, arrival: Stamp, stream: Option<bool>) -> Box<Exchange> {
        let facts = RequestFacts { model: self.model.as_deref().map(Arc::from), stream, dialect: None };
        let exchange = self.tunnel.turn(self.shared.begin(arrival), self.endpoint, facts);
        let bytes = std::mem::take(&mut self.up);
        exchange.upload().add(bytes);
        self.had.up += bytes;
        exchange
    }

    fn turn(&mut self, exchange: Box<Exchange>, begin: Stamp) -> Turn<'a> {
        if self.leaving.is_empty() && !self.open.iter().any(|place| matches!(place, Place::Begun(_))) {
            self.accounted = (self.client.pending_until(begin), self.client.stalls());
        }
        Turn { exchange: Some(exchange), shared: self.shared, pending_at_end: None }
    }

    /// Ends a turn at `end`. The client's waiting up to then is booked with it: what one turn has, no other one has.
    fn close_turn(&mut self, mut turn: Turn<'_>, end: Stamp, cause: Cause) {
        let (pending, stalls) = (self.client.pending_until(end), self.client.stalls());
        let before = std::mem::replace(&mut self.accounted, (pending, stalls));
        let waited = (pending.less(before.0), stalls.saturating_sub(before.1));
        self.had.waited += waited.0;
        self.had.stalls += waited.1;
        let at_end = turn.pending_at_end;
        if let Some(exchange) = turn.exchange.as_deref_mut() {
            if cause == Cause::Ended {
                exchange.passed_on(end, pending);
            }
            let seen = exchange.seen();
            let begin = seen.timeline.request_head;
            let source = |stats: &ConnStats| StampSource::of(stats.stamped_by_kernel(begin));
            seen.client_stamp = source(&self.client);
            seen.upstream_stamp = (seen.reads > 0).then(|| source(&self.upstream));
            let waits = &mut seen.timeline.waits;
            (waits.client, waits.client_stalls) = waited;
            waits.tail = at_end.map_or(Nanos::ZERO, |at_end| pending.less(at_end));
        }
        turn.close(end, cause);
    }
}

impl<'a> Place<'a> {
    fn exchange(&mut self) -> Option<&mut Exchange> {
        match self {
            Self::Begun(turn) => turn.exchange.as_deref_mut(),
            Self::Heard(_) => None,
        }
    }

    fn begun(self) -> Option<Turn<'a>> {
        match self {
            Self::Begun(turn) => Some(turn),
            Self::Heard(_) => None,
        }
    }
}

impl Turn<'_> {
    fn close(&mut self, end: Stamp, cause: Cause) {
        let Some(mut exchange) = self.exchange.take() else { return };
        let timeline = &exchange.seen().timeline;
        let floor = timeline.response_end.unwrap_or(timeline.request_head);
        exchange.finish_turn(end.max(floor), cause);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let (now, cause) = (self.shared.clock.now(), self.shared.cause_of_drop());
        self.close(now, cause);
    }
}

#[cfg(test)]
mod tests;
