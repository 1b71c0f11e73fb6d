//! What an informer is made of, and its loop: store first, then handlers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, watch};

use super::NotSynced;
use super::options::{InformerOptions, Shape};
use crate::Kind;
use crate::delta_fifo::{Batch, DeltaFifo, Scope};
use crate::intake::{Intake, panic_text};
use crate::interleave::{lock, scheduling_point};
use crate::object::{SharedPacker, Storage};
use crate::planted::{Bug, planted};
use crate::processor::Processor;
use crate::reflector::{Reflector, ReflectorStatus, StatusCell};
use crate::source::ListWatch;
use crate::stats::{InformerStats, QueueStats, StoreStats};
use crate::store::Indexer;

/// Makes the source of a scope.
pub(crate) type SourceOf = Arc<dyn Fn(&Scope) -> Arc<dyn ListWatch> + Send + Sync>;

/// Everything of an informer but its life. Tasks hold this; users hold the [`Keeper`](super::Keeper).
pub(crate) struct Core {
    pub(crate) kind: Arc<Kind>,
    pub(crate) options: InformerOptions,
    pub(crate) indexer: Arc<Indexer>,
    pub(crate) fifo: Arc<DeltaFifo>,
    intake: Arc<Intake>,
    source: SourceOf,
    /// Held while the store is written *and* handlers are told, so that who comes in between hears of all, once.
    processor: Mutex<Processor>,
    scopes: Mutex<Scopes>,
    /// Marked whenever `scopes` changes.
    scopes_changed: watch::Sender<()>,
    synced: watch::Sender<bool>,
    /// Told when a handler comes or goes.
    pub(crate) handlers_changed: Notify,
    counts: Counts,
    /// What the first panic said that interrupted a change of the store.
    panicked: Mutex<Option<String>>,
    /// How many use it and can do without the kind, and how many cannot.
    optional: AtomicUsize,
    required: AtomicUsize,
}

/// That somebody uses an informer, for as long as this is held.
pub(crate) struct Need {
    core: Arc<Core>,
    optional: bool,
}

impl Need {
    pub(crate) fn new(core: Arc<Core>, optional: bool) -> Self {
        let need = Self { core, optional };
        need.users().fetch_add(1, Ordering::Relaxed);
        need
    }

    fn users(&self) -> &AtomicUsize {
        if self.optional { &self.core.optional } else { &self.core.required }
    }
}

