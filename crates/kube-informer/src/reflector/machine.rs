//! Decides what a reflector does next: a pure state machine.
//!
//! | after | next | wait |
//! | --- | --- | --- |
//! | nothing | stream, or list | none |
//! | a list or the end bookmark of a stream | watch | none |
//! | a list older than the version seen | the same again, trusting nothing; accepted as a restore after three in five seconds, or if a check shows it | 2 to 3 s |
//! | a stale list, where stale ones are allowed | a consistent list | backoff |
//! | a page that expired | one list without pages | backoff |
//! | a failed list | list; watch, if the list was only to verify or to poll | backoff, Retry-After |
//! | a stream that the server rejects | list; streams again after an hour | none |
//! | a stream without end bookmark in time | list; streams again after an hour | none |
//! | a stream from a server that is away or busy | stream | backoff, Retry-After |
//! | a stream that broke three times in a row | list; streams again after ten minutes | backoff, Retry-After |
//! | a stream that was refused three times in a row | one list; then streams again | backoff, Retry-After |
//! | a healthy watch that ended or broke | watch | a few milliseconds, Retry-After |
//! | a watch that was refused or brought nothing | watch; list after three of them (polling) | backoff, Retry-After |
//! | watches without an event or bookmark, for minutes, that end too early | list, trusting nothing; polling, if two of them find changes | a few milliseconds |
//! | an expired or too large version, a vanished resource | list or stream | spread over a second; backoff if it happens again within two minutes |
//! | a check that shows a restored server | list or stream, trusting nothing | spread over a second |
//! | an event whose key cannot be read | list | spread over a second; backoff if it happens again |
//! | the time to verify, or to repeat a comparison that failed | list, trusting nothing | none |
//!
//! A watch is healthy if it was open for half a second or delivered an event that advanced the version. Requests follow each
//! other at one a second at most in the long run, whatever the server does (`pace`).
//!
//! A list with objects whose keys could not be read is complete enough to be used, but cannot show that an object vanished: it
//! is verified soon, and later each time that does not help.

mod failures;
mod mute;
mod trust;

use std::time::Duration;

use kube_wire::ResourceVersion;
use tokio::time::Instant;

use failures::{EXPIRED_REST, REJECTED_FOR, Repeated, UNREADABLE_REST};
use mute::Mute;
use trust::OLDER_WAIT;
pub(super) use trust::Verdict;

use super::doubt::{Doubt, Reached};
use super::pace::Pace;
use super::{Mode, ReflectorConfig};
use crate::backoff::Backoff;
use crate::planted::{Bug, planted};
use crate::source::{SourceError, Witness};

/// How much longer than it should a watch may be silent, or last.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// After this long without a frame, a watch that ends was silent, so the version is checked.
const QUIET: Duration = Duration::from_secs(150);

/// A watch that follows failures must be open for this long before they are forgotten.
const RECOVERED_AFTER: Duration = Duration::from_secs(10);

/// A healthy watch is resumed within this time.
const RESUME_SPREAD: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    List { limit: Option<u32> },
    Stream,
    Watch,
}

/// The result of a step.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The list is in the sink.
    Listed,
    /// The list is older than the version seen, and was refused.
    ListedOlder,
    /// The server cannot continue its own list.
    PageExpired(SourceError),
    /// The list or watch failed before it began, or the list broke.
    Failed(SourceError),
    /// A streaming list did not begin: the server could not be reached, or is busy.
    NotBegun(SourceError),
    /// A streaming list did not come to its end in time.
    NoEnd(&'static str),
    /// The watch ended.
    Ended(Ended),
    /// The watch can no longer be trusted.
    Lost(SourceError),
    /// A check showed that the server's history is not the one this cache was read from.
    Restored(SourceError),
    /// An event was about an object whose key cannot be read.
    Unreadable,
    /// It is time to compare with the server.
    Verify,
}

/// How a watch ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// How long it was open.
    pub(super) lasted: Duration,
    /// Whether the server ended it when it was asked to.
    pub(super) on_time: bool,
    /// For how long it had been silent at its end.
    pub(super) silent: Duration,
    /// Whether it was silent for longer than its server ever is.
    pub(super) dead: bool,
    pub(super) failure: Option<SourceError>,
}

