//! Brings every object round again, from the store, to the handlers that asked for it.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::{Instant, sleep_until};

use super::Core;
use crate::delta_fifo::{Delta, DeltaType};
use crate::planted::{Bug, planted};
use crate::reflector::NEVER;

/// How many objects enter the queue at a time, so that a resync of a large store does not hold up what is new.
const CHUNK: usize = 500;

/// Lets each handler hear of everything again when its time has come. Costs no request.
pub(super) async fn run(core: &Core) {
    let mut due: HashMap<u64, Instant> = HashMap::new();
    loop {
        let changed = core.handlers_changed.notified();
        let periods: HashMap<u64, Duration> = {
            let processor = core.processor();
            let handlers = processor.listeners().iter();
            handlers
                .filter_map(|listener| Some((listener.id(), listener.resync_every()?.min(NEVER))))
                .collect()
        };
        let now = Instant::now();
        due.retain(|id, _| periods.contains_key(id) && !planted(Bug::ResyncStartsOver));
        for (id, period) in &periods {
            due.entry(*id).or_insert(now + *period);
        }
        let Some(next) = due.values().min().copied() else {
            changed.await;
            continue;
        };
        tokio::select! {
            // In this order, so that the same run does the same again.
            biased;
            () = sleep_until(next) => {}
            () = changed => continue,
        }
        let now = Instant::now();
        let mut round: Vec<u64> = due.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        round.sort_unstable();
        for id in &round {
            due.insert(*id, now + periods[id]);
        }
        bring_round(core, round.into()).await;
    }
}

async fn bring_round(core: &Core, round: Arc<[u64]>) {
    if !core.has_synced() {
        return;
    }
    if planted(Bug::NoResync) {
        return;
    }
    core.count_resync();
    let snapshot = core.indexer.snapshot::<()>();
    let mut objects = snapshot.iter();
    loop {
        let chunk: Vec<Delta> = objects
            .by_ref()
            .take(CHUNK)
            .map(|entry| Delta {
                round: Some(Arc::clone(&round)),
                ..Delta::new(DeltaType::Sync, Arc::clone(entry))
            })
            .collect();
        if chunk.is_empty() {
            return;
        }
        core.fifo.resync(chunk).await;
        if planted(Bug::OneChunkOnly) {
            return;
        }
    }
}
