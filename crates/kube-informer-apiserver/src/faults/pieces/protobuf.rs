//! Pieces of protobuf: a frame for each event, items with their lengths in front.

use bytes::Bytes;
use kube_wire::protobuf::{Kind, ListSplitter, WatchEvent, begin_list, end_list, write_item};
use kube_wire::{Metadata, WireError};

use super::{Part, Piece, event};
use crate::negotiate::Coding;

/// Where the first frame ends, be it there or not; none before its length has come.
pub(super) fn event_end(buffer: &[u8]) -> Option<usize> {
    let length = u32::from_be_bytes(*buffer.first_chunk()?);
    Some(4 + length as usize)
}

pub(super) fn read_event(frame: &[u8]) -> Option<Part> {
    let WatchEvent { kind, object } = WatchEvent::parse(frame.get(4..)?).ok()?;
    let metadata = Kind::find(object.api_version, object.kind)
        .ok_or(WireError::Protobuf { at: 0, expected: "a kind that is known" })
        .and_then(|kind| Metadata::from_protobuf(kind, object.raw));
    Some(event(kind, metadata))
}

/// The head, each item, and the tail; in one piece if it is not a list.
pub(super) fn split_list(body: &Bytes) -> Vec<Piece> {
    let piece = |bytes: Bytes, part| Piece { bytes, part, coding: Coding::Protobuf };
    try_split(body).unwrap_or_else(|_| vec![piece(body.clone(), Part::Opaque)])
}

fn try_split(body: &[u8]) -> Result<Vec<Piece>, WireError> {
    let piece = |bytes: Vec<u8>, part| Piece { bytes: bytes.into(), part, coding: Coding::Protobuf };
    let mut splitter = ListSplitter::default();
    splitter.push(body);
    let (mut items, mut lengths) = (Vec::new(), Vec::new());
    while let Some(item) = splitter.next_item()? {
        let mut bytes = Vec::with_capacity(item.len() + 8);
        write_item(&mut bytes, &item);
        lengths.push(item.len());
        items.push(piece(bytes, Part::Item));
    }
    let meta = splitter.finish()?;
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    begin_list(&mut head, &meta, lengths.iter().copied());
    end_list(&mut tail);
    let head = piece(head, Part::ProtobufHead { meta, lengths });
    Ok([head].into_iter().chain(items).chain([piece(tail, Part::Opaque)]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_wire::json::{EventType, ListMeta};
    use kube_wire::protobuf::{Envelope, write_event, write_list};

    #[test]
    fn a_list_comes_apart_and_together_again() {
        let meta = ListMeta {
            kind: Some("PodList".into()),
            api_version: Some("v1".into()),
            resource_version: Some(7.into()),
            ..ListMeta::default()
        };
        let mut list = Vec::new();
        write_list(&mut list, &meta, &[&b"first"[..], b"", &[1; 300]]);
        let pieces = split_list(&list.clone().into());
        let parts: Vec<_> = pieces.iter().map(|piece| piece.part.clone()).collect();
        let head = Part::ProtobufHead { meta, lengths: vec![5, 0, 300] };
        assert_eq!(parts, [head, Part::Item, Part::Item, Part::Item, Part::Opaque]);
        assert_eq!(pieces.iter().flat_map(|piece| piece.bytes.to_vec()).collect::<Vec<_>>(), list);
        for odd in [&list[..50], b"{}", b""] {
            let pieces = split_list(&Bytes::copy_from_slice(odd));
            assert_eq!((pieces.len(), &pieces[0].bytes[..]), (1, odd));
        }
    }

    #[test]
    fn an_event_is_found_and_read() {
        let kind = Kind::find("v1", "Pod").unwrap();
        let json = br#"{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}"#;
        let raw = kube_wire::protobuf::from_json(kind, json).unwrap();
        let mut frame = Vec::new();
        let object = Envelope { api_version: "v1", kind: "Pod", raw: &raw };
        write_event(&mut frame, &EventType::Bookmark, &object);
        assert_eq!((event_end(&frame), event_end(&frame[..3])), (Some(frame.len()), None));
        assert_eq!(read_event(&frame), Some(Part::Event { kind: EventType::Bookmark, is_end: true }));
        assert_eq!(read_event(&frame[..20]), None);
    }
}
