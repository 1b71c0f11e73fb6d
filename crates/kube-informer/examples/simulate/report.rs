//! What came of a run, and sums over many.

use std::collections::BTreeMap;
use std::time::Duration;

/// What came of a run.
#[derive(Default)]
pub struct Report {
    pub violation: Option<String>,
    pub lines: Vec<String>,
    /// Of all lines, kept or not.
    pub hash: u64,
    pub numbers: Numbers,
}

/// Sums over runs.
#[derive(Default, Clone)]
pub struct Numbers {
    pub simulated: Duration,
    pub faults: BTreeMap<&'static str, u64>,
    pub lists: u64,
    pub streaming_lists: u64,
    pub watches: u64,
    pub events: u64,
    pub writes: u64,
    pub snapshots: u64,
    /// The most objects in a run, and how many runs had a crowd.
    pub most_objects: u64,
    pub crowds: u64,
    /// The informers of each kind.
    pub informers: BTreeMap<String, u64>,
}

impl Numbers {
    pub fn add(&mut self, other: &Self) {
        self.simulated += other.simulated;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.lists += other.lists;
        self.streaming_lists += other.streaming_lists;
        self.watches += other.watches;
        self.events += other.events;
        self.writes += other.writes;
        self.snapshots += other.snapshots;
        self.most_objects = self.most_objects.max(other.most_objects);
        self.crowds += other.crowds;
        for (kind, count) in &other.informers {
            *self.informers.entry(kind.clone()).or_default() += count;
        }
    }
}
