//! What is kept of a reply while it is read, and what all dialects have in common.

use std::borrow::Cow;

use super::{
    Facts, Kinds, Signal, Usage,
    headers::Head,
    reported::Times,
    usage::{COUNT, Counts},
};
use crate::framing::json::Value;

/// Fields that mean the same in each dialect's tree. A dialect's own begin at [`OWN`], counts at
/// [`super::usage::COUNT`].
pub(super) const MODEL: u8 = 0;
pub(super) const ERROR: u8 = 1;
pub(super) const ERROR_TYPE: u8 = 2;
pub(super) const ERROR_CODE: u8 = 3;
/// The event's name, once, at its end.
pub(super) const NAME: u8 = 4;
/// A part of data that is text.
pub(super) const TEXT: u8 = 5;
/// The event is an error by its name or by the name of its field.
pub(super) const ERROR_BY_NAME: u8 = 6;
/// Generated content, by its kind.
pub(super) const ANSWER: u8 = 7;
pub(super) const REASONING: u8 = 8;
/// Reasoning that is a summary of it.
pub(super) const SUMMARY: u8 = 9;
pub(super) const TOOL: u8 = 10;
/// A finish reason, of the present choice if there are several.
pub(super) const FINISH: u8 = 11;
/// A string that makes the event an error: only errors have a message at its place.
pub(super) const MESSAGE: u8 = 12;
/// One reply of several in one document: it is a choice, and its counts come in addition.
pub(super) const ITEM: u8 = 13;
/// What is asked for only so that events that differ in it are alike.
pub(super) const PASSED: u8 = 14;
/// A choice begins.
pub(super) const CHOICE: u8 = 15;
/// Its index.
pub(super) const INDEX: u8 = 16;
/// Audio itself, not its transcript.
pub(super) const AUDIO: u8 = 17;
pub(super) const OWN: u8 = 18;
/// Stated times from here on: see [`super::reported::time`].
pub(super) const TIME: u8 = 96;

/// [`Event::kind`] of an event that ends the reply, where [`Reply::close`] closes it.
pub(super) const END: u8 = 1;

/// How well a name that is held names an error: its type before its code, each before one that stands bare beside it.
pub(super) const BY_BARE_CODE: u8 = 1;
pub(super) const BY_BARE_TYPE: u8 = 2;
const BY_CODE: u8 = 3;
const BY_TYPE: u8 = 4;

/// Places in [`Reply::finish`] of a reply without choices that has a status and its reason.
pub(super) const STATUS_PLACE: u32 = 0;
pub(super) const REASON_PLACE: u32 = 1;

/// How many finish reasons are kept: replies with more choices are not asked for in earnest.
const FINISH_LIMIT: usize = 32;

/// A finish reason whose choice's index has not been read yet.
const NO_INDEX: u32 = u32::MAX;

/// The longest name (model, reason, error type) that is kept, in bytes.
const NAME_LIMIT: usize = 256;

/// One reply, as far as it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    /// What its head said of times and counts, if that was anything.
    pub(super) head: Option<Box<Head>>,
    pub(super) counts: Counts,
    /// Allocated at the first one.
    pub(super) times: Option<Box<Times>>,
    pub(super) model: Option<String>,
    /// By the choice's index, in the order they came.
    pub(super) finish: Vec<(u32, String)>,
    pub(super) error: Option<String>,
    pub(super) ended: bool,
    pub(super) multi_choice: bool,
    pub(super) summarised: bool,
    /// The dialect has no end of its own.
    pub(super) endless: bool,
    /// Several replies are mixed in one stream, each with counts of its own: no last one is everyone's.
    pub(super) mixed: bool,
    /// All that was output so far.
    pub(super) seen: Kinds,
    /// A name that matters only if the event turns out to be of one kind (an error, mostly), until the event ends.
    pub(super) held: Option<Box<str>>,
    /// How far it has grown for each choice, plus one. Allocated at the first.
    reached: Option<Box<[u64; FINISH_LIMIT]>>,
    /// What of its output the dialect remembers to have come in parts: what repeats it as a whole is none.
    pub(super) parts: u8,
}

/// One event (or plain document), as far as it was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event {
    pub(super) output: Kinds,
    pub(super) error: bool,
    /// It said something that an event alike would have to say again: a finish, the end. (An error does anyway.)
    pub(super) telling: bool,
    /// How well the name that is held names it, 0 if none is: only a better one takes its place.
    held: u8,
    /// What the dialect makes of the event's type.
    pub(super) kind: u8,
    /// What it makes of the type of the part inside.
    pub(super) part: u8,
    /// Which of its fields were seen filled.
    pub(super) filled: u8,
    /// Choices seen.
    pub(super) choices: u8,
    /// The present choice's index, once seen.
    pub(super) choice: Option<u32>,
    /// The count that had to grow for it to say anything new, if it did by one.
    growing: Option<u8>,
    /// Of which reply the event is, where several may be under way: [`id`] of its name, 0 if it does not say.
    pub(super) id: u64,
}

