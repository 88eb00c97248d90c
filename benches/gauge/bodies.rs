//! What a look at a request costs: bodies of 1 MiB through a `RequestScan`. The model comes behind the messages, as several
//! clients have it, so all of a body is walked.
//!
//! ```text
//! gauge bodies            nanoseconds per byte
//! gauge bodies KIND N     N bodies and nothing else, for an instruction counter
//! ```

use http::{Request, header::CONTENT_TYPE};
use streamgauge::{
    clock::Clock,
    dialect::{RequestScan, recognise},
};

use crate::median;

const ROUNDS: usize = 99;
const LENGTH: usize = 1 << 20;

/// What stands again and again in the content or, of the last two, between the messages' brackets.
const KINDS: [(&str, &str); 5] = [
    ("text", "And so it flowed on, unmeasured, to where no gauge had been set. "),
    ("lines", r#"And so it flowed on, \"unmeasured\", to where no gauge had been set.\n"#),
    ("image", "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q"),
    ("messages", r#"{"role":"user","content":"How high does the water stand today, and how high tomorrow?"},"#),
    ("tokens", "[12043,17,9,305],"),
];

pub(crate) fn run(arguments: &[&str]) {
    match *arguments {
        [kind, bodies] => {
            let body = body(KINDS.iter().find(|(name, _)| *name == kind).expect("a known kind"));
            (0..bodies.parse().expect("a number of bodies")).for_each(|_| scan(&body));
        }
        _ => report(),
    }
}

fn report() {
    let clock = Clock::start();
    println!("| 1 MiB of | ns per byte (median of {ROUNDS}) |");
    println!("|---|---|");
    for kind in &KINDS {
        let body = body(kind);
        let spans = (0..ROUNDS).map(|_| {
            let before = clock.now();
            scan(&body);
            clock.now().since(before).0 as f64 / body.len() as f64
        });
        println!("| {} | {:.3} |", kind.0, median(spans.collect()));
    }
}

fn body((name, part): &(&str, &str)) -> Vec<u8> {
    let parts = part.repeat(LENGTH / part.len());
    let messages = match *name {
        "messages" | "tokens" => parts.trim_end_matches(',').to_owned(),
        _ => format!(r#"{{"role":"user","content":"{parts}"}}"#),
    };
    format!(r#"{{"messages":[{messages}],"model":"gauge-1","stream":true}}"#).into_bytes()
}

/// One body in pieces as they come from a socket.
fn scan(body: &[u8]) {
    let request = Request::post("/v1/chat/completions").header(CONTENT_TYPE, "application/json").body(());
    let (parts, ()) = request.expect("a request").into_parts();
    let mut scan = RequestScan::new(recognise(&parts, None), &parts);
    let facts = body.chunks(64 << 10).find_map(|piece| scan.read(piece));
    assert!(facts.is_some_and(|facts| facts.model.as_deref() == Some("gauge-1")), "the model behind them is found");
}
