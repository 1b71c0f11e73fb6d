//! Keys that wait for a moment.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_delayed_key_comes_once_when_its_time_has_come() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", ms(50));
    assert_eq!((queue.len(), queue.stats().delayed), (0, 1));
    tokio::time::advance(ms(49)).await;
    assert!(queue.try_get().is_none());
    assert_eq!(finish(queue.get().await.unwrap()), "a");
    assert_eq!(start.elapsed(), ms(50));
    tokio::time::advance(ms(1000)).await;
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_earlier_of_two_delays_wins_whichever_comes_first() {
    for delays in [[50, 70], [70, 50]] {
        let queue = WorkQueue::new();
        for delay in delays {
            queue.add_after("a", ms(delay));
        }
        tokio::time::advance(ms(50)).await;
        assert_eq!(work_all(&queue), ["a"]);
        tokio::time::advance(ms(1000)).await;
        assert!(queue.try_get().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_worker_notices_an_earlier_deadline() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("late", ms(1000));
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(finish) }
    });
    settle().await;
    queue.add_after("early", ms(50));
    assert_eq!(worker.await.unwrap(), Some("early"));
    assert_eq!(start.elapsed(), ms(50));
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_come_in_the_order_of_their_deadlines() {
    let queue = WorkQueue::new();
    for (key, delay) in [("third", 3000), ("first", 500), ("second", 1000)] {
        queue.add_after(key, ms(delay));
    }
    tokio::time::advance(ms(500)).await;
    assert_eq!(work_all(&queue), ["first"]);
    // Nobody looked when the deadlines came, and still they stand before what was added later.
    tokio::time::advance(ms(3000)).await;
    queue.add("fourth");
    assert_eq!(work_all(&queue), ["second", "third", "fourth"]);
}

#[tokio::test(start_paused = true)]
async fn an_immediate_add_cancels_the_delay() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(50));
    queue.add("a");
    assert_eq!(work_all(&queue), ["a"]);
    tokio::time::advance(ms(1000)).await;
    assert!(queue.try_get().is_none());

    // And a delay adds nothing to a key that is due anyway.
    queue.add("a");
    queue.add_after("a", ms(50));
    assert_eq!(work_all(&queue), ["a"]);
    tokio::time::advance(ms(1000)).await;
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn no_delay_means_at_once() {
    let queue = WorkQueue::new();
    queue.add_after("a", Duration::ZERO);
    assert_eq!(queue.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delay_of_a_key_in_work_counts_from_its_add() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = take(&queue);
    queue.add_after("a", ms(50));
    tokio::time::advance(ms(30)).await;
    item.done();
    assert!(queue.try_get().is_none());
    tokio::time::advance(ms(20)).await;
    let item = take(&queue);

    // The moment comes during the work.
    queue.add_after("a", ms(50));
    tokio::time::advance(ms(60)).await;
    assert!(queue.try_get().is_none());
    item.done();
    assert_eq!(work_all(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_can_ask_for_the_next_run() {
    let queue = WorkQueue::new();
    queue.add("a");
    take(&queue).requeue_after(ms(50));
    assert_eq!(queue.stats().delayed, 1);
    tokio::time::advance(ms(50)).await;
    let item = take(&queue);
    // An add during the work comes first, and the delay is not run on top.
    queue.add("a");
    item.requeue_after(ms(50));
    assert_eq!(work_all(&queue), ["a"]);
    tokio::time::advance(ms(1000)).await;
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn delays_of_centuries_are_fine() {
    let queue = WorkQueue::new();
    queue.add_after("a", Duration::MAX);
    let wait = tokio::time::timeout(Duration::from_hours(24), queue.get()).await;
    assert!(wait.is_err());
    queue.add("a");
    assert_eq!(work_all(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn one_timer_serves_all_workers() {
    let queue = WorkQueue::new();
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.map(finish) })
        })
        .collect();
    settle().await;
    let start = Instant::now();
    (0..8_u64).for_each(|n| queue.add_after(n, ms(10 * (n + 1))));
    let mut keys = Vec::new();
    for worker in workers {
        keys.push(worker.await.unwrap().unwrap());
    }
    assert_eq!(start.elapsed(), ms(80));
    keys.sort_unstable();
    assert_eq!(keys, (0..8).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_due_together_wake_as_many_workers() {
    let queue = WorkQueue::new();
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.map(finish) })
        })
        .collect();
    settle().await;
    (0..8_u64).for_each(|n| queue.add_after(n, ms(10)));
    let mut keys = Vec::new();
    for worker in workers {
        // Each worker takes one key and never comes back, so none can stand in for another.
        keys.push(tokio::time::timeout(ms(20), worker).await.unwrap().unwrap().unwrap());
    }
    keys.sort_unstable();
    assert_eq!(keys, (0..8).collect::<Vec<_>>());
}
