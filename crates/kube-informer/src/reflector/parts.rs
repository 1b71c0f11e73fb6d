//! Takes answers apart, whichever of the formats they come in: lists into items, watches into events.

use bytes::Bytes;
use kube_wire::json::{EventType, ListMeta};
use kube_wire::{WireError, json, protobuf};

use crate::object::{Arrival, Kind, Wire};
use crate::source::SourceError;

/// Says what is wrong with a protobuf list of another kind: its items do not name theirs, and would be misread.
pub(super) fn check_kind(kind: &Kind, list: &ListMeta) -> Result<(), SourceError> {
    match list.kind.as_deref() {
        Some(found)
            if found != "PartialObjectMetadataList" && found.strip_suffix("List") != Some(kind.kind()) =>
        {
            let why = format!("expected a list of {kind}, got {found}");
            Err(SourceError::transport("the list cannot be used", why))
        }
        _ => Ok(()),
    }
}

/// The items of a list that arrives in chunks.
pub(super) enum Items {
    Json(json::ListSplitter),
    Protobuf(protobuf::ListSplitter),
}

impl Items {
    pub(super) fn of(wire: Wire) -> Self {
        if wire.is_protobuf() {
            Self::Protobuf(protobuf::ListSplitter::default())
        } else {
            Self::Json(json::ListSplitter::default())
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        match self {
            Self::Json(list) => list.push(chunk),
            Self::Protobuf(list) => list.push(chunk),
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<Bytes>, WireError> {
        match self {
            Self::Json(list) => list.next_item(),
            Self::Protobuf(list) => list.next_item(),
        }
    }

    pub(super) fn finish(self) -> Result<ListMeta, WireError> {
        match self {
            Self::Json(list) => list.finish(),
            Self::Protobuf(list) => list.finish(),
        }
    }
}

/// The events of a watch that arrives in chunks, each still in its bytes.
pub(super) enum Frames {
    Json(json::LineSplitter),
    Protobuf(protobuf::FrameSplitter),
}

impl Frames {
    pub(super) fn of(wire: Wire) -> Self {
        if wire.is_protobuf() {
            Self::Protobuf(protobuf::FrameSplitter::default())
        } else {
            Self::Json(json::LineSplitter::default())
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        match self {
            Self::Json(lines) => lines.push(chunk),
            Self::Protobuf(frames) => frames.push(chunk),
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<Bytes>, WireError> {
        match self {
            Self::Json(lines) => lines.next_line(),
            Self::Protobuf(frames) => frames.next_frame(),
        }
    }

    pub(super) fn finish(self) -> Result<(), WireError> {
        match self {
            Self::Json(lines) => lines.finish(),
            Self::Protobuf(frames) => frames.finish(),
        }
    }
}

/// One event: what happened, and to what.
pub(super) struct Event<'a> {
    pub(super) kind: EventType,
    pub(super) object: Arrival<'a>,
}

impl<'a> Event<'a> {
    pub(super) fn parse(wire: Wire, frame: &'a [u8]) -> Result<Self, WireError> {
        if wire.is_protobuf() {
            let event = protobuf::WatchEvent::parse(frame)?;
            let protobuf::Envelope { api_version, kind, raw } = event.object;
            let named = (!kind.is_empty()).then_some((api_version, kind));
            Ok(Self { kind: event.kind, object: Arrival { wire, bytes: raw, named } })
        } else {
            let event = json::WatchEvent::parse(frame)?;
            Ok(Self { kind: event.kind, object: Arrival { wire, bytes: event.object, named: None } })
        }
    }

    /// The error that an `ERROR` event carries.
    pub(super) fn error(&self) -> SourceError {
        if self.object.wire.is_protobuf() {
            SourceError::from_protobuf_status(self.object.bytes)
        } else {
            SourceError::from_status(self.object.bytes)
        }
    }
}
