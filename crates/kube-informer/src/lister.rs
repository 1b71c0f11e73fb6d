//! Reads the local copy; never asks the server.

use std::sync::Arc;

use kube_wire::selector::SelectorError;

use crate::object::Object;
use crate::shared_informer::Keeper;
use crate::store::{IndexError, Query, Snapshot};

/// Reads the newest state of a cache. Each call looks at the state of its own moment; for several looks at one moment, take a
/// [`snapshot`](Self::snapshot).
///
/// # Dropping
/// A lister keeps its informer running.
pub struct Lister<K> {
    keeper: Arc<Keeper>,
    view: std::marker::PhantomData<fn() -> K>,
}

impl<K> Lister<K> {
    pub(crate) fn new(keeper: Arc<Keeper>) -> Self {
        Self { keeper, view: std::marker::PhantomData }
    }

    /// Everything as it is now, frozen.
    pub fn snapshot(&self) -> Snapshot<K> {
        self.keeper.core().indexer.snapshot()
    }

    /// The object with this key: `namespace/name`, or `name` where there are no namespaces.
    pub fn get(&self, key: impl AsRef<str>) -> Option<Object<K>> {
        self.snapshot().get(key)
    }

    /// All objects, in key order.
    pub fn list(&self) -> Vec<Object<K>> {
        self.snapshot().query().list()
    }

    /// How many objects there are.
    pub fn count(&self) -> usize {
        self.snapshot().len()
    }

    /// Everything, to be narrowed down.
    pub fn query(&self) -> Query<K> {
        self.snapshot().query()
    }

    /// The objects of one namespace; an empty name means all namespaces.
    pub fn namespace(&self, namespace: impl Into<String>) -> Query<K> {
        self.snapshot().namespace(namespace)
    }

    /// The objects whose labels satisfy a selector, such as `app=web,tier in (front, back),!legacy`.
    ///
    /// # Errors
    /// If the selector cannot be read.
    pub fn matching(&self, selector: &str) -> Result<Query<K>, SelectorError> {
        self.snapshot().matching(selector)
    }

    /// The objects that have a value in an index.
    ///
    /// # Errors
    /// If there is no index of this name.
    pub fn by_index(&self, index: &str, value: impl Into<String>) -> Result<Query<K>, IndexError> {
        self.snapshot().by_index(index, value)
    }

    /// The distinct values of an index, in order.
    ///
    /// # Errors
    /// If there is no index of this name.
    pub fn index_values(&self, index: &str) -> Result<Vec<String>, IndexError> {
        self.snapshot().index_values(index)
    }
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.keeper))
    }
}

impl<K> std::fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lister").field("snapshot", &self.snapshot()).finish()
    }
}
