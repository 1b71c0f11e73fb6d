//! Keeps a live, indexed, typed copy of Kubernetes resources in memory and tells handlers of every change.

pub mod key;

pub use key::ObjectKey;
