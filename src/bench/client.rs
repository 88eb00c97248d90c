//! One request as a client: lease, send, head, frames, each told to the exchange as the proxy's taps tell it.
//!
//! What the marks mean here: `request_head` is when the request was due (open loop) or begun (closed loop), and the whole
//! of it was there by then. The departures towards the client are the instants at which this program had the thing in its
//! hands: `overhead_s` is the delay of this program itself, kept out of the provider's numbers. Nobody stands behind a
//! client, so there is no client stall.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version, header, uri::PathAndQuery};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value};

use crate::{
    clock::{Clock, Nanos, Stamp},
    config::{Config, Upstream},
    dialect::{Dialect, RequestFacts, RequestScan, recognise},
    error::Stage,
    exchange::{Answered, Cause, Exchange},
    forward,
    http1::Outgoing,
    net::ConnStats,
    observation::{ExchangeId, Limit, Observation, Outcome},
    proxy::Gateway,
    record::{Marked, Recorder, UpstreamHandles},
    tap::{BodyError, Departing, Downstream, Open, Shared},
    upload::Upload,
    upstream::{AnswerBody, Connector, Dialled, Lease, Pool, TcpDial, pool::Wanted},
};

/// Whom to ask.
#[derive(Debug)]
pub(super) struct Target {
    /// What tables and the records' `upstream` call it: host and port, more where that is not unique.
    pub(super) name: Arc<str>,
    /// The model asked for.
    pub(super) model: String,
    /// How it is spoken to.
    pub(super) dialect: Dialect,
    /// Its address, certificates and limits; the total limit is the request's timeout.
    pub(super) upstream: Arc<Upstream>,
    /// The request's path, the URL's own before it.
    pub(super) path: PathAndQuery,
    /// Headers of every request, the key among them (marked as sensitive).
    pub(super) headers: HeaderMap,
    /// Fields of every request's body besides the usual ones.
    pub(super) fields: Map<String, Value>,
    pool: Arc<Pool<Payload>>,
    handles: Arc<UpstreamHandles>,
}

impl Target {
    /// Opens connections until so many idle, as far as it gets: who then asks finds out why it didn't.
    ///
    /// # Cancel safety
    /// Dropping the future closes what it has opened so far.
    pub(super) async fn connect(&self, connections: usize) {
        let mut dials = tokio::task::JoinSet::new();
        for _ in 0..connections {
            let pool = Arc::clone(&self.pool);
            dials.spawn(async move { pool.acquire(0, Wanted::default(), &Dialled::default()).await });
        }
        // Given back together: one given back sooner would be lent again instead of another one dialled.
        dials.join_all().await.into_iter().flatten().for_each(Lease::release);
    }
}

/// What makes a [`Target`].
#[derive(Debug)]
pub(super) struct Spoken {
    pub(super) model: String,
    pub(super) dialect: Dialect,
    pub(super) path: PathAndQuery,
    pub(super) headers: HeaderMap,
    pub(super) fields: Map<String, Value>,
}

/// One request to be.
#[derive(Debug)]
pub(super) struct Ask {
    /// When it is due; absent: it begins at once.
    pub(super) due: Option<Stamp>,
    /// The whole body.
    pub(super) body: Bytes,
    /// 32 hexadecimal digits, sent as `traceparent`.
    pub(super) trace_id: String,
    /// Its workload's name, for the record.
    pub(super) workload: Arc<str>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) observation: Observation,
    /// Why it is not complete, in a few words; absent if it is.
    pub(super) error: Option<String>,
}

/// Asks, and keeps no record longer than until it is handed out.
#[derive(Debug)]
pub(super) struct Client {
    shared: Arc<Shared>,
    /// Stands for the client's connection, of which there is none: told to carry many exchanges, so that no socket is asked.
    nobody: Arc<Downstream>,
    finished: Finished,
}

/// Finished exchanges on their way from the recorder to who asked.
type Finished = Arc<Mutex<HashMap<ExchangeId, Observation>>>;

impl Client {
    /// A client for these upstreams, and the targets they become.
    ///
    /// # Errors
    /// If a certificate can't be used.
    pub(super) fn new(config: &Config, spoken: Vec<Spoken>, clock: Clock) -> io::Result<(Self, Vec<Target>)> {
        let finished = Finished::default();
        let listener = Arc::clone(&finished);
        let recorder = Recorder::new(config, clock)?.with_listener(Box::new(move |observation| {
            lock(&listener).insert(observation.id, observation.clone());
        }));
        let recorder = Arc::new(recorder);
        let dial = Arc::new(TcpDial { kernel_stamps: config.kernel_stamps });
        let targets = config.upstreams.iter().zip(spoken).map(|(upstream, spoken)| {
            let connector = Connector::new(Arc::clone(upstream), dial.clone(), clock).map_err(io::Error::other)?;
            let Spoken { model, dialect, path, headers, fields } = spoken;
            Ok(Target {
                name: Arc::clone(&upstream.name),
                model,
                dialect,
                path,
                headers,
                fields,
                pool: Pool::new(connector, upstream.limits.clone(), upstream.http, clock, 1),
                handles: recorder.upstream(&upstream.name),
                upstream: Arc::clone(upstream),
            })
        });
        let targets = targets.collect::<io::Result<_>>()?;
        let nobody = Gateway::downstream(0);
        nobody.multiplexed.get_or_init(|| true);
        Ok((Self { shared: Shared::new(clock, recorder, 1), nobody, finished }, targets))
    }

