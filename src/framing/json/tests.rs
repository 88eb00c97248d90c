use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;

const FIELDS: [(&str, u8, Want); 9] = [
    ("a", 1, Want::Value),
    ("a.b", 2, Want::Value),
    ("a.b[]", 3, Want::Value),
    ("c[]", 4, Want::Value),
    ("c[].a", 5, Want::Whether),
    ("c[][].b", 6, Want::Value),
    ("long_key_of_the_first_kind", 7, Want::Value),
    ("long_key_of_the_other_kind", 8, Want::Whether),
    ("d.e.f", 9, Want::Value),
];

/// Everything found, as text, and how far the document was read.
fn scan<'a>(fields: &[(&str, u8, Want)], pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, Progress) {
    let tree = Tree::new(fields.iter().copied());
    let mut scanner = Scanner::default();
    let mut found = Vec::new();
    for piece in pieces {
        scanner.read(&tree, piece, &mut |field, value| found.push(format!("{field} {}", text(value))));
    }
    (found, scanner.progress())
}

fn text(value: Value<'_>) -> String {
    match value {
        Value::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
        Value::Number(text) => String::from_utf8_lossy(text).into_owned(),
        other => format!("{other:?}"),
    }
}

#[track_caller]
fn assert_found(document: &str, found: &[&str], progress: Progress) {
    assert_eq!(scan(&FIELDS, [document.as_bytes()]), (owned(found), progress), "{document}");
    for cut in 0..=document.len() {
        let (head, tail) = document.as_bytes().split_at(cut);
        assert_eq!(scan(&FIELDS, [head, tail]), (owned(found), progress), "{document} cut at {cut}");
    }
    assert_eq!(scan(&FIELDS, document.as_bytes().chunks(1)), (owned(found), progress), "{document} by bytes");
}

