//! The life of an informer: it runs while somebody holds it.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Core, FixedNamespaces, NotSynced, Unfinished, resync};
use crate::delta_fifo::Scope;
use crate::interleave::lock;
use crate::planted::{Bug, planted};
use crate::reflector::NEVER;
use crate::stats::InformerStats;

/// How long a task that was aborted may take to be gone.
const ABORT_LIMIT: Duration = Duration::from_millis(100);

/// Held by every handle. When the last one goes, everything ends.
pub(crate) struct Keeper {
    core: Arc<Core>,
    cancel: CancellationToken,
    /// Whether the factory has ended, rather than this informer alone.
    factory_ended: CancellationToken,
    /// The tasks of the factory, or of nobody else.
    tasks: Arc<Tasks>,
    /// Those of them that belong to this informer.
    own: Tasks,
    life: Mutex<Life>,
    running: watch::Sender<bool>,
    /// The scopes that were asked for last.
    wanted: Mutex<Vec<Scope>>,
    /// One change of namespaces at a time.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Life {
    run: Option<Run>,
    /// The tasks of the run before, which may not have ended yet.
    last: Option<TaskTracker>,
}

/// One run, from a start to a stop.
struct Run {
    /// The tasks of the run before. There is one loop and one reflector of a scope at a time, so that changes stay in order.
    before: Option<TaskTracker>,
    cancel: CancellationToken,
    tracker: TaskTracker,
    reflectors: Vec<(Scope, CancellationToken, TaskTracker)>,
}

impl Keeper {
    /// The keeper of an informer that belongs to no factory.
    pub(crate) fn new(core: Arc<Core>) -> Arc<Self> {
        Self::within(core, &CancellationToken::new(), &Arc::default())
    }

