//! A frozen view of a store, and the questions one can ask of it.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use kube_wire::selector::SelectorError;
use kube_wire::{LabelSelector, ResourceVersion};

use super::{IndexError, Slot, State};
use crate::delta_fifo::Scope;
use crate::object::{Entry, Object};
use crate::planted::{Bug, planted};
use crate::{ObjectKey, SetAside};

/// How many objects an owned iteration takes from the store at a time.
const CHUNK: usize = 64;

/// A store as it was at one moment: objects and all indexes at one version. It never changes.
///
/// Taking one costs the same whatever the size. Holding one keeps the objects in it alive, not the informer; what only it
/// held is freed with the next write to the store.
pub struct Snapshot<K> {
    state: Arc<State>,
    view: PhantomData<fn() -> K>,
}

/// A choice of objects from one snapshot, in key order (within an index value, too).
///
/// Made by [`Snapshot`] or [`Lister`](crate::lister::Lister), narrowed by its methods, read by iterating. Each call of
/// a method narrows the choice further, also a second call of the same one.
pub struct Query<K> {
    state: Arc<State>,
    namespace: Option<String>,
    /// Two different namespaces were asked for, and no object is in both.
    nothing: bool,
    selector: LabelSelector,
    /// Names of indexes, and the value that an object must have in each.
    indexes: Vec<(Arc<str>, Arc<str>)>,
    view: PhantomData<fn() -> K>,
}

/// An object that an index has no value of, because the index function failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unindexed<'a> {
    /// The object's key. The object itself is in the store.
    pub key: &'a ObjectKey,
    /// The name of the index.
    pub index: &'a str,
    /// What went wrong, such as the text of a panic.
    pub problem: &'a str,
}

/// Iterates over the objects of a [`Query`] and owns what it needs.
pub struct Objects<K> {
    query: Query<K>,
    ready: VecDeque<Object<K>>,
    last: Option<ObjectKey>,
    done: bool,
}

