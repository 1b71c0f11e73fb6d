//! Writes a batch of changes into the store, and says what handlers must hear of it.

use std::sync::{Arc, MutexGuard};

use kube_wire::ResourceVersion;

use super::index::IndexSet;
use super::{Indexer, Slot, State, Writer};
use crate::delta_fifo::{Batch, Delta, DeltaType, Element, Scope};
use crate::event::Owed;
use crate::object::Entry;
use crate::planted::{Bug, planted};
use crate::{ObjectKey, SetAside};

/// How many objects without a readable key are shown at most.
const NAMELESS_SHOWN: usize = 16;

/// What every handler must hear of one key; of a resync, only those who are due.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) key: ObjectKey,
    pub(crate) owed: Owed,
    pub(crate) round: Option<Arc<[u64]>>,
}

/// What came of a batch.
#[derive(Default)]
pub(crate) struct Applied {
    pub(crate) notes: Vec<Note>,
    /// For a list of a scope that was empty: what handlers walk over instead of getting a note of each object.
    pub(crate) listed: Option<Listed>,
    /// How many changes were written.
    pub(crate) changes: u64,
    /// Events that said nothing new: repeated, or older than what is stored.
    pub(crate) ignored: u64,
    /// What a comparison with the server found that events should have brought.
    pub(crate) repairs: u64,
}

/// All objects of a scope, none of which any handler has been told of.
#[derive(Clone)]
pub(crate) struct Listed {
    pub(crate) state: Arc<State>,
    pub(crate) scope: Scope,
    /// Whether they were there before any handler.
    pub(crate) initial: bool,
}

/// That index functions have been asked about a batch, and by which set of indexes.
pub(crate) struct Prepared {
    generation: u32,
}

impl Note {
    /// Whether a list at `listed` shows that the cache was wrong about this although it had everything up to `seen`.
    fn is_repair(&self, seen: &ResourceVersion, listed: &ResourceVersion) -> bool {
        match &self.owed.now {
            Some(now) => *now.version() <= *seen,
            // When it vanished is not known: after `seen`, unless the list is of that very version.
            None => seen == listed,
        }
    }
}

impl Indexer {
    /// Works out what index functions say of a batch. They are the user's: this is to be called under no lock.
    pub(crate) fn prepare(&self, batch: &mut Batch) -> Prepared {
        let set = self.indexes.load_full();
        self.index(batch, &set);
        Prepared { generation: set.generation }
    }

    /// The right to write a batch; `None` if the indexes have changed since it was prepared, and it must be prepared again.
    pub(crate) fn begin(&self, prepared: &Prepared) -> Option<MutexGuard<'_, Writer>> {
        let writer = self.lock();
        let current = prepared.generation == self.indexes.load().generation;
        (current || planted(Bug::GenerationNotChecked)).then_some(writer)
    }

    /// Writes all of a batch in one step. Readers see all of it or nothing.
    ///
    /// `initial` says that what is added was there before any handler.
    pub(crate) fn apply(&self, mut writer: MutexGuard<'_, Writer>, batch: Batch, initial: bool) -> Applied {
        if let Some(touched) = &mut writer.touched {
            touched.extend(batch.items.iter().map(|(key, _)| key.clone()));
        }
        let mut state = State::clone(&self.cell.load());
        let mut applied = Applied::default();
        let trusted = batch.replaced.as_ref().is_none_or(|replaced| replaced.trusted);
        if let Some(replaced) = &batch.replaced {
            // What a list still cannot read it says itself, below.
            state.forget_set_aside(&replaced.scope);
        }
        let verifies = batch.replaced.as_ref().and_then(|replaced| replaced.verifies.as_ref());
        // Every object of an empty scope is an add, and handlers find them all in the state that is published here.
        let replaced = batch.replaced.as_ref().filter(|replaced| !replaced.gone);
        let scope = replaced.map(|replaced| &replaced.scope);
        let empty = scope.filter(|scope| state.range(scope.as_namespace()).next().is_none()).cloned();
        for (key, elements) in batch.items {
            for element in elements {
                match element {
                    Element::Delta(delta) => {
                        let Some(note) = write(&mut state, &key, delta, initial, trusted) else {
                            applied.ignored += 1;
                            continue;
                        };
                        applied.changes += 1;
                        let repair = verifies.is_some_and(|(seen, listed)| note.is_repair(seen, listed));
                        applied.repairs += u64::from(repair);
                        if !empty.as_ref().is_some_and(|scope| scope.contains(&key)) {
                            applied.notes.push(note);
                        }
                    }
                    Element::Aside(aside) => set_aside(&mut state, &key, aside),
                }
            }
        }
        let relist = batch.replaced.is_some();
        if let Some(replaced) = batch.replaced {
            state.nameless.retain(|(scope, _)| *scope != replaced.scope);
            if replaced.gone {
                state.versions.retain(|(scope, _)| *scope != replaced.scope);
            }
        }
        state.nameless.extend(batch.nameless.into_iter().map(|(scope, aside)| (scope, Arc::new(aside))));
        let surplus = state.nameless.len().saturating_sub(NAMELESS_SHOWN);
        if !planted(Bug::NamelessUnbounded) {
            state.nameless.drain(..surplus);
        }
        for (scope, version) in batch.versions {
            // A list may be of an older state, after a restore; events that come twice must not turn the time back.
            let older = state.version(&scope).is_some_and(|now| version < *now);
            if relist || !older {
                state.set_version(&scope, version);
            }
        }
        let state = self.publish(&mut writer, state);
        applied.listed = empty.map(|scope| Listed { state, scope, initial });
        applied
    }

    /// Works out index values that are missing or were worked out for another set of indexes.
    fn index(&self, batch: &mut Batch, set: &IndexSet) {
        let state = self.cell.load();
        for (key, elements) in &mut batch.items {
            for element in elements {
                let Element::Delta(delta) = element else { continue };
                let known = || {
                    state
                        .objects
                        .get(key.as_str())
                        .is_some_and(|slot| Arc::ptr_eq(&slot.entry, &delta.object))
                };
                let wanted = !matches!(delta.kind, DeltaType::Deleted | DeltaType::Sync);
                if !wanted || delta.values.generation == set.generation || known() {
                    continue;
                }
                delta.values = set.values(&delta.object);
            }
        }
    }

    pub(super) fn write_one(&self, key: ObjectKey, object: Option<Arc<Entry>>) -> Option<Arc<Entry>> {
        let before = self.cell.load().objects.get(key.as_str()).map(|slot| Arc::clone(&slot.entry));
        let delta = match (&before, object) {
            (_, Some(object)) => Delta::new(DeltaType::Replaced, object),
            (Some(before), None) => Delta::new(DeltaType::Deleted, Arc::clone(before)),
            (None, None) => return None,
        };
        let mut batch = Batch { items: vec![(key, vec![Element::Delta(delta)])], ..Batch::default() };
        let writer = loop {
            let prepared = self.prepare(&mut batch);
            if let Some(writer) = self.begin(&prepared) {
                break writer;
            }
        };
        self.apply(writer, batch, false);
        before
    }
}

