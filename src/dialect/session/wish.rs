//! What a message of the client's asks for, of any dialect: none has a field that means something else in another.

use std::{borrow::Cow, sync::LazyLock};

use crate::{
    dialect::reply::{id, is_something, name},
    framing::json::{Progress, Scanner, Tree, Value, Want},
};

const TYPE: u8 = 0;
const MODEL: u8 = 1;
const ID: u8 = 2;
const COMPLETE: u8 = 3;
const SPOKEN: u8 = 4;
const ANSWER: u8 = 5;
const BEHAVIOR: u8 = 6;

static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let openai = [
        ("type", TYPE, Want::Value),
        ("event_id", ID, Want::Value),
        ("model", MODEL, Want::Value),
        ("response.model", MODEL, Want::Value),
        ("session.model", MODEL, Want::Value),
    ];
    // Google's take names in either spelling, and clients mix them.
    let google = [
        ("setup.model", MODEL, Want::Value),
        ("setup.tools[].functionDeclarations[].behavior", BEHAVIOR, Want::Value),
        ("setup.tools[].function_declarations[].behavior", BEHAVIOR, Want::Value),
        ("clientContent.turnComplete", COMPLETE, Want::Value),
        ("clientContent.turn_complete", COMPLETE, Want::Value),
        ("client_content.turnComplete", COMPLETE, Want::Value),
        ("client_content.turn_complete", COMPLETE, Want::Value),
        ("realtimeInput.activityEnd", SPOKEN, Want::Whether),
        ("realtimeInput.activity_end", SPOKEN, Want::Whether),
        ("realtime_input.activityEnd", SPOKEN, Want::Whether),
        ("realtime_input.activity_end", SPOKEN, Want::Whether),
        ("realtimeInput.text", SPOKEN, Want::Whether),
        ("realtime_input.text", SPOKEN, Want::Whether),
        ("toolResponse.functionResponses[]", ANSWER, Want::Whether),
        ("toolResponse.function_responses[]", ANSWER, Want::Whether),
        ("tool_response.functionResponses[]", ANSWER, Want::Whether),
        ("tool_response.function_responses[]", ANSWER, Want::Whether),
    ];
    Tree::new(openai.into_iter().chain(google))
});

/// What one message says.
#[derive(Clone, Default, Debug)]
pub(super) struct Wish {
    /// It is a `response.create`.
    pub(super) create: bool,
    pub(super) model: Option<String>,
    /// The message's own name, 0 if it has none.
    pub(super) id: u64,
    /// The client has completed its turn, ended its speech or written something.
    pub(super) complete: bool,
    /// So many calls of tools are answered.
    pub(super) answers: u32,
    /// Tools are declared that the model does not wait for.
    pub(super) non_blocking: bool,
}

/// Reads the client's messages, however long, holding nothing but what it looks for.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    scanner: Scanner,
    wish: Wish,
}

impl Wishes {
    /// The next part of the message.
    pub(super) fn data(&mut self, part: &[u8]) {
        let Self { scanner, wish } = self;
        scanner.read(&TREE, part, &mut |field, value| wish.take(field, value));
    }

    /// The message has ended. One that is no JSON, as audio may be sent, asks for nothing.
    pub(super) fn end(&mut self) -> Wish {
        let wish = std::mem::take(&mut self.wish);
        let read = self.scanner.progress() == Progress::Closed;
        self.scanner.restart();
        if read { wish } else { Wish::default() }
    }
}

impl Wish {
    fn take(&mut self, field: u8, value: Value<'_>) {
        match field {
            TYPE => self.create = value == Value::Text(b"response.create"),
            MODEL => self.model = name(value).map(Cow::into_owned),
            ID => self.id = id(value),
            COMPLETE => self.complete = value == Value::Bool(true),
            SPOKEN => self.complete |= is_something(value),
            ANSWER => self.answers = self.answers.saturating_add(1),
            BEHAVIOR => self.non_blocking |= value == Value::Text(b"NON_BLOCKING"),
            _ => {}
        }
    }
}
