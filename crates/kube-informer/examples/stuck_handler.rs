//! A handler that never returns beside one that does: the second hears everything, and memory stays bounded.
//!
//! `cargo run --release -p kube-informer --example stuck_handler` sends 1,000,000 events on 10,000 objects (`--quick`:
//! 100,000 on 1,000), and checks that what waits for the stuck handler is bounded by the number of objects, not of events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube_informer::source::ScriptedSource;
use kube_informer::{Event, HandlerOptions, InformerOptions, Kind, SharedInformer};
use serde_json::Value;
use tokio::sync::Notify;

/// How many events are under way at once: fewer than a handler's buffer holds, so that who keeps pace hears every one.
const WINDOW: u64 = 500;
const BUFFER_LEN: usize = 1024;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (events, keys) = if quick { (100_000, 1_000) } else { (1_000_000, 10_000) };
    let (depth, merged) = run(events, keys).await;
    println!("{events} events on {keys} objects: one handler heard them all;");
    println!("for the one that never returned {depth} wait, {merged} were merged into those");
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        println!("memory of this process at its peak: {}", peak.unwrap_or("unknown").trim());
    }
}

/// Sends events on a number of objects, and says what waits for the stuck handler: how much, and how much was merged.
pub(crate) async fn run(events: u64, keys: u64) -> (usize, u64) {
    let source = ScriptedSource::new();
    source.lists(1, &[]);
    let feed = source.live_watch();
    // A source that has no streaming lists would be asked for one first; ours has only what the script says.
    let mut options = InformerOptions::default();
    options = options.reflector(kube_informer::reflector::ReflectorConfig {
        streaming_lists: false,
        ..Default::default()
    });
    let informer = SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source, options);
    let limits = || HandlerOptions::default().buffer_len(BUFFER_LEN);
    let stuck =
        informer.add_handler_with(limits().name("stuck"), |_: Event<Value>| std::future::pending::<()>());
    let heard = Arc::new((AtomicU64::new(0), Notify::new()));
    let counter = Arc::clone(&heard);
    let brisk = informer.add_handler_with(limits().name("brisk"), move |_: Event<Value>| {
        counter.0.fetch_add(1, Ordering::Relaxed);
        counter.1.notify_one();
        std::future::ready(())
    });
    informer.start();
    informer.wait_for_sync().await.expect("the source never fails");

    let mut sent = 0;
    while sent < events {
        for number in sent..events.min(sent + WINDOW) {
            // Round and round over the objects: first each is added, then changed again and again.
            let kind = if number < keys { "ADDED" } else { "MODIFIED" };
            let key = format!("default/pod-{}", number % keys);
            feed.send(ScriptedSource::event(kind, &key, number + 2)).expect("the watch is open");
        }
        sent = events.min(sent + WINDOW);
        while heard.0.load(Ordering::Relaxed) < sent {
            heard.1.notified().await;
        }
    }

    let (stuck, brisk) = (stuck.stats(), brisk.stats());
    assert_eq!((brisk.depth, brisk.merged), (0, 0), "the handler that returns hears every event");
    assert!(stuck.busy_for.is_some() && stuck.delivered == 0, "the stuck one is still at its first event");
    let bound = BUFFER_LEN + keys as usize;
    assert!(stuck.depth <= bound, "{} events wait, more than {bound}", stuck.depth);
    assert_eq!(stuck.depth as u64 + stuck.merged + 1, events, "nothing is lost: waiting, merged, or in hand");
    assert_eq!(informer.stats().queue.depth, 0, "the store has everything");
    (stuck.depth, stuck.merged)
}
