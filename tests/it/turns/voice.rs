//! Voice: turns that begin where the provider hears the client's speech end.

use streamgauge::{
    dialect::{Dialect, Endpoint},
    observation::Outcome,
};
use tokio::time::sleep;

use super::{
    count,
    frames::{BINARY, FIN, Session, asks, frame, sample, says},
    world,
};
use crate::support::{ms, ms_of, stages};

const APPEND: &str = r#"{"type":"input_audio_buffer.append","audio":"AAAAAAAAAAAA"}"#;
const STOPPED: &str = r#"{"type":"input_audio_buffer.speech_stopped","audio_end_ms":1000}"#;
const COMMITTED: &str = r#"{"type":"input_audio_buffer.committed","item_id":"i"}"#;
const CREATED: &str = r#"{"type":"response.created","response":{"id":"a","status":"in_progress"}}"#;
const TRANSCRIPT: &str = r#"{"type":"response.output_audio_transcript.delta","response_id":"a","delta":"Hi"}"#;
const AUDIO: &str = r#"{"type":"response.output_audio.delta","response_id":"a","delta":"AAAA"}"#;
const DONE: &str = r#"{"type":"response.done","response":{"id":"a","status":"completed","usage":{"input_tokens":9,"output_tokens":8}}}"#;

async fn realtime() -> Session {
    let world = world();
    let mut session = Session::open(world, "/v1/realtime?model=m").await;
    session
        .down(says(r#"{"type":"session.created","session":{"model":"m","turn_detection":{"type":"server_vad"}}}"#))
        .await;
    session
}

#[tokio::test(start_paused = true)]
async fn what_the_provider_heard_begins_a_turn() {
    let mut session = realtime().await;
    for _ in 0..3 {
        session.up(asks(APPEND)).await;
        sleep(ms(200)).await;
    }
    session.down(says(STOPPED)).await;
    sleep(ms(10)).await;
    session.down([COMMITTED, CREATED].map(says).concat()).await;
    sleep(ms(190)).await;
    session.down(says(TRANSCRIPT)).await;
    sleep(ms(100)).await;
    session.down([AUDIO, AUDIO].map(says).concat()).await;
    sleep(ms(50)).await;
    session.down(says(DONE)).await;
    let turn = session.turn().await;
    let marks = &turn.timeline;
    assert_eq!((turn.endpoint, turn.dialect, turn.outcome), (Endpoint::Realtime, Dialect::Realtime, Outcome::Complete));
    assert_eq!((ms_of(marks.voice_first_audio()), ms_of(marks.ttft())), (Some(300), Some(200)));
    assert_eq!((marks.client_ttft(), marks.request_end, turn.client_duration()), (None, None, None));
    assert_eq!((turn.overhead_request(), marks.overhead_first_output(), turn.event_overhead.count), (None, None, 0));
    assert_eq!(stages(&turn), [("first_output_wait", 200), ("generation", 100), ("tail", 50)]);
    assert_eq!(turn.request_bytes, 3 * asks(APPEND).len() as u64, "what was said");
    assert_eq!(turn.model.as_deref(), Some("m"));
    let scrape = session.world.scrape();
    let sum = sample(&scrape, "streamgauge_voice_first_audio_seconds_sum", &["model=\"m\""]);
    assert_eq!(sum.as_deref(), Some("0.3"));
    let counts =
        ["voice_first_audio_seconds", "ttft_seconds", "client_ttft_seconds"].map(|family| count(&scrape, family));
    assert_eq!(counts, [1, 1, 0]);
    for phase in ["request", "first_output", "event"] {
        let overhead = sample(&scrape, "streamgauge_overhead_seconds_count", &[&format!("phase=\"{phase}\"")]);
        // The tunnel's own request had to be sent, too, but its latencies are nobody's.
        assert_eq!(overhead.as_deref(), Some("0"), "{phase}");
    }
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn speech_without_an_answer_is_no_exchange() {
    let mut session = realtime().await;
    session.down([STOPPED, COMMITTED].map(says).concat()).await;
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_response_that_the_client_asks_for_is_no_voice_turn() {
    let mut session = realtime().await;
    session.up(asks(r#"{"type":"session.update","session":{"turn_detection":null}}"#)).await;
    session.down(says(r#"{"type":"session.updated","session":{"model":"m","turn_detection":null}}"#)).await;
    session.up(asks(r#"{"type":"input_audio_buffer.commit"}"#)).await;
    session.down(says(COMMITTED)).await;
    sleep(ms(70)).await;
    session.up(asks(r#"{"type":"response.create"}"#)).await;
    sleep(ms(250)).await;
    session.down([CREATED, AUDIO, DONE].map(says).concat()).await;
    let turn = session.turn().await;
    assert_eq!([turn.timeline.ttft(), turn.timeline.client_ttft()].map(ms_of), [Some(250); 2]);
    assert_eq!(
        (turn.timeline.voice_first_audio(), count(&session.world.scrape(), "voice_first_audio_seconds")),
        (None, 0)
    );
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn gemini_live_is_read_from_binary_messages() {
    let target = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=secret";
    let mut session = Session::open(world(), target).await;
    session.up(asks(r#"{"setup":{"model":"models/gemini-live"}}"#)).await;
    let says = |json: &str| frame(FIN | BINARY, json.as_bytes());
    session.down(says(r#"{"setupComplete":{}}"#)).await;
    session
        .up(asks(r#"{"clientContent":{"turns":[{"role":"user","parts":[{"text":"hi"}]}],"turnComplete":true}}"#))
        .await;
    sleep(ms(180)).await;
    let audio = r#"{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm","data":"AAAA"}}]}}}"#;
    session.down(says(audio)).await;
    sleep(ms(20)).await;
    let end =
        r#"{"serverContent":{"turnComplete":true},"usageMetadata":{"promptTokenCount":5,"responseTokenCount":6}}"#;
    session.down(says(end)).await;
    let turn = session.turn().await;
    assert_eq!(
        (turn.endpoint, turn.dialect, turn.outcome),
        (Endpoint::Realtime, Dialect::GeminiLive, Outcome::Complete)
    );
    assert_eq!((turn.model.as_deref(), turn.output_tokens()), (Some("gemini-live"), Some(6)));
    assert_eq!((ms_of(turn.timeline.ttft()), ms_of(turn.timeline.duration())), (Some(180), Some(200)));
    session.end().await;
}