impl Event {
    /// Takes a field that is output of these kinds, if there is something in it.
    #[inline]
    pub(super) fn add(&mut self, kinds: Kinds, value: Value<'_>) {
        if is_something(value) {
            self.output |= kinds;
        }
    }

    /// Takes a field that says only whether there is something.
    #[inline]
    pub(super) fn fill(&mut self, flag: u8, value: Value<'_>) {
        if is_something(value) {
            self.filled |= flag;
        }
    }

    pub(super) const fn has(&self, flag: u8) -> bool {
        self.filled & flag != 0
    }

    /// The count that had to grow for the event to say anything new, if it did by one.
    pub(super) const fn growing(&self) -> Option<u8> {
        self.growing
    }
}

impl Reply {
    /// Takes a field that all dialects have.
    pub(super) fn take(&mut self, event: &mut Event, field: u8, value: Value<'_>) {
        match field {
            MODEL if self.model.is_none() => self.model = name(value).map(Cow::into_owned),
            MODEL => {}
            ERROR if is_something(value) || matches!(value, Value::Array | Value::TooLong) => event.error = true,
            // Whether there is an error may be said behind it.
            ERROR_TYPE => self.hold(event, BY_TYPE, value),
            ERROR_CODE => self.hold(event, BY_CODE, value),
            ERROR_BY_NAME => event.error = true,
            ANSWER => event.add(Kinds::ANSWER, value),
            REASONING => event.add(Kinds::REASONING, value),
            TOOL => event.add(Kinds::TOOL, value),
            SUMMARY => {
                event.add(Kinds::REASONING, value);
                self.summarised |= is_something(value);
            }
            // It may come before its choice's index.
            FINISH => self.finish_with(event, event.choice.unwrap_or(NO_INDEX), value),
            MESSAGE if value == Value::Filled => event.error = true,
            CHOICE => self.choice(event),
            INDEX => self.index(event, value),
            AUDIO => event.add(Kinds::ANSWER | Kinds::AUDIO, value),
            ITEM => {
                self.counts.another();
                self.choice(event);
            }
            COUNT.. => self.counts.take(field, value),
            TIME.. => self.times.get_or_insert_default().take(field, value),
            _ => {}
        }
    }

    /// Takes a finish reason: the last one of each choice stands.
    pub(super) fn finish(&mut self, choice: u32, reason: String) {
        if let Some(known) = self.finish.iter_mut().find(|(index, _)| *index == choice) {
            known.1 = reason;
        } else if self.finish.len() < FINISH_LIMIT {
            self.finish.push((choice, reason));
        }
    }

    /// Another choice of the event begins.
    #[inline]
    pub(super) fn choice(&mut self, event: &mut Event) {
        self.settle(event);
        event.choice = None;
        event.choices = event.choices.saturating_add(1);
        self.multi_choice |= event.choices > 1;
    }