impl<K> Snapshot<K> {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state, view: PhantomData }
    }

    /// The object with this key: `namespace/name`, or `name` where there are no namespaces.
    pub fn get(&self, key: impl AsRef<str>) -> Option<Object<K>> {
        self.state.objects.get(key.as_ref()).map(|slot| Object::new(Arc::clone(&slot.entry)))
    }

    /// Whether there is an object with this key.
    pub fn contains(&self, key: impl AsRef<str>) -> bool {
        self.state.objects.contains_key(key.as_ref())
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.state.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.state.objects.is_empty()
    }

    /// How many bytes the bodies of all objects take.
    pub fn bytes(&self) -> usize {
        self.state.bytes
    }

    /// The version of the server that this shows. `None` before the first list, and once several scopes were listed, because each has
    /// its own: see [`version_of`](Self::version_of).
    pub fn version(&self) -> Option<&ResourceVersion> {
        match &*self.state.versions {
            [(_, version)] => Some(version),
            _ => None,
        }
    }

    /// The version of one scope.
    pub fn version_of(&self, scope: &Scope) -> Option<&ResourceVersion> {
        self.state.version(scope)
    }

    /// All objects, borrowed, in key order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Entry>> {
        self.state.objects.values().map(|slot| &slot.entry)
    }

    /// Everything, to be narrowed down.
    pub fn query(&self) -> Query<K> {
        Query {
            state: Arc::clone(&self.state),
            namespace: None,
            nothing: false,
            selector: LabelSelector::default(),
            indexes: Vec::new(),
            view: PhantomData,
        }
    }

    /// The objects of one namespace; an empty name means all namespaces.
    pub fn namespace(&self, namespace: impl Into<String>) -> Query<K> {
        self.query().namespace(namespace)
    }

    /// The objects whose labels satisfy a selector, such as `app=web,tier in (front, back),!legacy`.
    ///
    /// # Errors
    /// If the selector cannot be read.
    pub fn matching(&self, selector: &str) -> Result<Query<K>, SelectorError> {
        self.query().matching(selector)
    }

    /// The objects that have a value in an index.
    ///
    /// # Errors
    /// If there is no index of this name.
    pub fn by_index(&self, index: &str, value: impl Into<String>) -> Result<Query<K>, IndexError> {
        self.query().by_index(index, value)
    }

    /// The distinct values of an index, in order.
    ///
    /// # Errors
    /// If there is no index of this name.
    pub fn index_values(&self, index: &str) -> Result<Vec<String>, IndexError> {
        let index = self.state.index(index).ok_or_else(|| IndexError::Unknown(index.to_owned()))?;
        Ok(index.values().map(str::to_owned).collect())
    }

    /// Objects that could not be read, and why.
    pub fn set_aside(&self) -> impl Iterator<Item = &SetAside> {
        self.state.all_set_aside()
    }

    /// Objects that an index leaves out because its function panicked or could not decode them, and why.
    pub fn unindexed(&self) -> impl Iterator<Item = Unindexed<'_>> {
        let slots =
            self.state.unindexed.keys().filter_map(|key| self.state.objects.get_key_value(key.as_str()));
        slots.flat_map(move |(key, slot)| {
            slot.values.failures().filter_map(move |failure| {
                let index = self.state.indexes.iter().find(|index| index.id == failure.index)?;
                Some(Unindexed { key, index: &index.name, problem: &failure.text })
            })
        })
    }

    /// Whether the server has a newer state of this object, which could not be read.
    pub fn is_stale(&self, key: impl AsRef<str>) -> bool {
        self.state.objects.get(key.as_ref()).is_some_and(|slot| slot.stale)
    }

    /// The same moment, read as another type.
    pub fn read_as<T>(&self) -> Snapshot<T> {
        Snapshot::new(Arc::clone(&self.state))
    }

    /// Checks that every index says what its objects say, and that objects stand under their own keys. For tests.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let mut bytes = 0;
        for (key, slot) in &self.state.objects {
            bytes += slot.entry.size();
            if key != slot.entry.key() {
                return Err(format!("{} stands under the key {key}", slot.entry.key()));
            }
        }
        if bytes != self.state.bytes {
            return Err(format!("{bytes} bytes counted as {}", self.state.bytes));
        }
        for index in &self.state.indexes {
            let mut said: Vec<_> = Vec::new();
            for (key, slot) in &self.state.objects {
                let values = slot.values.found().filter(|value| value.index == index.id);
                said.extend(values.map(|value| (value.text.to_string(), key.clone())));
            }
            said.sort();
            let has: Vec<_> =
                index.pairs.keys().map(|pair| (pair.value.to_string(), pair.key.clone())).collect();
            if said != has {
                return Err(format!("index {} has {has:?}, its objects say {said:?}", index.name));
            }
        }
        let failed = self.state.objects.iter().filter(|(_, slot)| slot.values.failures().next().is_some());
        if !failed.map(|(key, _)| key).eq(self.state.unindexed.keys()) {
            return Err(format!("{:?} are said to lack values", self.state.unindexed));
        }
        Ok(())
    }

    /// How many values objects keep of indexes that are gone. For tests.
    #[doc(hidden)]
    pub fn stray_index_values(&self) -> usize {
        let known = |id: u32| self.state.indexes.iter().any(|index| index.id == id);
        let values = self.state.objects.values().flat_map(|slot| slot.values.iter());
        values.filter(|value| !known(value.index)).count()
    }
}

