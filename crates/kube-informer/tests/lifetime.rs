//! Lives: who keeps an informer, what ends it, what waits and for how long.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Log, api, change, content, create, delete, line, server, settle};
use expect_test::expect;
use futures_core::future::BoxFuture;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_informer::backoff::BackoffConfig;
use kube_informer::delta_fifo::Scope;
use kube_informer::reflector::{Phase, ReflectorConfig};
use kube_informer::source::{
    Answer, ListRequest, ListWatch, Script, ScriptedSource, SourceError, WatchRequest,
};
use kube_informer::{
    Event, HandlerOptions, InformerOptions, Kind, ObjectKey, SharedInformer, SharedInformerFactory, blocking,
};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, Verb};
use serde_json::Value;

#[tokio::test(start_paused = true)]
async fn the_last_handle_dropped_stops_the_watch() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let lister = informer.lister();
    let seen = informer.add_handler(Log::default().handler());
    drop(informer);
    settle().await;
    assert_eq!(server.stats().open_watches, 1, "a lister and a registration keep it");
    drop(seen);
    settle().await;
    assert_eq!(server.stats().open_watches, 1, "a lister keeps it");
    let (snapshot, object) = (lister.snapshot(), lister.get("default/a").unwrap());
    drop(lister);
    settle().await;
    assert_eq!(server.stats().open_watches, 0, "a snapshot and an object do not");
    assert_eq!(factory.running_tasks(), 0);
    assert_eq!((snapshot.len(), object.name()), (1, "a"), "which can be read all the same");
    assert!(factory.stats().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_detached_handler_keeps_its_informer_until_the_factory_ends() {
    let server = server();
    let api = api(&server);
    let factory = SharedInformerFactory::new(server.client());
    let log = Log::default();
    factory.informer::<ConfigMap>().add_handler(log.handler()).detach();
    factory.start();
    settle().await;
    create(&api, "a", "1").await;
    settle().await;
    assert_eq!(log.take(), "add a=1\n");
    factory.shutdown().await.unwrap();
    assert_eq!((factory.running_tasks(), server.stats().open_watches), (0, 0));
    create(&api, "b", "1").await;
    settle().await;
    assert_eq!(log.take(), "");
}

#[tokio::test(start_paused = true)]
async fn a_handler_removed_during_a_delete_gets_no_add() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    let (lines, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(tokio::sync::Notify::new()));
    let (writes, waits) = (Arc::clone(&lines), Arc::clone(&gate));
    let seen = informer.add_handler(move |event: Event<ConfigMap>| {
        writes.lock().unwrap().push(line(&event));
        let gate = Arc::clone(&waits);
        async move {
            if matches!(event, Event::Deleted(_)) {
                gate.notified().await;
            }
        }
    });
    factory.start();
    factory.wait_for_sync().await.unwrap();
    // The informer misses that the object is recreated: the handler is owed a delete and an add at once.
    informer.stop().await;
    delete(&api, "a").await;
    create(&api, "a", "2").await;
    informer.start();
    settle().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(*lines.lock().unwrap(), ["add a=1 (initial)", "delete a=1 (missed)"]);
    drop(seen);
    gate.notify_one();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(lines.lock().unwrap().len(), 2, "the add waits behind the delete and is not delivered");
}

