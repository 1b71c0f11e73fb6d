//! Plain numbers about every stage of an informer.

use kube_wire::ResourceVersion;

use crate::SetAside;
use crate::delta_fifo::Scope;
use crate::reflector::ReflectorStatus;

pub use crate::processor::HandlerStats;

/// How an informer is doing, stage by stage.
#[derive(Debug, Clone)]
pub struct InformerStats {
    /// The kind, as `apiVersion kind`.
    pub kind: String,
    /// Whether it runs.
    pub running: bool,
    /// Whether the store has had the first list of every scope.
    pub has_synced: bool,
    /// The reflector of each scope.
    pub reflectors: Vec<ReflectorStatus>,
    /// The queue between reflectors and store.
    pub queue: QueueStats,
    /// The store.
    pub store: StoreStats,
    /// Every handler.
    pub handlers: Vec<HandlerStats>,
}

/// The queue between reflectors and store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueStats {
    /// How many keys stand in line.
    pub depth: usize,
    /// How many bytes their objects take.
    pub bytes: usize,
}

/// The store and what was written to it.
#[derive(Debug, Clone)]
pub struct StoreStats {
    /// How many objects it has.
    pub objects: usize,
    /// How many bytes their bodies take.
    pub bytes: usize,
    /// How many dictionaries they are packed with.
    pub dictionaries: usize,
    /// How many bytes the dictionaries take.
    pub dictionary_bytes: usize,
    /// The version of each scope.
    pub versions: Vec<(Scope, ResourceVersion)>,
    /// Each index: its name, how many pairs of value and object it has.
    pub indexes: Vec<(String, usize)>,
    /// Objects that could not be read.
    pub set_aside: Vec<SetAside>,
    /// How many objects an index function failed for: see [`Snapshot::unindexed`](crate::Snapshot::unindexed).
    pub unindexed: usize,
    /// How many batches were written; each became visible in one step.
    pub batches: u64,
    /// How many changes were written.
    pub changes: u64,
    /// How many events said nothing new.
    pub ignored: u64,
    /// How many objects a comparison with the server found wrong.
    pub repairs: u64,
    /// How many rounds of resync there were.
    pub resyncs: u64,
}
