//! What fails is counted and said, never hidden and never guessed.

use crate::{
    provider::{Provider, chat},
    support::{Records, Started, bench, json, program, texts},
};

#[test]
fn every_failure_is_an_outcome_with_its_count() {
    let sim = Started::sim("--ttft 5ms --rate-limit-rate 0.3 --cut-rate 0.3 --error-rate 0.3");
    let output = bench(&sim.url(), "--output-tokens 20 --runs 40 --concurrency 4 --json --warm-up 0").output().unwrap();
    let result = json(&output);
    let cell = &result["cells"][0];
    let counts = cell["outcomes"].as_object().unwrap();
    let count = |outcome: &str| counts.get(outcome).and_then(serde_json::Value::as_u64).unwrap_or(0);
    assert_eq!(counts.values().filter_map(serde_json::Value::as_u64).sum::<u64>(), 40, "{cell:#}");
    // Each is a third or so of what is left: none of forty is one in a hundred thousand.
    assert!(count("rate_limited") > 0 && count("upstream_reset") > 0 && count("error_event") > 0, "{cell:#}");
    assert_eq!(cell["rate_limited_share"].as_f64(), Some(count("rate_limited") as f64 / 40.0));
    let told: Vec<_> =
        cell["errors"].as_array().unwrap().iter().map(|error| error["error"].as_str().unwrap()).collect();
    for error in ["status 429: rate_limit_error", "cut off: ", "error in the stream: server_error"] {
        assert!(told.iter().any(|told| told.starts_with(error)), "{told:?}");
    }
    // Whoever got a token has a TTFT; only whole answers have an end.
    assert!(cell["figures"]["ttft_s"]["n"].as_u64().unwrap() <= 40 - count("rate_limited"));
    assert_eq!(cell["figures"]["duration_s"]["n"].as_u64().unwrap(), count("complete"));
}

#[test]
fn what_takes_too_long_is_given_up() {
    let sim = Started::sim("--ttft 60s");
    let records = Records::new();
    let output = bench(&sim.url(), "--runs 3 --warm-up 0 --timeout 300ms").args(["--records", records.path()]).output();
    let output = output.unwrap();
    let text = texts(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("0 of 3 complete, 3 upstream_timeout") && text.contains("3 × no end within 300ms"), "{text}");
    assert!(text.contains("nothing was measured: no request got a complete answer"), "{text}");
    for record in records.read() {
        assert_eq!((record.outcome.as_str(), record.limit.as_deref()), ("upstream_timeout", Some("total")));
        assert!(record.wall_s >= 0.3 && record.ttft_s.is_none(), "{record:?}");
    }
}

#[test]
fn nobody_there_is_said_before_anything_is_spent() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = bench(&format!("http://{closed}"), "").output().unwrap();
    let text = texts(&output);
    assert_eq!(output.status.code(), Some(1));
    let expected =
        format!("nothing was measured: http://{closed}/v1/chat/completions: no connection: tcp: Connection refused");
    assert!(text.contains(&expected), "{text}");
    let records = Records::new();
    let output = bench(&format!("http://{closed}"), "--warm-up 0 --runs 2 --json")
        .args(["--records", records.path()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&output)["cells"][0]["outcomes"], serde_json::json!({"unreachable": 2}));
    for record in records.read() {
        assert_eq!((record.status, record.attempts, record.duration_s), (None, 1, None), "nobody answered");
        assert!(record.stages_s["tcp"] > 0.0 && record.stages_s["receive"] == 0.0, "{record:?}");
    }
}

#[test]
fn a_key_that_is_refused_ends_it_with_the_providers_word() {
    let error = r#"{"error":{"message":"Incorrect API key: sk-wrong","type":"invalid_request_error","code":"invalid_api_key"}}"#;
    let provider = Provider::new(move |_| (401, "application/json", error.to_owned()));
    let output = bench(&provider.url(), "").output().unwrap();
    let text = texts(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("status 401: invalid_") && !text.contains("sk-wrong"), "{text}");
    assert_eq!(provider.asked().len(), 1, "one was enough to know");
}

