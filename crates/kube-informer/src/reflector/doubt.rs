//! Whether the server may have been restored from a backup since the cache was read, and what a check must look at.

use std::collections::VecDeque;
use std::time::Duration;

use kube_wire::ResourceVersion;
use tokio::time::Instant;

use crate::source::Witness;

/// Checks of the version are at least this far apart.
const CHECK_EVERY: Duration = Duration::from_secs(10);
const CHECK_LAST: Duration = Duration::from_mins(5);

/// How many lost connections may wait for a check. With more of them, only a list helps.
const MOST: usize = 8;

/// A connection that was resumed sooner was hardly lost to a restore, which takes seconds.
const LONG_GAP: Duration = Duration::from_secs(2);

/// The state of the cache when a connection was lost.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reached {
    pub(super) version: ResourceVersion,
    pub(super) witness: Option<Witness>,
    /// How many objects the cache has, if the store has caught up with the version and everything has a readable key.
    pub(super) count: Option<usize>,
    pub(super) lost_at: Instant,
    /// How long it took until the next watch was open.
    gap: Duration,
}

impl Reached {
    /// Whether there was time for a restore before the next watch.
    pub(super) fn is_long_ago(&self) -> bool {
        self.gap >= LONG_GAP
    }
}

/// What is not known about the server since a connection was lost.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// Whether a known uid and version may stand for another object.
    untrusted: bool,
    /// When a connection was lost, if the cache's state at that time was not noted yet.
    lost_at: Option<Instant>,
    /// Each state that a check must find in the server's history: the first, the last, and each that a long gap followed.
    /// Events after a lost connection may be of another history, so a later state does not stand for an earlier one.
    reached: VecDeque<Reached>,
    /// Whether there were too many of them.
    overflowed: bool,
    next_check: Option<Instant>,
    failures: u32,
    /// The last change that was seen.
    witness: Option<Witness>,
}

impl Doubt {
    /// Doubts everything that an earlier run has read.
    pub(super) fn of_earlier_run() -> Self {
        Self { untrusted: true, ..Self::default() }
    }

    pub(super) fn is_trusted(&self) -> bool {
        !self.untrusted
    }

    /// The connection is lost, so the server may be another one now.
    pub(super) fn lost(&mut self, now: Instant) {
        self.untrusted = true;
        self.lost_at.get_or_insert(now);
    }

    /// A list is complete; `newest` was changed last.
    pub(super) fn listed(&mut self, newest: Option<Witness>) {
        let next_check = self.next_check;
        *self = Self { witness: newest, next_check, ..Self::default() };
    }

    /// A change was passed on.
    pub(super) fn moved(&mut self, witness: Option<Witness>) {
        if witness.is_some() {
            self.witness = witness;
        }
    }

    /// Notes, after a lost connection and before a new watch, what the cache has.
    pub(super) fn note(
        &mut self,
        version: &ResourceVersion,
        count: impl FnOnce(&ResourceVersion) -> Option<usize>,
    ) {
        if version.as_u64().is_none_or(|number| number == 0) {
            return;
        }
        if let Some(last) = self.reached.back_mut().filter(|last| last.version == *version) {
            // Nothing changed since; the store may have caught up meanwhile.
            last.count = last.count.or_else(|| count(version));
            self.lost_at = None;
        } else if let Some(lost_at) = self.lost_at.take() {
            let (version, witness, count) = (version.clone(), self.witness.clone(), count(version));
            if self.reached.len() > 1 && self.reached.back().is_some_and(|last| !last.is_long_ago()) {
                self.reached.pop_back();
            }
            self.reached.push_back(Reached { version, witness, count, lost_at, gap: Duration::ZERO });
            self.overflowed |= self.reached.len() > MOST;
            self.reached.truncate(MOST);
        }
    }

    /// A watch is open again.
    pub(super) fn resumed(&mut self, now: Instant) {
        if let Some(last) = self.reached.back_mut() {
            last.gap = last.gap.max(now.saturating_duration_since(last.lost_at));
        }
    }

    /// When to make the next check.
    pub(super) fn check_at(&self, now: Instant) -> Option<Instant> {
        self.reached.front().map(|_| self.next_check.unwrap_or(now))
    }

    /// What the next check looks for; `Err` if there is too much.
    pub(super) fn begin_check(&mut self, now: Instant) -> Option<Result<Reached, ()>> {
        let reached = self.reached.front()?;
        self.next_check = Some(now + CHECK_EVERY);
        Some(if self.overflowed { Err(()) } else { Ok(reached.clone()) })
    }

    /// A check has an answer: the history is the same, or nobody can tell.
    pub(super) fn checked(&mut self, same: bool, now: Instant) {
        self.reached.pop_front();
        self.failures = 0;
        if !self.reached.is_empty() {
            self.next_check = Some(now);
        } else if same && self.lost_at.is_none() {
            self.untrusted = false;
        }
    }

    /// A check failed; it is made again later.
    pub(super) fn check_failed(&mut self, now: Instant) {
        let wait = CHECK_EVERY.saturating_mul(1 << self.failures.min(8)).min(CHECK_LAST);
        self.failures = self.failures.saturating_add(1);
        self.next_check = Some(now + wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(doubt: &mut Doubt, version: &str, count: Option<usize>) {
        doubt.note(&version.into(), |_| count);
    }

    #[tokio::test(start_paused = true)]
    async fn states_before_long_gaps_are_checked_one_by_one() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        note(&mut doubt, "5", Some(1));
        assert_eq!(doubt.check_at(now), None, "nothing was lost");
        for (version, gap) in [("5", 0), ("5", 0), ("7", 0), ("8", 3), ("9", 0), ("11", 0)] {
            doubt.lost(now);
            note(&mut doubt, version, None);
            doubt.resumed(now + Duration::from_secs(gap));
        }
        // The first, the last, and the one that a long gap followed.
        for version in ["5", "8", "11"] {
            assert!(doubt.check_at(now).is_some());
            assert_eq!(doubt.begin_check(now).unwrap().unwrap().version, version.into());
            assert!(!doubt.is_trusted());
            doubt.checked(true, now);
        }
        assert!(doubt.is_trusted() && doubt.check_at(now).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_that_is_not_noted_yet_keeps_the_doubt() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        doubt.lost(now);
        note(&mut doubt, "5", None);
        doubt.lost(now);
        doubt.checked(true, now);
        assert!(!doubt.is_trusted());
        doubt.listed(None);
        assert!(doubt.is_trusted());
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_is_noted_once_the_store_has_caught_up() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        doubt.lost(now);
        note(&mut doubt, "5", None);
        note(&mut doubt, "5", Some(3));
        assert_eq!(doubt.begin_check(now).unwrap().unwrap().count, Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_losses_and_failed_checks_are_bounded() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        for version in 1..=20u64 {
            doubt.lost(now);
            doubt.note(&version.into(), |_| None);
            doubt.resumed(now + Duration::from_secs(5));
        }
        assert_eq!((doubt.reached.len(), doubt.begin_check(now)), (MOST, Some(Err(()))));
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                doubt.check_failed(now);
                (doubt.check_at(now).unwrap() - now).as_secs()
            })
            .collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
    }
}
