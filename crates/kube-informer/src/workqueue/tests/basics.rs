//! Adding, taking and finishing.

use std::sync::Arc;

use super::*;

#[tokio::test(start_paused = true)]
async fn keys_come_out_in_the_order_they_went_in() {
    let queue = WorkQueue::new();
    for key in ["c", "a", "b", "a"] {
        queue.add(key);
    }
    assert_eq!(queue.len(), 3);
    assert_eq!(work_all(&queue), ["c", "a", "b"]);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn adds_of_a_waiting_key_merge() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("a");
    assert_eq!((queue.len(), queue.stats().adds, queue.stats().merged), (1, 1, 1));
    let item = take(&queue);
    assert!(queue.is_empty());
    item.done();
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_in_work_runs_exactly_once_more() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = take(&queue);
    for _ in 0..5 {
        queue.add("a");
    }
    // Not while somebody works on it.
    assert_eq!(queue.len(), 0);
    assert!(queue.try_get().is_none());
    item.done();
    assert_eq!(queue.len(), 1);
    take(&queue).done();
    assert!(queue.try_get().is_none());
    assert_eq!(queue.stats().work_duration.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_second_worker_waits_until_the_first_is_done_with_the_key() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = queue.get().await.unwrap();
    queue.add("a");
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(finish) }
    });
    settle().await;
    assert!(!second.is_finished());
    item.done();
    assert_eq!(second.await.unwrap(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_done_is_not_held() {
    let queue = WorkQueue::new();
    let key: Arc<str> = "a".into();
    queue.add(key.clone());
    assert_eq!(Arc::strong_count(&key), 2);
    take(&queue).done();
    assert_eq!(Arc::strong_count(&key), 1);

    let keys: Vec<Arc<str>> = (0..10_000).map(|n| n.to_string().into()).collect();
    for key in &keys {
        queue.add_after(key.clone(), ms(1));
    }
    tokio::time::advance(ms(1)).await;
    assert_eq!(work_all(&queue).len(), 10_000);
    assert!(keys.iter().all(|key| Arc::strong_count(key) == 1));
    // And what a burst left behind works as new.
    queue.add_after(keys[0].clone(), ms(1));
    queue.add(keys[1].clone());
    tokio::time::advance(ms(1)).await;
    assert_eq!(work_all(&queue), [keys[1].clone(), keys[0].clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_number_of_workers_visits_every_piece_once() {
    for (pieces, workers) in [(1000, 1), (1000, 10), (3, 10), (999, 7)] {
        let queue = WorkQueue::new();
        (0..pieces).for_each(|piece| queue.add(piece));
        queue.shut_down();
        let mut pool = tokio::task::JoinSet::new();
        for _ in 0..workers {
            let queue = queue.clone();
            pool.spawn(async move {
                let mut visited = Vec::new();
                while let Some(item) = queue.get().await {
                    assert!(queue.stats().in_work <= workers);
                    visited.push(*item);
                    tokio::task::yield_now().await;
                    item.done();
                }
                visited
            });
        }
        let mut visited = pool.join_all().await.concat();
        visited.sort_unstable();
        assert_eq!(visited, (0..pieces).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_get_loses_nothing() {
    let queue = WorkQueue::new();
    let mut first = Box::pin(queue.get());
    let mut second = Box::pin(queue.get());
    assert!(futures_poll(first.as_mut()).is_none() && futures_poll(second.as_mut()).is_none());
    // The first is woken and goes away without having looked.
    queue.add("a");
    drop(first);
    assert_eq!(*second.await.unwrap(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_get_hands_its_timer_on() {
    let queue = WorkQueue::new();
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(finish) }
    });
    settle().await;
    // This one keeps the timer, then goes away.
    queue.add_after("a", ms(5));
    let mut first = Box::pin(queue.get());
    assert!(futures_poll(first.as_mut()).is_none());
    settle().await;
    drop(first);
    assert_eq!(tokio::time::timeout(ms(10), second).await.unwrap().unwrap(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_leaves_with_a_key_hands_its_timer_on() {
    let queue = WorkQueue::new();
    queue.add_after("later", ms(5));
    let mut first = Box::pin(queue.get());
    assert!(futures_poll(first.as_mut()).is_none());
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(finish) }
    });
    settle().await;
    queue.add("now");
    let long_work = first.await.unwrap();
    assert_eq!(*long_work, "now");
    assert_eq!(tokio::time::timeout(ms(10), second).await.unwrap().unwrap(), Some("later"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_counted_and_retried() {
    let queue = WorkQueue::new();
    queue.add("a");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _item = queue.get().await.unwrap();
            queue.add("a");
            panic!("as planned");
        }
    });
    assert!(worker.await.unwrap_err().is_panic());
    let stats = queue.stats();
    assert_eq!((stats.panics, stats.retries, stats.dropped, stats.in_work), (1, 1, 0, 0));
    // It was added while in work, so it runs again without waiting for the backoff.
    assert_eq!((queue.failures(&"a"), work_all(&queue)), (1, vec!["a"]));
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_collects_and_hands_out_nothing() {
    let queue = WorkQueue::new();
    queue.pause();
    queue.add("a");
    queue.add_after("b", ms(1));
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.map(finish) })
        })
        .collect();
    tokio::time::sleep(ms(10)).await;
    assert!(queue.try_get().is_none());
    assert_eq!(queue.len(), 2);
    queue.resume();
    for (worker, key) in workers.into_iter().zip(["a", "b"]) {
        assert_eq!(worker.await.unwrap(), Some(key));
    }
}

#[tokio::test(start_paused = true)]
async fn reasons_are_merged_and_come_with_the_key() {
    let queue = WorkQueue::with_config(WorkQueueConfig { max_reasons: 2, ..Default::default() });
    let cause = |source: &str, event, version| Add {
        cause: Some(Cause::new(source, event).at_version(version)),
        ..Add::default()
    };
    queue.add_with("a", cause("pods", "update", 5));
    tokio::time::advance(ms(3)).await;
    queue.add_with("a", cause("pods", "update", 8));
    queue.add("a");
    queue.add_with("a", cause("nodes", "delete", 9));
    queue.add_with("a", cause("secrets", "add", 9));

    let item = take(&queue);
    let seen: Vec<_> =
        item.reasons().iter().map(|r| (&*r.source, r.event, r.version, r.count, r.last - r.first)).collect();
    assert_eq!(seen, [("pods", "update", Some(8), 2, ms(3)), ("nodes", "delete", Some(9), 1, ms(0))]);
    assert_eq!(item.reasons().not_kept(), 1);

    // What comes during the work is for the next run; after a failure, together with what is still to be done.
    queue.add_with("a", cause("pods", "delete", 12));
    item.retry();
    let item = take(&queue);
    let seen: Vec<_> = item.reasons().iter().map(|r| (&*r.source, r.event)).collect();
    assert_eq!(seen, [("pods", "update"), ("nodes", "delete")]);
    assert_eq!(item.reasons().not_kept(), 2);
    item.done();
    queue.add("a");
    assert!(take(&queue).reasons().is_empty());
}

/// Polls a future once, with a waker that tells nobody.
fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test(start_paused = true)]
async fn resuming_wakes_as_many_workers_as_there_are_keys() {
    let queue = WorkQueue::new();
    queue.pause();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let item = queue.get().await.unwrap();
                // No other worker is woken by its end.
                std::mem::forget(item);
            })
        })
        .collect();
    settle().await;
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    settle().await;
    queue.resume();
    settle().await;
    assert!(workers.iter().all(|worker| worker.is_finished()));
}
