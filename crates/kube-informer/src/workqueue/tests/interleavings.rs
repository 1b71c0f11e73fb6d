//! Small scenes of a few threads, played in thousands of orders under shuttle: everything that can come between two
//! locked sections does, sooner or later.
//!
//! A thread that is never woken shows as a deadlock. A failure prints the schedule that led to it; `shuttle::replay` with
//! the scene and that schedule plays it again. `SHUTTLE_RANDOM_SEED` explores other orders than those of every day.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::Poll;

use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::Barrier;
use shuttle::thread::{self, JoinHandle};

use super::*;

const SEED: u64 = 7;
const ORDERS: usize = 1500;

#[test]
fn a_key_has_one_worker_at_a_time_and_no_add_is_lost() {
    explore(|| {
        let queue = WorkQueue::new();
        let keys: Arc<[Watched; 2]> = Arc::default();
        let workers = [0, 1].map(|_| worker(&queue, &keys));
        let adders = [0, 1].map(|first| {
            let (queue, keys) = (queue.clone(), keys.clone());
            thread::spawn(move || {
                for key in [first, 1 - first, first] {
                    keys[key].wanted.fetch_add(1, SeqCst);
                    queue.add(key);
                }
            })
        });
        join(adders);
        assert_eq!(block_on(queue.drain()), Drained::Complete);
        join(workers);
        for key in &*keys {
            assert_eq!(key.seen.load(SeqCst), key.wanted.load(SeqCst), "the last change was seen by a run");
        }
    });
}

#[test]
fn however_often_a_key_is_added_while_in_work_it_runs_once_more() {
    explore(|| {
        let queue = WorkQueue::new();
        queue.add("key");
        let first = take(&queue);
        let runs = workers_that_count(&queue, 2);
        join([0, 1].map(|_| {
            let queue = queue.clone();
            thread::spawn(move || queue.add("key"))
        }));
        assert!(runs.0.lock().unwrap().is_empty(), "the first run is not over");
        first.done();
        assert_eq!(block_on(queue.drain()), Drained::Complete);
        assert_eq!(runs.join(), BTreeMap::from([("key", 1)]));
    });
}

#[test]
fn what_fails_runs_again_and_what_is_added_meanwhile_joins_it() {
    explore(|| {
        let now = RateLimit::exponential(Duration::ZERO, Duration::ZERO);
        let queue = WorkQueue::with_config(WorkQueueConfig { retry: now, ..WorkQueueConfig::default() });
        queue.add("key");
        let first = take(&queue);
        let adder = {
            let queue = queue.clone();
            thread::spawn(move || queue.add("key"))
        };
        let runs = workers_that_count(&queue, 1);
        first.retry();
        join([adder]);
        assert_eq!(block_on(queue.drain()), Drained::Complete);
        let runs = runs.join()["key"];
        assert!((1..=2).contains(&runs), "once for both, or once for each: {runs}");
    });
}

#[test]
fn a_cancelled_worker_leaves_its_key_to_the_next() {
    explore(|| {
        let queue = WorkQueue::<&str>::new();
        let impatient = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut get = pin!(queue.get());
                let polled =
                    block_on(std::future::poll_fn(|context| Poll::Ready(get.as_mut().poll(context))));
                // A wake-up that comes here is for nobody, and has to go to the other worker.
                thread::yield_now();
                let Poll::Ready(Some(item)) = polled else { return false };
                item.done();
                true
            })
        };
        let runs = workers_that_count(&queue, 1);
        queue.add("key");
        let taken = impatient.join().unwrap();
        block_on(queue.idle());
        queue.shut_down();
        let others = runs.join().get("key").copied().unwrap_or(0);
        assert_eq!(u32::from(taken) + others, 1, "one of the two has worked on it");
    });
}

#[test]
fn a_dropped_item_is_retried_and_none_of_its_adds_is_lost() {
    explore(|| {
        let now = RateLimit::exponential(Duration::ZERO, Duration::ZERO);
        let queue = WorkQueue::with_config(WorkQueueConfig { retry: now, ..WorkQueueConfig::default() });
        queue.add("key");
        let first = take(&queue);
        let runs = workers_that_count(&queue, 2);
        let adder = {
            let queue = queue.clone();
            thread::spawn(move || queue.add("key"))
        };
        // As in a task that is aborted.
        let dropper = thread::spawn(move || drop(first));
        join([adder, dropper]);
        block_on(queue.idle());
        assert_eq!(queue.failures(&"key"), 0, "the retry succeeded");
        queue.shut_down();
        let runs = runs.join().get("key").copied().unwrap_or(0);
        assert!((1..=2).contains(&runs), "once for both, or once for each: {runs}");
        assert_eq!((queue.stats().retries, queue.stats().dropped), (1, 1));
    });
}

