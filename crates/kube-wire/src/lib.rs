//! What both ends of a Kubernetes connection need, and neither should write twice.
//!
//! - [`version`]: resource versions and their order
//! - [`selector`]: label and field selectors, parsed and matched
//! - [`path`]: paths to fields, read from and cut out of JSON text
//! - [`meta`]: an object's metadata, read in place
//! - [`json`]: lists taken apart while they arrive, watch events a line each
//! - [`protobuf`]: the same for the protobuf wire, and serde for the built-in kinds
//! - [`gzip`]: streams of many gzip members
//!
//! Nothing here talks to anybody, and nothing keeps more than the item in progress. Hostile bytes give a [`WireError`],
//! never a panic and never memory out of proportion.

pub mod error;
pub mod gzip;
pub mod json;
pub mod meta;
pub mod path;
mod problem;
pub mod protobuf;
pub mod selector;
pub mod version;

pub use error::WireError;
pub use meta::Metadata;
pub use path::FieldPath;
pub use selector::{FieldSelector, LabelSelector};
pub use version::ResourceVersion;
