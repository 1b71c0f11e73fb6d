//! Protobuf as Kubernetes sends it: envelopes, lists taken apart while they arrive, and watch frames.
//!
//! An object on the wire is an [`Envelope`]: four magic bytes, then a message with the object's kind and its bytes. A
//! list is one envelope around all items, which [`ListSplitter`] takes apart; a watch is a stream of frames, which
//! [`FrameSplitter`] takes apart and [`WatchEvent`] reads. What comes out of all three are *bare* objects: the bytes of
//! the message alone, without magic, kind and version.
//!
//! What a bare object means is in a table of every built-in kind ([`Kind`]), made from the published Go types. By it
//! [`from_slice`] reads an object into any type that could read it from JSON, and [`from_json`] writes what Go would write.
//! [`Metadata::from_protobuf`](crate::Metadata::from_protobuf), [`FieldPath::texts_in_protobuf`](crate::FieldPath::texts_in_protobuf)
//! and [`cut`] work on the bytes in place.

mod cut;
mod de;
mod encode;
mod envelope;
mod fields;
mod find;
mod leaf;
mod list;
mod meta;
mod quantity;
mod schema;
mod time;
mod watch;
mod wire;

pub use cut::cut;
pub use de::from_slice;
pub use encode::{from_json, from_value};
pub use envelope::{Envelope, MAGIC};
pub use list::{ListSplitter, begin_list, end_list, write_item, write_list};
pub use schema::Kind;
pub use watch::{FrameSplitter, WatchEvent, write_event};

/// The media type of objects and lists, for `Accept` and `Content-Type`.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The media type of a watch, as the server names it in its answer.
pub const WATCH_MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

#[cfg(test)]
mod tests;