#[test]
fn a_shutdown_reaches_every_worker_and_everything_accepted_is_done() {
    explore(|| {
        let queue = WorkQueue::new();
        let runs = workers_that_count(&queue, 3);
        let adder = {
            let queue = queue.clone();
            thread::spawn(move || [1, 2].map(|key| queue.add(key)))
        };
        queue.shut_down();
        adder.join().unwrap();
        let done: u32 = runs.join().values().sum();
        let stats = queue.stats();
        assert_eq!((u64::from(done), stats.adds + stats.discarded), (stats.adds, 2));
    });
}

#[test]
fn as_many_workers_wake_as_there_are_keys() {
    explore(|| {
        let queue = WorkQueue::<u32>::new();
        // Neither run ends before the other has begun.
        let both = Arc::new(Barrier::new(2));
        let workers = [0, 1].map(|_| {
            let (queue, both) = (queue.clone(), both.clone());
            thread::spawn(move || {
                while let Some(item) = block_on(queue.get()) {
                    both.wait();
                    item.done();
                }
            })
        });
        join([1, 2].map(|key| {
            let queue = queue.clone();
            thread::spawn(move || queue.add(key))
        }));
        block_on(queue.idle());
        queue.shut_down();
        join(workers);
    });
}

#[test]
fn a_drain_ends_whoever_shuts_down_meanwhile() {
    explore(|| {
        let queue = WorkQueue::new();
        queue.add("key");
        let first = take(&queue);
        queue.add("key");
        let runs = workers_that_count(&queue, 2);
        let drain = {
            let queue = queue.clone();
            thread::spawn(move || block_on(queue.drain()))
        };
        queue.shut_down();
        first.done();
        let drained = drain.join().unwrap();
        assert!(matches!(drained, Drained::Complete | Drained::Aborted));
        assert_eq!(runs.join(), BTreeMap::from([("key", 1)]));
    });
}

#[test]
fn resuming_wakes_those_who_fell_asleep_while_it_was_paused() {
    explore(|| {
        let queue = WorkQueue::new();
        queue.pause();
        let runs = workers_that_count(&queue, 2);
        let adder = {
            let queue = queue.clone();
            thread::spawn(move || [1, 2].map(|key| queue.add(key)))
        };
        queue.resume();
        adder.join().unwrap();
        block_on(queue.idle());
        queue.shut_down();
        assert_eq!(runs.join(), BTreeMap::from([(1, 1), (2, 1)]));
    });
}

/// Plays a scene in many orders: in random ones, and in such as need few but badly timed changes of thread.
fn explore(scene: fn()) {
    play(scene, RandomScheduler::new_from_seed(SEED, ORDERS));
    play(scene, PctScheduler::new_from_seed(SEED, 3, ORDERS));
}

fn play(scene: fn(), scheduler: impl Scheduler + 'static) {
    shuttle::Runner::new(scheduler, shuttle::Config::new()).run(scene);
}

/// What is known of one key, apart from the queue.
#[derive(Default)]
struct Watched {
    in_work: AtomicBool,
    /// Counts changes, each of which is followed by an add.
    wanted: AtomicU32,
    /// The last change that a run has seen when it started.
    seen: AtomicU32,
}

fn worker(queue: &WorkQueue<usize>, keys: &Arc<[Watched; 2]>) -> JoinHandle<()> {
    let (queue, keys) = (queue.clone(), keys.clone());
    thread::spawn(move || {
        while let Some(item) = block_on(queue.get()) {
            let key = &keys[*item];
            assert!(!key.in_work.swap(true, SeqCst), "two workers have one key");
            let wanted = key.wanted.load(SeqCst);
            thread::yield_now();
            key.seen.store(wanted, SeqCst);
            key.in_work.store(false, SeqCst);
            item.done();
        }
    })
}

/// How often each key has run, and the workers that count it.
struct Runs<T>(Arc<Mutex<BTreeMap<T, u32>>>, Vec<JoinHandle<()>>);

fn workers_that_count<T: Ord + Eq + Hash + Copy + Send + 'static>(
    queue: &WorkQueue<T>,
    workers: usize,
) -> Runs<T> {
    let runs: Arc<Mutex<BTreeMap<T, u32>>> = Arc::default();
    let worker = |_| {
        let (queue, runs) = (queue.clone(), runs.clone());
        thread::spawn(move || {
            while let Some(item) = block_on(queue.get()) {
                *runs.lock().unwrap().entry(*item).or_default() += 1;
                item.done();
            }
        })
    };
    let workers = (0..workers).map(worker).collect();
    Runs(runs, workers)
}

impl<T: Ord + Clone> Runs<T> {
    /// Waits until the queue has sent all workers home.
    fn join(self) -> BTreeMap<T, u32> {
        join(self.1);
        self.0.lock().unwrap().clone()
    }
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}
