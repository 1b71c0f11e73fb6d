//! The work queue through its public API: failures, priorities and keys whose own code panics.

use std::future::pending;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_informer::workqueue::{Add, Drained, RateLimit, WorkQueue, WorkQueueConfig};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);

fn queue<T: Eq + Hash + Clone>(retry: RateLimit) -> WorkQueue<T> {
    WorkQueue::with_config(WorkQueueConfig { retry, ..Default::default() })
}

fn low<T: Eq + Hash + Clone>(queue: &WorkQueue<T>, key: T) {
    queue.add_with(key, Add { priority: -50, ..Add::default() });
}

// Dropped items.

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_is_retried_and_counts_as_a_failure() {
    let queue = queue(RateLimit::exponential(SECOND, 60 * SECOND));
    queue.add("a");
    for _ in 0..3 {
        let _ = queue.get().await.unwrap().retry();
    }
    let item = queue.get().await.unwrap();
    assert_eq!(item.failures(), 3);
    let work = async move {
        pending::<()>().await;
        item.done();
    };
    assert!(timeout(SECOND, work).await.is_err());
    let dropped = Instant::now();
    let item = timeout(120 * SECOND, queue.get()).await.expect("the cancelled run is retried").unwrap();
    assert_eq!((dropped.elapsed(), item.failures()), (8 * SECOND, 4), "after the backoff");
    item.done();
    assert_eq!(queue.failures(&"a"), 0, "done is success");
    assert!(timeout(3600 * SECOND, queue.get()).await.is_err(), "and nothing is left to run");
}

#[tokio::test(start_paused = true)]
async fn a_run_left_by_an_error_is_retried_with_its_reasons_and_priority() {
    let queue = queue(RateLimit::exponential(SECOND, SECOND));
    let cause = Some(kube_informer::workqueue::Cause::new("pods", "update"));
    queue.add_with("a", Add { priority: 7, cause, ..Add::default() });
    let work = async {
        let item = queue.get().await.ok_or("shut down")?;
        "no number".parse::<u32>().map_err(|_| "left early")?;
        item.done();
        Ok::<_, &str>(())
    };
    assert_eq!(work.await, Err("left early"));
    let item = timeout(2 * SECOND, queue.get()).await.expect("retried").unwrap();
    assert_eq!((item.failures(), item.priority(), item.reasons()[0].event), (1, 7, "update"));
    item.done();
}

