//! What becomes of JSON: one member is changed, all others stay byte for byte as they were.

use bytes::Bytes;
use serde_json::json;

use super::foreign_kind;
use crate::faults::fault::Fault;
use crate::faults::pieces::{Part, Piece};
use crate::faults::raw::RawObject;

/// The piece with what the fault makes of it.
pub(super) fn spoil(fault: &Fault, piece: &Piece) -> Option<Bytes> {
    match fault {
        Fault::BadJson => {
            let mut half = piece.bytes[..piece.bytes.len() / 2].to_vec();
            half.push(b'\n');
            Some(half.into())
        }
        Fault::NoMetadata => with_object(piece, |object| object.set("metadata", &7)),
        Fault::BadMetadata => {
            with_object(piece, |object| with_metadata(object, |meta| meta.set("labels", &7)))
        }
        Fault::BadBody => with_object(piece, spoil_body),
        Fault::BadVersion => bad_version(piece),
        _ => None,
    }
}

/// `MODIFIED` of a sibling that nobody has ever made.
pub(super) fn unknown_object(piece: &Piece) -> Option<Bytes> {
    change_event(&piece.bytes, |event| {
        let Some(mut object) = event.object("object") else { return };
        with_metadata(&mut object, |metadata| {
            let name = metadata.text("name").unwrap_or_default();
            metadata.set("name", &format!("{name}-unknown"));
            let uid = metadata.text("uid").unwrap_or_default();
            metadata.set("uid", &format!("ffffffff{}", uid.get(8..).unwrap_or_default()));
        });
        event.set("type", &"MODIFIED");
        event.set("object", &object);
    })
}

/// `ADDED` of an object that has no business in this watch.
pub(super) fn other_kind(piece: &Piece, resource: &str) -> Option<Bytes> {
    let metadata = RawObject::parse(&piece.bytes)?.object("object")?.object("metadata")?;
    let line = json!({
        "type": "ADDED",
        "object": {
            "kind": foreign_kind(resource),
            "apiVersion": "v1",
            "metadata": {
                "name": metadata.text("name")?,
                "namespace": metadata.text("namespace").unwrap_or_else(|| "default".into()),
                "uid": metadata.text("uid"),
                "resourceVersion": metadata.text("resourceVersion"),
            },
        },
    });
    Some(format!("{line}\n").into())
}

/// The piece with its object changed.
fn with_object(piece: &Piece, change: impl FnOnce(&mut RawObject)) -> Option<Bytes> {
    match piece.part {
        Part::Event { .. } => change_event(&piece.bytes, |event| {
            if let Some(mut object) = event.object("object") {
                change(&mut object);
                event.set("object", &object);
            }
        }),
        Part::Item => {
            let start = piece.bytes.iter().position(|&byte| byte == b'{')?;
            let (comma, item) = piece.bytes.split_at(start);
            let mut object = RawObject::parse(item)?;
            change(&mut object);
            Some([comma, object.to_json().as_bytes()].concat().into())
        }
        _ => None,
    }
}

fn change_event(line: &[u8], change: impl FnOnce(&mut RawObject)) -> Option<Bytes> {
    let mut event = RawObject::parse(line)?;
    change(&mut event);
    Some(format!("{}\n", event.to_json()).into())
}

fn with_metadata(object: &mut RawObject, change: impl FnOnce(&mut RawObject)) {
    if let Some(mut metadata) = object.object("metadata") {
        change(&mut metadata);
        object.set("metadata", &metadata);
    }
}

/// Gives `spec`, or what the kind has in its place, a value of the wrong type.
fn spoil_body(object: &mut RawObject) {
    let is_body = |name: &&str| !matches!(*name, "kind" | "apiVersion" | "metadata");
    let field = ["spec", "data"].into_iter().find(|name| object.get(name).is_some());
    let field = field.or_else(|| object.names().find(is_body)).unwrap_or("spec").to_owned();
    let is_number =
        object.get(&field).is_some_and(|value| value.get().starts_with(|c: char| c.is_ascii_digit()));
    if is_number { object.set(&field, &"seven") } else { object.set(&field, &7) }
}

