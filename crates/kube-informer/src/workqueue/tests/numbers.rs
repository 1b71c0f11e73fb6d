//! What `stats` says.

use super::*;

fn histogram(histogram: &Histogram) -> (u64, Duration) {
    (histogram.count(), histogram.sum())
}

#[tokio::test(start_paused = true)]
async fn every_step_of_a_key_is_counted() {
    let queue = WorkQueue::new();
    let step = ms(50);
    queue.add("a");
    let stats = queue.stats();
    assert_eq!((stats.adds, stats.depth, stats.in_work), (1, 1, 0));
    tokio::time::advance(step).await;
    assert_eq!(queue.stats().oldest_age, step);

    let item = take(&queue);
    assert_eq!(item.waited(), step);
    let stats = queue.stats();
    assert_eq!((stats.depth, stats.in_work, histogram(&stats.queue_latency)), (0, 1, (1, step)));
    assert_eq!(stats.oldest_age, Duration::ZERO);

    // Added while in work: due, but not in line before the work is done. The second add changes nothing.
    queue.add("a");
    queue.add("a");
    let stats = queue.stats();
    assert_eq!((stats.adds, stats.merged, stats.depth), (2, 1, 0));
    tokio::time::advance(step).await;
    item.done();
    let stats = queue.stats();
    assert_eq!((stats.depth, stats.in_work, histogram(&stats.work_duration)), (1, 0, (1, step)));

    // It has been due for as long as the first run took.
    let item = take(&queue);
    assert_eq!(histogram(&queue.stats().queue_latency), (2, 2 * step));
    tokio::time::advance(2 * step).await;
    item.done();
    assert_eq!(histogram(&queue.stats().work_duration), (2, 3 * step));

    let stats = queue.stats();
    assert_eq!((stats.unfinished_work, stats.longest_running, stats.oldest_age), Default::default());
}

#[tokio::test(start_paused = true)]
async fn unfinished_work_and_the_longest_run_grow_while_keys_are_in_work() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    let a = take(&queue);
    tokio::time::advance(ms(50)).await;
    let b = take(&queue);
    tokio::time::advance(ms(30)).await;
    assert_eq!((queue.stats().unfinished_work, queue.stats().longest_running), (ms(110), ms(80)));
    a.done();
    assert_eq!((queue.stats().unfinished_work, queue.stats().longest_running), (ms(30), ms(30)));
    tokio::time::advance(ms(30)).await;
    assert_eq!((queue.stats().unfinished_work, queue.stats().longest_running), (ms(60), ms(60)));
    b.done();
    assert_eq!((queue.stats().unfinished_work, queue.stats().longest_running), (ms(0), ms(0)));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_is_counted_when_it_is_due() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(50));
    assert_eq!((queue.stats().adds, queue.stats().delayed), (0, 1));
    tokio::time::advance(ms(80)).await;
    let stats = queue.stats();
    assert_eq!((stats.adds, stats.delayed, stats.depth, stats.oldest_age), (1, 0, 1, ms(30)));
    // The delay it was given is not counted as waiting.
    assert_eq!(take(&queue).waited(), ms(30));
}

#[tokio::test(start_paused = true)]
async fn nothing_moves_after_the_shutdown() {
    let queue = WorkQueue::new();
    queue.add("a");
    take(&queue).done();
    queue.shut_down();
    let before = queue.stats();
    tokio::time::advance(Duration::from_hours(1)).await;
    assert_eq!(queue.stats(), before);
    queue.add("b");
    let after = queue.stats();
    assert_eq!(after, QueueStats { discarded: before.discarded + 1, ..before });
}
