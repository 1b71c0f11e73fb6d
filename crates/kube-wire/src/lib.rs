//! What both ends of a Kubernetes connection need, and neither should write twice.
//!
//! - [`version`]: resource versions and their order
//! - [`selector`]: label and field selectors

pub mod selector;
pub mod version;

pub use selector::{FieldSelector, LabelSelector};
pub use version::ResourceVersion;
