//! A provider that answers as a closure says, one request per connection, and keeps what it was asked.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use serde_json::Value;

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Its first line.
    pub(crate) line: String,
    /// Its headers, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(had, _)| had == name).map(|(_, value)| value.as_str())
    }
}

/// Listens until the test ends.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Provider {
    /// Answers each request with status, content type and body.
    pub(crate) fn new(answer: impl Fn(&Asked) -> (u16, &'static str, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, kept) = (Arc::new(answer), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, kept) = (Arc::clone(&answer), Arc::clone(&kept));
                std::thread::spawn(move || serve(stream.unwrap(), &*answer, &kept));
            }
        });
        Self { address, asked }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, answer: &impl Fn(&Asked) -> (u16, &'static str, String), kept: &Mutex<Vec<Asked>>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    // A connection that was only opened ends without a request.
    while reader.read_line(&mut line).unwrap_or(0) > 0 {
        let mut headers = Vec::new();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).unwrap();
            let Some((name, value)) = header.trim_end().split_once(": ") else { break };
            headers.push((name.to_lowercase(), value.to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name == "content-length").unwrap().1.parse().unwrap();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let asked = Asked { line: line.trim_end().to_owned(), headers, body: serde_json::from_slice(&body).unwrap() };
        let (status, kind, body) = answer(&asked);
        kept.lock().unwrap().push(asked);
        let length = body.len();
        let head = format!("HTTP/1.1 {status} Said\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
        reader.get_mut().write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
        line.clear();
    }
}

/// A chat answer of two tokens with these counts.
pub(crate) fn chat(input: u64, output: u64) -> String {
    let chunk = |text: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
        )
    };
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let usage = format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{input},\"completion_tokens\":{output},\"total_tokens\":{}}}}}\n\n",
        input + output
    );
    [&chunk("one"), &chunk("two"), end, &usage, "data: [DONE]\n\n"].concat()
}
