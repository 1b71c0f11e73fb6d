//! The formats that objects come in, and what can be read of each without decoding.

use std::borrow::Cow;

use kube_wire::{FieldPath, Metadata, WireError, path, protobuf};
use serde::de::DeserializeOwned;

use super::Kind;

/// How objects come over the wire and are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// JSON text.
    Json,
    /// Protobuf: the object's message, without envelope.
    Protobuf,
    /// Protobuf of the metadata alone, a `PartialObjectMetadata`.
    ProtobufMetadata,
}

/// The bytes of one object as they arrive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival<'a> {
    pub(crate) wire: Wire,
    pub(crate) bytes: &'a [u8],
    /// `apiVersion` and `kind`, where they stand around the bytes and not in them.
    pub(crate) named: Option<(&'a str, &'a str)>,
}

impl Wire {
    pub(crate) fn is_protobuf(self) -> bool {
        self != Self::Json
    }

    /// Whether the protobuf form of a kind is known, and will not change: alpha kinds may, under the same name.
    pub(crate) fn speaks_protobuf(kind: &Kind) -> bool {
        !kind.api_version().contains("alpha")
            && protobuf::Kind::find(kind.api_version(), kind.kind()).is_some()
    }

    /// The object's metadata, read in place.
    pub(crate) fn metadata<'a>(self, kind: &Kind, bytes: &'a [u8]) -> Result<Metadata<'a>, WireError> {
        match self {
            Self::Json => Metadata::from_json(bytes),
            _ => Metadata::from_protobuf(self.schema(kind)?, bytes),
        }
    }

    /// The object without what the paths lead to, `None` if they lead nowhere.
    pub(crate) fn cut(
        self,
        kind: &Kind,
        bytes: &[u8],
        paths: &[FieldPath],
    ) -> Result<Option<Vec<u8>>, WireError> {
        match self {
            Self::Json => path::cut(bytes, paths),
            _ => protobuf::cut(self.schema(kind)?, bytes, paths),
        }
    }

    /// What a path leads to, as text.
    pub(crate) fn texts<'a>(
        self,
        kind: &Kind,
        bytes: &'a [u8],
        path: &FieldPath,
    ) -> Result<Vec<Cow<'a, str>>, WireError> {
        match self {
            Self::Json => path.texts(bytes),
            _ => path.texts_in_protobuf(self.schema(kind)?, bytes),
        }
    }

    /// The object as a `K`. Items of a JSON list lack their kind; `typed` says whether these bytes have it.
    pub(crate) fn decode<K: DeserializeOwned>(
        self,
        kind: &Kind,
        typed: bool,
        bytes: &[u8],
    ) -> Result<K, WireError> {
        match self {
            Self::Json if typed => from_json(bytes),
            Self::Json => from_json(&with_type(kind, bytes)),
            _ => protobuf::from_slice(self.schema(kind)?, bytes),
        }
    }

    /// The bytes without the object's kind, which items of a JSON list do not name.
    pub(crate) fn untyped(self, bytes: &[u8]) -> Cow<'_, [u8]> {
        if self.is_protobuf() {
            return Cow::Borrowed(bytes);
        }
        let paths = [FieldPath::of_fields(["apiVersion"]), FieldPath::of_fields(["kind"])];
        path::cut(bytes, &paths).ok().flatten().map_or(Cow::Borrowed(bytes), Cow::Owned)
    }

    fn schema(self, kind: &Kind) -> Result<protobuf::Kind, WireError> {
        let (api_version, name) = match self {
            Self::ProtobufMetadata => ("meta.k8s.io/v1", "PartialObjectMetadata"),
            _ => (kind.api_version(), kind.kind()),
        };
        protobuf::Kind::find(api_version, name)
            .ok_or_else(|| WireError::Decode(format!("the protobuf form of {kind} is not known")))
    }
}

fn from_json<K: DeserializeOwned>(json: &[u8]) -> Result<K, WireError> {
    serde_json::from_slice(json).map_err(|error| WireError::in_json(json, &error))
}

/// The JSON object with `apiVersion` and `kind` put in front of its other members.
fn with_type(kind: &Kind, json: &[u8]) -> Vec<u8> {
    let mut typed = Vec::with_capacity(json.len() + 64);
    let body = json.trim_ascii_start().strip_prefix(b"{").unwrap_or(json).trim_ascii_start();
    typed.extend_from_slice(br#"{"apiVersion":""#);
    typed.extend_from_slice(kind.api_version().as_bytes());
    typed.extend_from_slice(br#"","kind":""#);
    typed.extend_from_slice(kind.kind().as_bytes());
    typed.extend_from_slice(if body.starts_with(b"}") { br#"""# } else { br#"","# });
    typed.extend_from_slice(body);
    typed
}
