//! What one handler has yet to hear.
//!
//! Up to a bound, every event. Past it, what each key owes, merged: so memory is bounded by the number of keys.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;
use tokio::time::Instant;

use super::walk::Walk;
use crate::ObjectKey;
use crate::event::Owed;
use crate::object::Entry;
use crate::planted::{Bug, planted};
use crate::store::State;

/// Walks over lists, then events, then merged events.
pub(super) struct Buffer {
    /// Lists that the handler gets object by object. Every change of such an object comes after them.
    walks: VecDeque<Walk>,
    queue: VecDeque<Waiting>,
    merged: HashMap<ObjectKey, (u64, Waiting)>,
    /// The merged keys by when they came, so that one in the middle can leave without a trace.
    merged_order: BTreeMap<u64, ObjectKey>,
    next_place: u64,
    limit: usize,
    hops: Hops,
    /// How many states between are kept, for all keys together.
    kept: usize,
    /// Whether an object came and went unheard, of which no state could be kept.
    lost: bool,
    /// How many initial adds have not been heard yet.
    initial: usize,
    /// How many events were merged into others.
    pub(super) merges: u64,
}

/// Does what a state of an object asks for.
type MapState = dyn Fn(&Arc<Entry>) + Send + Sync;

/// What becomes of the states that a merge leaves out.
///
/// A handler needs the newest state only. A controller's trigger needs every state that the store has shown, because a reconcile
/// may have acted on it: an object that went from owner A to B to C concerns B, too.
#[derive(Clone, Default)]
pub(crate) enum Hops {
    /// They are skipped.
    #[default]
    Skip,
    /// They are kept for a mapping that is the user's and must not run under a lock: as many as the buffer is long.
    Keep,
    /// They are mapped at once, by a function of the library that neither blocks nor calls back.
    Map(Arc<MapState>),
}

impl Hops {
    /// Merges two changes of a key. `kept` counts the states that are kept, up to `limit`.
    fn merge(&self, first: Owed, next: Owed, kept: &mut usize, limit: usize) -> Owed {
        match self {
            Self::Skip => first.then(next),
            Self::Keep => {
                let (mut owed, left_out) = first.then_without(next);
                let merged = owed.merged.get_or_insert_default();
                for state in left_out {
                    if *kept < limit {
                        merged.between.push(state);
                        *kept += 1;
                    } else {
                        merged.lost = true;
                    }
                }
                owed
            }
            Self::Map(map) => {
                let (mut owed, left_out) = first.then_without(next);
                for state in &left_out {
                    map(state);
                }
                let left = owed.told.is_some() || owed.now.is_some();
                owed.merged = left.then(Box::default);
                owed
            }
        }
    }
}

struct Waiting {
    owed: Owed,
    since: Instant,
}

impl Buffer {
    /// A buffer that first gives what is in `found`.
    pub(super) fn new(limit: usize, hops: Hops, found: Option<Arc<State>>) -> Self {
        Self {
            walks: found.map(Walk::joining).into_iter().filter(|walk| walk.left > 0).collect(),
            queue: VecDeque::new(),
            merged: HashMap::new(),
            merged_order: BTreeMap::new(),
            next_place: 0,
            limit,
            hops,
            kept: 0,
            lost: false,
            initial: 0,
            merges: 0,
        }
    }

    /// Adds a list of objects that the store did not have before. They are not queued, whatever their number.
    pub(super) fn walk(&mut self, mut walk: Walk) {
        let queued = || self.queue.iter().filter_map(|waiting| waiting.owed.key());
        let waits = self.merged.keys().chain(queued()).any(|key| walk.contains(key));
        if !waits || planted(Bug::WalkOvertakesDeletes) {
            self.walks.extend(Some(walk).filter(|walk| walk.left > 0));
            return;
        }
        // A namespace that left and came back: its deletes wait, and a walk would overtake them.
        while let Some((key, owed)) = walk.next() {
            self.push(key, owed);
        }
    }

