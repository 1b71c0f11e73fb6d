//! Indexes: from an object to the values it is found by.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube_wire::FieldPath;

use crate::intake::panic_text;
use crate::object::{Entry, Object, View};

/// What an index is made from.
///
/// Values are worked out once, when an object arrives, and kept beside it.
///
/// A function that panics harms this index alone: the object is stored, handlers are notified, other indexes have it, and
/// [`Snapshot::unindexed`](crate::Snapshot::unindexed) shows what failed.
#[derive(Clone)]
pub struct IndexBy {
    extract: Arc<Extract>,
    pub(crate) needs_bytes: bool,
}

type Extract = dyn Fn(&Arc<Entry>) -> Result<Vec<String>, String> + Send + Sync;

impl IndexBy {
    /// The value of a label. Objects without it are not in the index.
    pub fn label(key: impl Into<String>) -> Self {
        let key = key.into();
        Self::metadata(move |entry| entry.label(&key).map(str::to_owned).into_iter().collect())
    }

    /// The uids of an object's owners.
    pub fn owner() -> Self {
        Self::metadata(|entry| entry.owners().iter().map(|owner| owner.uid.to_string()).collect())
    }

    /// What stands at a field, read from the bytes without decoding. A cache that keeps decoded values cannot have it.
    pub fn field(path: FieldPath) -> Self {
        Self { needs_bytes: true, ..Self::metadata(move |entry| entry.texts(&path)) }
    }

    /// Anything in the metadata, which is read without decoding.
    pub fn metadata(values: impl Fn(&Entry) -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { extract: Arc::new(move |entry| Ok(values(entry))), needs_bytes: false }
    }

    /// Anything in the object as a `K`, which is decoded once on arrival if the function asks for it.
    ///
    /// An object that the function asks for and that cannot be decoded is left out of the index, as after a panic.
    pub fn object<K: View, I>(values: impl Fn(&Object<K>) -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let extract = move |entry: &Arc<Entry>| {
            let object = Object::<K>::new(Arc::clone(entry));
            let values = values(&object).into_iter().map(Into::into).collect();
            object.failure().map_or(Ok(values), |error| Err(error.to_string()))
        };
        Self { extract: Arc::new(extract), needs_bytes: false }
    }
}

impl std::fmt::Debug for IndexBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IndexBy")
    }
}

/// One value of an object in an index, or why it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexValue {
    pub(crate) index: u32,
    /// Whether the index function failed; then `text` is the problem.
    pub(crate) failed: bool,
    pub(crate) text: Arc<str>,
}

/// The values one object has in all indexes of a set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IndexValues {
    /// Which set of indexes they were worked out for.
    pub(crate) generation: u32,
    pub(crate) values: Option<Arc<[IndexValue]>>,
}

impl IndexValues {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &IndexValue> {
        self.values.iter().flat_map(|values| values.iter())
    }

    /// The values that are in indexes.
    pub(crate) fn found(&self) -> impl Iterator<Item = &IndexValue> {
        self.iter().filter(|value| !value.failed)
    }

    /// The problems of index functions that failed.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &IndexValue> {
        self.iter().filter(|value| value.failed)
    }
}

/// The indexes of a cache at one time. A new set is made when one is added or removed.
#[derive(Debug, Default)]
pub(crate) struct IndexSet {
    pub(crate) generation: u32,
    pub(crate) indexes: Vec<IndexDef>,
}

#[derive(Debug, Clone)]
pub(crate) struct IndexDef {
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
    pub(crate) by: IndexBy,
    /// Whether a failure was logged; one line is enough for an index that fails for every object.
    logged: Arc<AtomicBool>,
}

impl IndexDef {
    /// Works out the values of an object. User code runs inside.
    fn values(&self, entry: &Arc<Entry>) -> Result<Vec<String>, String> {
        let extract = AssertUnwindSafe(|| (self.by.extract)(entry));
        let found = catch_unwind(extract)
            .unwrap_or_else(|panic| Err(format!("an index function panicked: {}", panic_text(panic))));
        found.inspect_err(|problem| {
            if !self.logged.swap(true, Ordering::Relaxed) {
                let (index, object) = (&*self.name, entry.key());
                tracing::warn!(index, %object, problem, "an index failed; objects it fails for are left out of it");
            }
        })
    }
}

impl IndexSet {
    /// Works out all values of an object. User code runs inside.
    pub(crate) fn values(&self, entry: &Arc<Entry>) -> IndexValues {
        let mut all = Vec::new();
        for index in &self.indexes {
            let (texts, failed) = match index.values(entry) {
                Ok(mut values) => {
                    values.sort_unstable();
                    values.dedup();
                    (values, false)
                }
                Err(problem) => (vec![problem], true),
            };
            all.extend(texts.into_iter().map(|text| IndexValue {
                index: index.id,
                failed,
                text: text.into(),
            }));
        }
        let values = (!all.is_empty()).then(|| all.into());
        IndexValues { generation: self.generation, values }
    }

    pub(crate) fn id(&self, name: &str) -> Option<u32> {
        self.indexes.iter().find(|index| *index.name == *name).map(|index| index.id)
    }

    pub(crate) fn with(&self, name: &str, by: IndexBy) -> Option<Self> {
        if self.id(name).is_some() {
            return None;
        }
        // The generation serves as the id: both only ever grow.
        let generation = self.generation + 1;
        let mut indexes = self.indexes.clone();
        indexes.push(IndexDef { id: generation, name: name.into(), by, logged: Arc::default() });
        Some(Self { generation, indexes })
    }

    pub(crate) fn without(&self, name: &str) -> Option<Self> {
        let indexes: Vec<_> = self.indexes.iter().filter(|index| *index.name != *name).cloned().collect();
        (indexes.len() < self.indexes.len()).then_some(Self { generation: self.generation + 1, indexes })
    }
}
