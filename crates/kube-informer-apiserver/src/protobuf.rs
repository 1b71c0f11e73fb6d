//! Protobuf: how objects that are stored as JSON are told to clients that would rather have it, and how bodies of
//! such clients are read.

use bytes::Bytes;
use kube_wire::WireError;
use kube_wire::json::EventType;
use kube_wire::protobuf::{Envelope, Kind, MAGIC, from_slice, write_event};
use serde_json::Value;

use crate::object::is_shallow;

/// How deep a body may be nested: what is stored as JSON must be readable again.
const MAX_DEPTH: usize = 100;

/// How long the envelope's end is, which is the frame's end too: two empty fields.
const TAIL: usize = 4;

/// An object as the frame that tells a watcher of it. The object in its envelope and the bare object are slices of it.
#[derive(Debug)]
pub(crate) struct Frame {
    bytes: Bytes,
    /// Where the envelope and the bare object begin.
    envelope: u32,
    bare: u32,
}

impl Frame {
    pub(crate) fn new(kind: Kind, event: &EventType, bare: &[u8]) -> Self {
        let bytes = frame(kind, event, bare);
        // The type in front of the envelope is a word, which the magic bytes are not.
        let envelope = bytes.windows(MAGIC.len()).position(|window| window == MAGIC).unwrap_or(0);
        let bare = bytes.len() - TAIL - bare.len();
        Self { bytes, envelope: envelope as u32, bare: bare as u32 }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The object in its envelope: what answers a get.
    pub(crate) fn envelope(&self) -> Bytes {
        self.bytes.slice(self.envelope as usize..)
    }

    /// The object's message and nothing else: what is an item of a list.
    pub(crate) fn bare(&self) -> &[u8] {
        &self.bytes[self.bare as usize..self.bytes.len() - TAIL]
    }

    /// The bare object with its metadata alone. Every kind has it in field 1, which is written first.
    pub(crate) fn metadata(&self) -> &[u8] {
        let bare = self.bare();
        let end = match bare {
            [0x0a, rest @ ..] => varint(rest).map_or(0, |(length, size)| 1 + size + length),
            _ => 0,
        };
        bare.get(..end).unwrap_or_default()
    }
}

/// The kind that objects have when only their metadata is shown.
pub(crate) fn metadata_kind() -> Kind {
    find("meta.k8s.io/v1", "PartialObjectMetadata")
}

/// The kind of refusals, and of some successes.
pub(crate) fn status_kind() -> Kind {
    find("v1", "Status")
}

/// The kind of a deletion's body.
pub(crate) fn delete_options_kind() -> Kind {
    find("v1", "DeleteOptions")
}

/// A bare object in its envelope.
pub(crate) fn envelope(kind: Kind, bare: &[u8]) -> Bytes {
    let mut out = Vec::new();
    Envelope { api_version: kind.api_version(), kind: kind.name(), raw: bare }.write(&mut out);
    out.into()
}

/// The frame that tells a watcher of a bare object.
pub(crate) fn frame(kind: Kind, event: &EventType, bare: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(bare.len() + 80);
    let object = Envelope { api_version: kind.api_version(), kind: kind.name(), raw: bare };
    write_event(&mut out, event, &object);
    out.into()
}

/// The bare form of what the server made itself, such as a status; of what has no such form, nothing.
pub(crate) fn bare(kind: Kind, value: &Value) -> Vec<u8> {
    kube_wire::protobuf::from_value(kind, value).unwrap_or_else(|error| {
        tracing::error!(%kind, %error, "what the server made has no protobuf form");
        Vec::new()
    })
}

/// What a body holds.
pub(crate) enum Read {
    /// An object of the expected kind.
    Object(Value),
    /// An object that says that it is something else.
    Other { api_version: String, kind: String },
}

/// Reads a body that should be of a kind. An envelope without a kind is taken at its word, whatever group and version
/// it names with it: those are for the caller to check.
pub(crate) fn read_body(kind: Kind, body: &[u8]) -> Result<Read, WireError> {
    let envelope = Envelope::parse(body)?;
    if !envelope.kind.is_empty() && envelope.kind != kind.name() {
        let (api_version, kind) = (envelope.api_version.to_owned(), envelope.kind.to_owned());
        return Ok(Read::Other { api_version, kind });
    }
    let mut value: Value = from_slice(kind, envelope.raw)?;
    if !is_shallow(&value, MAX_DEPTH) {
        return Err(WireError::Decode(format!("nested more than {MAX_DEPTH} levels deep")));
    }
    value["kind"] = envelope.kind.into();
    value["apiVersion"] = envelope.api_version.into();
    Ok(Read::Object(value))
}

/// The number that these bytes start with, and how many of them it takes.
pub(crate) fn varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0_u64;
    for (at, &byte) in bytes.iter().enumerate().take(9) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Some((usize::try_from(value).ok()?, at + 1));
        }
    }
    None
}

fn find(api_version: &str, name: &str) -> Kind {
    Kind::find(api_version, name).expect("a kind of the published Go types")
}
