//! The same requests as the gauge saw them, joined by trace id: client, gauge and provider side by side.

use std::{io, net::SocketAddr};

use serde_json::Value;

use super::{load::Results, plan::Plan};

/// What the gauge knows of the requests, by cell.
#[derive(Clone, Default, Debug)]
pub(super) struct Joined {}

/// Asks the gauge's admin listener for its records of these requests.
///
/// # Errors
/// If the admin listener can't be reached or does not serve exchanges.
pub(super) async fn join(_results: &Results, _admin: SocketAddr) -> io::Result<Joined> {
    Ok(Joined::default())
}

/// Stage by stage: what the client saw, what the gauge saw, what the provider said. `width` is the terminal's.
pub(super) fn table(_plan: &Plan, _joined: &Joined, _width: Option<u16>) -> String {
    String::new()
}

/// The same for `--json`: the value of the key `via`, one element per cell.
pub(super) fn json(_plan: &Plan, _joined: &Joined) -> Value {
    Value::Array(Vec::new())
}