    /// The clock of all marks.
    pub(super) fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Sends one request and reads its answer to its end, whatever that is.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection; nothing is heard of the request any more.
    pub(super) async fn ask(&self, target: &Target, ask: Ask) -> Answer {
        let clock = self.shared.clock;
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = target.path.clone().into();
        *request.headers_mut() = target.headers.clone();
        if let Ok(value) = HeaderValue::try_from(format!("00-{}-{:016x}-01", ask.trace_id, fastrand::u64(1..))) {
            request.headers_mut().insert(HeaderName::from_static("traceparent"), value);
        }
        let (parts, ()) = request.into_parts();

        let recognised = recognise(&parts, Some(target.dialect));
        let told = RequestScan::new(recognised, &parts).finish().unwrap_or_default();
        let facts = RequestFacts { model: Some(target.model.as_str().into()), stream: Some(true), ..told };

        let due = ask.due.unwrap_or_else(|| clock.now());
        let mut seen = self.shared.begin(due);
        let id = seen.id;
        seen.upstream = Some(Arc::clone(&target.name));
        seen.endpoint = recognised.endpoint;
        seen.dialect = target.dialect;
        seen.method = Some(Method::POST);
        seen.path = Some(target.path.path().to_owned());
        seen.trace_id = Some(ask.trace_id);
        seen.flags.bench = true;
        let upload = Arc::new(Upload::default());
        upload.add(ask.body.len() as u64);
        let (recorder, handles) = (&self.shared.recorder, &target.handles);
        let exchange = Exchange::begin(
            seen,
            Arc::clone(recorder),
            Some(Arc::clone(handles)),
            Arc::clone(&upload),
            Marked::default(),
        );
        let mut open = Open::new(exchange, Arc::clone(&self.shared), Arc::clone(&self.nobody));
        upload.start_with(facts, recorder, handles, due);
        // The whole of it was there when it began.
        upload.note_received(due);

        let payload = Payload { left: ask.body, upload, clock };
        let request = Request::from_parts(parts, payload);
        let total = target.upstream.limits.total;
        let answered = drive(target, request, &mut open, clock);
        let ended = match total {
            Some(total) => tokio::time::timeout_at(clock.instant(due) + total, answered).await,
            None => Ok(answered.await),
        };
        let Ended { cause, why } = ended.unwrap_or(Ended { cause: Cause::TimedOut(Limit::Total), why: None });
        open.close(cause);
        // The recorder's listener has put it there by now. Without a listener there would be nobody to ask.
        let mut observation = lock(&self.finished).remove(&id).unwrap_or_else(|| self.shared.begin(due));
        observation.workload = Some(ask.workload);
        let error = error(&observation, why.as_deref(), total);
        Answer { observation, error }
    }
}

/// How an exchange was over, and what the system or the HTTP library said of it.
struct Ended {
    cause: Cause,
    why: Option<String>,
}

impl Ended {
    fn reset(error: &dyn std::error::Error) -> Self {
        Self { cause: Cause::Reset, why: Some(innermost(error)) }
    }
}

/// Acquires a connection, sends the request on it (once more if the connection turned out to be dead before it had taken
/// a byte), and reads the answer.
async fn drive(target: &Target, mut request: Request<Payload>, open: &mut Open, clock: Clock) -> Ended {
    let mut fresh = false;
    let (response, mut lease) = loop {
        let dialled = Dialled::default();
        if let Some(exchange) = open.exchange() {
            exchange.attempt(clock.now(), Some(&dialled));
        }
        let acquired = target.pool.acquire(0, Wanted { http1_only: false, fresh }, &dialled).await;
        let mut lease = match acquired {
            Ok(lease) => lease,
            Err(error) => {
                let limit = error.timed_out.then_some(match error.stage {
                    Stage::Pool => Limit::PoolWait,
                    _ => Limit::Connect,
                });
                if let Some(exchange) = open.exchange() {
                    exchange.answer(clock.now(), Answered { outcome: Outcome::Unreachable, limit, status: 0 });
                    // Nobody gave a status.
                    exchange.seen().status = None;
                }
                let (stage, source) = (error.stage.as_str(), innermost(&error));
                return Ended { cause: Cause::Reset, why: Some(format!("{stage}: {source}")) };
            }
        };
        let handed_over = clock.now();
        let departing = Departing::by_lease(&lease, handed_over);
        if let Some(exchange) = open.exchange() {
            exchange.leased(handed_over, lease.reused, lease.timings.is_some());
            exchange.seen().connection.upstream_version = Some(lease.version());
        }
        let (mut parts, body) = request.into_parts();
        forward::aim(&mut parts, &target.path, &target.upstream, lease.version());
        request = Request::from_parts(parts, body);
        open.departs(departing);
        match lease.sender.send(request, |_| {}).await {
            Ok(response) => break (response, lease),
            Err(lost) => {
                open.sent(clock.now());
                match lost.request {
                    Some(again) if lease.reused && !fresh => {
                        request = *again;
                        fresh = true;
                    }
                    _ => return Ended::reset(&*lost.error),
                }
            }
        }
    };

    let (parts, mut body) = response.into_parts();
    let http2 = lease.version() == Version::HTTP_2;
    let arrival = lease.stats.last_read().unwrap_or_else(|| clock.now());
    open.head(arrival, &parts, target.dialect);
    if let Some(exchange) = open.exchange() {
        exchange.seen().flags.overhead_lower_bound = http2;
        exchange.seen().upstream_request_id = forward::upstream_request_id(&parts.headers);
    }
    if parts.version == Version::HTTP_10 {
        lease.retire();
    }
    let framed = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING].iter().any(|by| parts.headers.contains_key(by));
    let end = read(&mut body, &lease, open, clock, !framed && !http2).await;
    match end {
        Ok(arrival) => {
            if let Some(exchange) = open.exchange() {
                exchange.response_end(arrival, Nanos::ZERO);
                arrived(exchange, clock);
                if exchange.upload().handed_over().is_some() {
                    lease.release();
                }
            }
            Ended { cause: Cause::Ended, why: None }
        }
        Err(Some(error)) => Ended::reset(&*error),
        Err(None) => Ended { cause: Cause::Reset, why: Some("the stream was reset".to_owned()) },
    }
}

