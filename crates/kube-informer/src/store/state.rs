//! All of a store at one moment.

use std::ops::Bound;
use std::sync::Arc;

use arc_swap::ArcSwap;
use kube_wire::ResourceVersion;

use super::index::IndexValues;
use super::tree::Tree;
use crate::delta_fifo::Scope;
use crate::object::Entry;
use crate::planted::{Bug, planted};
use crate::{ObjectKey, SetAside};

/// Where readers find the newest state.
pub(crate) type StateCell = ArcSwap<State>;

/// Objects, indexes and versions at one moment. Cloning it costs the same whatever its size.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) objects: Tree<ObjectKey, Slot>,
    pub(crate) indexes: Vec<IndexTree>,
    pub(crate) versions: Vec<(Scope, ResourceVersion)>,
    /// Objects that could not be read, by key.
    pub(crate) set_aside: Tree<ObjectKey, Arc<SetAside>>,
    /// The keys of objects that an index function failed for. Their values have the problems.
    pub(crate) unindexed: Tree<ObjectKey, ()>,
    /// The last few whose key could not be read either, until their scope is listed again.
    pub(crate) nameless: Vec<(Scope, Arc<SetAside>)>,
    /// What the bodies take together.
    pub(crate) bytes: usize,
}

#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) entry: Arc<Entry>,
    pub(crate) values: IndexValues,
    /// There is a newer state, which could not be read.
    pub(crate) stale: bool,
}

/// One index: pairs of value and key, in order.
#[derive(Clone)]
pub(crate) struct IndexTree {
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
    pub(crate) pairs: Tree<Pair, ()>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair {
    pub(crate) value: Arc<str>,
    pub(crate) key: ObjectKey,
}

impl State {
    /// All objects, or those of one namespace, which is a range of keys.
    pub(crate) fn range(&self, namespace: Option<&str>) -> impl Iterator<Item = (&ObjectKey, &Slot)> {
        let end = if planted(Bug::NamespaceByPrefix) { "" } else { "/" };
        let start = namespace.map(|namespace| format!("{namespace}{end}"));
        let from = start.as_deref().map_or(Bound::Unbounded, Bound::Included);
        self.objects
            .range::<str>(from, Bound::Unbounded)
            .take_while(move |(key, _)| start.as_deref().is_none_or(|start| key.as_str().starts_with(start)))
    }

    /// How many objects of a scope the server has, as far as is known: also those that could not be read.
    pub(crate) fn count(&self, scope: &Scope) -> usize {
        let unread = |key: &&ObjectKey| scope.contains(key) && self.objects.get(key.as_str()).is_none();
        let stored = match scope.as_namespace() {
            None => self.objects.len(),
            namespace => self.range(namespace).count(),
        };
        stored + self.set_aside.keys().filter(unread).count()
    }

    pub(crate) fn index(&self, name: &str) -> Option<&IndexTree> {
        self.indexes.iter().find(|index| *index.name == *name)
    }

    pub(crate) fn version(&self, scope: &Scope) -> Option<&ResourceVersion> {
        self.versions.iter().find(|(of, _)| of == scope).map(|(_, version)| version)
    }

    pub(crate) fn set_version(&mut self, scope: &Scope, version: ResourceVersion) {
        match self.versions.iter_mut().find(|(of, _)| of == scope) {
            Some((_, last)) => *last = version,
            None => self.versions.push((scope.clone(), version)),
        }
    }

    /// Puts an object in and keeps all indexes right.
    pub(crate) fn insert(&mut self, slot: Slot) -> Option<Slot> {
        let key = slot.entry.key().clone();
        self.bytes += slot.entry.size();
        let values = slot.values.clone();
        let old = self.objects.insert(key.clone(), slot);
        if let Some(old) = &old {
            self.bytes -= old.entry.size();
        }
        let before = old.as_ref().map(|old| old.values.clone()).unwrap_or_default();
        if before.values != values.values {
            self.unindex(&key, &before, &values);
            self.index_values(&key, &values, &before);
            if values.failures().next().is_some() {
                self.unindexed.insert(key, ());
            } else {
                self.unindexed.remove(&key);
            }
        }
        old
    }

