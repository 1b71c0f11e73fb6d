//! What a reflector does next: a pure state machine.
//!
//! | after | next | wait |
//! | --- | --- | --- |
//! | nothing | stream, or list | none |
//! | a list or the end bookmark of a stream | watch | none |
//! | a list older than what was seen | the same again, trusting nothing; then accepted as a restore | none |
//! | a stale list, where stale ones are allowed | a consistent list | backoff |
//! | a page that expired | one list without pages | backoff |
//! | a failed list | list; watch, if the list was only to verify | backoff, Retry-After |
//! | a stream that the server rejects | list, from now on | none |
//! | a stream without end bookmark in time | list, from now on | none |
//! | a stream from a server that is away or has too much to do | stream | backoff, Retry-After |
//! | a stream that failed | stream; list from now on after three in a row | backoff, Retry-After |
//! | a watch that ended or broke | watch | backoff, Retry-After; the floor if it lasted |
//! | an expired or too large version, a vanished resource | list or stream | spread over a second, or backoff |
//! | a refused watch from a version that is no number | list or stream | spread over a second, or backoff |
//! | an event whose key cannot be read | list | backoff |
//! | the time to verify | list, trusting nothing | none |
//!
//! A list with objects whose keys could not be read is complete enough to be used, but not to say what vanished: it is
//! verified soon, and ever later if that does not help.

use std::time::Duration;

use kube_wire::ResourceVersion;
use tokio::time::Instant;

use super::{Mode, ReflectorConfig};
use crate::backoff::Backoff;
use crate::planted::{Bug, planted};
use crate::source::SourceError;

/// After so many failed streams in a row, lists are tried instead.
const STREAM_TRIES: u32 = 3;

/// How much longer than it should a watch may be silent, or last.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// So many lists in a row are refused because only some of their versions are numbers.
const ODD_TRIES: u32 = 3;

/// When a list that was not complete is verified first; each time it was no use, twice as late.
const RECHECK_FIRST: Duration = Duration::from_secs(10);
const RECHECK_LAST: Duration = Duration::from_hours(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    List { limit: Option<u32> },
    Stream,
    Watch,
}

/// What came of a step.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The list is in the sink.
    Listed,
    /// The list is older than what was seen, and not to be taken as it is.
    ListedOlder,
    /// The server cannot go on with its own list.
    PageExpired(SourceError),
    /// The list or watch could not be had.
    Failed(SourceError),
    /// A streaming list was not even begun: the server could not be reached, or has too much to do.
    NotBegun(SourceError),
    /// A streaming list did not come to its end in time.
    NoEnd(&'static str),
    /// The watch was closed, in the ordinary way or by silence, after this time.
    Ended { lasted: Duration, failure: Option<SourceError> },
    /// The watch can no longer be trusted.
    Lost(SourceError),
    /// An event was about an object whose key cannot be read.
    Unreadable,
    /// It is time to compare with the server.
    Verify,
}

impl Outcome {
    pub(super) fn failure(&self) -> Option<&SourceError> {
        match self {
            Self::PageExpired(error) | Self::Failed(error) | Self::NotBegun(error) | Self::Lost(error) => {
                Some(error)
            }
            Self::Ended { failure, .. } => failure.as_ref(),
            _ => None,
        }
    }
}

/// What to make of a complete list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    /// Accepted as the state after a restore: what is known of objects no longer counts.
    Restored,
    Refuse,
}

pub(super) struct Machine {
    config: ReflectorConfig,
    backoff: Backoff,
    step: Step,
    version: Option<ResourceVersion>,
    /// Why lists are not streamed, if they are not.
    paged: Option<&'static str>,
    stream_failures: u32,
    trusted: bool,
    verifying: bool,
    /// Whether a list may be as old as it likes.
    any_version: bool,
    /// When the last list was complete.
    listed_at: Option<Instant>,
    /// How many comparisons since then could not be made.
    unverified: u32,
    /// How many lists in a row had objects whose keys could not be read.
    incomplete: u32,
    /// How many lists in a row were refused for their odd versions.
    odd_lists: u32,
    /// The longest time between two bookmarks, once seen.
    bookmark_interval: Option<Duration>,
}

