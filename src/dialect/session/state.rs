//! Which turns of a session are open, and which of them a message is of.

use std::collections::VecDeque;

use super::{Asked, Told, wish::Wish};
use crate::{
    dialect::{
        Dialect, Facts, ObserverOff, Signal, gemini_live, openai_responses,
        reader::{Read, Reader, UNREADABLE_LIMIT},
        realtime,
    },
    framing::websocket::Lost,
};

/// So many turns may be open. Whoever asks for more without an answer is not followed any longer.
const TURNS_LIMIT: usize = 8;

/// What both directions have to know.
#[derive(Debug)]
pub(super) struct State {
    dialect: Dialect,
    /// The model as the client names it.
    asked: Option<String>,
    /// The model as the session says it serves.
    served: Option<String>,
    /// What is heard is answered without being asked for.
    answering: bool,
    /// Tools are declared that the model does not wait for.
    non_blocking: bool,
    /// Calls of tools that the model waits for.
    calls: u32,
    /// What was broken into before the open turn began has its end still to come.
    left_over: bool,
    /// The oldest first.
    turns: VecDeque<Turn>,
    /// Unreadable messages of the provider's since the last readable one.
    row: u8,
    off: Option<ObserverOff>,
}

/// An open turn.
#[derive(Clone, Copy, Default, Debug)]
struct Turn {
    /// It began by itself, and others were not told of it.
    unasked: bool,
    /// It began with what was heard, and the client has not asked for it.
    heard: bool,
    /// Something has answered it.
    begun: bool,
    /// The response's, once it has begun; before, that of the message that asked for it. 0 is none.
    id: u64,
}

impl State {
    /// `asked` is the model that the request names.
    pub(super) const fn new(dialect: Dialect, asked: Option<String>) -> Self {
        Self {
            dialect,
            asked,
            served: None,
            answering: true,
            non_blocking: false,
            calls: 0,
            left_over: false,
            turns: VecDeque::new(),
            row: 0,
            off: None,
        }
    }

    pub(super) fn model(&self) -> Option<&str> {
        self.asked.as_deref().or(self.served.as_deref())
    }

    pub(super) const fn off(&self) -> Option<ObserverOff> {
        self.off
    }

    pub(super) fn lose(&mut self, lost: Option<Lost>) {
        if let (Some(lost), None) = (lost, self.off) {
            self.off = Some(match lost {
                Lost::Malformed => ObserverOff::Malformed,
                Lost::Corrupt => ObserverOff::Encoding,
                Lost::Overflow => ObserverOff::Overflow,
            });
        }
    }

    /// What a message of the client's means.
    pub(super) fn asked(&mut self, mut wish: Wish) -> Asked {
        self.name_model(wish.model.take());
        self.non_blocking |= wish.non_blocking;
        let begins = match self.dialect {
            Dialect::Realtime => wish.create && !self.is_for_heard(&wish),
            Dialect::GeminiLive => {
                let answered = wish.answers > 0 && self.calls > 0 && self.settle_calls(wish.answers) == 0;
                wish.complete || answered
            }
            _ => wish.create,
        };
        // Of two before an answer it makes one: a second turn would stay open for ever.
        if begins && self.dialect == Dialect::GeminiLive && self.waiting().is_some() {
            return Asked::Again;
        }
        if begins && self.open(Turn { id: wish.id, ..Turn::default() }) {
            self.calls = 0;
            Asked::Response { model: self.model().map(str::to_owned) }
        } else {
            Asked::Nothing
        }
    }

    /// What a message of the provider's means.
    pub(super) fn told(&mut self, read: Read, reader: &mut Reader) -> Told {
        let Read::Event(signal) = read else {
            self.row += 1;
            if self.row == UNREADABLE_LIMIT {
                self.off = Some(ObserverOff::Malformed);
            }
            return Told::Nothing;
        };
        self.row = 0;
        match self.dialect {
            Dialect::Realtime => self.realtime(signal, reader),
            Dialect::GeminiLive => self.gemini_live(signal, reader),
            _ => self.responses(signal, reader),
        }
    }

    /// One response after another.
    fn responses(&mut self, signal: Signal, reader: &mut Reader) -> Told {
        if reader.event().kind == openai_responses::FAULT {
            let place = self.waiting().unwrap_or(0);
            return self.refuse(place, signal, reader);
        }
        let Some(turn) = self.turns.front_mut() else {
            reader.renew();
            return Told::Nothing;
        };
        turn.begun = true;
        if signal.end || signal.error { self.last(0, signal, reader) } else { self.event(0, signal) }
    }

    /// Responses that may overlap, told apart by their ids. All that is told of one as a whole, its last event tells.
    fn realtime(&mut self, signal: Signal, reader: &mut Reader) -> Told {
        let event = *reader.event();
        match event.kind {
            realtime::SESSION => {
                self.served = reader.take_model().or(self.served.take());
                match event.part {
                    realtime::ANSWERING => self.answering = true,
                    realtime::WAITING => self.answering = false,
                    _ => {}
                }
                Told::Nothing
            }
            realtime::HEARD if self.answering => self.heard(),
            realtime::COMMITTED if self.answering && self.waiting().is_none() => self.heard(),
            realtime::HEARD | realtime::COMMITTED => Told::Nothing,
            realtime::FAULT => {
                let refused = self.waiting().filter(|&place| {
                    !event.has(realtime::OF_OTHERS) && self.turns.get(place).is_some_and(|turn| turn.id == event.id)
                });
                let Some(place) = refused else {
                    reader.take_error();
                    return Told::Nothing;
                };
                self.refuse(place, signal, reader)
            }
            realtime::CREATED => {
                let place = match self.waiting() {
                    Some(place) => place,
                    None if self.open(Turn { unasked: true, ..Turn::default() }) => self.turns.len() - 1,
                    None => return Told::Nothing,
                };
                self.turns[place].begun = true;
                self.turns[place].id = event.id;
                self.event(place, signal)
            }
            _ => {
                let of_it = |turn: &Turn| turn.begun && turn.id == event.id;
                let place = self.turns.iter().position(of_it).filter(|_| event.id != 0);
                let Some(place) = place else { return Told::Nothing };
                if event.kind == realtime::DONE { self.last(place, signal, reader) } else { self.event(place, signal) }
            }
        }
    }

