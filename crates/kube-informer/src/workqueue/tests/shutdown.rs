//! Shutting down, at once and with a drain.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::*;

#[tokio::test(start_paused = true)]
async fn producers_and_workers_meet_and_part() {
    for drained in [false, true] {
        let queue = WorkQueue::<&str>::new();
        let runs = Arc::new(AtomicUsize::new(0));
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let (queue, runs) = (queue.clone(), runs.clone());
            workers.spawn(async move {
                while let Some(item) = queue.get().await {
                    assert_ne!(*item, "added after the shutdown");
                    tokio::time::sleep(ms(3)).await;
                    runs.fetch_add(1, Relaxed);
                    item.done();
                }
            });
        }
        let mut producers = tokio::task::JoinSet::new();
        for n in 0..50 {
            let queue = queue.clone();
            producers.spawn(async move {
                for _ in 0..50 {
                    queue.add(["a", "b", "c", "d", "e"][n % 5]);
                    tokio::time::sleep(ms(1)).await;
                }
            });
        }
        producers.join_all().await;
        if drained {
            assert_eq!(queue.drain().await, Drained::Complete);
        } else {
            queue.shut_down();
        }
        queue.add("added after the shutdown");
        workers.join_all().await;
        assert_eq!((queue.len(), queue.stats().in_work, queue.stats().discarded), (0, 0, 1));
        assert!(queue.is_shut_down());
        assert!(runs.load(Relaxed) > 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_still_hands_out_what_is_ready_and_waits_for_nobody() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    let item = take(&queue);
    queue.shut_down();
    let second = queue.get().await.unwrap();
    assert_eq!(*second, "b");
    second.done();
    assert!(queue.get().await.is_none());
    assert_eq!(queue.stats().in_work, 1);
    item.done();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_drops_delays() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(300));
    queue.add("b");
    let item = take(&queue);
    queue.add_after("b", ms(1));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.is_none() }
    });
    settle().await;
    queue.shut_down();
    assert!(waiting.await.unwrap());
    item.retry();
    assert!(queue.get().await.is_none());
    assert_eq!((queue.stats().delayed, queue.stats().discarded), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_at_once_drops_what_is_ready() {
    let queue = WorkQueue::new();
    (0..5).for_each(|key| queue.add(key));
    let item = take(&queue);
    queue.add(0);
    queue.shut_down_now();
    assert!(queue.get().await.is_none());
    item.done();
    assert!(queue.get().await.is_none());
    assert_eq!((queue.len(), queue.stats().discarded), (0, 5));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_what_is_in_work_and_for_what_is_queued() {
    let queue = WorkQueue::new();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    let (first, second) = (take(&queue), take(&queue));
    let drain = spawn_drain(&queue);
    settle().await;
    first.done();
    second.done();
    settle().await;
    assert!(!drain.is_finished(), "one key is still queued");
    let third = take(&queue);
    settle().await;
    assert!(!drain.is_finished(), "one key is still in work");
    third.done();
    assert_eq!(drain.await.unwrap(), Drained::Complete);

    // Nothing in work, one queued: the drain waits as well.
    let queue = WorkQueue::new();
    queue.add("a");
    let drain = spawn_drain(&queue);
    settle().await;
    assert!(!drain.is_finished());
    take(&queue).done();
    assert_eq!(drain.await.unwrap(), Drained::Complete);
    assert_eq!(WorkQueue::<u8>::new().drain().await, Drained::Complete);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_aborts_a_drain() {
    for now in [false, true] {
        let queue = WorkQueue::new();
        queue.add("a");
        let item = take(&queue);
        let drain = spawn_drain(&queue);
        settle().await;
        assert!(!drain.is_finished());
        if now {
            queue.shut_down_now();
        } else {
            queue.shut_down();
        }
        assert_eq!(drain.await.unwrap(), Drained::Aborted);
        // The item is not harmed.
        item.done();
        assert_eq!(queue.stats().work_duration.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_whose_keys_are_dropped_is_not_complete() {
    let queue = WorkQueue::new();
    queue.add("a");
    let drain = spawn_drain(&queue);
    tokio::task::yield_now().await;
    queue.shut_down_now();
    assert_eq!(drain.await.unwrap(), Drained::Aborted);
}

#[tokio::test(start_paused = true)]
async fn a_drain_serves_a_key_that_was_added_while_in_work() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = take(&queue);
    queue.add("a");
    let drain = spawn_drain(&queue);
    // This worker must not be sent away: the key comes once more.
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { (queue.get().await.map(finish), queue.get().await.is_none()) }
    });
    settle().await;
    assert!(!drain.is_finished() && !worker.is_finished());
    item.done();
    assert_eq!(worker.await.unwrap(), (Some("a"), true));
    assert_eq!(drain.await.unwrap(), Drained::Complete);
}

#[tokio::test(start_paused = true)]
async fn all_waiting_workers_leave_when_the_last_dirty_key_is_taken() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = take(&queue);
    queue.add("a");
    queue.shut_down();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.map(finish) })
        })
        .collect();
    settle().await;
    item.done();
    let mut got = Vec::new();
    for worker in workers {
        got.push(worker.await.unwrap());
    }
    got.sort_unstable();
    assert_eq!(got, [None, None, None, Some("a")]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_that_is_shut_down_hands_out_nothing_and_drains() {
    let queue = WorkQueue::new();
    queue.pause();
    queue.add("a");
    assert_eq!(queue.drain().await, Drained::Complete);
    assert!(queue.get().await.is_none());

    let queue = WorkQueue::new();
    queue.add("a");
    queue.shut_down();
    queue.pause();
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn idle_is_when_nothing_is_ready_or_in_work() {
    let queue = WorkQueue::new();
    queue.idle().await;
    queue.add("a");
    queue.add_after("b", ms(1000));
    let idle = tokio::spawn({
        let queue = queue.clone();
        async move { queue.idle().await }
    });
    settle().await;
    assert!(!idle.is_finished());
    let item = take(&queue);
    settle().await;
    assert!(!idle.is_finished());
    item.done();
    idle.await.unwrap();
    assert_eq!(queue.stats().delayed, 1);
}

fn spawn_drain<T: Eq + Hash + Clone + Send + 'static>(
    queue: &WorkQueue<T>,
) -> tokio::task::JoinHandle<Drained> {
    let queue = queue.clone();
    tokio::spawn(async move { queue.drain().await })
}
