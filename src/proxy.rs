//! The one way through: route, begin, acquire, send, head, respond.

mod own;

use std::{
    fmt,
    pin::pin,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use http::{
    HeaderMap, HeaderName, Method, Request, Response, StatusCode, Version, header, request, response, uri::PathAndQuery,
};
use http_body::Body as _;
use http_body_util::Either;

use self::own::{Failure, Own, answer};
use crate::{
    clock::{AtomicStamp, Clock, Nanos, Stamp},
    config::{self, Adds, Config, Upstream},
    dialect::{Dialect, Recognised, RequestScan, may_ask_for_usage, recognise},
    exchange::{Answered, Exchange},
    forward,
    http1::{self, Upgrade},
    net::{ConnStats, tls::TlsError},
    observation::{Limit, Observation, Outcome},
    record::{Marked, Recorder, UpstreamHandles},
    route::{RouteTable, upstream_path},
    tap::{
        Asking, BodyLimits, Continue, Departing, Downstream, Open, RequestBody, RequestParts, RequestTap, ResponseTap,
        Shared,
    },
    tunnel::{self, Watched},
    upload::Upload,
    upstream::{AnswerBody, Connector, Dial, Dialled, Lease, Lost, Pool, pool::Wanted},
};

/// The data plane: routes, upstream pools, and what every exchange shares.
pub struct Gateway {
    shared: Arc<Shared>,
    routes: RouteTable,
    providers: Vec<Provider>,
    limits: config::Limits,
    session_header: Option<HeaderName>,
}

/// One upstream, ready to be sent to.
struct Provider {
    config: Arc<Upstream>,
    handles: Arc<UpstreamHandles>,
    pool: Arc<Pool<RequestBody>>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("routes", &self.routes).finish_non_exhaustive()
    }
}

impl Gateway {
    /// The data plane of this configuration.
    ///
    /// # Errors
    /// If an upstream's certificates can't be used.
    pub fn new(config: &Config, recorder: Arc<Recorder>, dial: Arc<dyn Dial>, clock: Clock) -> Result<Self, TlsError> {
        let cores = config.cores();
        let providers = config.upstreams.iter().map(|upstream| {
            let connector = Connector::new(Arc::clone(upstream), Arc::clone(&dial), clock)?;
            Ok(Provider {
                config: Arc::clone(upstream),
                handles: recorder.upstream(&upstream.name),
                pool: Pool::new(connector, upstream.limits.clone(), upstream.http, clock, cores),
            })
        });
        Ok(Self {
            providers: providers.collect::<Result<_, _>>()?,
            routes: RouteTable::new(config),
            limits: config.limits.clone(),
            session_header: config.session_header.clone(),
            shared: Shared::new(clock, recorder, cores),
        })
    }

    /// What every exchange shares.
    pub const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Limits towards clients.
    pub const fn limits(&self) -> &config::Limits {
        &self.limits
    }

    /// A client's connection, not used yet, and the core that serves it.
    pub fn downstream(core: usize) -> Arc<Downstream> {
        Arc::new(Downstream {
            core,
            stats: Arc::new(ConnStats::default()),
            delivered: AtomicStamp::absent(),
            multiplexed: OnceLock::new(),
        })
    }

    /// Closes connections to upstreams that idled or lived too long.
    pub fn sweep(&self) {
        for provider in &self.providers {
            provider.pool.sweep();
        }
    }

    /// Books a request whose head could not be read: the HTTP library has answered it with this status already.
    pub fn refused_head(&self, downstream: &Arc<Downstream>, status: StatusCode) {
        let arrival = downstream.stats.last_read().unwrap_or_else(|| self.shared.clock.now());
        let seen = self.shared.begin(arrival);
        let exchange =
            Exchange::begin(seen, Arc::clone(&self.shared.recorder), None, Arc::default(), Marked::default());
        let mut open = Open::new(exchange, Arc::clone(&self.shared), Arc::clone(downstream));
        let answered = Answered { outcome: Outcome::ClientError, limit: None, status: status.as_u16() };
        if let Some(exchange) = open.exchange() {
            exchange.answer(arrival, answered);
        }
        open.close(crate::exchange::Cause::Ended);
    }

