//! Workers that bring the world in line with what objects ask for, key by key.
//!
//! Fed by [handlers](crate::handler) of any number of [informers](crate::shared_informer) through a
//! [`workqueue`](crate::workqueue); reads through a [`lister`](crate::lister).

mod action;
mod enqueue;
mod error;
mod finalizer;
mod handle;
mod predicate;
mod source;
mod trigger;
mod worker;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::ObjectKey;
use crate::intake::panic_text;
use crate::lister::Lister;
use crate::object::{Object, View};
use crate::shared_informer::SharedInformer;
use crate::workqueue::{RateLimit, Reasons, WorkQueue, WorkQueueConfig};

pub use action::{Action, Failure};
use enqueue::Target;
pub use error::ControllerError;
pub use finalizer::{FinalizerEvent, finalizer};
pub use handle::{ControllerHandle, ControllerStats};
pub use predicate::{Change, Predicate};
use source::SourceCell;
pub use source::{SourceState, SourceStats};
pub use trigger::WatchOptions;
use trigger::{Running, Trigger};
use worker::Work;

/// Reconciles the objects of a kind: the kind itself, what it owns, whatever concerns it.
///
/// One key is never reconciled twice at the same time, nor twice for nothing. A key whose object is gone is reconciled, too:
/// then [`Context::get`] gives `None`.
///
/// # Sources that cannot be read
/// No key is reconciled before every source was read completely at least once: every namespace of the kind itself, of owned
/// kinds and of watched kinds. A source that the server refuses (403), does not have (404) or cannot answer for is waited for.
/// The wait is logged at growing intervals and shown in [`ControllerStats::sources`]; it costs what the informers' own retries
/// cost, one request per informer and backoff. [`start_limit`](Self::start_limit) bounds it.
///
/// A kind that may be missing is declared with [`WatchOptions::optional`], for [`watches_with`](Self::watches_with) only: kinds that
/// the controller owns must be there. Until the server has it, the kind counts as
/// empty. Once the server has the kind, workers pause until it was read completely; the same holds for namespaces that are
/// added to an informer later.
///
/// A source that was read and is refused later keeps its last state, as every cache does while its server is out of reach.
///
/// # What a reconcile has written
/// The cache shows it after the server has sent it, so the next reconcile may not see it yet: give a child a name that follows
/// from its owner's, and a second create is answered with 409. While a kind lives by lists alone, because its watches are
/// refused or broken, an object that comes and goes between two lists is in no cache and brings no reconcile. A reconcile that
/// has created something and relies on it answers with [`Action::requeue_after`] until its lister shows it.
///
/// # Dropping
/// A controller that never runs costs nothing. To stop one that runs, see [`run`](Self::run).
pub struct Controller<K> {
    informer: SharedInformer<K>,
    source: Arc<SourceCell>,
    predicate: Option<Predicate>,
    triggers: Vec<Trigger>,
    workers: usize,
    buffer_len: usize,
    reconcile_limit: Option<Duration>,
    start_limit: Option<Duration>,
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
    /// What has happened since the last reconcile that succeeded, merged. A run that a change sets off takes the place of one that
    /// [`Action::requeue_after`] has asked for, and has its reason, too.
    pub reasons: Reasons,
    /// How many reconciles of it failed in a row, whatever set them off.
    pub failures: u32,
}

/// What a reconcile can read.
pub struct Context<K> {
    lister: Lister<K>,
}

impl<K: View> Controller<K> {
    /// A controller of a kind, with one worker.
    pub fn new(informer: SharedInformer<K>) -> Self {
        // An outage makes all keys fail together: the jitter and the overall limit keep it from becoming a stampede.
        let retry = RateLimit::default().with_jitter(0.25, fastrand::u64(..));
        let queue = WorkQueue::with_config(WorkQueueConfig { retry, ..WorkQueueConfig::default() });
        let handle = ControllerHandle::new(queue.clone());
        Self {
            source: handle.add_source(informer.kind().to_string()),
            informer,
            predicate: None,
            triggers: Vec::new(),
            workers: 1,
            buffer_len: 1024,
            reconcile_limit: None,
            start_limit: None,
            shutdown_limit: Duration::from_secs(30),
            shutdown: std::future::pending().boxed(),
            closing: Closing(queue),
            handle,
        }
    }

    /// Only changes of the kind itself that pass. Of several filters, a change must pass every one.
    pub fn filter(mut self, predicate: Predicate) -> Self {
        self.handle.count_drops_of(&predicate);
        self.predicate = Some(Predicate::both(self.predicate.take(), predicate));
        self
    }

