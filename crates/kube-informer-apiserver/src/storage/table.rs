//! The objects of one kind, their recent changes, and who watches them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rpds::RedBlackTreeMapSync;
use tokio::sync::Notify;

use super::HistoryLimits;
use super::history::{Change, History};
use crate::kinds::Kind;
use crate::object::Stored;

/// Objects in key order; a clone is a frozen view.
pub(crate) type Objects = RedBlackTreeMapSync<Arc<str>, Arc<Stored>>;

/// One kind's part of the store.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) objects: Objects,
    pub(crate) history: History,
    /// By number, so that they are woken in the same order in every run.
    watchers: BTreeMap<u64, Watcher>,
    /// The kind is not served: who comes all the same hears the rest and ends.
    is_closed: bool,
}

#[derive(Debug)]
struct Watcher {
    /// How far it has read, so that compaction leaves alone what a live one still needs.
    cursor: Arc<AtomicU64>,
    wake: Arc<Notify>,
    /// If it is to end: the last revision that it hears of. What comes later may be in another form.
    end: Option<u64>,
}

impl Table {
    pub(crate) fn record(&mut self, change: Change, limits: HistoryLimits) {
        let expired = change.at.checked_sub(limits.age).map_or(0, |then| self.history.revision_before(then));
        self.history.push(Arc::new(change));
        if expired > 0 {
            self.forget(expired);
        }
        self.history.shorten(limits.changes);
        self.wake();
    }

    /// Changes up to `revision` cannot be asked for any more; those that no watcher waits for are dropped.
    pub(crate) fn forget(&mut self, revision: u64) {
        let read = self.watchers.values().map(|watcher| watcher.cursor.load(Ordering::Relaxed)).min();
        self.history.forget(revision, read.unwrap_or(u64::MAX));
    }

    pub(crate) fn clear(&mut self, revision: u64) {
        self.objects = Objects::default();
        self.history = History::beginning_at(revision);
    }

    /// The kind has a new form. Watches and history are in the old one: as where a real server builds the storage of a kind
    /// anew, open watches end, and none can begin behind an earlier revision.
    pub(crate) fn reencode(&mut self, kind: &Kind, revision: u64) {
        self.objects =
            self.objects.iter().map(|(key, stored)| (key.clone(), Arc::new(stored.reencode(kind)))).collect();
        self.forget(revision);
        self.end_watches(revision);
    }

    /// The kind is served no longer.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.end_watches(u64::MAX);
    }

    /// The kind is served, perhaps again.
    pub(crate) fn open(&mut self) {
        self.is_closed = false;
    }

    /// If a watcher is to end: the last revision that it hears of.
    pub(crate) fn end_of(&self, watcher: u64) -> Option<u64> {
        self.watchers.get(&watcher)?.end
    }

    pub(crate) fn wake(&self) {
        self.watchers.values().for_each(|watcher| watcher.wake.notify_one());
    }

    /// A watcher arrives: what it has read, and what wakes it.
    pub(crate) fn subscribe(&mut self, watcher: u64, cursor: Arc<AtomicU64>) -> Arc<Notify> {
        let wake = Arc::new(Notify::new());
        let end = self.is_closed.then_some(u64::MAX);
        self.watchers.insert(watcher, Watcher { cursor, wake: Arc::clone(&wake), end });
        wake
    }

    pub(crate) fn unsubscribe(&mut self, watcher: u64) {
        self.watchers.remove(&watcher);
    }

    fn end_watches(&mut self, last: u64) {
        for watcher in self.watchers.values_mut() {
            // The first end counts: what came after it was not for them.
            watcher.end.get_or_insert(last);
        }
        self.wake();
    }
}
