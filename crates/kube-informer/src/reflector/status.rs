//! How a reflector is doing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube_wire::ResourceVersion;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::delta_fifo::Scope;
use crate::object::Wire;
use crate::planted::{Bug, planted};

/// How things stand between a reflector and the server.
#[derive(Debug, Clone)]
pub struct ReflectorStatus {
    /// The part of the cache this is about.
    pub scope: Scope,
    /// What it is doing.
    pub phase: Phase,
    /// How it gets its lists, and why.
    pub mode: Mode,
    /// The format of the server's last answer.
    pub wire: Option<Wire>,
    /// The newest version it has passed on.
    pub version: Option<ResourceVersion>,
    /// Whether watches fail while lists work: then the cache is brought up to date by lists, with growing pauses, and each
    /// list is followed by an attempt to watch.
    pub polling: bool,
    /// When the server last sent something.
    pub last_contact: Option<Instant>,
    /// Since when every attempt has failed; `None` once a list or watch works again.
    pub failing_since: Option<Instant>,
    /// Since when the cache should be compared with the server, because it may have been restored or because
    /// [`verify_every`](super::ReflectorConfig::verify_every) asks for it, and the lists for that fail.
    pub doubted_since: Option<Instant>,
    /// The last failure; `None` once a list or watch works again and no comparison is due.
    pub last_error: Option<String>,
    /// Its HTTP code, if it was an answer of the server.
    pub last_error_code: Option<u16>,
    /// When it happened.
    pub last_error_at: Option<Instant>,
    /// Since when the server has answered that it does not have the kind (404), if it has done so at least twice. An answer that
    /// shows the kind or refuses it ends that; a busy server does not.
    pub missing_since: Option<Instant>,
    /// How much later its last such answer came.
    pub(crate) missing_for: Duration,
    /// For how long the cache may have missed changes: zero while a watch is open, `None` before the first list.
    pub staleness: Option<Duration>,
    /// What has happened so far.
    pub counts: ReflectorCounts,
}

impl ReflectorStatus {
    /// Says why the cache is stale, if it is for longer than `limit`.
    pub(crate) fn stale_for(&self, limit: Duration) -> Option<String> {
        let error = self.last_error.as_deref().unwrap_or("no error so far");
        match self.staleness {
            _ if self.phase == Phase::Stopped && !planted(Bug::StoppedIsHealthy) => {
                Some(format!("{} is not watched, because the informer does not run", self.scope))
            }
            None => Some(format!("{} has not been listed ({error})", self.scope)),
            Some(staleness) if staleness > limit => {
                Some(format!("{} is stale for {staleness:.0?} ({error})", self.scope))
            }
            Some(_) if self.doubted_since.is_some_and(|since| since.elapsed() > limit) => Some(format!(
                "{} cannot be compared with the server, which may have been restored ({error})",
                self.scope
            )),
            Some(_) => None,
        }
    }
}

/// What a reflector is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// It does not run.
    #[default]
    Stopped,
    /// It reads a list, page by page.
    Listing,
    /// It reads a list as a stream of events.
    Streaming,
    /// It has asked for a watch, and the server has not answered yet.
    Connecting,
    /// A watch is open.
    Watching,
    /// It waits before the next attempt.
    Waiting,
}

/// How a reflector gets its lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// As a stream of events.
    #[default]
    Streaming,
    /// In pages, for this reason.
    Paged(&'static str),
}