    /// The keeper of an informer that ends with a factory.
    pub(crate) fn within(core: Arc<Core>, parent: &CancellationToken, tasks: &Arc<Tasks>) -> Arc<Self> {
        Arc::new(Self {
            core,
            cancel: parent.child_token(),
            factory_ended: parent.clone(),
            tasks: Arc::clone(tasks),
            own: Tasks::default(),
            life: Mutex::default(),
            running: watch::Sender::new(false),
            wanted: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn start(&self) {
        let mut life = self.lock();
        if life.run.is_some() || self.cancel.is_cancelled() {
            return;
        }
        let mut started = Run {
            before: life.last.take(),
            cancel: self.cancel.child_token(),
            tracker: TaskTracker::new(),
            reflectors: Vec::new(),
        };
        self.core.starts();
        let core = Arc::clone(&self.core);
        self.spawn(&started, &started.cancel, async move { core.process_loop().await });
        let core = Arc::clone(&self.core);
        self.spawn(&started, &started.cancel, async move { resync::run(&core).await });
        for scope in self.core.scopes() {
            self.reflect(&mut started, scope);
        }
        life.run = Some(started);
        self.running.send_replace(true);
        self.core.started();
    }

    pub(crate) async fn stop(&self) {
        let tracker = {
            let mut life = self.lock();
            let Some(run) = life.run.take() else { return };
            run.cancel.cancel();
            run.tracker.close();
            life.last = Some(run.tracker.clone());
            self.running.send_replace(false);
            run.tracker
        };
        tracker.wait().await;
    }

    /// Ends everything, handlers included, for good.
    pub(crate) async fn shutdown(&self, limit: Duration) -> Result<(), Unfinished> {
        self.cancel.cancel();
        self.own.join(limit).await
    }

    /// Changes the scopes within the caller's task.
    #[cfg(test)]
    pub(super) async fn change_scopes_to(&self, scopes: &[Scope]) {
        *lock(&self.wanted) = scopes.to_vec();
        self.change_scopes().await;
    }

    /// Ends everything, and does not wait.
    #[cfg(test)]
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Whether it was shut down, and never runs again.
    pub(crate) fn is_over(&self) -> bool {
        self.cancel.is_cancelled()
    }

    pub(crate) fn is_running(&self) -> bool {
        *self.running.borrow() && !self.cancel.is_cancelled()
    }

    pub(crate) async fn wait_for_sync(&self) -> Result<(), NotSynced> {
        let (mut synced, mut running) = (self.core.synced(), self.running.subscribe());
        tokio::select! {
            biased;
            _ = synced.wait_for(|synced| *synced) => Ok(()),
            () = self.cancel.cancelled() => Err(self.not_running()),
            _ = running.wait_for(|running| !running) => Err(self.not_running()),
        }
    }

    /// Waits until it does not run: it was stopped, or everything ended.
    pub(crate) async fn stopped(&self) {
        let mut running = self.running.subscribe();
        tokio::select! {
            () = self.cancel.cancelled() => {}
            _ = running.wait_for(|running| !running) => {}
        }
    }

    fn not_running(&self) -> NotSynced {
        let why = if self.factory_ended.is_cancelled() {
            "its factory was shut down"
        } else if self.cancel.is_cancelled() {
            "it was shut down"
        } else {
            "it does not run; start() it first"
        };
        NotSynced { kind: self.core.kind.to_string(), why: why.into() }
    }

    pub(crate) async fn set_scopes(self: &Arc<Self>, scopes: Vec<Scope>) -> Result<(), FixedNamespaces> {
        if !self.core.options.changing_namespaces {
            return Err(FixedNamespaces);
        }
        // Of several calls at once the last one counts, whichever task comes first.
        *lock(&self.wanted) = Scope::distinct(scopes);
        // A task of its own, so that it comes to its end even if nobody waits for it.
        let keeper = Arc::clone(self);
        let change = tokio::spawn(async move { keeper.change_scopes().await });
        let _ = change.await;
        Ok(())
    }

    async fn change_scopes(&self) {
        let _one_at_a_time = self.changing.lock().await;
        let scopes = lock(&self.wanted).clone();
        let (added, removed, ended, before) = {
            // Under the lock, so that a start at the same time sees either the old scopes or the new ones.
            let mut life = self.lock();
            let (added, removed) = self.core.set_scopes(&scopes);
            let mut ended = Vec::new();
            let mut before = life.last.clone();
            if let Some(run) = life.run.as_mut() {
                // A scope that overlaps with one that leaves must list after it has left, or its objects would leave, too.
                if removed.is_empty() || planted(Bug::OverlapListsFirst) {
                    self.reflect_missing(run, &added);
                }
                ended.extend(run.reflectors.extract_if(.., |(scope, _, _)| removed.contains(scope)));
                before.clone_from(&run.before);
            }
            (added, removed, ended, before)
        };
        // A run that was told to stop may not have ended yet.
        if let Some(before) = before {
            before.wait().await;
        }
        for (_, cancel, tracker) in ended {
            cancel.cancel();
            tracker.close();
            tracker.wait().await;
        }
        // Nothing of theirs comes any more, so this is the last word about them.
        for scope in &removed {
            self.core.fifo.drop_scope(scope);
        }
        if let Some(run) = self.lock().run.as_mut() {
            self.reflect_missing(run, &added);
        }
    }

    /// Begins to reflect these scopes, except where a start meanwhile has begun.
    fn reflect_missing(&self, run: &mut Run, scopes: &[Scope]) {
        for scope in scopes {
            if run.reflectors.iter().all(|(known, _, _)| known != scope) {
                self.reflect(run, scope.clone());
            }
        }
    }

    fn reflect(&self, run: &mut Run, scope: Scope) {
        let (cancel, tracker) = (run.cancel.child_token(), TaskTracker::new());
        let reflector = self.core.reflector(&scope);
        let work = tracker.track_future(async move { reflector.run().await });
        if planted(Bug::WatchLeaked) {
            let leaked = self.core.reflector(&scope);
            tokio::spawn(async move { leaked.run().await });
        }
        self.spawn(run, &cancel, work);
        run.reflectors.push((scope, cancel, tracker));
    }

    fn spawn(&self, run: &Run, cancel: &CancellationToken, work: impl Future<Output = ()> + Send + 'static) {
        let (cancel, before) = (cancel.clone(), run.before.clone());
        let work = run.tracker.track_future(async move {
            // Even if this run is over already: the next one waits for this one only.
            if let Some(before) = before.filter(|_| !planted(Bug::EarlierRunNotAwaited)) {
                before.wait().await;
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = work => {}
            }
        });
        self.spawn_task(None, work);
    }

    fn spawn_task(&self, name: Option<String>, work: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(name.clone(), self.own.tracker.track_future(work));
        self.own.note(name, task);
    }

    /// Runs a handler's deliveries; when everything ends, the callback that runs may return.
    pub(crate) fn spawn_handler(
        &self,
        name: &str,
        end: impl FnOnce() + Send + 'static,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let cancel = self.cancel.clone();
        if cancel.is_cancelled() {
            end();
            self.spawn_task(Some(name.to_owned()), work);
            return;
        }
        let work = async move {
            tokio::pin!(work);
            tokio::select! {
                biased;
                () = &mut work => {}
                () = cancel.cancelled() => {
                    end();
                    work.await;
                }
            }
        };
        self.spawn_task(Some(name.to_owned()), work);
    }

    /// Keeps this informer until something has come to its end.
    pub(crate) fn keep_until(self: &Arc<Self>, end: impl Future<Output = ()> + Send + 'static) {
        if planted(Bug::DetachLetsGo) {
            return;
        }
        let keeper = Arc::clone(self);
        self.spawn_task(None, async move {
            end.await;
            drop(keeper);
        });
    }

    /// When everything ends.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        self.cancel.clone().cancelled_owned()
    }

    pub(crate) fn stats(&self) -> InformerStats {
        self.core.stats(self.is_running())
    }

    fn lock(&self) -> MutexGuard<'_, Life> {
        lock(&self.life)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// All tasks of a factory or of one informer, so that a shutdown can wait for them.
#[derive(Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    running: Mutex<Vec<(Option<String>, AbortHandle)>>,
}

impl Tasks {
    fn spawn(&self, name: Option<String>, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let task = self.tracker.spawn(work).abort_handle();
        self.note(name, task.clone());
        task
    }

    fn note(&self, name: Option<String>, task: AbortHandle) {
        let mut running = self.lock();
        running.retain(|(_, task)| !task.is_finished());
        running.push((name, task));
    }

    /// How many have not ended.
    pub(crate) fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Waits for all of them until the limit; then aborts those that are left, and names them.
    ///
    /// # Cancel safety
    /// Dropped, it forgets nothing: the next call waits for the same tasks.
    pub(crate) async fn join(&self, limit: Duration) -> Result<(), Unfinished> {
        self.tracker.close();
        if tokio::time::timeout(limit.min(NEVER), self.tracker.wait()).await.is_ok() {
            return Ok(());
        }
        let left: Vec<_> = self.lock().iter().filter(|(_, task)| !task.is_finished()).cloned().collect();
        for (_, task) in &left {
            task.abort();
        }
        // They are gone at their next await; one that blocks its thread has none, and is not waited for.
        let _ = tokio::time::timeout(ABORT_LIMIT, self.tracker.wait()).await;
        let handlers: Vec<String> = left.into_iter().filter_map(|(name, _)| name).collect();
        if handlers.is_empty() { Ok(()) } else { Err(Unfinished { handlers }) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Option<String>, AbortHandle)>> {
        lock(&self.running)
    }
}
