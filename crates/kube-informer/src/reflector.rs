//! Talks to the server for one kind: list, then watch from that version; resumes, relists, waits.
//!
//! Fed by a [`source`](crate::source), feeds a [`DeltaFifo`](crate::delta_fifo::DeltaFifo) or any other [`Sink`]. What to do
//! next is decided by a pure state machine (`machine`); the code here carries it out.

mod check;
mod collected;
mod config;
mod doubt;
mod list;
mod machine;
mod pace;
mod parts;
mod status;
mod watch;

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use kube_wire::ResourceVersion;
use tokio::time::Instant;
use tracing::{Instrument, debug, info, info_span, warn};

use crate::delta_fifo::{Delta, Scope};
use crate::intake::{Intake, panic_text};
use crate::object::{Kind, Storage};
use crate::source::{ListWatch, SourceError};
use crate::{Indexer, SetAside};

pub(crate) use config::NEVER;
pub use config::{ErrorHook, ReflectorConfig, ReflectorError};
use machine::{Machine, Outcome, Step};
pub(crate) use status::StatusCell;
pub use status::{Mode, Phase, ReflectorCounts, ReflectorStatus};

/// What a reflector has heard.
#[derive(Debug)]
pub enum Change {
    /// An object was added, updated or deleted.
    Put {
        /// The change.
        delta: Delta,
        /// The version it brings the cache to, if the order of events says so.
        version: Option<ResourceVersion>,
    },
    /// A list: everything that is there now.
    Replace(Replacement),
    /// Nothing happened up to this version.
    Advance(ResourceVersion),
    /// An object could not be read.
    SetAside(SetAside),
}

/// All objects of a scope at one version.
#[derive(Debug)]
pub struct Replacement {
    /// The objects, as [`Replaced`](crate::delta_fifo::DeltaType::Replaced).
    pub objects: Vec<Delta>,
    /// Objects that could not be read.
    pub set_aside: Vec<SetAside>,
    /// The version of the list.
    pub version: ResourceVersion,
    /// Whether a matching uid and version means that the object is unchanged. Not after a connection was lost, because the
    /// cluster may have been restored from a backup meanwhile.
    pub trusted: bool,
    /// If this list is a comparison with the server: the version up to which the cache should have been right.
    pub verifies: Option<ResourceVersion>,
}

impl Replacement {
    /// A list whose objects were all readable, from a server that is trusted.
    pub fn new(objects: Vec<Delta>, version: ResourceVersion) -> Self {
        Self { objects, set_aside: Vec::new(), version, trusted: true, verifies: None }
    }
}

/// Takes what a reflector hears.
pub trait Sink: Send + Sync + 'static {
    /// Takes a change; waits while there is no room, so that the reflector stops reading.
    fn send<'a>(&'a self, scope: &'a Scope, change: Change) -> BoxFuture<'a, ()>;
}

/// Keeps a sink informed of one kind within one scope.
pub struct Reflector {
    source: Arc<dyn ListWatch>,
    sink: Arc<dyn Sink>,
    scope: Scope,
    intake: Arc<Intake>,
    config: ReflectorConfig,
    status: Arc<StatusCell>,
}

impl Reflector {
    /// A reflector over a source of a kind, into a sink of your own.
    pub fn new(kind: Kind, source: impl ListWatch, sink: Arc<dyn Sink>, config: ReflectorConfig) -> Self {
        let indexer = Indexer::new();
        let intake = Intake {
            kind: Arc::new(kind),
            cuts: config.cuts.clone(),
            transform: None,
            storage: Storage::Raw,
            decoder: None,
            indexes: indexer.indexes,
            state: indexer.cell,
            interner: Mutex::default(),
            packer: None,
        };
        Self::over(Arc::new(source), sink, Scope::CLUSTER, Arc::new(intake), config, Arc::default())
    }

    pub(crate) fn over(
        source: Arc<dyn ListWatch>,
        sink: Arc<dyn Sink>,
        scope: Scope,
        intake: Arc<Intake>,
        config: ReflectorConfig,
        status: Arc<StatusCell>,
    ) -> Self {
        Self { source, sink, scope, intake, config: config.bounded(), status }
    }

    /// How things stand now.
    pub fn status(&self) -> ReflectorStatus {
        self.status.get(&self.scope)
    }

    /// Lists and watches, for ever.
    ///
    /// # Cancel safety
    /// Stops at once when dropped, at any point, and leaves nothing behind. Run again, it begins with a list.
    pub async fn run(&self) {
        let span = info_span!("reflector", kind = %self.intake.kind, scope = %self.scope);
        let _stopped = Stopped(&self.status);
        async {
            let mut panics = 0;
            loop {
                let Err(panic) = AssertUnwindSafe(self.run_loop()).catch_unwind().await;
                // The source is the user's, or there is a bug: neither may end in silence.
                let error = SourceError::transport("a panic", panic_text(panic));
                let wait = self.config.backoff.cap;
                self.status.update(|status| status.phase = Phase::Waiting);
                let since = self.status().failing_since;
                panics = since.map_or(0, |_| panics) + 1;
                let failing = Failing { since: since.or_else(|| Some(Instant::now())), failures: panics };
                self.report("list or watch", &error, wait, failing);
                tokio::time::sleep(wait).await;
            }
        }
        .instrument(span)
        .await;
    }

    /// Ends the wait before the next attempt, if there is one.
    pub fn retry_now(&self) {
        self.status.retry_now.notify_waiters();
    }

