//! WebSocket frames by hand, and both ends of a session around the gauge.

use flate2::{Compress, Compression, FlushCompress};
use streamgauge::{
    dialect::Endpoint,
    observation::{Observation, Outcome},
};

use crate::support::{Peer, World, assert_same};

pub const FIN: u8 = 0x80;
pub const COMPRESSED: u8 = 0x40;
pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A frame of the server's.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = head(first, payload.len(), 0);
    frame.extend(payload);
    frame
}

/// A frame of the client's, masked.
pub fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = head(first, payload.len(), 0x80);
    frame.extend(MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

fn head(first: u8, length: usize, mask: u8) -> Vec<u8> {
    match length {
        0..=125 => vec![first, mask | u8::try_from(length).unwrap()],
        126..=0xffff => [&[first, mask | 0x7e], &u16::try_from(length).unwrap().to_be_bytes()[..]].concat(),
        _ => [&[first, mask | 0x7f], &(length as u64).to_be_bytes()[..]].concat(),
    }
}

/// A text message of the server's in one frame.
pub fn says(json: &str) -> Vec<u8> {
    frame(FIN | TEXT, json.as_bytes())
}

/// A text message of the client's in one frame.
pub fn asks(json: &str) -> Vec<u8> {
    masked(FIN | TEXT, json.as_bytes())
}

/// One side's compression, with what it remembers of its messages.
pub struct Deflater(Compress);

impl Deflater {
    pub fn new() -> Self {
        Self(Compress::new(Compression::default(), false))
    }

    /// A message's payload: deflated, its tail cut off.
    pub fn message(&mut self, text: &str) -> Vec<u8> {
        let mut deflated = Vec::with_capacity(text.len() + 100);
        self.0.compress_vec(text.as_bytes(), &mut deflated, FlushCompress::Sync).unwrap();
        deflated.strip_suffix(&[0, 0, 0xff, 0xff]).expect("a flushed tail").to_vec()
    }
}

/// A client, the gauge and an upstream that have agreed on a WebSocket.
pub struct Session {
    pub world: World,
    pub client: Peer,
    pub up: Peer,
}

impl Session {
    pub async fn open(world: World, target: &str) -> Self {
        Self::open_with(world, target, "", "").await
    }

    /// With more headers (each ending its line) in the request and in the answer.
    pub async fn open_with(mut world: World, target: &str, request: &str, answer: &str) -> Self {
        let mut client = world.client();
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: 127.0.0.1:80\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{request}\r\n"
        );
        client.send(&request).await;
        let mut up = world.upstream().await;
        assert_eq!(up.head().await, request);
        let switch = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n{answer}\r\n"
        );
        up.send(&switch).await;
        assert_eq!(client.head().await, switch);
        Self { world, client, up }
    }

    /// The client sends these bytes, which come out as they are, and at once.
    pub async fn up(&mut self, bytes: impl AsRef<[u8]>) {
        let (before, bytes) = (self.world.clock.now(), bytes.as_ref());
        let (came, ()) = tokio::join!(self.up.read(bytes.len()), self.client.send(bytes));
        assert_same(&came, bytes);
        assert_eq!(self.world.clock.now(), before, "nothing waits");
    }

    /// The upstream sends these bytes, which come out as they are, and at once.
    pub async fn down(&mut self, bytes: impl AsRef<[u8]>) {
        let (before, bytes) = (self.world.clock.now(), bytes.as_ref());
        let (came, ()) = tokio::join!(self.client.read(bytes.len()), self.up.send(bytes));
        assert_same(&came, bytes);
        assert_eq!(self.world.clock.now(), before, "nothing waits");
    }

    /// The record of the next turn.
    pub async fn turn(&mut self) -> Observation {
        let record = self.world.record().await;
        assert_ne!(record.endpoint, Endpoint::Tunnel, "a turn");
        assert_eq!((record.status, record.attempts), (Some(101), 1));
        record
    }

    /// Both sides end, the upstream first. Nothing came out that was not looked at, no turn is left, and the tunnel is booked.
    pub async fn end(self) -> Observation {
        let Self { mut world, mut client, mut up } = self;
        up.shutdown().await;
        client.assert_closed().await;
        client.shutdown().await;
        up.assert_closed().await;
        tunnel(&mut world, Outcome::Complete).await
    }
}

/// The tunnel's own record, which is the last one.
pub async fn tunnel(world: &mut World, outcome: Outcome) -> Observation {
    let record = world.record().await;
    assert_eq!((record.endpoint, record.outcome, record.status), (Endpoint::Tunnel, outcome, Some(101)));
    assert!(!record.stream && record.timeline.ttft().is_none());
    world.assert_no_record();
    assert_eq!(world.in_flight(), 0);
    record
}

/// The value of the one series whose name begins like this and which has all these labels; absent if it is not there.
pub fn sample(scrape: &str, name: &str, labels: &[&str]) -> Option<String> {
    let mut found = scrape
        .lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' ')))
        .filter(|line| labels.iter().all(|label| line.contains(label)));
    let value = found.next()?.rsplit(' ').next()?.to_owned();
    assert_eq!(found.next(), None, "one series");
    Some(value)
}