    /// Takes the present choice's index.
    #[inline]
    pub(super) fn index(&mut self, event: &mut Event, value: Value<'_>) {
        event.choice = match value {
            Value::Number(b"0") => Some(0),
            Value::Number(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
            _ => None,
        };
        if let Some(index) = event.choice {
            self.multi_choice |= index > 0;
            self.settle_at(index);
        }
    }

    /// Takes the index of the reply an event of a stream belongs to.
    pub(super) fn index_of_mixed(&mut self, event: &mut Event, value: Value<'_>) {
        self.index(event, value);
        self.mixed = self.multi_choice;
    }

    /// Takes a choice's finish reason, if there is one. A reply without choices is its own first.
    pub(super) fn finish_with(&mut self, event: &mut Event, choice: u32, value: Value<'_>) {
        if let Some(reason) = name(value) {
            event.telling = true;
            self.finish(choice, reason.into_owned());
        }
    }

    /// A choice has ended: without an index it has the one of its place.
    #[inline]
    pub(super) fn settle(&mut self, event: &Event) {
        self.settle_at(u32::from(event.choices.saturating_sub(1)));
    }

    /// Gives a finish reason that came before its choice's index the index.
    #[inline]
    fn settle_at(&mut self, index: u32) {
        if let Some(place) = self.finish.iter().position(|(choice, _)| *choice == NO_INDEX) {
            let (_, reason) = self.finish.swap_remove(place);
            self.finish(index, reason);
        }
    }

    /// Holds a name until the event has ended, if it is a better one than what is held.
    pub(super) fn hold(&mut self, event: &mut Event, how_well: u8, value: Value<'_>) {
        if how_well > event.held
            && let Some(name) = name(value)
        {
            event.held = how_well;
            self.held = Some(name.into());
        }
    }

    /// What was held was the name of an error, if the event is one.
    #[inline]
    pub(super) fn name_error(&mut self, event: &Event) {
        if let Some(name) = self.held.take()
            && event.error
        {
            self.error = Some(name.into_string());
        }
    }

    /// The event has ended without saying anything as a whole: nothing of it is left over for the next one.
    pub(super) fn abandon(&mut self, event: &Event) {
        self.name_error(event);
        self.settle(event);
    }

    /// Whether an event with something in it says anything new: where replies repeat all that was said so far, the count
    /// at this place of the dialect's names tells. It always does if it is not `counted` itself.
    pub(super) fn grew(&mut self, event: &mut Event, place: u8, counted: bool, choice: u32) -> bool {
        let grew = !counted || self.reach(place, choice);
        if grew {
            event.growing = counted.then_some(place);
        }
        grew
    }

    /// An event alike to one that said this by a count that had to be `growing` has ended: what it says itself.
    pub(super) fn alike(&mut self, signal: Signal, growing: u8) -> Signal {
        if self.reach(growing, 0) { signal } else { Signal { output: Kinds::NONE, ..signal } }
    }

    /// Whether the count is more than when it was last asked for.
    fn reach(&mut self, place: u8, choice: u32) -> bool {
        let now = self.counts.at(usize::from(place)).map_or(0, |count| count + 1);
        let reached = self.reached.get_or_insert_default();
        // Of more choices than are kept there is no telling.
        let Some(slot) = usize::try_from(choice).ok().and_then(|choice| reached.get_mut(choice)) else { return true };
        now > std::mem::replace(slot, now)
    }

    /// The event has ended: it said what was taken of it.
    pub(super) fn close(&mut self, event: &mut Event) -> Signal {
        self.end(event, event.output, event.kind == END)
    }

    /// The event has ended with this output.
    #[inline]
    pub(super) fn end(&mut self, event: &Event, output: Kinds, end: bool) -> Signal {
        self.settle(event);
        self.name_error(event);
        if event.error && self.error.is_none() {
            self.error = Some("error".to_owned());
        }
        self.ended |= end;
        self.seen |= output;
        Signal { output, end, error: event.error }
    }

    /// All of it, with the dialect's arithmetic; `stream`: of a stream, not of a plain answer.
    pub(super) fn into_facts(mut self, usage: fn(&Counts) -> Usage, stream: bool) -> Facts {
        self.finish.sort_by_key(|(choice, _)| *choice);
        let mut facts = Facts {
            response_model: self.model,
            finish_reasons: self.finish.into_iter().map(|(_, reason)| reason).collect(),
            usage: if self.mixed { Usage::default() } else { usage(&self.counts) },
            ended: self.ended,
            error: self.error,
            reported: self.times.map(|times| times.reported()).unwrap_or_default(),
            multi_choice: self.multi_choice,
            summarised_reasoning: self.summarised,
            endless: self.endless,
        };
        if let Some(head) = self.head {
            head.complete(&mut facts, stream);
        }
        facts
    }
}

/// Whether a field has anything in it. An array alone says nothing: its elements do.
#[inline]
pub(super) const fn is_something(value: Value<'_>) -> bool {
    match value {
        Value::Filled | Value::Object | Value::Number(_) | Value::Bool(true) => true,
        Value::Text(text) => !text.is_empty(),
        _ => false,
    }
}

/// A number for a name that tells replies of one connection apart; 0 is none.
pub(super) fn id(value: Value<'_>) -> u64 {
    match value {
        Value::Text(text) if !text.is_empty() => {
            // FNV-1a: a few bytes, and nothing to be won by a collision.
            text.iter()
                .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
                | 1
        }
        _ => 0,
    }
}

/// A value that is a name: a string or number, not empty and not too long.
pub(super) fn name(value: Value<'_>) -> Option<Cow<'_, str>> {
    match value {
        Value::Text(text) | Value::Number(text) if !text.is_empty() && text.len() <= NAME_LIMIT => {
            Some(String::from_utf8_lossy(text))
        }
        _ => None,
    }
}