    /// Takes an object out, and out of all indexes.
    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Slot> {
        let old = self.objects.remove(key)?;
        self.bytes -= old.entry.size();
        self.unindexed.remove(key);
        if !planted(Bug::IndexKeptOnDelete) {
            self.unindex(key, &old.values, &IndexValues::default());
        }
        Some(old)
    }

    /// Forgets the objects of a scope that could not be read.
    pub(super) fn forget_set_aside(&mut self, scope: &Scope) {
        let keys: Vec<_> = self.set_aside.keys().filter(|key| scope.contains(key)).cloned().collect();
        for key in keys {
            self.set_aside.remove(&key);
        }
    }

    /// Says of an object that it is the newest after all.
    pub(crate) fn unmark(&mut self, key: &ObjectKey) {
        if let Some(slot) = self.objects.get(key.as_str()).filter(|slot| slot.stale) {
            let slot = Slot { stale: false, ..slot.clone() };
            self.objects.insert(key.clone(), slot);
        }
    }

    /// Objects that could not be read.
    pub(crate) fn all_set_aside(&self) -> impl Iterator<Item = &SetAside> {
        let nameless = self.nameless.iter().map(|(_, aside)| aside);
        self.set_aside.values().chain(nameless).map(|aside| &**aside)
    }

    fn unindex(&mut self, key: &ObjectKey, values: &IndexValues, keep: &IndexValues) {
        for value in values.found().filter(|value| keep.iter().all(|kept| kept != *value)) {
            if let Some(index) = self.indexes.iter_mut().find(|index| index.id == value.index) {
                index.pairs.remove(&Pair { value: Arc::clone(&value.text), key: key.clone() });
            }
        }
    }

    fn index_values(&mut self, key: &ObjectKey, values: &IndexValues, present: &IndexValues) {
        for value in values.found().filter(|value| present.iter().all(|known| known != *value)) {
            if let Some(index) = self.indexes.iter_mut().find(|index| index.id == value.index) {
                let value = index.interned(&value.text);
                index.pairs.insert(Pair { value, key: key.clone() }, ());
            }
        }
    }
}

impl IndexTree {
    /// Whether a key has a value.
    pub(crate) fn has(&self, value: &Arc<str>, key: &ObjectKey) -> bool {
        self.pairs.contains_key(&Pair { value: Arc::clone(value), key: key.clone() })
    }

    /// The keys that have a value, in order, after one of them or from the first on.
    pub(crate) fn keys<'a>(
        &'a self,
        value: &str,
        after: Option<&ObjectKey>,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        let value: Arc<str> = value.into();
        // No key is empty, so that this comes before all of them.
        let after = after.cloned().unwrap_or_else(|| ObjectKey::cluster(""));
        let from = Pair { value: Arc::clone(&value), key: after };
        self.pairs
            .range(Bound::Excluded(&from), Bound::Unbounded)
            .map(|(pair, ())| pair)
            .take_while(move |pair| pair.value == value)
            .map(|pair| &pair.key)
    }

    /// The distinct values, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        let mut last: Option<&str> = None;
        self.pairs.keys().map(|pair| &*pair.value).filter(move |value| {
            let new = last != Some(value);
            last = Some(value);
            new
        })
    }

    /// The text that other pairs of this value share.
    fn interned(&self, value: &Arc<str>) -> Arc<str> {
        let from = Pair { value: Arc::clone(value), key: ObjectKey::cluster("") };
        let next = self.pairs.range(Bound::Included(&from), Bound::Unbounded).next();
        match next {
            Some((pair, ())) if pair.value == *value => Arc::clone(&pair.value),
            _ => Arc::clone(value),
        }
    }
}
