//! Indexes that fail for an object, and indexes that come and go.

mod scenario;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_informer::source::{Script, ScriptedSource};
use kube_informer::{IndexBy, Indexer, Kind, SharedInformer, Snapshot};
use scenario::{paged, settle};
use serde_json::{Value, json};

fn pods() -> Kind {
    Kind::new("v1", "Pod", "pods", true)
}

/// An index that panics for the object `b`.
fn no_b() -> IndexBy {
    IndexBy::metadata(|entry| {
        assert_ne!(entry.name(), "b", "no b");
        vec!["x".into()]
    })
}

/// What readers see of the failure, however it came about.
fn seen(snapshot: &Snapshot<Value>) -> (Vec<String>, usize, usize) {
    snapshot.check().unwrap();
    let names = snapshot.iter().map(|entry| entry.name().to_owned()).collect();
    (names, snapshot.by_index("no-b", "x").unwrap().count(), snapshot.set_aside().count())
}

/// They are the user's, and may take long.
#[tokio::test(start_paused = true)]
async fn index_functions_are_asked_once_about_each_state() {
    let source = ScriptedSource::new();
    source.lists(5, &[("a", 1), ("b", 2)]);
    let watch = source.live_watch();
    let informer = SharedInformer::<Value>::over(pods(), source, paged());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let by = IndexBy::metadata(move |entry| {
        noted.lock().unwrap().push(format!("{}@{}", entry.name(), entry.version()));
        Vec::new()
    });
    informer.add_index_by("noted", by).unwrap();
    informer.start();
    informer.wait_for_sync().await.unwrap();
    watch.send(ScriptedSource::event("MODIFIED", "b", 6)).unwrap();
    watch.send(ScriptedSource::event("ADDED", "c", 7)).unwrap();
    settle().await;
    let mut asked = asked.lock().unwrap().clone();
    asked.sort();
    assert_eq!(asked, ["a@1", "b@2", "b@6", "c@7"]);
}

#[tokio::test(start_paused = true)]
async fn failed_index_leaves_the_object_whenever_it_was_added() {
    for before in [true, false] {
        let source = ScriptedSource::new();
        source.lists(5, &[("a", 1), ("b", 2)]);
        let watch = source.live_watch();
        let informer = SharedInformer::<Value>::over(pods(), source, paged());
        informer.add_index_by("name", IndexBy::metadata(|entry| vec![entry.name().to_owned()])).unwrap();
        if before {
            informer.add_index_by("no-b", no_b()).unwrap();
        }
        informer.start();
        informer.wait_for_sync().await.unwrap();
        if !before {
            informer.add_index_by("no-b", no_b()).unwrap();
        }
        assert_eq!(seen(&informer.snapshot()), (vec!["a".into(), "b".into()], 1, 0), "before: {before}");
        assert_eq!(informer.snapshot().by_index("name", "b").unwrap().count(), 1, "other indexes have it");
        let failed = |informer: &SharedInformer<Value>| -> Vec<String> {
            let snapshot = informer.snapshot();
            let lines = snapshot.unindexed().map(|one| format!("{} {} {}", one.key, one.index, one.problem));
            lines.collect()
        };
        let problem = "b no-b an index function panicked: assertion `left != right` failed: no b\n  left: \"b\"\n right: \"b\"";
        assert_eq!(failed(&informer), [problem]);
        assert_eq!(informer.stats().store.unindexed, 1);
        watch.send(ScriptedSource::event("MODIFIED", "b", 6)).unwrap();
        settle().await;
        assert_eq!((failed(&informer).len(), informer.snapshot().is_stale("b")), (1, false));
        watch.send(ScriptedSource::event("DELETED", "b", 7)).unwrap();
        settle().await;
        assert_eq!((failed(&informer).len(), informer.stats().store.unindexed), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn failed_index_is_remembered_by_the_next_list() {
    let source = ScriptedSource::new();
    source.lists(5, &[("a", 1), ("b", 2)]);
    source.on_watch(Script::TextThenSilence(String::new()));
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged());
    informer.start();
    informer.wait_for_sync().await.unwrap();
    informer.add_index_by("no-b", no_b()).unwrap();
    informer.stop().await;
    source.lists(6, &[("a", 1), ("b", 2)]);
    informer.start();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(informer.snapshot().version().unwrap().to_string(), "6");
    assert_eq!(informer.stats().store.unindexed, 1);
    informer.remove_index("no-b").unwrap();
    assert_eq!((informer.stats().store.unindexed, informer.snapshot().unindexed().count()), (0, 0));
    informer.snapshot().check().unwrap();
}

#[test]
fn values_of_removed_indexes_are_freed() {
    let indexer = Indexer::new();
    for n in 0..100 {
        let text = json!({"metadata": {"name": format!("p{n}"), "uid": format!("u{n}"), "resourceVersion": "1", "labels": {"app": format!("app{}", n % 5)}}});
        let entry = kube_informer::object::Entry::from_json(&pods().into(), text.to_string().as_bytes());
        indexer.upsert(std::sync::Arc::new(entry.unwrap()));
    }
    indexer.add_index("kept", IndexBy::label("app")).unwrap();
    for round in 0..20 {
        indexer.add_index("app", IndexBy::label("app")).unwrap();
        indexer.add_index("uid", IndexBy::metadata(|entry| vec![entry.name().to_owned()])).unwrap();
        indexer.snapshot::<Value>().check().unwrap();
        indexer.remove_index("app").unwrap();
        indexer.remove_index("uid").unwrap();
        indexer.snapshot::<Value>().check().unwrap();
        assert_eq!(indexer.snapshot::<Value>().stray_index_values(), 0, "round {round}");
    }
    assert_eq!(indexer.snapshot::<Value>().by_index("kept", "app1").unwrap().count(), 20);
}