impl Outcome {
    pub(super) fn failure(&self) -> Option<&SourceError> {
        match self {
            Self::PageExpired(error)
            | Self::Failed(error)
            | Self::NotBegun(error)
            | Self::Lost(error)
            | Self::Restored(error) => Some(error),
            Self::Ended(ended) => ended.failure.as_ref(),
            _ => None,
        }
    }
}

/// Why lists are not streamed, and until when.
#[derive(Debug, Clone, Copy)]
struct Paged {
    why: &'static str,
    until: Option<Instant>,
}

#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, and most combinations occur")]
pub(super) struct Machine {
    config: ReflectorConfig,
    /// Waits after failures; any success starts them again.
    retry: Backoff,
    /// Waits between lists without a healthy watch between them.
    poll: Backoff,
    /// Waits between lists that watches lead to again and again.
    expired: Repeated,
    unreadable: Repeated,
    pace: Pace,
    step: Step,
    version: Option<ResourceVersion>,
    paged: Option<Paged>,
    /// Streams in a row that broke, and that were refused.
    broken_streams: u32,
    refused_streams: u32,
    doubt: Doubt,
    /// Whether a check showed that the server was restored.
    restored: bool,
    verifying: bool,
    /// Whether a list may be of any age.
    any_version: bool,
    /// When the last list was complete, or the last comparison failed.
    compared_at: Option<Instant>,
    /// How many comparisons failed since the last list, and since when.
    unverified: u32,
    doubted_since: Option<Instant>,
    /// How many lists in a row had objects whose keys could not be read.
    incomplete: u32,
    /// How many lists, and events, in a row were refused for their odd versions.
    odd_lists: u32,
    odd_events: u32,
    /// How many lists in a row were older than the version seen, and when the first of them came.
    older: Option<(u32, Instant)>,
    /// The longest time between two bookmarks, once seen.
    bookmark_interval: Option<Duration>,
    mute: Mute,
    /// Failures of watches in a row, weighted.
    strikes: u32,
    polling: bool,
    /// Whether the last list failed that stood in for a watch: then the server is away, and does not refuse watches only.
    lists_fail: bool,
    /// Whether the list is made although the version may still be good.
    probing: bool,
    /// Whether there was a healthy watch since the last list.
    watched: bool,
    /// Whether the present watch advanced the version; whether it was open for long enough.
    advanced: bool,
    proven: bool,
    /// Since when there have been only failures, and how many.
    failing: Option<(Instant, u32)>,
    /// Whether the server was away at the last failure, and how often that changed since the last success.
    away: bool,
    turns: u32,
}

impl Machine {
    pub(super) fn new(config: &ReflectorConfig) -> Self {
        let seed = config.seed.unwrap_or_else(|| fastrand::u64(..));
        let mut machine = Self {
            retry: Backoff::new(config.backoff, seed),
            poll: Backoff::new(config.backoff, seed.wrapping_add(1)),
            expired: Repeated::new(Backoff::new(config.backoff, seed.wrapping_add(3)), EXPIRED_REST),
            unreadable: Repeated::new(Backoff::new(config.backoff, seed.wrapping_add(2)), UNREADABLE_REST),
            pace: Pace::new(),
            step: Step::Stream,
            version: None,
            paged: None,
            broken_streams: 0,
            refused_streams: 0,
            doubt: Doubt::default(),
            restored: false,
            verifying: false,
            any_version: config.stale_first_list,
            compared_at: None,
            doubted_since: None,
            unverified: 0,
            incomplete: 0,
            odd_lists: 0,
            odd_events: 0,
            older: None,
            bookmark_interval: None,
            mute: Mute::new(),
            strikes: 0,
            polling: false,
            lists_fail: false,
            probing: false,
            watched: true,
            advanced: false,
            proven: false,
            failing: None,
            away: false,
            turns: 0,
            config: config.clone(),
        };
        if !config.streaming_lists {
            machine.paged = Some(Paged { why: "streaming lists are switched off", until: None });
        } else if config.stale_first_list {
            machine.paged = Some(Paged { why: "a stale first list was asked for", until: None });
        }
        machine.step = machine.list_step();
        machine
    }

