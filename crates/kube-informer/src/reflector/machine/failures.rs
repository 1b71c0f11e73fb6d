//! What follows from failures, and how long to wait after each.

use std::time::Duration;

use tokio::time::Instant;

use super::trust::RECHECK_LAST;
use super::{Machine, Paged, RESUME_SPREAD, Step, is_absent};
use crate::backoff::Backoff;
use crate::planted::{Bug, planted};
use crate::source::SourceError;

/// After this many failed streams in a row, lists are tried instead.
const STREAM_TRIES: u32 = 3;

/// How long a rejected streaming list is not tried again, and one that broke.
pub(super) const REJECTED_FOR: Duration = Duration::from_hours(1);
const BROKEN_FOR: Duration = Duration::from_mins(10);

/// After this time without a watch that expired, or an event whose key cannot be read, the next one leads to a list at once.
pub(super) const EXPIRED_REST: Duration = Duration::from_mins(2);
pub(super) const UNREADABLE_REST: Duration = Duration::from_mins(10);

/// Strikes after which the reflector polls: three refusals, or twelve failures of a server that is busy or away.
const STRIKES: u32 = 12;
const REFUSED: u32 = 4;
const BUSY: u32 = 1;

/// A server is taken for gone, or back, this many times before that stops to shorten the waits.
const TURNS: u32 = 2;

/// Waits between lists that have the same cause.
pub(super) struct Repeated {
    waits: Backoff,
    /// After this time without the cause, the waits start again.
    rest: Duration,
    last: Option<Instant>,
}

impl Repeated {
    pub(super) fn new(waits: Backoff, rest: Duration) -> Self {
        Self { waits, rest, last: None }
    }

    /// How long to wait, if the cause was there a short time ago.
    pub(super) fn wait(&mut self, now: Instant) -> Option<Duration> {
        let last = self.last.replace(now);
        if last.is_some_and(|last| now < last + self.rest) {
            return Some(self.waits.next(None));
        }
        self.waits.succeeded();
        None
    }
}

impl Machine {
    pub(super) fn failed(&mut self, error: &SourceError, now: Instant) -> Duration {
        let is_away = error.is_unreachable() || error.code() == Some(429);
        match self.step {
            Step::Stream if error.is_rejected() => {
                self.fail(now);
                return self.stop_streaming("the server rejects streaming lists", now + REJECTED_FOR);
            }
            Step::Stream if is_away || matches!(error.code(), Some(401 | 403 | 404)) => self.refuse_stream(),
            Step::Stream => {
                self.broken_streams += 1;
                if self.broken_streams >= STREAM_TRIES {
                    let why = "streaming lists failed three times in a row";
                    let _ = self.stop_streaming(why, now + BROKEN_FOR);
                }
            }
            // As far as is known, the watch can go on.
            Step::List { .. } if self.verifying => {
                self.verifying = false;
                self.unverified = self.unverified.saturating_add(1);
                self.compared_at = Some(now + error.retry_after().unwrap_or_default().min(RECHECK_LAST));
                self.doubted_since.get_or_insert(now);
                if let Some(wait) = error.retry_after().filter(|_| !planted(Bug::ComparisonWithoutRetryAfter))
                {
                    self.doubt.wait(now + wait.min(RECHECK_LAST));
                }
                self.step = Step::Watch;
                return self.retry.spread(RESUME_SPREAD);
            }
            Step::List { .. }
                if self.probing && !error.needs_list() && !planted(Bug::PollFailureForgetsWatch) =>
            {
                self.step = Step::Watch;
                self.lists_fail = error.code().is_none_or(|code| code >= 500) && !planted(Bug::AwayPolled);
            }
            Step::List { .. } => {
                // A restored server will not have that version for a long time, and no server has a garbled one.
                self.any_version &= !error.needs_list() && !error.is_rejected();
                self.step = self.list_step();
            }
            Step::Watch if error.needs_list() || self.is_refused(error) => {
                self.fail(now);
                return self.relist(Some(error), now);
            }
            Step::Watch => {
                // A watch that the server refused was not lost; a server that cannot be reached may come back restored.
                if error.code().is_none() {
                    self.doubt.lost(now, Duration::ZERO);
                }
                return self.strike(Some(error), now);
            }
        }
        self.failure_wait(error, now)
    }