impl Machine {
    pub(super) fn new(config: &ReflectorConfig) -> Self {
        let seed = config.seed.unwrap_or_else(|| fastrand::u64(..));
        let mut machine = Self {
            backoff: Backoff::new(config.backoff, seed),
            step: Step::Stream,
            version: None,
            paged: None,
            stream_failures: 0,
            trusted: true,
            verifying: false,
            any_version: config.stale_first_list,
            listed_at: None,
            unverified: 0,
            incomplete: 0,
            odd_lists: 0,
            bookmark_interval: None,
            config: config.clone(),
        };
        if !config.streaming_lists {
            machine.paged = Some("streaming lists are switched off");
        } else if config.stale_first_list {
            machine.paged = Some("a stale first list was asked for");
        }
        machine.step = machine.list_step();
        machine
    }

    /// Goes on from what an earlier run had come to: not to resume, but to notice a list that is older.
    pub(super) fn having_seen(self, version: Option<ResourceVersion>) -> Self {
        Self { version, ..self }
    }

    pub(super) fn step(&self) -> Step {
        self.step
    }

    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    /// Whether objects whose uid and version are known are known. A comparison looks at everything.
    pub(super) fn trusted(&self) -> bool {
        self.trusted && !self.verifying
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
        let wait = self.config.verify_every.into_iter().chain(soon).min()?;
        Some(self.listed_at? + wait.saturating_mul(self.unverified + 1).min(RECHECK_LAST.max(wait)))
    }

    /// The version to ask a list for; `None` asks for the newest.
    pub(super) fn list_version(&self) -> Option<ResourceVersion> {
        self.any_version.then(|| self.version.clone().unwrap_or(ResourceVersion::ANY))
    }

    pub(super) fn mode(&self) -> Mode {
        self.paged.map_or(Mode::Streaming, Mode::Paged)
    }

    pub(super) fn watch_timeout(&mut self) -> Duration {
        self.backoff.doubled(self.config.watch_timeout)
    }

    /// How long a watch may be silent before it counts as dead.
    pub(super) fn silence_limit(&self, timeout: Duration) -> Duration {
        match self.bookmark_interval {
            _ if planted(Bug::SilenceTrusted) => Duration::from_hours(24),
            Some(interval) => interval.saturating_mul(3).max(GRACE).min(timeout + GRACE),
            None => timeout + GRACE,
        }
    }

    pub(super) fn saw_bookmark(&mut self, since_last: Option<Duration>) {
        if let Some(interval) = since_last {
            self.bookmark_interval = Some(self.bookmark_interval.unwrap_or_default().max(interval));
        }
    }

    /// What to make of a list at this version.
    pub(super) fn judge(&self, version: &ResourceVersion) -> Verdict {
        match &self.version {
            _ if planted(Bug::StaleListAccepted) => Verdict::Accept,
            Some(seen) if version < seen && self.any_version => Verdict::Refuse,
            Some(seen) if version < seen && self.trusted => Verdict::Refuse,
            Some(seen) if version < seen => Verdict::Restored,
            _ => Verdict::Accept,
        }
    }

    /// Whether either this version or the one before cannot be right: one is a number, the other is not.
    pub(super) fn is_odd(&self, version: &ResourceVersion) -> bool {
        let odd = |seen: &ResourceVersion| seen.is_comparable() != version.is_comparable();
        self.version.as_ref().is_some_and(odd) && !planted(Bug::OddVersionTrusted)
    }

    /// Whether a list with odd versions is refused: not if they come again and again, for then the server is like that.
    pub(super) fn refuses_odd(&mut self) -> bool {
        self.odd_lists += 1;
        self.odd_lists <= ODD_TRIES
    }

    /// Whether the keys of all objects in the list could be read.
    pub(super) fn was_complete(&mut self, complete: bool) {
        let complete = complete || planted(Bug::IncompleteListTrusted);
        self.incomplete = if complete { 0 } else { self.incomplete + 1 };
    }