/// Reads the body frame by frame. Gives the arrival of its end; the error if it was cut, absent where HTTP/2 hides it.
async fn read(
    body: &mut AnswerBody<Payload>,
    lease: &Lease<Payload>,
    open: &mut Open,
    clock: Clock,
    until_close: bool,
) -> Result<Stamp, Option<BodyError>> {
    let stats: &ConnStats = &lease.stats;
    if body.is_end_stream() {
        return Ok(stats.last_read().unwrap_or_else(|| clock.now()));
    }
    loop {
        let frame = match body.frame().await {
            Some(frame) => frame.map_err(Some)?,
            // As in `ResponseTap::was_cut`.
            None if lease.version() == Version::HTTP_2 && !body.is_end_stream() => return Err(None),
            None => {
                let closed = if until_close { stats.read_end() } else { None };
                return Ok(closed.or_else(|| stats.last_read()).unwrap_or_else(|| clock.now()));
            }
        };
        let Some(bytes) = frame.data_ref() else { continue };
        let arrival = stats.arrival(bytes).unwrap_or_else(|| clock.now());
        if let Some(exchange) = open.exchange() {
            exchange.data(arrival, bytes, Nanos::ZERO);
            arrived(exchange, clock);
            if exchange.so_far().timeline.first_output_delivered.is_some() {
                open.look_at_network();
            }
        }
        if body.is_end_stream() {
            return Ok(arrival);
        }
    }
}

/// Output that came is in this program's hands now.
fn arrived(exchange: &mut Exchange, clock: Clock) {
    if exchange.awaits_departure() {
        exchange.departed(clock.now(), Nanos::ZERO);
    }
}

/// The request's body, which tells when its last byte was handed to the connection.
pub(super) struct Payload {
    left: Bytes,
    upload: Arc<Upload>,
    clock: Clock,
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("left", &self.left.len()).finish_non_exhaustive()
    }
}

/// HTTP/2 asks for the next piece when there is room for it: in pieces the last hand-over is nearer to the departure.
const PIECE: usize = 16 * 1024;

impl Outgoing for Payload {}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        if this.left.is_empty() {
            return Poll::Ready(None);
        }
        let piece = this.left.split_to(PIECE.min(this.left.len()));
        if this.left.is_empty() {
            this.upload.note_handed_over(this.clock.now());
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

/// Why there is no complete answer, without a word of its content.
fn error(observation: &Observation, why: Option<&str>, total: Option<std::time::Duration>) -> Option<String> {
    let class = observation.facts.error.as_deref();
    let with = |what: &str, more: Option<&str>| more.map_or_else(|| what.to_owned(), |more| format!("{what}: {more}"));
    Some(match observation.outcome {
        Outcome::Complete => return None,
        Outcome::Unreachable => with("no connection", why),
        Outcome::UpstreamReset => with("cut off", why),
        Outcome::UpstreamTimeout => {
            format!("no end within {}", humantime::format_duration(total.unwrap_or_default()))
        }
        Outcome::Truncated => "the stream ended without its end marker".to_owned(),
        Outcome::ErrorEvent => with("error in the stream", class),
        outcome => match observation.status {
            Some(status) => with(&format!("status {status}"), class),
            None => outcome.as_str().to_owned(),
        },
    })
}

/// What the system says, without what the layers above make of it.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn lock(finished: &Mutex<HashMap<ExchangeId, Observation>>) -> MutexGuard<'_, HashMap<ExchangeId, Observation>> {
    finished.lock().unwrap_or_else(PoisonError::into_inner)
}