    /// Continues after an earlier run: not to resume, but to notice a list that is older.
    pub(super) fn having_seen(self, version: Option<ResourceVersion>) -> Self {
        let doubt = if version.is_some() { Doubt::of_earlier_run() } else { Doubt::default() };
        Self { version, doubt, ..self }
    }

    pub(super) fn step(&self) -> Step {
        self.step
    }

    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    /// The version to ask a list for; `None` asks for the newest.
    pub(super) fn list_version(&self) -> Option<ResourceVersion> {
        let seen = self.version.clone().filter(ResourceVersion::is_comparable);
        self.any_version.then(|| seen.unwrap_or(ResourceVersion::ANY))
    }

    pub(super) fn mode(&self) -> Mode {
        self.paged.map_or(Mode::Streaming, |paged| Mode::Paged(paged.why))
    }

    /// Whether lists stand in for watches that fail.
    pub(super) fn polling(&self) -> bool {
        self.polling
    }

    /// Since when the cache could not be compared with the server, although it should be.
    pub(super) fn doubted_since(&self) -> Option<Instant> {
        self.doubted_since
    }

    /// Since when there have been only failures, and how many.
    pub(super) fn failing(&self) -> Option<(Instant, u32)> {
        self.failing
    }

    /// How many comparisons failed since the last list.
    pub(super) fn unverified(&self) -> u32 {
        self.unverified
    }

    pub(super) fn watch_timeout(&mut self) -> Duration {
        self.retry.doubled(self.config.watch_timeout)
    }

    /// How long a watch may be silent before it is given up.
    pub(super) fn silence_limit(&self, timeout: Duration) -> Duration {
        let limit = if self.mute.is_known() { mute::SILENCE } else { self.dead_after(timeout) };
        self.config.silence_limit.map_or(limit, |asked| asked.min(limit))
    }

    /// After which silence a watch is dead, by what is known of its server.
    pub(super) fn dead_after(&self, timeout: Duration) -> Duration {
        match self.bookmark_interval {
            _ if planted(Bug::SilenceTrusted) => Duration::from_hours(24),
            Some(interval) => interval.saturating_mul(3).max(GRACE).min(timeout + GRACE),
            None => timeout + GRACE,
        }
    }

    /// After which silence a connection that ends too early may have been dead: a server that sends bookmarks is never silent for
    /// half as long again as between two of them.
    fn suspicious_after(&self) -> Duration {
        self.bookmark_interval.map_or(QUIET, |interval| QUIET.min(interval + interval / 2))
    }

    pub(super) fn saw_bookmark(&mut self, since_last: Option<Duration>) {
        if let Some(interval) = since_last {
            self.bookmark_interval = Some(self.bookmark_interval.unwrap_or_default().max(interval));
        }
    }

    /// A watch was silent for too long. A server that sends bookmarks only while something changes must not lose every
    /// second watch to this, so their interval is learned again.
    pub(super) fn was_silent(&mut self) {
        if !planted(Bug::SilentIntervalKept) {
            self.bookmark_interval = None;
        }
    }

    /// The sink has everything up to this version; `newest` was changed last.
    pub(super) fn listed(&mut self, version: ResourceVersion, newest: Option<Witness>, at: Instant) {
        let restored = self.restored || self.version.as_ref().is_some_and(|seen| version < *seen);
        let changed = newest.as_ref().and_then(|newest| newest.state.as_ref()).map(|(_, version)| version);
        self.mute.listed(changed.zip(self.version.as_ref()).is_some_and(|(changed, seen)| changed > seen));
        self.version = Some(version);
        self.doubt.listed(newest, restored, at);
        self.compared_at = Some(at);
        self.doubted_since = None;
        if !planted(Bug::UnverifiedNotReset) {
            self.unverified = 0;
        }
        self.odd_lists = 0;
        self.older = None;
        self.lists_fail &= planted(Bug::ListsFailKept);
        self.restored = false;
        self.verifying = false;
        self.any_version = false;
        self.probing = false;
        self.watched = false;
        self.broken_streams = 0;
        self.refused_streams = 0;
        self.retry.succeeded();
        self.step = Step::Watch;
    }