    /// The sink has everything up to this version.
    pub(super) fn listed(&mut self, version: ResourceVersion, at: Instant) {
        self.version = Some(version);
        self.listed_at = Some(at);
        self.unverified = 0;
        self.odd_lists = 0;
        self.trusted = true;
        self.verifying = false;
        self.any_version = false;
        self.stream_failures = 0;
        self.step = Step::Watch;
    }

    /// An event or bookmark was passed on. Versions only go forward, where they have an order.
    pub(super) fn moved(&mut self, version: ResourceVersion) {
        let older = self.version.as_ref().is_some_and(|seen| version < *seen);
        if !older {
            self.version = Some(version);
        }
    }

    /// Takes what came of the step, and says how long to wait before the next.
    pub(super) fn on(&mut self, outcome: &Outcome) -> Duration {
        match outcome {
            Outcome::Listed => {
                self.step = Step::Watch;
                Duration::ZERO
            }
            Outcome::ListedOlder if self.any_version => {
                self.any_version = false;
                self.step = self.list_step();
                self.backoff.next(None)
            }
            Outcome::ListedOlder => {
                self.trusted = false;
                self.step = self.list_step();
                Duration::ZERO
            }
            Outcome::PageExpired(error) => {
                self.step = Step::List { limit: None };
                self.backoff.next(error.retry_after())
            }
            Outcome::Failed(error) => self.failed(error),
            // It says nothing about streaming lists; and a list in pages would cost such a server more.
            Outcome::NotBegun(error) => self.backoff.next(error.retry_after()),
            Outcome::NoEnd(why) => self.give_up_streaming(why),
            Outcome::Ended { lasted, failure } => {
                if *lasted >= self.backoff.healthy_after() {
                    self.backoff.succeeded();
                }
                self.backoff.next(failure.as_ref().and_then(SourceError::retry_after))
            }
            Outcome::Lost(error) => {
                self.step = self.list_step();
                // Many caches may have lost their watch at the same moment.
                let spread = self.backoff.spread(Duration::from_secs(1));
                self.backoff.next(error.retry_after()).max(spread)
            }
            Outcome::Unreadable => {
                self.step = Step::List { limit: self.config.page_size };
                self.backoff.next(None)
            }
            Outcome::Verify => {
                self.verifying = true;
                self.step = Step::List { limit: self.config.page_size };
                Duration::ZERO
            }
        }
    }

    fn failed(&mut self, error: &SourceError) -> Duration {
        match self.step {
            Step::Stream if error.is_rejected() => {
                return self.give_up_streaming("the server rejects streaming lists");
            }
            Step::Stream => {
                self.stream_failures += 1;
                if self.stream_failures >= STREAM_TRIES && !error.is_not_found() {
                    let _ = self.give_up_streaming("streaming lists failed three times in a row");
                }
            }
            // What is watched is still good, as far as anybody knows.
            Step::List { .. } if self.verifying => {
                self.verifying = false;
                self.unverified = self.unverified.saturating_add(1);
                self.step = Step::Watch;
            }
            Step::List { .. } => {
                // A server that was restored will not have that version for a long time.
                self.any_version &= !error.needs_list();
                self.step = self.list_step();
            }
            Step::Watch if error.needs_list() || self.is_refused(error) => {
                self.step = self.list_step();
                let spread = self.backoff.spread(Duration::from_secs(1));
                return self.backoff.next(error.retry_after()).max(spread);
            }
            Step::Watch => {}
        }
        self.backoff.next(error.retry_after())
    }

    fn give_up_streaming(&mut self, why: &'static str) -> Duration {
        self.paged = Some(why);
        self.step = self.list_step();
        Duration::ZERO
    }

    /// A version that is no number may be a mistake on the way: if the server answers that it does not like it, so be it.
    fn is_refused(&self, error: &SourceError) -> bool {
        let odd = self.version.as_ref().is_some_and(|version| !version.is_comparable());
        odd && error.code().is_some_and(|code| code != 429)
    }

    fn list_step(&self) -> Step {
        if self.paged.is_some() { Step::List { limit: self.config.page_size } } else { Step::Stream }
    }
}

#[cfg(test)]
mod tests;
