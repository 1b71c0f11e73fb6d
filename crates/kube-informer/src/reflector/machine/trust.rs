//! Which answers are trusted, and when the cache is compared with the server.

use std::time::Duration;

use kube_wire::ResourceVersion;
use tokio::time::Instant;

use super::{Machine, is_absent};
use crate::planted::{Bug, planted};

/// How long a page of the first comparison may take.
const COMPARE_WITHIN: Duration = Duration::from_secs(10);

/// This many lists in a row are refused because only some of their versions are numbers; and this many events.
const ODD_TRIES: u32 = 3;

/// When a list that was not complete is verified first; twice as late each time that did not help.
pub(super) const RECHECK_FIRST: Duration = Duration::from_secs(10);
pub(super) const RECHECK_LAST: Duration = Duration::from_mins(10);

/// A list that is older than the version seen is a restore if this many in a row are, over at least this time. One stale
/// replica behind a load balancer must not look like a restored cluster.
const OLDER_LISTS: u32 = 3;
pub(super) const OLDER_SPAN: Duration = Duration::from_secs(5);
pub(super) const OLDER_WAIT: Duration = Duration::from_millis(2500);

/// Whether a complete list can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reflector) enum Verdict {
    Accept,
    /// Accepted as the state after a restore: a known uid and version no longer mean a known object.
    Restored,
    Refuse,
}

impl Machine {
    /// Whether a matching uid and version means that the object is unchanged. A comparison looks at everything.
    pub(in crate::reflector) fn trusted(&self) -> bool {
        self.doubt.is_trusted() && self.older.is_none() && !self.verifying
    }

    /// If the next list is a comparison: the version up to which the cache should be right.
    pub(in crate::reflector) fn verifies(&self) -> Option<ResourceVersion> {
        self.version.clone().filter(|_| self.verifying)
    }

    /// When to compare with the server. It counts from the last list, however many watches there were since.
    pub(in crate::reflector) fn verify_at(&self) -> Option<Instant> {
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
    pub(in crate::reflector) fn compare_within(&self) -> Duration {
        COMPARE_WITHIN.saturating_mul(1 << self.unverified.min(4))
    }

    /// Whether a list at this version can be used.
    pub(in crate::reflector) fn judge(&self, version: &ResourceVersion, now: Instant) -> Verdict {
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
    pub(super) fn is_odd(&self, version: &ResourceVersion) -> bool {
        let odd = |seen: &ResourceVersion| seen.is_comparable() != version.is_comparable();
        self.version.as_ref().is_some_and(odd) && !planted(Bug::OddVersionTrusted)
    }

    /// Whether an event of this version is refused: asked for again from the last good version, it may come whole. A
    /// server that repeats it is accepted as it is.
    pub(in crate::reflector) fn refuses_event(&mut self, version: &ResourceVersion) -> bool {
        if !self.is_odd(version) || self.version.as_ref().is_some_and(is_absent) || is_absent(version) {
            return false;
        }
        self.odd_events += 1;
        self.odd_events <= ODD_TRIES
    }

    /// Whether a list with odd versions is refused: `mixed` says that some of its objects have numbers and some do not.
    pub(in crate::reflector) fn refuses_list(&mut self, version: &ResourceVersion, mixed: bool) -> bool {
        // Some servers have no versions at all.
        let garbled = !version.is_comparable() && !is_absent(version) && self.is_odd(version);
        if !mixed && !garbled {
            return false;
        }
        self.odd_lists += 1;
        self.odd_lists <= ODD_TRIES
    }

    /// Whether the keys of all objects in the list could be read.
    pub(in crate::reflector) fn was_complete(&mut self, complete: bool) {
        let complete = complete || planted(Bug::IncompleteListTrusted);
        self.incomplete = if complete { 0 } else { self.incomplete + 1 };
    }
}
