//! A key in work: the holder of the item works on the key, alone, and says how the work ended.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::reason::Reasons;
use super::state::{Failure, Outcome, Taken};
use crate::planted::{Bug, planted};

/// A key handed out by [`WorkQueue::get`](super::WorkQueue::get). It reads as the key itself.
///
/// While an item lives, its key is not handed out again; what is added meanwhile makes it run once more afterwards.
///
/// *Dropping* an item means that the work did not end: it was cancelled, timed out, left by `?`, or panicked. The key is
/// retried, exactly as by [`retry`](Self::retry). Only [`done`](Self::done) and [`requeue_after`](Self::requeue_after)
/// say that the work succeeded.
#[must_use = "a dropped item is retried; `done` says that its work succeeded"]
pub struct Item<T: Eq + Hash + Clone> {
    taken: Taken<T>,
    queue: Arc<Shared<T>>,
    /// Set once the queue knows how the run ended.
    finished: bool,
}

impl<T: Eq + Hash + Clone> Item<T> {
    pub(super) fn new(taken: Taken<T>, queue: Arc<Shared<T>>) -> Self {
        Self { taken, queue, finished: false }
    }

    /// The key.
    pub fn key(&self) -> &T {
        &self.taken.key
    }

    /// Why the key was added since its last run; empty if nobody said. A retry brings the reasons of the run that failed.
    pub fn reasons(&self) -> &Reasons {
        static NONE: Reasons = Reasons::NONE;
        self.taken.reasons.as_deref().unwrap_or(&NONE)
    }

    /// How many runs of the key failed in a row before this one, whatever set them off.
    pub fn failures(&self) -> u32 {
        self.taken.failures
    }

    /// The highest priority with which the key was added for this run.
    pub fn priority(&self) -> i8 {
        self.taken.priority
    }

    /// How long the key waited from becoming due to being handed out.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.taken.waited)
    }

    /// Forgets the failures of the key: if this run fails, it counts as the first.
    pub fn forget(&mut self) {
        self.taken.failures = 0;
        self.queue.with(|state| state.forget(self.taken.slot, Instant::now()));
    }

    /// The work is done and has succeeded: the failures of the key are forgotten.
    pub fn done(mut self) {
        self.finish(Outcome::Done);
    }

    /// The work is done for now: run the key again after a while, or earlier if somebody adds it. Its failures are
    /// forgotten.
    ///
    /// This is a new request, with priority 0, whatever the priority of this run: otherwise one add of low priority
    /// would make every later run wait.
    pub fn requeue_after(mut self, after: Duration) {
        self.finish(Outcome::RequeueAfter(after));
    }

    /// The work has failed: run the key again after the delay that the queue's [`RateLimit`](super::RateLimit) gives,
    /// or earlier if somebody adds it. Returns the delay.
    ///
    /// The retry has the reasons and the priority of this run, because it is the same work.
    ///
    /// A run that an add set off *before* the delay of the last failure was over does not lengthen the delay: the key goes
    /// back to what remains of it. So a key that fails in busy surroundings is retried as often as one that fails in
    /// quiet. Such early runs are spaced out themselves; see [`WorkQueue::add`](super::WorkQueue::add).
    pub fn retry(mut self) -> Duration {
        self.fail(Failure::Reported)
    }

    fn fail(&mut self, failure: Failure) -> Duration {
        let (priority, reasons) = (self.taken.priority, self.taken.reasons.take());
        let reasons = reasons.filter(|_| !planted(Bug::RetryReasonsLost));
        self.finish(Outcome::Failed { failure, priority, reasons })
    }

    fn finish(&mut self, outcome: Outcome) -> Duration {
        self.finished = true;
        self.queue.with(|state| state.finish(self.taken.slot, outcome, Instant::now()))
    }
}

impl<T: Eq + Hash + Clone> Drop for Item<T> {
    fn drop(&mut self) {
        if !self.finished {
            self.fail(if std::thread::panicking() { Failure::Panicked } else { Failure::Dropped });
        }
    }
}

impl<T: Eq + Hash + Clone> Deref for Item<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.key()
    }
}

impl<T: Eq + Hash + Clone + fmt::Debug> fmt::Debug for Item<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Taken { key, priority, failures, reasons, .. } = &self.taken;
        let mut item = f.debug_struct("Item");
        item.field("key", key)
            .field("priority", priority)
            .field("failures", failures)
            .field("waited", &self.waited());
        item.field("reasons", &reasons.as_deref().map_or(&[][..], |reasons| reasons)).finish_non_exhaustive()
    }
}
