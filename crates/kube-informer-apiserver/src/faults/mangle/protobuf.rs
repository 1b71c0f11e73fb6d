//! What becomes of protobuf: the same that becomes of JSON, in as many bytes, since a list says in front how long it is.

use bytes::Bytes;
use kube_wire::json::EventType;
use kube_wire::protobuf::{Kind, WatchEvent, begin_list, from_slice, from_value, write_item};
use serde_json::{Value, json};

use super::foreign_kind;
use crate::RequestInfo;
use crate::faults::fault::Fault;
use crate::faults::pieces::{Part, Piece};
use crate::kinds;
use crate::protobuf::{frame, varint};

/// The piece with what the fault makes of it.
pub(super) fn spoil(fault: &Fault, piece: &Piece, info: &RequestInfo) -> Option<Bytes> {
    match (fault, &piece.part) {
        (Fault::BadJson, _) => {
            let event = piece.bytes.get(4..)?;
            let half = &event[..event.len() / 2];
            Some([&(half.len() as u32).to_be_bytes(), half].concat().into())
        }
        (Fault::NoMetadata, _) => with_object(piece, info, |_, object| no_metadata(object)),
        (Fault::BadMetadata, _) => with_object(piece, info, |_, object| bad_metadata(object)),
        (Fault::BadBody, _) => with_object(piece, info, bad_body),
        (Fault::BadVersion, Part::ProtobufHead { meta, lengths }) => {
            let version = meta.resource_version.as_ref().map(ToString::to_string).unwrap_or_default();
            let mut meta = meta.clone();
            meta.resource_version = Some(format!("v{version}").into());
            let mut head = Vec::new();
            begin_list(&mut head, &meta, lengths.iter().copied());
            Some(head.into())
        }
        (Fault::BadVersion, Part::Event { .. }) => {
            let event = Event::parse(piece)?;
            let mut object = event.object()?;
            let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            object["metadata"]["resourceVersion"] = format!("v{version}").into();
            told(event.kind, &event.event.kind, &object)
        }
        _ => None,
    }
}

/// `MODIFIED` of a sibling that nobody has ever made.
pub(super) fn unknown_object(piece: &Piece) -> Option<Bytes> {
    let event = Event::parse(piece)?;
    let mut object = event.object()?;
    let metadata = &mut object["metadata"];
    let (name, uid) = (metadata["name"].as_str()?, metadata["uid"].as_str().unwrap_or_default());
    let (name, uid) = (format!("{name}-unknown"), format!("ffffffff{}", uid.get(8..).unwrap_or_default()));
    (metadata["name"], metadata["uid"]) = (name.into(), uid.into());
    told(event.kind, &EventType::Modified, &object)
}

/// `ADDED` of an object that has no business in this watch.
pub(super) fn other_kind(piece: &Piece, resource: &str) -> Option<Bytes> {
    let event = Event::parse(piece)?;
    let object = event.object()?;
    let metadata = &object["metadata"];
    let foreign = json!({
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"].as_str().unwrap_or("default"),
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
    });
    told(Kind::find("v1", foreign_kind(resource))?, &EventType::Added, &foreign)
}

/// An event of a kind that is known.
struct Event<'a> {
    event: WatchEvent<'a>,
    kind: Kind,
}

impl<'a> Event<'a> {
    fn parse(piece: &'a Piece) -> Option<Self> {
        let event = WatchEvent::parse(piece.bytes.get(4..)?).ok()?;
        let kind = Kind::find(event.object.api_version, event.object.kind)?;
        Some(Self { event, kind })
    }

    fn object(&self) -> Option<Value> {
        from_slice(self.kind, self.event.object.raw).ok()
    }
}

fn told(kind: Kind, event: &EventType, object: &Value) -> Option<Bytes> {
    Some(frame(kind, event, &from_value(kind, object).ok()?))
}

/// The piece with the bytes of its object changed.
fn with_object(
    piece: &Piece,
    info: &RequestInfo,
    change: impl FnOnce(Kind, &[u8]) -> Option<Vec<u8>>,
) -> Option<Bytes> {
    match piece.part {
        Part::Event { .. } => {
            let Event { event, kind } = Event::parse(piece)?;
            Some(frame(kind, &event.kind, &change(kind, event.object.raw)?))
        }
        Part::Item => {
            let kind = kinds::find_builtin(&info.group, &info.resource)?.wire?;
            let (length, size) = varint(piece.bytes.get(1..)?)?;
            let item = piece.bytes.get(1 + size..1 + size + length)?;
            let mut out = Vec::with_capacity(piece.bytes.len());
            write_item(&mut out, &change(kind, item)?);
            Some(out.into())
        }
        _ => None,
    }
}

/// Metadata that is no message: not even the key can be read.
fn no_metadata(object: &[u8]) -> Option<Vec<u8>> {
    let (start, end) = metadata(object)?;
    let mut object = object.to_vec();
    object[start..end].fill(0xff);
    Some(object)
}

