//! When a handler has synced, and how it gets the first list.

mod scenario;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_informer::source::ScriptedSource;
use kube_informer::{Event, HandlerOptions, InformerOptions, Kind, Registration, SharedInformer};
use scenario::{paged, settle};
use serde_json::Value;
use tokio::sync::Semaphore;

fn pods() -> Kind {
    Kind::new("v1", "Pod", "pods", true)
}

/// The last undelivered initial add disappears together with its delete, between two callbacks.
#[tokio::test(start_paused = true)]
async fn handler_syncs_when_the_last_initial_add_is_deleted() {
    let source = ScriptedSource::new();
    source.lists(500, &[("a", 1), ("b", 2), ("c", 3)]);
    let watch = source.live_watch();
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged());
    let calls = Arc::new(AtomicUsize::new(0));
    let (count, sender) = (Arc::clone(&calls), watch.clone());
    let options = HandlerOptions::default().buffer_len(1).no_resync();
    let registration = informer.add_handler_with(options, move |_: Event<Value>| {
        let call = count.fetch_add(1, Ordering::SeqCst) + 1;
        let sender = sender.clone();
        async move {
            if call == 2 {
                sender.send(ScriptedSource::event("DELETED", "c", 501)).unwrap();
                tokio::task::yield_now().await;
                // Uses up the task's budget, so that the process loop runs before the next delivery.
                for _ in 0..128 {
                    tokio::task::consume_budget().await;
                }
            }
        }
    });
    informer.start();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!((informer.snapshot().len(), registration.depth()), (2, 0));
    assert!(
        registration.has_synced(),
        "{:?} after {} calls",
        registration.stats(),
        calls.load(Ordering::SeqCst)
    );
}

/// The same on real threads, with the default buffer. The timeout only ends a test that would hang.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_syncs_on_threads_while_initial_objects_vanish() {
    const OBJECTS: usize = 1153;
    let names: Vec<String> = (0..OBJECTS).map(|n| format!("p{n:05}")).collect();
    let objects: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..60 {
        let source = ScriptedSource::new();
        source.lists(500, &objects);
        let watch = source.live_watch();
        let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged());
        let (mut calls, delete_at) = (0, OBJECTS - 1 - random.usize(1..150));
        let (sender, last) = (watch.clone(), names[OBJECTS - 1].clone());
        let options = HandlerOptions::default().no_resync();
        let registration = informer.add_handler_with(options, move |_: Event<Value>| {
            if calls == delete_at {
                sender.send(ScriptedSource::event("DELETED", &last, 501)).unwrap();
            }
            calls += 1;
            std::future::ready(())
        });
        informer.start();
        let synced = tokio::time::timeout(Duration::from_secs(20), registration.wait_for_sync()).await;
        assert!(synced.is_ok(), "round {round}: {:?}", registration.stats());
        drop(watch);
    }
}

