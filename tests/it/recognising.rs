//! A reply is read by the dialect that its request turned out to speak.

use streamgauge::{
    dialect::{Dialect, Endpoint},
    observation::{Observation, Outcome},
};

use crate::support::{LAST_CHUNK, Peer, SSE_HEAD, Sides, World, WorldOptions, chat_delta, chat_end, chunk};

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn tgi() -> String {
    let token =
        |text: &str| format!("data:{{\"index\":1,\"token\":{{\"id\":1,\"text\":\"{text}\",\"special\":false}}}}\n\n");
    let end = "data:{\"index\":2,\"token\":{\"id\":2,\"text\":\"c\"},\"generated_text\":\"abc\",\
               \"details\":{\"finish_reason\":\"length\",\"generated_tokens\":3}}\n\n";
    [token("a"), token("b"), end.to_owned()].concat()
}

fn chat() -> String {
    [chat_delta("a"), chat_delta("b"), chat_delta("c"), chat_end(7, 3)].concat()
}

/// One exchange whose answer is this stream.
async fn exchange(world: &mut World, client: &mut Peer, path: &str, body: &str, stream: &str) -> Observation {
    client.send(post(path, body)).await;
    let mut up = world.upstream().await;
    up.read_to(body).await;
    up.send([SSE_HEAD, &chunk(stream), LAST_CHUNK].concat()).await;
    client.read_to(LAST_CHUNK).await;
    drop(up);
    world.record().await
}

#[tokio::test(start_paused = true)]
async fn the_body_tells_where_the_path_does_not() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    for (path, body, stream, endpoint, dialect) in [
        ("/", r#"{"stream":true,"inputs":"x"}"#, tgi(), Endpoint::Generate, Dialect::Tgi),
        ("/generate", r#"{"stream":true,"inputs":"x"}"#, tgi(), Endpoint::Generate, Dialect::Tgi),
        ("/v1/chat", r#"{"stream":true,"model":"m","messages":[]}"#, chat(), Endpoint::Chat, Dialect::OpenAiChat),
    ] {
        let record = exchange(&mut world, &mut client, path, body, &stream).await;
        assert_eq!((record.endpoint, record.dialect), (endpoint, dialect), "{path}");
        assert_eq!((record.output_events, record.output_tokens()), (3, Some(3)), "{path}");
        assert_eq!(record.outcome, Outcome::Complete, "{path}");
    }
    let record = exchange(&mut world, &mut client, "/", r#"{"stream":true}"#, &chat()).await;
    assert_eq!((record.endpoint, record.dialect), (Endpoint::Other, Dialect::Other));
    assert_eq!((record.output_events, record.outcome), (0, Outcome::Complete));
}

#[tokio::test(start_paused = true)]
async fn a_form_names_the_model_behind_its_file() {
    let mut world = World::new(WorldOptions::default());
    let file = "\r\n--wav ".repeat(40_000);
    let body = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n{file}\r\n\
         --b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--b--\r\n"
    );
    let request = format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Type: multipart/form-data; boundary=b\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{\"text\":\"Hi\"}";
    let record = world.relay(Sides::same(&request), Sides::same(answer)).await;
    assert_eq!((record.model.as_deref(), record.endpoint), (Some("whisper-1"), Endpoint::Audio));
    assert_eq!((record.outcome, record.request_bytes), (Outcome::Complete, body.len() as u64));
}

#[tokio::test(start_paused = true)]
async fn the_provider_tells_where_path_and_body_do_not() {
    let mut world = World::new(WorldOptions {
        upstream: |upstream| upstream.provider = Some(Dialect::OpenAiChat),
        ..WorldOptions::default()
    });
    let mut client = world.client();
    for path in ["/", "/invocations", "/chat", "/v1/chat"] {
        let record = exchange(&mut world, &mut client, path, r#"{"model":"m","stream":true}"#, &chat()).await;
        assert_eq!((record.endpoint, record.dialect), (Endpoint::Chat, Dialect::OpenAiChat), "{path}");
        assert_eq!((record.model.as_deref(), record.output_tokens()), (Some("m"), Some(3)), "{path}");
    }
    let known = exchange(&mut world, &mut client, "/v1/messages", "{}", "data: {}\n\n").await;
    assert_eq!((known.endpoint, known.dialect), (Endpoint::Messages, Dialect::Anthropic));
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_the_record_has_what_the_body_showed() {
    let mut world = World::new(WorldOptions::default());
    world.refuse();
    let mut client = world.client();
    client.send(post("/", r#"{"inputs":"x"}"#)).await;
    assert!(client.head().await.starts_with("HTTP/1.1 502 "));
    let record = world.record().await;
    assert_eq!(record.outcome, Outcome::Unreachable);
    // Nobody polled the body: what it would have shown is not known.
    assert_eq!((record.endpoint, record.dialect), (Endpoint::Other, Dialect::Other));

    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    client.send(post("/", r#"{"inputs":"x"}"#)).await;
    world.upstream().await.read_to("}").await;
    assert!(client.head().await.starts_with("HTTP/1.1 502 "));
    let record = world.record().await;
    assert_eq!((record.endpoint, record.dialect), (Endpoint::Generate, Dialect::Tgi));
    assert_eq!(record.outcome, Outcome::UpstreamReset);
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_after_the_answer_has_begun_changes_nothing() {
    let mut world = World::new(WorldOptions::default());
    let mut client = world.client();
    let request = post("/", r#"{"inputs":"x"}"#);
    client.send(&request[..request.len() - 1]).await;
    let mut up = world.upstream().await;
    up.read_to("\"x\"").await;
    up.send(SSE_HEAD).await;
    client.head().await;
    client.send("}").await;
    up.read_to("}").await;
    up.send([chunk(&tgi()).as_str(), LAST_CHUNK].concat()).await;
    client.read_to(LAST_CHUNK).await;
    let record = world.record().await;
    assert_eq!((record.endpoint, record.dialect), (Endpoint::Other, Dialect::Other));
    assert_eq!((record.outcome, record.flags.early_response), (Outcome::Complete, true));
}
