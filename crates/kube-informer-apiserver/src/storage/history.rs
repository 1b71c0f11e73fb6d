//! The recent changes of one kind: a ring that is bounded in length and age, and that can be read backwards.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::time::Instant;

use super::table::Objects;
use crate::object::{EventType, Form, Stored};

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) at: Instant,
    pub(crate) event: EventType,
    /// The object after the change; for a deletion its last state, at the revision of the deletion.
    pub(crate) object: Arc<Stored>,
    /// The object before the change.
    pub(crate) old: Option<Arc<Stored>>,
    /// The object of before for watchers whose selector it left, made when the first one needs it.
    left: OnceLock<Stored>,
}

impl Change {
    pub(crate) fn new(
        revision: u64,
        at: Instant,
        event: EventType,
        object: Arc<Stored>,
        old: Option<Arc<Stored>>,
    ) -> Self {
        Self { revision, at, event, object, old, left: OnceLock::new() }
    }

    /// For a watcher whose selector the object left: the object of before, at the revision of the change.
    pub(crate) fn left(&self, old: &Stored, form: &Form) -> Bytes {
        let left = self.left.get_or_init(|| old.at_revision(EventType::Deleted, self.revision));
        left.line(EventType::Deleted, form)
    }
}

/// Changes in the order of their revisions.
#[derive(Debug, Default)]
pub(crate) struct History {
    changes: VecDeque<Arc<Change>>,
    /// Changes up to this revision must not be asked for.
    floor: u64,
    /// Changes up to this revision are really gone.
    dropped: u64,
}

impl History {
    pub(crate) fn beginning_at(revision: u64) -> Self {
        Self { changes: VecDeque::new(), floor: revision, dropped: revision }
    }

    /// The oldest revision that can be read at or watched from.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    pub(crate) fn push(&mut self, change: Arc<Change>) {
        self.changes.push_back(change);
    }

    /// The revision of the newest change that is older than a moment, 0 if there is none.
    pub(crate) fn revision_before(&self, then: Instant) -> u64 {
        // Looking at the oldest one first makes the common case, nothing to forget, cheap.
        if self.changes.front().is_none_or(|change| change.at >= then) {
            return 0;
        }
        let count = self.changes.partition_point(|change| change.at < then);
        self.changes[count - 1].revision
    }

    /// Forgets changes up to a revision, but keeps those that a watcher, which has read up to `read`, still waits for.
    pub(crate) fn forget(&mut self, revision: u64, read: u64) {
        self.floor = self.floor.max(revision);
        while self.changes.front().is_some_and(|change| change.revision <= revision.min(read)) {
            self.drop_oldest();
        }
    }

    /// Drops the oldest changes beyond a number, whoever waits for them: a watcher that far behind is lost.
    pub(crate) fn shorten(&mut self, max: usize) {
        while self.changes.len() > max {
            self.drop_oldest();
        }
        self.floor = self.floor.max(self.dropped);
    }

    /// Up to `max` changes behind a revision; `None` if some of them are gone.
    pub(crate) fn after(&self, revision: u64, max: usize) -> Option<Vec<Arc<Change>>> {
        if revision < self.dropped {
            return None;
        }
        let first = self.changes.partition_point(|change| change.revision <= revision);
        Some(self.changes.range(first..).take(max).cloned().collect())
    }

    /// Turns objects back to what they were at a revision, which must not be below the floor.
    pub(crate) fn undo(&self, objects: &mut Objects, revision: u64) {
        for change in self.changes.iter().rev().take_while(|change| change.revision > revision) {
            match &change.old {
                Some(old) => objects.insert_mut(old.key.clone(), old.clone()),
                None => {
                    objects.remove_mut(&change.object.key);
                }
            }
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(change) = self.changes.pop_front() {
            self.dropped = change.revision;
        }
    }
}