#[tokio::test(start_paused = true)]
async fn one_informer_is_stopped_and_started_again() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    create(&api, "b", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    let log = Log::default();
    let _seen = informer.add_handler(log.handler());
    assert!(!informer.is_running());
    factory.start();
    informer.wait_for_sync().await.unwrap();
    settle().await;
    log.take();
    for round in 1..=3 {
        assert!(informer.is_running());
        informer.stop().await;
        assert!(!informer.is_running());
        assert_eq!(informer.status()[0].phase, Phase::Stopped);
        assert_eq!(server.stats().open_watches, 0);
        change(&api, "a", &format!("while stopped {round}")).await;
        settle().await;
        assert_eq!(log.take(), "", "it hears nothing while stopped");
        informer.start();
        informer.start();
        settle().await;
        assert_eq!(log.len(), 1);
        log.take();
        assert_eq!(server.stats().open_watches, 1);
    }
    delete(&api, "b").await;
    settle().await;
    assert_eq!(log.take(), "delete b=1\n");
    assert_eq!(content(&informer), "a=while stopped 3");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_three_lives() {
    for _ in 0..3 {
        let server = server();
        let factory = SharedInformerFactory::new(server.client());
        let informer = factory.informer::<ConfigMap>();
        let _seen = informer.add_handler(Log::default().handler());
        let _events = informer.events(HandlerOptions::default());
        factory.start();
        factory.wait_for_sync().await.unwrap();
        assert!(factory.running_tasks() > 0);
        factory.shutdown().await.unwrap();
        assert_eq!((factory.running_tasks(), server.stats().open_watches), (0, 0));
        assert!(!informer.is_running());
        factory.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_is_bounded_and_names_who_did_not_return() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    let stuck = |_: Event<ConfigMap>| std::future::pending::<()>();
    informer.add_handler_with(HandlerOptions::default().name("stuck"), stuck).detach();
    let _well = informer.add_handler(Log::default().handler());
    let slow = |_: Event<ConfigMap>| tokio::time::sleep(Duration::from_secs(3));
    let _slow = informer.add_handler_with(HandlerOptions::default().name("slow"), slow);
    factory.start();
    settle().await;
    let begun = tokio::time::Instant::now();
    let error = factory.shutdown_within(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.handlers, ["stuck"]);
    assert_eq!(error.to_string(), "these handlers did not return in time and were ended: stuck");
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    assert_eq!(factory.running_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_shutdown_nothing_starts_and_nobody_waits_for_ever() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    let mut events = informer.events(HandlerOptions::default());
    factory.start();
    factory.wait_for_sync().await.unwrap();
    factory.shutdown().await.unwrap();
    // The stream ends, a new handler hears nothing and says so, waiting for sync ends.
    while events.next().await.is_some() {}
    let log = Log::default();
    let late = informer.add_handler(log.handler());
    late.wait_for_sync().await;
    assert!(!late.has_synced() && log.len() == 0);
    late.close().await;
    informer.start();
    factory.start();
    let other = factory.informer_with::<ConfigMap>(InformerOptions::default().labels("a=b")).unwrap();
    let error = other.wait_for_sync().await.unwrap_err();
    assert_eq!(error.to_string(), "v1 ConfigMap has not synced: its factory was shut down");
    settle().await;
    assert_eq!((factory.running_tasks(), server.stats().open_watches), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_sync_says_why_it_was_in_vain() {
    let source = ScriptedSource::new();
    for _ in 0..50 {
        let body = br#"{"kind":"Status","message":"configmaps is forbidden: User \"Jane\" cannot list","reason":"Forbidden","code":403}"#;
        source.on_list(Script::Fail(SourceError::from_response(403, body, None)));
    }
    let config = ReflectorConfig { streaming_lists: false, seed: Some(1), ..ReflectorConfig::default() };
    let options = InformerOptions::default().reflector(config);
    let informer = SharedInformer::<Value>::over(Kind::of::<ConfigMap>(), source, options);
    expect!["v1 ConfigMap has not synced: it does not run; start() it first"]
        .assert_eq(&informer.wait_for_sync().await.unwrap_err().to_string());
    informer.start();
    let error = informer.wait_for_sync_within(Duration::from_secs(20)).await.unwrap_err();
    expect![[r#"v1 ConfigMap has not synced: all namespaces is waiting (HTTP 403: configmaps is forbidden: User "Jane" cannot list)"#]].assert_eq(&error.to_string());
    let status = &informer.status()[0];
    assert!(status.counts.errors > 3 && status.last_error_at.is_some() && status.version.is_none());
    let waits = informer.clone();
    let waiting = tokio::spawn(async move { waits.wait_for_sync().await });
    settle().await;
    informer.stop().await;
    assert!(waiting.await.unwrap().is_err(), "who waits learns of the stop");
}

#[tokio::test(start_paused = true)]
async fn one_can_wait_for_a_condition_a_key_and_a_version() {
    let server = server();
    let api = api(&server);
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    factory.start();
    let (one, two, three) = (informer.clone(), informer.clone(), informer.clone());
    let key = ObjectKey::namespaced("default", "b");
    let by_key = tokio::spawn(async move { one.wait_for_key(&key).await });
    let both = tokio::spawn(async move { two.wait_for(|snapshot| snapshot.len() == 2).await });
    settle().await;
    create(&api, "a", "1").await;
    settle().await;
    assert!(!by_key.is_finished() && !both.is_finished());
    let made = create(&api, "b", "1").await;
    let version = made.metadata.resource_version.unwrap().into();
    let at = three.wait_for_version(&Scope::CLUSTER, &version).await;
    assert!(at.contains("default/b"), "one reads what one has written");
    assert_eq!(by_key.await.unwrap().get().unwrap().data.as_ref().unwrap()["v"], "1");
    assert_eq!(both.await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn handlers_come_and_go_while_events_flow() {
    let server = server();
    let api = api(&server);
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    factory.start();
    let mut handlers = Vec::new();
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..300 {
        match random.u8(0..4) {
            0 => handlers.push(informer.add_handler(Log::default().handler())),
            1 if !handlers.is_empty() => drop(handlers.swap_remove(random.usize(0..handlers.len()))),
            2 => {
                create(&api, &format!("o{round}"), "1").await;
            }
            _ => settle().await,
        }
    }
    let log = Log::default();
    let last = informer.add_handler(log.handler());
    settle().await;
    last.wait_for_sync().await;
    assert_eq!(log.len(), informer.snapshot().len());
    assert_eq!(informer.stats().handlers.len(), handlers.len() + 1);
    factory.shutdown().await.unwrap();
    assert_eq!(factory.running_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_registration_belongs_to_its_own_informer_only() {
    let server = server();
    let api = api(&server);
    let factory = SharedInformerFactory::new(server.client());
    let one = factory.informer::<ConfigMap>();
    let other = factory.informer_with::<ConfigMap>(InformerOptions::default().labels("app")).unwrap();
    let (kept, gone) = (Log::default(), Log::default());
    let _kept = one.add_handler(kept.handler());
    let leaving = other.add_handler(gone.handler());
    factory.start();
    factory.wait_for_sync().await.unwrap();
    drop(leaving);
    create(&api, "a", "1").await;
    settle().await;
    assert_eq!((kept.len(), gone.len()), (1, 0));
    assert_eq!((one.stats().handlers.len(), other.stats().handlers.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_blocking_handler_runs_off_the_loop_and_in_order() {
    let server = server();
    let api = api(&server);
    for name in ["a", "b", "c"] {
        create(&api, name, "1").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hear = Arc::clone(&heard);
    let seen = factory.informer::<ConfigMap>().add_handler(blocking(move |event: Event<ConfigMap>| {
        std::thread::yield_now();
        hear.lock().unwrap().push(event.object().name().to_owned());
        assert_ne!(event.object().name(), "b", "a panic on a thread of its own");
    }));
    factory.start();
    seen.wait_for_sync().await;
    assert_eq!(*heard.lock().unwrap(), ["a", "b", "c"]);
    assert_eq!(seen.stats().panics, 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_registration_does_not_wait_for_the_callback_that_runs() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let done = Arc::new(Mutex::new(false));
    let end = Arc::clone(&done);
    let seen = factory.informer::<ConfigMap>().add_handler(move |_: Event<ConfigMap>| {
        let end = Arc::clone(&end);
        async move {
            tokio::time::sleep(Duration::from_secs(9)).await;
            *end.lock().unwrap() = true;
            panic!("after it was removed");
        }
    });
    factory.start();
    settle().await;
    drop(seen);
    assert!(!*done.lock().unwrap());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(*done.lock().unwrap(), "but it may come to its end");
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_be_added_at_any_moment_of_the_start() {
    for moment in 0..60 {
        let server = server();
        let api = api(&server);
        for name in ["a", "b"] {
            create(&api, name, "1").await;
        }
        let factory = SharedInformerFactory::new(server.client());
        let informer = factory.informer::<ConfigMap>();
        factory.start();
        for _ in 0..moment {
            tokio::task::yield_now().await;
        }
        let log = Log::default();
        let seen = informer.add_handler(log.handler());
        seen.wait_for_sync().await;
        change(&api, "a", "2").await;
        settle().await;
        assert_eq!(
            log.take(),
            "add a=1 (initial)\nadd b=1 (initial)\nupdate a=1 → a=2\n",
            "at moment {moment}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_index_may_be_added_at_any_moment_of_a_change() {
    for moment in 0..30 {
        let source = ScriptedSource::new();
        source.lists(1, &[("a", 1)]);
        let live = source.live_watch();
        let config = ReflectorConfig { streaming_lists: false, seed: Some(1), ..ReflectorConfig::default() };
        let options = InformerOptions::default().reflector(config);
        let informer = SharedInformer::<Value>::over(Kind::of::<ConfigMap>(), source, options);
        informer.start();
        informer.wait_for_sync().await.unwrap();
        live.send(ScriptedSource::event("ADDED", "b", 2)).unwrap();
        for _ in 0..moment {
            tokio::task::yield_now().await;
        }
        let asks = informer.clone();
        let by = move |_: &kube_informer::object::Entry| vec![asks.stats().kind];
        informer.add_index_by("kind", kube_informer::IndexBy::metadata(by)).unwrap();
        let snapshot = informer.wait_for(|snapshot| snapshot.contains("b")).await;
        assert_eq!(snapshot.by_index("kind", "v1 ConfigMap").unwrap().count(), 2, "at moment {moment}");
        snapshot.check().unwrap();
        informer.remove_index("kind").unwrap();
    }
}

/// Panics when it is asked for the first time.
struct Startled {
    asked: AtomicBool,
    source: ScriptedSource,
}

impl ListWatch for Startled {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        assert!(self.asked.swap(true, Ordering::SeqCst), "startled");
        self.source.list(request)
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        self.source.watch(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_is_reported_and_asked_again() {
    let source = ScriptedSource::new();
    source.lists(5, &[("a", 1)]);
    let source = Startled { asked: AtomicBool::new(false), source };
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&heard);
    let config = ReflectorConfig {
        streaming_lists: false,
        on_error: Some(Arc::new(move |error| hook.lock().unwrap().push(error.to_string()))),
        ..ReflectorConfig::default()
    };
    let options = InformerOptions::default().reflector(config);
    let informer = SharedInformer::<Value>::over(Kind::of::<ConfigMap>(), source, options);
    informer.start();
    settle().await;
    assert_eq!(informer.status()[0].phase, Phase::Waiting);
    expect!["a panic: startled"].assert_eq(informer.status()[0].last_error.as_ref().unwrap());
    expect!["list or watch of v1 ConfigMap (all namespaces) failed: a panic: startled; retrying in 30.0s"]
        .assert_eq(&heard.lock().unwrap().join("\n"));
    informer.wait_for_sync().await.unwrap();
    assert_eq!(informer.snapshot().len(), 1);
    informer.stop().await;
    assert_eq!(informer.status()[0].phase, Phase::Stopped);
}

#[tokio::test(start_paused = true)]
async fn the_longest_times_there_are_mean_never() {
    let ended = Rule::on(Fault::EndStream).verb(Verb::Watch).after(Duration::from_hours(2));
    let server = ApiServer::builder().seed(1).faults(Faults::seeded(1).rule(ended)).build();
    create(&api(&server), "a", "1").await;
    let longest = Duration::MAX;
    let backoff = BackoffConfig {
        floor: longest,
        cap: longest,
        factor: f64::NAN,
        jitter: 7.0,
        ..BackoffConfig::default()
    };
    for streaming_lists in [true, false] {
        let config = ReflectorConfig {
            streaming_lists,
            verify_every: Some(longest),
            backoff,
            watch_timeout: longest,
            request_deadline: longest,
            stream_silence: longest,
            stream_deadline: longest,
            ..ReflectorConfig::default()
        };
        let options = InformerOptions::default().reflector(config).resync_every(longest);
        let factory = SharedInformerFactory::with_defaults(server.client(), options);
        let (informer, log) = (factory.informer::<ConfigMap>(), Log::default());
        let seen = informer.add_handler(log.handler());
        factory.start();
        factory.wait_for_sync().await.unwrap();
        seen.wait_for_sync().await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        let status = &informer.status()[0];
        assert_eq!((status.phase, &status.last_error), (Phase::Watching, &None));
        assert_eq!(log.take(), "add a=1 (initial)\n");
        tokio::time::sleep(Duration::from_hours(2)).await;
        assert_eq!(informer.status()[0].phase, Phase::Watching, "a healthy watch is resumed at once");
        factory.shutdown_within(longest).await.unwrap();
        assert_eq!(informer.status()[0].phase, Phase::Stopped);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_never_waits_lets_others_have_their_turns() {
    let server = server();
    for number in 0..2_000 {
        create(&api(&server), &format!("map-{number}"), "1").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
        }
    });
    // Of all that it hears at once, what had others done by then?
    let (seen, most) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&turns));
    let last = Arc::clone(&seen);
    let handler = informer.add_handler(move |_: Event<ConfigMap>| {
        last.store(most.load(Ordering::SeqCst), Ordering::SeqCst);
        std::future::ready(())
    });
    let before = turns.load(Ordering::SeqCst);
    handler.wait_for_sync().await;
    assert!(seen.load(Ordering::SeqCst) > before + 5, "{before} {seen:?}");
    other.abort();
}

#[tokio::test(start_paused = true)]
async fn a_source_of_ones_own_is_listed_once_whatever_namespaces_are_asked_for() {
    let source = ScriptedSource::new();
    source.lists(5, &[("a", 1)]);
    let config = ReflectorConfig { streaming_lists: false, ..ReflectorConfig::default() };
    let options = InformerOptions::default().namespace("x").namespace("y").reflector(config);
    let informer = SharedInformer::<Value>::over(Kind::of::<ConfigMap>(), source, options);
    informer.start();
    informer.wait_for_sync().await.unwrap();
    assert_eq!((informer.status().len(), informer.snapshot().len()), (1, 1));
    assert!(informer.set_namespaces(["z"]).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_was_given_up_can_be_repeated() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let stuck = move |_: Event<ConfigMap>| {
        let held = Arc::clone(&held);
        async move {
            std::future::pending::<()>().await;
            drop(held);
        }
    };
    let _seen = informer.add_handler_with(HandlerOptions::default().name("stuck"), stuck);
    factory.start();
    settle().await;
    let first = tokio::time::timeout(Duration::from_secs(5), factory.shutdown()).await;
    assert!(first.is_err(), "given up");
    assert_eq!(factory.running_tasks(), 1, "the handler still runs, and shows");
    let error = factory.shutdown_within(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!((error.handlers, factory.running_tasks()), (vec!["stuck".to_owned()], 0));
    assert_eq!(Arc::strong_count(&alive), 1, "its task has ended");
    factory.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_detached_handler_outside_of_a_factory_can_be_ended() {
    let source = ScriptedSource::new();
    source.lists(5, &[("a", 1)]);
    let watch = source.live_watch();
    let config = ReflectorConfig { streaming_lists: false, seed: Some(1), ..ReflectorConfig::default() };
    let options = InformerOptions::default().reflector(config);
    let informer = SharedInformer::<Value>::over(Kind::of::<ConfigMap>(), source, options);
    let count = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&count);
    let handler = move |_: Event<Value>| {
        calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready(())
    };
    informer.add_handler(handler).detach();
    informer.start();
    settle().await;
    let waits = informer.clone();
    informer.shutdown_within(Duration::from_secs(5)).await.unwrap();
    assert_eq!((count.load(Ordering::SeqCst), Arc::strong_count(&count), watch.is_closed()), (1, 1, true));
    assert!(!waits.is_running() && waits.snapshot().len() == 1, "it stays readable");
    waits.start();
    assert!(!waits.is_running(), "it has ended for good");
    informer.shutdown_within(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_informer_of_a_factory_is_shut_down_and_made_again() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let first = factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    first.shutdown_within(Duration::from_secs(5)).await.unwrap();
    assert_eq!((factory.running_tasks(), server.stats().open_watches), (0, 0));
    let late = first.add_handler(Log::default().handler());
    late.wait_for_sync().await;
    assert!(!late.has_synced(), "nothing is delivered any more");
    let second = factory.informer::<ConfigMap>();
    second.wait_for_sync().await.unwrap();
    assert_eq!((second.snapshot().len(), factory.stats().len()), (1, 1));
    factory.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_was_stopped_is_not_healthy() {
    let server = common::server();
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(informer.health(Duration::from_mins(2)).is_ok());
    informer.stop().await;
    let why = informer.health(Duration::from_mins(2)).unwrap_err().to_string();
    assert!(why.contains("does not run"), "{why}");
    assert_eq!(informer.status()[0].staleness, Some(Duration::ZERO), "it was current until then");
    informer.start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(informer.health(Duration::from_mins(2)).is_ok());
    factory.shutdown().await.unwrap();
    assert!(factory.health(Duration::from_mins(2)).is_err());
}
