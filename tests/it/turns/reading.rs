//! Whatever way the messages come, they are read alike; and what can't be read passes all the same.

use proptest::{collection::vec, prelude::*};
use streamgauge::{dialect::ObserverOff, observation::Outcome};
use tokio::time::sleep;

use super::{
    COMPLETED, CREATE, CREATED, DELTA, PATH, count,
    frames::{BINARY, COMPRESSED, CONTINUATION, Deflater, FIN, PING, Session, TEXT, asks, frame, masked, sample, says},
    options, world,
};
use crate::support::{Peer, World, WorldOptions, assert_same, ms, ms_of, stages, whole_ms};

async fn open() -> Session {
    Session::open(world(), PATH).await
}

#[tokio::test(start_paused = true)]
async fn a_message_has_arrived_with_its_last_byte() {
    let mut session = open().await;
    let (ask, delta) = (asks(CREATE), says(DELTA));
    for part in [&ask[..1], &ask[1..9], &ask[9..ask.len() - 1], &ask[ask.len() - 1..]] {
        sleep(ms(10)).await;
        session.up(part).await;
    }
    let asked = session.world.clock.now();
    sleep(ms(100)).await;
    for byte in delta.chunks(1) {
        sleep(ms(1)).await;
        session.down(byte).await;
    }
    session.down(says(COMPLETED)).await;
    let turn = session.turn().await;
    assert_eq!((turn.timeline.request_head, turn.timeline.sent_last), (asked, Some(asked)));
    assert_eq!(ms_of(turn.timeline.ttft()), Some(100 + delta.len() as u64));
    assert_eq!(turn.reads, delta.len() as u64, "the last one brought the end, too");
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn messages_of_one_read_share_its_stamp() {
    let mut session = open().await;
    session.up(asks(CREATE)).await;
    sleep(ms(80)).await;
    session.down([CREATED, DELTA, DELTA, DELTA, COMPLETED].map(says).concat()).await;
    let turn = session.turn().await;
    assert_eq!((turn.output_events, turn.cadence.coalesced(), turn.cadence.max_gap(), turn.reads), (3, 2, None, 1));
    assert_eq!(ms_of(turn.timeline.ttft()), Some(80));
    assert_eq!(turn.tpot(), None, "all came at once");
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn fragments_and_pings_are_what_they_are() {
    let mut session = open().await;
    let (head, tail) = CREATE.as_bytes().split_at(20);
    session.up([masked(TEXT, head), masked(FIN | PING, b"?"), masked(FIN | CONTINUATION, tail)].concat()).await;
    sleep(ms(30)).await;
    session.down(frame(FIN | PING, b"!")).await;
    let (head, tail) = DELTA.as_bytes().split_at(30);
    session.down(frame(TEXT, head)).await;
    sleep(ms(30)).await;
    session.down([frame(FIN | PING, b""), frame(CONTINUATION, tail), frame(FIN | CONTINUATION, b"")].concat()).await;
    session.down(says(COMPLETED)).await;
    let turn = session.turn().await;
    assert_eq!((ms_of(turn.timeline.ttft()), turn.events, turn.outcome), (Some(60), 2, Outcome::Complete));
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn compressed_messages_are_read_and_pass_compressed() {
    for (agreed, takeover) in [
        ("permessage-deflate", true),
        ("permessage-deflate; client_no_context_takeover; server_no_context_takeover", false),
    ] {
        let offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
        let answer = format!("Sec-WebSocket-Extensions: {agreed}\r\n");
        let mut session = Session::open_with(world(), PATH, offer, &answer).await;
        let (mut client, mut server) = (Deflater::new(), Deflater::new());
        for round in 0..3 {
            if !takeover {
                (client, server) = (Deflater::new(), Deflater::new());
            }
            session.up(masked(FIN | TEXT | COMPRESSED, &client.message(CREATE))).await;
            sleep(ms(90)).await;
            for event in [CREATED, DELTA, COMPLETED] {
                if !takeover {
                    server = Deflater::new();
                }
                session.down(frame(FIN | TEXT | COMPRESSED, &server.message(event))).await;
            }
            let turn = session.turn().await;
            assert_eq!((turn.outcome, turn.model.as_deref()), (Outcome::Complete, Some("m")), "{agreed}, {round}");
            assert_eq!((ms_of(turn.timeline.ttft()), turn.output_tokens()), (Some(90), Some(7)));
        }
        assert_eq!(session.end().await.observer_off, None);
    }
}

/// Every byte passes, the tunnel is counted, nothing is read.
async fn assert_unread(mut session: Session, off: Option<ObserverOff>) {
    for bytes in [&asks(CREATE)[..], b"", b"\x00\xff"] {
        session.up(bytes).await;
    }
    let down = [CREATED, DELTA, COMPLETED].map(says).concat();
    session.down(&down).await;
    let scrape = session.world.scrape();
    assert_eq!(count(&scrape, "ttft_seconds"), 0);
    let Session { mut world, client, up } = session;
    drop((client, up));
    let tunnel = world.record().await;
    world.assert_no_record();
    assert_eq!((tunnel.observer_off, tunnel.response_bytes >= down.len() as u64), (off, true));
    if let Some(off) = off {
        let labels = [format!("reason=\"{}\"", off.as_str())];
        let counted = sample(&world.scrape(), "streamgauge_observer_off_total", &labels.each_ref().map(String::as_str));
        assert_eq!(counted.as_deref(), Some("1"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_session_is_a_tunnel_and_no_more() {
    for (target, upgrade, off) in [
        ("/v1/responses", "Sec-WebSocket-Extensions: x-zstd\r\n", Some(ObserverOff::Encoding)),
        ("/v1/responses", "Sec-WebSocket-Extensions: permessage-deflate, x-mux\r\n", Some(ObserverOff::Encoding)),
        ("/v1/responses", "Sec-WebSocket-Extensions: \u{e4}\r\n", Some(ObserverOff::Encoding)),
        ("/v1/other", "", None),
    ] {
        let session = Session::open_with(world(), target, "", upgrade).await;
        assert_unread(session, off).await;
    }
}

#[tokio::test(start_paused = true)]
async fn garbage_passes_and_is_counted_once() {
    for garbage in
        [&b"\xff\xff\xff\xffgarbage"[..], b"HTTP/1.1 200 OK\r\n\r\n", b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff0123"]
    {
        let mut session = open().await;
        session.down(garbage).await;
        assert_unread(session, Some(ObserverOff::Malformed)).await;
        let mut session = open().await;
        session.up(garbage).await;
        assert_unread(session, Some(ObserverOff::Malformed)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_lost_from_sight_says_so() {
    let mut session = open().await;
    session.up(asks(CREATE)).await;
    sleep(ms(50)).await;
    session.down(says(DELTA)).await;
    session.down(frame(FIN | TEXT | COMPRESSED, b"not agreed on")).await;
    let turn = session.turn().await;
    assert_eq!((turn.observer_off, turn.outcome), (Some(ObserverOff::Malformed), Outcome::Complete));
    assert_eq!((ms_of(turn.timeline.ttft()), turn.timeline.duration(), turn.client_duration()), (Some(50), None, None));
    session.down(says(COMPLETED)).await;
    assert_eq!(session.end().await.observer_off, Some(ObserverOff::Malformed));
}

#[tokio::test(start_paused = true)]
async fn megabytes_of_messages_pass_and_are_read() {
    let mut session = Session::open(World::new(WorldOptions { pipe: 4096, ..options() }), PATH).await;
    let audio = vec![0x55; 300_000];
    let mut up = masked(FIN | BINARY, &audio);
    up.extend(asks(&CREATE.replace("[]", &format!("{:?}", "x".repeat(1_000_000)))));
    let (came, ()) = tokio::join!(session.up.read(up.len()), session.client.send(&up));
    assert_same(&came, &up);
    let mut down = says(CREATED);
    for _ in 0..2_000 {
        down.extend(says(DELTA));
    }
    down.extend(says(&COMPLETED.replace(r#""status""#, &format!(r#""output":{:?},"status""#, "y".repeat(2_000_000)))));
    let (came, ()) = tokio::join!(session.client.read(down.len()), session.up.send(&down));
    assert_same(&came, &down);
    let turn = session.turn().await;
    assert_eq!((turn.outcome, turn.output_events, turn.output_tokens()), (Outcome::Complete, 2_000, Some(7)));
    assert_eq!((turn.request_bytes, turn.response_bytes), (up.len() as u64, down.len() as u64));
    session.end().await;
}

/// What three turns of one session were read as.
type Read = Vec<(Outcome, u64, u64, Option<u64>, Option<String>, usize)>;

/// One session, both directions cut as given, through pipes of this size.
async fn read_in_pieces(pipe: usize, cuts: [&[usize]; 2]) -> Read {
    let mut session = Session::open(World::new(WorldOptions { pipe, ..options() }), PATH).await;
    let mut read = Vec::new();
    let refusal = r#"{"type":"error","error":{"type":"server_error"}}"#;
    for events in [&[CREATED, DELTA, DELTA, COMPLETED][..], &[refusal], &[DELTA, COMPLETED]] {
        let ask = [masked(FIN | PING, b"ping"), asks(CREATE)].concat();
        let (came, ()) = tokio::join!(session.up.read(ask.len()), in_pieces(&mut session.client, &ask, cuts[0]));
        assert_same(&came, &ask);
        let answer = events.iter().map(|event| says(event)).collect::<Vec<_>>().concat();
        let (came, ()) = tokio::join!(session.client.read(answer.len()), in_pieces(&mut session.up, &answer, cuts[1]));
        assert_same(&came, &answer);
        let turn = session.turn().await;
        assert_eq!(stages(&turn).iter().map(|(_, span)| span).sum::<u64>(), whole_ms(turn.wall()));
        assert_eq!(turn.request_bytes, ask.len() as u64);
        read.push((
            turn.outcome,
            turn.events,
            turn.output_events,
            turn.output_tokens(),
            turn.model.as_deref().map(str::to_owned),
            usize::try_from(turn.response_bytes).unwrap(),
        ));
    }
    session.end().await;
    read
}

/// Sends the pieces between the cuts, a millisecond apart.
async fn in_pieces(peer: &mut Peer, bytes: &[u8], cuts: &[usize]) {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % bytes.len()).chain([0, bytes.len()]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    for piece in cuts.windows(2) {
        peer.send(&bytes[piece[0]..piece[1]]).await;
        sleep(ms(1)).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn however_a_session_is_cut_it_is_the_same(
        pipe in 16_usize..2_000,
        up in vec(0_usize..1_000, 0..6),
        down in vec(0_usize..1_000, 0..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let whole = runtime.block_on(read_in_pieces(64 * 1024, [&[], &[]]));
        prop_assert_eq!(whole.iter().map(|turn| turn.0).collect::<Vec<_>>(), [Outcome::Complete, Outcome::ErrorEvent, Outcome::Complete]);
        prop_assert_eq!(runtime.block_on(read_in_pieces(pipe, [&up, &down])), whole);
    }
}
