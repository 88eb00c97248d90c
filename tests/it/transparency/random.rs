//! Any request and any response against a naive picture of what must come out.

use proptest::{collection::vec, prelude::*};
use streamgauge::observation::Outcome;

use crate::support::{World, WorldOptions, assert_same};

/// A header as it stands on the wire.
type Header = (String, Vec<u8>);

#[derive(Clone, Debug)]
struct Message {
    headers: Vec<Header>,
    pieces: Vec<Vec<u8>>,
    chunked: bool,
    /// Where the bytes are cut for sending.
    cuts: Vec<prop::sample::Index>,
}

impl Message {
    fn head(&self, start: &str, headers: &[Header]) -> Vec<u8> {
        let mut head = format!("{start}\r\n").into_bytes();
        for (name, value) in headers {
            // The library leaves the space out before an empty value, in requests only.
            let colon: &[u8] = if value.is_empty() && start.starts_with("POST") { b":" } else { b": " };
            head.extend([name.as_bytes(), colon, value, b"\r\n"].concat());
        }
        if self.chunked {
            head.extend(b"Transfer-Encoding: chunked\r\n\r\n");
        } else {
            head.extend(format!("Content-Length: {}\r\n\r\n", self.body().len()).as_bytes());
        }
        head
    }

    fn body(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    fn wire(&self, start: &str) -> Vec<u8> {
        let mut wire = self.head(start, &self.headers);
        if self.chunked {
            for piece in self.pieces.iter().filter(|piece| !piece.is_empty()) {
                wire.extend(format!("{:x}\r\n", piece.len()).as_bytes());
                wire.extend(piece);
                wire.extend(b"\r\n");
            }
            wire.extend(b"0\r\n\r\n");
        } else {
            wire.extend(self.body());
        }
        wire
    }

    /// Names that come again stand where the first of them stood, in their order.
    fn grouped(&self) -> Vec<Header> {
        let mut grouped: Vec<Header> = Vec::new();
        for header in &self.headers {
            let same = |other: &Header| other.0.eq_ignore_ascii_case(&header.0);
            let at = grouped.iter().rposition(same).map_or(grouped.len(), |last| last + 1);
            grouped.insert(at, header.clone());
        }
        grouped
    }

    async fn send(&self, peer: &mut crate::support::Peer, wire: &[u8]) {
        let mut cuts: Vec<usize> = self.cuts.iter().map(|cut| cut.index(wire.len())).collect();
        cuts.extend([0, wire.len()]);
        cuts.sort_unstable();
        for part in cuts.windows(2) {
            peer.send(&wire[part[0]..part[1]]).await;
        }
    }

    /// Reads it at the other side: the head must be equal, the body too once its chunks are undone.
    async fn assert_read(&self, peer: &mut crate::support::Peer, start: &str) {
        let head = self.head(start, &self.grouped());
        assert_same(&peer.read(head.len()).await, &head);
        let body = self.body();
        if !self.chunked {
            return assert_same(&peer.read(body.len()).await, &body);
        }
        let mut whole = Vec::new();
        loop {
            let size = peer.read_to("\r\n").await;
            let size = usize::from_str_radix(size.trim_end(), 16).expect("a chunk's size");
            whole.extend(peer.read(size).await);
            assert_eq!(peer.read(2).await, b"\r\n");
            if size == 0 {
                return assert_same(&whole, &body);
            }
        }
    }
}

fn header() -> impl Strategy<Value = Header> {
    let name = prop_oneof![
        "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}".prop_map(|rest| format!("x-{rest}")),
        prop::sample::select(vec![
            "Accept",
            "accept-encoding",
            "AUTHORIZATION",
            "Cookie",
            "Set-Cookie",
            "User-Agent",
            "content-type",
            "Date",
            "Server",
            "X-A",
            "x-a",
            "X-B",
            "x-b",
            "Via",
            "Forwarded",
            "ETag",
            "content-encoding",
            "Age",
        ])
        .prop_map(str::to_owned),
    ];
    let byte = prop_oneof![8 => 0x21..=0x7e_u8, 1 => 0x80..=0xff_u8];
    let value = vec(byte, 0..20).prop_map(|mut value| {
        // Space is kept inside a value only.
        if let Some(middle) = value.get_mut(7) {
            *middle = b' ';
        }
        if value.len() == 8 {
            value.push(b'z');
        }
        value
    });
    (name, value)
}

fn message() -> impl Strategy<Value = Message> {
    let pieces = vec(vec(any::<u8>(), 0..300), 0..6);
    (vec(header(), 0..20), pieces, any::<bool>(), vec(any::<prop::sample::Index>(), 0..6))
        .prop_map(|(headers, pieces, chunked, cuts)| Message { headers, pieces, chunked, cuts })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_exchange_comes_out_as_it_went_in(request in message(), response in message(), again in message()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let mut world = World::new(WorldOptions::default());
            let mut client = world.client();
            let mut upstream = None;
            // The second one goes over the same connections.
            for request in [request, again] {
                let start = "POST /any?x HTTP/1.1\r\nHost: 127.0.0.1:80";
                request.send(&mut client, &request.wire(start)).await;
                let up = match &mut upstream {
                    None => upstream.insert(world.upstream().await),
                    Some(up) => up,
                };
                request.assert_read(up, start).await;
                up.assert_silent().await;
                response.send(up, &response.wire("HTTP/1.1 200 Fine")).await;
                response.assert_read(&mut client, "HTTP/1.1 200 Fine").await;
                let record = world.record().await;
                assert_eq!(record.outcome, Outcome::Complete);
                assert_eq!(record.request_bytes, request.body().len() as u64);
                assert_eq!(record.response_bytes, response.body().len() as u64);
                client.assert_silent().await;
                world.assert_no_record();
            }
            assert_eq!(world.in_flight(), 0);
        });
    }
}