/// Writes one change and says what handlers must hear.
///
/// | change | store has nothing | same uid, same version | same uid, other version | another uid |
/// | --- | --- | --- | --- | --- |
/// | added, updated, replaced | add | nothing | update | delete (missed), add |
/// | replaced, and nothing is trusted | add | update, if the content differs | update | delete (missed), add |
/// | deleted | nothing | delete | delete | delete (missed), if it is not older |
/// | sync | nothing | update, to those due | update, to those due | update, to those due |
///
/// An event that is older than what is stored is a repetition, and says nothing.
fn write(state: &mut State, key: &ObjectKey, delta: Delta, initial: bool, trusted: bool) -> Option<Note> {
    let note = |owed, round| Some(Note { key: key.clone(), owed, round });
    let old = state.objects.get(key.as_str()).map(|slot| (Arc::clone(&slot.entry), slot.stale));
    if delta.kind == DeltaType::Sync {
        // The store's own object, whatever came round: nothing goes back in time.
        let (now, _) = old?;
        return note(Owed::update(Arc::clone(&now), now), delta.round);
    }
    let new = delta.object;
    if delta.kind == DeltaType::Deleted {
        // Whether or not it was ever readable: it is gone.
        if !planted(Bug::SetAsideKept) {
            state.set_aside.remove(key);
        }
        let (old, _) = old?;
        let another = old.uid() != new.uid();
        let judged = another && !planted(Bug::DeleteOfEarlierObject);
        if judged && !delta.final_state_unknown && *new.version() < *old.version() {
            return None;
        }
        state.remove(key);
        // A delete that was missed is of whatever there is; and the end of another object means that this one's was missed.
        let unknown = delta.final_state_unknown || another;
        let last = if unknown { Arc::clone(&old) } else { new };
        return note(Owed::delete(old, last, unknown), None);
    }
    let slot = Slot { entry: Arc::clone(&new), values: delta.values, stale: false };
    let Some((old, stale)) = old else {
        state.set_aside.remove(key);
        state.insert(slot);
        return note(Owed::add(new, initial && delta.kind == DeltaType::Replaced), None);
    };
    if delta.kind != DeltaType::Replaced && *new.version() < *old.version() {
        return None;
    }
    let mut same = old.is_same_version(&new) && (trusted || old.is_same_content(&new));
    same &= !(planted(Bug::RepetitionTold) && delta.kind != DeltaType::Replaced);
    same &= !(planted(Bug::RelistTellsAll) && delta.kind == DeltaType::Replaced);
    if same && !stale {
        return None;
    }
    state.set_aside.remove(key);
    if same {
        // What could not be read turned out to be what is stored.
        if !planted(Bug::StaleAfterSame) {
            state.unmark(key);
        }
        return None;
    }
    let recreated = old.uid() != new.uid() && !planted(Bug::RecreatedAsUpdated);
    state.insert(slot);
    let owed = if recreated { Owed::recreate(old, new) } else { Owed::update(old, new) };
    note(owed.restored(!trusted), None)
}

/// Keeps the old value, marked, and shows what is wrong with the new one.
fn set_aside(state: &mut State, key: &ObjectKey, aside: SetAside) {
    if let Some(slot) = state.objects.get(key.as_str()).filter(|slot| !slot.stale) {
        let slot = Slot { stale: true, ..slot.clone() };
        state.insert(slot);
    }
    if !planted(Bug::StaleMarkLost) {
        state.set_aside.insert(key.clone(), Arc::new(aside));
    }
}
