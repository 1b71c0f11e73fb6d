//! Adds, gets and finishes keys. All numbers of the queue are kept: it cannot do without.

use std::sync::Arc;

use child::{number, say};
use kube_informer::WorkQueue;
use kube_informer::workqueue::{Add, Cause};

type Queue = WorkQueue<Arc<str>>;

pub(crate) fn run() {
    let count = number("--keys", 1_000_000);
    let keys: Vec<Arc<str>> =
        (0..count).map(|n| format!("namespace-{:04}/object-{n:08}", n % 1000).into()).collect();
    say("ready");
    one_by_one(&Queue::new(), &keys);
    say("one_by_one");
    let queue = Queue::new();
    for hundred in keys.chunks(100) {
        all_at_once(&queue, hundred, |_| Add::default());
    }
    say("hundred");
    all_at_once(&Queue::new(), &keys, |_| Add::default());
    say("burst");
    producers_and_workers(&keys);
    say("waiting");
    for threads in [1, 2, 4, 8, 16] {
        together(&keys, threads);
        say(&format!("threads_{threads}"));
    }
    let queue = Queue::new();
    for hundred in keys.chunks(100) {
        all_at_once(&queue, hundred, |n| Add { priority: (n % 8) as i8, ..Add::default() });
    }
    say("priorities");
    let (queue, source) = (Queue::new(), Arc::<str>::from("pods"));
    for hundred in keys.chunks(100) {
        let cause = |_| Some(Cause::new(Arc::clone(&source), "update").at_version(7));
        all_at_once(&queue, hundred, |n| Add { cause: cause(n), ..Add::default() });
    }
    say("reasons");
}

fn one_by_one(queue: &Queue, keys: &[Arc<str>]) {
    for key in keys {
        queue.add(Arc::clone(key));
        queue.try_get().expect("every thread has added what it takes").done();
    }
}

fn all_at_once(queue: &Queue, keys: &[Arc<str>], add: impl Fn(usize) -> Add) {
    for (n, key) in keys.iter().enumerate() {
        queue.add_with(Arc::clone(key), add(n));
    }
    while let Some(item) = queue.try_get() {
        item.done();
    }
}

/// Every thread adds, takes and finishes one key after the other, all on one queue.
fn together(keys: &[Arc<str>], threads: usize) {
    let queue = Queue::new();
    std::thread::scope(|scope| {
        for part in keys.chunks(keys.len().div_ceil(threads)) {
            let queue = &queue;
            scope.spawn(move || one_by_one(queue, part));
        }
    });
}

/// Four threads add while four workers take, which wait when there is nothing.
fn producers_and_workers(keys: &[Arc<str>]) {
    let queue = Queue::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            runtime.spawn(async move {
                while let Some(item) = queue.get().await {
                    item.done();
                }
            })
        })
        .collect();
    std::thread::scope(|scope| {
        for part in keys.chunks(keys.len().div_ceil(4)) {
            let queue = &queue;
            scope.spawn(move || {
                for key in part {
                    queue.add(Arc::clone(key));
                }
            });
        }
    });
    queue.shut_down();
    for worker in workers {
        runtime.block_on(worker).expect("workers do not panic");
    }
}
