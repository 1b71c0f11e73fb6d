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
    let item = queue.get().await.unwrap();
    assert_eq!(*item, "a");
    item.done();
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
    let start = Instant::now();
    queue.add("a");
    assert_eq!(take(&queue).retry(), ms(100));
    // Events make the key run again before the retry is due, and it fails each time.
    for failed in 1..5 {
        queue.add("a");
        let item = queue.get().await.unwrap();
        assert_eq!(item.failures(), failed);
        let remaining = ms(100).saturating_sub(start.elapsed());
        assert_eq!(item.retry(), remaining);
    }
    assert_eq!(start.elapsed(), ms(5 + 10 + 20), "at once, and then spaced out");
    // The retry itself counts.
    let item = queue.get().await.unwrap();
    assert_eq!((start.elapsed(), item.failures(), item.retry()), (ms(100), 5, ms(200)));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_failing_key_waits_at_most_a_second() {
    let retry = RateLimit::exponential(Duration::from_hours(1), Duration::from_hours(1));
    let queue = WorkQueue::with_config(WorkQueueConfig { retry, ..Default::default() });
    let mut waits = Vec::new();
    for _ in 0..12 {
        let added = Instant::now();
        queue.add("a");
        let _ = queue.get().await.unwrap().retry();
        waits.push(added.elapsed().as_millis());
    }
    assert_eq!(waits, [0, 0, 5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    // The pace counts from the failure, so a change that comes later does not wait.
    tokio::time::advance(Duration::from_secs(1)).await;
    queue.add("a");
    take(&queue).done();
    // A success ends it.
    queue.add("a");
    let _ = take(&queue).retry();
    queue.add("a");
    take(&queue).done();
}

#[tokio::test(start_paused = true)]
async fn a_paced_key_runs_at_once_when_the_queue_drains() {
    let retry = RateLimit::exponential(Duration::from_hours(1), Duration::from_hours(1));
    let queue = WorkQueue::with_config(WorkQueueConfig { retry, ..Default::default() });
    for _ in 0..3 {
        queue.add("a");
        let _ = queue.get().await.unwrap().retry();
    }
    tokio::time::advance(ms(10)).await;
    queue.add("a");
    let item = take(&queue);
    queue.add("a");
    queue.shut_down();
    let _ = item.retry();
    take(&queue).done();
    assert!(queue.get().await.is_none());
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
async fn ten_thousand_failures_at_once_are_retried_one_after_the_other() {
    let queue = WorkQueue::new();
    (0..10_000).for_each(|key| queue.add(key));
    let items: Vec<_> = std::iter::from_fn(|| queue.try_get()).collect();
    for (number, item) in (0..).zip(items) {
        let in_line = ms(100) * u32::saturating_sub(number, 99);
        assert_eq!(item.retry(), in_line.max(ms(5)));
    }
}
