//! JSON as Kubernetes sends it: lists taken apart while they arrive, and watch events a line each.
//!
//! Nothing here builds a tree. Items and events come out as the bytes they were, for whoever wants to keep or decode them.

mod cursor;
mod list;
mod watch;

pub(crate) use cursor::Cursor;
pub use list::{ListMeta, ListSplitter};
pub use watch::{EventType, LineSplitter, WatchEvent, write_event};

/// The limit for one item or event unless told otherwise: far above the server's own limit for an object.
pub const MAX_ITEM_BYTES: usize = 64 << 20;
