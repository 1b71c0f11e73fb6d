//! Several namespaces, and namespaces that change.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Log, config_map, server, settle};
use futures_util::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_client::api::{Api, DeleteParams, PostParams};
use kube_informer::delta_fifo::Scope;
use kube_informer::source::KubeSource;
use kube_informer::{
    Event, HandlerOptions, InformerOptions, Kind, Registration, SharedInformer, SharedInformerFactory,
};
use kube_informer_apiserver::ApiServer;
use tokio::sync::Semaphore;

async fn put(server: &ApiServer, namespace: &str, name: &str) {
    let namespaces: Api<Namespace> = Api::all(server.client());
    let mut object = Namespace::default();
    object.metadata.name = Some(namespace.to_owned());
    let _ = namespaces.create(&PostParams::default(), &object).await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), namespace);
    api.create(&PostParams::default(), &config_map(name, &[("app", namespace)], &[])).await.unwrap();
}

/// Adds a handler that writes each event into the log and then waits for a permit.
fn add_gated(
    informer: &SharedInformer<ConfigMap>,
    buffer_len: usize,
    log: &Log,
    gate: &Arc<Semaphore>,
) -> Registration {
    let (mut write, gate) = (log.handler(), Arc::clone(gate));
    let options = HandlerOptions::default().buffer_len(buffer_len);
    informer.add_handler_with(options, move |event: Event<ConfigMap>| {
        let (written, gate) = (write(event), Arc::clone(&gate));
        async move {
            written.await;
            gate.acquire().await.unwrap().forget();
        }
    })
}