fn owned(found: &[&str]) -> Vec<String> {
    found.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn asked_for_fields_are_found_and_no_others() {
    assert_found(r#"{"a":"x","b":"y","z":{"a":"no"}}"#, &["1 \"x\""], Progress::Closed);
    assert_found(r#"{"z":[{"a":1},"]}",[[]]],"a":-1.5e+3}"#, &["1 -1.5e+3"], Progress::Closed);
    assert_found(
        r#"{"a":{"b":true,"c":1}, "d":{"e":{"f":null}}}"#,
        &["1 Object", "2 Bool(true)", "9 Null"],
        Progress::Closed,
    );
    assert_found(
        r#"{"a":{"b":[1,"two",{},[]]}}"#,
        &["1 Object", "2 Array", "3 1", "3 \"two\"", "3 Object", "3 Array"],
        Progress::Closed,
    );
    assert_found(
        r#"{"c":[{"a":"x"},{"a":""},{"b":0,"a":null}]}"#,
        &["4 Object", "5 Filled", "4 Object", "5 \"\"", "4 Object", "5 Null"],
        Progress::Closed,
    );
    assert_found(r#"{"c":[[{"b":false}],[]]}"#, &["4 Array", "6 Bool(false)", "4 Array"], Progress::Closed);
    assert_found(
        r#"{"long_key_of_the_first_kind":1,"long_key_of_the_other_kind":"a","long_key_of_the_third_kind":2}"#,
        &["7 1", "8 Filled"],
        Progress::Closed,
    );
    assert_found("[1,2]", &[], Progress::Closed);
}

#[test]
fn white_space_and_escapes_change_nothing() {
    assert_found(
        " \r\n\t{ \"a\" : [ ] , \"d\" : { \"e\" : { \"f\" : 7 } } } \n",
        &["1 Array", "9 7"],
        Progress::Closed,
    );
    assert_found(
        r#"{"\u0061":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00|"}"#,
        &["1 \"\\\"\\\\/\\u{8}\\u{c}\\n\\r\\té😀|\""],
        Progress::Closed,
    );
    assert_found(
        r#"{"a":"\ud83d","z":"\\","y":"\\\"}","d":{"e":{"f":"\ud83dx\ud83d\n"}}}"#,
        &["1 \"\u{fffd}\"", "9 \"\u{fffd}x\u{fffd}\\n\""],
        Progress::Closed,
    );
    assert_found(r#"{"c":[{"a":"\u0000"}]}"#, &["4 Object", "5 Filled"], Progress::Closed);
}

#[test]
fn what_is_malformed_is_said_so() {
    for document in [
        "x",
        "1",
        "\"a\"",
        "{]",
        "[}",
        "{\"a\"1}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"c\":[1,]}",
        "{\"c\":[,1]}",
        "{\"a\":tru}",
        "{\"a\":nulls}",
        "{1:2}",
        "{\"a\":1}}",
        "{\"a\":1} x",
        "{\"z\":[}]}",
        "{\"a\":{\"b\":]}}",
        "{\"a\":\"\\ux\"}",
    ] {
        let (_, progress) = scan(&FIELDS, [document.as_bytes()]);
        assert_eq!(progress, Progress::Malformed, "{document}");
    }
    assert_found("{\"a\":nulls}", &[], Progress::Malformed);
    for document in ["{", "{\"a", "{\"a\":1", "[[]", "{\"z\":\"\\"] {
        assert_eq!(scan(&FIELDS, [document.as_bytes()]).1, Progress::Open, "{document}");
    }
    assert_eq!(scan(&FIELDS, [&b" \n"[..]]).1, Progress::Blank);
}

#[test]
fn values_are_bounded_and_so_is_nesting() {
    for (len, found) in
        [(VALUE_LIMIT, format!("1 {:?}", "x".repeat(VALUE_LIMIT))), (VALUE_LIMIT + 1, "1 TooLong".into())]
    {
        let document = format!("{{\"a\":\"{}\"}}", "x".repeat(len));
        assert_eq!(scan(&FIELDS, [document.as_bytes()]).0, std::slice::from_ref(&found));
        assert_eq!(scan(&FIELDS, document.as_bytes().chunks(1000)).0, [found]);
    }
    let number = format!("{{\"a\":{}}}", "1".repeat(VALUE_LIMIT + 1));
    for width in [1000, number.len()] {
        assert_eq!(scan(&FIELDS, number.as_bytes().chunks(width)).0, ["1 TooLong"]);
    }
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(scan(&FIELDS, [nested(64).as_bytes()]).1, Progress::Closed);
    assert_eq!(scan(&FIELDS, [nested(65).as_bytes()]).1, Progress::TooDeep);
}

#[test]
fn a_tree_knows_its_paths() {
    let mut paths = Tree::new(FIELDS).paths();
    paths.sort();
    let mut given = FIELDS.map(|(path, ..)| path);
    given.sort_unstable();
    assert_eq!(paths, given);
    assert_eq!(Tree::new([("[].a.b", 1, Want::Value), ("", 2, Want::Whether)]).paths(), ["", "[].a.b"]);
}

#[test]
fn what_nobody_holds_is_not_held() {
    let tree = Tree::new(FIELDS);
    let mut scanner = Scanner::default();
    for piece in format!("{{\"z\":\"{}\",\"a\":7}}", "x".repeat(2_000_000)).as_bytes().chunks(8192) {
        scanner.read(&tree, piece, &mut |_, _| {});
    }
    assert_eq!(scanner.progress(), Progress::Closed);
    assert!(scanner.held.capacity() <= 64);
}

/// What a full parse finds at the paths, in document order.
fn plainly(json: &Json, place: &str, found: &mut Vec<String>) {
    if let Some((_, field, want)) = FIELDS.iter().find(|(path, ..)| *path == place) {
        let value = match json {
            Json::Null => "Null".to_owned(),
            Json::Bool(value) => format!("Bool({value})"),
            Json::Number(number) => number.to_string(),
            Json::String(text) if *want == Want::Whether && !text.is_empty() => "Filled".to_owned(),
            Json::String(text) => format!("{text:?}"),
            Json::Array(_) => "Array".to_owned(),
            Json::Object(_) => "Object".to_owned(),
        };
        found.push(format!("{field} {value}"));
    }
    match json {
        Json::Array(elements) => elements.iter().for_each(|element| plainly(element, &format!("{place}[]"), found)),
        Json::Object(fields) => fields.iter().for_each(|(key, value)| {
            let dot = if place.is_empty() { "" } else { "." };
            plainly(value, &format!("{place}{dot}{key}"), found);
        }),
        _ => {}
    }
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any::<i64>().prop_map(Json::from),
        (-1e9..1e9_f64).prop_map(Json::from),
        any::<String>().prop_map(Json::String),
        "[a-z\"\\\\\n{}\\[\\]:,]{0,40}".prop_map(Json::String),
    ];
    let key = prop_oneof!["[a-f]", any::<String>(), Just("long_key_of_the_first_kind".to_owned())];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
            proptest::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_full_parse_finds_the_same(
        fields in proptest::collection::vec(("[a-f]", json()), 0..6),
        pretty in any::<bool>(),
        widths in proptest::collection::vec(1_usize..40, 1..5),
    ) {
        let document = Json::Object(fields.into_iter().collect());
        let written = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) }.unwrap();
        let mut expected = Vec::new();
        plainly(&document, "", &mut expected);
        prop_assert_eq!(scan(&FIELDS, [written.as_bytes()]), (expected.clone(), Progress::Closed));
        for width in widths {
            prop_assert_eq!(scan(&FIELDS, written.as_bytes().chunks(width)), (expected.clone(), Progress::Closed));
        }
    }

    #[test]
    fn nothing_makes_it_fail(bytes in proptest::collection::vec(prop_oneof![Just(b'"'), Just(b'\\'), Just(b'{'), Just(b'['), Just(b']'), Just(b'}'), Just(b','), Just(b':'), Just(b'a'), Just(b'1'), any::<u8>()], 0..200), cut in 0_usize..200) {
        let (head, tail) = bytes.split_at(cut.min(bytes.len()));
        prop_assert_eq!(scan(&FIELDS, [head, tail]), scan(&FIELDS, [&bytes[..]]));
    }
}
