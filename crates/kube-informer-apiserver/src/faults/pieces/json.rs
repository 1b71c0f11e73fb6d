//! Pieces of JSON: a line for each event, items between commas.

use bytes::Bytes;
use kube_wire::Metadata;
use kube_wire::json::WatchEvent;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Part, Piece, event};
use crate::negotiate::Coding;

/// Where the first line ends, if it does.
pub(super) fn event_end(buffer: &[u8]) -> Option<usize> {
    buffer.iter().position(|&byte| byte == b'\n').map(|end| end + 1)
}

pub(super) fn read_event(line: &[u8]) -> Option<Part> {
    let WatchEvent { kind, object } = WatchEvent::parse(line).ok()?;
    Some(event(kind, Metadata::from_json(object)))
}

/// The head, each item, and the tail; in one piece if it is not a list with metadata before its items.
pub(super) fn split_list(body: &Bytes) -> Vec<Piece> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    let piece = |bytes, part| Piece { bytes, part, coding: Coding::Json };
    let in_one = || vec![piece(body.clone(), Part::Opaque)];
    let Ok(list) = serde_json::from_slice::<List<'_>>(body) else { return in_one() };
    // The values borrow from the body, so their places in it are known.
    let place = |value: &RawValue| {
        let start = value.get().as_ptr() as usize - body.as_ptr() as usize;
        start..start + value.get().len()
    };
    let metadata = place(list.metadata);
    let head_end = list.items.first().map_or(body.len(), |item| place(item).start);
    if metadata.end > head_end {
        return in_one();
    }
    let mut pieces = vec![piece(body.slice(..head_end), Part::ListHead { metadata })];
    let mut end = head_end;
    for item in list.items {
        let item = place(item);
        pieces.push(piece(body.slice(end..item.end), Part::Item));
        end = item.end;
    }
    if end < body.len() {
        pieces.push(piece(body.slice(end..), Part::Opaque));
    }
    pieces
}
