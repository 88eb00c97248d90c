//! What is sent: keys where they belong, prompts that no cache knows, fields that were asked for.

use std::collections::HashSet;

use crate::{
    provider::{Asked, Provider, chat},
    support::{Records, bench, json, program, texts},
};

fn prompt(asked: &Asked) -> String {
    asked.body["messages"][0]["content"].as_str().unwrap().to_owned()
}

#[test]
fn the_key_goes_out_and_is_seen_nowhere_else() {
    let provider = Provider::new(|_| (200, "text/event-stream", chat(1000, 2)));
    let records = Records::new();
    let output = bench(&provider.url(), "--runs 2 --header x-api-version:3 --field ignore_eos=true")
        .env("OPENAI_API_KEY", "sk-secret")
        .args(["--records", records.path()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", texts(&output));
    let asked = provider.asked();
    assert_eq!(asked.len(), 3);
    for asked in &asked {
        assert_eq!(asked.line, "POST /v1/chat/completions HTTP/1.1");
        assert_eq!(asked.header("authorization"), Some("Bearer sk-secret"));
        assert_eq!(asked.header("x-api-version"), Some("3"));
        assert_eq!((&asked.body["model"], &asked.body["ignore_eos"]), (&"sim-1".into(), &true.into()));
        assert_eq!(
            (&asked.body["stream"], &asked.body["stream_options"]["include_usage"]),
            (&true.into(), &true.into())
        );
    }
    // The records' trace ids are those that were sent, so that a gauge's records can be joined to them.
    let sent: Vec<_> = asked[1..].iter().map(|asked| asked.header("traceparent").unwrap()[3..35].to_owned()).collect();
    let kept: Vec<_> = records.read().into_iter().map(|record| record.trace_id.unwrap()).collect();
    assert_eq!(sent, kept);
    let file = std::fs::read_to_string(records.path()).unwrap();
    assert!(!texts(&output).contains("secret") && !file.contains("secret"));
}

#[test]
fn a_named_key_goes_to_the_provider_it_is_named_for() {
    let provider = Provider::new(|_| (200, "text/event-stream", chat(1000, 2)));
    let other = Provider::new(|_| (200, "text/event-stream", chat(1000, 2)));
    let flags = ["--runs", "1", "--key-env", "FIRST,SECOND", "--compare", &other.url(), "--json"];
    let output = bench(&provider.url(), "").args(flags).env("FIRST", "one").env("SECOND", "two").output().unwrap();
    assert!(output.status.success(), "{}", texts(&output));
    for (provider, key) in [(provider, "Bearer one"), (other, "Bearer two")] {
        assert!(provider.asked().iter().all(|asked| asked.header("authorization") == Some(key)));
    }
}

#[test]
fn no_two_prompts_are_the_same_unless_asked_for() {
    let provider = Provider::new(|_| (200, "text/event-stream", chat(1000, 2)));
    // A first run leaves the provider's cache full of what the second must not send again.
    for _ in 0..2 {
        let output = bench(&provider.url(), "--runs 8 --concurrency 1,2 -q").output().unwrap();
        assert!(output.status.success(), "{}", texts(&output));
    }
    let asked = provider.asked();
    let begins: HashSet<String> =
        asked.iter().map(|asked| prompt(asked).split(' ').take(4).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!((asked.len(), begins.len()), (34, 34));

    let provider = Provider::new(|_| (200, "text/event-stream", chat(1000, 2)));
    let output = bench(&provider.url(), "--runs 8 --cached -q").output().unwrap();
    assert!(output.status.success(), "{}", texts(&output));
    assert_eq!(provider.asked().iter().map(prompt).collect::<HashSet<_>>().len(), 1);
}

#[test]
fn a_seed_makes_the_same_prompts_again() {
    let provider = Provider::new(|_| (200, "text/event-stream", chat(1000, 2)));
    for _ in 0..2 {
        bench(&provider.url(), "--runs 3 --seed 7 -q").output().unwrap();
    }
    let prompts: Vec<String> = provider.asked().iter().map(prompt).collect();
    assert_eq!(prompts[..4], prompts[4..]);
}

#[test]
fn a_provider_that_wants_the_newer_name_of_the_maximum_gets_it() {
    let provider = Provider::new(|asked| {
        if asked.body.get("max_tokens").is_some() {
            let error = r#"{"error":{"message":"use max_completion_tokens","type":"invalid_request_error","code":"unsupported_parameter"}}"#;
            return (400, "application/json", error.to_owned());
        }
        (200, "text/event-stream", chat(1000, 2))
    });
    let output = bench(&provider.url(), "--runs 2 --json").output().unwrap();
    assert_eq!(json(&output)["cells"][0]["complete"], 2);
    let asked = provider.asked();
    let named: Vec<_> = asked.iter().map(|asked| asked.body.get("max_completion_tokens").cloned()).collect();
    assert_eq!(named, [None, Some(16.into()), Some(200.into()), Some(200.into())]);
}

#[test]
fn other_dialects_are_asked_their_own_way() {
    let anthropic = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":40}}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":3}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    let ollama = concat!(
        "{\"message\":{\"content\":\"a\"},\"done\":false}\n",
        "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":40,\"eval_count\":3}\n",
    );
    let gemini = concat!(
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]},\"finishReason\":\"STOP\"}],",
        "\"usageMetadata\":{\"promptTokenCount\":40,\"candidatesTokenCount\":3,\"totalTokenCount\":43}}\r\n\r\n",
    );
    let cases = [
        ("anthropic", "/v1/messages", "text/event-stream", anthropic, "x-api-key", "ANTHROPIC_API_KEY"),
        ("ollama", "/api/chat", "application/x-ndjson", ollama, "authorization", "OLLAMA_API_KEY"),
        (
            "gemini",
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            "text/event-stream",
            gemini,
            "x-goog-api-key",
            "GEMINI_API_KEY",
        ),
    ];
    for (dialect, path, kind, answer, header, variable) in cases {
        let provider = Provider::new(move |_| (200, kind, answer.to_owned()));
        let flags = ["bench", "--url", &provider.url(), "--model", "m", "--dialect", dialect, "--runs", "2", "--json"];
        let output = program(&flags).env(variable, "key").output().unwrap();
        let result = json(&output);
        let figures = &result["cells"][0]["figures"];
        assert_eq!(result["cells"][0]["complete"], 2, "{dialect}: {result:#}");
        assert_eq!(figures["ttft_s"]["n"], 2, "{dialect}");
        assert_eq!((&figures["input_tokens"]["p50"], &figures["output_tokens"]["p50"]), (&40.0.into(), &3.0.into()));
        for asked in provider.asked() {
            assert_eq!(asked.line, format!("POST {path} HTTP/1.1"));
            assert!(asked.header(header).unwrap().ends_with("key"), "{dialect}");
        }
    }
}