impl<K> Query<K> {
    /// Only objects of this namespace; an empty name means all namespaces.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        if namespace.is_empty() {
            return self;
        }
        self.nothing |= self.namespace.as_ref().is_some_and(|first| *first != namespace);
        self.namespace = Some(namespace);
        self
    }

    /// Only objects whose labels satisfy a selector.
    ///
    /// # Errors
    /// If the selector cannot be read.
    pub fn matching(self, selector: &str) -> Result<Self, SelectorError> {
        Ok(self.matching_selector(selector.parse()?))
    }

    /// Only objects whose labels satisfy a selector that was read before.
    pub fn matching_selector(mut self, selector: LabelSelector) -> Self {
        self.selector = if self.selector.is_empty() {
            selector
        } else {
            LabelSelector::new(self.selector.requirements().iter().chain(selector.requirements()).cloned())
        };
        self
    }

    /// Only objects that have a value in an index.
    ///
    /// # Errors
    /// If there is no index of this name.
    pub fn by_index(mut self, index: &str, value: impl Into<String>) -> Result<Self, IndexError> {
        let found = self.state.index(index).ok_or_else(|| IndexError::Unknown(index.to_owned()))?;
        self.indexes.push((Arc::clone(&found.name), value.into().into()));
        Ok(self)
    }

    /// The object with this name, if it is one of these.
    pub fn get(&self, name: &str) -> Option<Object<K>> {
        let key = ObjectKey::new(self.namespace.as_deref().unwrap_or_default(), name);
        let slot = self.state.objects.get(key.as_str())?;
        self.chooses(&slot.entry).then(|| Object::new(Arc::clone(&slot.entry)))
    }

    /// The objects, borrowed, without copying anything.
    pub fn iter(&self) -> Box<dyn Iterator<Item = &Arc<Entry>> + '_> {
        self.iter_after(None)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        let all = self.namespace.is_none() && self.indexes.is_empty() && self.selector.is_empty();
        if all { self.state.objects.len() } else { self.iter().count() }
    }

    /// At most `limit` of them, after the object with the key `after`: pages in key order that can be resumed.
    pub fn page(&self, after: Option<&ObjectKey>, limit: usize) -> Vec<Object<K>> {
        self.iter_after(after).take(limit).map(|entry| Object::new(Arc::clone(entry))).collect()
    }

    /// All of them as handles.
    pub fn list(&self) -> Vec<Object<K>> {
        self.page(None, usize::MAX)
    }

    /// Whether an object of the right namespace is one of these.
    fn chooses(&self, entry: &Entry) -> bool {
        let indexed = |(index, value): &(Arc<str>, Arc<str>)| {
            self.state.index(index).is_some_and(|index| index.has(value, entry.key()))
        };
        let counted = if planted(Bug::SecondIndexIgnored) { 1 } else { usize::MAX };
        !self.nothing && entry.matches(&self.selector) && self.indexes.iter().take(counted).all(indexed)
    }

    fn iter_after<'a>(&'a self, after: Option<&ObjectKey>) -> Box<dyn Iterator<Item = &'a Arc<Entry>> + 'a> {
        let chosen = move |entry: &&Arc<Entry>| self.chooses(entry);
        let in_namespace =
            move |key: &ObjectKey| self.namespace.is_none() || self.namespace.as_deref() == key.namespace();
        if self.nothing {
            return Box::new(std::iter::empty());
        }
        if let Some((index, value)) = self.indexes.first() {
            let after = after.cloned();
            let index = self.state.index(index).into_iter();
            let keys = index.flat_map(move |index| index.keys(value, after.as_ref()));
            let keys = keys.filter(move |key| in_namespace(key));
            let entries = keys.filter_map(|key| self.state.objects.get(key.as_str())).map(|slot| &slot.entry);
            return Box::new(entries.filter(chosen));
        }
        let first = self.namespace.as_ref().map(|namespace| format!("{namespace}/"));
        let start = match (after, first) {
            // A page may be asked for after a key of an earlier namespace.
            (Some(after), Some(first)) if after.as_str() < &*first => Bound::Included(first),
            (Some(after), _) => Bound::Excluded(after.as_str().to_owned()),
            (None, Some(first)) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let from: Bound<&str> = start.as_ref().map(String::as_str);
        let range = self.state.objects.range(from, Bound::Unbounded);
        let range = range.take_while(move |(key, _)| in_namespace(key));
        Box::new(range.map(|(_, Slot { entry, .. })| entry).filter(chosen))
    }
}

impl<'a, K> IntoIterator for &'a Query<K> {
    type Item = &'a Arc<Entry>;
    type IntoIter = Box<dyn Iterator<Item = &'a Arc<Entry>> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K> IntoIterator for Query<K> {
    type Item = Object<K>;
    type IntoIter = Objects<K>;

    fn into_iter(self) -> Objects<K> {
        Objects { query: self, ready: VecDeque::new(), last: None, done: false }
    }
}

impl<K> Iterator for Objects<K> {
    type Item = Object<K>;

    fn next(&mut self) -> Option<Object<K>> {
        if self.ready.is_empty() && !self.done {
            self.ready = self.query.page(self.last.as_ref(), CHUNK).into();
            self.done = self.ready.len() < CHUNK;
            self.last = self.ready.back().map(|object| object.key().clone());
        }
        self.ready.pop_front()
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.state))
    }
}

impl<K> std::fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("objects", &self.len())
            .field("versions", &self.state.versions)
            .finish()
    }
}

impl<K> std::fmt::Debug for Query<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Query")
            .field("namespace", &self.namespace)
            .field("selector", &self.selector.to_string())
            .field("indexes", &self.indexes)
            .finish_non_exhaustive()
    }
}

impl<K> std::fmt::Debug for Objects<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").field("query", &self.query).finish_non_exhaustive()
    }
}
