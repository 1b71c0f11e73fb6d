//! What puts keys into a controller's queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::error::ControllerError;
use super::predicate::{Change, Predicate};
use super::source::{PATIENCE, SourceCell, SourceState, SourceStats};
use crate::ObjectKey;
use crate::event::Owed;
use crate::intake::panic_text;
use crate::object::{Kind, Object, View};
use crate::processor::Hops;
use crate::shared_informer::{Registration, SharedInformer};
use crate::workqueue::{Add, Cause, WorkQueue};

/// What was there before, and what merely comes round again, waits behind what is new.
const LOW_PRIORITY: i8 = -50;

/// The shortest time between two times that every key is enqueued.
const ALL_EVERY: Duration = Duration::from_mins(1);

/// How a controller watches a kind.
#[derive(Debug, Clone, Default)]
pub struct WatchOptions {
    pub(super) predicate: Option<Predicate>,
    pub(super) optional: bool,
}

impl WatchOptions {
    /// Only changes that pass. Of several predicates, a change must pass every one.
    pub fn filter(mut self, predicate: Predicate) -> Self {
        self.predicate = Some(Predicate::both(self.predicate.take(), predicate));
        self
    }

    /// The server need not have the kind: after it has answered 404 for 5 seconds, the controller starts without it, as if
    /// there were no objects of it. The kind joins when the server has it; workers pause then until it was read completely.
    ///
    /// A kind that the server has but does not show (403) is waited for all the same.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}

/// Where sources put their keys.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) queue: WorkQueue<ObjectKey>,
    /// All keys of the controller's own kind.
    pub(super) all_keys: Arc<dyn Fn() -> Vec<ObjectKey> + Send + Sync>,
    pub(super) buffer_len: usize,
}

/// Starts a source.
type Begin = dyn FnOnce(&Target) -> Running + Send;

/// A source of keys that has not begun.
pub(super) struct Trigger(Box<Begin>);

/// A source of keys at work. Dropped, it ends.
pub(super) struct Running {
    cell: Arc<SourceCell>,
    feed: Feed,
}

enum Feed {
    Informer {
        informer: SharedInformer<()>,
        registration: Registration,
        optional: bool,
    },
    Stream {
        /// The message of its panic.
        panic: watch::Receiver<Option<String>>,
        _task: JoinSet<()>,
    },
}

impl Trigger {
    /// The objects of an informer, each mapped to the keys it concerns. `built_in`: the mapping is the library's own.
    pub(super) fn informer<T: View>(
        informer: SharedInformer<T>,
        cell: Arc<SourceCell>,
        options: WatchOptions,
        built_in: bool,
        keys: impl Fn(&Object<T>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let WatchOptions { predicate, optional } = options;
        Self(Box::new(move |target: &Target| {
            informer.start();
            let (source, keys): (Arc<str>, _) = (informer.kind().kind().into(), Arc::new(keys));
            let hops = if built_in { map_hops(target, &source, &keys) } else { Hops::Keep };
            let mut enqueue = Enqueue {
                target: target.clone(),
                cell: Arc::clone(&cell),
                source,
                predicate,
                keys,
                all_at: None,
            };
            let name = format!("controller of {}", enqueue.source);
            let take = move |owed| enqueue.take::<T>(owed);
            let registration = informer.add_trigger(name, target.buffer_len, hops, take);
            Running { cell, feed: Feed::Informer { informer: informer.read_as(), registration, optional } }
        }))
    }

    /// Keys from anywhere.
    pub(super) fn stream(cell: Arc<SourceCell>, mut keys: BoxStream<'static, ObjectKey>) -> Self {
        Self(Box::new(move |target: &Target| {
            let (queue, source): (_, Arc<str>) = (target.queue.clone(), cell.name.as_str().into());
            cell.set(SourceState::Ready);
            let (panicked, panic) = watch::channel(None);
            let mut task = JoinSet::new();
            let shown = Arc::clone(&cell);
            task.spawn(async move {
                let all = async {
                    while let Some(key) = keys.next().await {
                        let cause = Some(Cause::new(Arc::clone(&source), "asked"));
                        queue.add_with(key, Add { cause, ..Add::default() });
                    }
                };
                match AssertUnwindSafe(all).catch_unwind().await {
                    Ok(()) => tracing::info!(stream = &*source, "a stream of keys has ended"),
                    Err(panic) => {
                        panicked.send_replace(Some(panic_text(panic)));
                    }
                }
                shown.set(SourceState::Ended);
            });
            Running { cell, feed: Feed::Stream { panic, _task: task } }
        }))
    }

    pub(super) fn begin(self, target: &Target) -> Running {
        (self.0)(target)
    }
}

impl Running {
    /// Waits until everything that is there has been queued, or until the source has failed.
    pub(super) async fn synced(&self) {
        if let Feed::Informer { registration, .. } = &self.feed {
            registration.wait_for_sync().await;
        }
    }

