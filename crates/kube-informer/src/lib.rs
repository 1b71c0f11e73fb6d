//! Keeps a live, indexed, typed copy of Kubernetes resources in memory and tells handlers of every change.

pub mod key;
mod store;
pub mod workqueue;

pub use key::ObjectKey;
pub use workqueue::WorkQueue;

/// What the benchmarks measure and nobody else should use: it may change in any release.
#[doc(hidden)]
pub mod bench_support {
    pub use crate::store::tree::Tree;
}
