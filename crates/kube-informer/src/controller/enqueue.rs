//! Which keys a change of an object concerns, and how they are enqueued.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::predicate::{Change, Predicate};
use super::source::SourceCell;
use crate::ObjectKey;
use crate::event::Owed;
use crate::intake::panic_text;
use crate::object::Object;
use crate::planted::{Bug, planted};
use crate::workqueue::{Add, Cause, WorkQueue};

/// The priority of objects of the first list and of resyncs, so that new changes are reconciled first.
const LOW_PRIORITY: i8 = -50;

/// The shortest time between two times that every key is enqueued.
const ALL_EVERY: Duration = Duration::from_mins(1);

/// Where sources put their keys.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) queue: WorkQueue<ObjectKey>,
    /// All keys of the controller's own kind.
    pub(super) all_keys: Arc<dyn Fn() -> Vec<ObjectKey> + Send + Sync>,
    pub(super) buffer_len: usize,
}

impl Target {
    /// Enqueues every key of the controller's own kind.
    fn enqueue_all(&self, source: &Arc<str>) {
        for key in (self.all_keys)() {
            let cause = Some(Cause::new(Arc::clone(source), "missed"));
            self.queue.add_with(key, Add { priority: LOW_PRIORITY, cause, ..Add::default() });
        }
    }
}

/// Enqueues the keys that a change concerns.
pub(super) struct Enqueue<F> {
    target: Target,
    cell: Arc<SourceCell>,
    source: Arc<str>,
    predicate: Option<Predicate>,
    keys: Arc<F>,
    /// When every key was, or will be, enqueued because the mapping of some state is not known.
    all_at: Option<Instant>,
    /// Enqueues every key when that time has come.
    later: JoinSet<()>,
}

impl<F> Enqueue<F> {
    pub(super) fn new(
        target: Target,
        cell: Arc<SourceCell>,
        source: Arc<str>,
        predicate: Option<Predicate>,
        keys: Arc<F>,
    ) -> Self {
        Self { target, cell, source, predicate, keys, all_at: None, later: JoinSet::new() }
    }

    pub(super) fn take<T>(&mut self, owed: Owed)
    where
        F: Fn(&Object<T>) -> Vec<ObjectKey>,
    {
        let Owed { told, died, now, initial, restored, merged } = owed;
        // Between two states that were reconciled, merged changes may look like none.
        let judged = merged.is_none() && (!restored || planted(Bug::RestoredChangeJudged));
        let object = |entry| Object::<T>::new(entry);
        match (told.map(object), died.map(|(last, _)| object(last)), now.map(object)) {
            (Some(old), Some(last), now) => {
                // Judged by the state that was enqueued last, whose keys must know of the end.
                let change = Change { old: Some(&old), new: None };
                self.enqueue("deleted", judged.then_some(change), &[&old, &last], 0);
                if let Some(new) = now {
                    let change = Change { old: None, new: Some(&new) };
                    self.enqueue("added", judged.then_some(change), &[&new], 0);
                }
            }
            (Some(old), None, Some(new)) => {
                let change = Change { old: Some(&old), new: Some(&new) };
                let same = old.is_same(&new) && merged.is_none();
                let (event, priority) = if same { ("resync", LOW_PRIORITY) } else { ("updated", 0) };
                // Both the old and the new owner.
                self.enqueue(event, judged.then_some(change), &[&old, &new], priority);
            }
            (None, _, Some(new)) => {
                let change = Change { old: None, new: Some(&new) };
                let priority = if initial { LOW_PRIORITY } else { 0 };
                self.enqueue("added", judged.then_some(change), &[&new], priority);
            }
            (_, _, None) => {}
        }
        if let Some(merged) = merged {
            let between: Vec<Object<T>> = merged.between.into_iter().map(Object::new).collect();
            self.enqueue("updated", None, &between.iter().collect::<Vec<_>>(), 0);
            if merged.lost {
                self.enqueue_all();
            }
        }
    }

