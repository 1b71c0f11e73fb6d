//! Counters: how many requests of which kind, how many bytes, how many open watches.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::body::{Body, BoxError};
use crate::request::{RequestInfo, Verb};

/// What a server was asked so far. Requests that a fault refused, or never answered, are counted as well.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// By resource: `pods`, `deployments.apps`. Requests that name no resource stand under `""`.
    pub resources: BTreeMap<String, ResourceStats>,
    /// Watches that are open now, streaming lists included.
    pub open_watches: u64,
}

/// What a server has done for one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceStats {
    /// Reads of one object; for `""` all requests.
    pub gets: u64,
    /// Lists, each page counted, except exact ones.
    pub lists: u64,
    /// Lists at an exact version (`resourceVersionMatch=Exact`), by which informers check that the server was not restored.
    pub exact_lists: u64,
    /// Watches, without streaming lists.
    pub watches: u64,
    /// Watches that began with the state (`sendInitialEvents`).
    pub streaming_lists: u64,
    /// Creations, refused ones included, as in all these counts.
    pub creates: u64,
    /// Replacements.
    pub updates: u64,
    /// Patches.
    pub patches: u64,
    /// Deletions of one object.
    pub deletes: u64,
    /// Deletions of many objects.
    pub delete_collections: u64,
    /// Bytes of all answers, without headers.
    pub bytes_out: u64,
}

impl Stats {
    /// All resources taken together.
    pub fn total(&self) -> ResourceStats {
        let mut total = ResourceStats::default();
        for stats in self.resources.values() {
            total.gets += stats.gets;
            total.lists += stats.lists;
            total.exact_lists += stats.exact_lists;
            total.watches += stats.watches;
            total.streaming_lists += stats.streaming_lists;
            total.creates += stats.creates;
            total.updates += stats.updates;
            total.patches += stats.patches;
            total.deletes += stats.deletes;
            total.delete_collections += stats.delete_collections;
            total.bytes_out += stats.bytes_out;
        }
        total
    }

    /// One resource (`pods`, `deployments.apps`); zeros if nobody asked for it.
    pub fn resource(&self, resource: &str) -> ResourceStats {
        self.resources.get(resource).cloned().unwrap_or_default()
    }
}

/// A body whose bytes are counted as they are sent.
pub(crate) struct Counted {
    body: Body,
    counters: Arc<Resource>,
}

impl Counted {
    pub(crate) fn new(body: Body, counters: Arc<Resource>) -> Self {
        Self { body, counters }
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.counters.sent(frame.data_ref().map_or(0, Bytes::len));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    resources: Mutex<BTreeMap<String, Arc<Resource>>>,
    open_watches: AtomicU64,
}

/// One resource's counters.
#[derive(Debug, Default)]
pub(crate) struct Resource {
    verbs: [AtomicU64; 8],
    streaming_lists: AtomicU64,
    exact_lists: AtomicU64,
    bytes_out: AtomicU64,
}

impl Counters {
    /// Counts a request; `resource` must be one that exists, or `""`, so that the map stays small.
    pub(crate) fn request(&self, resource: &str, info: &RequestInfo) -> Arc<Resource> {
        let counters = {
            let mut resources = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
            match resources.get(resource) {
                Some(counters) => counters.clone(),
                None => resources.entry(resource.to_owned()).or_default().clone(),
            }
        };
        if info.is_streaming_list() {
            counters.streaming_lists.fetch_add(1, Ordering::Relaxed);
        } else if info.is_exact_list() {
            counters.exact_lists.fetch_add(1, Ordering::Relaxed);
        } else {
            let verb = info.verb.unwrap_or(Verb::Get);
            counters.verbs[verb as usize].fetch_add(1, Ordering::Relaxed);
        }
        counters
    }

    pub(crate) fn watch_opened(&self) {
        self.open_watches.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn watch_closed(&self) {
        self.open_watches.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> Stats {
        let resources = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        let resources = resources.iter().map(|(name, counters)| (name.clone(), counters.stats())).collect();
        Stats { resources, open_watches: self.open_watches.load(Ordering::Relaxed) }
    }
}

impl Resource {
    fn sent(&self, bytes: usize) {
        self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn stats(&self) -> ResourceStats {
        let count = |verb: Verb| self.verbs[verb as usize].load(Ordering::Relaxed);
        ResourceStats {
            gets: count(Verb::Get),
            lists: count(Verb::List),
            exact_lists: self.exact_lists.load(Ordering::Relaxed),
            watches: count(Verb::Watch),
            streaming_lists: self.streaming_lists.load(Ordering::Relaxed),
            creates: count(Verb::Create),
            updates: count(Verb::Update),
            patches: count(Verb::Patch),
            deletes: count(Verb::Delete),
            delete_collections: count(Verb::DeleteCollection),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
        }
    }
}