    pub(super) fn push(&mut self, key: ObjectKey, owed: Owed) {
        if planted(Bug::DroppedEvent) && owed.told.is_some() && owed.died.is_none() {
            return;
        }
        self.initial += usize::from(owed.initial);
        let since = Instant::now();
        // Once anything is merged, everything new is, until the merged have been heard: order within a key stays.
        let room = self.queue.len() < self.limit || planted(Bug::UnboundedBuffer);
        let none_merged = self.merged_order.is_empty() || planted(Bug::QueuedPastMerged);
        if none_merged && room {
            self.queue.push_back(Waiting { owed, since });
            return;
        }
        let Some((place, waiting)) = self.merged.get_mut(&key) else {
            self.merged_order.insert(self.next_place, key.clone());
            self.merged.insert(key, (self.next_place, Waiting { owed, since }));
            self.next_place += 1;
            return;
        };
        self.merges += 1;
        self.initial -= usize::from(owed.initial) + usize::from(waiting.owed.initial);
        let first = std::mem::take(&mut waiting.owed);
        waiting.owed = self.hops.merge(first, owed, &mut self.kept, self.limit);
        if waiting.owed.is_only_lost() && !planted(Bug::GoneObjectsKept) {
            // Objects that came and went must not fill the memory: one note stands for all of them.
            self.lost = true;
            waiting.owed.merged = None;
        }
        if waiting.owed.is_nothing() {
            // It came and went unheard.
            self.merged_order.remove(place);
            self.merged.remove(&key);
        } else {
            self.initial += usize::from(waiting.owed.initial);
        }
    }

    /// What is to be heard next.
    pub(super) fn pop(&mut self) -> Option<Owed> {
        while let Some(walk) = self.walks.front_mut() {
            if let Some((_, owed)) = walk.next() {
                self.initial += usize::from(owed.initial);
                return Some(owed);
            }
            self.walks.pop_front();
        }
        if let Some(waiting) = self.queue.pop_front() {
            return Some(waiting.owed);
        }
        if let Some((_, key)) = self.merged_order.pop_first() {
            let owed = self.merged.remove(&key).map(|(_, waiting)| waiting.owed);
            let between = owed.iter().filter_map(|owed| owed.merged.as_ref());
            let freed = between.map(|merged| merged.between.len()).sum::<usize>();
            self.kept -= if planted(Bug::KeptStatesNeverFreed) { 0 } else { freed };
            return owed;
        }
        self.merged.shrink_to(self.limit);
        self.queue.shrink_to(self.limit);
        std::mem::take(&mut self.lost).then(Owed::lost).filter(|_| !planted(Bug::LostNoteDropped))
    }

    /// An initial add has been heard, and its callback has returned.
    pub(super) fn heard_initial(&mut self) {
        self.initial -= 1;
    }

    /// Whether all that was there before the handler has been heard.
    pub(super) fn initial_done(&self) -> bool {
        let walking = self.walks.iter().any(|walk| walk.initial && walk.left > 0);
        planted(Bug::HandlerSyncedTooEarly) || (self.initial == 0 && !walking)
    }

    /// How many events wait.
    pub(super) fn len(&self) -> usize {
        self.buffered() + self.walks.iter().map(|walk| walk.left).sum::<usize>()
    }

    /// How many of them the buffer holds one by one.
    pub(super) fn buffered(&self) -> usize {
        self.queue.len() + self.merged.len()
    }

    /// Since when the oldest waits.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let merged =
            || self.merged_order.values().next().and_then(|key| self.merged.get(key)).map(|(_, w)| w);
        let queued = self.queue.front().or_else(merged).map(|waiting| waiting.since);
        self.walks.iter().find(|walk| walk.left > 0).map(|walk| walk.since).or(queued)
    }
}

#[cfg(test)]
mod tests;
