//! JSON by another reader (serde_json), as the oracle: each value as it is written, in the order it stands, repeated keys
//! too.

use std::fmt;

use serde_json::value::RawValue;
use streamgauge::framing::json::Value;

/// A part of the way to a value: an object's key, or any element of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    Key(String),
    Element,
}

/// One value of a document.
pub enum Plain<'a> {
    Text(String),
    /// Null, a boolean or a number.
    Scalar(&'a str),
    Object,
    Array,
}

/// Whether the document is valid, and an object or an array.
pub fn is_valid(document: &[u8]) -> bool {
    let first = document.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(first, Some(b'{' | b'[')) && serde_json::from_slice::<serde_json::Value>(document).is_ok()
}

/// Every value inside a valid document and the way to it, each before what it contains.
pub fn walk(document: &[u8], value: &mut impl FnMut(&[Step], Plain<'_>)) {
    let raw: &RawValue = serde_json::from_slice(document).expect("valid");
    inside(raw, &mut Vec::new(), value);
}

/// What is directly in an object, in its order. Absent of anything else.
pub fn fields(document: &[u8]) -> Option<Vec<(String, &RawValue)>> {
    serde_json::from_slice(document).ok().map(|Fields(fields)| fields)
}

/// How the project's scanner says it, so that it can be compared: a string that only was asked whether it is there is
/// known to be filled or not.
pub fn said(value: Value<'_>) -> String {
    match value {
        Value::Text(text) => format!("text {:?}", String::from_utf8_lossy(text)),
        Value::Number(text) => format!("scalar {}", String::from_utf8_lossy(text)),
        Value::Null => "scalar null".to_owned(),
        Value::Bool(value) => format!("scalar {value}"),
        other => format!("{other:?}"),
    }
}

fn inside(raw: &RawValue, way: &mut Vec<Step>, value: &mut impl FnMut(&[Step], Plain<'_>)) {
    let mut each = |step: Step, raw: &RawValue| {
        way.push(step);
        value(way, plain(raw));
        inside(raw, way, value);
        way.pop();
    };
    match raw.get().as_bytes().first() {
        Some(b'{') => {
            let Fields(fields) = serde_json::from_str(raw.get()).expect("valid");
            fields.into_iter().for_each(|(key, raw)| each(Step::Key(key), raw));
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(raw.get()).expect("valid");
            elements.into_iter().for_each(|raw| each(Step::Element, raw));
        }
        _ => {}
    }
}

/// What a value is, without what it contains.
pub fn plain(raw: &RawValue) -> Plain<'_> {
    match raw.get().as_bytes().first() {
        Some(b'{') => Plain::Object,
        Some(b'[') => Plain::Array,
        Some(b'"') => Plain::Text(serde_json::from_str(raw.get()).expect("valid")),
        _ => Plain::Scalar(raw.get()),
    }
}

struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Fields<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}
