//! Checks, beside a resumed watch, that the server was not restored from a backup meanwhile.

use std::time::Duration;

use futures_core::future::BoxFuture;
use kube_wire::ResourceVersion;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::Reflector;
use super::doubt::Reached;
use super::machine::{Machine, Outcome};
use crate::object::Entry;
use crate::planted::{Bug, planted};
use crate::source::{CheckRequest, History, SourceError, Witness};

/// How long a check waits for the next watch after one that failed.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// How long a server may ask to wait with the next check.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// A check under way.
pub(super) type Check<'a> = BoxFuture<'a, Result<History, SourceError>>;

impl Reflector {
    /// How many objects the cache has at this version, if that can be compared.
    pub(super) fn count_at(&self, version: &ResourceVersion) -> Option<usize> {
        let state = self.intake.state.load();
        let caught_up = state.version(&self.scope) == Some(version) || planted(Bug::CountBehindCompared);
        (caught_up && state.nameless.is_empty()).then(|| state.count(&self.scope))
    }

    pub(super) fn begin_check(&self, machine: &mut Machine) -> Option<Check<'_>> {
        let now = Instant::now();
        let begun = machine.begin_check(now)?;
        self.status.update(|status| status.doubted(machine.doubted_since()));
        let Ok(reached) = begun else {
            return Some(Box::pin(std::future::ready(Ok(History::Expired))));
        };
        // A short gap is hardly a restore: then the last change is enough, if there was one.
        let thorough = machine.doubt().is_thorough();
        let Reached { version, witness, count, lost_at, resumed_at, .. } = reached;
        let request = CheckRequest { version, lost_at, resumed_at, witness, count, thorough };
        self.status.update(|status| status.counts.checks += 1);
        let check = timeout(self.config.request_deadline, self.source.check(request));
        let late = |_| SourceError::late("the check took too long", "no answer within the deadline");
        Some(Box::pin(async move { check.await.map_err(late)? }))
    }

    /// Takes the answer of a check; an outcome means that the watch cannot go on.
    pub(super) fn end_check(
        &self,
        machine: &mut Machine,
        answer: Result<History, SourceError>,
    ) -> Option<Outcome> {
        match answer {
            Ok(History::Same) => {
                machine.checked(true, Instant::now());
                self.status.update(|status| status.doubted(machine.doubted_since()));
                None
            }
            Ok(History::Unknown) => {
                machine.checked(false, Instant::now());
                self.status.update(|status| status.doubted(machine.doubted_since()));
                None
            }
            // Only a comparison tells. The doubt stays until it is complete.
            Ok(History::Expired | History::Few) => Some(Outcome::Verify),
            Ok(history @ History::Other(why)) => {
                // A replica that is behind shows an older list, too: then the lists decide.
                if !history.is_behind() || planted(Bug::BehindCountsAsProof) {
                    machine.is_restored();
                }
                warn!(kind = %self.intake.kind, why, "the server seems to be restored from a backup; listing again");
                Some(Outcome::Restored(SourceError::transport("the watch cannot be trusted", why)))
            }
            Err(error) => {
                let text = error.with_cause();
                debug!(error = text, "the check of the version failed; trying again later");
                self.status.update(|status| {
                    if status.doubted_since.is_some() {
                        status.last_error = Some(text);
                        status.last_error_code = error.code();
                        status.last_error_at = Some(Instant::now());
                    }
                });
                if planted(Bug::FailedCheckCounts) {
                    machine.doubt().checked(false, Instant::now());
                }
                // Its connection may have broken, and the watch with it: the next check needs the next watch.
                let wait = error.retry_after().unwrap_or(SHORTEST_WAIT).min(LONGEST_WAIT);
                machine.doubt().wait(Instant::now() + wait);
                None
            }
        }
    }
}

/// The witness that an object is present as it is.
pub(super) fn witness_of(object: &Entry) -> Witness {
    Witness { key: object.key().clone(), state: Some((object.uid().clone(), object.version().clone())) }
}