impl Drop for Need {
    fn drop(&mut self) {
        self.users().fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Scopes {
    /// Each scope with the status of its reflector.
    all: Vec<(Scope, Arc<StatusCell>)>,
    /// The scopes whose first list is in the store.
    listed: Vec<Scope>,
    /// Those that were listed since the informer started, or started again.
    current: Vec<Scope>,
}

#[derive(Default)]
struct Counts {
    batches: AtomicU64,
    changes: AtomicU64,
    ignored: AtomicU64,
    repairs: AtomicU64,
    resyncs: AtomicU64,
}

impl Core {
    pub(crate) fn new(
        kind: Arc<Kind>,
        source: SourceOf,
        options: InformerOptions,
        shape: Shape,
    ) -> Arc<Self> {
        let indexer = Arc::new(Indexer::new());
        let intake = Intake {
            kind: Arc::clone(&kind),
            cuts: options.cuts(),
            transform: options.transform.clone(),
            storage: options.storage,
            decoder: (options.storage == Storage::Decoded).then_some(shape.decoder),
            indexes: Arc::clone(&indexer.indexes),
            state: Arc::clone(&indexer.cell),
            interner: Mutex::default(),
            packer: (options.storage == Storage::Packed).then(|| SharedPacker::new(options.pack_eagerly)),
        };
        let known: Arc<Indexer> = Arc::clone(&indexer);
        let fifo = DeltaFifo::with_limit(Some(known), options.queue_limit());
        let all = options.scopes().into_iter().map(|scope| (scope, Arc::default())).collect();
        Arc::new(Self {
            kind,
            indexer,
            fifo: Arc::new(fifo),
            intake: Arc::new(intake),
            source,
            processor: Mutex::default(),
            scopes: Mutex::new(Scopes { all, ..Scopes::default() }),
            scopes_changed: watch::Sender::new(()),
            synced: watch::Sender::new(false),
            handlers_changed: Notify::new(),
            counts: Counts::default(),
            panicked: Mutex::default(),
            optional: AtomicUsize::new(0),
            required: AtomicUsize::new(0),
            options,
        })
    }

    /// Takes batches until it is dropped.
    pub(crate) async fn process_loop(&self) {
        while let Ok(mut batch) = self.fifo.drain().await {
            if planted(Bug::HalfRelistVisible) {
                let half = batch.items.len() / 2;
                let items = batch.items.drain(..half).collect();
                self.process(Batch { items, versions: batch.versions.clone(), ..Batch::default() });
                tokio::task::yield_now().await;
            }
            let before = planted(Bug::HandlerBeforeStore).then(|| self.indexer.cell.load_full());
            // A value of the user's may panic where it is dropped. What is left to do goes on, and the health check says so.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.process(batch))) {
                let panic = panic_text(panic);
                tracing::error!(kind = %self.kind, panic, "a change of the store panicked");
                lock(&self.panicked).get_or_insert(panic);
            }
            if let Some(before) = before {
                let after = self.indexer.cell.swap(before);
                tokio::task::yield_now().await;
                self.indexer.cell.store(after);
            }
            // A full queue must not starve what else runs on this thread.
            tokio::task::yield_now().await;
        }
    }

    /// One batch: the store first, then the handlers.
    pub(crate) fn process(&self, mut batch: Batch) {
        let (mut processor, writer) = loop {
            let prepared = self.indexer.prepare(&mut batch);
            let processor = self.processor();
            if let Some(writer) = self.indexer.begin(&prepared) {
                break (processor, writer);
            }
        };
        let initial = !self.has_synced();
        let listed =
            batch.replaced.as_ref().filter(|replaced| !replaced.gone).map(|replaced| replaced.scope.clone());
        let applied = self.indexer.apply(writer, batch, initial);
        if planted(Bug::LockReleasedBetween) {
            drop(processor);
            processor = self.processor();
        }
        scheduling_point();
        self.counts.batches.fetch_add(1, Ordering::Relaxed);
        self.counts.changes.fetch_add(applied.changes, Ordering::Relaxed);
        self.counts.ignored.fetch_add(applied.ignored, Ordering::Relaxed);
        self.counts.repairs.fetch_add(applied.repairs, Ordering::Relaxed);
        processor.distribute(&applied);
        if let Some(scope) = listed {
            self.listed(&mut processor, scope);
        }
    }

    /// A scope's first list is in the store.
    fn listed(&self, processor: &mut Processor, scope: Scope) {
        let mut scopes = self.lock_scopes();
        // It may have been dropped while its list stood in the queue.
        let watched = scopes.all.iter().any(|(known, _)| *known == scope);
        if watched && !scopes.current.contains(&scope) {
            scopes.current.push(scope.clone());
            self.scopes_changed.send_replace(());
        }
        if (watched || planted(Bug::DroppedScopeListed)) && !scopes.listed.contains(&scope) {
            scopes.listed.push(scope);
        }
        self.check_synced(processor, &scopes);
    }

    fn check_synced(&self, processor: &mut Processor, scopes: &Scopes) {
        let any = planted(Bug::InformerSyncedTooEarly) && !scopes.listed.is_empty();
        if (any || scopes.all.iter().all(|(scope, _)| scopes.listed.contains(scope))) && !self.has_synced() {
            processor.first_list_complete();
            self.synced.send_replace(true);
        }
    }

    /// It starts, and may have been stopped for long: what it has read before is not current.
    pub(crate) fn starts(&self) {
        if !planted(Bug::StoppedCopyTrusted) {
            self.lock_scopes().current.clear();
            self.scopes_changed.send_replace(());
        }
    }

    /// With no scope at all there is nothing to wait for.
    pub(crate) fn started(&self) {
        let mut processor = self.processor();
        let scopes = self.lock_scopes();
        self.check_synced(&mut processor, &scopes);
    }

    /// Leaves only these scopes, and says which are new.
    pub(crate) fn set_scopes(&self, wanted: &[Scope]) -> (Vec<Scope>, Vec<Scope>) {
        let mut processor = self.processor();
        let mut scopes = self.lock_scopes();
        let removed: Vec<Scope> = scopes
            .all
            .iter()
            .map(|(scope, _)| scope.clone())
            .filter(|scope| !wanted.contains(scope))
            .collect();
        let added: Vec<Scope> = wanted
            .iter()
            .filter(|scope| scopes.all.iter().all(|(known, _)| known != *scope))
            .cloned()
            .collect();
        scopes.all.retain(|(scope, _)| !removed.contains(scope));
        scopes.listed.retain(|scope| !removed.contains(scope));
        scopes.current.retain(|scope| !removed.contains(scope));
        scopes.all.extend(added.iter().map(|scope| (scope.clone(), Arc::default())));
        if !planted(Bug::RemovalNeverSyncs) {
            self.check_synced(&mut processor, &scopes);
        }
        self.scopes_changed.send_replace(());
        (added, removed)
    }

    pub(crate) fn reflector(&self, scope: &Scope) -> Reflector {
        let status = self
            .lock_scopes()
            .all
            .iter()
            .find(|(known, _)| known == scope)
            .map(|(_, status)| Arc::clone(status));
        Reflector::over(
            (self.source)(scope),
            Arc::clone(&self.fifo) as Arc<dyn crate::reflector::Sink>,
            scope.clone(),
            Arc::clone(&self.intake),
            self.options.reflector.clone(),
            status.unwrap_or_default(),
        )
    }

    pub(crate) fn scopes(&self) -> Vec<Scope> {
        self.lock_scopes().all.iter().map(|(scope, _)| scope.clone()).collect()
    }

    pub(crate) fn statuses(&self) -> Vec<ReflectorStatus> {
        self.lock_scopes().all.iter().map(|(scope, status)| status.get(scope)).collect()
    }

    /// Whether every scope was listed since the start.
    pub(crate) fn is_current(&self) -> bool {
        let scopes = self.lock_scopes();
        scopes.all.iter().all(|(scope, _)| scopes.current.contains(scope))
    }

    /// The scopes that were not listed since the start.
    pub(crate) fn unread(&self) -> Vec<ReflectorStatus> {
        let scopes = self.lock_scopes();
        let unread = scopes.all.iter().filter(|(scope, _)| !scopes.current.contains(scope));
        unread.map(|(scope, status)| status.get(scope)).collect()
    }

    /// Waits until a scope is added or removed, or its first list since the start is in the store, from now on: before it is first
    /// polled, too.
    pub(crate) fn scopes_changed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut changed = self.scopes_changed.subscribe();
        async move {
            let _ = changed.changed().await;
        }
    }

