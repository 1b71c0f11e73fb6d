//! What a check of the server's history looks at, and what it must not take for a restore.

mod common;
mod scenario;

use std::sync::Arc;
use std::time::Duration;

use common::checked::Checked;
use common::{api, change, content, create, cut_off, weather_of};
use futures_core::future::BoxFuture;
use kube_informer::delta_fifo::Scope;
use kube_informer::reflector::{Change, Reflector, ReflectorConfig, Sink};
use kube_informer::source::{History, Script, ScriptedSource, SourceError};
use kube_informer::{InformerOptions, Kind, SharedInformer};
use kube_informer_apiserver::Verb;
use kube_informer_apiserver::faults::{Fault, Rule};
use scenario::{paged, settle};
use serde_json::{Value, json};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_check_without_a_result_leaves_the_doubt() {
    let list = |app: &str, version: &str| {
        let object = json!({"metadata": {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "5", "labels": {"app": app}}});
        Script::Text(json!({"metadata": {"resourceVersion": version}, "items": [object]}).to_string())
    };
    let script = ScriptedSource::new();
    let source = Checked::new(&script, &[History::Unknown]);
    script.on_list(list("old", "5"));
    script.on_watch(Script::TextFor(String::new(), Duration::from_secs(3)));
    let gone = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}});
    let watch = script.live_watch();
    script.on_list(list("new", "6"));
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), paged());
    informer.start();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(source.checks().len(), 1);
    watch.send(format!("{gone}\n")).unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(content(&informer), "a=new");
}

#[tokio::test(start_paused = true)]
async fn a_selection_is_not_taken_for_a_restore() {
    for gap in [0, 5] {
        let options = InformerOptions::default().labels("app=1");
        let (server, faults, _factory, informer) = weather_of(1, options).await;
        for (name, app) in [("b", "1"), ("c", "2")] {
            create(&api(&server), name, app).await;
        }
        settle().await;
        // For the cache it is deleted.
        change(&api(&server), "b", "2").await;
        settle().await;
        if gap > 0 {
            faults.inject(Rule::on(Fault::Refuse).verb(Verb::Watch));
        }
        faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
        settle().await;
        tokio::time::sleep(Duration::from_secs(gap)).await;
        faults.clear();
        tokio::time::sleep(Duration::from_mins(2)).await;
        let counts = informer.status()[0].counts;
        assert_eq!((content(&informer).as_str(), counts.restores), ("a=1", 0), "after {gap} s: {counts:?}");
        assert_eq!(counts.checks, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_of_objects_is_compared_whole() {
    for (objects, lists) in [(500, 1), (501, 0)] {
        let (_server, faults, _factory, informer) = weather_of(objects, InformerOptions::default()).await;
        cut_off(&faults).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        faults.clear();
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(informer.status()[0].counts.verifications, lists, "{objects} objects");
    }
}

#[tokio::test(start_paused = true)]
async fn objects_without_a_name_are_not_counted() {
    let named = json!({"metadata": {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "5"}});
    let list = json!({"metadata": {"resourceVersion": "5"}, "items": [named, {"metadata": {"uid": "v"}}]});
    let script = ScriptedSource::new();
    let source = Checked::new(&script, &[History::Same]);
    script.on_list(Script::Text(list.to_string()));
    script.on_watch(Script::TextFor(String::new(), Duration::from_secs(3)));
    script.on_watch(Script::TextThenSilence(String::new()));
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), paged());
    informer.start();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let counts: Vec<Option<usize>> = source.checks().iter().map(|(_, check)| check.count).collect();
    assert_eq!(counts, [None], "the server has one more than the cache");
}

/// Accepts every change and stores none, so the library's own store never catches up.
struct Nothing;

impl Sink for Nothing {
    fn send<'a>(&'a self, _: &'a Scope, _: Change) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_behind_is_not_counted() {
    let script = ScriptedSource::new();
    let source = Checked::new(&script, &[History::Same]);
    script.lists(5, &[("a", 1), ("b", 2)]);
    script.on_watch(Script::TextFor(String::new(), Duration::from_secs(3)));
    let _watch = script.live_watch();
    let config = ReflectorConfig { streaming_lists: false, ..ReflectorConfig::default() };
    let reflector =
        Reflector::new(Kind::new("v1", "Pod", "pods", true), source.clone(), Arc::new(Nothing), config);
    let _ = tokio::time::timeout(Duration::from_mins(1), reflector.run()).await;
    let counts: Vec<_> = source.checks().iter().map(|(_, check)| check.count).collect();
    assert_eq!(counts, [None]);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_fails_with_its_connection_is_repeated_soon_after_the_next_watch() {
    let script = ScriptedSource::new();
    let begun = Instant::now();
    let dead_until = begun + Duration::from_millis(18_500);
    let source = Checked::by(&script, move |_| {
        let now = Instant::now();
        Box::pin(async move {
            if now < dead_until {
                tokio::time::sleep(Duration::from_secs(15)).await;
                return Err(SourceError::transport("the connection is lost", "no answer to a ping"));
            }
            Ok(History::Same)
        })
    });
    script.lists(5, &[("a", 1)]);
    script.on_watch(Script::TextFor(String::new(), Duration::from_secs(3)));
    // It ends a moment after the check that waits for an answer over the same connection.
    script.on_watch(Script::TextFor(String::new(), Duration::from_millis(15_500)));
    let _watch = script.live_watch();
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), paged());
    informer.start();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let checks: Vec<u64> = source.checks().iter().map(|(at, _)| (*at - begun).as_secs()).collect();
    assert_eq!(checks, [3, 19]);
}

#[tokio::test(start_paused = true)]
async fn checks_that_had_no_answer_do_not_delay_those_after_a_list() {
    let (server, faults, _factory, informer) = weather_of(1, InformerOptions::default()).await;
    let backup = server.backup();
    create(&api(&server), "lost", "1").await;
    settle().await;
    faults.inject(Rule::on(Fault::Timeout).verb(Verb::List).times(3));
    faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
    // Checks after 0, 10 and 30 seconds, and a list after 70.
    tokio::time::sleep(Duration::from_secs(75)).await;
    assert_eq!(informer.status()[0].counts.verifications, 1);
    cut_off(&faults).await;
    server.restore(&backup);
    tokio::time::sleep(Duration::from_secs(5)).await;
    faults.clear();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(content(&informer), "a=1");
}
