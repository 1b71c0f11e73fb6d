//! Looks at a controller and steers it, from outside.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::predicate::Predicate;
use super::source::{SourceCell, SourceStats};
use super::worker::Counts;
use crate::ObjectKey;
use crate::workqueue::{Add, Cause, QueueStats, WorkQueue};

/// Looks at a controller and gives it keys, from outside. Cheap to clone.
///
/// # Dropping
/// A handle keeps nothing running. When the controller has ended, or was dropped, what is asked of it is ignored.
#[derive(Clone)]
pub struct ControllerHandle {
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) counts: Arc<Counts>,
    /// Whether the user wants a pause, for workers that have taken a key before.
    pub(super) paused: watch::Sender<bool>,
    predicates: Arc<Mutex<Vec<Predicate>>>,
    sources: Arc<Mutex<Vec<Arc<SourceCell>>>>,
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
    /// Each predicate that panicked, and how often. The changes passed.
    pub predicate_panics: Vec<(String, u64)>,
    /// Each source of keys, the kind itself first: which are waited for, and why.
    pub sources: Vec<SourceStats>,
}

impl ControllerHandle {
    pub(super) fn new(queue: WorkQueue<ObjectKey>) -> Self {
        Self {
            queue,
            counts: Arc::default(),
            paused: watch::Sender::new(false),
            predicates: Arc::default(),
            sources: Arc::default(),
        }
    }

    /// Asks for a reconcile. Before the controller runs, it is kept until then.
    pub fn enqueue(&self, key: ObjectKey, cause: Cause) {
        self.queue.add_with(key, Add { cause: Some(cause), ..Add::default() });
    }

    /// Hands out no more keys until [`resume`](Self::resume); reconciles that run continue. For a controller that must not work
    /// now, such as one that does not lead. A controller that is paused before it runs begins paused.
    pub fn pause(&self) {
        // Under one lock, so that the last of several calls decides.
        self.paused.send_modify(|paused| {
            self.queue.pause();
            *paused = true;
        });
    }

    /// Hands out keys again.
    pub fn resume(&self) {
        self.paused.send_modify(|paused| {
            self.queue.resume();
            *paused = false;
        });
    }

    /// What the controller has done so far.
    pub fn stats(&self) -> ControllerStats {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let predicates = self.predicates.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
            predicate_panics: predicates
                .iter()
                .map(|predicate| (predicate.name().to_owned(), predicate.panicked()))
                .filter(|(_, panics)| *panics > 0)
                .collect(),
            sources: sources.iter().map(|source| source.stats()).collect(),
        }
    }

    pub(super) fn count_drops_of(&self, predicate: &Predicate) {
        self.predicates.lock().unwrap_or_else(PoisonError::into_inner).push(predicate.clone());
    }

    /// Shows a source of this name from now on.
    pub(super) fn add_source(&self, name: String) -> Arc<SourceCell> {
        let cell = SourceCell::new(name);
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&cell));
        cell
    }
}

impl std::fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerHandle").field("stats", &self.stats()).finish()
    }
}