/// What a reflector has done and met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReflectorCounts {
    /// Lists begun, pages not counted.
    pub lists: u64,
    /// Pages of lists asked for.
    pub pages: u64,
    /// Streaming lists begun.
    pub streams: u64,
    /// Watches begun, streaming lists not counted.
    pub watches: u64,
    /// Objects taken in by lists and streaming lists.
    pub items: u64,
    /// Events about objects.
    pub events: u64,
    /// Bookmarks.
    pub bookmarks: u64,
    /// Failures to list or watch.
    pub errors: u64,
    /// Watches that were taken for dead because they were silent too long.
    pub silences: u64,
    /// Times that the server had forgotten our version.
    pub expired: u64,
    /// Objects that could not be read.
    pub set_aside: u64,
    /// Objects of another kind than was asked for.
    pub wrong_kind: u64,
    /// Events of a type that is not known.
    pub unknown_events: u64,
    /// Lists that showed that the cluster was restored from a backup.
    pub restores: u64,
    /// Checks, after a lost connection, that the server still has the history that the cache was read from.
    pub checks: u64,
    /// Comparisons with the server, by a list: because it was time, or because a connection was lost or silent.
    pub verifications: u64,
    /// Bytes received.
    pub bytes: u64,
}

/// A status that one writes and many read.
#[derive(Debug, Default)]
pub(crate) struct StatusCell {
    inner: Mutex<Inner>,
    /// Ends the wait before the next attempt.
    pub(crate) retry_now: Notify,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Inner {
    pub(crate) phase: Phase,
    pub(crate) mode: Mode,
    pub(crate) wire: Option<Wire>,
    pub(crate) version: Option<ResourceVersion>,
    pub(crate) polling: bool,
    pub(crate) last_contact: Option<Instant>,
    /// When the cache was last known to be up to date.
    pub(crate) current_at: Option<Instant>,
    pub(crate) failing_since: Option<Instant>,
    pub(crate) doubted_since: Option<Instant>,
    pub(crate) last_error: Option<String>,
    pub(crate) last_error_code: Option<u16>,
    pub(crate) last_error_at: Option<Instant>,
    pub(crate) missing: Option<Missing>,
    pub(crate) counts: ReflectorCounts,
}

/// The server has answered that it does not have the kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Missing {
    first: Instant,
    last: Instant,
    answers: u32,
}

impl Inner {
    /// The server has begun to show the kind.
    pub(crate) fn shown(&mut self, wire: Wire) {
        self.wire = Some(wire);
        self.missing = None;
    }

    /// A list or watch failed.
    pub(crate) fn refused(&mut self, code: Option<u16>, now: Instant) {
        self.missing = match code {
            Some(404) => {
                let before = self.missing.unwrap_or(Missing { first: now, last: now, answers: 0 });
                Some(Missing { last: now, answers: before.answers.saturating_add(1), ..before })
            }
            // It could not say what it has.
            None | Some(401 | 408 | 429 | 502..=504) if !planted(Bug::BusyEndsAbsence) => self.missing,
            None | Some(_) => None,
        };
    }

    /// A list or watch works again.
    pub(crate) fn recovered(&mut self) {
        self.failing_since = None;
        self.doubted(self.doubted_since);
    }

    /// Since when a comparison is due. As long as it is, the last error says why there is none.
    pub(crate) fn doubted(&mut self, since: Option<Instant>) {
        self.doubted_since = since;
        let explains = since.is_some() && !planted(Bug::ComparisonErrorForgotten);
        if self.failing_since.is_none() && !explains {
            self.last_error = None;
            self.last_error_code = None;
            self.last_error_at = None;
        }
    }
}

impl StatusCell {
    pub(crate) fn update(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn get(&self, scope: &Scope) -> ReflectorStatus {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let staleness = match inner.phase {
            Phase::Watching => inner.current_at.map(|_| Duration::ZERO),
            _ => inner.current_at.map(|at| at.elapsed()),
        };
        let missing = inner.missing.filter(|missing| missing.answers > 1);
        ReflectorStatus {
            scope: scope.clone(),
            phase: inner.phase,
            mode: inner.mode,
            wire: inner.wire,
            version: inner.version,
            polling: inner.polling,
            last_contact: inner.last_contact,
            failing_since: inner.failing_since,
            doubted_since: inner.doubted_since,
            staleness,
            last_error: inner.last_error,
            last_error_code: inner.last_error_code,
            last_error_at: inner.last_error_at,
            missing_since: missing.map(|missing| missing.first),
            missing_for: missing.map_or(Duration::ZERO, |missing| missing.last - missing.first),
            counts: inner.counts,
        }
    }
}