fn bad_version(piece: &Piece) -> Option<Bytes> {
    let spoil = |metadata: &mut RawObject| {
        let version = metadata.text("resourceVersion").unwrap_or_default();
        metadata.set("resourceVersion", &format!("v{version}"));
    };
    match &piece.part {
        Part::ListHead { metadata } => {
            let mut object = RawObject::parse(&piece.bytes[metadata.clone()])?;
            spoil(&mut object);
            let (before, after) = (&piece.bytes[..metadata.start], &piece.bytes[metadata.end..]);
            Some([before, object.to_json().as_bytes(), after].concat().into())
        }
        _ => with_object(piece, |object| with_metadata(object, spoil)),
    }
}

#[cfg(test)]
mod tests {
    use kube_wire::json::EventType;

    use super::*;
    use crate::RequestInfo;
    use crate::faults::mangle::{can_befall, mangle};
    use crate::negotiate::Coding;

    const POD: &str = r#"{"kind":"Pod","metadata":{"name":"a","namespace":"n","uid":"12345678-9","resourceVersion":"4"},"spec":{"x":1}}"#;

    fn pods() -> RequestInfo {
        RequestInfo { resource: "pods".to_owned(), ..RequestInfo::default() }
    }

    fn event(fault: Fault, kind: &EventType) -> String {
        let bytes = format!("{{\"type\":\"{kind}\",\"object\":{POD}}}\n").into();
        let piece = Piece { bytes, part: Part::Unread, coding: Coding::Json }.classify();
        assert!(can_befall(&fault, &piece.part), "{fault}");
        let sent: Vec<u8> = mangle(&fault, &piece, &pods()).concat();
        String::from_utf8(sent).unwrap()
    }

    #[test]
    fn one_field_goes_wrong_and_the_rest_stays() {
        for kind in &[EventType::Added, EventType::Modified, EventType::Deleted] {
            let whole = format!("{{\"type\":\"{kind}\",\"object\":{POD}}}\n");
            assert_eq!(event(Fault::BadBody, kind), whole.replace(r#"{"x":1}"#, "7"));
            assert_eq!(event(Fault::BadVersion, kind), whole.replace(r#""4""#, r#""v4""#));
            assert_eq!(event(Fault::BadMetadata, kind), whole.replace(r#""4"}"#, r#""4","labels":7}"#));
            assert!(event(Fault::NoMetadata, kind).contains(r#""metadata":7,"spec""#));
            assert_eq!(event(Fault::BadJson, kind), format!("{}\n", &whole[..whole.len() / 2]));
        }
    }

    #[test]
    fn an_item_keeps_its_comma() {
        let piece = Piece { bytes: format!(", {POD}").into(), part: Part::Item, coding: Coding::Json };
        let sent = mangle(&Fault::BadBody, &piece, &pods()).concat();
        assert_eq!(sent, format!(", {}", POD.replace(r#"{"x":1}"#, "7")).into_bytes());
    }

    #[test]
    fn events_that_are_made_up_come_after_the_real_one() {
        let unknown = event(Fault::UnknownObject, &EventType::Added);
        let lines: Vec<&str> = unknown.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains(r#""ADDED""#) && lines[0].contains(r#""name":"a""#));
        assert!(lines[1].contains(r#""MODIFIED""#) && lines[1].contains(r#""name":"a-unknown""#));
        assert!(lines[1].contains(r#""uid":"ffffffff-9""#));
        assert!(
            event(Fault::OtherKind, &EventType::Deleted)
                .lines()
                .nth(1)
                .unwrap()
                .contains(r#""kind":"ConfigMap""#)
        );
    }

    #[test]
    fn a_number_is_spoiled_by_a_word() {
        let mut object = RawObject::parse(br#"{"kind":"PriorityClass","value":3}"#).unwrap();
        spoil_body(&mut object);
        assert_eq!(object.to_json(), r#"{"kind":"PriorityClass","value":"seven"}"#);
    }
}
