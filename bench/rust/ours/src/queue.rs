//! Adds, gets and finishes keys.

use std::sync::Arc;

use child::{number, say};
use kube_informer::WorkQueue;

pub(crate) fn run() {
    let count = number("--keys", 1_000_000);
    let keys: Vec<Arc<str>> =
        (0..count).map(|n| format!("namespace-{:04}/object-{n:08}", n % 1000).into()).collect();
    say("ready");
    let queue = WorkQueue::new();
    for key in &keys {
        queue.add(Arc::clone(key));
        queue.try_get().expect("a key was added").done();
    }
    say("one_by_one");
    let queue = WorkQueue::new();
    for hundred in keys.chunks(100) {
        for key in hundred {
            queue.add(Arc::clone(key));
        }
        while let Some(item) = queue.try_get() {
            item.done();
        }
    }
    say("hundred");
    let queue = WorkQueue::new();
    for key in &keys {
        queue.add(Arc::clone(key));
    }
    while let Some(item) = queue.try_get() {
        item.done();
    }
    say("burst");
    contended(&keys);
    say("contended");
}

/// Four threads add while four workers take, which wait when there is nothing.
fn contended(keys: &[Arc<str>]) {
    let queue: WorkQueue<Arc<str>> = WorkQueue::new();
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