#[test]
fn what_a_provider_says_of_its_error_steers_no_terminal() {
    let error = r#"{"error":{"message":"no","type":"\u001b[2J\u001b]0;mine\u0007\u009b31m\u202eevil"}}"#;
    for (status, flags) in [(500, "--runs 2 --warm-up 0"), (401, "")] {
        let provider = Provider::new(move |_| (status, "application/json", error.to_owned()));
        let text = texts(&bench(&provider.url(), flags).output().unwrap());
        assert!(text.contains(&format!("status {status}: \u{fffd}[2J\u{fffd}]0;mine")), "{text:?}");
        let steers = |char: char| char != '\n' && (char.is_control() || char == '\u{202e}');
        assert!(!text.contains(steers), "{text:?}");
    }
}

#[test]
fn what_is_no_stream_has_no_ttft_and_says_so() {
    let plain = r#"{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
    let provider = Provider::new(move |_| (200, "application/json", plain.to_owned()));
    let output = bench(&provider.url(), "--runs 3").output().unwrap();
    let text = texts(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains(
            "3 of 3 had no first output, and TTFT's percentiles know nothing of them; 3 of them are complete answers"
        ),
        "{text}"
    );
}

#[test]
fn flags_that_mean_nothing_are_refused_with_what_would_do() {
    let cases: [(&[&str], &str); 10] = [
        (&["--url", "ftp://x", "--model", "m"], "--url \"ftp://x\": a URL starts with `http://` or `https://`"),
        (&["--url", "http://a", "--compare", "b", "--model", "m"], "--compare \"b\": a URL starts with"),
        (
            &["--url", "http://a", "--model", "m", "--dialect", "grpc"],
            "--dialect \"grpc\": must be one of openai_chat, ",
        ),
        (&["--url", "http://a", "--model", "m", "--key-env", "NOT_THERE"], "--key-env NOT_THERE: there is no such"),
        (
            &["--url", "https://a", "--compare", "https://b", "--model", "m", "--key-env", "PATH"],
            "--key-env PATH: the key would go to both providers",
        ),
        (&["--url", "http://a", "--model", "m,n"], "--model: two are for two providers"),
        (&["--url", "http://a", "--model", "m", "--header", "secret"], "--header \"secret\": wanted is NAME: VALUE"),
        (&["--url", "http://a", "--model", "m", "--field", "a=b"], "its value is not JSON"),
        (&["--url", "http://a", "--model", "m", "--records", "/no/such/folder/f"], "--records /no/such/folder/f: "),
        (&["--url", "http://a", "--model", "m", "--runs", "200000"], "at most --runs 100000"),
    ];
    for (flags, expected) in cases {
        let output = program(&[&["bench"], flags].concat()).output().unwrap();
        let text = texts(&output);
        assert_eq!(output.status.code(), Some(64), "{flags:?}: {text}");
        assert!(text.contains(expected), "{flags:?}: {text}");
    }
}

#[test]
fn the_count_of_the_warm_up_sizes_the_prompts() {
    // Two tokens a word.
    let counts = |body: &serde_json::Value| {
        body["messages"][0]["content"].as_str().unwrap().split_whitespace().count() as u64 * 2
    };
    let provider = Provider::new(move |asked| (200, "text/event-stream", chat(counts(&asked.body), 2)));
    let output = bench(&provider.url(), "--input-tokens 600,2000 --output-tokens 5 --runs 3 --json").output().unwrap();
    let result = json(&output);
    for (cell, wanted) in [600.0, 2000.0].into_iter().enumerate() {
        assert_eq!(result["cells"][cell]["figures"]["input_tokens"]["p50"].as_f64(), Some(wanted), "{result:#}");
    }
    // The first warm-up guesses; the second already knows better, and asks for no long answer.
    let asked: Vec<_> = provider.asked().iter().take(2).map(|asked| counts(&asked.body)).collect();
    assert_eq!(asked, [1200, 2000]);
    assert_eq!(provider.asked()[0].body["max_tokens"], 5);
}
