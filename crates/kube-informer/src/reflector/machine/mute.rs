//! Watches that open and bring nothing, as behind a proxy that holds answers back.
//!
//! Such a watch looks healthy, and a check at the cache's own version finds nothing wrong. So after some time without an event or a
//! bookmark, in watches that end too early, the cache is compared with the server. A comparison that finds a change shows that watches do not
//! bring it; after two of them the reflector polls, until a watch brings something.

use std::time::Duration;

use tokio::time::Instant;

use crate::planted::{Bug, planted};

/// After this time the cache is compared first; twice as late each time that finds nothing.
const FIRST: Duration = Duration::from_mins(2);
const LAST: Duration = Duration::from_hours(1);

/// How long a watch may be silent while watches are known to bring nothing: until the next bookmark of a kube-apiserver should have come.
pub(super) const SILENCE: Duration = Duration::from_secs(90);

/// After this many comparisons in a row that found a change, watches are known to bring nothing.
const PROOF: u32 = 2;

#[derive(Debug)]
pub(super) struct Mute {
    /// Since when watches have ended too early and brought nothing.
    since: Option<Instant>,
    wait: Duration,
    /// Comparisons in a row that found a change that no watch had brought.
    missed: u32,
    /// Whether the present watch has brought something.
    heard: bool,
}

impl Mute {
    pub(super) fn new() -> Self {
        Self { since: None, wait: FIRST, missed: 0, heard: false }
    }

    pub(super) fn opened(&mut self) {
        self.heard = false;
    }

    /// An event or a bookmark came.
    pub(super) fn heard(&mut self) {
        *self = Self { heard: true, ..Self::new() };
    }

    /// The present watch has ended too early, and was open for this long. Returns whether it is time to compare.
    pub(super) fn ended(&mut self, lasted: Duration, now: Instant) -> bool {
        let quiet = !self.heard
            && now >= *self.since.get_or_insert(now.checked_sub(lasted).unwrap_or(now)) + self.wait;
        quiet && !planted(Bug::MuteWatchTrusted)
    }

    /// A list is in the cache. `missed`: it has a change that the watches before it should have brought.
    pub(super) fn listed(&mut self, missed: bool) {
        if self.since.take().is_none() {
            return;
        }
        if missed {
            (self.missed, self.wait) = (self.missed.saturating_add(1), FIRST);
        } else if !self.is_known() {
            (self.missed, self.wait) = (0, (self.wait * 2).min(LAST));
        }
    }

    /// Whether watches are known to bring nothing, the present one included.
    pub(super) fn is_known(&self) -> bool {
        self.missed >= PROOF && !self.heard
    }
}
