//! A turn of a session in a tunnel, as an exchange of its own: it is told what its messages said, not given their bytes.
//!
//! It has no connection of its own and no response head, so these marks are absent; so is its first byte, for it has no
//! body. A turn that no request began has no mark of the client's side: it begins where the provider says that it heard
//! the client's speech end, or where nobody says why, with its last event.

use std::{sync::Arc, time::SystemTime};

use super::{Batch, Cause, Exchange, Sent};
use crate::{
    clock::{Nanos, Stamp},
    dialect::{Endpoint, Facts, ObserverOff, RequestFacts, Signal},
    observation::{Connection, Network, Observation},
    upload::Upload,
};

/// The status of every turn: its session's.
const SWITCHED: u16 = 101;

impl Exchange {
    /// A turn in this tunnel, counted as started from here on. `fresh` is its beginning; what the tunnel's request and
    /// connections say holds for it, too. Follow with [`Exchange::asked`], [`Exchange::heard`] or [`Exchange::unasked`].
    ///
    /// What comes of it is a stream of events, if `asked` says so; else it is known as a whole.
    pub fn turn(&self, fresh: Observation, endpoint: Endpoint, asked: RequestFacts) -> Box<Self> {
        let tunnel = &self.seen;
        let seen = Observation {
            upstream: tunnel.upstream.clone(),
            endpoint,
            dialect: tunnel.dialect,
            method: tunnel.method.clone(),
            path: tunnel.path.clone(),
            status: Some(SWITCHED),
            stream: asked.stream == Some(true),
            model: asked.model.clone(),
            attempts: 1,
            // What the network did at the session's beginning is not the turn's.
            connection: Connection {
                client: Network::default(),
                upstream: Network::default(),
                ..tunnel.connection.clone()
            },
            client_stamp: tunnel.client_stamp,
            upstream_stamp: tunnel.upstream_stamp,
            trace_id: tunnel.trace_id.clone(),
            session: tunnel.session.clone(),
            ..fresh
        };
        let upload = Arc::<Upload>::default();
        if let Some(upstream) = &self.upstream {
            upload.start_with(asked, &self.recorder, upstream, seen.timeline.request_head);
        }
        let mut turn =
            Self::begin(seen, self.recorder.clone(), self.upstream.clone(), upload.clone(), self.marked.clone());
        upload.with_started(|started, _| turn.seen.load = Some(started.load()));
        turn
    }

    /// The client asked, with a message that came whole at the turn's beginning and has left like this.
    pub fn asked(&mut self, sent: Sent) {
        let arrival = self.seen.timeline.request_head;
        self.upload.note_end(arrival, sent.last.unwrap_or(arrival), Nanos::ZERO);
        self.sent(sent);
    }

    /// The client asked once more before anything had answered: the turn begins with that message instead. It has been in
    /// flight all along.
    pub fn asked_again(&mut self, arrival: Stamp, time: SystemTime, sent: Sent) {
        self.sent(sent);
        self.seen.time = time;
        let timeline = &mut self.seen.timeline;
        (timeline.request_head, timeline.request_end) = (arrival, Some(arrival));
        self.upload.with_started(|started, _| started.sent(sent.last.unwrap_or(arrival)));
    }

    /// The provider heard the client's speech end: the turn begins with the arrival of its word.
    pub fn heard(&mut self) {
        let arrival = self.seen.timeline.request_head;
        self.clientless = true;
        self.seen.timeline.speech_stopped = Some(arrival);
        self.sent(Sent {
            first: Some(arrival),
            last: Some(arrival),
            upload: Nanos::ZERO,
            stalled: Nanos::ZERO,
            stalls: 0,
        });
        self.upload.with_started(|started, _| started.sent(arrival));
    }

    /// Nobody said why the provider spoke: the turn is known by its end alone, and none of its times is.
    pub fn unasked(&mut self) {
        self.clientless = true;
        // Where its stages begin: what little time it has is not the gateway's before the departure of a request.
        self.seen.timeline.head_back = Some(self.seen.timeline.request_head);
    }

    /// The upstream's read of this arrival brought so many bytes for the turn.
    pub fn carried(&mut self, arrival: Stamp, bytes: u64) {
        let fresh = u64::from(self.newest_read.replace(arrival) != Some(arrival));
        self.seen.reads += fresh;
        self.seen.response_bytes += bytes;
        if let Some(pair) = &self.pair {
            pair.read(fresh, bytes);
        }
    }

    /// One event, whose last byte came at `arrival`. `pending` as for [`Exchange::data`].
    pub fn told(&mut self, arrival: Stamp, signal: Signal, pending: Nanos) {
        // An answer that is no error is what a 2xx is elsewhere: the provider knows the model.
        self.resolve(!signal.error);
        let mut batch = Batch::new(arrival, &mut self.seen, self.pair.as_deref());
        batch.event(signal);
        let said = batch.said();
        self.events(arrival, said, pending);
    }

    /// The event just told was the last one; this is what all of them said.
    pub fn said(&mut self, arrival: Stamp, facts: Facts) {
        self.seen.facts = Facts { ended: true, ..facts };
        self.seen.timeline.response_end = Some(arrival);
    }

    /// Everything handed on so far has left, as [`Exchange::departed`] has it, if the client's side is looked at.
    pub fn passed_on(&mut self, departure: Stamp, pending: Nanos) {
        if self.awaits_departure() && !self.clientless {
            self.departed(departure, pending);
        }
    }

    /// The session is no longer read: what comes of the turn from here on is not known.
    pub fn lost_sight(&mut self, off: ObserverOff) {
        self.seen.observer_off = Some(off);
        self.clientless = true;
    }

    /// Ends the turn and books it.
    pub fn finish_turn(mut self: Box<Self>, end: Stamp, cause: Cause) {
        self.resolve(false);
        self.finish(end, cause);
    }

    /// The handles are looked up with the first event; what had come by then is booked with them.
    fn resolve(&mut self, admits: bool) {
        let Some(upstream) = self.upstream.as_ref().filter(|_| self.pair.is_none()) else { return };
        let pair = self.recorder.pair(upstream, self.seen.model.as_deref(), admits);
        pair.read(self.seen.reads, self.seen.response_bytes);
        self.pair = Some(pair);
    }
}
