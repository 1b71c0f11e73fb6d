//! What puts keys into a controller's queue.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::enqueue::{Enqueue, Target};
use super::error::ControllerError;
use super::predicate::Predicate;
use super::source::{PATIENCE, SourceCell, SourceState, SourceStats};
use crate::ObjectKey;
use crate::intake::panic_text;
use crate::object::{Kind, Object, View};
use crate::planted::{Bug, planted};
use crate::processor::Hops;
use crate::reflector::ReflectorStatus;
use crate::shared_informer::{Need, Registration, SharedInformer};
use crate::workqueue::{Add, Cause};

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
    /// A kind that the server refuses to show (403) is waited for all the same. A server without the kind answers so, too, unless the
    /// account may list and watch it: allow both, also for kinds that may be missing. While the server does not have the kind,
    /// `health` and the factory's `wait_for_sync` pass over it.
    /// If the copy has objects of it, because they went while the connection was lost or live on in another version of the kind, the
    /// copy is stale and `health` says so.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube_core::{ApiResource, GroupVersionKind};
    /// # use kube_informer::controller::WatchOptions;
    /// # use kube_informer::{Controller, ObjectKey, SharedInformerFactory};
    /// # fn example(factory: &SharedInformerFactory) -> Result<Controller<ConfigMap>, Box<dyn std::error::Error>> {
    /// let certificates = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"));
    /// let certificates = factory.dynamic(&certificates, true, factory.defaults())?;
    /// let options = WatchOptions::default().optional();
    /// let controller = Controller::new(factory.informer::<ConfigMap>())
    ///     .watches_with(certificates, options, |certificate| [certificate.key().clone()]);
    /// # Ok(controller)
    /// # }
    /// ```
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
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
        _need: Need,
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
            let need = informer.need(optional);
            informer.start();
            let (source, keys): (Arc<str>, _) = (informer.kind().kind().into(), Arc::new(keys));
            let hops = if built_in { map_hops(target, &source, &keys) } else { Hops::Keep };
            let name = format!("controller of {source}");
            let mut enqueue = Enqueue::new(target.clone(), Arc::clone(&cell), source, predicate, keys);
            let take = move |owed| enqueue.take::<T>(owed);
            let registration = informer.add_trigger(name, target.buffer_len, hops, take);
            let informer = informer.read_as();
            Running { cell, feed: Feed::Informer { informer, registration, optional, _need: need } }
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
                        // A stream that is always ready must not starve others on this thread.
                        tokio::task::consume_budget().await;
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

    /// Whether its trigger has had the first list.
    pub(super) fn has_synced(&self) -> bool {
        match &self.feed {
            Feed::Informer { registration, .. } => registration.has_synced(),
            Feed::Stream { .. } => true,
        }
    }

    /// Looks whether the source may be acted on, and shows it. Gives the stats if not.
    pub(super) fn look(&self) -> Option<SourceStats> {
        let Feed::Informer { informer, registration, optional, .. } = &self.feed else { return None };
        let unread = informer.unread();
        let patience = if planted(Bug::AbsentTooSoon) { Duration::ZERO } else { PATIENCE };
        // Up to its last answer: an outage since then says nothing about the kind.
        let missing = |part: &ReflectorStatus| {
            let outage = planted(Bug::OutageCountsAsAbsence);
            part.missing_since
                .is_some_and(|since| part.missing_for >= patience || (outage && since.elapsed() >= patience))
        };
        let absent = || *optional && unread.iter().all(missing) && registration.depth() == 0;
        // One more answer, so that the start does not wait for as long as the reflector would.
        let is_due = |part: &ReflectorStatus| {
            let long_ago = part.missing_since.is_some_and(|since| since.elapsed() >= patience);
            long_ago && !missing(part) && part.last_error_code == Some(404)
        };
        if *optional && unread.iter().any(is_due) {
            informer.retry_now();
        }
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

    /// Whether it may be acted on at this moment.
    pub(super) fn is_current(&self) -> bool {
        match &self.feed {
            Feed::Informer { informer, .. } => {
                informer.is_running() && (informer.is_current() || self.look().is_none())
            }
            Feed::Stream { .. } => true,
        }
    }

    /// Whether it was seen to wait, or to be absent.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self.cell.state(), SourceState::Waiting { .. } | SourceState::Absent)
    }

    /// Waits until a part of it was added, removed or read, from now on: before it is first polled, too.
    pub(super) fn parts_changed(&self) -> BoxFuture<'static, ()> {
        match &self.feed {
            Feed::Informer { informer, .. } => informer.parts_changed().boxed(),
            Feed::Stream { .. } => std::future::pending().boxed(),
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
        if planted(Bug::HopsNotMapped) {
            return;
        }
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
        (manager.controller || planted(Bug::AnyOwnerCounts))
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
