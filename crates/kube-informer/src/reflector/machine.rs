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

use std::time::Duration;

use kube_wire::ResourceVersion;
use tokio::time::Instant;

use super::doubt::{Doubt, Reached};
use super::pace::Pace;
use super::{Mode, ReflectorConfig};
use crate::backoff::Backoff;
use crate::planted::{Bug, planted};
use crate::source::{SourceError, Witness};

/// After this many failed streams in a row, lists are tried instead.
const STREAM_TRIES: u32 = 3;

/// How long a rejected streaming list is not tried again, and one that broke.
const REJECTED_FOR: Duration = Duration::from_hours(1);
const BROKEN_FOR: Duration = Duration::from_mins(10);

/// How much longer than it should a watch may be silent, or last.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// How long a page of the first comparison may take.
const COMPARE_WITHIN: Duration = Duration::from_secs(10);

/// After this long without a frame, a watch that ends was silent, so the version is checked.
const QUIET: Duration = Duration::from_secs(150);

/// This many lists in a row are refused because only some of their versions are numbers; and this many events.
const ODD_TRIES: u32 = 3;

/// When a list that was not complete is verified first; twice as late each time that did not help.
const RECHECK_FIRST: Duration = Duration::from_secs(10);
const RECHECK_LAST: Duration = Duration::from_mins(10);

/// A list that is older than the version seen is a restore if this many in a row are, over at least this time. One stale
/// replica behind a load balancer must not look like a restored cluster.
const OLDER_LISTS: u32 = 3;
const OLDER_SPAN: Duration = Duration::from_secs(5);
const OLDER_WAIT: Duration = Duration::from_millis(2500);

/// After this time without a watch that expired, or an event whose key cannot be read, the next one leads to a list at once.
const EXPIRED_REST: Duration = Duration::from_mins(2);
const UNREADABLE_REST: Duration = Duration::from_mins(10);

/// Strikes after which the reflector polls: three refusals, or twelve failures of a server that is busy or away.
const STRIKES: u32 = 12;
const REFUSED: u32 = 4;
const BUSY: u32 = 1;

/// A server is taken for gone, or back, this many times before that stops to shorten the waits.
const TURNS: u32 = 2;

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

/// Whether a complete list can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    /// Accepted as the state after a restore: a known uid and version no longer mean a known object.
    Restored,
    Refuse,
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

/// Waits between lists that have the same cause.
struct Repeated {
    waits: Backoff,
    /// After this time without the cause, the waits start again.
    rest: Duration,
    last: Option<Instant>,
}

impl Repeated {
    fn new(waits: Backoff, rest: Duration) -> Self {
        Self { waits, rest, last: None }
    }

    /// How long to wait, if the cause was there a short time ago.
    fn wait(&mut self, now: Instant) -> Option<Duration> {
        let last = self.last.replace(now);
        if last.is_some_and(|last| now < last + self.rest) {
            return Some(self.waits.next(None));
        }
        self.waits.succeeded();
        None
    }
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

    /// Whether a matching uid and version means that the object is unchanged. A comparison looks at everything.
    pub(super) fn trusted(&self) -> bool {
        self.doubt.is_trusted() && self.older.is_none() && !self.verifying
    }

    /// If the next list is a comparison: the version up to which the cache should be right.
    pub(super) fn verifies(&self) -> Option<ResourceVersion> {
        self.version.clone().filter(|_| self.verifying)
    }

    /// When to compare with the server. It counts from the last list, however many watches there were since.
    pub(super) fn verify_at(&self) -> Option<Instant> {
        if planted(Bug::NeverVerified) {
            return None;
        }
        let soon = (self.incomplete > 0)
            .then(|| RECHECK_FIRST.saturating_mul(1 << (self.incomplete - 1).min(16)).min(RECHECK_LAST));
        let wait = self.config.verify_every.into_iter().chain(soon).min();
        let wait = wait.map(|wait| wait.saturating_mul(self.unverified + 1).min(RECHECK_LAST.max(wait)));
        // One that failed is made again, whatever it was made for: until then nobody knows whether the cache is right.
        let again = (self.unverified > 0 && !planted(Bug::FailedComparisonForgotten))
            .then(|| RECHECK_FIRST.saturating_mul(1 << self.unverified.min(16)).min(RECHECK_LAST));
        Some(self.compared_at? + wait.into_iter().chain(again).min()?)
    }

