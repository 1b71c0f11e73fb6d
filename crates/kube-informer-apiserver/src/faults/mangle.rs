//! What a wrong server or proxy makes of one event or item: bytes in, bytes out.

mod json;
mod protobuf;

use bytes::Bytes;
use kube_wire::json::EventType;

use super::fault::Fault;
use super::pieces::{Part, Piece};
use crate::RequestInfo;
use crate::negotiate::Coding;

/// Whether the fault can befall this piece at all.
pub(crate) fn can_befall(fault: &Fault, part: &Part) -> bool {
    let event = match part {
        Part::Event { kind, .. } => Some(kind),
        _ => None,
    };
    let change = matches!(event, Some(EventType::Added | EventType::Modified | EventType::Deleted));
    match fault {
        Fault::CutFrame | Fault::TruncateFrame => !is_head(part),
        Fault::NoEndBookmark | Fault::TwoEndBookmarks => matches!(part, Part::Event { is_end: true, .. }),
        Fault::NoBookmarks => event == Some(&EventType::Bookmark),
        Fault::LostEvent
        | Fault::DuplicateEvent
        | Fault::UnknownObject
        | Fault::OtherKind
        | Fault::BadJson => change,
        Fault::NoMetadata | Fault::BadMetadata | Fault::BadBody => change || *part == Part::Item,
        Fault::BadVersion => change || event == Some(&EventType::Bookmark) || is_head(part),
        _ => false,
    }
}

/// What is sent in place of the piece. What cannot be mangled, such as an event that cannot be read, stays as it is.
pub(crate) fn mangle(fault: &Fault, piece: &Piece, info: &RequestInfo) -> Vec<Bytes> {
    let original = piece.bytes.clone();
    match (fault, piece.coding) {
        (Fault::NoEndBookmark | Fault::NoBookmarks | Fault::LostEvent, _) => Vec::new(),
        (Fault::TwoEndBookmarks | Fault::DuplicateEvent, _) => vec![original.clone(), original],
        (Fault::UnknownObject, Coding::Json) => and(original, json::unknown_object(piece)),
        (Fault::UnknownObject, Coding::Protobuf) => and(original, protobuf::unknown_object(piece)),
        (Fault::OtherKind, Coding::Json) => and(original, json::other_kind(piece, &info.resource)),
        (Fault::OtherKind, Coding::Protobuf) => and(original, protobuf::other_kind(piece, &info.resource)),
        (_, Coding::Json) => vec![json::spoil(fault, piece).unwrap_or(original)],
        (_, Coding::Protobuf) => vec![protobuf::spoil(fault, piece, info).unwrap_or(original)],
    }
}

fn and(original: Bytes, more: Option<Bytes>) -> Vec<Bytes> {
    [Some(original), more].into_iter().flatten().collect()
}

fn is_head(part: &Part) -> bool {
    matches!(part, Part::ListHead { .. } | Part::ProtobufHead { .. })
}

/// The kind of an object that has no business in a watch of this resource.
fn foreign_kind(resource: &str) -> &'static str {
    if resource == "configmaps" { "Secret" } else { "ConfigMap" }
}