/// An informer that has synced on a server with one object in each of these namespaces, and what its handler has received.
async fn follow(
    server: &ApiServer,
    made: &[&str],
    options: InformerOptions,
) -> (SharedInformerFactory, SharedInformer<ConfigMap>, Log) {
    for namespace in made {
        put(server, namespace, "a").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer_with::<ConfigMap>(options).unwrap();
    let log = Log::default();
    informer.add_handler(log.handler()).detach();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    settle().await;
    (factory, informer, log)
}

fn keys(informer: &SharedInformer<ConfigMap>) -> String {
    let snapshot = informer.snapshot();
    snapshot.check().unwrap();
    snapshot.iter().map(|entry| entry.key().to_string()).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn each_namespace_has_a_reflector_and_a_version_of_its_own() {
    let server = server();
    let options = InformerOptions::default().namespace("one").namespace("two");
    let (_factory, informer, log) = follow(&server, &["one", "two", "three"], options).await;
    assert_eq!(keys(&informer), "one/a two/a");
    assert_eq!(log.take(), "add a=one (initial)\nadd a=two (initial)\n");
    let snapshot = informer.snapshot();
    assert_eq!(informer.status().len(), 2);
    assert!(snapshot.version().is_none() && snapshot.version_of(&Scope::namespace("one")).is_some());
    put(&server, "two", "b").await;
    put(&server, "three", "b").await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "one");
    api.delete("a", &DeleteParams::default()).await.unwrap();
    settle().await;
    assert_eq!(keys(&informer), "two/a two/b");
    let error = informer.set_namespaces(["three"]).await.unwrap_err();
    assert!(error.to_string().contains("changing_namespaces"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn namespace_that_leaves_takes_nothing_from_one_whose_name_begins_alike() {
    let (server, namespaces) = (server(), ["one", "one-more", "oneself"]);
    let options = InformerOptions::default().changing_namespaces();
    let options = namespaces.into_iter().fold(options, InformerOptions::namespace);
    let (_factory, informer, log) = follow(&server, &namespaces, options).await;
    log.take();
    informer.set_namespaces(["one-more", "oneself"]).await.unwrap();
    settle().await;
    assert_eq!(log.take(), "delete a=one (missed)\n");
    assert_eq!(keys(&informer), "one-more/a oneself/a");
}

#[tokio::test(start_paused = true)]
async fn namespaces_come_and_go_and_what_leaves_is_a_missed_delete() {
    let server = server();
    let options = InformerOptions::default().changing_namespaces().namespace("one");
    let (_factory, informer, log) = follow(&server, &["one", "two"], options).await;
    assert_eq!(log.take(), "add a=one (initial)\n");
    informer.set_namespaces(["one", "two"]).await.unwrap();
    settle().await;
    assert_eq!((log.take().as_str(), keys(&informer).as_str()), ("add a=two\n", "one/a two/a"));
    informer.set_namespaces(["two"]).await.unwrap();
    settle().await;
    assert_eq!((log.take().as_str(), keys(&informer).as_str()), ("delete a=one (missed)\n", "two/a"));
    assert_eq!(informer.namespaces(), ["two"]);
    assert_eq!(server.stats().open_watches, 1);
    put(&server, "one", "b").await;
    put(&server, "two", "b").await;
    settle().await;
    assert_eq!(log.take(), "add b=two\n");
}

#[tokio::test(start_paused = true)]
async fn an_informer_of_no_namespace_is_synced_and_empty() {
    let server = server();
    put(&server, "one", "a").await;
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().changing_namespaces();
    let informer = factory.informer_with::<ConfigMap>(options).unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert_eq!((keys(&informer).as_str(), server.stats().open_watches), ("", 0));
    informer.set_namespaces(["one"]).await.unwrap();
    settle().await;
    assert_eq!(keys(&informer), "one/a");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_namespaces_comes_to_its_end_even_if_nobody_waits() {
    let server = server();
    for namespace in ["one", "two", "three"] {
        put(&server, namespace, "a").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().changing_namespaces().namespace("one").namespace("two");
    let informer = factory.informer_with::<ConfigMap>(options).unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    // Dropped after each number of polls; and the next change begins before the last has ended.
    for polls in 0..20 {
        for namespaces in [&["one", "three"][..], &["two"], &["one", "two"]] {
            let mut change = Box::pin(informer.set_namespaces(namespaces));
            for _ in 0..polls {
                if futures_util::poll!(&mut change).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        informer.set_namespaces(["two", "three"]).await.unwrap();
        settle().await;
        assert_eq!(keys(&informer), "three/a two/a", "after {polls} polls");
        assert_eq!(server.stats().open_watches, 2, "after {polls} polls");
    }
}

#[tokio::test(start_paused = true)]
async fn the_empty_namespace_watches_all_of_them() {
    let server = server();
    for namespace in ["one", "two"] {
        put(&server, namespace, "a").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().namespace("").namespace("one");
    let informer = factory.informer_with::<ConfigMap>(options).unwrap();
    factory.start();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((keys(&informer), informer.namespaces()), ("one/a two/a".into(), Vec::new()));
    let _same = factory.informer::<ConfigMap>();
    assert_eq!(factory.stats().len(), 1, "the cache of all namespaces is shared");
    informer.stop().await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "two");
    api.delete("a", &DeleteParams::default()).await.unwrap();
    informer.start();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(keys(&informer), "one/a", "a delete that was missed");
    for kind in [Kind::of::<ConfigMap>(), Kind::new("apps/v1", "Deployment", "deployments", true)] {
        assert_eq!(kind.path(Some("")), kind.path(None));
        let asked = format!("{:?}", KubeSource::new(server.client(), kind.clone()).namespace(""));
        assert_eq!(asked, format!("KubeSource({})", kind.path(None)));
    }
}

#[tokio::test(start_paused = true)]
async fn changing_to_all_namespaces_and_back_loses_nothing() {
    let server = server();
    for namespace in ["one", "two"] {
        put(&server, namespace, "a").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().namespace("one").changing_namespaces();
    let informer = factory.informer_with::<ConfigMap>(options).unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    for _ in 0..3 {
        informer.set_namespaces(["", "one"]).await.unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!((keys(&informer), informer.status().len()), ("one/a two/a".into(), 1));
        informer.set_namespaces(["two"]).await.unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!((keys(&informer), informer.namespaces()), ("two/a".into(), vec!["two".to_owned()]));
    }
}

#[test]
fn namespaces_are_escaped_in_paths() {
    let kind = Kind::of::<ConfigMap>();
    for (namespace, escaped) in [
        ("a-b.c", "a-b.c"),
        ("a/b", "a%2Fb"),
        ("a?b#c", "a%3Fb%23c"),
        ("ä %", "%C3%A4%20%25"),
        ("..", "%2E%2E"),
    ] {
        assert_eq!(kind.path(Some(namespace)), format!("/api/v1/namespaces/{escaped}/configmaps"));
    }
}

/// One handler, two namespaces whose first lists come at different times, and one of them leaves and comes back.
#[tokio::test(start_paused = true)]
async fn slow_handler_gets_lists_of_several_namespaces_in_order() {
    let server = server();
    for (namespace, name) in [("one", "a"), ("one", "b"), ("two", "c"), ("three", "d")] {
        put(&server, namespace, name).await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().namespace("one").namespace("two").changing_namespaces();
    let informer = factory.informer_with::<ConfigMap>(options).unwrap();
    let (log, gate) = (Log::default(), Arc::new(Semaphore::new(0)));
    let seen = add_gated(&informer, 2, &log, &gate);
    factory.start();
    factory.wait_for_sync().await.unwrap();
    settle().await;
    informer.set_namespaces(["one", "three"]).await.unwrap();
    settle().await;
    // Its delete still waits, so that the add of the same key must not overtake it.
    informer.set_namespaces(["one", "two"]).await.unwrap();
    settle().await;
    assert!(!seen.has_synced());
    gate.add_permits(1_000);
    seen.wait_for_sync().await;
    settle().await;
    let mut lines = log.lines();
    let (first, later) = lines.split_at_mut(3);
    first.sort();
    assert_eq!(first, ["add a=one (initial)", "add b=one (initial)", "add c=two (initial)"]);
    let of = |name: &str| later.iter().filter(|line| line.contains(name)).cloned().collect::<Vec<_>>();
    assert_eq!(of("c="), ["delete c=two (missed)", "add c=two"]);
    assert_eq!(of("d="), ["add d=three", "delete d=three (missed)"]);
    assert_eq!(later.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_comes_back_does_not_overtake_merged_deletes() {
    let server = server();
    for name in ["a", "b", "c"] {
        put(&server, "two", name).await;
    }
    put(&server, "one", "x").await;
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().namespace("one").namespace("two").changing_namespaces();
    let informer = factory.informer_with::<ConfigMap>(options).unwrap();
    let (log, gate) = (Log::default(), Arc::new(Semaphore::new(6)));
    let seen = add_gated(&informer, 1, &log, &gate);
    factory.start();
    factory.wait_for_sync().await.unwrap();
    seen.wait_for_sync().await;
    gate.forget_permits(10);
    // The handler is stuck in the first of these, the second fills the buffer; the deletes of "two" are merged.
    for name in ["y", "z"] {
        put(&server, "one", name).await;
        settle().await;
    }
    informer.set_namespaces(["one"]).await.unwrap();
    settle().await;
    informer.set_namespaces(["one", "two"]).await.unwrap();
    settle().await;
    gate.add_permits(1_000);
    tokio::time::sleep(Duration::from_secs(1)).await;
    for name in ["a", "b", "c"] {
        let of: Vec<String> =
            log.lines().into_iter().filter(|line| line.contains(&format!(" {name}="))).collect();
        let (first, gone, again) = (
            format!("add {name}=two (initial)"),
            format!("delete {name}=two (missed)"),
            format!("add {name}=two"),
        );
        // A delete and an add that wait together may be merged into nothing.
        assert!(of == [first.clone(), gone, again] || of == [first], "{of:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_changes_of_namespaces_the_later_one_counts() {
    let server = server();
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().namespace("default").changing_namespaces();
    let maps = factory.informer_with::<ConfigMap>(options).unwrap();
    factory.start();
    let rounds = async move {
        for round in 0..200 {
            // Asked for, and not waited for.
            let _ = maps.set_namespaces(["kube-system"]).now_or_never();
            maps.set_namespaces(["default"]).await.unwrap();
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
            assert_eq!(maps.namespaces(), ["default"], "round {round}");
        }
    };
    tokio::spawn(rounds).await.unwrap();
}
