//! Workers that bring the world in line with what objects ask for, key by key.
//!
//! Fed by [handlers](crate::handler) of any number of [informers](crate::shared_informer) through a
//! [`workqueue`](crate::workqueue); reads through a [`lister`](crate::lister).

mod action;
mod finalizer;
mod predicate;
mod trigger;
mod worker;

use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use tokio::task::JoinSet;

use crate::ObjectKey;
use crate::lister::Lister;
use crate::object::{Object, View};
use crate::shared_informer::SharedInformer;
use crate::workqueue::{Add, Cause, QueueStats, RateLimit, Reasons, WorkQueue, WorkQueueConfig};

pub use action::{Action, Failure};
pub use finalizer::{FinalizerEvent, finalizer};
pub use predicate::{Change, Predicate};
use trigger::{Running, Trigger};
use worker::Counts;

/// Reconciles the objects of a kind: the kind itself, what it owns, whatever concerns it.
///
/// One key is never reconciled twice at the same time, nor twice for nothing. A key whose object is gone is reconciled, too:
/// then [`Context::get`] gives `None`.
///
/// # Sources that fail
/// Workers start when every source has queued what is there. A source that the server refuses, because it does not have the kind
/// or does not let us read it, is reported and not waited for; it joins when it comes. A server that cannot be reached is waited
/// for: half of what is there is no ground to act on.
///
/// # Dropping
/// A controller that never runs costs nothing. To stop one that runs, see [`run`](Self::run).
pub struct Controller<K> {
    informer: SharedInformer<K>,
    predicate: Option<Predicate>,
    triggers: Vec<Trigger>,
    workers: usize,
    reconcile_limit: Option<Duration>,
    shutdown_limit: Duration,
    shutdown: BoxFuture<'static, ()>,
    handle: ControllerHandle,
    closing: Closing,
}

/// How long reconciles that did not end in time have to notice that they were ended.
const ABORT_LIMIT: Duration = Duration::from_secs(1);

/// What is to be reconciled, and why.
#[derive(Debug, Clone)]
pub struct Request {
    /// The object's key.
    pub key: ObjectKey,
    /// What has happened since the last reconcile, merged.
    pub reasons: Reasons,
    /// How often in a row it has failed.
    pub failures: u32,
}

/// What a reconcile can read.
pub struct Context<K> {
    lister: Lister<K>,
}

/// Looks at a controller and gives it keys, from outside. Cheap to clone.
///
/// # Dropping
/// A handle keeps nothing running. When the controller has ended, or was dropped, what is asked of it is ignored.
#[derive(Clone)]
pub struct ControllerHandle {
    queue: WorkQueue<ObjectKey>,
    counts: Arc<Counts>,
    predicates: Arc<Mutex<Vec<Predicate>>>,
}

/// What a controller has done.
#[derive(Debug, Clone)]
pub struct ControllerStats {
    /// The queue.
    pub queue: QueueStats,
    /// The keys in work.
    pub running: Vec<ObjectKey>,
    /// Reconciles that succeeded.
    pub succeeded: u64,
    /// Reconciles that failed and are tried again.
    pub failed: u64,
    /// Reconciles that failed for good.
    pub terminal: u64,
    /// Reconciles that took too long.
    pub timed_out: u64,
    /// Reconciles that panicked.
    pub panicked: u64,
    /// Each predicate, and how many changes it dropped.
    pub dropped: Vec<(String, u64)>,
}

/// Reconciles that did not end in time when the controller was to stop. They were ended at the await where they stood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("these keys were still in work and were ended: {}", keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
pub struct StillRunning {
    /// The keys.
    pub keys: Vec<ObjectKey>,
}

