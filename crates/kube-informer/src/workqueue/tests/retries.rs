//! Keys that fail.

use super::*;

fn queue() -> WorkQueue<&'static str> {
    let retry = RateLimit::exponential(ms(1), Duration::from_secs(1));
    WorkQueue::with_config(WorkQueueConfig { retry, ..Default::default() })
}

#[tokio::test(start_paused = true)]
async fn each_key_is_retried_later_and_later_until_it_succeeds() {
    let queue = queue();
    queue.add("a");
    for (failures, delay) in [(0, ms(1)), (1, ms(2)), (2, ms(4))] {
        let item = queue.get().await.unwrap();
        assert_eq!(item.failures(), failures);
        assert_eq!(item.retry(), delay);
    }
    assert_eq!(queue.failures(&"a"), 3);
    // Another key has its own count.
    queue.add("b");
    assert_eq!(take(&queue).retry(), ms(1));
    assert_eq!((queue.failures(&"b"), queue.failures(&"c")), (1, 0));

    queue.get().await.unwrap().done();
    assert_eq!(*queue.get().await.unwrap(), "a");
    assert_eq!((queue.failures(&"a"), queue.failures(&"b"), queue.stats().retries), (0, 0, 4));
    queue.add("a");
    assert_eq!(take(&queue).retry(), ms(1));
}

#[tokio::test(start_paused = true)]
async fn failures_can_be_forgotten_during_the_work() {
    let queue = queue();
    queue.add("a");
    take(&queue).retry();
    let mut item = queue.get().await.unwrap();
    assert_eq!(item.failures(), 1);
    item.forget();
    assert_eq!((item.failures(), queue.failures(&"a")), (0, 0));
    assert_eq!(item.retry(), ms(1));
}

#[tokio::test(start_paused = true)]
async fn asking_for_another_run_is_no_failure() {
    let queue = queue();
    queue.add("a");
    take(&queue).retry();
    queue.get().await.unwrap().requeue_after(ms(10));
    assert_eq!(queue.failures(&"a"), 0);
    assert_eq!(queue.get().await.unwrap().retry(), ms(1));
}

#[tokio::test(start_paused = true)]
async fn adds_from_outside_do_not_make_the_retries_rarer() {
    let retry = RateLimit::exponential(ms(100), Duration::from_secs(1000));
    let queue = WorkQueue::with_config(WorkQueueConfig { retry, ..Default::default() });
    queue.add("a");
    assert_eq!(take(&queue).retry(), ms(100));
    // Every 10 ms an event makes the key run at once, and it fails again, before the retry was due.
    for elapsed in 1..10 {
        tokio::time::advance(ms(10)).await;
        queue.add("a");
        assert_eq!(take(&queue).retry(), ms(100 - 10 * elapsed));
        assert_eq!(queue.failures(&"a"), 1);
    }
    // The retry itself counts.
    tokio::time::advance(ms(10)).await;
    assert_eq!(take(&queue).retry(), ms(200));
}

#[tokio::test(start_paused = true)]
async fn an_add_during_a_failing_run_does_not_wait_for_the_backoff() {
    let queue = queue();
    queue.add("a");
    let item = take(&queue);
    queue.add("a");
    item.retry();
    assert_eq!(work_all(&queue), ["a"]);
    tokio::time::advance(ms(1000)).await;
    assert!(queue.try_get().is_none(), "the run that came earlier was the retry");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_failures_at_once_are_all_retried_soon() {
    let queue = WorkQueue::new();
    (0..10_000).for_each(|key| queue.add(key));
    let items: Vec<_> = std::iter::from_fn(|| queue.try_get()).collect();
    for item in items {
        assert!(item.retry() <= Duration::from_mins(1));
    }
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(queue.len(), 10_000);
}