    /// One exchange, from the client's head to the response whose body carries on measuring.
    ///
    /// # Cancel safety
    /// Dropping the future (the client left) closes the upstream connection and books the exchange.
    ///
    /// What goes wrong becomes an answer.
    pub async fn call(&self, downstream: Arc<Downstream>, request: Request<Asking>) -> Response<ResponseTap> {
        let client = request.version();
        if *downstream.multiplexed.get_or_init(|| client == Version::HTTP_2) {
            downstream.stats.carries_many();
        }
        let request_head = self.request_head(&downstream);
        let (mut parts, mut body) = request.into_parts();
        let upgrade = if let Either::Left(body) = &mut body { body.take_upgrade() } else { None };

        // 1 route
        let route = self.routes.find(&parts).filter(|_| !forward::is_refused(&parts.method));
        let provider = route.and_then(|route| self.providers.get(route.upstream_index));
        let adds = route.map_or_else(Adds::default, |route| route.adds);

        // 2 begin
        let upload = Arc::new(Upload::default());
        let observed = route.is_none_or(|route| route.observe);
        let recognised = observed.then(|| recognise(&parts, provider.and_then(|provider| provider.config.provider)));
        let mut open = if let Some(recognised) = recognised {
            let exchange = self.begin(request_head, recognised, provider, &parts, Arc::clone(&upload));
            Open::new(exchange, Arc::clone(&self.shared), Arc::clone(&downstream))
        } else {
            provider.inspect(|provider| provider.handles.unobserved());
            Open::unobserved(Arc::clone(&upload), Arc::clone(&self.shared), Arc::clone(&downstream))
        };
        if let Some(ambiguity) = forward::ambiguity(&parts) {
            own::take_off(body, &parts);
            return answer(open, own::ambiguous(ambiguity), adds);
        }
        let (Some(route), Some(provider)) = (route, provider) else {
            own::take_off(body, &parts);
            return answer(open, own::no_route(&parts), adds);
        };
        if self.limits.max_in_flight.is_some_and(|most| self.shared.in_flight() > most) {
            own::take_off(body, &parts);
            return answer(open, own::overloaded(), adds);
        }

        let upgrade = upgrade.filter(|_| forward::is_upgrade(&parts));
        let Some(path) = upstream_path(route, &parts.uri) else {
            own::take_off(body, &parts);
            return answer(open, own::uri_too_long(), adds);
        };
        let to_head = parts.method == Method::HEAD;
        let gate = Arc::new(Continue::default());
        let mut tap = RequestTap::new(
            body,
            self.shared.clock,
            RequestParts {
                upload: &upload,
                scan: recognised.map(|recognised| RequestScan::new(recognised, &parts)),
                recorder: &self.shared.recorder,
                handles: &provider.handles,
                downstream: &downstream.stats,
                request_head,
                http2: client == Version::HTTP_2,
                most: self.limits.max_request_body,
                gate: http1::expects_continue(&parts.headers).then(|| Arc::clone(&gate)),
            },
        );
        let total = provider.config.limits.total;
        let total_at = total.map(|total| self.shared.clock.instant(request_head) + total);
        let may_ask = |recognised| may_ask_for_usage(recognised, &parts) && !forward::is_coded(&parts.headers);
        if route.ask_for_usage && recognised.is_some_and(may_ask) {
            // Boxed, for it is asked of few, and an exchange's future stays as long as its connection.
            let asked = within(total_at, Box::pin(ask_for_usage(&mut tap, &mut parts, &mut open))).await;
            if let Err(own) = asked.unwrap_or_else(|| Err(Failure::TimedOut(Limit::Total).own(&upload))) {
                return answer(open, own, adds);
            }
        }
        let request = Request::from_parts(parts, tap);

        // 3 acquire, 4 send
        let sent = self
            .send(
                provider,
                request,
                Way { path: &path, http1_only: upgrade.is_some(), gate: &gate, total_at },
                &mut open,
            )
            .await;
        let (response, mut lease) = match sent {
            Ok(sent) => sent,
            Err(failure) => return answer(open, failure.own(&upload), adds),
        };

        // 5 head
        let (mut parts, body) = response.into_parts();
        if let Some(Recognised { dialect, .. }) = recognised {
            let arrival = lease.stats.last_read();
            open.head(arrival.unwrap_or_else(|| self.shared.clock.now()), &parts, dialect);
        }
        if let Some(exchange) = open.exchange() {
            exchange.seen().flags.informational_dropped = gate.dropped.load(Ordering::Acquire);
            exchange.seen().flags.overhead_lower_bound =
                client == Version::HTTP_2 || lease.version() == Version::HTTP_2;
            exchange.seen().upstream_request_id = forward::upstream_request_id(&parts.headers);
        }

        // 6 respond
        if parts.version == Version::HTTP_10 {
            // The library would speak 1.0 to it from now on, which has no chunks: uploads of unknown length were lost.
            lease.retire();
        }
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            let watched = recognised.and_then(|recognised| Watched::new(recognised, &parts.headers));
            return switch(parts, body, upgrade, open, lease, watched, adds);
        }
        if client != Version::HTTP_11 && forward::is_coded(&parts.headers) {
            return answer(open, own::coded_response(), adds);
        }
        let framed =
            [header::CONTENT_LENGTH, header::TRANSFER_ENCODING].iter().any(|by| parts.headers.contains_key(by));
        let until_close = !framed && lease.version() != Version::HTTP_2;
        forward::answer_head(&mut parts, client);
        add(&mut parts.headers, adds, &open);
        let limits = &provider.config.limits;
        let limits = BodyLimits::new(limits.first_byte, limits.idle, total_at);
        let mut tap = ResponseTap::new(body, open, Arc::clone(&lease.stats), Some(lease), limits);
        if until_close {
            tap.ends_with_connection();
        }
        if client != Version::HTTP_2 {
            tap.fit_http1(to_head, parts.status);
        }
        Response::from_parts(parts, tap)
    }

    /// Acquires a connection and sends the request on it; once more if the connection turned out to be dead before it
    /// had taken a byte.
    async fn send(
        &self,
        provider: &Provider,
        mut request: Request<RequestBody>,
        way: Way<'_>,
        open: &mut Open,
    ) -> Result<(Response<AnswerBody<RequestBody>>, Lease<RequestBody>), Failure> {
        let Way { path, http1_only, gate, total_at } = way;
        let clock = self.shared.clock;
        let is_observed = open.look().is_some();
        let attempted = |result| {
            if is_observed {
                provider.handles.attempt(result);
            }
        };
        let mut fresh = false;
        loop {
            let dialled = Dialled::default();
            if let Some(exchange) = open.exchange() {
                exchange.attempt(clock.now(), &dialled);
            }
            // Pinned here, so that the futures around them don't hold them a second time: an exchange's future stays as
            // long as its connection.
            let acquire = pin!(provider.pool.acquire(open.core(), Wanted { http1_only, fresh }, &dialled));
            let mut lease = match within(total_at, acquire).await {
                Some(Ok(lease)) => lease,
                Some(Err(error)) => {
                    attempted("failed");
                    let (parts, body) = request.into_parts();
                    own::take_off(body, &parts);
                    return Err(Failure::Unreachable(error));
                }
                None => {
                    attempted("failed");
                    return Err(Failure::TimedOut(Limit::Total));
                }
            };
            let handed_over = clock.now();
            let departing = Departing::by_lease(&lease, handed_over);
            if let Some(exchange) = open.exchange() {
                exchange.leased(handed_over, lease.reused, lease.timings.is_some());
                exchange.seen().connection.upstream_version = Some(lease.version());
            }
            let (mut parts, mut body) = request.into_parts();
            if lease.version() == Version::HTTP_2 && forward::is_coded(&parts.headers) {
                attempted("failed");
                lease.release();
                return Err(Failure::Coded);
            }
            forward::aim(&mut parts, path, &provider.config, lease.version());
            if lease.version() != Version::HTTP_2 && !body.is_end_stream() && body.size_hint().exact().is_none() {
                forward::frame_in_chunks(&mut parts.headers);
            }
            body.attach(Arc::clone(&lease.stats), departing.pending_before(), lease.version());
            request = Request::from_parts(parts, body);
            open.departs(departing);

            let answer = {
                let answer = pin!(lease.sender.send(request, |status| gate.informed(status)));
                let answer = head_within(provider.config.limits.head, open.upload(), clock, answer);
                within(total_at, answer).await.unwrap_or(Err(Unanswered::Limit(Limit::Total)))
            };
            let unanswered = match answer {
                Ok(response) => {
                    attempted("ok");
                    return Ok((response, lease));
                }
                Err(unanswered) => unanswered,
            };
            open.sent(clock.now());
            let failure = match unanswered {
                Unanswered::Limit(limit) => Failure::TimedOut(limit),
                Unanswered::Error(Lost { request: Some(again), .. }) if lease.reused && !fresh => {
                    attempted("retried");
                    request = *again;
                    fresh = true;
                    continue;
                }
                Unanswered::Error(lost) => Failure::Reset(lost.error),
            };
            attempted("failed");
            return Err(failure);
        }
    }

    /// On a connection that pipelines, a request does not begin before the response ahead of it has left.
    fn request_head(&self, downstream: &Downstream) -> Stamp {
        let arrival = downstream.stats.last_read().unwrap_or_else(|| self.shared.clock.now());
        let ahead = if downstream.multiplexed() { None } else { downstream.delivered.load() };
        ahead.map_or(arrival, |delivered| arrival.max(delivered))
    }

    /// An exchange, with what its request's head says.
    fn begin(
        &self,
        request_head: Stamp,
        recognised: Recognised,
        provider: Option<&Provider>,
        parts: &request::Parts,
        upload: Arc<Upload>,
    ) -> Box<Exchange> {
        let mut seen = self.shared.begin(request_head);
        seen.endpoint = recognised.endpoint;
        seen.dialect = recognised.dialect;
        self.describe(&mut seen, parts);
        seen.upstream = provider.map(|provider| Arc::clone(&provider.config.name));
        let handles = provider.map(|provider| Arc::clone(&provider.handles));
        let recorder = &self.shared.recorder;
        let marked = recorder.marked(&parts.headers);
        Exchange::begin(seen, Arc::clone(recorder), handles, upload, marked)
    }

    fn describe(&self, seen: &mut Observation, parts: &request::Parts) {
        seen.method = Some(parts.method.clone());
        seen.path = Some(parts.uri.path()).filter(|path| !path.is_empty()).map(|path| kept(path).to_owned());
        seen.connection.client_version = Some(parts.version);
        seen.trace_id = forward::trace_id(&parts.headers);
        seen.client_sent = forward::client_sent(&parts.headers, seen.time);
        let session = self.session_header.as_ref().and_then(|name| parts.headers.get(name));
        seen.session = session.and_then(|value| value.to_str().ok()).map(|value| kept(value).to_owned());
    }
}