impl<K: View> Controller<K> {
    /// A controller of a kind, with one worker.
    pub fn new(informer: SharedInformer<K>) -> Self {
        // Per key alone: one key's failures are no reason to hold back another.
        let retry = RateLimit::exponential(Duration::from_millis(5), Duration::from_secs(1000));
        let queue = WorkQueue::with_config(WorkQueueConfig { retry, ..WorkQueueConfig::default() });
        Self {
            informer,
            predicate: None,
            triggers: Vec::new(),
            workers: 1,
            reconcile_limit: None,
            shutdown_limit: Duration::from_secs(30),
            shutdown: std::future::pending().boxed(),
            closing: Closing(queue.clone()),
            handle: ControllerHandle { queue, counts: Arc::default(), predicates: Arc::default() },
        }
    }

    /// Only changes of the kind itself that pass.
    pub fn filter(mut self, predicate: Predicate) -> Self {
        self.handle.count_drops_of(&predicate);
        self.predicate = Some(predicate);
        self
    }

    /// A change of an object that is managed by one of ours (its controlling owner reference says so) concerns the owner.
    pub fn owns<T: View>(self, informer: SharedInformer<T>) -> Self {
        self.owned(informer, None)
    }

    /// As [`owns`](Self::owns), for changes that pass.
    pub fn owns_filtered<T: View>(self, informer: SharedInformer<T>, predicate: Predicate) -> Self {
        self.owned(informer, Some(predicate))
    }

    fn owned<T: View>(self, informer: SharedInformer<T>, predicate: Option<Predicate>) -> Self {
        let owner = self.informer.kind().clone();
        self.watched(informer, predicate, move |owned: &Object<T>| trigger::owner_of(&owner, owned))
    }

    /// A change of an object concerns the keys that a function says, before and after the change.
    pub fn watches<T: View, I: IntoIterator<Item = ObjectKey>>(
        self,
        informer: SharedInformer<T>,
        keys: impl Fn(&Object<T>) -> I + Send + Sync + 'static,
    ) -> Self {
        self.watched(informer, None, keys)
    }

    /// As [`watches`](Self::watches), for changes that pass.
    pub fn watches_filtered<T: View, I: IntoIterator<Item = ObjectKey>>(
        self,
        informer: SharedInformer<T>,
        predicate: Predicate,
        keys: impl Fn(&Object<T>) -> I + Send + Sync + 'static,
    ) -> Self {
        self.watched(informer, Some(predicate), keys)
    }

    fn watched<T: View, I: IntoIterator<Item = ObjectKey>>(
        mut self,
        informer: SharedInformer<T>,
        predicate: Option<Predicate>,
        keys: impl Fn(&Object<T>) -> I + Send + Sync + 'static,
    ) -> Self {
        if let Some(predicate) = &predicate {
            self.handle.count_drops_of(predicate);
        }
        let keys = move |object: &Object<T>| keys(object).into_iter().collect();
        self.triggers.push(Trigger::informer(informer, predicate, keys));
        self
    }

    /// Keys from anywhere else.
    pub fn triggered_by(mut self, name: &str, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.triggers.push(Trigger::stream(name, keys.boxed()));
        self
    }

    /// How many keys are worked on at once. One by default.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// How long one reconcile may take. Without a limit by default.
    pub fn reconcile_limit(mut self, limit: Duration) -> Self {
        self.reconcile_limit = Some(limit);
        self
    }

    /// The waits after failures: for each key, 5 milliseconds, then twice as long each time up to 1000 seconds by default.
    pub fn retry(self, limit: RateLimit) -> Self {
        self.handle.queue.set_retry(limit);
        self
    }

    /// Stops when this is done: what runs may end, what waits is dropped. Without it, a controller runs until it is dropped.
    pub fn shutdown_on(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.shutdown = signal.boxed();
        self
    }

    /// How long a shutdown waits for what runs. 30 seconds by default.
    pub fn shutdown_limit(mut self, limit: Duration) -> Self {
        self.shutdown_limit = limit;
        self
    }

    /// Looks at the controller from outside, before, while and after it runs.
    pub fn handle(&self) -> ControllerHandle {
        self.handle.clone()
    }

