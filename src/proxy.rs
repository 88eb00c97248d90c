//! The one way through: route, begin, acquire, send, head, respond.

mod own;

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
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
    http1::{self, Outgoing as _, Upgrade},
    net::{ConnStats, tls::TlsError},
    observation::{Limit, Observation, Outcome},
    record::{Marked, Recorder, UpstreamHandles},
    route::{RouteTable, upstream_path},
    tap::{
        Asking, BodyLimits, Continue, Departing, Downstream, Open, RequestBody, RequestParts, RequestTap, ResponseBody,
        ResponseTap, Shared,
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

    /// One exchange, from the client's head to the response whose body carries on measuring. It begins at once; the future
    /// brings its answer. What goes wrong becomes an answer.
    ///
    /// # Cancel safety
    /// Dropping the future (the client left) closes the upstream connection and books the exchange.
    pub fn call(
        self: Arc<Self>,
        downstream: &Arc<Downstream>,
        request: Request<Asking>,
    ) -> impl Future<Output = Response<ResponseBody>> + use<> {
        // Not in the future, which would have room for all that stands here as long as it lives.
        let begun = self.take_in(downstream, request);
        async move {
            let (mut underway, mut request) = match begun {
                Ok(begun) => begun,
                Err(answer) => return *answer,
            };
            if underway.asks_for_usage {
                // Boxed, for it is asked of few.
                let asked = Box::pin(ask_for_usage(&mut underway, &mut request)).await;
                if let Err(own) = asked {
                    return answer(underway.open, own, underway.adds);
                }
            }
            match self.send(&mut underway, request).await {
                Ok((response, lease)) => self.answered(*underway, response, lease),
                Err(failure) => {
                    let own = failure.own(underway.open.upload());
                    answer(underway.open, own, underway.adds)
                }
            }
        }
    }

    /// Routes a request and begins its exchange: what goes up, or why nothing does.
    fn take_in(&self, downstream: &Arc<Downstream>, request: Request<Asking>) -> Begun {
        let client = request.version();
        if *downstream.multiplexed.get_or_init(|| client == Version::HTTP_2) {
            downstream.stats.carries_many();
        }
        let request_head = self.request_head(downstream);
        let (parts, mut body) = request.into_parts();
        let upgrade = if let Either::Left(body) = &mut body { body.take_upgrade() } else { None };

        // 1 route
        let route = self.routes.find(&parts).filter(|_| !forward::is_refused(&parts.method));
        let provider = route.and_then(|route| self.providers.get(route.upstream_index));
        let adds = route.map_or_else(Adds::default, |route| route.adds);

        // 2 begin
        let upload = Arc::new(Upload::default());
        let observed = route.is_none_or(|route| route.observe);
        let recognised = observed.then(|| recognise(&parts, provider.and_then(|provider| provider.config.provider)));
        let open = if let Some(recognised) = recognised {
            let exchange = self.begin(request_head, recognised, provider, &parts, Arc::clone(&upload));
            Open::new(exchange, Arc::clone(&self.shared), Arc::clone(downstream))
        } else {
            provider.inspect(|provider| provider.handles.unobserved());
            Open::unobserved(Arc::clone(&upload), Arc::clone(&self.shared), Arc::clone(downstream))
        };
        let refuse = |open, own, body| {
            own::take_off(body, &parts);
            Err(Box::new(answer(open, own, adds)))
        };
        if let Some(ambiguity) = forward::ambiguity(&parts) {
            return refuse(open, own::ambiguous(ambiguity), body);
        }
        let (Some(route), Some(provider)) = (route, provider) else {
            return refuse(open, own::no_route(&parts), body);
        };
        if self.limits.max_in_flight.is_some_and(|most| self.shared.in_flight() > most) {
            return refuse(open, own::overloaded(), body);
        }
        let Some(path) = upstream_path(route, &parts.uri) else {
            return refuse(open, own::uri_too_long(), body);
        };
        let gate = http1::expects_continue(&parts.headers).then(Arc::<Continue>::default);
        let tap = RequestTap::new(
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
                gate: gate.clone(),
            },
        );
        let may_ask = |recognised| may_ask_for_usage(recognised, &parts) && !forward::is_coded(&parts.headers);
        let total = provider.config.limits.total;
        let underway = Underway {
            open,
            provider: route.upstream_index,
            path,
            upgrade: upgrade.filter(|_| forward::is_upgrade(&parts)),
            interim: Interim { gate, dropped: AtomicBool::new(false) },
            total_at: total.map(|total| self.shared.clock.instant(request_head) + total),
            client,
            to_head: parts.method == Method::HEAD,
            recognised,
            asks_for_usage: route.ask_for_usage && recognised.is_some_and(may_ask),
            adds,
        };
        Ok((Box::new(underway), Box::new(Request::from_parts(parts, tap))))
    }

    /// What an answer of the upstream's comes to.
    fn answered(
        &self,
        underway: Underway,
        response: Response<AnswerBody<RequestBody>>,
        mut lease: Lease<RequestBody>,
    ) -> Response<ResponseBody> {
        let Underway { mut open, provider, upgrade, interim, total_at, client, to_head, recognised, adds, .. } =
            underway;
        // 5 head
        let (mut parts, mut body) = response.into_parts();
        if let Some(Recognised { dialect, .. }) = recognised {
            let arrival = lease.stats.last_read();
            open.head(arrival.unwrap_or_else(|| self.shared.clock.now()), &parts, dialect);
        }
        if let Some(exchange) = open.exchange() {
            exchange.seen().flags.informational_dropped = interim.dropped.load(Ordering::Acquire);
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
        let frames = |name: &HeaderName| *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING;
        let until_close = lease.version() != Version::HTTP_2 && !parts.headers.keys().any(frames);
        forward::answer_head(&mut parts, client);
        add(&mut parts.headers, adds, &open);
        let limits = &self.providers[provider].config.limits;
        let limits = BodyLimits::new(limits.first_byte, limits.idle, total_at);
        let head = body.take_head();
        let mut tap = Box::new(ResponseTap::new(body, open, Arc::clone(&lease.stats), Some(lease), limits));
        if until_close {
            tap.ends_with_connection();
        }
        if client != Version::HTTP_2 {
            tap.came_with(head);
            tap.fit_http1(to_head, parts.status);
        }
        Response::from_parts(parts, tap)
    }

    /// Acquires a connection and sends the request on it; once more if the connection turned out to be dead before it
    /// had taken a byte.
    async fn send(
        &self,
        underway: &mut Underway,
        mut request: Box<Request<RequestBody>>,
    ) -> Result<(Response<AnswerBody<RequestBody>>, Lease<RequestBody>), Failure> {
        let provider = &self.providers[underway.provider];
        let is_observed = underway.open.look().is_some();
        let attempted = |result| {
            if is_observed {
                provider.handles.attempt(result);
            }
        };
        let mut fresh = false;
        loop {
            // 3 acquire
            let mut lease = match self.acquire(provider, underway, fresh).await {
                Ok(lease) => lease,
                Err(failure) => {
                    attempted("failed");
                    if matches!(failure, Failure::Unreachable(_)) {
                        let (parts, body) = request.into_parts();
                        own::take_off(body, &parts);
                    }
                    return Err(failure);
                }
            };
            let handed_over = self.shared.clock.now();
            let departing = Departing::by_lease(&lease, handed_over);
            if let Some(exchange) = underway.open.exchange() {
                exchange.leased(handed_over, lease.reused, lease.timings.is_some());
                exchange.seen().connection.upstream_version = Some(lease.version());
            }
            if lease.version() == Version::HTTP_2 && forward::is_coded(request.headers()) {
                attempted("failed");
                lease.release();
                return Err(Failure::Coded);
            }
            // 4 send
            let aimed = aimed(*request, &underway.path, provider, &lease, departing.pending_before());
            underway.open.departs(departing);
            let answer = lease.sender.send(aimed, |status| underway.interim.informed(status));
            let (limit, total_at) = (provider.config.limits.head, underway.total_at);
            let answer = if limit.is_none() && total_at.is_none() {
                answer.await.map_err(Unanswered::Error)
            } else {
                // Boxed: few have limits, and all would have room for their timers.
                let answer = head_within(limit, underway.open.upload(), self.shared.clock, answer);
                Box::pin(within(total_at, answer)).await.unwrap_or(Err(Unanswered::Limit(Limit::Total)))
            };
            let unanswered = match answer {
                Ok(response) => {
                    attempted("ok");
                    return Ok((response, lease));
                }
                Err(unanswered) => unanswered,
            };
            underway.open.sent(self.shared.clock.now());
            let failure = match unanswered {
                Unanswered::Limit(limit) => Failure::TimedOut(limit),
                Unanswered::Error(Lost { request: Some(again), .. }) if lease.reused && !fresh => {
                    attempted("retried");
                    request = again;
                    fresh = true;
                    continue;
                }
                Unanswered::Error(lost) => Failure::Reset(lost.error),
            };
            attempted("failed");
            return Err(failure);
        }
    }

    /// A connection for one attempt, whose marks begin with it.
    async fn acquire(
        &self,
        provider: &Provider,
        underway: &mut Underway,
        fresh: bool,
    ) -> Result<Lease<RequestBody>, Failure> {
        let open = &mut underway.open;
        let core = open.core();
        // An upgrade has no room in HTTP/2.
        let wanted = Wanted { http1_only: underway.upgrade.is_some(), fresh };
        let lease_wanted = self.shared.clock.now();
        if let Some(lease) = provider.pool.at_hand(core, wanted) {
            if let Some(exchange) = open.exchange() {
                exchange.attempt(lease_wanted, None);
            }
            return Ok(lease);
        }
        let dialled = Dialled::default();
        if let Some(exchange) = open.exchange() {
            exchange.attempt(lease_wanted, Some(&dialled));
        }
        // Boxed: few wait for one, and all would have room for it.
        let acquired = Box::pin(within(underway.total_at, provider.pool.acquire(core, wanted, &dialled)));
        match acquired.await {
            Some(Ok(lease)) => Ok(lease),
            Some(Err(error)) => Err(Failure::Unreachable(error)),
            None => Err(Failure::TimedOut(Limit::Total)),
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
        let told = forward::told(&parts.headers, seen.time);
        (seen.trace_id, seen.client_sent) = (told.trace_id, told.client_sent);
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
async fn ask_for_usage(underway: &mut Underway, request: &mut Request<RequestBody>) -> Result<(), Own> {
    let asked = within(underway.total_at, request.body_mut().ask_for_usage()).await;
    let asked = asked.ok_or_else(|| Failure::TimedOut(Limit::Total).own(underway.open.upload()))?;
    if let Some(length) = asked.map_err(own::bad_body)? {
        forward::set_length(request.headers_mut(), length);
        if let Some(exchange) = underway.open.exchange() {
            exchange.seen().flags.asked_for_usage = true;
        }
    }
    Ok(())
}

/// The request as it goes up by this connection, whose writes had been pending for so long.
fn aimed(
    request: Request<RequestBody>,
    path: &PathAndQuery,
    provider: &Provider,
    lease: &Lease<RequestBody>,
    pending: Nanos,
) -> Request<RequestBody> {
    let (mut parts, mut body) = request.into_parts();
    forward::aim(&mut parts, path, &provider.config, lease.version());
    if lease.version() != Version::HTTP_2 && !body.is_end_stream() && body.size_hint().exact().is_none() {
        forward::frame_in_chunks(&mut parts.headers);
    }
    body.attach(Arc::clone(&lease.stats), pending, lease.version());
    Request::from_parts(parts, body)
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
) -> Response<ResponseBody> {
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
    let mut tap = Box::new(ResponseTap::own(bytes::Bytes::new(), None));
    tap.came_with(body.take_head());
    Response::from_parts(parts, tap)
}

/// What goes up, or the answer that the gateway gives instead.
type Begun = Result<(Box<Underway>, Box<Request<RequestBody>>), Box<Response<ResponseBody>>>;

/// An exchange whose request goes up.
struct Underway {
    open: Open,
    /// Where it goes, by its place.
    provider: usize,
    path: PathAndQuery,
    /// It asks to leave HTTP.
    upgrade: Option<Upgrade>,
    interim: Interim,
    total_at: Option<tokio::time::Instant>,
    /// What the client speaks.
    client: Version,
    /// To a HEAD no body comes.
    to_head: bool,
    /// Absent if its route does not observe.
    recognised: Option<Recognised>,
    /// Its body may be made to ask for usage.
    asks_for_usage: bool,
    adds: Adds,
}

/// Where a 1xx of the upstream's is told. It has no way to the client but the 100, which opens the request's body.
struct Interim {
    /// Absent if nobody waits for a 100.
    gate: Option<Arc<Continue>>,
    /// A 1xx other than 100 came and was dropped.
    dropped: AtomicBool,
}

impl Interim {
    fn informed(&self, status: StatusCode) {
        if status != StatusCode::CONTINUE {
            self.dropped.store(true, Ordering::Release);
        } else if let Some(gate) = &self.gate {
            gate.open();
        }
    }
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
