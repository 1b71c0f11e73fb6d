//! How the sources of a controller are doing, and whether it may act on them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join_all, select_all};
use tokio::time::Instant;

use super::error::ControllerError;
use super::trigger::Running;

/// How long the server must answer 404 before an optional kind counts as absent, and how long a start may take in silence.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How often a source that is not ready is looked at again. This costs no request.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The longest time between two warnings about a start that waits.
const WARN_EVERY: Duration = Duration::from_mins(5);

/// One source of keys: a kind, or a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStats {
    /// The kind, or the name of the stream.
    pub name: String,
    /// How it is doing.
    pub state: SourceState,
    /// How often its mapping to keys panicked.
    pub panics: u64,
}

/// How a source of keys is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceState {
    /// The source was not read completely yet. No key is reconciled meanwhile.
    Waiting {
        /// The reason, with the server's last error.
        why: String,
    },
    /// The source was read completely. It stays ready during an outage: [`SharedInformer::health`](crate::SharedInformer::health) tells
    /// whether it is stale.
    Ready,
    /// The kind is optional, and the server does not have it.
    Absent,
    /// The stream has delivered its last key.
    Ended,
}

impl fmt::Display for SourceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, state, .. } = self;
        match state {
            SourceState::Waiting { why } => write!(f, "{name} ({why})"),
            SourceState::Ready => write!(f, "{name} (ready)"),
            SourceState::Absent => write!(f, "{name} (absent)"),
            SourceState::Ended => write!(f, "{name} (ended)"),
        }
    }
}

/// The stats of one source, written by the source and read through the controller's handle.
#[derive(Debug)]
pub(super) struct SourceCell {
    pub(super) name: String,
    state: Mutex<SourceState>,
    panics: AtomicU64,
}

impl SourceCell {
    pub(super) fn new(name: String) -> Arc<Self> {
        let state = SourceState::Waiting { why: "the controller does not run".into() };
        Arc::new(Self { name, state: Mutex::new(state), panics: AtomicU64::new(0) })
    }

    pub(super) fn set(&self, state: SourceState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    pub(super) fn state(&self) -> SourceState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a panic and says whether it is the first.
    pub(super) fn panicked(&self) -> bool {
        self.panics.fetch_add(1, Ordering::Relaxed) == 0
    }

    pub(super) fn stats(&self) -> SourceStats {
        let panics = self.panics.load(Ordering::Relaxed);
        SourceStats { name: self.name.clone(), state: self.state(), panics }
    }
}

/// Waits until every source was read completely, or is optional and absent.
///
/// A kind that the server refuses to show is waited for: acting on a partial cache is unsafe.
pub(super) async fn all_read(sources: &[Running], limit: Option<Duration>) -> Result<(), ControllerError> {
    let begun = Instant::now();
    let mut warn_after = PATIENCE;
    loop {
        let waited = begun.elapsed();
        let waiting = waiting(sources);
        if waiting.is_empty() {
            return Ok(());
        }
        if let Some(limit) = limit.filter(|limit| waited >= *limit) {
            return Err(ControllerError::NotStarted { limit, sources: waiting });
        }
        if waited >= warn_after {
            for SourceStats { name, state, .. } in &waiting {
                let SourceState::Waiting { why } = state else { continue };
                tracing::warn!(
                    kind = name,
                    why,
                    ?waited,
                    "the controller waits for a kind that was not read yet"
                );
            }
            warn_after = waited + waited.min(WARN_EVERY);
        }
        let look = limit.map_or(LOOK_EVERY, |limit| LOOK_EVERY.min(limit.saturating_sub(waited)));
        tokio::select! {
            // A source that has synced does not wait for a namespace that was added later: only the timer looks for it.
            _ = join_all(sources.iter().map(Running::synced)), if !sources.iter().all(Running::has_synced) => {}
            () = tokio::time::sleep(look) => {}
        }
    }
}

/// Waits until every source may be acted on, which is at once while nothing changes.
pub(super) async fn all_current(sources: &[Running]) {
    while !sources.iter().all(Running::is_current) {
        // Before the second look, so that no change falls between the two.
        let changed = select_all(sources.iter().map(Running::parts_changed));
        if sources.iter().all(Running::is_current) {
            return;
        }
        tokio::select! {
            _ = changed => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// Says when workers wait because a source has a part that was not read yet, and when they continue: an optional kind that has
/// appeared, a namespace that was added, an informer that was started again. Never returns.
pub(super) async fn report_unread(sources: &[Running]) {
    let mut reported = false;
    loop {
        // Before the look, so that no change falls between the two.
        let changed = select_all(sources.iter().map(Running::parts_changed));
        let waiting = waiting(sources);
        if reported == waiting.is_empty() {
            reported = !reported;
            if reported {
                let kinds = waiting.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                tracing::warn!(kinds, "workers pause until these kinds were read completely");
            } else {
                tracing::info!("every kind was read completely; workers continue");
            }
        }
        // The appearance of a kind changes nothing but the status of its informer.
        let look = async {
            if !sources.iter().any(|source| source.is_unread()) {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        tokio::select! {
            _ = changed => {}
            () = look => {}
        }
    }
}

/// Waits until a source fails for good, and says how.
pub(super) async fn first_failure(sources: &[Running]) -> ControllerError {
    select_all(sources.iter().map(|source| source.failure().boxed())).await.0
}

/// Looks at every source and gives those that must be waited for.
fn waiting(sources: &[Running]) -> Vec<SourceStats> {
    sources.iter().filter_map(Running::look).collect()
}