    /// An event or bookmark was passed on. Versions only go forward, where they have an order.
    pub(super) fn moved(&mut self, version: ResourceVersion, witness: Option<Witness>) {
        self.mute.heard();
        let older = self.version.as_ref().is_some_and(|seen| version < *seen);
        if !older {
            self.advanced |= self.version.as_ref() != Some(&version);
            self.version = Some(version);
            self.doubt.moved(witness);
        }
    }

    /// A watch is open.
    pub(super) fn opened(&mut self, now: Instant) {
        self.doubt.resumed(now);
        self.mute.opened();
        (self.advanced, self.proven) = (false, false);
    }

    /// After this time, an open watch shows that the server is healthy.
    pub(super) fn proven_after(&self) -> Option<Duration> {
        let after = if self.strikes > 0 { RECOVERED_AFTER } else { self.config.backoff.healthy_after };
        let shows_nothing = self.mute.is_known() && !planted(Bug::MuteWatchProves);
        (!self.proven && !shows_nothing).then_some(if self.advanced { Duration::ZERO } else { after })
    }

    /// The present watch is healthy.
    pub(super) fn prove(&mut self) {
        self.proven = true;
        self.watched = true;
        self.strikes = 0;
        self.odd_events = 0;
        self.older = None;
        self.polling = false;
        self.probing = false;
        (self.away, self.turns) = (false, 0);
        self.poll.succeeded();
        self.retry.succeeded();
    }

    /// Forgets earlier failures, and returns since when and how often there were any. A list is not enough of a recovery
    /// while watches fail.
    pub(super) fn recovered(&mut self) -> Option<(Instant, u32)> {
        self.failing.take_if(|_| !self.polling)
    }

    /// What is not known about the server since a connection was lost.
    pub(super) fn doubt(&mut self) -> &mut Doubt {
        &mut self.doubt
    }

    /// A step begins; `count` is how many objects the cache has at a version.
    pub(super) fn begin(&mut self, now: Instant, count: impl FnOnce(&ResourceVersion) -> Option<usize>) {
        match (self.step, &self.version) {
            (Step::Watch, Some(version)) => self.doubt.note(version, count(version)),
            (Step::Watch, None) => {}
            (Step::List { .. } | Step::Stream, _) => self.doubt.lists(now),
        }
    }

    /// Begins a check, which counts as a request.
    pub(super) fn begin_check(&mut self, now: Instant) -> Option<Result<Reached, ()>> {
        let _ = self.pace.take(now);
        let reached = self.doubt.begin_check(now)?;
        if self.doubt.was_unanswered() && !planted(Bug::UnansweredCheckHidden) {
            self.doubted_since.get_or_insert(now);
        }
        Some(reached)
    }

    /// A check has an answer, which takes no doubt away that a failed comparison has left.
    pub(super) fn checked(&mut self, same: bool, now: Instant) {
        self.doubt.checked(same, now);
        if self.unverified == 0 && !self.doubt.was_unanswered() {
            self.doubted_since = None;
        }
    }

    /// A check showed that the server's history is another one.
    pub(super) fn is_restored(&mut self) {
        self.restored = true;
    }

    /// Takes the outcome of the step, and returns how long to wait before the next.
    pub(super) fn on(&mut self, outcome: &Outcome, now: Instant) -> Duration {
        if let Some(paged) = self.paged
            && paged.until.is_some_and(|until| now >= until)
            && !planted(Bug::StreamsNeverAgain)
        {
            self.paged = None;
        }
        self.doubt.closed(now);
        let wait = self.react(outcome, now);
        wait + self.pace.take(now + wait)
    }

