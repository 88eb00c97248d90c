//! What a monitoring system would see: one scrape of `/metrics` by HTTP, and quantiles read from its buckets.
//!
//! Shares no code with the encoder on purpose: the demo shows what is published, not what the program knows.

use std::{collections::BTreeMap, io, net::SocketAddr};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::figures::rank;

/// One scrape, read.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Exposition {
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// Labels a sample must have to be meant; it may have others.
pub(super) type Matching<'a> = &'a [(&'a str, &'a str)];

/// Gets and reads `/metrics`.
///
/// # Errors
/// If nothing answers there, or what answers is not the text exposition.
pub(super) async fn scrape(address: SocketAddr) -> io::Result<Exposition> {
    let stream = TcpStream::connect(address).await?;
    let (mut send, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends when `send` and the response are dropped.
    tokio::spawn(connection);
    let request = Request::get("/metrics").header(header::HOST, address.to_string());
    let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
    let response = send.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    if status != StatusCode::OK {
        return Err(io::Error::other(format!("{address}/metrics answered {status}")));
    }
    Exposition::parse(&String::from_utf8_lossy(&body))
}

impl Exposition {
    /// Reads the text format.
    ///
    /// # Errors
    /// Names the first line that can't be read.
    pub(super) fn parse(text: &str) -> io::Result<Self> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let sample = |line| Sample::parse(line).ok_or_else(|| io::Error::other(format!("not a sample: {line}")));
        Ok(Self { samples: lines.map(sample).collect::<io::Result<_>>()? })
    }

    /// The sum of all samples with these labels; 0 without any.
    pub(super) fn sum(&self, name: &str, matching: Matching<'_>) -> u64 {
        whole(self.find(name, matching).map(|sample| sample.value).sum())
    }

    /// The sums by the value of `label`, of samples with these labels.
    pub(super) fn sums_by<'a>(&'a self, name: &str, label: &str, matching: Matching<'_>) -> BTreeMap<&'a str, u64> {
        let mut sums = BTreeMap::new();
        for sample in self.find(name, matching) {
            *sums.entry(sample.label(label).unwrap_or_default()).or_default() += whole(sample.value);
        }
        sums
    }

    /// Every (upstream, model) that has samples of this name, in order.
    pub(super) fn pairs(&self, name: &str) -> Vec<(&str, &str)> {
        let mut pairs: Vec<_> = self
            .find(name, &[])
            .filter_map(|sample| Some((sample.label("upstream")?, sample.label("model")?)))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    /// The buckets of all histograms with these labels, added up.
    pub(super) fn histogram(&self, name: &str, matching: Matching<'_>) -> Buckets {
        let mut buckets: Vec<(f64, u64)> = Vec::new();
        for sample in self.find(&format!("{name}_bucket"), matching) {
            let Some(upto) = sample.label("le").and_then(|le| le.parse::<f64>().ok()) else { continue };
            match buckets.iter_mut().find(|(bound, _)| *bound == upto) {
                Some((_, count)) => *count += whole(sample.value),
                None => buckets.push((upto, whole(sample.value))),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        Buckets(buckets)
    }

    fn find<'a>(&'a self, name: &str, matching: Matching<'_>) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            sample.name == name && matching.iter().all(|(label, value)| sample.label(label) == Some(value))
        })
    }
}

impl Sample {
    /// `name{label="value",…} number`, the labels optional; a time stamp after it is not read.
    fn parse(line: &str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(inner) = rest.strip_prefix('{') {
            rest = inner;
            while !rest.starts_with('}') {
                let (label, quoted) = rest.split_once("=\"")?;
                let (value, after) = unquote(quoted)?;
                labels.push((label.to_owned(), value));
                rest = after.strip_prefix(',').unwrap_or(after);
            }
            rest = &rest[1..];
        }
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Self { name: name.to_owned(), labels, value })
    }

    fn label(&self, label: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == label).map(|(_, value)| value.as_str())
    }
}

/// A label's value up to its closing quote, and what follows.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

/// Counts are whole and, at the demo's size, exact as a float.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; counts are not negative")]
fn whole(value: f64) -> u64 {
    value as u64
}

/// A histogram: upper bounds, rising, each with the number of values at or below it. The last bound is infinite.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Buckets(Vec<(f64, u64)>);