#[tokio::test(start_paused = true)]
async fn runs_of_aborted_and_panicking_workers_are_retried() {
    let queue = queue(RateLimit::exponential(SECOND, SECOND));
    queue.add("aborted");
    queue.add("panicked");
    let worker = |panics: bool| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let item = queue.get().await.unwrap();
            assert!(!panics, "on purpose");
            pending::<()>().await;
            item.done();
        })
    };
    let (stuck, panicking) = (worker(false), worker(true));
    assert!(panicking.await.unwrap_err().is_panic());
    stuck.abort();
    assert!(stuck.await.unwrap_err().is_cancelled());
    let stats = queue.stats();
    assert_eq!((stats.in_work, stats.delayed, stats.panics, stats.retries), (0, 2, 1, 2));
    for _ in 0..2 {
        let item = timeout(2 * SECOND, queue.get()).await.expect("retried").unwrap();
        assert_eq!(item.failures(), 1);
        item.done();
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_dropped_item() {
    let queue = queue(RateLimit::exponential(SECOND, SECOND));
    queue.add("a");
    let item = queue.get().await.unwrap();
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    tokio::task::yield_now().await;
    drop(item);
    assert_eq!(drain.await.unwrap(), Drained::Complete, "a closed queue retries nothing");
    assert_eq!(queue.stats().discarded, 1, "and says so");
}

// Rates.

/// Fails every run of `keys` keys for `seconds` and counts the retries that start in each second.
async fn retries_per_second(queue: &WorkQueue<u32>, keys: u32, seconds: u32) -> Vec<u32> {
    (0..keys).for_each(|key| queue.add(key));
    let start = Instant::now();
    let mut per_second = vec![0; seconds as usize];
    while start.elapsed() < seconds * SECOND {
        let Ok(Some(item)) = timeout(SECOND, queue.get()).await else { continue };
        if item.failures() > 0
            && let Some(count) = per_second.get_mut(start.elapsed().as_secs() as usize)
        {
            *count += 1;
        }
        let _ = item.retry();
    }
    per_second
}

#[tokio::test(start_paused = true)]
async fn the_overall_limit_holds_however_many_keys_fail() {
    let per_second = retries_per_second(&WorkQueue::new(), 10_000, 125).await;
    let most = per_second.iter().enumerate().max_by_key(|(_, runs)| **runs).unwrap();
    assert!(*most.1 <= 110, "10 a second and a burst of 100, but {most:?} (second, retries)");
    let total: u32 = per_second.iter().sum();
    assert!((1_300..=1_360).contains(&total), "all of the rate is used: {total} in 125 s");
}

#[tokio::test(start_paused = true)]
async fn a_cap_on_waits_does_not_release_an_overall_limit() {
    let bucket = RateLimit::default().at_most(10 * SECOND);
    let per_second = retries_per_second(&queue(bucket), 5_000, 60).await;
    assert!(per_second.iter().all(|&runs| runs <= 110), "{per_second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_success_before_its_retry_gives_its_place_back() {
    let queue = WorkQueue::new();
    // Every key fails once, then succeeds at once because somebody adds it: no retry ever runs.
    for key in 0..10_000_u32 {
        queue.add(key);
        let _ = queue.try_get().unwrap().retry();
        queue.add(key);
        queue.try_get().unwrap().done();
    }
    queue.add(0);
    let delay = queue.try_get().unwrap().retry();
    assert!(delay <= SECOND, "places of retries that never ran are free: waits {delay:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_of_others_do_not_delay_a_first_run() {
    let queue = WorkQueue::new();
    (0..10_000).for_each(|key| queue.add(key));
    while let Some(item) = queue.try_get() {
        let _ = item.retry();
    }
    queue.add(10_000);
    assert_eq!(queue.try_get().map(|item| *item), Some(10_000));
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
        (1..=1_001)
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

// Counts and reasons.

#[tokio::test(start_paused = true)]
async fn failures_count_every_failed_run_though_adds_interleave() {
    let queue = queue(RateLimit::exponential(SECOND, 1000 * SECOND));
    queue.add("a");
    for failed in 0..50 {
        queue.add("a");
        let item = queue.get().await.unwrap();
        assert_eq!(item.failures(), failed);
        let _ = item.retry();
        assert_eq!(queue.failures(&"a"), failed + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_requeued_run_says_why_it_runs() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.get().await.unwrap().requeue_after(SECOND);
    let item = queue.get().await.unwrap();
    let reasons: Vec<_> = item.reasons().iter().map(|reason| (&*reason.source, reason.event)).collect();
    assert_eq!(reasons, [("worker", "requeued")]);
}

// Keys whose own code panics.

/// A key whose code panics where told, once for each time it is told.
struct Fragile {
    name: u32,
    panics: Arc<Panics>,
}

#[derive(Default)]
struct Panics {
    clone: AtomicU32,
    eq: AtomicU32,
    hash: AtomicU32,
    drop: AtomicU32,
}

fn panic_if(left: &AtomicU32) {
    let told = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
    assert!(!told, "on purpose");
}

impl Clone for Fragile {
    fn clone(&self) -> Self {
        panic_if(&self.panics.clone);
        Self { name: self.name, panics: Arc::clone(&self.panics) }
    }
}

impl PartialEq for Fragile {
    fn eq(&self, other: &Self) -> bool {
        panic_if(&self.panics.eq);
        self.name == other.name
    }
}

impl Eq for Fragile {}

impl Hash for Fragile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        panic_if(&self.panics.hash);
        self.name.hash(state);
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic_if(&self.panics.drop);
        }
    }
}

fn panicking<R>(call: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}

fn key(name: u32, panics: &Arc<Panics>) -> Fragile {
    Fragile { name, panics: Arc::clone(panics) }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_clone_costs_a_retry_and_not_the_key() {
    let panics = Arc::new(Panics::default());
    let queue = queue(RateLimit::exponential(SECOND, SECOND));
    queue.add(key(1, &panics));
    queue.add(key(2, &panics));
    panics.clone.store(1, SeqCst);
    assert!(panicking(|| queue.try_get().map(|item| item.done())));
    let stats = queue.stats();
    assert_eq!((stats.in_work, stats.delayed, stats.depth, stats.panics), (0, 1, 1, 1));
    for expected in [2, 1] {
        let item = timeout(2 * SECOND, queue.get()).await.expect("neither key is lost").unwrap();
        assert_eq!(item.name, expected, "the key that panicked does not hold up the other");
        item.done();
    }
    queue.shut_down();
    assert!(timeout(SECOND, queue.get()).await.expect("workers end after a shutdown").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_panicking_clone_lets_workers_end_after_a_shutdown() {
    let panics = Arc::new(Panics::default());
    let queue = WorkQueue::new();
    queue.add(key(1, &panics));
    panics.clone.store(1, SeqCst);
    assert!(panicking(|| queue.try_get().map(|item| item.done())));
    queue.add(key(1, &panics));
    queue.shut_down();
    let end = timeout(3600 * SECOND, async { while queue.get().await.is_some() {} }).await;
    assert!(end.is_ok(), "workers must end after a shutdown");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_drop_of_a_key_leaves_the_queue_whole() {
    let panics = Arc::new(Panics::default());
    let queue = WorkQueue::new();
    // Waiting, ready, in work, and a second add of a key that is there.
    queue.add_after(key(1, &panics), SECOND);
    queue.add_after(key(2, &panics), SECOND);
    queue.add(key(3, &panics));
    queue.add(key(4, &panics));
    panics.drop.store(1, SeqCst);
    let _ = panicking(|| queue.add(key(3, &panics)));
    assert_eq!(queue.len(), 2, "the second add has merged");
    let item = queue.try_get().unwrap();
    queue.add(key(3, &panics));
    let _ = panicking(|| item.done());
    assert_eq!(queue.len(), 2, "it was added while in work, so it runs again");

    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let mut names = Vec::new();
            while let Some(item) = queue.get().await {
                names.push(item.name);
                tokio::task::yield_now().await;
                item.done();
            }
            names
        }
    });
    let idle = tokio::spawn({
        let queue = queue.clone();
        async move { queue.idle().await }
    });
    // The worker finishes both; then the shutdown drops two delayed keys, and each drop panics.
    timeout(SECOND / 2, idle).await.expect("idle is noticed").unwrap();
    panics.drop.store(2, SeqCst);
    let _ = panicking(|| queue.shut_down());
    panics.drop.store(0, SeqCst);
    assert_eq!(timeout(SECOND, worker).await.expect("the worker ends").unwrap(), [4, 3]);
    assert_eq!((queue.stats().delayed, queue.stats().in_work), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_panicking_drop_at_the_end_of_a_run_is_noticed_by_a_drain() {
    let panics = Arc::new(Panics::default());
    let queue = WorkQueue::new();
    queue.add(key(1, &panics));
    let item = queue.try_get().unwrap();
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    tokio::task::yield_now().await;
    panics.drop.store(1, SeqCst);
    let _ = panicking(|| item.done());
    assert_eq!(timeout(SECOND, drain).await.expect("the drain ends").unwrap(), Drained::Complete);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_comparison_or_hash_costs_its_own_call_only() {
    let panics = Arc::new(Panics::default());
    let queue = WorkQueue::new();
    queue.add(key(1, &panics));
    // A delayed key becomes due in the call that panics: a sleeping worker is woken all the same.
    queue.pause();
    let names = Arc::new(Mutex::new(Vec::new()));
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (queue, names) = (queue.clone(), Arc::clone(&names));
            tokio::spawn(async move {
                let item = queue.get().await.unwrap();
                names.lock().unwrap().push(item.name);
                item.done();
            })
        })
        .collect();
    for point in [&panics.eq, &panics.hash] {
        point.store(1, SeqCst);
        assert!(panicking(|| queue.add(key(1, &panics))));
    }
    queue.add(key(2, &panics));
    queue.resume();
    for worker in workers {
        timeout(SECOND, worker).await.expect("each key has its worker").unwrap();
    }
    assert_eq!(*names.lock().unwrap(), [1, 2]);
}
