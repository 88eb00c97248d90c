//! What follows a 101: bytes both ways, counted, until both sides have ended.

use std::sync::atomic::{AtomicU64, Ordering};

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{
    clock::{Clock, Nanos},
    exchange::Cause,
    tap::{Open, RequestBody},
    upstream::Lease,
};

/// Carries bytes between client and upstream once both have upgraded, and closes the books at the end.
///
/// # Cancel safety
/// Dropping the future closes both connections and books the exchange.
pub async fn run(client: OnUpgrade, upstream: OnUpgrade, mut open: Open, lease: Lease<RequestBody>, clock: Clock) {
    let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
    let cause = match tokio::try_join!(client, upstream) {
        Ok((client, upstream)) => carry(client, upstream, &up, &down).await,
        Err(_) => Cause::Reset,
    };
    if let Some(exchange) = open.exchange() {
        exchange.tunnelled(up.into_inner(), down.into_inner());
        exchange.response_end(clock.now(), Nanos::ZERO);
    }
    drop(lease);
    open.close(cause);
}

async fn carry(client: Upgraded, upstream: Upgraded, up: &AtomicU64, down: &AtomicU64) -> Cause {
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_upstream, to_upstream) = tokio::io::split(TokioIo::new(upstream));
    // Each direction ends by itself (half-closed connections are legal here); a broken one ends both.
    let both = tokio::try_join!(pump(from_client, to_upstream, up, true), pump(from_upstream, to_client, down, false));
    match both {
        Ok(((), ())) => Cause::Ended,
        Err(cause) => cause,
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    bytes: &AtomicU64,
    from_client: bool,
) -> Result<(), Cause> {
    let (reader, writer) =
        if from_client { (Cause::ClientGone, Cause::Reset) } else { (Cause::Reset, Cause::ClientGone) };
    let mut buffer = vec![0; 8 * 1024];
    loop {
        let read = from.read(&mut buffer).await.map_err(|_| reader)?;
        if read == 0 {
            return to.shutdown().await.map_err(|_| writer);
        }
        to.write_all(&buffer[..read]).await.map_err(|_| writer)?;
        to.flush().await.map_err(|_| writer)?;
        bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
}