    /// How long a page of a comparison may take. A server that is slow for good gets more time after each comparison that fails.
    pub(super) fn compare_within(&self) -> Duration {
        COMPARE_WITHIN.saturating_mul(1 << self.unverified.min(4))
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

    pub(super) fn watch_timeout(&mut self) -> Duration {
        self.retry.doubled(self.config.watch_timeout)
    }

    /// How long a watch may be silent before it is given up.
    pub(super) fn silence_limit(&self, timeout: Duration) -> Duration {
        let limit = self.dead_after(timeout);
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

    /// Whether a list at this version can be used.
    pub(super) fn judge(&self, version: &ResourceVersion, now: Instant) -> Verdict {
        let long_enough = |first: Instant| now >= first + OLDER_SPAN || planted(Bug::SpanOfOlderIgnored);
        let confirmed =
            self.older.is_some_and(|(lists, first)| lists + 1 >= OLDER_LISTS && long_enough(first));
        match &self.version {
            _ if planted(Bug::StaleListAccepted) => Verdict::Accept,
            // The content that a check has read proves the restore.
            Some(seen) if version < seen && self.restored => Verdict::Restored,
            Some(seen) if version < seen && confirmed && !self.any_version => Verdict::Restored,
            Some(seen) if version < seen => Verdict::Refuse,
            _ if self.restored => Verdict::Restored,
            _ => Verdict::Accept,
        }
    }

    /// Whether either this version or the one before cannot be right: one is a number, the other is not.
    fn is_odd(&self, version: &ResourceVersion) -> bool {
        let odd = |seen: &ResourceVersion| seen.is_comparable() != version.is_comparable();
        self.version.as_ref().is_some_and(odd) && !planted(Bug::OddVersionTrusted)
    }

    /// Whether an event of this version is refused: asked for again from the last good version, it may come whole. A
    /// server that repeats it is accepted as it is.
    pub(super) fn refuses_event(&mut self, version: &ResourceVersion) -> bool {
        if !self.is_odd(version) || self.version.as_ref().is_some_and(is_absent) || is_absent(version) {
            return false;
        }
        self.odd_events += 1;
        self.odd_events <= ODD_TRIES
    }

    /// Whether a list with odd versions is refused: `mixed` says that some of its objects have numbers and some do not.
    pub(super) fn refuses_list(&mut self, version: &ResourceVersion, mixed: bool) -> bool {
        // Some servers have no versions at all.
        let garbled = !version.is_comparable() && !is_absent(version) && self.is_odd(version);
        if !mixed && !garbled {
            return false;
        }
        self.odd_lists += 1;
        self.odd_lists <= ODD_TRIES
    }

    /// Whether the keys of all objects in the list could be read.
    pub(super) fn was_complete(&mut self, complete: bool) {
        let complete = complete || planted(Bug::IncompleteListTrusted);
        self.incomplete = if complete { 0 } else { self.incomplete + 1 };
    }

    /// The sink has everything up to this version; `newest` was changed last.
    pub(super) fn listed(&mut self, version: ResourceVersion, newest: Option<Witness>, at: Instant) {
        let restored = self.restored || self.version.as_ref().is_some_and(|seen| version < *seen);
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
        (self.advanced, self.proven) = (false, false);
    }

    /// After this time, an open watch shows that the server is healthy.
    pub(super) fn proven_after(&self) -> Option<Duration> {
        let after = if self.strikes > 0 { RECOVERED_AFTER } else { self.config.backoff.healthy_after };
        (!self.proven).then_some(if self.advanced { Duration::ZERO } else { after })
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
                self.verifying = true;
                self.step = Step::List { limit: self.config.page_size };
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
        if self.advanced || (lasted && !refused) {
            self.prove();
            self.failing = None;
            let failure = failure.filter(|_| !planted(Bug::RetryAfterLostOnEnd));
            let asked = failure.and_then(SourceError::retry_after).map(|time| self.retry.next(Some(time)));
            return asked.unwrap_or_default().max(self.retry.spread(RESUME_SPREAD));
        }
        self.strike(failure, now)
    }

    fn failed(&mut self, error: &SourceError, now: Instant) -> Duration {
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
                let _ = self.failure_wait(error, now);
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
    fn refuse_stream(&mut self) {
        self.refused_streams += 1;
        if self.refused_streams.is_multiple_of(STREAM_TRIES) {
            self.step = Step::List { limit: self.config.page_size };
        }
    }

    /// A watch was refused, or brought nothing.
    fn strike(&mut self, failure: Option<&SourceError>, now: Instant) -> Duration {
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
    fn relist(&mut self, error: Option<&SourceError>, now: Instant) -> Duration {
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
        self.poll.next(retry_after)
    }

    fn fail(&mut self, now: Instant) {
        let (mut since, failures) = self.failing.unwrap_or((now, 0));
        if planted(Bug::FailingSinceMoves) {
            since = now;
        }
        self.failing = Some((since, failures.saturating_add(1)));
    }

    fn failure_wait(&mut self, error: &SourceError, now: Instant) -> Duration {
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

    fn stop_streaming(&mut self, why: &'static str, until: Instant) -> Duration {
        self.paged = Some(Paged { why, until: Some(until) });
        self.step = self.list_step();
        Duration::ZERO
    }

    /// A version that is not a number may have been garbled on the way: if the server refuses it, relist.
    fn is_refused(&self, error: &SourceError) -> bool {
        let odd =
            self.version.as_ref().is_some_and(|version| !version.is_comparable() && !is_absent(version));
        odd && error.code().is_some_and(|code| code != 429)
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