    /// Where no watch can be had, a list may: each third attempt is one.
    pub(super) fn refuse_stream(&mut self) {
        self.refused_streams += 1;
        if self.refused_streams.is_multiple_of(STREAM_TRIES) {
            self.step = Step::List { limit: self.config.page_size };
        }
    }

    /// A watch was refused, or brought nothing.
    pub(super) fn strike(&mut self, failure: Option<&SourceError>, now: Instant) -> Duration {
        let weight = match failure {
            // Where no watch can be had, no list can either.
            Some(error) if error.is_unreachable() => 0,
            Some(error) if matches!(error.code(), Some(429 | 502 | 503 | 504)) => BUSY,
            Some(error) if error.code().is_none() && !error.is_late() => BUSY,
            _ => REFUSED,
        };
        self.strikes += weight;
        let polls = self.strikes >= STRIKES || (self.polling && weight > 0);
        if !polls {
            if let Some(error) = failure {
                return self.failure_wait(error, now);
            }
            self.fail(now);
            return self.retry.next(None);
        }
        self.polling = true;
        self.probing = true;
        // Streaming lists are watches, and these do not work.
        self.step = Step::List { limit: self.config.page_size };
        if let Some(error) = failure.filter(|_| self.lists_fail) {
            return self.failure_wait(error, now);
        }
        self.fail(now);
        let failure = failure.filter(|_| !planted(Bug::PollWithoutRetryAfter));
        self.poll.next(failure.and_then(SourceError::retry_after))
    }

    /// Lists again because the version is lost.
    pub(super) fn relist(&mut self, error: Option<&SourceError>, now: Instant) -> Duration {
        self.step = self.list_step();
        // However often this list fails, only a list helps.
        (self.probing, self.verifying) = (false, false);
        let retry_after = error.and_then(SourceError::retry_after);
        if std::mem::take(&mut self.watched) {
            // Many caches may have lost their watch at the same moment.
            let spread = self.retry.spread(Duration::from_secs(1));
            return retry_after.map_or(spread, |_| self.retry.next(retry_after).max(spread));
        }
        self.fail(now);
        self.fruitless();
        self.poll.next(retry_after)
    }

    /// A list follows another one, because there is no watch that lasts between them. After some of them this is polling.
    pub(super) fn fruitless(&mut self) {
        self.strikes = self.strikes.saturating_add(REFUSED);
        self.polling |= self.strikes >= STRIKES && !planted(Bug::ExpiredNotPolling);
    }

    pub(super) fn fail(&mut self, now: Instant) {
        let (mut since, failures) = self.failing.unwrap_or((now, 0));
        if planted(Bug::FailingSinceMoves) {
            since = now;
        }
        self.failing = Some((since, failures.saturating_add(1)));
    }

    pub(super) fn failure_wait(&mut self, error: &SourceError, now: Instant) -> Duration {
        self.fail(now);
        let away = error.code().is_none_or(|code| code >= 500);
        if away != self.away {
            // The server returned, or is gone: the waits before say nothing about this. One that seems to do both in turns, such as
            // a proxy that answers watches while lists do not reach the server, gets no shorter waits for it.
            self.away = away;
            self.turns = self.turns.saturating_add(1);
            if self.turns <= TURNS && !planted(Bug::AwayWaitsKept) {
                self.retry.succeeded();
            }
        }
        let since = self.failing.map(|(since, _)| now.saturating_duration_since(since)).unwrap_or_default();
        if away {
            self.retry.next_away(since, error.retry_after())
        } else {
            self.retry.next(error.retry_after())
        }
    }

    pub(super) fn stop_streaming(&mut self, why: &'static str, until: Instant) -> Duration {
        self.paged = Some(Paged { why, until: Some(until) });
        self.step = self.list_step();
        Duration::ZERO
    }

    /// A version that is not a number may have been garbled on the way: if the server refuses it, relist.
    pub(super) fn is_refused(&self, error: &SourceError) -> bool {
        let odd =
            self.version.as_ref().is_some_and(|version| !version.is_comparable() && !is_absent(version));
        odd && error.code().is_some_and(|code| code != 429)
    }
}
