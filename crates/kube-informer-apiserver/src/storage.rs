//! Storage: one revision for everything, a persistent ordered map for each kind, and the history that watches,
//! later pages and exact reads are answered from.
//!
//! A version is what it is in etcd: an object's is the revision of its last write, a list's is the store's.

mod backup;
mod history;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::kinds::{self, Kind};
use crate::object::{EventType, Object, Stored};

pub(crate) use backup::Snapshot as BackupData;
pub(crate) use history::Change;
pub(crate) use table::{Objects, Table};

/// Where an object is: the id of its kind and its key.
pub(crate) type Location = (Arc<str>, Arc<str>);

/// How much of the past is kept, for each kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HistoryLimits {
    pub(crate) changes: usize,
    pub(crate) age: Duration,
}

/// Everything the server knows.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    /// Tells those who wait for a revision.
    revisions: watch::Sender<u64>,
    limits: HistoryLimits,
    /// In order, so that watches which end together end in the same order in every run.
    tables: BTreeMap<Arc<str>, Table>,
    /// Custom kinds, by group and resource.
    custom: BTreeMap<(String, String), Arc<Kind>>,
    /// Versions below this were compacted.
    compacted: u64,
    /// Versions below this cannot be watched from: the watch cache was filled at it.
    watchable: u64,
    /// Counts restarts and restores, which end all watches.
    epoch: u64,
    uids: HashMap<u128, Location>,
    dependents: HashMap<u128, BTreeSet<Location>>,
    /// Objects that the background work should look at.
    pending: BTreeSet<Location>,
}

/// A version that is no longer, or not yet, known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotHeld {
    Compacted { oldest: u64 },
    Future { current: u64 },
}