/// As much of a client's text as a record keeps: the last exchanges stay in memory, and anybody may send long paths.
fn kept(text: &str) -> &str {
    const MOST: usize = 1024;
    let cut = || (0..=MOST).rev().find_map(|end| text.get(..end)).unwrap_or_default();
    if text.len() <= MOST { text } else { cut() }
}

/// Makes the request's body ask for usage, if it streams and does not say. Fails with the answer to a broken body.
async fn ask_for_usage(tap: &mut RequestTap, parts: &mut request::Parts, open: &mut Open) -> Result<(), Own> {
    if let Some(length) = tap.ask_for_usage().await.map_err(own::bad_body)? {
        forward::set_length(&mut parts.headers, length);
        if let Some(exchange) = open.exchange() {
            exchange.seen().flags.asked_for_usage = true;
        }
    }
    Ok(())
}

/// Adds to the head of an upstream's answer what its route says.
fn add(headers: &mut HeaderMap, adds: Adds, open: &Open) {
    if let Some(seen) = open.look().map(Exchange::so_far)
        && let Some(head_back) = seen.timeline.head_back
    {
        forward::add(headers, adds, seen, head_back);
    }
}

/// A 101: the answer goes down, and what follows is a tunnel.
fn switch(
    mut parts: response::Parts,
    mut body: AnswerBody<RequestBody>,
    client: Option<Upgrade>,
    mut open: Open,
    lease: Lease<RequestBody>,
    watched: Option<Watched>,
    adds: Adds,
) -> Response<ResponseTap> {
    let upstream = if let Either::Left(body) = &mut body { body.take_upgrade() } else { None };
    let (Some(client), Some(upstream)) = (client, upstream) else {
        return answer(open, own::switched_unasked(), adds);
    };
    if let Some(exchange) = open.exchange() {
        exchange.tunnel();
    }
    forward::answer_head(&mut parts, Version::HTTP_11);
    add(&mut parts.headers, adds, &open);
    // Ends with its connections, or with the shutdown's deadline.
    tokio::spawn(tunnel::run(client, upstream, open, lease, watched));
    Response::from_parts(parts, ResponseTap::own(bytes::Bytes::new(), None))
}

