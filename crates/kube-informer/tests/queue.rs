//! The work queue through its public API: priorities.

use std::hash::Hash;
use std::time::Duration;

use kube_informer::workqueue::{Add, WorkQueue};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn low<T: Eq + Hash + Clone>(queue: &WorkQueue<T>, key: T) {
    queue.add_with(key, Add { priority: -50, ..Add::default() });
}

// Priorities.

#[tokio::test(start_paused = true)]
async fn raising_a_priority_never_makes_a_key_later() {
    let turn = |raised: bool| {
        let queue = WorkQueue::new();
        low(&queue, 0);
        (1..=1_000).for_each(|key| queue.add(key));
        if raised {
            queue.add(0);
        }
        (1..)
            .find(|_| {
                let item = queue.try_get().unwrap();
                let found = *item == 0;
                item.done();
                found
            })
            .unwrap()
    };
    let (without, with) = (turn(false), turn(true));
    assert!(with <= without, "turn {without} if left alone, turn {with} if added again with more weight");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_age_survives_a_raised_priority() {
    let queue = WorkQueue::new();
    low(&queue, "old");
    tokio::time::advance(600 * SECOND).await;
    queue.add("new");
    queue.add("old");
    assert_eq!(queue.stats().oldest_age, 600 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_priority_ends_with_the_run_it_was_for() {
    let queue = WorkQueue::new();
    // More work than one worker can do; half of the keys were added with a low priority, once.
    for key in 0..400_u32 {
        queue.add_with(key, Add { priority: if key < 200 { -50 } else { 0 }, ..Add::default() });
    }
    let (start, mut runs) = (Instant::now(), [0_u32; 2]);
    while start.elapsed() < 120 * SECOND {
        let item = queue.get().await.unwrap();
        runs[usize::from(*item >= 200)] += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
        item.requeue_after(SECOND);
    }
    assert!(runs[0] * 2 > runs[1], "{runs:?}: the first priority decides two minutes later");

    // A high one ends as well.
    let queue = WorkQueue::new();
    queue.add_with("a", Add { priority: 100, ..Add::default() });
    queue.try_get().unwrap().requeue_after(SECOND);
    assert_eq!(queue.get().await.unwrap().priority(), 0);
}
