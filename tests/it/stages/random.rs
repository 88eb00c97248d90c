//! Random exchanges through the whole data plane: whatever is slow, in whatever order, the stages add up to the wall time,
//! and each cause lies in its own.

use proptest::prelude::*;
use streamgauge::observation::{Observation, Outcome, STAGES};
use tokio::time::sleep;

use crate::support::{LAST_CHUNK, Peer, World, WorldOptions, chat_delta, chat_end, chat_role, chunk, ms, stages};

/// What one exchange is made to go through, in milliseconds where it is a time. Zero: nothing of the kind.
#[derive(Clone, Debug)]
struct Script {
    streams: bool,
    dns: u64,
    tcp: u64,
    /// Another exchange has the only connection for so long; then nobody dials.
    pool: u64,
    /// The client pauses so long before each further piece of its request.
    pauses: Vec<u64>,
    /// The client asks for a 100, which comes after so long.
    hundred: Option<u64>,
    /// The upstream takes nothing of a large body for so long.
    unread: u64,
    /// Before the head; then before each event: whether it is output, and how many share its read.
    head: u64,
    events: Vec<(u64, bool, usize)>,
    tail: u64,
    /// The client does not read the last of it for so long.
    stall: u64,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Whole,
    /// After so many of the events.
    Cut(usize),
    Left(usize),
    /// The client leaves, or the upstream breaks, before the head.
    LeftBeforeHead,
    CutBeforeHead,
    /// The upstream refuses what the client has not sent all of yet.
    Early,
}

fn script() -> impl Strategy<Value = Script> {
    let time = || prop_oneof![2 => Just(0_u64), 3 => 1_u64..400];
    let end = prop_oneof![
        6 => Just(End::Whole),
        1 => (0_usize..6).prop_map(End::Cut),
        1 => (0_usize..6).prop_map(End::Left),
        1 => Just(End::LeftBeforeHead),
        1 => Just(End::CutBeforeHead),
        1 => Just(End::Early),
    ];
    let event = (time(), any::<bool>(), 1_usize..3);
    (
        (any::<bool>(), time(), time(), time(), proptest::collection::vec(1_u64..300, 0..4)),
        (proptest::option::weighted(0.2, 1_u64..300), time(), time(), proptest::collection::vec(event, 0..6)),
        (time(), time(), end),
    )
        .prop_map(|((streams, dns, tcp, pool, pauses), (hundred, unread, head, events), (tail, stall, end))| {
            Script {
                streams,
                // Who waits for the pool does not dial.
                dns: if pool > 0 { 0 } else { dns },
                tcp: if pool > 0 { 0 } else { tcp },
                pool,
                hundred: hundred.filter(|_| end != End::Early),
                unread: if end == End::Early { 0 } else { unread },
                // Who is refused early has not come further than its first pause.
                pauses: if end == End::Early { vec![1_000] } else { pauses },
                head,
                events,
                // What comes at the instant a client leaves may find it or not.
                tail: if matches!(end, End::Left(_)) { tail.max(1) } else { tail },
                stall: if end == End::Whole { stall } else { 0 },
                end,
            }
        })
}