/// `labels: 7`, in the place of the link to itself that every object has and nobody reads.
fn bad_metadata(object: &[u8]) -> Option<Vec<u8>> {
    const LABELS_ARE_SEVEN: [u8; 2] = [11 << 3, 7];
    let at = self_link(object)?;
    let mut object = object.to_vec();
    object[at..at + 2].copy_from_slice(&LABELS_ARE_SEVEN);
    Some(object)
}

/// `spec: 7`, or what the kind has in the place of its spec, behind everything else. The two bytes for it are taken from
/// the link to itself.
fn bad_body(kind: Kind, object: &[u8]) -> Option<Vec<u8>> {
    let ((start, end), at) = (metadata(object)?, self_link(object)?);
    let mut spoiled = vec![object[0]];
    put_padded(&mut spoiled, end - start - 2, start - 1);
    spoiled.extend_from_slice(&object[start..at]);
    spoiled.extend_from_slice(&object[at + 2..]);
    // A number where there should be bytes, or bytes where there should be a number: one of them is wrong.
    let wrong = (2..16).flat_map(|number: u8| [[number << 3, 7], [number << 3 | 2, 0]]);
    wrong
        .map(|field| [&spoiled[..], &field].concat())
        .find(|spoiled| from_slice::<Value>(kind, spoiled).is_err())
}

/// Where the metadata's message is. Every kind has it in field 1, which is written first.
fn metadata(object: &[u8]) -> Option<(usize, usize)> {
    let (&0x0a, rest) = object.split_first()? else { return None };
    let (length, size) = varint(rest)?;
    let start = 1 + size;
    (object.len() >= start + length).then_some((start, start + length))
}

/// Where the empty `selfLink` is: behind three texts.
fn self_link(object: &[u8]) -> Option<usize> {
    let (mut at, end) = metadata(object)?;
    while at + 2 <= end {
        match object[at] {
            0x22 => return (object[at + 1] == 0).then_some(at),
            0x0a | 0x12 | 0x1a => {
                let (length, size) = varint(&object[at + 1..end])?;
                at += 1 + size + length;
            }
            _ => return None,
        }
    }
    None
}

/// A number in this many bytes, which must be enough for it.
fn put_padded(out: &mut Vec<u8>, number: usize, size: usize) {
    for at in 0..size {
        let more = if at + 1 < size { 0x80 } else { 0 };
        out.push((number >> (7 * at)) as u8 & 0x7f | more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_wire::Metadata;
    use kube_wire::protobuf::from_json;

    fn objects() -> Vec<(Kind, Vec<u8>)> {
        let kinds = kinds::builtin().iter().filter_map(|kind| kind.wire);
        let objects = kinds.flat_map(|kind| {
            // Around the length at which the metadata's own length takes a byte more.
            (100..140).chain([300]).map(move |length| {
                let name = "n".repeat(length);
                let json = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"a":"b"}}}}}}"#);
                (kind, from_json(kind, json.as_bytes()).unwrap())
            })
        });
        objects.filter(|(_, bytes)| bytes.first() == Some(&0x0a)).collect()
    }

    #[test]
    fn spoiled_objects_are_as_long_as_before_and_as_bad_as_they_should_be() {
        for (kind, object) in objects() {
            let name = Metadata::from_protobuf(kind, &object).unwrap().name.into_owned();
            let none = no_metadata(&object).unwrap();
            assert!(Metadata::from_protobuf(kind, &none).is_err(), "{kind}");
            let bad = bad_metadata(&object).unwrap();
            assert!(Metadata::from_protobuf(kind, &bad).is_err(), "{kind}");
            assert_eq!(&bad[..name.len() + 5], &object[..name.len() + 5], "{kind}: the name is where it was");
            assert_eq!((none.len(), bad.len()), (object.len(), object.len()));
            let Some(body) = bad_body(kind, &object) else { panic!("{kind}: nothing to spoil") };
            assert_eq!(body.len(), object.len(), "{kind}");
            assert_eq!(Metadata::from_protobuf(kind, &body).unwrap().name, name, "{kind}");
            assert!(from_slice::<Value>(kind, &body).is_err(), "{kind}");
        }
    }

    #[test]
    fn what_is_no_object_stays_as_it_is() {
        let pod = Kind::find("v1", "Pod").unwrap();
        for object in [
            &b""[..],
            b"\x0a",
            b"\x0a\x05abc",
            b"\x12\x00",
            b"\x0a\x02\x0a\x09",
            b"\x0a\x02\x22\x01",
            &[0xff; 20],
        ] {
            assert_eq!(self_link(object), None, "{object:?}");
            assert_eq!(bad_metadata(object), None);
            assert_eq!(bad_body(pod, object), None);
        }
    }
}
