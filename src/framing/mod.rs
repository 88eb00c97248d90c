//! Bytes in, events out in pieces, across any split. Pure: no time, no I/O, no failure, no allocation on the usual path.
//! (Only what is compressed needs a window, and may be corrupt.)
//!
//! [`inflate`] undoes a body's compression, [`sse`] cuts a body into events, [`json`] walks a document for the fields of
//! a [`json::Tree`], [`twin`] knows an event again that differs from an earlier one in nothing but values nobody asked
//! for.

mod bytes;
pub mod inflate;
pub mod json;
pub mod sse;
pub mod twin;