    /// A change of an object that is managed by one of ours (its controlling owner reference says so) concerns the owner.
    pub fn owns<T: View>(self, informer: SharedInformer<T>) -> Self {
        self.owned(informer, WatchOptions::default())
    }

    /// As [`owns`](Self::owns), for changes that pass.
    ///
    /// Each call adds a source of its own; to require several predicates, combine them with [`Predicate::and`].
    pub fn owns_filtered<T: View>(self, informer: SharedInformer<T>, predicate: Predicate) -> Self {
        self.owned(informer, WatchOptions::default().filter(predicate))
    }

    fn owned<T: View>(self, informer: SharedInformer<T>, options: WatchOptions) -> Self {
        let owner = self.informer.kind().clone();
        self.watched(informer, options, true, move |owned: &Object<T>| trigger::owner_of(&owner, owned))
    }

    /// A change of an object concerns the keys that a function says, before and after the change.
    ///
    /// If the function is so slow that changes of one object are merged, the keys of every state between are enqueued, too. If it
    /// panics, or if there are more states between than [`buffer_len`](Self::buffer_len), every key of the controller's own kind
    /// is enqueued, at most once a minute.
    ///
    /// # Example
    /// Config maps name the secret that they need; a change of the secret concerns all of them:
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use kube_informer::{Controller, SharedInformerFactory};
    /// # fn example(factory: &SharedInformerFactory) -> Result<Controller<ConfigMap>, Box<dyn std::error::Error>> {
    /// let maps = factory.informer::<ConfigMap>();
    /// maps.add_index("secret", |map| map.label("secret").map(String::from))?;
    /// let users = maps.lister();
    /// let controller = Controller::new(maps).watches(factory.informer::<Secret>(), move |secret| {
    ///     let users = users.by_index("secret", secret.name()).into_iter().flatten();
    ///     users.map(|map| map.key().clone()).collect::<Vec<_>>()
    /// });
    /// # Ok(controller)
    /// # }
    /// ```
    pub fn watches<T: View, I: IntoIterator<Item = ObjectKey>>(
        self,
        informer: SharedInformer<T>,
        keys: impl Fn(&Object<T>) -> I + Send + Sync + 'static,
    ) -> Self {
        self.watches_with(informer, WatchOptions::default(), keys)
    }

    /// The reconcile reads objects of this kind, too, whose changes concern no key: no key is reconciled before the kind was read
    /// completely, and the informer is started with the others.
    ///
    /// A lister of an informer that the controller does not know may be empty for as long as that informer has not synced.
    pub fn reads<T: View>(self, informer: SharedInformer<T>) -> Self {
        self.watched(informer, WatchOptions::default(), true, |_| Vec::new())
    }

    /// As [`watches`](Self::watches), for changes that pass.
    ///
    /// Each call adds a source of its own; to require several predicates, combine them with [`Predicate::and`].
    pub fn watches_filtered<T: View, I: IntoIterator<Item = ObjectKey>>(
        self,
        informer: SharedInformer<T>,
        predicate: Predicate,
        keys: impl Fn(&Object<T>) -> I + Send + Sync + 'static,
    ) -> Self {
        self.watches_with(informer, WatchOptions::default().filter(predicate), keys)
    }

    /// As [`watches`](Self::watches), with options: predicates, or that the server need not have the kind.
    pub fn watches_with<T: View, I: IntoIterator<Item = ObjectKey>>(
        self,
        informer: SharedInformer<T>,
        options: WatchOptions,
        keys: impl Fn(&Object<T>) -> I + Send + Sync + 'static,
    ) -> Self {
        self.watched(informer, options, false, move |object| keys(object).into_iter().collect())
    }

