//! Talks to the server for one kind: list, then watch from that version; resumes, relists, waits.
//!
//! Fed by a [`source`](crate::source), feeds a [`DeltaFifo`](crate::delta_fifo::DeltaFifo) or any other [`Sink`]. What to do
//! next is decided by a pure state machine (`machine`); the code here carries it out.

mod collected;
mod config;
mod list;
mod machine;
mod parts;
mod status;
mod watch;

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use kube_wire::ResourceVersion;
use tokio::time::Instant;
use tracing::{Instrument, debug, info_span};

use crate::delta_fifo::{Delta, Scope};
use crate::intake::{Intake, panic_text};
use crate::object::{Kind, Storage};
use crate::source::{ListWatch, SourceError};
use crate::{Indexer, SetAside};

pub(crate) use config::NEVER;
pub use config::{ErrorHook, ReflectorConfig, ReflectorError};
use machine::{Machine, Step};
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
    /// Whether an object whose uid and version are known is known. Not so after the cluster was restored from a backup.
    pub trusted: bool,
    /// If this list is a comparison with the server: the version up to which the cache should have been right.
    pub verifies: Option<ResourceVersion>,
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
            loop {
                let Err(panic) = AssertUnwindSafe(self.run_loop()).catch_unwind().await;
                // The source is the user's, or there is a bug: neither may end in silence.
                let error = SourceError::transport("a panic", panic_text(panic));
                let wait = self.config.backoff.cap;
                self.status.update(|status| status.phase = Phase::Waiting);
                self.report("listing or watching", &error, wait);
                tokio::time::sleep(wait).await;
            }
        }
        .instrument(span)
        .await;
    }

    async fn run_loop(&self) -> Infallible {
        let mut machine = Machine::new(&self.config).having_seen(self.status().version);
        loop {
            let step = machine.step();
            debug!(?step, version = ?machine.version(), "next");
            let outcome = match step {
                Step::List { limit } => self.list(&mut machine, limit).await,
                Step::Stream => self.stream(&mut machine).await,
                Step::Watch => self.watch(&mut machine).await,
            };
            let failure = outcome.failure();
            let wait = machine.on(&outcome);
            self.status.update(|status| {
                status.mode = machine.mode();
                status.phase = Phase::Waiting;
                status.version = machine.version().cloned();
            });
            if let Some(error) = failure {
                let doing = match step {
                    Step::List { .. } => "listing",
                    Step::Stream => "streaming",
                    Step::Watch => "watching",
                };
                self.report(doing, error, wait);
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn report(&self, doing: &'static str, error: &SourceError, wait: std::time::Duration) {
        debug!(error = error.with_cause(), ?wait, "failed");
        self.status.update(|status| {
            status.counts.errors += 1;
            status.last_error = Some(error.with_cause());
            status.last_error_code = error.code();
            status.last_error_at = Some(Instant::now());
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
                tracing::warn!(panic, "the error hook panicked");
            }
        }
    }
}

/// Says that a reflector does not run any more, however it came to its end.
struct Stopped<'a>(&'a StatusCell);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.update(|status| status.phase = Phase::Stopped);
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
