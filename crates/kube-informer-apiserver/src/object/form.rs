//! How clients see objects: what a watch event says of one, and what of it is shown on which wire.

use bytes::Bytes;
use kube_wire::json;

use crate::negotiate::Coding;

/// What a watch event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    pub(super) fn opening(self) -> &'static [u8] {
        match self {
            Self::Added => br#"{"type":"ADDED","object":"#,
            Self::Modified => br#"{"type":"MODIFIED","object":"#,
            Self::Deleted => br#"{"type":"DELETED","object":"#,
        }
    }

    pub(super) fn on_the_wire(self) -> json::EventType {
        match self {
            Self::Added => json::EventType::Added,
            Self::Modified => json::EventType::Modified,
            Self::Deleted => json::EventType::Deleted,
        }
    }
}

/// How a client wants objects to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are stored.
    Whole,
    /// With another opening: another version of a custom kind (`{"kind":…,"apiVersion":…,`).
    Reversioned(Bytes),
    /// Only the metadata.
    Metadata,
    /// Whole, in protobuf. Custom kinds have no such form.
    Protobuf,
    /// Only the metadata, in protobuf.
    ProtobufMetadata,
}

impl Form {
    pub(crate) fn coding(&self) -> Coding {
        match self {
            Self::Whole | Self::Reversioned(_) | Self::Metadata => Coding::Json,
            Self::Protobuf | Self::ProtobufMetadata => Coding::Protobuf,
        }
    }

    /// Whether only the metadata is shown.
    pub(crate) fn is_metadata(&self) -> bool {
        matches!(self, Self::Metadata | Self::ProtobufMetadata)
    }
}
