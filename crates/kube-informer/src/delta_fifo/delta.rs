//! One change of one object, and the part of a cache it belongs to.

use std::fmt;
use std::sync::Arc;

use crate::object::Entry;
use crate::store::IndexValues;
use crate::{ObjectKey, SetAside};

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeltaType {
    /// It is new.
    Added,
    /// It has changed.
    Updated,
    /// It is gone.
    Deleted,
    /// It stands in a list: new, changed or as it was.
    Replaced,
    /// Nothing happened; it comes round again for those who asked.
    Sync,
}

/// One change of one object.
#[derive(Debug, Clone)]
pub struct Delta {
    /// What happened.
    pub kind: DeltaType,
    /// The object after the change; for a delete, its last state as far as it is known.
    pub object: Arc<Entry>,
    /// For a delete: that it was missed, and `object` is merely the last state that was seen.
    pub final_state_unknown: bool,
    pub(crate) values: IndexValues,
    /// For a resync: the handlers that are due.
    pub(crate) round: Option<Arc<[u64]>>,
}

impl Delta {
    /// A change of an object.
    pub fn new(kind: DeltaType, object: Arc<Entry>) -> Self {
        Self { kind, object, final_state_unknown: false, values: IndexValues::default(), round: None }
    }

    /// A delete that was missed; the object is its last known state.
    pub fn tombstone(last_known: Arc<Entry>) -> Self {
        Self { final_state_unknown: true, ..Self::new(DeltaType::Deleted, last_known) }
    }

    /// What it takes in the queue.
    pub(crate) fn size(&self) -> usize {
        // The entry's own fields and the queue's: an empty object is not free.
        self.object.size() + 256
    }
}

/// One reflector's part of a cache: the whole cluster, or one namespace.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Scope(Option<Arc<str>>);

impl Scope {
    /// All namespaces, or a kind that has none.
    pub const CLUSTER: Self = Self(None);

    /// One namespace; an empty name means all namespaces.
    pub fn namespace(namespace: &str) -> Self {
        Self((!namespace.is_empty()).then(|| namespace.into()))
    }

    /// Each scope once, in order. All namespaces include every other scope: an object belongs to one scope only.
    pub(crate) fn distinct(scopes: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut scopes: Vec<Self> = scopes.into_iter().collect();
        scopes.sort();
        scopes.dedup();
        if scopes.first() == Some(&Self::CLUSTER) {
            scopes.truncate(1);
        }
        scopes
    }

    /// The namespace, `None` for the whole cluster.
    pub fn as_namespace(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Whether objects of this key belong here.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.0.is_none() || self.0.as_deref() == key.namespace()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("all namespaces"))
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({self})")
    }
}

/// What stands in the queue for a key: changes, and objects that could not be read.
#[derive(Debug, Clone)]
pub(crate) enum Element {
    Delta(Delta),
    Aside(SetAside),
}

impl Element {
    pub(crate) fn delta(&self) -> Option<&Delta> {
        match self {
            Self::Delta(delta) => Some(delta),
            Self::Aside(_) => None,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.delta().map_or(0, Delta::size)
    }
}
