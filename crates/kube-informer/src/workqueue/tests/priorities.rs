//! Who goes first, and that nobody waits for ever.

use super::*;

fn with(priority: i8) -> Add {
    Add { priority, ..Add::default() }
}

#[tokio::test(start_paused = true)]
async fn higher_priorities_go_first() {
    let queue = WorkQueue::new();
    for (key, priority) in
        [("low", -100), ("normal", 0), ("high", 100), ("also high", 100), ("also normal", 0)]
    {
        queue.add_with(key, with(priority));
    }
    assert_eq!(work_all(&queue), ["high", "also high", "normal", "also normal", "low"]);
}

#[tokio::test(start_paused = true)]
async fn the_higher_of_two_priorities_counts() {
    let queue = WorkQueue::new();
    for (key, priority) in [("a", 0), ("b", 0), ("c", 5), ("b", 5), ("c", 0)] {
        queue.add_with(key, with(priority));
    }
    let (c, b) = (take(&queue), take(&queue));
    assert_eq!((*c, c.priority(), *b, b.priority()), ("c", 5, "b", 5));
    // A priority is for one run, also when the worker itself asks for the next.
    c.done();
    queue.add_with("c", with(-5));
    b.requeue_after(ms(1));
    tokio::time::advance(ms(1)).await;
    let a = take(&queue);
    assert_eq!((*a, a.priority()), ("a", 0));
    let b = take(&queue);
    assert_eq!((*b, b.priority()), ("b", 0));
    assert_eq!(work_all(&queue), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_merges_its_priority_with_an_immediate_add() {
    let queue = WorkQueue::new();
    queue.add_with("a", Add { priority: 7, after: ms(100), cause: None });
    queue.add_with("a", with(-7));
    assert_eq!(take(&queue).priority(), 7);
}

/// One worker, 10 ms a key. Keys of high priority arrive without pause, keys of low priority are there from the start.
/// Returns how long it took until the last of the low ones was done, and the longest wait of a high one.
async fn contend(low: u32, high_in_100: u32) -> (Duration, Duration) {
    let queue = WorkQueue::new();
    let start = Instant::now();
    (0..low).for_each(|key| queue.add_with(key, with(-100)));
    let (mut remaining, mut next, mut longest) = (low, low, Duration::ZERO);
    for tick in 0_u64.. {
        // `high_in_100` keys in every 100 ticks, evenly spread.
        let arrived = |tick: u64| tick * u64::from(high_in_100) / 100;
        for _ in arrived(tick)..arrived(tick + 1) {
            queue.add(next);
            next += 1;
        }
        let item = take(&queue);
        tokio::time::advance(ms(10)).await;
        if *item < low {
            remaining -= 1;
        } else {
            longest = longest.max(item.waited());
        }
        item.done();
        if remaining == 0 {
            break;
        }
    }
    (start.elapsed(), longest)
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_low_keys_finish_beside_high_ones_at_nine_tenths_of_the_capacity() {
    let (took, longest_wait) = contend(10_000, 90).await;
    // A tenth of the capacity is left for them: 1,000 s. And those with priority hardly notice.
    assert!(took <= Duration::from_secs(1001), "{took:?}");
    assert!(longest_wait <= ms(30), "{longest_wait:?}");
}

#[tokio::test(start_paused = true)]
async fn low_keys_finish_even_if_high_ones_arrive_faster_than_they_can_be_worked_on() {
    let (took, _) = contend(500, 150).await;
    // Every 16th turn is theirs.
    assert_eq!(took, 16 * 500 * ms(10));
}