/// How a request goes up.
#[derive(Clone, Copy)]
struct Way<'a> {
    path: &'a PathAndQuery,
    /// It asks to leave HTTP, for which HTTP/2 has no room.
    http1_only: bool,
    /// Where a 1xx is told.
    gate: &'a Continue,
    total_at: Option<tokio::time::Instant>,
}

/// Why one sending of a request was not answered.
enum Unanswered<E> {
    Error(E),
    Limit(Limit),
}

async fn within<T>(deadline: Option<tokio::time::Instant>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, work).await.ok(),
        None => Some(work.await),
    }
}

/// The head's limit runs from the request's departure: while the body is still on its way up it does not.
async fn head_within<T, E>(
    limit: Option<Duration>,
    upload: &Upload,
    clock: Clock,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Unanswered<E>> {
    let Some(limit) = limit else { return work.await.map_err(Unanswered::Error) };
    let mut work = std::pin::pin!(work);
    let mut wait = limit;
    loop {
        if let Ok(done) = tokio::time::timeout(wait, work.as_mut()).await {
            return done.map_err(Unanswered::Error);
        }
        let since = upload.handed_over().map_or(Nanos::ZERO, |left| clock.now().since(left));
        wait = limit.saturating_sub(since.into());
        if wait.is_zero() {
            return Err(Unanswered::Limit(Limit::Head));
        }
    }
}

const _: () = assert!(size_of::<Dialect>() == 1, "copied into every exchange");
