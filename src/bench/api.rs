//! How each API is asked for a streamed answer: path, body, key.

use http::{HeaderMap, HeaderName, HeaderValue, header, uri::PathAndQuery};
use serde_json::{Map, Value, json};

use crate::dialect::Dialect;

/// The dialects it speaks: those that stream text over plain HTTP and are asked by one request.
pub(super) const SPOKEN: [Dialect; 7] = [
    Dialect::OpenAiChat,
    Dialect::OpenAiResponses,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::Cohere,
    Dialect::Ollama,
    Dialect::Tgi,
];

/// The API's own path. Of the path in the user's URL, which comes before it, what both have in common stands once, so
/// that `https://host`, `https://host/v1` and `https://host/v1/chat/completions` all mean the same; one that ends with
/// a version brings its own (`/api/paas/v4`).
///
/// Absent if the model's name can't stand in a path.
pub(super) fn path(dialect: Dialect, model: &str, base: &str) -> Option<PathAndQuery> {
    let own = match dialect {
        Dialect::OpenAiResponses => "/v1/responses".to_owned(),
        Dialect::Anthropic => "/v1/messages".to_owned(),
        Dialect::Gemini => {
            let model = model.strip_prefix("models/").unwrap_or(model);
            format!("/v1beta/models/{model}:streamGenerateContent")
        }
        Dialect::Cohere => "/v2/chat".to_owned(),
        Dialect::Ollama => "/api/chat".to_owned(),
        Dialect::Tgi => "/generate_stream".to_owned(),
        _ => "/v1/chat/completions".to_owned(),
    };
    let overlap = (0..=own.len()).rev().find(|length| {
        let edge = own.as_bytes().get(*length).is_none_or(|byte| *byte == b'/');
        edge && base.ends_with(&own[..*length])
    });
    let mut rest = &own[overlap.unwrap_or(0)..];
    let last = base.rsplit('/').next().unwrap_or_default();
    if overlap == Some(0) && is_version(last) {
        let unversioned = own[1..].split_once('/').filter(|(first, _)| is_version(first));
        rest = unversioned.map_or(rest, |(first, _)| &own[1 + first.len()..]);
    }
    // Without it Gemini answers with a growing JSON array.
    let query = if dialect == Dialect::Gemini { "?alt=sse" } else { "" };
    format!("{base}{rest}{query}").parse().ok()
}

/// `v1`, `v4`, `v1beta`.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// The dialect that a host or the end of a path gives away.
pub(super) fn recognised(host: &str, base: &str) -> Option<Dialect> {
    const PATHS: [(&str, Dialect); 7] = [
        ("/responses", Dialect::OpenAiResponses),
        ("/chat/completions", Dialect::OpenAiChat),
        ("/messages", Dialect::Anthropic),
        ("/v1beta", Dialect::Gemini),
        ("/v2/chat", Dialect::Cohere),
        ("/api/chat", Dialect::Ollama),
        ("/generate_stream", Dialect::Tgi),
    ];
    let by_path = PATHS.iter().find(|(end, _)| base.ends_with(end)).map(|(_, dialect)| *dialect);
    by_path.or_else(|| SPOKEN.into_iter().find(|dialect| *dialect != Dialect::OpenAiChat && is_home(*dialect, host)))
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    pub(super) model: &'a str,
    pub(super) prompt: &'a str,
    /// The maximum of output tokens.
    pub(super) output_tokens: u64,
    /// OpenAI's newer models refuse the name that all others know (`max_tokens`) and want `max_completion_tokens`, which
    /// some others pass over, and so would answer without end.
    pub(super) new_maximum: bool,
    /// Further fields of the body, which replace those of the same name.
    pub(super) fields: &'a Map<String, Value>,
}