    async fn run_loop(&self) -> Infallible {
        let mut machine = Machine::new(&self.config).having_seen(self.status().version);
        loop {
            let step = machine.step();
            debug!(scope = %self.scope, ?step, version = ?machine.version(), "next");
            machine.begin(Instant::now(), |version| self.count_at(version));
            let outcome = match step {
                Step::List { limit } => self.list(&mut machine, limit).await,
                Step::Stream => self.stream(&mut machine).await,
                Step::Watch => self.watch(&mut machine).await,
            };
            let now = Instant::now();
            let polled = machine.polling();
            let unverified = machine.unverified();
            let wait = machine.on(&outcome, now);
            debug!(scope = %self.scope, ?outcome, ?wait, "done");
            self.status.update(|status| {
                status.mode = machine.mode();
                status.polling = machine.polling();
                status.phase = Phase::Waiting;
                status.version = machine.version().cloned();
                status.doubted(machine.doubted_since());
            });
            let failing = Failing::from(machine.failing());
            if let Some(error) = outcome.failure() {
                // The watch goes on after a comparison that failed, so only the comparison does.
                let compared = machine.unverified() > unverified;
                let failing =
                    if compared { Failing { since: None, failures: machine.unverified() } } else { failing };
                let doing = match (step, &outcome) {
                    _ if compared => "comparison",
                    (Step::List { .. }, _) => "list",
                    // After its end bookmark a streaming list is a watch.
                    (Step::Stream, Outcome::Failed(_) | Outcome::NotBegun(_)) => "streaming list",
                    _ => "watch",
                };
                self.report(doing, error, wait, failing);
            } else if let Outcome::ListedOlder = outcome {
                let older = SourceError::transport("the list cannot be used", "it is older than the cache");
                self.report("list", &older, wait, failing);
            } else if let Outcome::Ended(_) = outcome
                && failing.since.is_some()
            {
                // A watch that ends and brings nothing has no error of its own.
                let closed = SourceError::transport("the server closed it", "it brought nothing");
                self.report("watch", &closed, wait, failing);
            }
            if machine.polling() && !polled {
                warn!(kind = %self.intake.kind, "watches fail: polling by lists, with an attempt to watch after each");
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.status.retry_now.notified() => {}
            }
        }
    }

    /// Notes that the watch is healthy.
    fn watch_works(&self, machine: &mut Machine) {
        machine.prove();
        self.works("watch", machine);
    }

    /// Notes that a request works again after failures, if there were any.
    fn works(&self, doing: &str, machine: &mut Machine) {
        self.status.update(|status| {
            status.polling = machine.polling();
            if !status.polling {
                status.recovered();
            }
        });
        if let Some((since, failures)) = machine.recovered() {
            let (kind, scope, failed_for) = (&self.intake.kind, &self.scope, since.elapsed());
            info!(failures, "{doing} of {kind} ({scope}) works again after {failed_for:.1?}");
        }
    }

    fn warn(&self, doing: &str, error: &str, wait: Duration, failures: u32) {
        let (kind, scope) = (&self.intake.kind, &self.scope);
        let next = if wait.is_zero() { "at once".into() } else { format!("in {wait:.1?}") };
        // At growing intervals: the first failure, the second, the fourth, the eighth.
        if failures.is_power_of_two() {
            warn!(failures, "{doing} of {kind} ({scope}) failed: {error}; retrying {next}");
        } else {
            debug!(failures, "{doing} of {kind} ({scope}) failed: {error}; retrying {next}");
        }
    }

    fn report(&self, doing: &'static str, error: &SourceError, wait: Duration, failing: Failing) {
        let mut text = error.with_cause();
        if error.is_not_found() {
            text.push_str(" (the server does not have this kind, or not in this version)");
        }
        if failing.failures > 0 {
            self.warn(doing, &text, wait, failing.failures);
        } else {
            // A healthy watch that is resumed at once.
            debug!(error = text, ?wait, "{doing} ended");
        }
        self.status.update(|status| {
            status.counts.errors += 1;
            status.last_error = Some(text);
            status.last_error_code = error.code();
            status.refused(error.code(), Instant::now());
            status.last_error_at = Some(Instant::now());
            status.failing_since = failing.since.or(status.failing_since);
        });
        if let Some(hook) = &self.config.on_error {
            let error = ReflectorError {
                kind: self.intake.kind.to_string(),
                scope: self.scope.clone(),
                doing,
                error,
                retry_in: wait,
            };
            // The hook is the user's: whatever it does, the reflector goes on.
            let call = AssertUnwindSafe(|| hook(&error));
            if let Err(panic) = std::panic::catch_unwind(call) {
                let panic = panic_text(panic);
                warn!(panic, "the error hook panicked");
            }
        }
    }
}

/// For how long, and how often in a row, attempts have failed.
#[derive(Clone, Copy)]
struct Failing {
    /// Since when there is neither a list nor a watch.
    since: Option<Instant>,
    failures: u32,
}

impl From<Option<(Instant, u32)>> for Failing {
    fn from(failing: Option<(Instant, u32)>) -> Self {
        Self { since: failing.map(|(since, _)| since), failures: failing.map_or(0, |(_, failures)| failures) }
    }
}

/// Says that a reflector does not run any more, however it came to its end.
struct Stopped<'a>(&'a StatusCell);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.update(|status| {
            if status.phase == Phase::Watching && status.current_at.is_some() {
                status.current_at = Some(Instant::now());
            }
            status.phase = Phase::Stopped;
        });
    }
}

impl std::fmt::Debug for Reflector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reflector")
            .field("kind", &self.intake.kind)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
