//! Adds and removes indexes while the store is in use.

use std::sync::Arc;

use super::index::{IndexDef, IndexSet, IndexValue};
use super::state::{IndexTree, Pair};
use super::tree::Tree;
use super::{IndexBy, IndexError, IndexValues, Indexer, Slot, State};
use crate::ObjectKey;
use crate::interleave::lock;
use crate::planted::{Bug, planted};

impl Indexer {
    /// Adds an index. It is built from a snapshot while changes go on, and usable when this returns.
    ///
    /// # Errors
    /// If there is one of this name.
    pub fn add_index(&self, name: &str, by: IndexBy) -> Result<(), IndexError> {
        let _one_at_a_time = lock(&self.building);
        let (set, before) = {
            let mut writer = self.lock();
            let set =
                self.indexes.load().with(name, by).ok_or_else(|| IndexError::Exists(name.to_owned()))?;
            let set = Arc::new(set);
            // From here on arriving objects get values for the new index, and changed keys are noted.
            self.indexes.store(Arc::clone(&set));
            writer.touched = Some(Vec::new());
            (set, self.cell.load_full())
        };
        self.publish_rebuilt(Rebuilt::new(&before, &set, set.indexes.last()));
        Ok(())
    }

    /// Removes an index, and frees the values that objects have in it. Changes go on meanwhile.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn remove_index(&self, name: &str) -> Result<(), IndexError> {
        let _one_at_a_time = lock(&self.building);
        let (set, before) = {
            let mut writer = self.lock();
            let set =
                self.indexes.load().without(name).ok_or_else(|| IndexError::Unknown(name.to_owned()))?;
            let set = Arc::new(set);
            self.indexes.store(Arc::clone(&set));
            writer.touched = Some(Vec::new());
            let mut state = State::clone(&self.cell.load());
            state.indexes.retain(|index| *index.name != *name);
            (set, self.publish(&mut writer, state))
        };
        self.publish_rebuilt(Rebuilt::new(&before, &set, None));
        Ok(())
    }

    /// The names of all indexes.
    pub fn index_names(&self) -> Vec<String> {
        self.indexes.load().indexes.iter().map(|index| index.name.to_string()).collect()
    }

    /// Publishes what was worked out from an earlier state, brought up to date.
    fn publish_rebuilt(&self, mut rebuilt: Rebuilt) {
        let mut writer = self.lock();
        let mut state = State::clone(&self.cell.load());
        let touched = writer.touched.take().filter(|_| !planted(Bug::TouchedNotCaughtUp));
        for key in touched.unwrap_or_default() {
            rebuilt.catch_up(&key, &state);
        }
        state.objects = rebuilt.objects;
        state.unindexed = rebuilt.unindexed;
        state.indexes.extend(rebuilt.added);
        self.publish(&mut writer, state);
    }
}

/// Objects with their values for a new set of indexes, as they were when the work began, brought up to date key by key.
struct Rebuilt {
    objects: Tree<ObjectKey, Slot>,
    unindexed: Tree<ObjectKey, ()>,
    /// The index that the new set has more, if it has one more.
    added: Option<IndexTree>,
}

impl Rebuilt {
    fn new(state: &State, set: &IndexSet, added: Option<&IndexDef>) -> Self {
        let only = IndexSet { generation: set.generation, indexes: added.cloned().into_iter().collect() };
        let mut pairs = Vec::new();
        let mut unindexed = Vec::new();
        let mut shared = hashbrown::HashSet::<Arc<str>>::new();
        let objects = state.objects.iter().map(|(key, slot)| {
            let new = only.values(&slot.entry);
            let new = new.iter().map(|value| {
                let text = Arc::clone(shared.get_or_insert_with(&*value.text, |text| text.into()));
                IndexValue { text, ..value.clone() }
            });
            // Values of indexes that are gone are left behind here.
            let kept =
                slot.values.iter().filter(|value| set.indexes.iter().any(|index| index.id == value.index));
            let all: Vec<IndexValue> = kept.cloned().chain(new).collect();
            let values =
                IndexValues { generation: set.generation, values: (!all.is_empty()).then(|| all.into()) };
            pairs.extend(pairs_of(added.map(|index| index.id), key, &values));
            unindexed.extend(values.failures().next().map(|_| (key.clone(), ())));
            (key.clone(), Slot { values, ..slot.clone() })
        });
        let objects = objects.collect();
        pairs.sort_unstable();
        let pairs = pairs.into_iter().map(|pair| (pair, ())).collect();
        let added = added.map(|index| IndexTree { id: index.id, name: Arc::clone(&index.name), pairs });
        Self { objects, unindexed: unindexed.into_iter().collect(), added }
    }

    /// Takes one key over from the state that has it right.
    fn catch_up(&mut self, key: &ObjectKey, state: &State) {
        let old = self.objects.remove(key);
        let new = state.objects.get(key.as_str()).cloned();
        if let (Some(old), Some(new)) = (&old, &new)
            && Arc::ptr_eq(&old.entry, &new.entry)
        {
            // Only marked stale: its values are the ones worked out here.
            self.objects.insert(key.clone(), Slot { stale: new.stale, ..old.clone() });
            return;
        }
        if let Some(index) = &mut self.added {
            let pairs = |slot: Option<&Slot>| -> Vec<Pair> {
                slot.map(|slot| pairs_of(Some(index.id), key, &slot.values).collect()).unwrap_or_default()
            };
            let (gone, come) = (pairs(old.as_ref()), pairs(new.as_ref()));
            for pair in gone {
                index.pairs.remove(&pair);
            }
            for pair in come {
                index.pairs.insert(pair, ());
            }
        }
        self.unindexed.remove(key);
        if let Some(new) = new {
            if new.values.failures().next().is_some() {
                self.unindexed.insert(key.clone(), ());
            }
            self.objects.insert(key.clone(), new);
        }
    }
}

/// The pairs of one object in one index.
fn pairs_of(id: Option<u32>, key: &ObjectKey, values: &IndexValues) -> impl Iterator<Item = Pair> {
    let values = values.found().filter(move |value| Some(value.index) == id);
    values.map(|value| Pair { value: Arc::clone(&value.text), key: key.clone() })
}
