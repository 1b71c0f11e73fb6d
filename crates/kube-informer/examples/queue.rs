//! A job runner on the work queue alone: no cluster, no informers.
//!
//! `cargo run -p kube-informer --example queue`
//!
//! Two workers share four jobs. One job fails twice and is retried later and later, one comes back every minute, one is
//! asked for three times and runs once, one is urgent. Time is virtual, so minutes pass at once and the program
//! prints, and checks, the same lines every time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_informer::workqueue::{Add, Cause, Drained, Item, RateLimit, WorkQueue, WorkQueueConfig};
use tokio::time::{Instant, sleep};

const EXPECTED: &str = "    0s worker 2 send-mail    timer: start ×1
    2s worker 1 page-oncall  alarm: fire ×1
    2s worker 1 fetch-feed   failed, again in 5s
    2s worker 2 build-index  button: click ×3
    4s worker 1 fetch-feed   failed, again in 3s
    7s worker 1 fetch-feed   failed, again in 10s
   17s worker 1 fetch-feed   worked after 3 failures
   60s worker 1 send-mail    worker: requeued ×1
  120s worker 1 send-mail    worker: requeued ×1
9 runs, 3 retries, 2 adds merged, 1 delay dropped at the end";

#[derive(Clone)]
struct Runner {
    queue: WorkQueue<&'static str>,
    start: Instant,
    log: Arc<Mutex<Vec<String>>>,
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let retry = RateLimit::exponential(Duration::from_secs(5), Duration::from_mins(5));
    let queue = WorkQueue::with_config(WorkQueueConfig { retry, ..Default::default() });
    let runner = Runner { queue: queue.clone(), start: Instant::now(), log: Arc::default() };

    queue.add_with("send-mail", because("timer", "start"));
    for _ in 0..3 {
        queue.add_with("build-index", because("button", "click"));
    }
    queue.add("fetch-feed");
    queue.add_with("page-oncall", Add { priority: 100, ..because("alarm", "fire") });

    let workers = [1, 2].map(|number| tokio::spawn(runner.clone().work(number)));
    // Somebody asks for the feed while it waits for its retry: it runs at once, and its retry comes no later for it.
    sleep(Duration::from_secs(4)).await;
    queue.add("fetch-feed");

    sleep(Duration::from_secs(150)).await;
    assert_eq!(queue.drain().await, Drained::Complete);
    for worker in workers {
        worker.await.expect("a worker never panics");
    }

    let stats = queue.stats();
    runner.log.lock().unwrap().push(format!(
        "{} runs, {} retries, {} adds merged, {} delay dropped at the end",
        stats.work_duration.count(),
        stats.retries,
        stats.merged,
        stats.discarded
    ));
    let log = runner.log.lock().unwrap().join("\n");
    println!("{log}");
    assert_eq!(log, EXPECTED);
}

impl Runner {
    async fn work(self, worker: u32) {
        while let Some(item) = self.queue.get().await {
            let job = *item;
            let result = self.run(item).await;
            let at = self.start.elapsed().as_secs();
            self.log.lock().unwrap().push(format!("{at:5}s worker {worker} {job:12} {result}"));
        }
    }

    /// Runs a job, and says how it went. A job that were cancelled here would be retried, because its item is dropped.
    async fn run(&self, item: Item<&'static str>) -> String {
        let reasons = reasons(&item);
        match *item {
            "fetch-feed" if self.start.elapsed() < Duration::from_secs(10) => {
                format!("failed, again in {}s", item.retry().as_secs())
            }
            "fetch-feed" => {
                let failures = item.failures();
                item.done();
                format!("worked after {failures} failures")
            }
            "send-mail" => {
                item.requeue_after(Duration::from_mins(1));
                reasons
            }
            _ => {
                sleep(Duration::from_secs(2)).await;
                item.done();
                reasons
            }
        }
    }
}

fn because(source: &str, event: &'static str) -> Add {
    Add { cause: Some(Cause::new(source, event)), ..Add::default() }
}

fn reasons(item: &Item<&'static str>) -> String {
    let list: Vec<_> = item
        .reasons()
        .iter()
        .map(|reason| format!("{}: {} ×{}", reason.source, reason.event, reason.count))
        .collect();
    list.join(", ")
}