/// The request's body.
pub(super) fn body(dialect: Dialect, wish: Wish<'_>) -> Vec<u8> {
    let Wish { model, prompt, output_tokens: most, .. } = wish;
    let messages = json!([{"role": "user", "content": prompt}]);
    let mut body = match dialect {
        Dialect::OpenAiResponses => {
            json!({"model": model, "input": messages, "max_output_tokens": most, "stream": true, "store": false})
        }
        Dialect::Anthropic | Dialect::Cohere => {
            json!({"model": model, "messages": messages, "max_tokens": most, "stream": true})
        }
        Dialect::Gemini => json!({
            "contents": [{"role": "user", "parts": [{"text": prompt}]}],
            "generationConfig": {"maxOutputTokens": most},
        }),
        Dialect::Ollama => {
            json!({"model": model, "messages": messages, "stream": true, "options": {"num_predict": most}})
        }
        // With details its last event has counts.
        Dialect::Tgi => json!({"inputs": prompt, "parameters": {"max_new_tokens": most, "details": true}}),
        _ => {
            let maximum = if wish.new_maximum { "max_completion_tokens" } else { "max_tokens" };
            json!({
                "model": model,
                "messages": messages,
                maximum: most,
                "stream": true,
                "stream_options": {"include_usage": true},
            })
        }
    };
    if let Value::Object(body) = &mut body {
        body.extend(wish.fields.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    body.to_string().into_bytes()
}

/// The environment variables that usually hold the key, in the order they are looked at.
pub(super) const fn key_variables(dialect: Dialect) -> &'static [&'static str] {
    match dialect {
        Dialect::Anthropic => &["ANTHROPIC_API_KEY"],
        Dialect::Gemini => &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        Dialect::Cohere => &["CO_API_KEY", "COHERE_API_KEY"],
        Dialect::Ollama => &["OLLAMA_API_KEY"],
        Dialect::Tgi => &["HF_TOKEN"],
        _ => &["OPENAI_API_KEY"],
    }
}

/// Whether the host is the vendor's own, to whom the key in the usual variable belongs.
pub(super) fn is_home(dialect: Dialect, host: &str) -> bool {
    let homes: &[&str] = match dialect {
        Dialect::Anthropic => &["anthropic.com"],
        Dialect::Gemini => &["generativelanguage.googleapis.com"],
        Dialect::Cohere => &["cohere.com", "cohere.ai"],
        Dialect::Ollama => &["ollama.com"],
        Dialect::Tgi => &["endpoints.huggingface.cloud"],
        _ => &["openai.com"],
    };
    homes.iter().any(|home| host.strip_suffix(home).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// The headers of every request, the key among them, marked as not to be shown.
///
/// # Errors
/// If the key can't stand in a header.
pub(super) fn headers(dialect: Dialect, key: Option<&str>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("streamgauge/", env!("CARGO_PKG_VERSION"))));
    if dialect == Dialect::Anthropic {
        headers.insert(HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));
    }
    let Some(key) = key else { return Ok(headers) };
    let (name, value) = match dialect {
        Dialect::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
        Dialect::Gemini => (HeaderName::from_static("x-goog-api-key"), key.to_owned()),
        _ => (header::AUTHORIZATION, format!("Bearer {key}")),
    };
    let mut value = HeaderValue::try_from(value).map_err(|_| "the key has characters that no header may have")?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use http::{Method, Request};

    use super::*;
    use crate::dialect::{RequestScan, recognise};

    fn wish(fields: &Map<String, Value>) -> Wish<'_> {
        Wish { model: "m-1", prompt: "say \"hi\"", output_tokens: 7, new_maximum: false, fields }
    }

    #[test]
    fn each_request_is_recognised_as_what_it_is_and_says_its_model_and_stream() {
        for dialect in SPOKEN {
            let path = path(dialect, "m-1", "").unwrap();
            let (parts, ()) = Request::builder().method(Method::POST).uri(path).body(()).unwrap().into_parts();
            let recognised = recognise(&parts, Some(dialect));
            assert_eq!(recognised.dialect, dialect);
            let body = body(dialect, wish(&Map::new()));
            let mut scan = RequestScan::new(recognised, &parts);
            let facts = scan.read(&body).or_else(|| scan.finish()).unwrap();
            assert_eq!(facts.stream, Some(true), "{dialect:?}");
            let named = if dialect == Dialect::Tgi { None } else { Some("m-1") };
            assert_eq!(facts.model.as_deref(), named, "{dialect:?}");
            let text = String::from_utf8(body).unwrap();
            assert!(text.contains(r#"say \"hi\""#) && text.contains(":7"), "{text}");
        }
    }

    #[test]
    fn what_url_and_api_have_in_common_stands_once() {
        let chat = |base| path(Dialect::OpenAiChat, "m", base).unwrap().to_string();
        for base in ["", "/v1", "/v1/chat", "/v1/chat/completions"] {
            assert_eq!(chat(base), "/v1/chat/completions", "{base}");
        }
        assert_eq!(chat("/openai"), "/openai/v1/chat/completions");
        assert_eq!(chat("/api/paas/v4"), "/api/paas/v4/chat/completions");
        assert_eq!(chat("/api/v1"), "/api/v1/chat/completions");
        assert_eq!(chat("/nov1"), "/nov1/v1/chat/completions");
        let gemini = path(Dialect::Gemini, "models/gemini-x", "/v1beta").unwrap().to_string();
        assert_eq!(gemini, "/v1beta/models/gemini-x:streamGenerateContent?alt=sse");
        assert_eq!(path(Dialect::Gemini, "a b", ""), None);
    }

    #[test]
    fn path_and_host_tell_the_dialect() {
        assert_eq!(recognised("127.0.0.1", "/v1/messages"), Some(Dialect::Anthropic));
        assert_eq!(recognised("api.anthropic.com", ""), Some(Dialect::Anthropic));
        assert_eq!(recognised("generativelanguage.googleapis.com", ""), Some(Dialect::Gemini));
        assert_eq!(recognised("127.0.0.1", "/v1"), None);
        assert!(!is_home(Dialect::OpenAiChat, "notopenai.com") && is_home(Dialect::OpenAiChat, "api.openai.com"));
    }

    #[test]
    fn keys_go_where_each_api_has_them_and_are_never_shown() {
        for (dialect, name) in [
            (Dialect::OpenAiChat, "authorization"),
            (Dialect::Anthropic, "x-api-key"),
            (Dialect::Gemini, "x-goog-api-key"),
        ] {
            let headers = headers(dialect, Some("sk-secret")).unwrap();
            assert!(headers[name].to_str().unwrap().ends_with("sk-secret"));
            assert!(!format!("{headers:?}").contains("secret"));
        }
        assert!(!headers(Dialect::OpenAiChat, None).unwrap().contains_key("authorization"));
        assert!(headers(Dialect::OpenAiChat, Some("a\nb")).unwrap_err().contains("no header"));
    }

    #[test]
    fn further_fields_replace_those_of_the_same_name() {
        let fields = json!({"max_tokens": 9, "ignore_eos": true});
        let body = body(Dialect::OpenAiChat, wish(fields.as_object().unwrap()));
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["max_tokens"], &body["ignore_eos"]), (&json!(9), &json!(true)));
    }
}
