//! Settings of a reflector.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube_wire::FieldPath;

use crate::backoff::BackoffConfig;
use crate::delta_fifo::Scope;
use crate::source::SourceError;

/// Longer than any program runs, and short enough to be added to a moment.
pub(crate) const NEVER: Duration = Duration::from_hours(24 * 365 * 10);

/// Is told of every failure to list or watch, and when it will be tried again.
pub type ErrorHook = Arc<dyn Fn(&ReflectorError<'_>) + Send + Sync>;

/// How a reflector goes about its work. The defaults suit a cluster.
#[derive(Clone)]
pub struct ReflectorConfig {
    /// Asks for the first objects as a stream of events, where the server can do it; otherwise, and if it turns out that it
    /// cannot, as a list in pages. On by default.
    pub streaming_lists: bool,
    /// How many objects a page of a list has. `None` asks for all at once. 500 by default.
    pub page_size: Option<u32>,
    /// Takes whatever state the server has at hand for the first list, which may be old, to spare the server. Off by default:
    /// the first list is consistent.
    pub stale_first_list: bool,
    /// Lists every so often and compares, to make sure that the cache is what the server has. Off by default, because it
    /// costs a list each time; zero is off, and the shortest period is one second.
    pub verify_every: Option<Duration>,
    /// Ends a watch that was silent for this long and resumes it. Off by default, because it costs requests: one watch and one
    /// check of the version each time, on a kind that is quieter than this; and about one list an hour, if it is shorter than the time
    /// between two bookmarks. Needed only with a client that cannot notice a
    /// half-open connection by itself: one made by [`client_for_informers`](crate::source::client_for_informers) can.
    pub silence_limit: Option<Duration>,
    /// The waits between tries.
    pub backoff: BackoffConfig,
    /// How long a watch is asked to last: a time drawn from this and twice this. Five minutes by default.
    pub watch_timeout: Duration,
    /// How long an answer may take to begin, and how long a list may pause. One minute by default.
    pub request_deadline: Duration,
    /// How long a streaming list may be silent before its end bookmark. 15 seconds by default.
    pub stream_silence: Duration,
    /// How long a streaming list may take in all. Five minutes by default.
    pub stream_deadline: Duration,
    /// Fields that are dropped on arrival. `.metadata.managedFields` by default.
    pub cuts: Vec<FieldPath>,
    /// Is told of every failure.
    pub on_error: Option<ErrorHook>,
    /// Where randomness starts. `None` draws it.
    pub seed: Option<u64>,
}

impl Default for ReflectorConfig {
    fn default() -> Self {
        Self {
            streaming_lists: true,
            page_size: Some(500),
            stale_first_list: false,
            verify_every: None,
            silence_limit: None,
            backoff: BackoffConfig::default(),
            watch_timeout: Duration::from_mins(5),
            request_deadline: Duration::from_mins(1),
            stream_silence: Duration::from_secs(15),
            stream_deadline: Duration::from_mins(5),
            cuts: vec![FieldPath::of_fields(["metadata", "managedFields"])],
            on_error: None,
            seed: None,
        }
    }
}

impl ReflectorConfig {
    /// The same within bounds that can be calculated with: `Duration::MAX` is a way to say never.
    pub(crate) fn bounded(mut self) -> Self {
        for time in [
            &mut self.backoff.floor,
            &mut self.backoff.cap,
            &mut self.backoff.healthy_after,
            &mut self.watch_timeout,
            &mut self.stream_silence,
            &mut self.stream_deadline,
        ] {
            *time = (*time).min(NEVER);
        }
        let shortest = Duration::from_secs(1);
        for time in [&mut self.verify_every, &mut self.silence_limit] {
            *time = time.filter(|time| !time.is_zero()).map(|time| time.clamp(shortest, NEVER));
        }
        // Not a number becomes the lower bound.
        self.backoff.jitter = self.backoff.jitter.max(0.0).clamp(0.0, 1.0);
        self.backoff.factor = self.backoff.factor.max(1.0);
        self
    }
}

impl fmt::Debug for ReflectorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReflectorConfig")
            .field("streaming_lists", &self.streaming_lists)
            .field("page_size", &self.page_size)
            .field("verify_every", &self.verify_every)
            .finish_non_exhaustive()
    }
}

/// A failure to list or watch. The reflector goes on by itself.
#[derive(Debug, thiserror::Error)]
#[error("{doing} of {kind} ({scope}) failed: {}; retrying in {retry_in:.1?}", error.with_cause())]
pub struct ReflectorError<'a> {
    /// The kind, as `apiVersion kind`.
    pub kind: String,
    /// Where.
    pub scope: Scope,
    /// The request: `list`, `streaming list` or `watch`; after a panic, `list or watch`.
    pub doing: &'static str,
    /// What went wrong.
    pub error: &'a SourceError,
    /// When it will be tried again.
    pub retry_in: Duration,
}
