//! Where objects come from: anything that can list and watch one kind.
//!
//! Feeds the [`reflector`](crate::reflector). [`KubeSource`] is a cluster, [`ScriptedSource`] a test, and anything else that
//! implements [`ListWatch`] will do.

mod client;
mod connections;
mod error;
mod history;
mod kube;
mod scripted;

use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use kube_wire::ResourceVersion;

use crate::object::Wire;

pub use client::{client_for_informers, client_over};
pub(crate) use error::MAX_CAUSES;
pub use error::SourceError;
pub use history::{CheckRequest, Histories, History, Witness};
pub use kube::KubeSource;
pub(crate) use kube::narrow;
pub use scripted::{Script, ScriptedSource};

/// A source of one kind: one page of a list, one watch.
///
/// Answers are bytes as they come from the wire, so that nothing is decoded that nobody wants. A source that has ready
/// objects makes its answers with [`Answer::list`] and [`Answer::events`].
///
/// # Cancel safety
/// Futures and streams may be dropped at any time; whatever they hold must go with them.
pub trait ListWatch: Send + Sync + 'static {
    /// One page of the list.
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Answer, SourceError>>;

    /// One watch: events from a version on, until either side ends it.
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<Answer, SourceError>>;

    /// Checks, after a lost connection, that the history which a cache was read from is still the server's. A cluster that
    /// was restored from a backup accepts a watch from a version that it has not reached, and sends nothing.
    ///
    /// A source that cannot tell keeps this default.
    fn check(&self, request: CheckRequest) -> BoxFuture<'_, Result<History, SourceError>> {
        let _ = request;
        Box::pin(std::future::ready(Ok(History::Unknown)))
    }
}

/// What is asked of [`ListWatch::list`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListRequest {
    /// `None` asks for the newest state there is (a consistent read), `Some` for a state at least as new as this.
    pub version: Option<ResourceVersion>,
    /// At most so many items; `None` for all at once.
    pub limit: Option<u32>,
    /// Goes on where an earlier page ended.
    pub continue_token: Option<String>,
}

/// What is asked of [`ListWatch::watch`].
#[derive(Debug, Clone, PartialEq)]
pub struct WatchRequest {
    /// The version after which events are wanted; `None` only together with `initial_events`.
    pub version: Option<ResourceVersion>,
    /// A streaming list: everything that exists comes first, as added, and a bookmark marks its end.
    pub initial_events: bool,
    /// How long the server should keep the watch open.
    pub timeout: Duration,
}

/// An answer: which wire format it is in, and its bytes as they come.
pub struct Answer {
    /// The format of the bytes.
    pub wire: Wire,
    /// The bytes, in chunks of any size.
    pub body: BoxStream<'static, Result<Bytes, SourceError>>,
}

impl Answer {
    /// An answer of ready JSON text.
    pub fn json(text: impl Into<Bytes>) -> Self {
        let chunk = Ok(text.into());
        Self { wire: Wire::Json, body: futures_util::stream::once(async { chunk }).boxed() }
    }

    /// A list of ready objects at a version.
    pub fn list(version: &ResourceVersion, items: impl IntoIterator<Item = serde_json::Value>) -> Self {
        let items: Vec<serde_json::Value> = items.into_iter().collect();
        let list = serde_json::json!({"metadata": {"resourceVersion": version.to_string()}, "items": items});
        Self::json(list.to_string())
    }

    /// A watch of ready events: the type as on the wire (`ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK`) and the object.
    pub fn events<S>(events: S) -> Self
    where
        S: futures_core::Stream<Item = (&'static str, serde_json::Value)> + Send + 'static,
    {
        let lines = events.map(|(kind, object)| {
            let mut line = serde_json::json!({"type": kind, "object": object}).to_string();
            line.push('\n');
            Ok(Bytes::from(line))
        });
        Self { wire: Wire::Json, body: lines.boxed() }
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("wire", &self.wire).finish_non_exhaustive()
    }
}
