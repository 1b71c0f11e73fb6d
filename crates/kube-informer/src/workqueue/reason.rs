//! Why a key is in the queue: causes are merged as keys are, and handed to the worker with the key.

use std::ops::Deref;
use std::sync::Arc;

use tokio::time::Instant;

/// Why a key is added, as the one who adds it tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Where it comes from: a kind, an informer, a timer.
    pub source: Arc<str>,
    /// What happened there. Controllers use `"added"`, `"updated"` and `"deleted"` with the kind as source, and `"requeued"` with the
    /// source `"worker"` for keys that a reconcile asked to see again.
    pub event: &'static str,
    /// The version of the source that showed it, where it has versions.
    pub version: Option<u64>,
}

impl Cause {
    /// A cause without a version.
    pub fn new(source: impl Into<Arc<str>>, event: &'static str) -> Self {
        Self { source: source.into(), event, version: None }
    }

    /// The same cause, seen at a version.
    pub fn at_version(self, version: u64) -> Self {
        Self { version: Some(version), ..self }
    }
}

/// Equal causes, merged: how many there were, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Where they came from.
    pub source: Arc<str>,
    /// What happened there.
    pub event: &'static str,
    /// The version that the last one named, if any did.
    pub version: Option<u64>,
    /// How many causes were merged into this one.
    pub count: u64,
    /// When the first of them was added.
    pub first: Instant,
    /// When the last of them was added.
    pub last: Instant,
}

/// Everything a run of a key is due to, in order of first appearance.
///
/// A key that was added without causes has none. At most a fixed number of different reasons is kept for a key
/// (see [`WorkQueueConfig::max_reasons`](super::WorkQueueConfig::max_reasons)); the causes beyond are counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reasons {
    kept: Vec<Reason>,
    not_kept: u64,
}

impl Reasons {
    pub(super) const NONE: Self = Self { kept: Vec::new(), not_kept: 0 };

    /// How many causes are not among the reasons, because there were too many different ones.
    pub fn not_kept(&self) -> u64 {
        self.not_kept
    }

    pub(super) fn add(&mut self, cause: Cause, now: Instant, max: usize) {
        let Cause { source, event, version } = cause;
        self.merge(Reason { source, event, version, count: 1, first: now, last: now }, max);
    }

    /// Takes in reasons that are older than all that is here.
    pub(super) fn prepend(&mut self, older: Self, max: usize) {
        let newer = std::mem::replace(self, older);
        self.not_kept += newer.not_kept;
        for reason in newer.kept {
            self.merge(reason, max);
        }
    }

    fn merge(&mut self, new: Reason, max: usize) {
        let same = |old: &&mut Reason| old.event == new.event && old.source == new.source;
        if let Some(old) = self.kept.iter_mut().find(same) {
            old.count += new.count;
            old.version = new.version.or(old.version);
            old.last = new.last;
        } else if self.kept.len() < max {
            if self.kept.is_empty() {
                // Most keys have one reason, and a vector would make room for four.
                self.kept.reserve_exact(1);
            }
            self.kept.push(new);
        } else {
            self.not_kept += new.count;
        }
    }
}

impl Deref for Reasons {
    type Target = [Reason];

    fn deref(&self) -> &[Reason] {
        &self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn equal_causes_merge_and_the_rest_is_counted() {
        let mut reasons = Reasons::default();
        let start = Instant::now();
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        reasons.add(Cause::new("pods", "update").at_version(5), start, 2);
        reasons.add(Cause::new("nodes", "update"), start, 2);
        reasons.add(Cause::new("pods", "update").at_version(9), Instant::now(), 2);
        reasons.add(Cause::new("pods", "update"), Instant::now(), 2);
        reasons.add(Cause::new("pods", "delete"), Instant::now(), 2);
        assert_eq!((reasons.len(), reasons.not_kept()), (2, 1));
        assert_eq!((reasons[0].count, reasons[0].version, reasons[1].count), (3, Some(9), 1));
        assert_eq!((reasons[0].first, reasons[0].last), (start, Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn older_reasons_stand_first() {
        let (mut older, mut newer) = (Reasons::default(), Reasons::default());
        older.add(Cause::new("a", "add"), Instant::now(), 8);
        newer.add(Cause::new("b", "add"), Instant::now(), 8);
        newer.add(Cause::new("a", "add"), Instant::now(), 8);
        newer.prepend(older, 8);
        let seen: Vec<_> = newer.iter().map(|reason| (&*reason.source, reason.count)).collect();
        assert_eq!(seen, [("a", 2), ("b", 1)]);
    }
}
