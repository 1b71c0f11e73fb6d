//! Objects: as JSON while they are written, in `stored` as encoded bytes once they are, in `form` as clients see them.

mod form;
mod stored;

use bytes::Bytes;
use serde_json::{Map, Value};

pub(crate) use form::{EventType, Form};
pub(crate) use stored::Stored;

/// An object while it is written.
pub(crate) type Object = Map<String, Value>;

/// `{"kind":"Pod","apiVersion":"v1",`
pub(crate) fn opening(kind: &str, api_version: &str) -> Bytes {
    format!("{{\"kind\":{},\"apiVersion\":{},", Value::from(kind), Value::from(api_version)).into()
}

/// The metadata of an object.
pub(crate) fn meta(object: &Object) -> Option<&Object> {
    object.get("metadata").and_then(|metadata| metadata.as_object())
}

/// The metadata of an object, made if there is none.
pub(crate) fn meta_mut(object: &mut Object) -> &mut Object {
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().expect("just made")
}

/// A text of a map, `""` if there is none.
pub(crate) fn text<'a>(map: &'a Object, name: &str) -> &'a str {
    map.get(name).and_then(|value| value.as_str()).unwrap_or("")
}

/// A text at a path, `""` if there is none.
pub(crate) fn text_at<'a>(object: &'a Object, path: &[&str]) -> &'a str {
    at(object, path).and_then(|value| value.as_str()).unwrap_or("")
}

/// The value at a path.
pub(crate) fn at<'a>(object: &'a Object, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(object.get(*first)?, |value, name| value.get(name))
}

/// Whether a value is nested no deeper than this.
pub(crate) fn is_shallow(value: &Value, levels: usize) -> bool {
    match (value, levels) {
        (Value::Array(_) | Value::Object(_), 0) => false,
        (Value::Array(list), _) => list.iter().all(|value| is_shallow(value, levels - 1)),
        (Value::Object(map), _) => map.values().all(|value| is_shallow(value, levels - 1)),
        _ => true,
    }
}

/// The finalizers of an object's metadata.
pub(crate) fn finalizers(metadata: &Object) -> Vec<&str> {
    metadata
        .get("finalizers")
        .and_then(|list| list.as_array())
        .map(|list| list.iter().filter_map(|value| value.as_str()).collect())
        .unwrap_or_default()
}

/// A uid as a number: every uid this server gives is one.
pub(crate) fn uid_of(value: Option<&Value>) -> Option<u128> {
    let hex: String = value?.as_str()?.chars().filter(|&c| c != '-').collect();
    u128::from_str_radix(&hex, 16).ok()
}