    /// Enqueues the keys of these states of an object, unless the predicate drops the change.
    fn enqueue<T>(
        &mut self,
        event: &'static str,
        change: Option<Change<'_>>,
        objects: &[&Object<T>],
        priority: i8,
    ) where
        F: Fn(&Object<T>) -> Vec<ObjectKey>,
    {
        let judge = self.predicate.as_ref().zip(change.filter(Change::is_ordinary));
        if judge.is_some_and(|(predicate, change)| !predicate.passes(&change)) {
            return;
        }
        let mut keys: Vec<ObjectKey> = objects.iter().flat_map(|object| self.keys_of(object)).collect();
        keys.sort_unstable();
        keys.dedup();
        let version = objects.last().and_then(|newest| newest.version().as_u64());
        for key in keys {
            let cause = Cause::new(Arc::clone(&self.source), event);
            let cause = version.into_iter().fold(cause, Cause::at_version);
            self.target.queue.add_with(key, Add { priority, cause: Some(cause), ..Add::default() });
        }
    }

    /// The keys of one state of an object. If the mapping panics, its keys are not known, and every key is enqueued.
    fn keys_of<T>(&mut self, object: &Object<T>) -> Vec<ObjectKey>
    where
        F: Fn(&Object<T>) -> Vec<ObjectKey>,
    {
        let keys = catch_unwind(AssertUnwindSafe(|| (self.keys)(object)));
        keys.unwrap_or_else(|panic| {
            let (kind, panic) = (&self.cell.name, panic_text(panic));
            if self.cell.panicked() {
                tracing::error!(kind, panic, "a mapping to keys panicked; enqueueing every key");
            }
            self.enqueue_all();
            Vec::new()
        })
    }

    /// Enqueues every key of the controller's own kind, at most once a minute.
    fn enqueue_all(&mut self) {
        let now = Instant::now();
        if self.all_at.is_some_and(|at| at > now) {
            // The task that waits enqueues them after this change.
            return;
        }
        let at = self.all_at.map_or(now, |last| now.max(last + ALL_EVERY));
        self.all_at = Some(at);
        let (target, source) = (self.target.clone(), Arc::clone(&self.source));
        if at == now {
            return target.enqueue_all(&source);
        }
        if planted(Bug::MissedKeysDropped) {
            return;
        }
        // Not as delayed keys: a run before that time would use them up, and new objects would be missing.
        while self.later.try_join_next().is_some() {}
        self.later.spawn(async move {
            tokio::time::sleep_until(at).await;
            target.enqueue_all(&source);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Entry, Kind};

    fn secret(version: u32, app: &str) -> Arc<Entry> {
        let kind = Arc::new(Kind::new("v1", "Secret", "secrets", true));
        let json = format!(
            r#"{{"metadata":{{"name":"s","namespace":"x","uid":"u","resourceVersion":"{version}","labels":{{"app":"{app}"}}}}}}"#
        );
        Arc::new(Entry::from_json(&kind, json.as_bytes()).unwrap())
    }

    #[tokio::test]
    async fn a_delete_concerns_the_last_owner_and_the_one_before() {
        let queue = WorkQueue::new();
        let keys = |object: &Object<()>| vec![ObjectKey::cluster(object.label("app").unwrap())];
        let predicate = Predicate::new("app=a", |change| change.old.unwrap().label("app") == Some("a"));
        let target = Target { queue: queue.clone(), all_keys: Arc::new(Vec::new), buffer_len: 1 };
        let cell = SourceCell::new("v1 Secret".into());
        let mut enqueue = Enqueue::new(target, cell, "Secret".into(), Some(predicate), Arc::new(keys));
        // It changed owners and was deleted before the trigger was notified of either.
        enqueue.take(Owed::delete(secret(1, "a"), secret(2, "b"), false));
        let keys = [queue.get().await, queue.get().await].map(|item| item.unwrap().key().to_string());
        assert_eq!(keys, ["a", "b"]);
    }
}
