//! Takes keys from the queue, one at a time, and reconciles them.

use std::collections::BTreeSet;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info_span, warn};

use super::action::{Action, Failure, Next};
use super::trigger::Running;
use super::{Context, Request, source};
use crate::ObjectKey;
use crate::intake::panic_text;
use crate::planted::{Bug, planted};
use crate::workqueue::{Item, WorkQueue};

/// What has come of all reconciles.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) succeeded: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) terminal: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) panicked: AtomicU64,
    pub(super) running: Mutex<BTreeSet<ObjectKey>>,
}

impl Counts {
    pub(super) fn running(&self) -> Vec<ObjectKey> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// What one reconcile came to. Nothing in it is the user's.
enum Outcome {
    Succeeded(Action),
    Failed { text: String, terminal: bool },
    Panicked(String),
    TimedOut(Duration),
}

impl Outcome {
    fn of(result: Result<Action, Failure>) -> Self {
        match result {
            Ok(action) => Self::Succeeded(action),
            Err(failure) => Self::Failed { text: failure.to_string(), terminal: failure.is_terminal() },
        }
    }
}

/// What all workers of a controller share.
pub(super) struct Work<K, F> {
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) sources: Arc<[Running]>,
    pub(super) context: Context<K>,
    pub(super) counts: Arc<Counts>,
    pub(super) limit: Option<Duration>,
    pub(super) reconcile: F,
    pub(super) paused: watch::Sender<bool>,
    /// Ends the wait for a source.
    pub(super) ends: CancellationToken,
}

impl<K, F> Work<K, F> {
    /// Waits until a reconcile may begin: every source was read, and the controller is not paused.
    async fn may_begin(&self) {
        loop {
            if !planted(Bug::WorkersDoNotLook) {
                source::all_current(&self.sources).await;
            }
            // The user may have paused the controller while a source was read.
            if !*self.paused.borrow() || planted(Bug::PauseOverlooked) {
                return;
            }
            let _ = self.paused.subscribe().wait_for(|paused| !paused).await;
        }
    }
}

/// Works until the queue is shut down.
pub(super) async fn work<K, F, Fut>(work: Arc<Work<K, F>>)
where
    K: 'static,
    F: Fn(Request, Context<K>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Action, Failure>> + Send,
{
    let Work { queue, context, counts, limit, reconcile, ends, .. } = &*work;
    while let Some(item) = queue.get().await {
        if ends.run_until_cancelled(work.may_begin()).await.is_none() {
            return;
        }
        let key = item.key().clone();
        let span = info_span!("reconcile", %key);
        let guard = InWork::new(counts, key.clone());
        let request = Request { key, reasons: item.reasons().clone(), failures: item.failures() };
        // Whatever is the user's is called and dropped inside, so that each of its panics is caught.
        let run = async {
            let run = reconcile(request, context.clone());
            match limit {
                None => Outcome::of(run.await),
                Some(limit) => {
                    tokio::time::timeout(*limit, run).await.map_or(Outcome::TimedOut(*limit), Outcome::of)
                }
            }
        };
        let outcome = AssertUnwindSafe(run.instrument(span)).catch_unwind().await;
        let outcome = outcome.unwrap_or_else(|panic| Outcome::Panicked(panic_text(panic)));
        drop(guard);
        conclude(item, outcome, counts);
        // Reconciles that never wait must not starve others on this thread.
        tokio::task::consume_budget().await;
    }
}

/// Puts the key where it belongs now.
fn conclude(item: Item<ObjectKey>, outcome: Outcome, counts: &Counts) {
    let key = item.key().clone();
    match outcome {
        Outcome::Succeeded(Action(Next::AwaitChange)) => {
            counts.succeeded.fetch_add(1, Ordering::Relaxed);
            item.done();
        }
        Outcome::Succeeded(Action(Next::RequeueAfter(delay) | Next::CleanupRunning(delay))) => {
            counts.succeeded.fetch_add(1, Ordering::Relaxed);
            item.requeue_after(delay);
        }
        Outcome::Failed { text: failure, terminal: true } => {
            counts.terminal.fetch_add(1, Ordering::Relaxed);
            error!(%key, failure, "reconcile failed permanently; not retrying until the object changes");
            item.done();
        }
        Outcome::Failed { text: failure, terminal: false } => {
            counts.failed.fetch_add(1, Ordering::Relaxed);
            let wait = item.retry();
            warn!(%key, failure, ?wait, "reconcile failed; retrying");
        }
        Outcome::Panicked(panic) => {
            counts.panicked.fetch_add(1, Ordering::Relaxed);
            let wait = item.retry();
            error!(%key, panic, ?wait, "reconcile panicked; retrying");
        }
        Outcome::TimedOut(limit) => {
            counts.timed_out.fetch_add(1, Ordering::Relaxed);
            if planted(Bug::TimeoutNotRetried) {
                return item.done();
            }
            let wait = item.retry();
            warn!(%key, ?limit, ?wait, "reconcile exceeded its limit and was cancelled; retrying");
        }
    }
}

/// Shows a key as in work for as long as it is.
struct InWork<'a> {
    counts: &'a Counts,
    key: ObjectKey,
}

impl<'a> InWork<'a> {
    fn new(counts: &'a Counts, key: ObjectKey) -> Self {
        counts.running.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        Self { counts, key }
    }
}

impl Drop for InWork<'_> {
    fn drop(&mut self) {
        self.counts.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