/// What buckets tell of a quantile: the value lies above `above` and at or below `upto`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Quantile {
    /// The lower bound of the bucket; 0 for the first.
    pub(super) above: f64,
    /// Its upper bound; infinite for the last.
    pub(super) upto: f64,
    /// The value if those in the bucket lie evenly in it; of the last bucket its lower bound.
    pub(super) value: f64,
}

impl Buckets {
    /// How many values there are.
    pub(super) fn count(&self) -> u64 {
        self.0.last().map_or(0, |(_, count)| *count)
    }

    /// The value of nearest rank; absent without values.
    pub(super) fn quantile(&self, q: f64) -> Option<Quantile> {
        let rank = rank(q, self.count())?;
        let index = self.0.iter().position(|(_, count)| *count >= rank)?;
        let (above, before) = index.checked_sub(1).and_then(|index| self.0.get(index)).copied().unwrap_or((0.0, 0));
        let (upto, count) = self.0.get(index).copied()?;
        let value = if upto.is_finite() {
            // The middle of the rank's share of the bucket: a lone value stands in the bucket's middle.
            above + (upto - above) * ((rank - before) as f64 - 0.5) / (count - before) as f64
        } else {
            above
        };
        Some(Quantile { above, upto, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP wait_seconds A wait.
# TYPE wait_seconds histogram
wait_seconds_bucket{upstream="a",model="m",le="0.1"} 2
wait_seconds_bucket{upstream="a",model="m",le="0.5"} 4
wait_seconds_bucket{upstream="a",model="m",le="+Inf"} 5
wait_seconds_sum{upstream="a",model="m"} 9
wait_seconds_count{upstream="a",model="m"} 5
wait_seconds_bucket{upstream="b",model="m",le="0.1"} 0
wait_seconds_bucket{upstream="b",model="m",le="0.5"} 5
wait_seconds_bucket{upstream="b",model="m",le="+Inf"} 5

done_total{upstream="b",model="q\"uo\\te, {x}",outcome="ok"} 3 1700000000
done_total{upstream="a",model="m",outcome="ok"} 1
done_total{upstream="a",model="m",outcome="cut"} 2
up 1
"#;

    #[test]
    fn samples_are_found_and_added_up() {
        let exposition = Exposition::parse(TEXT).unwrap();
        assert_eq!(exposition.sum("up", &[]), 1);
        assert_eq!(exposition.sum("done_total", &[]), 6);
        assert_eq!(exposition.sum("done_total", &[("model", "q\"uo\\te, {x}")]), 3);
        assert_eq!(exposition.sum("absent", &[]), 0);
        let by = exposition.sums_by("done_total", "outcome", &[("upstream", "a")]);
        assert_eq!(by.into_iter().collect::<Vec<_>>(), [("cut", 2), ("ok", 1)]);
        assert_eq!(exposition.pairs("done_total"), [("a", "m"), ("b", "q\"uo\\te, {x}")]);
    }

    #[test]
    fn what_is_no_exposition_is_refused() {
        for text in ["<html>", "a{b=\"c} 1", "a{b} 1", "a x", "a{b=\"c\"}"] {
            assert!(Exposition::parse(text).is_err(), "{text}");
        }
        assert_eq!(Exposition::parse("").unwrap(), Exposition::default());
    }

    #[test]
    fn a_quantile_lies_in_the_bucket_of_its_rank() {
        let exposition = Exposition::parse(TEXT).unwrap();
        let a = exposition.histogram("wait_seconds", &[("upstream", "a")]);
        // Ranks 3 of 5: the first of two in its bucket, a quarter into it.
        assert_eq!(a.quantile(0.5), Some(Quantile { above: 0.1, upto: 0.5, value: 0.2 }));
        assert_eq!(a.quantile(0.0).unwrap().value, 0.025);
        assert_eq!(a.quantile(0.99), Some(Quantile { above: 0.5, upto: f64::INFINITY, value: 0.5 }));
        let both = exposition.histogram("wait_seconds", &[]);
        assert_eq!((both.count(), both.quantile(0.9).unwrap().upto), (10, 0.5));
        assert_eq!(exposition.histogram("absent", &[]).quantile(0.5), None);
    }
}