/// A handler that waits for a permit before each callback returns, and its log.
struct Slow {
    registration: Registration,
    gate: Arc<Semaphore>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Slow {
    fn join(informer: &SharedInformer<Value>, buffer_len: usize) -> Self {
        let (gate, log) = (Arc::new(Semaphore::new(0)), Arc::<Mutex<Vec<String>>>::default());
        let (permits, lines) = (Arc::clone(&gate), Arc::clone(&log));
        let options = HandlerOptions::default().buffer_len(buffer_len);
        let registration = informer.add_handler_with(options, move |event: Event<Value>| {
            lines.lock().unwrap().push(scenario_line(&event));
            let permits = Arc::clone(&permits);
            async move { permits.acquire().await.unwrap().forget() }
        });
        Self { registration, gate, log }
    }

    async fn finish(&self) -> Vec<String> {
        self.gate.add_permits(1_000_000);
        settle().await;
        self.log.lock().unwrap().clone()
    }
}

fn scenario_line(event: &Event<Value>) -> String {
    match event {
        Event::Added { object, initial } => format!("add {}@{} {initial}", object.name(), object.version()),
        Event::Updated { old, new } => format!("update {}@{}→{}", old.name(), old.version(), new.version()),
        Event::Deleted(gone) => format!("delete {}@{}", gone.object.name(), gone.object.version()),
    }
}

/// A slow handler gets the first list object by object and every change after it, whenever it joined.
#[tokio::test(start_paused = true)]
async fn handlers_added_before_and_after_the_list_get_the_same_events() {
    let source = ScriptedSource::new();
    source.lists(9, &[("a", 1), ("b", 2), ("c", 3), ("d", 4)]);
    let watch = source.live_watch();
    let informer = SharedInformer::<Value>::over(pods(), source, paged());
    let before = Slow::join(&informer, 2);
    informer.start();
    informer.wait_for_sync().await.unwrap();
    let after = Slow::join(&informer, 2);
    for (kind, name, version) in [
        ("MODIFIED", "c", 10),
        ("DELETED", "d", 11),
        ("ADDED", "e", 12),
        ("MODIFIED", "e", 13),
        ("MODIFIED", "c", 14),
    ] {
        watch.send(ScriptedSource::event(kind, name, version)).unwrap();
        settle().await;
    }
    assert!(!before.registration.has_synced() && !after.registration.has_synced());
    let expected = [
        "add a@1 true",
        "add b@2 true",
        "add c@3 true",
        "add d@4 true",
        "update c@3→10",
        "delete d@11",
        "add e@13 false",
        "update c@10→14",
    ];
    assert_eq!(after.finish().await, expected);
    assert_eq!(before.finish().await, expected);
    assert!(before.registration.has_synced() && after.registration.has_synced());
}

/// The list is read from the store object by object: none of it waits in a handler's buffer.
#[tokio::test(start_paused = true)]
async fn first_lists_are_never_queued_for_a_handler() {
    let names: Vec<String> = (0..5_000).map(|n| format!("p{n:05}")).collect();
    let objects: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let source = ScriptedSource::new();
    source.lists(500, &objects);
    let watch = source.live_watch();
    let informer = SharedInformer::<Value>::over(pods(), source, paged());
    let slow = Slow::join(&informer, 1024);
    informer.start();
    informer.wait_for_sync().await.unwrap();
    settle().await;
    let stats = slow.registration.stats();
    assert_eq!((stats.depth, stats.buffered, stats.has_synced), (4_999, 0, false));
    watch.send(ScriptedSource::event("DELETED", "p04999", 501)).unwrap();
    settle().await;
    let stats = slow.registration.stats();
    assert_eq!((stats.depth, stats.buffered), (5_000, 1));
    slow.gate.add_permits(1_000_000);
    slow.registration.wait_for_sync().await;
    settle().await;
    let log = slow.log.lock().unwrap();
    assert_eq!(
        (log.len(), log[0].as_str(), log[5_000].as_str()),
        (5_001, "add p00000@1 true", "delete p04999@501")
    );
}

/// Each call of a builder's method narrows what the ones before it left.
#[tokio::test(start_paused = true)]
async fn filters_and_selectors_narrow_with_every_call() {
    let source = ScriptedSource::new();
    source.lists(9, &[("a", 1), ("b", 2), ("ab", 3)]);
    let informer = SharedInformer::<Value>::over(pods(), source, paged());
    let names = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&names);
    let options = HandlerOptions::default()
        .filter(|object| object.name().contains('a'))
        .filter(|object| object.name().contains('b'));
    let registration = informer.add_handler_with(options, move |event: Event<Value>| {
        seen.lock().unwrap().push(event.object().name().to_owned());
        std::future::ready(())
    });
    informer.start();
    registration.wait_for_sync().await;
    assert_eq!(*names.lock().unwrap(), ["ab"]);
    let twice =
        InformerOptions::default().labels("app=web").labels("").labels("tier").fields("a=b").fields("c=d");
    let text = format!("{twice:?}");
    assert!(text.contains(r#""app=web,tier""#) && text.contains(r#""a=b,c=d""#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn every_object_is_resynced_however_many_there_are() {
    let source = ScriptedSource::new();
    let names: Vec<String> = (0..1001).map(|number| format!("pod-{number:04}")).collect();
    let objects: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 1)).collect();
    source.lists(500, &objects);
    let _watch = source.live_watch();
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged());
    let updates = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&updates);
    let options = HandlerOptions::default().resync_every(Duration::from_mins(1));
    let _registration = informer.add_handler_with(options, move |event: Event<Value>| {
        count.fetch_add(usize::from(matches!(event, Event::Updated { .. })), Ordering::SeqCst);
        std::future::ready(())
    });
    informer.start();
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(updates.load(Ordering::SeqCst), 1001);
}
