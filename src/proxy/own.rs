//! The gateway's own answers: why it gives one, in the shape clients know.

use std::time::Duration;

use bytes::Buf;
use http::{Response, StatusCode, Version, request};
use http_body::Body;
use http_body_util::BodyExt;

use crate::{
    config::Adds,
    error::{Error, Stage},
    exchange::Answered,
    forward, http1,
    observation::{Limit, Outcome},
    tap::{BodyError, Open, ResponseBody, ResponseTap},
    upload::{Upload, UploadFault},
};

/// Why there is no response head.
pub(super) enum Failure {
    Unreachable(Error),
    Reset(BodyError),
    TimedOut(Limit),
    /// The body's transfer coding can't be carried over HTTP/2.
    Coded,
}

/// An answer of the gateway's own.
pub(super) struct Own {
    status: StatusCode,
    code: &'static str,
    message: String,
    outcome: Outcome,
    limit: Option<Limit>,
}

impl Failure {
    pub(super) fn own(self, upload: &Upload) -> Own {
        if let Some(fault) = upload.fault() {
            return bad_body(fault);
        }
        match self {
            Self::Unreachable(error) => {
                let limit = error.timed_out.then_some(match error.stage {
                    Stage::Pool => Limit::PoolWait,
                    _ => Limit::Connect,
                });
                let status = if error.timed_out { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
                Own {
                    status,
                    code: "upstream_unreachable",
                    message: format!("no connection to the upstream: {}", chain(&error)),
                    outcome: Outcome::Unreachable,
                    limit,
                }
            }
            Self::Reset(error) => Own {
                status: StatusCode::BAD_GATEWAY,
                code: "upstream_reset",
                message: format!("the upstream broke off before its answer: {}", chain(&*error)),
                outcome: Outcome::UpstreamReset,
                limit: None,
            },
            Self::Coded => Own {
                status: StatusCode::NOT_IMPLEMENTED,
                code: "transfer_coding",
                message: "a transfer coding beside `chunked` can't be passed on over HTTP/2".into(),
                outcome: Outcome::ClientError,
                limit: None,
            },
            Self::TimedOut(limit) => Own {
                status: StatusCode::GATEWAY_TIMEOUT,
                code: "upstream_timeout",
                message: format!("the upstream did not answer within the limit `{}`", limit.as_str()),
                outcome: Outcome::UpstreamTimeout,
                limit: Some(limit),
            },
        }
    }
}

/// The request's body broke.
pub(super) fn bad_body(fault: UploadFault) -> Own {
    match fault {
        UploadFault::TooLarge => Own {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            code: "request_too_large",
            message: "the request's body is larger than this gateway takes (limits.max_request_body)".into(),
            outcome: Outcome::ClientError,
            limit: Some(Limit::RequestBody),
        },
        UploadFault::Malformed => Own {
            status: StatusCode::BAD_REQUEST,
            code: "bad_request_body",
            message: "the request's body is not framed as HTTP has it".into(),
            outcome: Outcome::ClientError,
            limit: None,
        },
        UploadFault::Gone => Own {
            status: StatusCode::BAD_REQUEST,
            code: "client_gone",
            message: "the request's body ended early".into(),
            outcome: Outcome::ClientGone,
            limit: None,
        },
    }
}

pub(super) fn no_route(parts: &request::Parts) -> Own {
    let (status, code, message) = if forward::is_refused(&parts.method) {
        (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "a reverse proxy does not take CONNECT".to_owned())
    } else {
        let message = format!("no route of this gateway matches {}", parts.uri.path());
        (StatusCode::NOT_FOUND, "no_route", message)
    };
    Own { status, code, message, outcome: Outcome::ClientError, limit: None }
}

/// A 101 to a request that asked for no upgrade.
pub(super) fn switched_unasked() -> Own {
    Own {
        status: StatusCode::BAD_GATEWAY,
        code: "upstream_reset",
        message: "the upstream switched protocols without being asked".into(),
        outcome: Outcome::UpstreamReset,
        limit: None,
    }
}

pub(super) fn ambiguous(why: &str) -> Own {
    Own {
        status: StatusCode::BAD_REQUEST,
        code: "bad_request",
        message: why.into(),
        outcome: Outcome::ClientError,
        limit: None,
    }
}

pub(super) fn coded_response() -> Own {
    Own {
        status: StatusCode::BAD_GATEWAY,
        code: "transfer_coding",
        message: "the upstream used a transfer coding that only HTTP/1.1 clients can be given".into(),
        outcome: Outcome::UpstreamReset,
        limit: None,
    }
}

pub(super) fn uri_too_long() -> Own {
    Own {
        status: StatusCode::URI_TOO_LONG,
        code: "uri_too_long",
        message: "with the upstream's base path before it, the request's path is longer than a URI may be".into(),
        outcome: Outcome::ClientError,
        limit: None,
    }
}

pub(super) fn overloaded() -> Own {
    Own {
        status: StatusCode::SERVICE_UNAVAILABLE,
        code: "overloaded",
        message: "this gateway has as many exchanges in flight as it takes (limits.max_in_flight)".into(),
        outcome: Outcome::Refused,
        limit: Some(Limit::InFlight),
    }
}

pub(super) fn answer(mut open: Open, own: Own, adds: Adds) -> Response<ResponseBody> {
    let Own { status, code, message, outcome, limit } = own;
    let (mut parts, body) = forward::own_answer(status, code, &message);
    tracing::debug!(code, message, "answered by the gateway");
    let now = open.shared().clock.now();
    if let Some(exchange) = open.exchange() {
        exchange.answer(now, Answered { outcome, limit, status: status.as_u16() });
        forward::add(&mut parts.headers, adds, exchange.so_far(), now);
    }
    Response::from_parts(parts, Box::new(ResponseTap::own(body, Some(open))))
}

/// How much of an upload is read that nobody wants, and for how long.
const UNWANTED: (usize, Duration) = (1 << 20, Duration::from_secs(5));

/// Reads what is left of a request that is answered without an upstream. Closing on unread bytes makes the kernel reset
/// the connection, and a client busy sending then finds that instead of the answer. Bounded: an upload beyond a
/// megabyte is cut after all.
pub(super) fn take_off<B>(body: B, parts: &request::Parts)
where
    B: Body<Data: Send, Error: Send> + Send + Unpin + 'static,
{
    // HTTP/2 stops a single stream; a client that waits for a 100 must not be given one.
    if parts.version == Version::HTTP_2 || body.is_end_stream() || http1::expects_continue(&parts.headers) {
        return;
    }
    let (mut left, patience) = UNWANTED;
    let mut body = body;
    let read = async move {
        while let Some(Ok(frame)) = body.frame().await {
            let Some(less) = left.checked_sub(frame.data_ref().map_or(0, Buf::remaining)) else { return };
            left = less;
        }
    };
    // Ends within its patience, sooner if the client leaves.
    tokio::spawn(tokio::time::timeout(patience, read));
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