    fn watched<T: View>(
        mut self,
        informer: SharedInformer<T>,
        options: WatchOptions,
        built_in: bool,
        keys: impl Fn(&Object<T>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        if let Some(predicate) = &options.predicate {
            self.handle.count_drops_of(predicate);
        }
        let cell = self.handle.add_source(informer.kind().to_string());
        self.triggers.push(Trigger::informer(informer, cell, options, built_in, keys));
        self
    }

    /// Keys from anywhere else.
    ///
    /// A stream may end: then it delivers no more keys, which [`ControllerStats::sources`] shows. If it panics, `run` ends.
    pub fn triggered_by(mut self, name: &str, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        let cell = self.handle.add_source(name.to_owned());
        self.triggers.push(Trigger::stream(cell, keys.boxed()));
        self
    }

    /// How many keys are worked on at once. One by default.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// How many changes each source buffers before changes of one object are merged. 1024 by default.
    ///
    /// Merged changes pass every predicate, and the keys of the states between are enqueued.
    pub fn buffer_len(mut self, changes: usize) -> Self {
        self.buffer_len = changes.max(1);
        self
    }

    /// How long one reconcile may take. Without a limit by default.
    pub fn reconcile_limit(mut self, limit: Duration) -> Self {
        self.reconcile_limit = Some(limit);
        self
    }

    /// How long `run` waits until every source was read completely, before it ends with an error. Without a limit by default.
    pub fn start_limit(mut self, limit: Duration) -> Self {
        self.start_limit = Some(limit);
        self
    }

    /// Sets the delays after failures. By default each key waits 5 milliseconds, then twice as long each time up to 1000
    /// seconds, each delay made longer by up to a quarter at random; and all keys together are retried at most 10 times a
    /// second, with a burst of 100. First runs and [`Action::requeue_after`] are never held back.
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

    /// Reconciles until the shutdown signal comes. When it is first polled, it starts the informers of its own kind and of all that it
    /// owns, watches or [reads](Self::reads), and waits until all of them were read. Others that a reconcile reads are not waited for.
    ///
    /// # Errors
    /// If reconciles did not end in time when it was to stop; if the start took longer than its limit; if an informer was
    /// stopped or its factory shut down, because its cache no longer follows the server; if a stream panicked or a worker died.
    /// To end a controller together with its factory, give the [signal](Self::shutdown_on) first.
    ///
    /// # Cancel safety
    /// Dropped, it stops: nothing more is handed out, and reconciles end at the await that they have reached. The next
    /// controller does the rest, because it reconciles every object that it finds.
    pub async fn run<F, Fut>(self, reconcile: F) -> Result<(), ControllerError>
    where
        F: Fn(Request, Context<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, Failure>> + Send + 'static,
    {
        let queue = &self.closing.0;
        let context = Context { lister: self.informer.lister() };
        let options = WatchOptions { predicate: self.predicate, optional: false };
        let own_key = |object: &Object<K>| vec![object.key().clone()];
        let known = self.informer.read_as::<()>();
        let target = Target {
            queue: queue.clone(),
            all_keys: Arc::new(move || known.snapshot().iter().map(|object| object.key().clone()).collect()),
            buffer_len: self.buffer_len,
        };
        let own = Trigger::informer(self.informer, self.source, options, true, own_key);
        let sources: Arc<[Running]> =
            std::iter::once(own).chain(self.triggers).map(|trigger| trigger.begin(&target)).collect();
        let mut shutdown = self.shutdown;
        let mut failure = source::first_failure(&sources).boxed();
        tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            error = &mut failure => return Err(error),
            started = source::all_read(&sources, self.start_limit) => started?,
        }
        let counts = &self.handle.counts;
        let work = Arc::new(Work {
            queue: queue.clone(),
            sources: Arc::clone(&sources),
            context,
            counts: Arc::clone(counts),
            limit: self.reconcile_limit,
            reconcile,
            paused: self.handle.paused.clone(),
            ends: CancellationToken::new(),
        });
        let mut workers = JoinSet::new();
        for _ in 0..self.workers {
            workers.spawn(worker::work(Arc::clone(&work)));
        }
        let ended = tokio::select! {
            biased;
            () = &mut shutdown => Ok(()),
            error = &mut failure => Err(error),
            Some(ended) = workers.join_next() => Err(worker_died(ended)),
            () = source::report_unread(&sources) => Ok(()),
        };
        queue.shut_down_now();
        work.ends.cancel();
        let finish = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(self.shutdown_limit, finish).await.is_ok() {
            return ended;
        }
        let keys = counts.running();
        // A reconcile that blocks its thread does not notice that it was ended, so this wait is bounded.
        let _ = tokio::time::timeout(ABORT_LIMIT, workers.shutdown()).await;
        let still_running = ControllerError::StillRunning { keys };
        if let Err(cause) = ended {
            tracing::warn!(%cause, "{still_running}");
            return Err(cause);
        }
        Err(still_running)
    }
}

fn worker_died(ended: Result<(), JoinError>) -> ControllerError {
    let why = match ended.map_err(JoinError::try_into_panic) {
        Err(Ok(panic)) => panic_text(panic),
        Err(Err(error)) => error.to_string(),
        Ok(()) => "its queue was shut down".into(),
    };
    ControllerError::WorkerDied { why }
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
