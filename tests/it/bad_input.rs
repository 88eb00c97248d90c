//! Whatever either side says: a clear answer or a cut that looks like one, one record, nothing left behind.

mod clients;
mod oddities;
mod upstreams;

use streamgauge::observation::{Observation, Outcome};

use crate::support::{Peer, World};

/// Reads an answer of the gateway's own and checks its shape: the head whole, the length, the error's code and type.
async fn own_answer(client: &mut Peer, status: &str, code: &str) {
    let head = client.head().await;
    let kind = if status.starts_with('4') { "invalid_request_error" } else { "gateway_error" };
    let length: usize = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap_or_else(|| panic!("a length in {head}"))
        .parse()
        .unwrap();
    let retry = if status.starts_with("503") { "retry-after: 1\r\n" } else { "" };
    let wanted = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         x-streamgauge-error: {code}\r\n{retry}"
    );
    let rest = head.strip_prefix(&wanted).unwrap_or_else(|| panic!("came: {head:?}\nwanted: {wanted:?}"));
    assert!(["\r\n", "connection: close\r\n\r\n"].contains(&rest), "{rest:?}");
    let body: serde_json::Value = serde_json::from_slice(&client.read(length).await).unwrap();
    let error = &body["error"];
    assert_eq!((error["type"].as_str(), error["code"].as_str()), (Some(kind), Some(code)));
    assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{body}");
    assert_eq!((body.as_object().unwrap().len(), error.as_object().unwrap().len()), (1, 3), "{body}");
}

/// The one record there is, with nothing left under way.
async fn only_record(world: &mut World, outcome: Outcome, status: Option<u16>) -> Observation {
    let record = world.record().await;
    assert_eq!((record.outcome, record.status), (outcome, status));
    assert_eq!(world.in_flight(), 0);
    for line in world.scrape().lines().filter(|line| line.starts_with("streamgauge_in_flight{")) {
        assert!(line.ends_with(" 0") || line.ends_with(" 0.0"), "{line}");
    }
    world.assert_no_record();
    record
}
