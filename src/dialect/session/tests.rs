use flate2::{Compress, Compression, FlushCompress};

use super::*;
use crate::dialect::Kinds;

/// A session whose messages are told in words, for tables.
struct Talk {
    session: Session,
    /// The session reads byte by byte.
    slow: bool,
}

/// An unmasked frame. Readers take it of either side.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match u16::try_from(payload.len()) {
        Ok(len @ 0..126) => bytes.push(len.to_be_bytes()[1]),
        Ok(len) => bytes.extend([&[126][..], &len.to_be_bytes()].concat()),
        Err(_) => bytes.extend([&[127][..], &(payload.len() as u64).to_be_bytes()].concat()),
    }
    bytes.extend(payload);
    bytes
}

impl Talk {
    fn asked(&mut self, bytes: &[u8]) -> Vec<Asked> {
        let mut all = Vec::new();
        for bytes in bytes.chunks(if self.slow { 1 } else { bytes.len() }) {
            self.session.client(bytes, &mut |asked| all.push(asked));
        }
        all
    }

    fn told(&mut self, bytes: &[u8]) -> Vec<Told> {
        let mut all = Vec::new();
        for bytes in bytes.chunks(if self.slow { 1 } else { bytes.len() }) {
            self.session.server(bytes, &mut |told| all.push(told));
        }
        all
    }

    fn client(&mut self, text: &str) -> String {
        self.asked(&frame(0x81, text.as_bytes())).iter().map(asked_word).collect()
    }

    fn server(&mut self, text: &str) -> String {
        self.told(&frame(0x81, text.as_bytes())).iter().map(told_word).collect()
    }
}

fn asked_word(asked: &Asked) -> String {
    match asked {
        Asked::Response { model } => format!("begins {}", model.as_deref().unwrap_or("-")),
        Asked::Again => "again".to_owned(),
        Asked::Goodbye => "goodbye".to_owned(),
        Asked::Nothing => String::new(),
    }
}

fn told_word(told: &Told) -> String {
    match told {
        Told::Heard => "heard".to_owned(),
        Told::HeardAgain => "heard again".to_owned(),
        Told::Event(turn, signal) => format!("{turn}{}", signal_word(*signal)),
        Told::Last(turn, signal, facts) => format!("{turn}{} last{}", signal_word(*signal), facts_word(facts)),
        Told::Unasked(facts) => format!("unasked{}", facts_word(facts)),
        Told::Goodbye => "goodbye".to_owned(),
        Told::Nothing => String::new(),
    }
}

fn signal_word(signal: Signal) -> String {
    let kinds = [
        (Kinds::REASONING, " reasoning"),
        (Kinds::ANSWER, " answer"),
        (Kinds::TOOL, " tool"),
        (Kinds::AUDIO, " audio"),
    ];
    let words = kinds.iter().filter(|(kinds, _)| signal.output.contains(*kinds)).map(|(_, word)| *word);
    words.chain(signal.error.then_some(" error")).collect()
}

/// `in/out/reasoning/cached`, the finish, the model and the error, as far as they are known.
fn facts_word(facts: &Facts) -> String {
    let usage = &facts.usage;
    let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let counts = [usage.input, usage.output, usage.reasoning, usage.cached].map(count).join("/");
    let finish = Some(facts.finish_reasons.join("|")).filter(|finish| !finish.is_empty());
    let model = facts.response_model.as_ref().map(|model| format!("by {model}"));
    let error = facts.error.as_ref().map(|error| format!("failed: {error}"));
    let words: Vec<_> = [Some(String::new()), Some(counts), finish, model, error].into_iter().flatten().collect();
    let word = words.join(" ");
    assert!(facts.ended || facts.error.is_some(), "{word}");
    word
}

/// Plays messages (`>` of the client's, `<` of the provider's) and compares what each means; whole and byte by byte.
#[track_caller]
fn assert_talk(dialect: Dialect, model: Option<&str>, messages: &[(&str, &str)]) {
    for slow in [false, true] {
        let mut talk = Talk { session: Session::new(dialect, model.map(str::to_owned), None, None), slow };
        for (index, (message, expected)) in messages.iter().enumerate() {
            let meaning = match message.split_at(1) {
                (">", text) => talk.client(text),
                (_, text) => talk.server(text),
            };
            assert_eq!(&meaning, expected, "{index}: {message}");
            assert_eq!(talk.session.off(), None, "{index}: {message}");
        }
    }
}

