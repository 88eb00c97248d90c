//! The same plan again and again, its medians served as metrics.

use std::{io, net::SocketAddr, time::Duration};

use super::Bench;
use crate::app::Stop;

/// Measures at once and then once a period, counted from the first, and serves what came of it at `listen` (`/metrics`),
/// until `stop` asks for the end.
///
/// # Errors
/// If `listen` can't be bound.
pub(super) async fn run(_bench: &mut Bench, _period: Duration, _listen: SocketAddr, _stop: &Stop) -> io::Result<()> {
    Ok(())
}
