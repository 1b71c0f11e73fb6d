//! The local copy: objects by key, with indexes, written by one and read by many through immutable snapshots.
//!
//! Written by the [`shared_informer`](crate::shared_informer)'s loop, read by [`lister`](crate::lister)s.

mod apply;
mod build;
mod index;
mod retired;
mod snapshot;
mod state;
#[doc(hidden)]
pub mod tree;

use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use kube_wire::ResourceVersion;
use tokio::sync::watch;

use crate::ObjectKey;
use crate::delta_fifo::{KnownObjects, Scope};
use crate::interleave::lock;
use crate::object::Entry;

#[cfg(test)]
pub(crate) use apply::Note;
pub(crate) use apply::{Applied, Listed};
pub use index::IndexBy;
pub(crate) use index::{IndexSet, IndexValues};
use retired::Retired;
pub use snapshot::{Objects, Query, Snapshot, Unindexed};
pub(crate) use state::{Slot, State, StateCell};

/// A store of objects by key with any number of indexes. One writes, many read, and no reader ever waits.
///
/// The informer's own store is one; it is usable by itself as well.
pub struct Indexer {
    pub(crate) cell: Arc<StateCell>,
    pub(crate) indexes: Arc<ArcSwap<IndexSet>>,
    writer: Mutex<Writer>,
    building: Mutex<()>,
    published: watch::Sender<()>,
}

#[derive(Default)]
pub(crate) struct Writer {
    /// While an index is built from a snapshot: the keys that have changed since.
    touched: Option<Vec<ObjectKey>>,
    retired: Retired,
}

/// An index that cannot be added or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// There is an index of this name.
    #[error("there is an index named '{0}' already; remove it first, or use another name")]
    Exists(String),
    /// There is no index of this name.
    #[error("there is no index named '{0}'; add it with add_index")]
    Unknown(String),
    /// The index reads bytes, and the cache keeps decoded values.
    #[error("the index '{0}' reads bytes, and this cache keeps decoded values; use IndexBy::object")]
    NoBytes(String),
}

impl Default for Indexer {
    fn default() -> Self {
        Self::new()
    }
}

impl Indexer {
    /// An empty store.
    pub fn new() -> Self {
        Self {
            cell: Arc::default(),
            indexes: Arc::default(),
            writer: Mutex::default(),
            building: Mutex::default(),
            published: watch::Sender::new(()),
        }
    }

    /// What is in the store now, frozen. Takes the same short time whatever the size.
    pub fn snapshot<K>(&self) -> Snapshot<K> {
        Snapshot::new(self.cell.load_full())
    }

    /// Puts an object in, in place of what has its key. Gives what was there.
    ///
    /// One of the same uid and version is the same object, and changes nothing. One that an index function fails for is
    /// stored all the same, and left out of that index.
    pub fn upsert(&self, object: Arc<Entry>) -> Option<Arc<Entry>> {
        self.write_one(object.key().clone(), Some(object))
    }

    /// Takes an object out.
    pub fn remove(&self, key: &ObjectKey) -> Option<Arc<Entry>> {
        self.write_one(key.clone(), None)
    }

    /// Waits until a snapshot satisfies a condition, and gives it.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn wait_for<K>(&self, mut condition: impl FnMut(&Snapshot<K>) -> bool) -> Snapshot<K> {
        let mut published = self.published.subscribe();
        loop {
            published.mark_unchanged();
            let snapshot = self.snapshot();
            if condition(&snapshot) {
                return snapshot;
            }
            // The sender lives as long as `self`, so this cannot fail.
            let _ = published.changed().await;
        }
    }

    /// Waits until a scope is at a version or newer. For versions without an order, until it is at that version.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(crate) async fn wait_for_version<K>(&self, scope: &Scope, version: &ResourceVersion) -> Snapshot<K> {
        self.wait_for(|snapshot: &Snapshot<K>| snapshot.version_of(scope).is_some_and(|now| now >= version))
            .await
    }

    fn publish(&self, writer: &mut Writer, state: State) -> Arc<State> {
        let state = Arc::new(state);
        writer.retired.add(self.cell.swap(Arc::clone(&state)));
        self.published.send_replace(());
        state
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Writer> {
        lock(&self.writer)
    }
}

impl KnownObjects for Indexer {
    fn known(&self, scope: &Scope) -> Vec<Arc<Entry>> {
        let state = self.cell.load();
        state.range(scope.as_namespace()).map(|(_, slot)| Arc::clone(&slot.entry)).collect()
    }

    fn has(&self, key: &ObjectKey) -> bool {
        self.cell.load().objects.contains_key(key)
    }
}

impl std::fmt::Debug for Indexer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Indexer").field("objects", &self.cell.load().objects.len()).finish_non_exhaustive()
    }
}