const CREATE: &str = r#">{"type":"response.create"}"#;

#[test]
fn responses_come_one_after_another() {
    assert_talk(
        Dialect::OpenAiResponses,
        None,
        &[
            (r#"<{"type":"keepalive","sequence_number":0}"#, ""),
            (r#">{"type":"response.create","input":[{"model":"x","type":"message"}],"model":"m"}"#, "begins m"),
            (r#"<{"type":"response.created","response":{"model":"m-1","status":"in_progress"}}"#, "0"),
            (r#"<{"type":"response.output_text.delta","delta":""}"#, "0"),
            (r#"<{"type":"response.reasoning_summary_text.delta","delta":"x"}"#, "0 reasoning"),
            (r#"<{"type":"response.output_text.delta","delta":"x"}"#, "0 answer"),
            (r#">{"response":{"model":"n"},"type":"response.create"}"#, "begins n"),
            (CREATE, "begins n"),
            (
                r#"<{"type":"response.completed","response":{"model":"m-1","status":"completed","usage":{"input_tokens":9,"output_tokens":7,"output_tokens_details":{"reasoning_tokens":3}}}}"#,
                "0 last 9/7/3/- completed by m-1",
            ),
            (r#"<{"type":"response.created","response":{"status":"in_progress"}}"#, "0"),
            (
                r#"<{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#,
                "0 last -/-/-/- incomplete|max_output_tokens",
            ),
            (r#"<{"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}"#, "0 tool"),
            (
                r#"<{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error"}}}"#,
                "0 error last -/-/-/- failed failed: server_error",
            ),
            (r#"<{"type":"response.output_text.delta","delta":"nobody's"}"#, ""),
            (r#"<{"type":"error","error":{"type":"nobody"}}"#, ""),
            (CREATE, "begins n"),
            (
                r#"<{"type":"error","status":400,"error":{"type":"invalid_request_error","code":"model_not_found"}}"#,
                "0 error last -/-/-/- failed: invalid_request_error",
            ),
        ],
    );
}

#[test]
fn an_error_is_of_the_turn_that_waits_else_of_the_one_under_way() {
    assert_talk(
        Dialect::OpenAiResponses,
        None,
        &[
            (CREATE, "begins -"),
            (r#"<{"type":"response.created","response":{"model":"m"}}"#, "0"),
            (CREATE, "begins -"),
            (r#"<{"type":"error","error":{"code":"busy"}}"#, "1 error last -/-/-/- failed: busy"),
            (r#"<{"type":"response.output_text.delta","delta":"x"}"#, "0 answer"),
            (r#"<{"type":"error","error":{"code":"broken"}}"#, "0 error last -/-/-/- by m failed: broken"),
        ],
    );
}

#[test]
fn turns_beyond_measure_are_not_followed() {
    let mut talk =
        Talk { session: Session::new(Dialect::OpenAiResponses, Some("m".to_owned()), None, None), slow: false };
    for _ in 0..8 {
        assert_eq!(talk.client(&CREATE[1..]), "begins m");
    }
    assert_eq!((talk.client(&CREATE[1..]), talk.session.off()), (String::new(), Some(ObserverOff::Overflow)));
    assert!(talk.asked(&frame(0x81, b"{}")).is_empty() && talk.told(&frame(0x81, b"{}")).is_empty());
}

#[test]
fn realtime_is_read_under_its_old_and_its_present_names() {
    let detects = r#"<{"type":"session.updated","session":{"model":"served","turn_detection":null}}"#;
    assert_talk(
        Dialect::Realtime,
        None,
        &[
            (r#"<{"type":"session.created","session":{"type":"realtime","model":"served"}}"#, ""),
            (r#">{"type":"session.update","session":{"audio":{"input":{"transcription":{"model":"x"}}}}}"#, ""),
            (detects, ""),
            (CREATE, "begins served"),
            (r#"<{"type":"conversation.item.added","item":{"type":"function_call","name":"f"}}"#, ""),
            (r#"<{"type":"response.created","response":{"id":"a","status":"in_progress","usage":null}}"#, "0"),
            (r#"<{"type":"response.content_part.added","response_id":"a","part":{"transcript":""}}"#, "0"),
            (r#"<{"type":"response.output_text.delta","response_id":"a","delta":""}"#, "0"),
            (r#"<{"type":"response.output_text.delta","response_id":"a","delta":"x"}"#, "0 answer"),
            (r#"<{"type":"response.text.delta","response_id":"a","delta":"x"}"#, "0 answer"),
            (r#"<{"delta":"x","response_id":"a","type":"response.output_audio_transcript.delta"}"#, "0 answer"),
            (r#"<{"type":"response.audio_transcript.delta","response_id":"a","delta":"x"}"#, "0 answer"),
            (r#"<{"type":"response.output_audio.delta","response_id":"a","delta":"AA=="}"#, "0 answer audio"),
            (r#"<{"type":"response.audio.delta","response_id":"a","delta":"AA=="}"#, "0 answer audio"),
            (
                r#"<{"type":"response.output_item.added","response_id":"a","item":{"type":"function_call","name":"f"}}"#,
                "0 tool",
            ),
            (r#"<{"type":"response.output_item.added","response_id":"a","item":{"type":"message","name":"f"}}"#, "0"),
            (
                r#"<{"type":"response.output_item.added","response_id":"a","item":{"type":"mcp_approval_request","name":"g"}}"#,
                "0 tool",
            ),
            (r#"<{"type":"response.function_call_arguments.delta","response_id":"a","delta":"{"}"#, "0 tool"),
            (r#"<{"type":"response.output_audio_transcript.done","response_id":"a","transcript":"all of it"}"#, "0"),
            (r#"<{"type":"rate_limits.updated","rate_limits":[{"name":"tokens","limit":1}]}"#, ""),
            (r#"<{"type":"ping","timestamp":1}"#, ""),
            (
                r#"<{"type":"response.done","response":{"id":"a","status":"completed","usage":{"input_tokens":9,"output_tokens":8,"input_token_details":{"cached_tokens":4,"cached_tokens_details":{"text_tokens":2}},"output_token_details":{"reasoning_tokens":2,"audio_tokens":5}}}}"#,
                "0 last 9/8/2/4 completed by served",
            ),
            (r#"<{"type":"response.output_text.delta","response_id":"a","delta":"late"}"#, ""),
        ],
    );
}

#[test]
fn what_other_events_say_is_not_the_response_s() {
    assert_talk(
        Dialect::Realtime,
        Some("asked"),
        &[
            (r#"<{"type":"session.created","session":{"model":"served"}}"#, ""),
            (CREATE, "begins asked"),
            (r#"<{"type":"response.created","response":{"id":"a"}}"#, "0"),
            (
                r#"<{"type":"conversation.item.input_audio_transcription.completed","transcript":"hi","usage":{"input_tokens":500}}"#,
                "",
            ),
            (r#"<{"usage":{"input_tokens":500},"type":"conversation.item.input_audio_transcription.completed"}"#, ""),
            (r#"<{"type":"conversation.item.input_audio_transcription.failed","error":{"type":"x"}}"#, ""),
            // Of a message that has a name, of a buffer: the response goes on.
            (r#"<{"type":"error","error":{"type":"invalid_request_error","event_id":"e"}}"#, ""),
            (r#"<{"type":"error","error":{"code":"input_audio_buffer_commit_empty","event_id":null}}"#, ""),
            (r#"<{"type":"error","error":{"type":"server_error","event_id":null}}"#, ""),
            (
                r#"<{"type":"response.done","response":{"id":"a","status":"cancelled","status_details":{"reason":"turn_detected"},"usage":{}},"usage":{"input_tokens":3,"output_tokens":2}}"#,
                "0 last 3/2/-/- cancelled|turn_detected by served",
            ),
            (CREATE, "begins asked"),
            (r#"<{"type":"response.created","response":{"id":"b"}}"#, "0"),
            (
                r#"<{"type":"response.done","response":{"id":"b","status":"failed","status_details":{"type":"failed","error":{"type":"server_error","code":"x"}},"usage":null}}"#,
                "0 error last -/-/-/- failed by served failed: server_error",
            ),
        ],
    );
}

#[test]
fn a_refused_response_ends_its_turn_and_no_other() {
    assert_talk(
        Dialect::Realtime,
        Some("m"),
        &[
            (r#">{"type":"response.create","event_id":"one"}"#, "begins m"),
            (r#"<{"type":"response.created","response":{"id":"a"}}"#, "0"),
            (r#">{"type":"response.create","event_id":"two"}"#, "begins m"),
            (r#"<{"type":"error","error":{"code":"x","event_id":"other"}}"#, ""),
            (r#"<{"type":"error","error":{"code":"response_cancel_not_active","event_id":"two"}}"#, ""),
            (
                r#"<{"type":"error","error":{"code":"conversation_already_has_active_response","event_id":"two"}}"#,
                "1 error last -/-/-/- failed: conversation_already_has_active_response",
            ),
            (r#"<{"type":"response.text.delta","response_id":"a","delta":"x"}"#, "0 answer"),
            (r#"<{"type":"response.done","response":{"id":"a","status":"completed"}}"#, "0 last -/-/-/- completed"),
        ],
    );
}

#[test]
fn responses_at_the_same_time_are_told_apart() {
    assert_talk(
        Dialect::Realtime,
        Some("m"),
        &[
            (CREATE, "begins m"),
            (r#">{"type":"response.create","response":{"conversation":"none"}}"#, "begins m"),
            (r#"<{"type":"response.created","response":{"id":"a"}}"#, "0"),
            (r#"<{"type":"response.created","response":{"id":"b"}}"#, "1"),
            (r#"<{"type":"response.created","response":{"id":"own"}}"#, ""),
            (r#"<{"type":"response.text.delta","response_id":"b","delta":"x"}"#, "1 answer"),
            (r#"<{"type":"response.text.delta","response_id":"own","delta":"x"}"#, ""),
            (r#"<{"type":"response.audio.delta","response_id":"a","delta":"x"}"#, "0 answer audio"),
            (
                r#"<{"type":"response.done","response":{"id":"own","status":"completed","usage":{"input_tokens":7}}}"#,
                "unasked 7/-/-/- completed",
            ),
            (
                r#"<{"type":"response.done","response":{"id":"a","status":"completed","usage":{"input_tokens":5}}}"#,
                "0 last 5/-/-/- completed",
            ),
            (r#"<{"type":"response.text.delta","response_id":"b","delta":"x"}"#, "0 answer"),
            (r#"<{"type":"response.done","response":{"id":"b","status":"completed"}}"#, "0 last -/-/-/- completed"),
        ],
    );
}

const STOPPED: &str = r#"<{"type":"input_audio_buffer.speech_stopped","item_id":"i"}"#;
const COMMITTED: &str = r#"<{"type":"input_audio_buffer.committed","item_id":"i"}"#;

#[test]
fn what_is_heard_begins_one_turn() {
    let detection = r#"<{"type":"session.created","session":{"audio":{"input":{"turn_detection":{"type":"server_vad","create_response":true}}}}}"#;
    assert_talk(
        Dialect::Realtime,
        Some("m"),
        &[
            (detection, ""),
            (r#">{"type":"input_audio_buffer.append","audio":"AAAA"}"#, ""),
            (r#"<{"type":"input_audio_buffer.speech_started"}"#, ""),
            (STOPPED, "heard"),
            (COMMITTED, ""),
            (r#"<{"type":"conversation.item.added","item":{"type":"message"}}"#, ""),
            (CREATE, ""),
            (r#"<{"type":"response.created","response":{"id":"a"}}"#, "0"),
            (r#"<{"type":"error","error":{"code":"conversation_already_has_active_response"}}"#, ""),
            (r#"<{"type":"response.output_audio.delta","response_id":"a","delta":"x"}"#, "0 answer audio"),
            // The client breaks in.
            (STOPPED, "heard"),
            (r#"<{"type":"response.done","response":{"id":"a","status":"cancelled"}}"#, "0 last -/-/-/- cancelled"),
            (COMMITTED, ""),
            // And was not done.
            (STOPPED, "heard again"),
            (r#"<{"type":"response.created","response":{"id":"b"}}"#, "0"),
            (r#"<{"type":"response.done","response":{"id":"b","status":"completed"}}"#, "0 last -/-/-/- completed"),
            (COMMITTED, "heard"),
            (CREATE, ""),
            (CREATE, "begins m"),
        ],
    );
}

#[test]
fn what_is_heard_and_not_answered_by_itself_begins_no_turn() {
    for session in [
        r#"{"turn_detection":null}"#,
        r#"{"turn_detection":{"create_response":false,"type":"server_vad"}}"#,
        r#"{"audio":{"input":{"turn_detection":null}}}"#,
        r#"{"audio":{"input":{"turn_detection":{"type":"semantic_vad","create_response":false}}}}"#,
        r#"{"type":"transcription","audio":{"input":{"turn_detection":{"type":"server_vad"}}}}"#,
    ] {
        let updated = format!(r#"<{{"type":"session.updated","session":{session}}}"#);
        assert_talk(Dialect::Realtime, None, &[(&updated, ""), (STOPPED, ""), (COMMITTED, ""), (CREATE, "begins -")]);
    }
    let transcribes = r#"<{"type":"transcription_session.updated","session":{"turn_detection":{"type":"server_vad"}}}"#;
    assert_talk(Dialect::Realtime, None, &[(transcribes, ""), (STOPPED, ""), (COMMITTED, "")]);
    let on = r#"<{"type":"session.updated","session":{"turn_detection":{"type":"server_vad"}}}"#;
    let off = r#"<{"type":"session.updated","session":{"turn_detection":null}}"#;
    assert_talk(Dialect::Realtime, None, &[(off, ""), (STOPPED, ""), (on, ""), (STOPPED, "heard")]);
}

#[test]
fn the_model_is_the_client_s_word_before_the_session_s() {
    let update = r#">{"type":"session.update","session":{"model":"updated"}}"#;
    let created = r#"<{"type":"session.created","session":{"model":"served"}}"#;
    for (query, messages, expected) in [
        (None, &[created][..], Some("served")),
        (None, &[created, update], Some("updated")),
        (None, &[update, created], Some("updated")),
        (Some("asked"), &[created, update], Some("asked")),
        (None, &[], None),
    ] {
        let mut talk =
            Talk { session: Session::new(Dialect::Realtime, query.map(str::to_owned), None, None), slow: false };
        for message in messages {
            match message.split_at(1) {
                (">", text) => talk.client(text),
                (_, text) => talk.server(text),
            };
        }
        assert_eq!(talk.session.model(), expected, "{query:?} {messages:?}");
    }
}

const SETUP: &str = r#">{"setup":{"model":"models/gem-1","generationConfig":{"responseModalities":["AUDIO"]}}}"#;
const CONTENT: &str = r#">{"clientContent":{"turns":[{"role":"user","parts":[{"text":"hi"}]}],"turnComplete":true}}"#;
const AUDIO: &str =
    r#"<{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm","data":"AAAA"}}]}}}"#;
const OVER: &str = r#"<{"serverContent":{"turnComplete":true}}"#;

#[test]
fn gemini_live_turns_are_read() {
    assert_talk(
        Dialect::GeminiLive,
        None,
        &[
            (SETUP, ""),
            (r#"<{"setupComplete":{}}"#, ""),
            (r#">{"client_content":{"turns":[],"turn_complete":false}}"#, ""),
            (r#">{"clientContent":{"turns":[]}}"#, ""),
            (r#">{"client_content":{"turns":[{"parts":[{"text":"hi"}]}],"turnComplete":true}}"#, "begins gem-1"),
            (r#"<{"sessionResumptionUpdate":{"newHandle":"h","resumable":true}}"#, ""),
            (r#"<{"usageMetadata":{"promptTokenCount":999,"thoughtsTokenCount":9}}"#, "0"),
            (r#"<{"serverContent":{"modelTurn":{"parts":[{"text":"hm","thought":true}]}}}"#, "0 reasoning"),
            (r#"<{"serverContent":{"outputTranscription":{"text":""}}}"#, "0"),
            (r#"<{"serverContent":{"outputTranscription":{"text":"Hi"}}}"#, "0 answer"),
            (AUDIO, "0 answer audio"),
            (
                r#"<{"serverContent":{"modelTurn":{"parts":[{"thought":true,"text":"x"},{"text":"y"},{"executableCode":{"code":"1"}}]}}}"#,
                "0 reasoning answer tool",
            ),
            (r#"<{"goAway":{"timeLeft":"10s"}}"#, ""),
            (r#"<{"serverContent":{"generationComplete":true}}"#, "0"),
            (
                r#"<{"serverContent":{"turnComplete":true},"usageMetadata":{"promptTokenCount":10,"toolUsePromptTokenCount":1,"responseTokenCount":5,"cachedContentTokenCount":4,"totalTokenCount":16}}"#,
                "0 last 11/5/-/4",
            ),
            (OVER, ""),
            (CONTENT, "begins gem-1"),
            (AUDIO, "0 answer audio"),
            // The client breaks in.
            (CONTENT, "begins gem-1"),
            (r#"<{"serverContent":{"interrupted":true}}"#, "0"),
            (
                r#"<{"serverContent":{"turnComplete":true},"usageMetadata":{"promptTokenCount":7}}"#,
                "0 last 7/-/-/- interrupted",
            ),
            (AUDIO, "0 answer audio"),
            (OVER, "0 last -/-/-/-"),
        ],
    );
}

#[test]
fn tools_that_the_model_waits_for_end_a_turn_and_all_their_answers_begin_one() {
    let call = r#"<{"toolCall":{"functionCalls":[{"name":"f","args":{},"id":"1"},{"name":"g","id":"2"},{"name":"h","id":"3"}]}}"#;
    assert_talk(
        Dialect::GeminiLive,
        None,
        &[
            (r#">{"setup":{"model":"projects/p/models/gem","tools":[{"functionDeclarations":[{"name":"f"}]}]}}"#, ""),
            (CONTENT, "begins gem"),
            (call, "0 tool last -/-/-/-"),
            (r#">{"toolResponse":{"functionResponses":[{"id":"1"}]}}"#, ""),
            (r#"<{"toolCallCancellation":{"ids":["2"]}}"#, ""),
            (r#">{"tool_response":{"functionResponses":[{"id":"3"}]}}"#, "begins gem"),
            (r#">{"toolResponse":{"functionResponses":[{"id":"late"}]}}"#, ""),
            (AUDIO, "0 answer audio"),
            (OVER, "0 last -/-/-/-"),
        ],
    );
    assert_talk(
        Dialect::GeminiLive,
        None,
        &[
            (
                r#">{"setup":{"model":"m","tools":[{"functionDeclarations":[{"name":"f","behavior":"NON_BLOCKING"}]}]}}"#,
                "",
            ),
            (CONTENT, "begins m"),
            (call, "0 tool"),
            (AUDIO, "0 answer audio"),
            (r#">{"toolResponse":{"functionResponses":[{"id":"1"}]}}"#, ""),
            (OVER, "0 last -/-/-/-"),
        ],
    );
}

#[test]
fn speech_begins_a_gemini_live_turn_where_its_end_is_known() {
    assert_talk(
        Dialect::GeminiLive,
        Some("m"),
        &[
            (r#">{"realtimeInput":{"audio":{"data":"AAAA","mimeType":"audio/pcm"}}}"#, ""),
            (r#">{"realtimeInput":{"activityStart":{}}}"#, ""),
            (r#">{"realtimeInput":{"activityEnd":{}}}"#, "begins m"),
            (r#">{"realtime_input":{"activity_end":{}}}"#, "again"),
            (r#"<{"serverContent":{"inputTranscription":{"text":"hello"}}}"#, "0"),
            (AUDIO, "0 answer audio"),
            (OVER, "0 last -/-/-/-"),
            (r#">{"realtimeInput":{"text":"hi"}}"#, "begins m"),
            (OVER, "0 last -/-/-/-"),
            (r#"<{"voiceActivityDetectionSignal":{"vadSignalType":"VAD_SIGNAL_TYPE_SOS"}}"#, ""),
            (r#"<{"voiceActivityDetectionSignal":{"vadSignalType":"VAD_SIGNAL_TYPE_EOS"}}"#, "heard"),
            (r#"<{"voiceActivity":{"voiceActivityType":"ACTIVITY_END"}}"#, "heard again"),
            (AUDIO, "0 answer audio"),
            (OVER, "0 last -/-/-/-"),
            // Nobody says when speech ended.
            (r#">{"realtimeInput":{"audioStreamEnd":true}}"#, ""),
            (AUDIO, ""),
            (CONTENT, "begins m"),
            (r#"<{"serverContent":{"interrupted":true}}"#, ""),
            (
                r#"<{"serverContent":{"turnComplete":true},"usageMetadata":{"promptTokenCount":3}}"#,
                "unasked 3/-/-/- interrupted",
            ),
            (AUDIO, "0 answer audio"),
            (OVER, "0 last -/-/-/-"),
        ],
    );
}

#[test]
fn the_end_of_what_was_broken_into_is_not_the_next_turn_s() {
    assert_talk(
        Dialect::GeminiLive,
        Some("m"),
        &[
            (CONTENT, "begins m"),
            (r#"<{"toolCall":{"functionCalls":[{"name":"f","id":"1"}]}}"#, "0 tool last -/-/-/-"),
            (CONTENT, "begins m"),
            (r#"<{"serverContent":{"interrupted":true},"usageMetadata":{"promptTokenCount":3}}"#, ""),
            (OVER, ""),
            (AUDIO, "0 answer audio"),
            (OVER, "0 last -/-/-/-"),
        ],
    );
}

#[test]
fn messages_may_be_binary_fragmented_huge_or_compressed() {
    for slow in [false, true] {
        let deflate = Some(Deflate::default());
        let mut talk = Talk { session: Session::new(Dialect::GeminiLive, None, deflate, deflate), slow };
        let mut compress = Compress::new(Compression::default(), false);
        let mut squeeze = |text: &str| {
            let mut squeezed = Vec::with_capacity(text.len() + 100);
            compress.compress_vec(text.as_bytes(), &mut squeezed, FlushCompress::Sync).unwrap();
            squeezed.truncate(squeezed.len() - 4);
            squeezed
        };
        let (setup, content) = (squeeze(&SETUP[1..]), squeeze(&CONTENT[1..]));
        let (head, tail) = setup.split_at(10);
        let huge = format!(r#"{{"realtimeInput":{{"audio":{{"data":"{}"}}}}}}"#, "A".repeat(200_000));
        let bytes = [
            frame(0x41, head),
            frame(0x89, b"ping"),
            frame(0x80, tail),
            frame(0x82, &[7; 1000]),
            frame(0x82, huge.as_bytes()),
            frame(0xc2, &content),
        ]
        .concat();
        let asked: Vec<_> = talk.asked(&bytes).iter().map(asked_word).collect();
        assert_eq!(asked, ["", "", "", "begins gem-1"]);
        let told: Vec<_> = talk.told(&frame(0x82, &AUDIO.as_bytes()[1..])).iter().map(told_word).collect();
        assert_eq!(told, ["0 answer audio"]);
        assert_eq!(talk.session.off(), None);
    }
}

#[test]
fn messages_of_any_length_are_walked_without_being_held() {
    let mut session = Session::new(Dialect::Realtime, None, None, None);
    session.client(&frame(0x81, br#"{"type":"none"}"#), &mut |_| ());
    session.server(&frame(0x81, br#"{"type":"none"}"#), &mut |_| ());
    let text = format!(r#"{{"type":"none","audio":"{}"}}"#, "A".repeat(1 << 20));
    let bytes = frame(0x81, text.as_bytes());
    let used = allocation_counter::measure(|| {
        for bytes in bytes.chunks(1000) {
            session.client(bytes, &mut |_| ());
            session.server(bytes, &mut |_| ());
        }
    });
    assert!(used.bytes_max <= 64, "{used:?}");
}

#[test]
fn three_unreadable_messages_of_the_provider_s_in_a_row_end_the_reading() {
    let mut talk = Talk { session: Session::new(Dialect::Realtime, None, None, None), slow: false };
    for _ in 0..10 {
        assert_eq!(talk.client("no JSON"), "");
    }
    for text in ["x", "{", r#"{"type":"ping"}"#, "x", "{"] {
        assert_eq!(talk.server(text), "");
    }
    assert_eq!(talk.session.off(), None);
    talk.server("x");
    assert_eq!(talk.session.off(), Some(ObserverOff::Malformed));
}

#[test]
fn lost_framing_of_either_side_ends_the_reading() {
    let bomb: &[u8] = b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff";
    for (bytes, off) in [(bomb, ObserverOff::Malformed), (b"\xc1\x02\xff\xff", ObserverOff::Encoding)] {
        for client in [true, false] {
            let deflate = Some(Deflate::default());
            let mut talk = Talk { session: Session::new(Dialect::Realtime, None, deflate, deflate), slow: true };
            if client {
                talk.asked(bytes);
            } else {
                talk.told(bytes);
            }
            assert_eq!(talk.session.off(), Some(off));
            assert_eq!(talk.client(&CREATE[1..]), "");
        }
    }
}
