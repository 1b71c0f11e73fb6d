//! Questions to the copy: selectors, pages, namespaces, indexes.

mod common;

use std::sync::Arc;

use common::server;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{Api, PostParams};
use kube_informer::object::Entry;
use kube_informer::store::{IndexError, Query};
use kube_informer::{IndexBy, Indexer, Kind, SharedInformerFactory, Snapshot};
use serde_json::{Value, json};

fn store(objects: &[(&str, &[(&str, &str)])]) -> Indexer {
    let indexer = Indexer::new();
    for (i, (key, labels)) in objects.iter().enumerate() {
        indexer.upsert(entry(key, i as u64 + 1, labels));
    }
    indexer
}

fn entry(key: &str, version: u64, labels: &[(&str, &str)]) -> Arc<Entry> {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let labels: serde_json::Map<_, _> = labels.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
    let text = json!({
        "metadata": {"name": name, "namespace": namespace, "uid": key, "resourceVersion": version.to_string(), "labels": labels,
            "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "o", "uid": format!("owner-{version}")}]},
        "spec": {"nodeName": format!("node-{}", version % 2), "images": [{"name": "x"}, {"name": name}]},
    });
    let kind = Arc::new(Kind::new("v1", "Pod", "pods", true));
    Arc::new(Entry::from_json(&kind, text.to_string().as_bytes()).unwrap())
}

fn keys(query: &Query<Value>) -> String {
    let borrowed: Vec<_> = query.iter().map(|entry| entry.key().to_string()).collect();
    let listed: Vec<_> = query.list().iter().map(|object| object.key().to_string()).collect();
    assert_eq!(borrowed, listed);
    assert_eq!(query.count(), listed.len());
    listed.join(" ")
}

#[test]
fn every_operator_of_a_selector_chooses() {
    let indexer = store(&[
        ("n/a", &[("app", "web"), ("tier", "front"), ("size", "3")]),
        ("n/b", &[("app", "web"), ("tier", "back"), ("size", "10")]),
        ("n/c", &[("app", "db")]),
        ("n/d", &[]),
    ]);
    let snapshot: Snapshot<Value> = indexer.snapshot();
    for (selector, chosen) in [
        ("", "n/a n/b n/c n/d"),
        ("app=web", "n/a n/b"),
        ("app==db", "n/c"),
        ("app!=web", "n/c n/d"),
        ("tier in (front, back)", "n/a n/b"),
        ("tier notin (front)", "n/b n/c n/d"),
        ("tier", "n/a n/b"),
        ("!tier", "n/c n/d"),
        ("size>3", "n/b"),
        ("size<10", "n/a"),
        ("app=web,tier!=front", "n/b"),
        ("app=nothing", ""),
    ] {
        assert_eq!(keys(&snapshot.matching(selector).unwrap()), chosen, "{selector}");
    }
    assert!(snapshot.matching("app in web").is_err());
}

#[test]
fn a_namespace_is_read_without_its_neighbours() {
    let indexer =
        store(&[("a/x", &[]), ("a-b/x", &[]), ("a.b/x", &[]), ("a/y", &[]), ("a0/x", &[]), ("x", &[])]);
    let snapshot: Snapshot<Value> = indexer.snapshot();
    assert_eq!(keys(&snapshot.namespace("a")), "a/x a/y");
    assert_eq!(keys(&snapshot.namespace("a-b")), "a-b/x");
    assert_eq!(keys(&snapshot.namespace("none")), "");
    assert_eq!(snapshot.namespace("a").get("y").unwrap().name(), "y");
    assert!(snapshot.namespace("a-b").get("y").is_none());
    assert_eq!(snapshot.get("x").unwrap().namespace(), None);
}

#[test]
fn pages_can_be_resumed_from_any_key() {
    let indexer = store(&[
        ("a/1", &[]),
        ("a/2", &[("l", "x")]),
        ("b/1", &[("l", "x")]),
        ("b/2", &[("l", "x")]),
        ("c/1", &[("l", "x")]),
    ]);
    indexer.add_index("l", IndexBy::label("l")).unwrap();
    let snapshot: Snapshot<Value> = indexer.snapshot();
    let page = |query: &Query<Value>, after: &str, limit| {
        let page = query.page(after.parse().ok().as_ref(), limit);
        page.iter().map(|object| object.key().to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(page(&snapshot.query(), "", 2), "a/1 a/2");
    assert_eq!(page(&snapshot.query(), "a/2", 2), "b/1 b/2");
    assert_eq!(page(&snapshot.query(), "a/9", 9), "b/1 b/2 c/1", "the key need not exist");
    assert_eq!(page(&snapshot.namespace("b"), "a/1", 9), "b/1 b/2", "nor be of the namespace");
    assert_eq!(page(&snapshot.namespace("b"), "b/1", 9), "b/2");
    assert_eq!(page(&snapshot.namespace("b"), "c/1", 9), "");
    let indexed = snapshot.by_index("l", "x").unwrap();
    assert_eq!(page(&indexed, "b/1", 9), "b/2 c/1");
    assert_eq!(page(&snapshot.by_index("l", "x").unwrap().namespace("b"), "a/2", 1), "b/1");
}

#[test]
fn an_owned_iteration_reads_all_of_a_large_store_once() {
    let indexer = Indexer::new();
    for i in 0..1000_u64 {
        let app = if i % 10 == 0 { "tenth" } else { "other" };
        indexer.upsert(entry(&format!("n{}/o{i:04}", i % 3), i + 1, &[("app", app)]));
    }
    indexer.add_index("app", IndexBy::label("app")).unwrap();
    let snapshot: Snapshot<Value> = indexer.snapshot();
    assert_eq!(snapshot.query().into_iter().count(), 1000);
    assert_eq!(snapshot.matching("app=tenth").unwrap().into_iter().count(), 100);
    assert_eq!(snapshot.by_index("app", "other").unwrap().into_iter().count(), 900);
    assert_eq!(snapshot.matching("app=none").unwrap().into_iter().count(), 0);
    for query in [snapshot.query(), snapshot.matching("app=tenth").unwrap()] {
        let mut objects = query.into_iter();
        assert!(objects.by_ref().last().is_some());
        assert!((0..3).all(|_| objects.next().is_none()), "an iteration that has ended does not begin again");
    }
    let mut keys: Vec<_> = snapshot.query().into_iter().map(|object| object.key().clone()).collect();
    assert!(keys.is_sorted());
    keys.dedup();
    assert_eq!(keys.len(), 1000);
}

#[test]
fn ready_made_indexes_read_labels_owners_and_fields() {
    let indexer = store(&[("n/a", &[("app", "web")]), ("n/b", &[("app", "web")]), ("n/c", &[])]);
    indexer.add_index("app", IndexBy::label("app")).unwrap();
    indexer.add_index("owner", IndexBy::owner()).unwrap();
    indexer.add_index("node", IndexBy::field(".spec.nodeName".parse().unwrap())).unwrap();
    indexer.add_index("image", IndexBy::field(".spec.images[*].name".parse().unwrap())).unwrap();
    indexer
        .add_index(
            "typed",
            IndexBy::object(|object: &kube_informer::Object<Value>| {
                object.get().ok().map(|value| value["spec"]["nodeName"].as_str().unwrap().to_owned())
            }),
        )
        .unwrap();
    let snapshot: Snapshot<Value> = indexer.snapshot();
    assert_eq!(keys(&snapshot.by_index("app", "web").unwrap()), "n/a n/b");
    assert_eq!(keys(&snapshot.by_index("owner", "owner-2").unwrap()), "n/b");
    assert_eq!(keys(&snapshot.by_index("node", "node-1").unwrap()), "n/a n/c");
    assert_eq!(keys(&snapshot.by_index("typed", "node-1").unwrap()), "n/a n/c");
    assert_eq!(
        keys(&snapshot.by_index("image", "x").unwrap()),
        "n/a n/b n/c",
        "once, though it is there twice"
    );
    assert_eq!(snapshot.index_values("image").unwrap(), ["a", "b", "c", "x"]);
    assert_eq!(indexer.index_names(), ["app", "owner", "node", "image", "typed"]);
}

#[test]
fn values_that_nothing_has_any_more_leave_the_index() {
    let indexer = store(&[("n/a", &[("app", "web")]), ("n/b", &[("app", "db")])]);
    indexer.add_index("app", IndexBy::label("app")).unwrap();
    indexer.remove(&"n/b".parse().unwrap());
    assert_eq!(indexer.snapshot::<Value>().index_values("app").unwrap(), ["web"]);
    indexer.upsert(entry("n/b", 9, &[("app", "web")]));
    indexer.remove(&"n/a".parse().unwrap());
    let snapshot = indexer.snapshot::<Value>();
    assert_eq!(snapshot.index_values("app").unwrap(), ["web"], "one still has it");
    assert_eq!(keys(&snapshot.by_index("app", "web").unwrap()), "n/b");
}

#[test]
fn many_values_of_one_object_follow_its_changes() {
    let indexer = Indexer::new();
    indexer
        .add_index(
            "labels",
            IndexBy::metadata(|entry| entry.labels().map(|(key, _)| key.to_owned()).collect()),
        )
        .unwrap();
    let has = |value: &str| keys(&indexer.snapshot().by_index("labels", value).unwrap());
    indexer.upsert(entry("n/a", 1, &[("x", ""), ("y", "")]));
    indexer.upsert(entry("n/b", 2, &[("y", ""), ("z", "")]));
    assert_eq!((has("x"), has("y"), has("z")), ("n/a".into(), "n/a n/b".into(), "n/b".into()));
    indexer.upsert(entry("n/a", 3, &[("z", "")]));
    assert_eq!((has("x"), has("y"), has("z")), (String::new(), "n/b".into(), "n/a n/b".into()));
    indexer.remove(&"n/b".parse().unwrap());
    assert_eq!((has("y"), has("z")), (String::new(), "n/a".into()));
}

#[test]
fn two_indexes_are_intersected_by_hand_and_unknown_ones_are_refused() {
    let indexer = store(&[("n/a", &[("x", "1"), ("y", "1")]), ("n/b", &[("x", "1")])]);
    indexer.add_index("x", IndexBy::label("x")).unwrap();
    assert_eq!(indexer.add_index("x", IndexBy::label("y")), Err(IndexError::Exists("x".into())));
    assert_eq!(indexer.remove_index("y"), Err(IndexError::Unknown("y".into())));
    let snapshot: Snapshot<Value> = indexer.snapshot();
    assert_eq!(keys(&snapshot.by_index("x", "1").unwrap().matching("y=1").unwrap()), "n/a");
    let error = snapshot.by_index("y", "1").unwrap_err();
    assert_eq!(error.to_string(), "there is no index named 'y'; add it with add_index");
}

#[tokio::test(start_paused = true)]
async fn indexes_may_be_added_before_the_start_and_later() {
    let server = server();
    let api: Api<ConfigMap> = Api::default_namespaced(server.client());
    let put = async |name: &str, app: &str| {
        api.create(&PostParams::default(), &common::config_map(name, &[("app", app)], &[("k", app)]))
            .await
            .unwrap();
    };
    put("a", "web").await;
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    informer.add_index_by("before", IndexBy::label("app")).unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    informer
        .add_index("after", |object| object.get().ok().map(|map| map.data.clone().unwrap()["k"].clone()))
        .unwrap();
    put("b", "db").await;
    common::settle().await;
    let lister = informer.lister();
    for index in ["before", "after"] {
        assert_eq!(lister.index_values(index).unwrap(), ["db", "web"]);
        assert_eq!(lister.by_index(index, "db").unwrap().list()[0].name(), "b");
    }
    assert_eq!(informer.stats().store.indexes, [("before".to_owned(), 2), ("after".to_owned(), 2)]);
    informer.remove_index("before").unwrap();
    assert!(lister.by_index("before", "db").is_err());
    assert_eq!(lister.count(), 2);
    assert_eq!(lister.matching("app=web").unwrap().count(), 1);
    assert_eq!(lister.namespace("default").get("a").unwrap().label("app"), Some("web"));
}

#[test]
fn failures_of_an_earlier_version_do_not_outlive_an_index_build() {
    let indexer = Arc::new(Indexer::new());
    indexer.upsert(entry("x/a", 1, &[]));
    let store = Arc::clone(&indexer);
    let by = IndexBy::metadata(move |entry_now| {
        if entry_now.version().as_u64() == Some(1) {
            store.upsert(entry("x/a", 2, &[]));
            panic!("not this one");
        }
        vec!["fine".to_owned()]
    });
    indexer.add_index("by", by).unwrap();
    let snapshot: Snapshot<Value> = indexer.snapshot();
    assert_eq!((snapshot.set_aside().count(), snapshot.unindexed().count()), (0, 0));
    assert_eq!(snapshot.by_index("by", "fine").unwrap().count(), 1);
}

#[test]
fn queries_narrow_with_every_call() {
    let indexer = store(&[
        ("n/a", &[("app", "web"), ("tier", "front")]),
        ("n/b", &[("app", "db"), ("tier", "front")]),
        ("m/c", &[("app", "web"), ("tier", "back")]),
    ]);
    indexer.add_index("app", IndexBy::label("app")).unwrap();
    indexer.add_index("tier", IndexBy::label("tier")).unwrap();
    let snapshot: Snapshot<Value> = indexer.snapshot();
    let query = || snapshot.query();
    let matching = query().matching("app=web").unwrap().matching("tier=front").unwrap();
    assert_eq!(keys(&matching), "n/a");
    let selector = "app=web".parse().unwrap();
    assert_eq!(keys(&query().matching("tier=back").unwrap().matching_selector(selector)), "m/c");
    let indexed = query().by_index("app", "web").unwrap().by_index("tier", "front").unwrap().namespace("n");
    assert_eq!(
        (keys(&indexed), indexed.get("a").is_some(), indexed.get("b").is_none()),
        ("n/a".into(), true, true)
    );
    assert_eq!(keys(&query().namespace("n").namespace("n")), "n/a n/b");
    let neither = query().namespace("n").namespace("m");
    assert_eq!(
        (keys(&neither), neither.get("a").is_none(), neither.get("c").is_none()),
        (String::new(), true, true)
    );
    assert_eq!(keys(&query().by_index("app", "web").unwrap().by_index("app", "db").unwrap()), "");
}

#[test]
fn the_empty_namespace_means_all() {
    let indexer = store(&[("n/a", &[]), ("m/b", &[]), ("c", &[])]);
    let snapshot: Snapshot<Value> = indexer.snapshot();
    assert_eq!(keys(&snapshot.namespace("")), "c m/b n/a");
    assert_eq!(keys(&snapshot.namespace("n").namespace("")), "n/a");
    assert_eq!(snapshot.namespace("").get("c").unwrap().name(), "c");
}
