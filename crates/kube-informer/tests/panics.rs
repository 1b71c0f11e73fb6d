//! Panics whose payload panics again where it is dropped, thrown wherever the library calls user code.

mod common;

use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Log, api, change, create, server, settle};
use futures_core::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_informer::controller::{Action, Predicate};
use kube_informer::handler::HandlerOptions;
use kube_informer::source::{Answer, ListRequest, ListWatch, SourceError, WatchRequest};
use kube_informer::{
    Controller, Event, InformerOptions, Kind, ObjectKey, SharedInformer, SharedInformerFactory, Transform,
};

/// Panics where it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_panics_costs_neither_handler_nor_filter() {
    let server = server();
    let api = api(&server);
    for name in ["a", "bomb", "z"] {
        create(&api, name, "1").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    let log = Log::default();
    let mut note = log.handler();
    let handler = informer.add_handler(move |event: Event<ConfigMap>| {
        if event.object().name() == "bomb" {
            panic_any(Bomb);
        }
        note(event)
    });
    let filtered = Log::default();
    let options = HandlerOptions::default().filter(|object| {
        if object.name() == "bomb" {
            panic_any(Bomb);
        }
        true
    });
    let filter = informer.add_handler_with(options, filtered.handler());
    factory.start();
    for registration in [&handler, &filter] {
        tokio::time::timeout(Duration::from_mins(1), registration.wait_for_sync()).await.expect("synced");
    }
    change(&api, "z", "2").await;
    settle().await;
    let expected = "add a=1 (initial)\nadd z=1 (initial)\nupdate z=1 → z=2\n";
    assert_eq!(log.take(), expected);
    let expected = "add a=1 (initial)\nadd bomb=1 (initial)\nadd z=1 (initial)\nupdate z=1 → z=2\n";
    assert_eq!(filtered.take(), expected, "an object passes a filter that panics");
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_panics_never_makes_an_object_seem_deleted() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    let log = Log::default();
    let options = HandlerOptions::default().filter(|object| {
        let number: u32 = object.label("app").and_then(|text| text.parse().ok()).expect("on purpose");
        number < 10
    });
    let registration = informer.add_handler_with(options, log.handler());
    factory.start();
    registration.wait_for_sync().await;
    for value in ["none", "2", "10", "none"] {
        change(&api, "a", value).await;
        settle().await;
    }
    let expected = "add a=1 (initial)\nupdate a=1 → a=none\nupdate a=none → a=2\ndelete a=2\nadd a=none\n";
    assert_eq!(log.take(), expected);
    assert_eq!(registration.stats().panics, 3, "both sides of a pair are judged");
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_panics_costs_neither_transform_nor_index() {
    let server = server();
    let api = api(&server);
    for name in ["a", "in-index", "in-transform"] {
        create(&api, name, "1").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let transform = Transform::json(|value| {
        if value["metadata"]["name"] == "in-transform" {
            panic_any(Bomb);
        }
    });
    let informer =
        factory.informer_with::<ConfigMap>(InformerOptions::default().transform(transform)).unwrap();
    informer
        .add_index("name", |object| {
            if object.name() == "in-index" {
                panic_any(Bomb);
            }
            [object.name().to_owned()]
        })
        .unwrap();
    let log = Log::default();
    let _handler = informer.add_handler(log.handler());
    factory.start();
    settle().await;
    change(&api, "a", "2").await;
    settle().await;
    assert_eq!(log.take(), "add a=1 (initial)\nadd in-index=1 (initial)\nupdate a=1 → a=2\n");
    let store = informer.stats().store;
    assert_eq!((store.set_aside.len(), store.unindexed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_panics_costs_neither_predicate_nor_mapping() {
    let server = server();
    let api = api(&server);
    for name in ["a", "bomb", "z"] {
        create(&api, name, "1").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let maps = factory.informer::<ConfigMap>();
    let predicate = Predicate::new("explosive", |change| {
        if change.new.is_some_and(|new| new.name() == "bomb") {
            panic_any(Bomb);
        }
        true
    });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let controller = Controller::new(maps.clone()).filter(predicate).watches(maps, |map| {
        if map.name() == "bomb" {
            panic_any(Bomb);
        }
        [ObjectKey::namespaced("mapped", map.name())]
    });
    let run = tokio::spawn(controller.run(move |request, _| {
        noted.lock().unwrap().push(request.key.to_string());
        std::future::ready(Ok(Action::done()))
    }));
    settle().await;
    change(&api, "z", "2").await;
    settle().await;
    run.abort();
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    let expected =
        ["default/a", "default/bomb", "default/z", "default/z", "mapped/a", "mapped/z", "mapped/z"];
    assert_eq!(*seen, expected);
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_panics_overrules_no_other() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    let log = Log::default();
    let options = HandlerOptions::default()
        .filter(|object| object.label("missing").expect("on purpose") == "x")
        .filter(|_| false);
    let registration = informer.add_handler_with(options, log.handler());
    factory.start();
    registration.wait_for_sync().await;
    assert_eq!((log.take().as_str(), registration.stats().panics), ("", 1));
}

/// Panics where it is dropped, once.
#[derive(serde::Deserialize)]
struct Explosive {}

static ARMED: AtomicBool = AtomicBool::new(false);

impl Drop for Explosive {
    fn drop(&mut self) {
        assert!(!ARMED.swap(false, Ordering::SeqCst), "on purpose");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_panics_where_it_is_dropped_does_not_end_the_informer() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().transform(Transform::decoded(|_: ConfigMap| Explosive {}));
    let informer = factory.informer_of::<Explosive>(Kind::of::<ConfigMap>(), options).unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    settle().await;
    ARMED.store(true, Ordering::SeqCst);
    change(&api(&server), "a", "2").await;
    settle().await;
    assert!(!ARMED.load(Ordering::SeqCst), "it was dropped");
    create(&api(&server), "b", "1").await;
    settle().await;
    assert_eq!(informer.snapshot().len(), 2);
    let unhealthy = informer.health(Duration::from_mins(2)).unwrap_err().to_string();
    assert!(unhealthy.contains("panicked: on purpose"), "{unhealthy}");
}

/// Panics whatever it is asked.
struct Panicking;

impl ListWatch for Panicking {
    fn list(&self, _: ListRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        Box::pin(async { panic!("on purpose") })
    }

    fn watch(&self, _: WatchRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        Box::pin(async { panic!("on purpose") })
    }
}

#[tokio::test(start_paused = true)]
async fn source_that_panics_says_since_when() {
    let kind = Kind::of::<ConfigMap>();
    let informer = SharedInformer::<ConfigMap>::over(kind, Panicking, InformerOptions::default());
    informer.start();
    tokio::time::sleep(Duration::from_hours(10)).await;
    let since = informer.status()[0].failing_since.map(|since| since.elapsed());
    assert!(since > Some(Duration::from_hours(9)), "{since:?}");
}