/// By stage, in milliseconds.
type Expected = Vec<(&'static str, u64)>;

impl Script {
    /// What the contract says of such an exchange.
    fn expected(&self) -> Expected {
        let lease = if self.pool > 0 { self.pool } else { self.dns + self.tcp };
        // The client's pauses begin when it has sent its head (or has the 100); what the lease covers is the lease's.
        let pauses: u64 = self.pauses.iter().sum();
        let receive = if self.end == End::Early {
            // The request is as good as sent with its first byte.
            0
        } else if self.hundred.is_some() {
            pauses
        } else {
            pauses.saturating_sub(lease)
        };
        let upload = self.hundred.unwrap_or(0) + self.unread;
        let sent_before =
            [("dns", self.dns), ("tcp", self.tcp), ("pool_wait", self.pool), ("upload", upload), ("receive", receive)];
        let mut after = [0; 3];
        let (mut seen, mut output) = (self.head, false);
        let cut = match self.end {
            End::Cut(after) | End::Left(after) => after.min(self.events.len()),
            _ => self.events.len(),
        };
        // Until the first output it is waited for, until the last it generates, and what follows is its tail. Of a plain
        // answer any byte is what was waited for, and all behind it is generated.
        let mut since_output = 0;
        if !matches!(self.end, End::LeftBeforeHead | End::CutBeforeHead | End::Early) {
            for (pause, is_output, _) in &self.events[..cut] {
                let counts = *is_output || !self.streams;
                if output {
                    since_output += pause;
                } else {
                    seen += pause;
                }
                if counts {
                    after[1] += std::mem::take(&mut since_output);
                    output = true;
                }
            }
            if output {
                since_output += self.tail;
            } else {
                seen += self.tail;
            }
        }
        after[0] = seen;
        after[if self.streams { 2 } else { 1 }] += since_output;
        let rest = [
            ("first_output_wait", after[0]),
            ("generation", after[1]),
            ("tail", after[2]),
            ("client_stall", self.stall),
        ];
        let mut expected: Expected = sent_before.into_iter().chain(rest).filter(|(_, span)| *span > 0).collect();
        expected.sort_by_key(|(name, _)| STAGES.iter().position(|stage| stage == name));
        expected
    }

    /// What the client sends behind its head, piece by piece.
    fn pieces(&self) -> Vec<String> {
        let large = if self.unread > 0 { 6_000 } else { 10 };
        let body = format!("{{\"model\":\"m\",\"stream\":{},\"messages\":{:?}}}", self.streams, "x".repeat(large));
        // The pieces before the last are small, so that they don't wait for an upstream that reads nothing.
        let (mut pieces, mut rest) = (Vec::new(), &body[..]);
        for _ in &self.pauses {
            let (piece, left) = rest.split_at(3);
            pieces.push(piece.to_owned());
            rest = left;
        }
        pieces.push(rest.to_owned());
        pieces
    }

    fn request_head(&self) -> String {
        let length: usize = self.pieces().iter().map(String::len).sum();
        let expect = if self.hundred.is_some() { "Expect: 100-continue\r\n" } else { "" };
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n{expect}\
             Content-Length: {length}\r\n\r\n"
        )
    }

    fn answer_head(&self) -> String {
        let kind = if self.streams { "text/event-stream" } else { "application/json" };
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n")
    }

    fn event(&self, is_output: bool, together: usize) -> String {
        match (self.streams, is_output) {
            (false, _) => chunk(" "),
            (true, false) => chunk(&chat_role()),
            (true, true) => (0..together).map(|_| chunk(&chat_delta("a"))).collect(),
        }
    }

    async fn ask(&self, client: &mut Peer) {
        client.send(self.request_head()).await;
        if self.hundred.is_some() {
            assert!(client.head().await.starts_with("HTTP/1.1 100 "));
        }
        let mut pieces = self.pieces().into_iter();
        let first = pieces.next().unwrap_or_default();
        client.send(first).await;
        for (piece, pause) in pieces.zip(&self.pauses).filter(|_| self.end != End::Early) {
            sleep(ms(*pause)).await;
            client.send(piece).await;
        }
    }

    /// The upstream takes the request: all of it but what it is slow with.
    async fn take(&self, up: &mut Peer) {
        up.head().await;
        if let Some(wait) = self.hundred {
            sleep(ms(wait)).await;
            up.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        }
        let pieces = self.pieces();
        let (last, before) = pieces.split_last().expect("a body");
        if self.end == End::Early {
            up.read(pieces[0].len()).await;
            return;
        }
        up.read(before.iter().map(String::len).sum()).await;
        if self.unread > 0 {
            // It begins with the last piece's first bytes, which are there at once: the pipe is full from then on.
            up.read(1).await;
            sleep(ms(self.unread)).await;
            up.read(last.len() - 1).await;
        } else {
            up.read(last.len()).await;
        }
    }

    /// The upstream answers as far as it gets; the connection, if it still holds.
    async fn answer(&self, mut up: Peer, client: Peer) -> (Option<Peer>, Option<Peer>) {
        let mut client = Some(client);
        sleep(ms(self.head)).await;
        match self.end {
            End::LeftBeforeHead => return (Some(up), None),
            End::CutBeforeHead => return (None, client),
            End::Early => {
                up.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n").await;
                return (Some(up), client);
            }
            _ => up.send(self.answer_head()).await,
        }
        let stop = match self.end {
            End::Cut(after) | End::Left(after) => after.min(self.events.len()),
            _ => self.events.len(),
        };
        for (pause, is_output, together) in &self.events[..stop] {
            sleep(ms(*pause)).await;
            up.send(self.event(*is_output, *together)).await;
        }
        sleep(ms(self.tail)).await;
        match self.end {
            End::Cut(_) => return (None, client),
            End::Left(_) => return (Some(up), None),
            _ => {}
        }
        let end = if self.streams { chat_end(7, 9) } else { "{}".to_owned() };
        let Some(reader) = &mut client else { return (Some(up), None) };
        // What fills all pipes comes with the end, so that the stall is behind it.
        let filler = if self.stall == 0 {
            String::new()
        } else if self.streams {
            format!(": {}\n\n", "x".repeat(3_000))
        } else {
            " ".repeat(3_000)
        };
        tokio::join!(up.send(chunk(&(filler + &end)) + LAST_CHUNK), async {
            sleep(ms(self.stall)).await;
            reader.read_to(LAST_CHUNK).await;
        });
        (Some(up), client)
    }

    async fn play(&self) -> Observation {
        let mut world = World::new(WorldOptions {
            pipe: 1024,
            upstream_pipe: Some(2048),
            dns: (self.dns > 0).then(|| ms(self.dns)),
            tcp: ms(self.tcp),
            upstream: |upstream| upstream.limits.max_connections = Some(1),
            ..WorldOptions::default()
        });
        let mut client = world.client();
        let mut up = None;
        let mut first = None;
        if self.pool > 0 {
            // Another one has the only connection.
            let mut other = world.client();
            other.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
            let mut connection = world.upstream().await;
            connection.head().await;
            (up, first) = (Some(connection), Some(other));
        }
        let (up, ()) = tokio::join!(
            async {
                let mut up = match up {
                    Some(mut up) => {
                        sleep(ms(self.pool)).await;
                        up.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                        up
                    }
                    None => world.upstream().await,
                };
                self.take(&mut up).await;
                up
            },
            self.ask(&mut client)
        );
        if first.is_some() {
            let record = world.record().await;
            assert_eq!(stages(&record), [("first_output_wait", self.pool)]);
        }
        // Whoever has not left stays until it is booked.
        let (_up, _client) = self.answer(up, client).await;
        let record = world.record().await;
        world.assert_no_record();
        assert_eq!(world.in_flight(), 0);
        record
    }
}

