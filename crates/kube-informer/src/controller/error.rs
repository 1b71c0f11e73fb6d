//! Why a controller ended.

use std::fmt::Display;
use std::time::Duration;

use super::source::SourceStats;
use crate::ObjectKey;

/// Why [`run`](super::Controller::run) ended with an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// Reconciles did not end within the shutdown limit. They were ended at the await that they had reached.
    #[error("these keys were still in work and were ended: {}", join(keys))]
    StillRunning {
        /// The keys.
        keys: Vec<ObjectKey>,
    },
    /// The sources were not read completely within [`start_limit`](super::Controller::start_limit). No key was reconciled.
    #[error("the controller could not start within {limit:?}: {}", join(sources))]
    NotStarted {
        /// The limit.
        limit: Duration,
        /// The sources that it still waited for.
        sources: Vec<SourceStats>,
    },
    /// An informer was stopped, or its factory was shut down, so its cache no longer follows the server.
    #[error("the informer of {name} was stopped; its cache no longer follows the server")]
    SourceStopped {
        /// The kind.
        name: String,
    },
    /// A stream of keys panicked, so its keys are lost from now on.
    #[error("the stream {name} panicked: {panic}")]
    StreamPanicked {
        /// The name that it was given.
        name: String,
        /// The message of the panic.
        panic: String,
    },
    /// A worker ended before the controller did.
    #[error("a worker died: {why}")]
    WorkerDied {
        /// The message of its panic.
        why: String,
    },
}

fn join<T: Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