    /// One turn after another; what was broken into ends behind what broke in.
    fn gemini_live(&mut self, signal: Signal, reader: &mut Reader) -> Told {
        let event = *reader.event();
        let is = |flag| event.kind & flag != 0;
        let output = !signal.output.is_empty();
        if is(gemini_live::IS_HEARD) {
            return self.heard();
        }
        if is(gemini_live::IS_CANCELLED) {
            self.settle_calls(u32::from(event.choices));
            return Told::Nothing;
        }
        if output && self.turns.is_empty() && !self.open(Turn { unasked: true, ..Turn::default() }) {
            return Told::Nothing;
        }
        let begun = self.turns.front_mut().is_some_and(|turn| {
            turn.begun |= output;
            turn.begun
        });
        if begun {
            self.left_over = false;
        } else if is(gemini_live::IS_INTERRUPTED) || self.left_over {
            self.left_over = !is(gemini_live::IS_LAST);
            reader.renew();
            return Told::Nothing;
        }
        let called = is(gemini_live::IS_CALL) && !self.non_blocking;
        if self.turns.is_empty() || !is(gemini_live::OF_TURN) {
            reader.renew();
            return Told::Nothing;
        }
        if called {
            self.calls = self.calls.saturating_add(u32::from(event.choices));
        }
        if called || is(gemini_live::IS_LAST) {
            return self.last(0, signal, reader);
        }
        if !begun {
            // The usage of what was before.
            reader.renew();
        }
        self.event(0, signal)
    }

    /// Takes the model that the client names.
    fn name_model(&mut self, model: Option<String>) {
        let Some(model) = model else { return };
        match self.dialect {
            // The query holds.
            Dialect::Realtime if self.asked.is_some() => {}
            // With its collection, on Vertex with the whole path to it.
            Dialect::GeminiLive => self.asked = model.rsplit('/').next().map(str::to_owned),
            _ => self.asked = Some(model),
        }
    }

    /// Whether the client asks for an answer to what was heard already: once.
    fn is_for_heard(&mut self, wish: &Wish) -> bool {
        let heard = self.turns.iter_mut().find(|turn| turn.heard && !turn.begun);
        if let Some(turn) = heard {
            (turn.heard, turn.id) = (false, wish.id);
            return true;
        }
        false
    }

    /// So many calls are answered or void. Returns how many are left.
    const fn settle_calls(&mut self, settled: u32) -> u32 {
        self.calls = self.calls.saturating_sub(settled);
        self.calls
    }

    /// The oldest turn that nothing has answered.
    fn waiting(&self) -> Option<usize> {
        self.turns.iter().position(|turn| !turn.begun)
    }

    /// A turn begins with what was heard, if none waits for an answer already.
    fn heard(&mut self) -> Told {
        if self.turns.back().is_some_and(|turn| turn.heard && !turn.begun) {
            return Told::HeardAgain;
        }
        let begins = self.waiting().is_none();
        if begins && self.open(Turn { heard: true, ..Turn::default() }) { Told::Heard } else { Told::Nothing }
    }

    fn open(&mut self, turn: Turn) -> bool {
        if self.turns.len() == TURNS_LIMIT {
            self.off = Some(ObserverOff::Overflow);
            return false;
        }
        self.turns.push_back(turn);
        true
    }

    fn event(&self, place: usize, signal: Signal) -> Told {
        if self.turns[place].unasked { Told::Nothing } else { Told::Event(self.number(place), signal) }
    }

    fn last(&mut self, place: usize, signal: Signal, reader: &mut Reader) -> Told {
        let mut facts = reader.take_facts(true);
        facts.ended |= !signal.error;
        facts.response_model = self.served.clone().or(facts.response_model);
        self.close(place, signal, facts)
    }

    /// A turn ends by an error that is all that was said of it; one that is under way goes on.
    fn refuse(&mut self, place: usize, signal: Signal, reader: &mut Reader) -> Told {
        let error = reader.take_error();
        match self.turns.get(place) {
            None => Told::Nothing,
            Some(turn) if turn.begun => {
                let facts = Facts { error, ..reader.take_facts(true) };
                self.close(place, signal, facts)
            }
            Some(_) => self.close(place, signal, Facts { error, ..Facts::default() }),
        }
    }

    fn close(&mut self, place: usize, signal: Signal, facts: Facts) -> Told {
        let (number, facts) = (self.number(place), Box::new(facts));
        match self.turns.remove(place) {
            Some(turn) if turn.unasked => Told::Unasked(facts),
            _ => Told::Last(number, signal, facts),
        }
    }

    /// A turn's number: its place among those that others know of.
    fn number(&self, place: usize) -> usize {
        self.turns.iter().take(place).filter(|turn| !turn.unasked).count()
    }
}