    /// Reconciles until the shutdown signal comes. Starts informers that do not run.
    ///
    /// # Errors
    /// If reconciles did not end in time when it was to stop.
    ///
    /// # Cancel safety
    /// Dropped, it stops: nothing more is handed out, and reconciles end at the await where they stand. Whatever they had not done
    /// is done by the next controller, for which everything there is is new.
    pub async fn run<F, Fut>(self, reconcile: F) -> Result<(), StillRunning>
    where
        F: Fn(Request, Context<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, Failure>> + Send + 'static,
    {
        let queue = &self.closing.0;
        let context = Context { lister: self.informer.lister() };
        let mut triggers = self.triggers;
        triggers.insert(
            0,
            Trigger::informer(self.informer, self.predicate, |object: &Object<K>| vec![object.key().clone()]),
        );
        let sources: Vec<Running> = triggers.into_iter().map(|trigger| trigger.begin(queue)).collect();
        let mut shutdown = self.shutdown;
        tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            _ = join_all(sources.iter().map(Running::ready)) => {}
        }
        let counts = &self.handle.counts;
        let reconcile = Arc::new(reconcile);
        let mut workers = JoinSet::new();
        for _ in 0..self.workers {
            let (counts, reconcile) = (Arc::clone(counts), Arc::clone(&reconcile));
            workers.spawn(worker::work(
                queue.clone(),
                context.clone(),
                counts,
                self.reconcile_limit,
                reconcile,
            ));
        }
        shutdown.await;
        queue.shut_down_now();
        let finish = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(self.shutdown_limit, finish).await.is_ok() {
            return Ok(());
        }
        let keys = counts.running();
        // One that blocks its thread does not even notice: it is not waited for.
        let _ = tokio::time::timeout(ABORT_LIMIT, workers.shutdown()).await;
        Err(StillRunning { keys })
    }
}

impl<K> Context<K> {
    /// Reads the kind's cache.
    pub fn lister(&self) -> &Lister<K> {
        &self.lister
    }

    /// The object that a request is about; `None` if it is gone.
    pub fn get(&self, request: &Request) -> Option<Object<K>> {
        self.lister.get(&request.key)
    }
}

impl<K> Clone for Context<K> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone() }
    }
}

impl ControllerHandle {
    /// Asks for a reconcile. Before the controller runs, it is kept until then.
    pub fn enqueue(&self, key: ObjectKey, cause: Cause) {
        self.queue.add_with(key, Add { cause: Some(cause), ..Add::default() });
    }

    /// Hands out no more keys until [`resume`](Self::resume); what runs goes on. For whoever must not work now, such as one that
    /// does not lead. A controller that is paused before it runs begins paused.
    pub fn pause(&self) {
        self.queue.pause();
    }

    /// Hands out keys again.
    pub fn resume(&self) {
        self.queue.resume();
    }

    /// What the controller has done so far.
    pub fn stats(&self) -> ControllerStats {
        let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let predicates = self.predicates.lock().unwrap_or_else(PoisonError::into_inner);
        ControllerStats {
            queue: self.queue.stats(),
            running: self.counts.running(),
            succeeded: count(&self.counts.succeeded),
            failed: count(&self.counts.failed),
            terminal: count(&self.counts.terminal),
            timed_out: count(&self.counts.timed_out),
            panicked: count(&self.counts.panicked),
            dropped: predicates
                .iter()
                .map(|predicate| (predicate.name().to_owned(), predicate.dropped()))
                .collect(),
        }
    }

    fn count_drops_of(&self, predicate: &Predicate) {
        self.predicates.lock().unwrap_or_else(PoisonError::into_inner).push(predicate.clone());
    }
}

/// Ends the queue with the controller, however that ends: a handle that lives longer must not fill a queue that nobody empties.
struct Closing(WorkQueue<ObjectKey>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.shut_down_now();
    }
}

impl<K> std::fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller")
            .field("informer", &self.informer)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl<K> std::fmt::Debug for Context<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("lister", &self.lister).finish()
    }
}

impl std::fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerHandle").field("stats", &self.stats()).finish()
    }
}
