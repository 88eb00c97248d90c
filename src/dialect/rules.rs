//! What a dialect is made of for [`super::reader::Reader`]: one [`Rules`] each, in the dialect's own file.

use std::sync::LazyLock;

use super::{
    Signal, Usage,
    reply::{Event, Reply},
    usage::Counts,
};
use crate::framing::json::{Tree, Value, Want};

/// How the events of one dialect are read.
pub(super) struct Rules {
    /// What the data of an event is.
    pub(super) data: Data,
    /// Which of its fields are asked for.
    pub(super) tree: LazyLock<Tree>,
    /// Takes a field of the event. What it does not know itself it hands to [`Reply::take`].
    pub(super) found: fn(&mut Reply, &mut Event, u8, Value<'_>),
    /// The event has ended: what it said, all in all.
    pub(super) end: fn(&mut Reply, &mut Event) -> Signal,
    /// The dialect's arithmetic.
    pub(super) usage: fn(&Counts) -> Usage,
}

/// What the data of an event is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Data {
    /// A JSON document.
    Json,
    /// A JSON document, in a stream's events wrapped in base64 in another one ([`crate::framing::wrapped`]).
    Wrapped,
    /// Text: its parts are given as [`super::reply::TEXT`]. What is JSON after all is looked at too.
    Text,
    /// Nothing that is read: events are counted.
    Unread,
}

/// A tree of these fields, and of counts at their places ([`super::usage::fields`], [`super::usage::named`]).
pub(super) fn tree(fields: &[(&str, u8, Want)], counts: Vec<(String, u8, Want)>) -> Tree {
    Tree::new(fields.iter().map(|(path, field, want)| ((*path).to_owned(), *field, *want)).chain(counts))
}
