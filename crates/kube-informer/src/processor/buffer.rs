//! What one handler has yet to hear.
//!
//! Up to a bound, every event. Past it, what each key owes, merged: so memory is bounded by the number of keys.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::ObjectKey;
use crate::event::Owed;
use crate::planted::{Bug, planted};
use crate::store::State;

/// Events, then merged events; before both, the store as it was when the handler came.
pub(super) struct Buffer {
    replay: Option<Replay>,
    queue: VecDeque<Waiting>,
    merged: HashMap<ObjectKey, (u64, Waiting)>,
    /// The merged keys by when they came, so that one in the middle can leave without a trace.
    merged_order: BTreeMap<u64, ObjectKey>,
    next_place: u64,
    limit: usize,
    /// How many initial adds have not been heard yet.
    initial: usize,
    /// How many events were merged into others.
    pub(super) merges: u64,
}

struct Waiting {
    owed: Owed,
    since: Instant,
}

/// Walks over a state, object by object; a million adds are never queued.
struct Replay {
    state: Arc<State>,
    after: Option<ObjectKey>,
    left: usize,
    since: Instant,
}

impl Buffer {
    pub(super) fn new(limit: usize, replay: Option<Arc<State>>) -> Self {
        let replay = replay.filter(|state| !state.objects.is_empty()).map(|state| {
            let left = state.objects.len();
            let first = state.objects.first_key_value().map(|(key, _)| key.clone());
            let after = first.filter(|_| planted(Bug::LateHandlerGap));
            Replay { state, after, left, since: Instant::now() }
        });
        Self {
            replay,
            queue: VecDeque::new(),
            merged: HashMap::new(),
            merged_order: BTreeMap::new(),
            next_place: 0,
            limit,
            initial: 0,
            merges: 0,
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
        if self.merged_order.is_empty() && room {
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
        waiting.owed = std::mem::take(&mut waiting.owed).then(owed);
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
        if let Some(replay) = &mut self.replay {
            if let Some(owed) = replay.next() {
                self.initial += 1;
                return Some(owed);
            }
            self.replay = None;
        }
        if let Some(waiting) = self.queue.pop_front() {
            return Some(waiting.owed);
        }
        if let Some((_, key)) = self.merged_order.pop_first() {
            return self.merged.remove(&key).map(|(_, waiting)| waiting.owed);
        }
        self.merged.shrink_to(self.limit);
        self.queue.shrink_to(self.limit);
        None
    }

    /// An initial add has been heard, and its callback has returned.
    pub(super) fn heard_initial(&mut self) {
        self.initial -= 1;
    }

    /// Whether all that was there before the handler has been heard.
    pub(super) fn initial_done(&mut self) -> bool {
        if self.replay.as_ref().is_some_and(|replay| replay.left == 0) {
            self.replay = None;
        }
        planted(Bug::HandlerSyncedTooEarly) || (self.replay.is_none() && self.initial == 0)
    }

    /// How many events wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.merged.len() + self.replay.as_ref().map_or(0, |replay| replay.left)
    }

    /// Since when the oldest waits.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let merged =
            || self.merged_order.values().next().and_then(|key| self.merged.get(key)).map(|(_, w)| w);
        let queued = self.queue.front().or_else(merged).map(|waiting| waiting.since);
        self.replay.as_ref().filter(|replay| replay.left > 0).map(|replay| replay.since).or(queued)
    }
}

impl Replay {
    fn next(&mut self) -> Option<Owed> {
        let from = self.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let (key, slot) = self.state.objects.range(from, Bound::Unbounded).next()?;
        let again = planted(Bug::DuplicateInitialAdd) && self.left == self.state.objects.len();
        self.left -= 1;
        self.after = Some(key.clone()).filter(|_| !again);
        Some(Owed::add(Arc::clone(&slot.entry), true))
    }
}

#[cfg(test)]
mod tests;
