//! How a reflector is doing, for whoever asks.

use std::sync::{Mutex, PoisonError};

use kube_wire::ResourceVersion;
use tokio::time::Instant;

use crate::delta_fifo::Scope;
use crate::object::Wire;

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
    /// When the server was last heard of.
    pub last_contact: Option<Instant>,
    /// What last went wrong.
    pub last_error: Option<String>,
    /// The HTTP code of it, if it was an answer of the server.
    pub last_error_code: Option<u16>,
    /// When it went wrong.
    pub last_error_at: Option<Instant>,
    /// What has happened so far.
    pub counts: ReflectorCounts,
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
    /// It watches.
    Watching,
    /// It waits before the next try.
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
    /// Comparisons with the server because it was time.
    pub verifications: u64,
    /// Bytes received.
    pub bytes: u64,
}

/// A status that one writes and many read.
#[derive(Debug, Default)]
pub(crate) struct StatusCell(Mutex<Inner>);

#[derive(Debug, Clone, Default)]
pub(crate) struct Inner {
    pub(crate) phase: Phase,
    pub(crate) mode: Mode,
    pub(crate) wire: Option<Wire>,
    pub(crate) version: Option<ResourceVersion>,
    pub(crate) last_contact: Option<Instant>,
    pub(crate) last_error: Option<String>,
    pub(crate) last_error_code: Option<u16>,
    pub(crate) last_error_at: Option<Instant>,
    pub(crate) counts: ReflectorCounts,
}

impl StatusCell {
    pub(crate) fn update(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn get(&self, scope: &Scope) -> ReflectorStatus {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ReflectorStatus {
            scope: scope.clone(),
            phase: inner.phase,
            mode: inner.mode,
            wire: inner.wire,
            version: inner.version,
            last_contact: inner.last_contact,
            last_error: inner.last_error,
            last_error_code: inner.last_error_code,
            last_error_at: inner.last_error_at,
            counts: inner.counts,
        }
    }
}