fn check(script: &Script) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let record = runtime.block_on(script.play());
    assert_eq!(stages(&record), script.expected(), "{script:#?}");
    let (wall, outcome) = (record.wall(), record.outcome);
    assert!(record.stages().iter().all(|stage| *stage <= wall));
    let whole = matches!(script.end, End::Whole);
    assert_eq!(outcome == Outcome::Complete, whole, "{outcome:?} {script:#?}");
    assert_eq!(record.flags.early_response, script.end == End::Early);
    // Nothing but the script took any time.
    if let Some(overhead) = record.overhead_request() {
        assert_eq!(overhead.0, 0, "{script:#?}");
    }
    assert_eq!(record.event_overhead.max.0, 0);
}

proptest! {
    // A world is dear: a quarter of what is usual, or of what PROPTEST_CASES says.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_cause_lies_in_its_own_stage(script in script()) {
        check(&script);
    }
}

#[test]
fn what_is_expected_is_what_a_reader_would_expect() {
    let script = Script {
        streams: true,
        dns: 20,
        tcp: 10,
        pool: 0,
        pauses: vec![40, 60],
        hundred: None,
        unread: 0,
        head: 10,
        events: vec![(5, true, 1), (7, true, 2), (2, false, 1)],
        tail: 3,
        stall: 9,
        end: End::Whole,
    };
    let expected = [
        ("dns", 20),
        ("tcp", 10),
        ("receive", 70),
        ("first_output_wait", 15),
        ("generation", 7),
        ("tail", 5),
        ("client_stall", 9),
    ];
    assert_eq!(script.expected(), expected);
    check(&script);
}
