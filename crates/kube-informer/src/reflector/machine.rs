//! What a reflector does next: a pure state machine.
//!
//! | after | next | wait |
//! | --- | --- | --- |
//! | nothing | stream, or list | none |
//! | a list or the end bookmark of a stream | watch | none |
//! | a list older than what was seen | the same again, trusting nothing; then accepted as a restore | none |
//! | a stale list, where stale ones are allowed | a consistent list | backoff |
//! | a page that expired | one list without pages | backoff |
//! | a failed list | list | backoff, Retry-After |
//! | a stream that the server rejects | list, from now on | none |
//! | a stream without end bookmark in time | list, from now on | none |
//! | a stream that failed | stream; list from now on after three in a row | backoff, Retry-After |
//! | a watch that ended or broke | watch | backoff, Retry-After; the floor if it lasted |
//! | an expired or too large version, a vanished resource | list or stream | spread over a second, or backoff |
//! | an event whose key cannot be read | list | backoff |
//! | the time to verify | list | none |

use std::time::Duration;

use kube_wire::ResourceVersion;
use tokio::time::Instant;

use super::{Mode, ReflectorConfig};
use crate::backoff::Backoff;
use crate::source::SourceError;

/// After so many failed streams in a row, lists are tried instead.
const STREAM_TRIES: u32 = 3;

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
            Self::PageExpired(error) | Self::Failed(error) | Self::Lost(error) => Some(error),
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

    pub(super) fn step(&self) -> Step {
        self.step
    }

    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    /// Whether objects whose uid and version are known are known.
    pub(super) fn trusted(&self) -> bool {
        self.trusted
    }

    /// If the next list is a comparison: the version up to which the cache should be right.
    pub(super) fn verifies(&self) -> Option<ResourceVersion> {
        self.version.clone().filter(|_| self.verifying)
    }

    /// When to compare with the server. It counts from the last list, however many watches there were since.
    pub(super) fn verify_at(&self) -> Option<Instant> {
        Some(self.listed_at? + self.config.verify_every?)
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
        let grace = Duration::from_secs(30);
        match self.bookmark_interval {
            Some(interval) => (interval * 3).max(grace).min(timeout + grace),
            None => timeout + grace,
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
            Some(seen) if version < seen && self.any_version => Verdict::Refuse,
            Some(seen) if version < seen && self.trusted => Verdict::Refuse,
            Some(seen) if version < seen => Verdict::Restored,
            _ => Verdict::Accept,
        }
    }

    /// The sink has everything up to this version.
    pub(super) fn listed(&mut self, version: ResourceVersion, at: Instant) {
        self.version = Some(version);
        self.listed_at = Some(at);
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
            Step::List { .. } => self.step = self.list_step(),
            Step::Watch if error.needs_list() => {
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

    fn list_step(&self) -> Step {
        if self.paged.is_some() { Step::List { limit: self.config.page_size } } else { Step::Stream }
    }
}

#[cfg(test)]
mod tests;