impl Store {
    pub(crate) fn new(limits: HistoryLimits) -> Self {
        Self {
            revision: 1,
            revisions: watch::Sender::new(1),
            limits,
            tables: BTreeMap::new(),
            custom: BTreeMap::new(),
            compacted: 0,
            watchable: 0,
            epoch: 0,
            uids: HashMap::new(),
            dependents: HashMap::new(),
            pending: BTreeSet::new(),
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision, and each later one.
    pub(crate) fn revisions(&self) -> watch::Receiver<u64> {
        self.revisions.subscribe()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The kind of a group and resource, built-in or custom.
    pub(crate) fn kind(&self, group: &str, resource: &str) -> Option<Arc<Kind>> {
        kinds::find_builtin(group, resource)
            .or_else(|| self.custom.get(&(group.to_owned(), resource.to_owned())))
            .cloned()
    }

    /// The kind that a table's id names.
    pub(crate) fn kind_by_id(&self, id: &str) -> Option<Arc<Kind>> {
        let (resource, group) = id.split_once('.').unwrap_or((id, ""));
        self.kind(group, resource)
    }

    pub(crate) fn custom_kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.custom.values()
    }

    /// Serves a custom kind from now on, or in a new form.
    pub(crate) fn define(&mut self, kind: Kind) {
        let (name, revision) = ((kind.group.clone(), kind.resource.clone()), self.revision);
        let fits = self.custom.get(&name).is_some_and(|old| old.encodes_like(&kind));
        let table = self.table(&kind);
        table.open();
        if !fits {
            table.reencode(&kind, revision);
        }
        self.custom.insert(name, Arc::new(kind));
    }

    /// Stops serving a custom kind. Its watches end.
    pub(crate) fn undefine(&mut self, group: &str, resource: &str) {
        if let Some(kind) = self.custom.remove(&(group.to_owned(), resource.to_owned())) {
            // Watchers read the last deletions first, then end.
            self.table(&kind).close();
        }
    }

    pub(crate) fn get(&self, kind: &Kind, key: &str) -> Option<&Arc<Stored>> {
        self.tables.get(&kind.id)?.objects.get(key)
    }

    pub(crate) fn table(&mut self, kind: &Kind) -> &mut Table {
        if !self.tables.contains_key(&kind.id) {
            self.tables.insert(kind.id.clone(), Table::default());
        }
        self.tables.get_mut(&kind.id).expect("just made")
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (&Arc<str>, &Table)> {
        self.tables.iter()
    }

    /// The objects of a kind as they are now: a frozen view.
    pub(crate) fn objects(&self, kind: &Kind) -> Objects {
        self.tables.get(&kind.id).map(|table| table.objects.clone()).unwrap_or_default()
    }

    /// The objects of a kind as they were at a revision.
    pub(crate) fn objects_at(&self, kind: &Kind, revision: u64) -> Result<Objects, NotHeld> {
        if revision > self.revision {
            return Err(NotHeld::Future { current: self.revision });
        }
        let Some(table) = self.tables.get(&kind.id) else {
            let oldest = self.compacted;
            return if revision < oldest {
                Err(NotHeld::Compacted { oldest })
            } else {
                Ok(Objects::default())
            };
        };
        let oldest = self.compacted.max(table.history.floor());
        if revision < oldest {
            return Err(NotHeld::Compacted { oldest });
        }
        let mut objects = table.objects.clone();
        table.history.undo(&mut objects, revision);
        Ok(objects)
    }

    /// Whether a watch of a kind can begin behind a revision; otherwise the oldest one it can begin behind.
    pub(crate) fn check_watchable(&self, kind: &Kind, revision: u64) -> Result<(), u64> {
        let floor = self.tables.get(&kind.id).map_or(0, |table| table.history.floor());
        let oldest = self.compacted.max(self.watchable).max(floor);
        if revision < oldest { Err(oldest) } else { Ok(()) }
    }

    /// Stores an object at the next revision. Content that is already there stays at its revision, without an event.
    pub(crate) fn put(&mut self, kind: &Kind, key: &Arc<str>, object: &Object) -> Arc<Stored> {
        let event = if self.get(kind, key).is_some() { EventType::Modified } else { EventType::Added };
        self.put_encoded(kind, Stored::encode(kind, event, key.clone(), self.revision + 1, object))
    }

    /// The same for an object that was encoded for the next revision.
    pub(crate) fn put_encoded(&mut self, kind: &Kind, stored: Stored) -> Arc<Stored> {
        let (key, stored) = (stored.key.clone(), Arc::new(stored));
        let old = self.get(kind, &key).cloned();
        let event = if old.is_some() { EventType::Modified } else { EventType::Added };
        if let Some(old) = &old {
            if old.same_content(&stored) {
                return old.clone();
            }
            self.unlink(kind, old);
        }
        self.link(kind, &stored);
        self.table(kind).objects.insert_mut(key.clone(), stored.clone());
        self.commit(kind, event, stored.clone(), old);
        if self.is_unsettled(&stored) {
            self.pending.insert((kind.id.clone(), key));
        }
        stored
    }

    /// Removes an object; returns its last state, at the revision of its deletion.
    pub(crate) fn remove(&mut self, kind: &Kind, key: &str) -> Option<Arc<Stored>> {
        let old = self.get(kind, key)?.clone();
        self.unlink(kind, &old);
        self.table(kind).objects.remove_mut(key);
        let last = Arc::new(old.at_revision(EventType::Deleted, self.revision + 1));
        self.commit(kind, EventType::Deleted, last.clone(), Some(old));
        self.note_removal(kind, &last);
        Some(last)
    }

    /// Whether an object with this uid exists.
    pub(crate) fn uid_exists(&self, uid: u128) -> bool {
        self.uids.contains_key(&uid)
    }

    /// The objects that name this uid as an owner, in a fixed order.
    pub(crate) fn dependents(&self, uid: u128) -> Vec<Location> {
        self.dependents.get(&uid).into_iter().flatten().cloned().collect()
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The next object that the background work should look at.
    pub(crate) fn next_pending(&mut self) -> Option<Location> {
        self.pending.pop_first()
    }

    /// Forgets what happened up to a revision: reads and watches from before it are refused as expired.
    pub(crate) fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
        let compacted = self.compacted;
        for table in self.tables.values_mut() {
            table.forget(compacted);
        }
    }

    /// Forgets the watch history, as a real server does when it starts, and ends all watches.
    pub(crate) fn restart(&mut self) {
        self.watchable = self.revision;
        self.end_watches();
    }

    /// Everything that must survive, as of now.
    pub(crate) fn backup(&self) -> BackupData {
        BackupData::take(self.revision, &self.tables, &self.custom)
    }

    /// Puts everything back as it was, revision included. The background work has to look at what was ending then.
    pub(crate) fn restore(&mut self, backup: &BackupData) {
        self.revision = backup.revision;
        self.revisions.send_replace(backup.revision);
        self.custom.clone_from(&backup.custom);
        self.compacted = backup.revision;
        self.watchable = backup.revision;
        self.uids.clear();
        self.dependents.clear();
        for table in self.tables.values_mut() {
            table.clear(backup.revision);
        }
        for kind in backup.custom.values() {
            self.table(kind).open();
        }
        for (id, objects) in &backup.objects {
            self.tables.entry(id.clone()).or_default().objects = objects.clone();
            for (_, stored) in objects {
                self.link_in(id, stored);
            }
        }
        let stored = backup.objects.iter().flat_map(|(id, objects)| objects.values().map(move |it| (id, it)));
        self.pending = stored
            .filter(|(_, stored)| self.is_unsettled(stored))
            .map(|(id, stored)| (id.clone(), stored.key.clone()))
            .collect();
        self.end_watches();
    }

    /// Whether the background work has to look at an object: it is being deleted, or an owner of it is gone.
    fn is_unsettled(&self, stored: &Stored) -> bool {
        stored.deleting || stored.owners.iter().any(|&uid| !self.uid_exists(uid))
    }

    /// What a removal may set free: what it owned, owners that waited for it, the namespace or definition it was of.
    fn note_removal(&mut self, kind: &Kind, last: &Stored) {
        self.pending.extend(self.dependents(last.uid));
        for owner in &last.owners {
            self.pending.extend(self.uids.get(owner).cloned());
        }
        let namespaces = kinds::core("namespaces");
        let home = (namespaces, last.namespace());
        let definition = kinds::find_builtin("apiextensions.k8s.io", "customresourcedefinitions")
            .filter(|_| kind.custom.is_some())
            .map(|definitions| (definitions, &*kind.id));
        for (kind, name) in [Some(home), definition].into_iter().flatten() {
            if self.get(kind, name).is_some_and(|stored| stored.deleting) {
                self.pending.insert((kind.id.clone(), name.into()));
            }
        }
    }

    fn commit(&mut self, kind: &Kind, event: EventType, object: Arc<Stored>, old: Option<Arc<Stored>>) {
        self.revision += 1;
        debug_assert_eq!(self.revision, object.revision);
        let (limits, revision) = (self.limits, self.revision);
        let change = Change::new(revision, Instant::now(), event, object, old);
        self.table(kind).record(change, limits);
        self.revisions.send_replace(revision);
    }

    fn end_watches(&mut self) {
        self.epoch += 1;
        for table in self.tables.values_mut() {
            table.wake();
        }
    }

    fn link(&mut self, kind: &Kind, stored: &Arc<Stored>) {
        self.link_in(&kind.id.clone(), stored);
    }

    fn link_in(&mut self, id: &Arc<str>, stored: &Arc<Stored>) {
        let location = (id.clone(), stored.key.clone());
        for owner in &stored.owners {
            self.dependents.entry(*owner).or_default().insert(location.clone());
        }
        self.uids.insert(stored.uid, location);
    }

    fn unlink(&mut self, kind: &Kind, stored: &Stored) {
        let location = (kind.id.clone(), stored.key.clone());
        for owner in &stored.owners {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(&location);
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        self.uids.remove(&stored.uid);
    }
}
