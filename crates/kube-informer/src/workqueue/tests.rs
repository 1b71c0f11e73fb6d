//! The queue as its users see it, on virtual time.

mod basics;
mod concurrency;
mod delays;
mod interleavings;
mod model;
mod numbers;
mod priorities;
mod retries;
mod shutdown;

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::*;

/// Takes the key that has to be ready.
fn take<T: Eq + Hash + Clone + Debug>(queue: &WorkQueue<T>) -> Item<T> {
    queue.try_get().expect("a key is ready")
}

/// Works on everything that is ready, and names it.
fn work_all<T: Eq + Hash + Clone>(queue: &WorkQueue<T>) -> Vec<T> {
    std::iter::from_fn(|| queue.try_get()).map(finish).collect()
}

/// Says that the work on a key is done, and names the key.
fn finish<T: Eq + Hash + Clone>(item: Item<T>) -> T {
    let key = item.key().clone();
    item.done();
    key
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Lets every task run until it waits.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}