    fn react(&mut self, outcome: &Outcome, now: Instant) -> Duration {
        match outcome {
            Outcome::Listed => {
                self.polling |= self.mute.is_known();
                self.step = Step::Watch;
                Duration::ZERO
            }
            Outcome::ListedOlder if self.any_version => {
                self.any_version = false;
                self.step = self.list_step();
                self.retry.next(None)
            }
            Outcome::ListedOlder => {
                let (lists, first) = self.older.unwrap_or((0, now));
                self.older = Some((lists + 1, first));
                self.fail(now);
                self.step = self.list_step();
                OLDER_WAIT + self.retry.spread(OLDER_WAIT / 5)
            }
            Outcome::PageExpired(error) => {
                self.step = Step::List { limit: None };
                self.failure_wait(error, now)
            }
            Outcome::Failed(error) => self.failed(error, now),
            // It says nothing about streaming lists.
            Outcome::NotBegun(error) => {
                self.refuse_stream();
                self.failure_wait(error, now)
            }
            Outcome::NoEnd(why) => self.stop_streaming(why, now + REJECTED_FOR),
            Outcome::Ended(ended) => self.ended(ended, now),
            Outcome::Lost(error) => {
                // However healthy the watches before it look: one that expires each time costs a list each time.
                let again = self.expired.wait(now).filter(|_| !planted(Bug::ExpiredListed));
                if again.is_some() && self.watched {
                    self.fail(now);
                    self.fruitless();
                }
                self.relist(Some(error), now).max(again.unwrap_or_default())
            }
            Outcome::Restored(_) => {
                self.doubt.lost(now, Duration::ZERO);
                self.doubt.accused();
                self.watched = true;
                self.relist(None, now)
            }
            Outcome::Unreadable => {
                // A watch that brings such events is as healthy as any. Only time without them shows that they have ended.
                let again = self.unreadable.wait(now).filter(|_| !planted(Bug::UnreadableListed));
                let wait = self.relist(None, now).max(again.unwrap_or_default());
                self.step = Step::List { limit: self.config.page_size };
                wait
            }
            Outcome::Verify => {
                self.compare();
                Duration::ZERO
            }
        }
    }

    fn ended(&mut self, ended: &Ended, now: Instant) -> Duration {
        let failure = ended.failure.as_ref();
        if !ended.on_time || ended.silent >= QUIET {
            // A connection that ends too early after a silence may have been dead since its last frame.
            let speaks = ended.on_time || failure.is_some_and(|error| error.code().is_some());
            let dead = ended.dead || (!speaks && ended.silent >= self.suspicious_after());
            self.doubt.lost(now, if dead { ended.silent } else { Duration::ZERO });
        }
        if self.version.as_ref().is_some_and(is_absent) {
            // Without versions a watch cannot be resumed.
            self.watched |= ended.lasted >= self.config.backoff.healthy_after;
            return self.relist(failure, now);
        }
        // A watch that the server itself ends with an error soon after it began is refused, only later.
        let refused = failure.is_some_and(|error| error.code().is_some()) && ended.lasted < RECOVERED_AFTER;
        let lasted = self.proven || ended.lasted >= self.config.backoff.healthy_after;
        let quiet = !ended.on_time && self.mute.ended(ended.lasted, now);
        if self.advanced || (lasted && !refused && !self.mute.is_known()) {
            self.prove();
            self.failing = None;
            let failure = failure.filter(|_| !planted(Bug::RetryAfterLostOnEnd));
            let asked = failure.and_then(SourceError::retry_after).map(|time| self.retry.next(Some(time)));
            if quiet {
                self.compare();
            }
            return asked.unwrap_or_default().max(self.retry.spread(RESUME_SPREAD));
        }
        self.strike(failure, now)
    }

    /// Compares the cache with the server, by a list.
    fn compare(&mut self) {
        self.verifying = true;
        self.step = Step::List { limit: self.config.page_size };
    }

    fn list_step(&self) -> Step {
        if self.paged.is_some() { Step::List { limit: self.config.page_size } } else { Step::Stream }
    }
}

/// Whether this stands for no version at all, as in APIs that have none.
pub(super) fn is_absent(version: &ResourceVersion) -> bool {
    *version == ResourceVersion::from("")
}

#[cfg(test)]
mod tests;