    pub(crate) fn retry_now(&self) {
        for (_, status) in &self.lock_scopes().all {
            status.retry_now.notify_waiters();
        }
    }

    /// Why changes of the store may be missing.
    pub(crate) fn panicked(&self) -> Option<String> {
        lock(&self.panicked).clone()
    }

    pub(crate) fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Whether those who use it can do without the kind, and the server answers that it does not have it. A copy that has objects
    /// of it is stale: they may live on in another version of the kind.
    pub(crate) fn is_absent(&self) -> bool {
        let [optional, required] =
            [&self.optional, &self.required].map(|users| users.load(Ordering::Relaxed));
        let statuses = self.statuses();
        let missing =
            |status: &ReflectorStatus| status.failing_since.is_some() && status.missing_since.is_some();
        let holds_objects = !self.indexer.cell.load().objects.is_empty() && !planted(Bug::AbsentWithObjects);
        optional > 0
            && required == 0
            && !holds_objects
            && !statuses.is_empty()
            && statuses.iter().all(missing)
    }

    /// What it waits for.
    pub(crate) fn not_synced(&self) -> NotSynced {
        let scopes = self.lock_scopes();
        let waiting = scopes.all.iter().filter(|(scope, _)| !scopes.listed.contains(scope));
        let why = waiting.map(|(scope, status)| {
            let status = status.get(scope);
            let error = status.last_error.unwrap_or_else(|| "no error so far".into());
            let phase = format!("{:?}", status.phase).to_lowercase();
            format!("{scope} is {phase} ({error})")
        });
        NotSynced { kind: self.kind.to_string(), why: why.collect::<Vec<_>>().join("; ") }
    }

    pub(crate) fn count_resync(&self) {
        self.counts.resyncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self, running: bool) -> InformerStats {
        let handlers = self.processor().listeners().iter().map(|listener| listener.stats()).collect();
        let state = self.indexer.cell.load();
        let (dictionaries, dictionary_bytes) =
            self.intake.packer.as_ref().map(SharedPacker::dictionaries).unwrap_or_default();
        InformerStats {
            kind: self.kind.to_string(),
            running,
            has_synced: self.has_synced(),
            reflectors: self.statuses(),
            queue: QueueStats { depth: self.fifo.len(), bytes: self.fifo.bytes() },
            store: StoreStats {
                objects: state.objects.len(),
                bytes: state.bytes,
                dictionaries,
                dictionary_bytes,
                versions: state.versions.clone(),
                indexes: state
                    .indexes
                    .iter()
                    .map(|index| (index.name.to_string(), index.pairs.len()))
                    .collect(),
                set_aside: state.all_set_aside().cloned().collect(),
                unindexed: state.unindexed.len(),
                batches: self.counts.batches.load(Ordering::Relaxed),
                changes: self.counts.changes.load(Ordering::Relaxed),
                ignored: self.counts.ignored.load(Ordering::Relaxed),
                repairs: self.counts.repairs.load(Ordering::Relaxed),
                resyncs: self.counts.resyncs.load(Ordering::Relaxed),
            },
            handlers,
        }
    }

