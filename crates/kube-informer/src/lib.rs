//! Keeps a live, indexed, typed copy of Kubernetes resources in memory and tells handlers of every change.
//!
//! The data flows through the modules in this order:
//!
//! ```text
//!  source ──▶ reflector ──▶ delta_fifo ──▶ shared_informer ─┬─▶ store ──▶ lister
//!  LIST, WATCH   intake                     process loop     └─▶ processor ──▶ handler ──▶ workqueue ──▶ controller
//! ```
//!
//! [`SharedInformerFactory`] ties it together: whoever asks for the same kind shares one list, one watch and one copy.

pub mod backoff;
pub mod controller;
pub mod delta_fifo;
pub mod event;
pub mod factory;
pub mod handler;
mod intake;
mod interleave;
pub mod key;
pub mod lister;
pub mod object;
mod planted;
mod processor;
pub mod reflector;
pub mod shared_informer;
pub mod source;
pub mod stats;
pub mod store;
pub mod workqueue;

pub use controller::Controller;
pub use event::{Deleted, Event};
pub use factory::SharedInformerFactory;
pub use handler::{EventHandler, HandlerOptions, blocking};
pub use intake::{SetAside, Transform};
pub use key::ObjectKey;
pub use lister::Lister;
pub use object::{Kind, Object, Storage, Uid};
pub use shared_informer::{InformerOptions, Registration, SharedInformer};
pub use store::{IndexBy, Indexer, Snapshot};
pub use workqueue::WorkQueue;

pub use kube_wire::{FieldPath, LabelSelector, ResourceVersion};

/// What the benchmarks measure and nobody else should use: it may change in any release.
#[doc(hidden)]
pub mod bench_support {
    pub use crate::store::tree::Tree;
}

/// The programs of the README, compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

/// The examples of the tour, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tour.md")]
pub struct Tour;
