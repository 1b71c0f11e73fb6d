//! What one add, get and done costs, with all numbers of the queue kept.
//!
//! `cargo bench -p kube-informer --bench workqueue` prints nanoseconds for each add+get+done, best of several rounds.
//! "all at once" adds every key, then takes every key, then finishes every key; "one by one" does the three for one key
//! after the other; "a hundred" fills and empties a small queue again and again. `-- one` runs those with "one" in the name.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use kube_informer::workqueue::{Add, Cause, Item, WorkQueue};
use tokio::time::Instant;

const KEYS: usize = 1_000_000;
const ROUNDS: usize = 5;

fn main() {
    let keys: Vec<Arc<str>> =
        (0..KEYS).map(|n| format!("namespace-{:04}/object-{n:08}", n % 1000).into()).collect();
    assert!(keys.iter().all(|key| key.len() == 30));
    println!("{KEYS} keys of 30 characters, ns for each add+get+done:");
    report("all at once", || all_at_once(&keys));
    report("one by one", || one_by_one(&keys));
    report("a hundred", || a_hundred(&keys));
    report("a hundred, with causes", || a_hundred_with_causes(&keys));
    report("delayed, all at once", || delayed(&keys));
    println!("a read of the clock: {:.1}", per_key(best(clock)));
}

fn all_at_once(keys: &[Arc<str>]) {
    let queue = WorkQueue::new();
    for key in keys {
        queue.add(key.clone());
    }
    let items: Vec<_> = std::iter::from_fn(|| queue.try_get()).collect();
    assert_eq!(items.len(), keys.len());
    items.into_iter().for_each(Item::done);
    assert_eq!(queue.stats().work_duration.count(), keys.len() as u64);
}

fn one_by_one(keys: &[Arc<str>]) {
    let queue = WorkQueue::new();
    for key in keys {
        queue.add(key.clone());
        queue.try_get().expect("a key was added").done();
    }
}

fn a_hundred(keys: &[Arc<str>]) {
    let queue = WorkQueue::new();
    for hundred in keys.chunks(100) {
        for key in hundred {
            queue.add(key.clone());
        }
        while let Some(item) = queue.try_get() {
            item.done();
        }
    }
}

fn a_hundred_with_causes(keys: &[Arc<str>]) {
    let queue = WorkQueue::new();
    let source: Arc<str> = "pods".into();
    for hundred in keys.chunks(100) {
        for key in hundred {
            let cause = Some(Cause::new(source.clone(), "update").at_version(7));
            queue.add_with(key.clone(), Add { cause, ..Add::default() });
        }
        while let Some(item) = queue.try_get() {
            item.done();
        }
    }
}

/// Adds with delays that are over when the keys are taken, in an order that is not theirs.
fn delayed(keys: &[Arc<str>]) {
    let queue = WorkQueue::new();
    for (n, key) in keys.iter().enumerate() {
        queue.add_after(key.clone(), Duration::from_nanos(1 + (n as u64 * 7_919) % 1_000_003));
    }
    let mut taken = 0;
    while taken < keys.len() {
        if let Some(item) = queue.try_get() {
            taken += 1;
            item.done();
        }
    }
}

fn clock() {
    for _ in 0..KEYS {
        black_box(Instant::now());
    }
}

fn report(name: &str, work: impl FnMut()) {
    if std::env::args().skip(1).any(|filter| !filter.starts_with("--") && !name.contains(&filter)) {
        return;
    }
    println!("{name:>24}: {:.0}", per_key(best(work)));
}

fn best(mut work: impl FnMut()) -> Duration {
    let mut round = || {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..ROUNDS).map(|_| round()).min().expect("at least one round")
}

fn per_key(total: Duration) -> f64 {
    total.as_nanos() as f64 / KEYS as f64
}