    pub(crate) fn processor(&self) -> MutexGuard<'_, Processor> {
        lock(&self.processor)
    }

    fn lock_scopes(&self) -> MutexGuard<'_, Scopes> {
        lock(&self.scopes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use crate::delta_fifo::{Delta, DeltaType, Scope};
    use crate::object::Entry;
    use crate::reflector::Replacement;
    use crate::source::ScriptedSource;
    use crate::{IndexBy, InformerOptions, Kind, SharedInformer};

    /// An informer that does not run, and an object for it.
    fn informer_and_pod() -> (SharedInformer<Value>, Arc<Entry>) {
        let kind = Kind::new("v1", "Pod", "pods", true);
        let informer = SharedInformer::over(kind.clone(), ScriptedSource::new(), InformerOptions::default());
        let text = br#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1"}}"#;
        (informer, Arc::new(Entry::from_json(&kind.into(), text).unwrap()))
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_function_that_the_loop_calls_runs_under_no_lock() {
        let (informer, entry) = informer_and_pod();
        informer.core().fifo.put(&Scope::CLUSTER, Delta::new(DeltaType::Added, entry)).await;
        let batch = informer.core().fifo.drain().await.unwrap();
        // Added while a batch is on its way, so that the loop must ask it; with a lock held, asking back would never end.
        let asks = informer.core().clone();
        let by = IndexBy::metadata(move |_| vec![format!("{} handlers", asks.stats(false).handlers.len())]);
        informer.add_index_by("handlers", by).unwrap();
        informer.core().process(batch);
        assert_eq!(informer.snapshot().by_index("handlers", "0 handlers").unwrap().count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_resync_behind_a_waiting_relist_keeps_its_round() {
        let (informer, entry) = informer_and_pod();
        let core = informer.core();
        core.fifo.put(&Scope::CLUSTER, Delta::new(DeltaType::Added, Arc::clone(&entry))).await;
        core.process(core.fifo.drain().await.unwrap());
        // A relist in which nothing has changed waits when the resync comes.
        let replaced = vec![Delta::new(DeltaType::Replaced, Arc::clone(&entry))];
        core.fifo.replace(&Scope::CLUSTER, Replacement::new(replaced, "2".into()));
        let delta = Delta::new(DeltaType::Sync, entry);
        core.fifo.resync([Delta { round: Some([1].into()), ..delta }]).await;
        let ignored = || core.counts.ignored.load(std::sync::atomic::Ordering::Relaxed);
        core.process(core.fifo.drain().await.unwrap());
        assert_eq!((core.fifo.len(), ignored()), (1, 1), "the relist says nothing new, and the resync waits");
        let batch = core.fifo.drain().await.unwrap();
        let rounds: Vec<_> =
            batch.items[0].1.iter().map(|element| element.delta().unwrap().round.clone()).collect();
        assert_eq!(rounds, [Some([1].into())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_resync_that_waits_comes_round_to_those_who_are_due_meanwhile() {
        let (informer, entry) = informer_and_pod();
        let fifo = &informer.core().fifo;
        for round in [[3, 4], [1, 3]] {
            let delta = Delta::new(DeltaType::Sync, Arc::clone(&entry));
            fifo.resync([Delta { round: Some(round.into()), ..delta }]).await;
        }
        let batch = fifo.drain().await.unwrap();
        let [(_, waiting)] = &*batch.items else { panic!("{batch:?}") };
        let rounds: Vec<_> = waiting.iter().map(|element| element.delta().unwrap().round.clone()).collect();
        assert_eq!(rounds, [Some([1, 3, 4].into())]);
    }

    fn pod(uid: &str, version: u64) -> Arc<Entry> {
        let kind = Arc::new(Kind::new("v1", "Pod", "pods", true));
        let text = format!(r#"{{"metadata":{{"name":"a","uid":"{uid}","resourceVersion":"{version}"}}}}"#);
        Arc::new(Entry::from_json(&kind, text.as_bytes()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_takes_the_next_change_once_there_is_room() {
        let options = InformerOptions::default().queue_limit_bytes(1);
        let kind = Kind::new("v1", "Pod", "pods", true);
        let informer = SharedInformer::<Value>::over(kind, ScriptedSource::new(), options);
        let core = Arc::clone(informer.core());
        core.fifo.put(&Scope::CLUSTER, Delta::new(DeltaType::Added, pod("u", 1))).await;
        let writer = Arc::clone(&core);
        let second = tokio::spawn(async move {
            writer.fifo.put(&Scope::CLUSTER, Delta::new(DeltaType::Updated, pod("u", 2))).await;
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        core.process(core.fifo.drain().await.unwrap());
        tokio::time::timeout(std::time::Duration::from_secs(1), second).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_delete_of_an_earlier_object_leaves_its_successor() {
        let (informer, _) = informer_and_pod();
        let core = informer.core();
        core.fifo.put(&Scope::CLUSTER, Delta::new(DeltaType::Added, pod("second", 5))).await;
        core.fifo.put(&Scope::CLUSTER, Delta::new(DeltaType::Deleted, pod("first", 3))).await;
        core.process(core.fifo.drain().await.unwrap());
        assert_eq!(informer.snapshot().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delete_removes_whatever_there_is_unless_it_is_of_an_earlier_object() {
        for (uid, missed, left) in [("u", false, 0), ("u", true, 0), ("other", true, 0), ("other", false, 1)]
        {
            let (informer, _) = informer_and_pod();
            let core = informer.core();
            core.fifo.put(&Scope::CLUSTER, Delta::new(DeltaType::Added, pod("u", 5))).await;
            core.process(core.fifo.drain().await.unwrap());
            let delta = Delta::new(DeltaType::Deleted, pod(uid, 3));
            core.fifo.put(&Scope::CLUSTER, Delta { final_state_unknown: missed, ..delta }).await;
            core.process(core.fifo.drain().await.unwrap());
            assert_eq!(informer.snapshot().len(), left, "uid {uid}, missed: {missed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn few_of_many_objects_without_a_name_are_shown() {
        let (informer, _) = informer_and_pod();
        let core = informer.core();
        for number in 0..100 {
            let problem = format!("problem {number}");
            let aside = crate::SetAside { key: None, version: None, problem, wrong_kind: false };
            core.fifo.set_aside(&Scope::CLUSTER, aside);
        }
        core.process(core.fifo.drain().await.unwrap());
        assert_eq!(informer.stats().store.set_aside.len(), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_prepared_again_if_the_indexes_have_changed() {
        let (informer, entry) = informer_and_pod();
        let core = informer.core();
        core.fifo.put(&Scope::CLUSTER, Delta::new(DeltaType::Added, entry)).await;
        let mut batch = core.fifo.drain().await.unwrap();
        let prepared = core.indexer.prepare(&mut batch);
        assert!(core.indexer.begin(&prepared).is_some());
        informer.add_index_by("name", IndexBy::label("name")).unwrap();
        assert!(core.indexer.begin(&prepared).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_comes_after_its_namespace_was_dropped_does_not_count() {
        let kind = Kind::new("v1", "Pod", "pods", true);
        let options = InformerOptions::default().namespace("a").namespace("b").changing_namespaces();
        let informer = SharedInformer::<Value>::over(kind, ScriptedSource::new(), options);
        let (core, [a, b]) = (informer.core(), ["a", "b"].map(Scope::namespace));
        core.fifo.replace(&b, Replacement::new(Vec::new(), "2".into()));
        core.set_scopes(std::slice::from_ref(&a));
        core.process(core.fifo.drain().await.unwrap());
        core.set_scopes(&[a.clone(), b.clone()]);
        assert!(core.unread().iter().any(|part| part.scope == b));
        core.fifo.replace(&a, Replacement::new(Vec::new(), "3".into()));
        core.process(core.fifo.drain().await.unwrap());
        assert!(!informer.has_synced(), "the other namespace is still to be listed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_has_synced_when_the_event_after_the_first_list_is_asked_for() {
        use futures_util::{FutureExt, StreamExt};
        let (informer, entry) = informer_and_pod();
        let core = informer.core();
        let mut events = informer.events(crate::HandlerOptions::default());
        let replaced = vec![Delta::new(DeltaType::Replaced, entry)];
        core.fifo.replace(&Scope::CLUSTER, Replacement::new(replaced, "2".into()));
        core.process(core.fifo.drain().await.unwrap());
        assert!(events.next().await.is_some() && !events.has_synced());
        assert!(events.next().now_or_never().is_none() && events.has_synced());
    }
}
