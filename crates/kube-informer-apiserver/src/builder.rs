//! Setting up a server: time, randomness, history, limits.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::core::{Config, Core};
use crate::defaults;
use crate::faults::Faults;
use crate::kinds;
use crate::object::Object;
use crate::server::ApiServer;
use crate::storage::HistoryLimits;

/// Sets up an [`ApiServer`]. Everything has a default.
#[derive(Debug, Clone)]
pub struct Builder {
    config: Config,
    epoch: Option<Timestamp>,
    seed: u64,
    faults: Option<Faults>,
}

impl Default for Builder {
    fn default() -> Self {
        let history = HistoryLimits { changes: 10_000, age: Duration::from_mins(5) };
        let config = Config {
            history,
            garbage_collection: true,
            max_body: 3 * 1024 * 1024,
            max_header: 1024 * 1024,
            max_requests: 400,
            bookmark_every: Duration::from_mins(1),
            allow_remote: false,
            hosts: Vec::new(),
        };
        Self { config, epoch: None, seed: 0, faults: None }
    }
}

impl Builder {
    /// The time of day at which the server starts; from there it follows tokio's clock. Default: now.
    pub fn epoch(mut self, epoch: Timestamp) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// The seed of uids, generated names and jitter. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How many changes of each kind are remembered, for watches that resume and pages that follow. A watcher that
    /// is further behind than this is closed. Default: 10,000; at least 1.
    pub fn history_len(mut self, changes: usize) -> Self {
        self.config.history.changes = changes.max(1);
        self
    }

    /// For how long changes are remembered, as a cluster that compacts every so often. Default: 5 minutes.
    pub fn history_age(mut self, age: Duration) -> Self {
        self.config.history.age = age;
        self
    }

    /// Whether objects go when their owners do, as a cluster's controller manager sees to. Default: yes.
    pub fn garbage_collection(mut self, on: bool) -> Self {
        self.config.garbage_collection = on;
        self
    }

    /// The largest body of a request, in bytes; a larger one gets 413. Default: 3 MiB.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.config.max_body = bytes;
        self
    }

    /// How many requests, watches aside, are answered at once; one more gets 429. Default: 400.
    pub fn max_requests(mut self, requests: usize) -> Self {
        self.config.max_requests = requests.min(Semaphore::MAX_PERMITS);
        self
    }

    /// How often watches that want bookmarks get one, up to a quarter more. Default: a minute; at least a
    /// millisecond, at most a day.
    pub fn bookmark_every(mut self, period: Duration) -> Self {
        self.config.bookmark_every = period.clamp(Duration::from_millis(1), Duration::from_hours(24));
        self
    }

    /// Lets [`ApiServer::serve`] listen on addresses that other machines can reach. There is no authentication:
    /// whoever reaches the server may do everything.
    pub fn allow_remote(mut self) -> Self {
        self.config.allow_remote = true;
        self
    }

    /// Lets clients address a server on a socket by this host name, beside `localhost`, `127.0.0.1` and `[::1]`; called again,
    /// one more. A request for another host gets 403, so that a web page cannot reach the server under a name of its own.
    ///
    /// A server that listens beyond loopback also answers for every numeric address. Clients in the process are not checked.
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.config.hosts.push(host.into());
        self
    }

    /// What goes wrong on purpose, on every [connection](ApiServer::connect): those of clients in the process and those
    /// over a socket. Keep a clone to inject more and to count. Default: nothing.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = Some(faults);
        self
    }

    /// The server, with the namespaces that every cluster has.
    pub fn build(self) -> ApiServer {
        let clock = Clock::new(self.epoch.unwrap_or_else(Timestamp::now));
        let core = Core::new(self.config, clock, self.seed);
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            add_namespace(&core, name);
        }
        if let Some(faults) = &self.faults {
            faults.start();
        }
        ApiServer { core: Arc::new(core), faults: self.faults }
    }
}

fn add_namespace(core: &Core, name: &str) {
    let kind = kinds::core("namespaces");
    let metadata = json!({ "name": name, "uid": core.uid(), "creationTimestamp": core.clock.timestamp(0) });
    let mut namespace = Object::from_iter([("metadata".to_owned(), metadata)]);
    defaults::prepare_new(kind, &mut namespace);
    core.store().put(kind, &name.into(), &namespace);
}
