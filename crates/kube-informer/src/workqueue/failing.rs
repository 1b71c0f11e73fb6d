//! What is known of a key that fails: how often, when it is retried, and how soon an add may make it run before that.

use std::time::Duration;

use tokio::time::Instant;

use super::rate_limit::RateLimit;
use crate::planted::{Bug, planted};

/// How a key has failed since it last succeeded. Times are in nanoseconds since the queue was made.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Failing {
    /// All failed runs.
    times: u32,
    /// Those of them that decide the delay: runs that were due.
    retries: u32,
    /// The others: runs that an add set off before the retry was due.
    early: u32,
    retry_at: u64,
    /// An add makes the key run no earlier than this.
    not_before: u64,
}

/// The first early run of a failing key starts at once, each further one waits twice as long after the last failure.
const FIRST_PACE: Duration = Duration::from_millis(5);

/// No change of a failing key waits longer than this.
const LONGEST_PACE: Duration = Duration::from_secs(1);

impl Failing {
    pub(super) fn times(&self) -> u32 {
        self.times
    }

    /// Whether the retry is still to come.
    pub(super) fn is_waiting(&self, now: u64) -> bool {
        now < self.retry_at
    }

    /// How long the retry is still to come.
    pub(super) fn remaining(&self, now: u64) -> Duration {
        Duration::from_nanos(self.retry_at.saturating_sub(now))
    }

    /// Counts a failure and says how long to wait. A run that an add set off before the last delay was over goes back to
    /// what remains of that delay, so busy neighbours do not make a key slower. But such runs pace the adds: otherwise a
    /// worker that writes its failure into the object it watches would run without pause.
    pub(super) fn fail(&mut self, limit: &mut RateLimit, now: u64, at: Instant) -> Duration {
        self.times = self.times.saturating_add(1);
        if self.is_waiting(now) && !planted(Bug::EarlyFailureMovesRetry) {
            self.early = self.early.saturating_add(1);
        } else {
            self.retry_at = now.saturating_add(nanos(limit.next(self.retries, at)));
            self.retries = self.retries.saturating_add(1);
        }
        let pace = match self.early {
            0 => Duration::ZERO,
            early => FIRST_PACE.saturating_mul(1 << (early - 1).min(16)).min(LONGEST_PACE),
        };
        self.not_before = now.saturating_add(nanos(pace));
        Duration::from_nanos(self.retry_at - now)
    }

    /// How long an add has to wait, if at all.
    pub(super) fn pace(&self, now: u64) -> Option<Duration> {
        let earliest = self.not_before.min(self.retry_at);
        (now < earliest).then(|| Duration::from_nanos(earliest - now))
    }
}

/// In nanoseconds, which suffice for centuries.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
