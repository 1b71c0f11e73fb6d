//! What all requests share: storage, clock, randomness, configuration, counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::Semaphore;

use crate::background::Background;
use crate::clock::Clock;
use crate::counters::Counters;
use crate::kinds::Kind;
use crate::request::RequestInfo;
use crate::storage::{HistoryLimits, Store};

/// What can be set when the server is built.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) history: HistoryLimits,
    pub(crate) garbage_collection: bool,
    pub(crate) max_body: usize,
    pub(crate) max_header: usize,
    pub(crate) max_requests: usize,
    pub(crate) bookmark_every: Duration,
    pub(crate) allow_remote: bool,
    /// Hosts that a server on a socket answers for beside the loopback ones.
    pub(crate) hosts: Vec<String>,
}

/// The server without its fault layer.
#[derive(Debug)]
pub(crate) struct Core {
    store: Mutex<Store>,
    random: Mutex<fastrand::Rng>,
    pub(crate) clock: Clock,
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    pub(crate) in_flight: Arc<Semaphore>,
    pub(crate) background: Background,
    watchers: AtomicU64,
}

/// A request for a resource, ready to be answered.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) info: RequestInfo,
    pub(crate) kind: Arc<Kind>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Reads that need not be fresh are answered as of this revision: the server plays a replica that lags.
    pub(crate) at_most: Option<u64>,
    /// Whether a watch that begins with the state says where that ends, as newer servers do.
    pub(crate) tells_end_of_state: bool,
}

impl Core {
    pub(crate) fn new(config: Config, clock: Clock, seed: u64) -> Self {
        Self {
            store: Mutex::new(Store::new(config.history)),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            clock,
            counters: Counters::default(),
            in_flight: Arc::new(Semaphore::new(config.max_requests)),
            background: Background::default(),
            watchers: AtomicU64::new(0),
            config,
        }
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        // Nothing panics while it holds the lock; if something did, a test should see its own failure, not this one.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn random<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A new uid: random, of version 4.
    pub(crate) fn uid(&self) -> String {
        let bits = self.random(|random| random.u128(..));
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    pub(crate) fn next_watcher(&self) -> u64 {
        self.watchers.fetch_add(1, Ordering::Relaxed)
    }
}

impl Call {
    /// The object's key in its table.
    pub(crate) fn key(&self) -> String {
        key(&self.kind, self.info.namespace.as_deref(), self.name())
    }

    pub(crate) fn name(&self) -> &str {
        self.info.name.as_deref().unwrap_or("")
    }

    /// Whether this is a request for a subresource.
    pub(crate) fn is_sub(&self, name: &str) -> bool {
        self.info.subresource.as_deref() == Some(name)
    }
}

/// `namespace/name` for what lives in namespaces, `name` for what does not.
pub(crate) fn key(kind: &Kind, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if kind.namespaced => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    }
}
