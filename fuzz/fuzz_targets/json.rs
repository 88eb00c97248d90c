//! The JSON scanner: every split finds the same, in a valid document what another reader finds, and what is held is
//! bounded.
#![no_main]

use std::sync::LazyLock;

use fuzz::{
    Input, alike, bodies, bounded, fixtures,
    json::{Plain, Step, is_valid, said, walk},
    seed,
};
use libfuzzer_sys::fuzz_target;
use streamgauge::framing::json::{Progress, Scanner, Tree, VALUE_LIMIT, Want};

/// Names that the fixtures have, and short ones that are soon found by chance.
const FIELDS: [(&str, u8, Want); 17] = [
    ("a", 1, Want::Value),
    ("a.b", 2, Want::Count),
    ("a.b[]", 3, Want::Value),
    ("c[]", 4, Want::Value),
    ("c[].a", 5, Want::Whether),
    ("c[][].b", 6, Want::Value),
    ("[].a", 7, Want::Value),
    ("long_key_of_the_first_kind", 8, Want::Value),
    ("long_key_of_the_other_kind", 9, Want::Whether),
    ("model", 10, Want::Value),
    ("choices[]", 11, Want::Whether),
    ("choices[].delta.content", 12, Want::Whether),
    ("choices[].finish_reason", 13, Want::Value),
    ("usage.completion_tokens", 14, Want::Count),
    ("delta.text", 15, Want::Value),
    ("error", 16, Want::Value),
    ("error.type", 17, Want::Value),
];

/// Of a value that is held: its bytes, doubled as they grow, and both while they are moved.
const HELD: usize = 4 * VALUE_LIMIT;

static TREE: LazyLock<Tree> = LazyLock::new(|| Tree::new(FIELDS));

fuzz_target!(init: seed(seeds), |bytes: &[u8]| {
    let Some(input) = Input::of(bytes) else { return };
    let (found, progress) = alike(&input, input.body, |pieces| {
        let (mut scanner, mut found) = (Scanner::default(), Vec::new());
        for piece in pieces {
            scanner.read(&TREE, piece, &mut |field, value| found.push((field, said(value))));
            scanner.free().into_iter().flatten().for_each(|free| assert!(free.start <= free.end));
        }
        (found, scanner.progress())
    });
    bounded(HELD, || {
        let mut scanner = Scanner::default();
        input.pieces(input.body).for_each(|piece| scanner.read(&TREE, piece, &mut |_, _| ()));
    });
    if progress != Progress::TooDeep && is_valid(input.body) {
        assert_eq!(progress, Progress::Closed);
        assert_eq!(found, plainly(input.body), "{:?}", input.body.escape_ascii());
    }
});

/// What another reader finds.
fn plainly(document: &[u8]) -> Vec<(u8, String)> {
    static WAYS: LazyLock<Vec<Vec<Step>>> = LazyLock::new(|| FIELDS.map(|(path, ..)| way(path)).to_vec());
    let mut found = Vec::new();
    walk(document, &mut |at, value| {
        let Some(place) = WAYS.iter().position(|way| way == at) else { return };
        let (_, field, want) = FIELDS[place];
        found.push((
            field,
            match value {
                Plain::Text(text) if want == Want::Whether && !text.is_empty() => "Filled".to_owned(),
                Plain::Text(text) if text.len() > VALUE_LIMIT => "TooLong".to_owned(),
                Plain::Text(text) => format!("text {text:?}"),
                Plain::Scalar(text) if text.len() > VALUE_LIMIT => "TooLong".to_owned(),
                Plain::Scalar(text) => format!("scalar {text}"),
                Plain::Object => "Object".to_owned(),
                Plain::Array => "Array".to_owned(),
            },
        ));
    });
    found
}

fn way(path: &str) -> Vec<Step> {
    let step = |part: &str| {
        let key = part.trim_end_matches("[]");
        let elements = vec![Step::Element; (part.len() - key.len()) / 2];
        let key = (!key.is_empty()).then(|| Step::Key(key.to_owned()));
        key.into_iter().chain(elements).collect::<Vec<_>>()
    };
    path.split('.').flat_map(step).collect()
}

fn seeds() -> Vec<Vec<u8>> {
    let documents = fixtures().into_iter().filter(|fixture| matches!(&*fixture.framing, "json" | "array"));
    let mut documents: Vec<_> = documents.map(|fixture| fixture.body).collect();
    let lines = [bodies("sse"), bodies("ndjson")].concat().concat();
    let lines = lines.split(|&byte| byte == b'\n').map(|line| line.strip_prefix(b"data: ").unwrap_or(line).to_vec());
    documents.extend(lines.filter(|line| line.starts_with(b"{")).step_by(3));
    documents.push(br#"{"a":{"b":[1,"two",{},[]]},"c":[[{"b":"\u00e9\ud83d\ude00\n"}],{"a":"x"}]}"#.to_vec());
    documents.push(br#"[{"a":null},{"long_key_of_the_first_kind":-1.5e+3}]"#.to_vec());
    documents.push(br#"{"long_key_of_the_\u0066irst_kind":"","long_key_of_the_other_kind":"\\"}"#.to_vec());
    documents.iter().map(|document| Input::bytes([0; 4], document)).collect()
}
