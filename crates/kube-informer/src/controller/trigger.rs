//! What puts keys into a controller's queue.

use std::sync::Arc;
use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::StreamExt;

use super::predicate::{Change, Predicate};
use crate::ObjectKey;
use crate::event::Deleted;
use crate::handler::{EventHandler, HandlerOptions};
use crate::object::{Kind, Object, View};
use crate::shared_informer::{Registration, SharedInformer};
use crate::workqueue::{Add, Cause, WorkQueue};

/// What was there before, and what merely comes round again, waits behind what is new.
const LOW_PRIORITY: i8 = -50;

/// How long a source may be refused before the others stop waiting for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sets a source to work: into this queue, through this predicate, under this name.
type Begin = dyn FnOnce(&WorkQueue<ObjectKey>, Option<Predicate>, Arc<str>) -> Running + Send;

/// A source of keys that has not begun.
pub(super) struct Trigger {
    pub(super) name: String,
    pub(super) predicate: Option<Predicate>,
    begin: Box<Begin>,
}

/// A source of keys at work. Dropped, it ends.
pub(super) enum Running {
    Informer { informer: SharedInformer<()>, registration: Registration },
    Stream(#[allow(dead_code, reason = "held for its drop")] tokio::task::JoinSet<()>),
}

impl Trigger {
    /// The objects of an informer, each mapped to the keys it concerns.
    pub(super) fn informer<T: View>(
        informer: SharedInformer<T>,
        predicate: Option<Predicate>,
        keys: impl Fn(&Object<T>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let name = informer.kind().kind().to_owned();
        let begin = move |queue: &WorkQueue<ObjectKey>, predicate, source: Arc<str>| {
            informer.start();
            let enqueue = Enqueue { queue: queue.clone(), source, predicate, keys };
            let options = HandlerOptions::default().name(format!("controller of {}", enqueue.source));
            let registration = informer.add_handler_with(options, enqueue);
            Running::Informer { informer: informer.read_as(), registration }
        };
        Self { name, predicate, begin: Box::new(begin) }
    }

    /// Keys from anywhere.
    pub(super) fn stream(name: &str, mut keys: BoxStream<'static, ObjectKey>) -> Self {
        let begin = move |queue: &WorkQueue<ObjectKey>, _, source: Arc<str>| {
            let queue = queue.clone();
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(async move {
                while let Some(key) = keys.next().await {
                    let cause = Some(Cause::new(Arc::clone(&source), "asked"));
                    queue.add_with(key, Add { cause, ..Add::default() });
                }
            });
            Running::Stream(tasks)
        };
        Self { name: name.to_owned(), predicate: None, begin: Box::new(begin) }
    }

    pub(super) fn begin(self, queue: &WorkQueue<ObjectKey>) -> Running {
        (self.begin)(queue, self.predicate, self.name.into())
    }
}

impl Running {
    /// Waits until everything that is there has been queued; or, if the server refuses the source, until it is clear that the
    /// others need not wait for it. Then it says so, and joins when it comes.
    ///
    /// For ever, if the informer was ended for good: what is not complete is not to be acted on.
    pub(super) async fn ready(&self) {
        let Self::Informer { informer, registration } = self else { return };
        loop {
            let waited = tokio::time::timeout(PATIENCE, registration.wait_for_sync()).await;
            if registration.has_synced() {
                return;
            }
            if waited.is_ok() {
                tracing::warn!(kind = %informer.kind(), "a source was shut down before it was complete; the controller rests");
                return std::future::pending().await;
            }
            if let Some(error) = refusal(informer)
                && registration.depth() == 0
            {
                tracing::warn!(kind = %informer.kind(), error, "a source is not there; it joins when it comes");
                return;
            }
        }
    }
}

/// What the server said, if all that is missing is what it refuses: a source may have several namespaces, and one that is only
/// slow is waited for.
fn refusal(informer: &SharedInformer<()>) -> Option<String> {
    let snapshot = informer.snapshot();
    let mut error = None;
    for status in informer.status().into_iter().filter(|status| snapshot.version_of(&status.scope).is_none())
    {
        if status.version.is_some() || !matches!(status.last_error_code, Some(403 | 404)) {
            return None;
        }
        error = status.last_error;
    }
    error
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
    source: Arc<str>,
    predicate: Option<Predicate>,
    keys: F,
}

impl<F> Enqueue<F> {
    fn enqueue<T>(&self, event: &'static str, change: Change<'_>, objects: &[&Object<T>], priority: i8)
    where
        F: Fn(&Object<T>) -> Vec<ObjectKey>,
    {
        if self.predicate.as_ref().is_some_and(|predicate| !predicate.passes(&change)) {
            return;
        }
        let mut keys: Vec<ObjectKey> = objects.iter().flat_map(|object| (self.keys)(object)).collect();
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
        let mut enqueue = Enqueue { queue: queue.clone(), source, predicate, keys };
        // It changed hands and went before the handler heard of either.
        let (old, object) = (secret(1, "a"), secret(2, "b"));
        enqueue.on_delete(Deleted { old, object, final_state_unknown: false }).await;
        let keys = [queue.get().await, queue.get().await].map(|item| item.unwrap().key().to_string());
        assert_eq!(keys, ["a", "b"]);
    }
}
