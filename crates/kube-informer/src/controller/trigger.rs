//! What puts keys into a controller's queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::error::ControllerError;
use super::predicate::{Change, Predicate};
use super::source::{PATIENCE, SourceCell, SourceState, SourceStats};
use crate::ObjectKey;
use crate::event::Deleted;
use crate::handler::{EventHandler, HandlerOptions};
use crate::intake::panic_text;
use crate::object::{Kind, Object, View};
use crate::shared_informer::{Registration, SharedInformer};
use crate::workqueue::{Add, Cause, WorkQueue};

/// What was there before, and what merely comes round again, waits behind what is new.
const LOW_PRIORITY: i8 = -50;

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

/// Starts a source that puts keys into this queue.
type Begin = dyn FnOnce(&WorkQueue<ObjectKey>) -> Running + Send;

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
    /// The objects of an informer, each mapped to the keys it concerns.
    pub(super) fn informer<T: View>(
        informer: SharedInformer<T>,
        cell: Arc<SourceCell>,
        options: WatchOptions,
        keys: impl Fn(&Object<T>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let WatchOptions { predicate, optional } = options;
        Self(Box::new(move |queue: &WorkQueue<ObjectKey>| {
            informer.start();
            let source: Arc<str> = informer.kind().kind().into();
            let options = HandlerOptions::default().name(format!("controller of {source}"));
            let (queue, counted) = (queue.clone(), Arc::clone(&cell));
            let enqueue = Enqueue { queue, cell: counted, source, predicate, keys };
            let registration = informer.add_handler_with(options, enqueue);
            Running { cell, feed: Feed::Informer { informer: informer.read_as(), registration, optional } }
        }))
    }

    /// Keys from anywhere.
    pub(super) fn stream(cell: Arc<SourceCell>, mut keys: BoxStream<'static, ObjectKey>) -> Self {
        Self(Box::new(move |queue: &WorkQueue<ObjectKey>| {
            let (queue, source): (_, Arc<str>) = (queue.clone(), cell.name.as_str().into());
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

    pub(super) fn begin(self, queue: &WorkQueue<ObjectKey>) -> Running {
        (self.0)(queue)
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

/// A handler that enqueues keys and does nothing else.
struct Enqueue<F> {
    queue: WorkQueue<ObjectKey>,
    cell: Arc<SourceCell>,
    source: Arc<str>,
    predicate: Option<Predicate>,
    keys: F,
}

impl<F> Enqueue<F> {
    /// The keys of one state of an object. A mapping that panics about one state does not lose the keys of the others.
    fn keys_of<T>(&self, object: &Object<T>) -> Vec<ObjectKey>
    where
        F: Fn(&Object<T>) -> Vec<ObjectKey>,
    {
        catch_unwind(AssertUnwindSafe(|| (self.keys)(object))).unwrap_or_else(|panic| {
            let panic = panic_text(panic);
            if self.cell.panicked() {
                tracing::error!(source = &*self.source, panic, "a mapping to keys panicked");
            }
            Vec::new()
        })
    }

    fn enqueue<T>(&self, event: &'static str, change: Change<'_>, objects: &[&Object<T>], priority: i8)
    where
        F: Fn(&Object<T>) -> Vec<ObjectKey>,
    {
        let predicate = self.predicate.as_ref().filter(|_| change.is_ordinary());
        if predicate.is_some_and(|predicate| !predicate.passes(&change)) {
            return;
        }
        let mut keys: Vec<ObjectKey> = objects.iter().flat_map(|object| self.keys_of(object)).collect();
        keys.sort_unstable();
        keys.dedup();
        let version = objects.last().and_then(|newest| newest.version().as_u64());
        for key in keys {
            let cause = Cause::new(Arc::clone(&self.source), event);
            let cause = version.into_iter().fold(cause, Cause::at_version);
            self.queue.add_with(key, Add { priority, cause: Some(cause), ..Add::default() });
        }
    }
}

impl<T, F> EventHandler<T> for Enqueue<F>
where
    T: Send + Sync + 'static,
    F: Fn(&Object<T>) -> Vec<ObjectKey> + Send + Sync + 'static,
{
    async fn on_add(&mut self, object: Object<T>, initial: bool) {
        let change = Change { old: None, new: Some(&object) };
        self.enqueue("added", change, &[&object], if initial { LOW_PRIORITY } else { 0 });
    }

    async fn on_update(&mut self, old: Object<T>, new: Object<T>) {
        let change = Change { old: Some(&old), new: Some(&new) };
        let (event, priority) = if old.is_same(&new) { ("resync", LOW_PRIORITY) } else { ("updated", 0) };
        // Who it belonged to must hear of it as well as who it belongs to.
        self.enqueue(event, change, &[&old, &new], priority);
    }

    async fn on_delete(&mut self, deleted: Deleted<T>) {
        // Judged by what the handler last heard of, for whose keys the end is news.
        let change = Change { old: Some(&deleted.old), new: None };
        self.enqueue("deleted", change, &[&deleted.old, &deleted.object], 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Entry;

    fn secret(version: u32, app: &str) -> Object<()> {
        let kind = Arc::new(Kind::new("v1", "Secret", "secrets", true));
        let json = format!(
            r#"{{"metadata":{{"name":"s","namespace":"x","uid":"u","resourceVersion":"{version}","labels":{{"app":"{app}"}}}}}}"#
        );
        Object::new(Arc::new(Entry::from_json(&kind, json.as_bytes()).unwrap()))
    }

    #[tokio::test]
    async fn who_was_told_of_an_object_hears_of_its_end_whomever_it_belongs_to_by_then() {
        let queue = WorkQueue::new();
        let keys = |object: &Object<()>| vec![ObjectKey::cluster(object.label("app").unwrap())];
        let predicate = Predicate::new("app=a", |change| change.old.unwrap().label("app") == Some("a"));
        let (source, predicate) = ("Secret".into(), Some(predicate));
        let cell = SourceCell::new("v1 Secret".into());
        let mut enqueue = Enqueue { queue: queue.clone(), cell, source, predicate, keys };
        // It changed hands and went before the handler heard of either.
        let (old, object) = (secret(1, "a"), secret(2, "b"));
        enqueue.on_delete(Deleted { old, object, final_state_unknown: false }).await;
        let keys = [queue.get().await, queue.get().await].map(|item| item.unwrap().key().to_string());
        assert_eq!(keys, ["a", "b"]);
    }
}
