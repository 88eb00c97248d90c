//! A WebSocket session: every split of either side gives the same turns, events and reason to stop, and what is held is
//! bounded.
#![no_main]

use fuzz::{
    Cut, Input, STATE, alike_by, bounded, fixtures, pick, seed,
    websocket::{MASKED, SERVER, body_of, frames, messages},
};
use libfuzzer_sys::fuzz_target;
use streamgauge::dialect::{Dialect, session::Session};

/// The dialects that have sessions, and one that has none.
const DIALECTS: [Dialect; 4] = [Dialect::OpenAiResponses, Dialect::Realtime, Dialect::GeminiLive, Dialect::OpenAiChat];

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let dialect = pick(input.choices[0], &DIALECTS);
    let sent: Vec<_> = messages(input.body).into_iter().map(|(what, message)| (what, frames(what, message, false))).collect();
    alike_by(&input, |cut| {
        let (mut session, mut said) = (Session::new(dialect, None, None, None), Vec::new());
        for (what, frames) in &sent {
            for piece in cut.pieces(frames) {
                if what & SERVER == 0 {
                    session.client(piece, &mut |asked| said.push(format!("{asked:?}")));
                } else {
                    session.server(piece, &mut |told| said.push(format!("{told:?}")));
                }
            }
        }
        (said, session.model().map(str::to_owned), session.off())
    });
    bounded(STATE - size_of::<Session>(), || {
        let mut session = Session::new(dialect, None, None, None);
        for (what, frames) in &sent {
            for piece in Cut::Whole.pieces(frames) {
                if what & SERVER == 0 {
                    session.client(piece, &mut |_| ());
                } else {
                    session.server(piece, &mut |_| ());
                }
            }
        }
    });
});

const CLIENT: u8 = MASKED;

fn seeds() -> Vec<Vec<u8>> {
    // The events of a Responses session are those of its streams.
    let streams =
        fixtures().into_iter().filter(|fixture| fixture.dialect == "openai_responses" && fixture.framing == "sse");
    let mut seeds: Vec<_> = streams
        .map(|fixture| {
            let lines = fixture.body.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"data: "));
            let events: Vec<_> = lines.map(|line| (SERVER, line)).collect();
            let create = [(CLIENT, &br#"{"type":"response.create","model":"m","input":"x"}"#[..])];
            Input::bytes([0; 4], &body_of(&[&create[..], &events, &create, &events[..1]].concat()))
        })
        .collect();
    let realtime = [
        (SERVER, r#"{"type":"session.created","session":{"model":"m","turn_detection":{"create_response":true}}}"#),
        (CLIENT, r#"{"type":"session.update","session":{"turn_detection":null}}"#),
        (CLIENT, r#"{"type":"response.create","event_id":"e1","response":{"conversation":"none"}}"#),
        (SERVER, r#"{"type":"input_audio_buffer.speech_stopped"}"#),
        (SERVER, r#"{"type":"input_audio_buffer.committed"}"#),
        (SERVER, r#"{"type":"response.created","response":{"id":"r1","status":"in_progress"}}"#),
        (SERVER, r#"{"type":"response.output_audio.delta","response_id":"r1","delta":"AAAA"}"#),
        (SERVER, r#"{"type":"response.output_audio_transcript.delta","response_id":"r1","delta":"hi"}"#),
        (SERVER, r#"{"type":"error","error":{"type":"invalid_request_error","code":"c","event_id":"e1"}}"#),
        (SERVER, r#"{"type":"response.done","response":{"id":"r1","status":"completed","usage":{"output_tokens":3}}}"#),
    ];
    seeds.push(Input::bytes([1, 0, 0, 0], &body_of(&realtime)));
    let live = [
        (CLIENT, r#"{"setup":{"model":"models/m","tools":[{"functionDeclarations":[{"behavior":"NON_BLOCKING"}]}]}}"#),
        (SERVER, r#"{"setupComplete":{}}"#),
        (CLIENT, r#"{"clientContent":{"turns":[{"parts":[{"text":"x"}]}],"turnComplete":true}}"#),
        (SERVER, r#"{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"data":"AAAA"}},{"text":"a"}]}}}"#),
        (SERVER, r#"{"toolCall":{"functionCalls":[{"id":"1","name":"f","args":{}}]}}"#),
        (CLIENT, r#"{"toolResponse":{"functionResponses":[{"id":"1","response":{}}]}}"#),
        (CLIENT, r#"{"realtimeInput":{"activityEnd":{}}}"#),
        (
            SERVER,
            r#"{"serverContent":{"interrupted":true,"turnComplete":true},"usageMetadata":{"responseTokenCount":3}}"#,
        ),
    ];
    seeds.push(Input::bytes([2, 0, 0, 0], &body_of(&live)));
    seeds
}
