//! Producers, workers, cancelled workers, pauses and delays all at once: nothing is lost, nothing runs twice at a time.
//!
//! Runs on one thread, where a seed decides who goes when and failures replay; and on several, where the machine does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, yield_now};

use super::*;

const KEYS: usize = 5;
const WORKERS: u64 = 4;
const PRODUCERS: u64 = 3;

/// What is known of one key, apart from the queue.
#[derive(Default)]
struct Watched {
    in_work: AtomicBool,
    /// Counts changes, each of which was followed by an add.
    wanted: AtomicU64,
    /// The last change that a run has seen when it started.
    seen: AtomicU64,
}

type World = Arc<[Watched; KEYS]>;

async fn produce(queue: WorkQueue<usize>, world: World, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..40 {
        let key = random.usize(..KEYS);
        world[key].wanted.fetch_add(1, SeqCst);
        let priority = random.i8(-1..=1);
        let after = if random.bool() { Duration::ZERO } else { Duration::from_micros(random.u64(1..3000)) };
        queue.add_with(key, Add { priority, after, cause: None });
        match random.u8(..20) {
            0 => {
                queue.pause();
                dither(&mut random).await;
                queue.resume();
            }
            1 => tokio::time::sleep(ms(1)).await,
            _ => dither(&mut random).await,
        }
    }
}

async fn work(queue: WorkQueue<usize>, world: World, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        // Now and then somebody loses patience and asks again.
        let patience = random.u8(..8);
        let got = tokio::select! {
            biased;
            () = async { for _ in 0..patience { yield_now().await } }, if patience < 4 => continue,
            got = queue.get() => got,
        };
        let Some(item) = got else { return };
        let watched = &world[*item];
        assert!(!watched.in_work.swap(true, SeqCst), "key {} was handed out twice", *item);
        watched.seen.store(watched.wanted.load(SeqCst), SeqCst);
        dither(&mut random).await;
        watched.in_work.store(false, SeqCst);
        match random.u8(..5) {
            0 => _ = item.retry(),
            4 => drop(item), // as a cancelled run does: it comes again
            1 if item.failures() == 0 => item.requeue_after(Duration::from_micros(random.u64(..2000))),
            _ => item.done(),
        }
    }
}

async fn dither(random: &mut fastrand::Rng) {
    for _ in 0..random.u8(..4) {
        yield_now().await;
    }
}

async fn scenario(seed: u64) {
    let retry = RateLimit::exponential(Duration::from_micros(500), ms(5));
    let queue = WorkQueue::with_config(WorkQueueConfig { retry, ..Default::default() });
    let world = World::default();
    let (mut producers, mut workers) = (JoinSet::new(), JoinSet::new());
    for n in 0..WORKERS {
        workers.spawn(work(queue.clone(), world.clone(), seed * 100 + n));
    }
    for n in 0..PRODUCERS {
        producers.spawn(produce(queue.clone(), world.clone(), seed * 100 + 50 + n));
    }
    while let Some(done) = producers.join_next().await {
        done.unwrap();
    }
    // Every change is seen by a run that started after it, with nobody looking after the queue but its workers.
    let caught_up = || world.iter().all(|key| key.seen.load(SeqCst) == key.wanted.load(SeqCst));
    while !caught_up() {
        assert!(workers.try_join_next().is_none(), "a worker gave up");
        tokio::time::sleep(ms(1)).await;
    }
    assert_eq!(queue.drain().await, Drained::Complete);
    while let Some(done) = workers.join_next().await {
        done.unwrap();
    }
    let stats = queue.stats();
    assert_eq!((stats.depth, stats.in_work, stats.delayed, stats.panics), (0, 0, 0, 0));
    assert_eq!(stats.queue_latency.count(), stats.work_duration.count());
}

fn check(runtime: &Runtime, seed: u64) {
    // Ends by itself; the bound turns a hang into a failure that names its seed.
    let bounded = async { tokio::time::timeout(Duration::from_mins(1), scenario(seed)).await };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(bounded)));
    assert!(matches!(outcome, Ok(Ok(()))), "seed {seed} failed: {outcome:?}");
}

#[test]
fn nothing_is_lost_in_any_order_of_tasks() {
    for seed in 0..300 {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        check(&runtime, seed);
    }
}

#[test]
fn nothing_is_lost_on_several_threads() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    for seed in 0..50 {
        check(&runtime, seed);
    }
}

#[test]
fn workers_that_fall_asleep_during_an_add_are_woken() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    runtime.block_on(async {
        for round in 0..5000 {
            let queue = WorkQueue::new();
            // Each worker takes one key and never comes back, so none can stand in for another.
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    let queue = queue.clone();
                    tokio::spawn(async move { queue.get().await.map(finish).is_some() })
                })
                .collect();
            (0..round % 50).for_each(|_| std::hint::spin_loop());
            (0..3).for_each(|key| queue.add(key));
            for worker in workers {
                let woken = tokio::time::timeout(Duration::from_mins(1), worker).await;
                assert!(woken.expect("a key was added for each worker").unwrap());
            }
        }
    });
}
