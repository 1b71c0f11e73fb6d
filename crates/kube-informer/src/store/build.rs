//! Adds and removes indexes while the store is in use.

use std::sync::{Arc, PoisonError};

use super::index::{IndexDef, IndexSet};
use super::state::{IndexTree, Pair};
use super::{IndexBy, IndexError, IndexValues, Indexer, Slot, State, apply};
use crate::{ObjectKey, SetAside};

impl Indexer {
    /// Adds an index. It is built from a snapshot while changes go on, and usable when this returns.
    ///
    /// # Errors
    /// If there is one of this name.
    pub fn add_index(&self, name: &str, by: IndexBy) -> Result<(), IndexError> {
        let _one_at_a_time = self.building.lock().unwrap_or_else(PoisonError::into_inner);
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
        let index = set.indexes.last().expect("just added");
        let mut built = Built::from_state(&before, &set, index);

        let mut writer = self.lock();
        let mut state = State::clone(&self.cell.load());
        for key in writer.touched.take().unwrap_or_default() {
            built.catch_up(&key, &state);
        }
        state.objects = built.objects;
        state.indexes.push(built.index);
        for aside in built.set_aside {
            if let Some(key) = aside.key.clone() {
                state.set_aside.insert(key, Arc::new(aside));
            }
        }
        self.publish(&mut writer, state);
        Ok(())
    }

    /// Removes an index.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn remove_index(&self, name: &str) -> Result<(), IndexError> {
        let _one_at_a_time = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writer = self.lock();
        let set = self.indexes.load().without(name).ok_or_else(|| IndexError::Unknown(name.to_owned()))?;
        self.indexes.store(Arc::new(set));
        let mut state = State::clone(&self.cell.load());
        state.indexes.retain(|index| *index.name != *name);
        self.publish(&mut writer, state);
        Ok(())
    }

    /// The names of all indexes.
    pub fn index_names(&self) -> Vec<String> {
        self.indexes.load().indexes.iter().map(|index| index.name.to_string()).collect()
    }
}

/// Objects and the new index as they were when the work began, brought up to date key by key.
struct Built {
    objects: super::tree::Tree<ObjectKey, Slot>,
    index: IndexTree,
    set_aside: Vec<SetAside>,
}

impl Built {
    fn from_state(state: &State, set: &IndexSet, index: &IndexDef) -> Self {
        let only = IndexSet { generation: set.generation, indexes: vec![index.clone()] };
        let mut pairs = Vec::new();
        let mut set_aside = Vec::new();
        let mut shared = hashbrown::HashSet::<Arc<str>>::new();
        let objects = state.objects.iter().map(|(key, slot)| {
            let added = match apply::values(&only, &slot.entry) {
                Ok(values) => values,
                Err(problem) => {
                    let version = Some(slot.entry.version().clone());
                    set_aside.push(SetAside { key: Some(key.clone()), version, problem, wrong_kind: false });
                    IndexValues::default()
                }
            };
            let added: Vec<(u32, Arc<str>)> = added
                .iter()
                .map(|(id, value)| (*id, Arc::clone(shared.get_or_insert_with(&**value, |text| text.into()))))
                .collect();
            pairs.extend(added.iter().map(|(_, value)| Pair { value: Arc::clone(value), key: key.clone() }));
            let all: Vec<_> = slot.values.iter().cloned().chain(added).collect();
            let values =
                IndexValues { generation: set.generation, values: (!all.is_empty()).then(|| all.into()) };
            (key.clone(), Slot { values, ..slot.clone() })
        });
        let objects = objects.collect();
        pairs.sort_unstable();
        let pairs = pairs.into_iter().map(|pair| (pair, ())).collect();
        let index = IndexTree { id: index.id, name: Arc::clone(&index.name), pairs };
        Self { objects, index, set_aside }
    }

    /// Takes one key over from the state that has it right.
    fn catch_up(&mut self, key: &ObjectKey, state: &State) {
        let id = self.index.id;
        self.set_aside.retain(|aside| aside.key.as_ref() != Some(key));
        let old = self.objects.remove(key);
        let new = state.objects.get(key.as_str()).cloned();
        if let (Some(old), Some(new)) = (&old, &new)
            && Arc::ptr_eq(&old.entry, &new.entry)
        {
            // Only marked stale: its values are the ones worked out here.
            self.objects.insert(key.clone(), Slot { stale: new.stale, ..old.clone() });
            return;
        }
        let pairs = |slot: Option<&Slot>| -> Vec<Pair> {
            let values = slot.into_iter().flat_map(|slot| slot.values.iter()).filter(|(of, _)| *of == id);
            values.map(|(_, value)| Pair { value: Arc::clone(value), key: key.clone() }).collect()
        };
        for pair in pairs(old.as_ref()) {
            self.index.pairs.remove(&pair);
        }
        for pair in pairs(new.as_ref()) {
            self.index.pairs.insert(pair, ());
        }
        if let Some(new) = new {
            self.objects.insert(key.clone(), new);
        }
    }
}