    /// Looks whether the source may be acted on, after a wait of this length, and shows it. Gives the stats if not.
    pub(super) fn look(&self, waited: Duration) -> Option<SourceStats> {
        let Feed::Informer { informer, registration, optional } = &self.feed else { return None };
        let unread = informer.unread();
        let absent = || {
            let missing = unread.iter().all(|part| part.last_error_code == Some(404));
            *optional && waited >= PATIENCE && missing && registration.depth() == 0
        };
        self.cell.set(if unread.is_empty() && registration.has_synced() {
            SourceState::Ready
        } else if unread.is_empty() {
            SourceState::Waiting { why: format!("{} changes are not queued yet", registration.depth()) }
        } else if absent() {
            SourceState::Absent
        } else {
            let why = unread.iter().map(|part| match &part.last_error {
                Some(error) => format!("{}: {error}", part.scope),
                None => format!("{} is not read yet", part.scope),
            });
            SourceState::Waiting { why: why.collect::<Vec<_>>().join("; ") }
        });
        let stats = self.cell.stats();
        matches!(stats.state, SourceState::Waiting { .. }).then_some(stats)
    }

    pub(super) fn state(&self) -> SourceState {
        self.cell.state()
    }

    /// Whether a part of it may be unread after the start: an optional kind that was absent, or a namespace that was added.
    pub(super) fn may_be_unread_again(&self) -> bool {
        match &self.feed {
            Feed::Informer { informer, .. } => {
                self.state() == SourceState::Absent || informer.has_changing_namespaces()
            }
            Feed::Stream { .. } => false,
        }
    }

    /// Waits until a part of it was added, removed or read.
    pub(super) async fn parts_changed(&self) {
        match &self.feed {
            Feed::Informer { informer, .. } => informer.parts_changed().await,
            Feed::Stream { .. } => std::future::pending().await,
        }
    }

    /// Waits until the source fails for good, and says how.
    pub(super) async fn failure(&self) -> ControllerError {
        let name = self.cell.name.clone();
        match &self.feed {
            Feed::Informer { informer, registration, .. } => {
                tokio::select! {
                    () = informer.stopped() => {}
                    () = registration.ended() => {}
                }
                ControllerError::SourceStopped { name }
            }
            Feed::Stream { panic, .. } => {
                let mut panic = panic.clone();
                let panic = panic.wait_for(Option::is_some).await.ok().and_then(|panic| panic.clone());
                let Some(panic) = panic else { return std::future::pending().await };
                ControllerError::StreamPanicked { name, panic }
            }
        }
    }
}

/// Enqueues the keys of each state that a merge leaves out. The store is past that state, so its keys are due at once.
fn map_hops<T: View, F>(target: &Target, source: &Arc<str>, keys: &Arc<F>) -> Hops
where
    F: Fn(&Object<T>) -> Vec<ObjectKey> + Send + Sync + 'static,
{
    let (queue, source, keys) = (target.queue.clone(), Arc::clone(source), Arc::clone(keys));
    Hops::Map(Arc::new(move |state| {
        for key in keys(&Object::new(Arc::clone(state))) {
            let cause = Some(Cause::new(Arc::clone(&source), "updated"));
            queue.add_with(key, Add { cause, ..Add::default() });
        }
    }))
}

/// The keys of the objects of a kind that manage others.
pub(super) fn owner_of<T>(owner: &Kind, owned: &Object<T>) -> Vec<ObjectKey> {
    let managers = owned.owners().iter().filter(|manager| {
        // Versions come and go; the group and the kind say what it is.
        manager.controller
            && *manager.kind == *owner.kind()
            && group(&manager.api_version) == group(owner.api_version())
    });
    let key = |name: &str| match owned.namespace() {
        Some(namespace) if owner.is_namespaced() => ObjectKey::namespaced(namespace, name),
        _ => ObjectKey::cluster(name),
    };
    managers.map(|manager| key(&manager.name)).collect()
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Enqueues the keys that a change concerns.
struct Enqueue<F> {
    target: Target,
    cell: Arc<SourceCell>,
    source: Arc<str>,
    predicate: Option<Predicate>,
    keys: Arc<F>,
    /// When every key was, or will be, enqueued because the mapping of some state is not known.
    all_at: Option<Instant>,
}

impl<F> Enqueue<F> {
    fn take<T>(&mut self, owed: Owed)
    where
        F: Fn(&Object<T>) -> Vec<ObjectKey>,
    {
        let Owed { told, died, now, initial, restored, merged } = owed;
        // Between two states that were reconciled, merged changes may look like none.
        let judged = merged.is_none() && !restored;
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

    /// Enqueues every key of the controller's own kind, at most once in a while however often it is asked to.
    fn enqueue_all(&mut self) {
        let now = Instant::now();
        if self.all_at.is_some_and(|at| at > now) {
            // It comes, and it comes after this change.
            return;
        }
        let at = self.all_at.map_or(now, |last| now.max(last + ALL_EVERY));
        self.all_at = Some(at);
        for key in (self.target.all_keys)() {
            let cause = Some(Cause::new(Arc::clone(&self.source), "missed"));
            let add = Add { priority: LOW_PRIORITY, after: at.saturating_duration_since(now), cause };
            self.target.queue.add_with(key, add);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Entry;

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
        let mut enqueue = Enqueue {
            target: Target { queue: queue.clone(), all_keys: Arc::new(Vec::new), buffer_len: 1 },
            cell: SourceCell::new("v1 Secret".into()),
            source: "Secret".into(),
            predicate: Some(predicate),
            keys: Arc::new(keys),
            all_at: None,
        };
        // It changed owners and was deleted before the trigger was notified of either.
        enqueue.take(Owed::delete(secret(1, "a"), secret(2, "b"), false));
        let keys = [queue.get().await, queue.get().await].map(|item| item.unwrap().key().to_string());
        assert_eq!(keys, ["a", "b"]);
    }
}
