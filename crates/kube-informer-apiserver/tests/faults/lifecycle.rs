//! Faults of the server itself, and rules that come and go while it runs.

use std::io::ErrorKind;
use std::time::Duration;

use kube_informer_apiserver::Verb;
use kube_informer_apiserver::faults::{Fault, Rule};
use serde_json::Value;

use crate::cluster::{Cluster, End, PODS, STREAMING, WATCH};

async fn names(cluster: &Cluster, uri: &str) -> (u64, Vec<String>) {
    let list = cluster.read(uri).await.0.json();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    (version, list["items"].as_array().unwrap().iter().map(name).collect())
}

#[tokio::test(start_paused = true)]
async fn restart() {
    let cluster = Cluster::new().await;
    let (before, _) = names(&cluster, PODS).await;
    let (mut open, _) = cluster.read(WATCH).await;
    cluster.inject("get: restart 1 times");
    assert_eq!(cluster.get(&format!("{PODS}/a")).await.unwrap().status, 200);
    assert_ne!(open.read().await, End::Silence, "open watches end");
    cluster.create("d").await;
    let (answer, _) = cluster.read(&format!("{PODS}?watch=true&resourceVersion={}", before - 1)).await;
    assert_eq!(answer.events(), ["ERROR 410"], "the history is forgotten");
}

#[tokio::test(start_paused = true)]
async fn compact() {
    let cluster = Cluster::new().await;
    let (before, _) = names(&cluster, PODS).await;
    let (mut open, _) = cluster.read(WATCH).await;
    cluster.create("d").await;
    cluster.inject("get: compact 1 times");
    assert_eq!(cluster.get(&format!("{PODS}/a")).await.unwrap().status, 200);
    let (answer, _) = cluster.read(&format!("{PODS}?watch=true&resourceVersion={}", before - 1)).await;
    assert_eq!(answer.events(), ["ERROR 410"]);
    cluster.create("e").await;
    assert_eq!(open.read().await, End::Silence, "open watches go on");
    assert_eq!(open.events()[3..], ["ADDED d", "ADDED e"]);
}

#[tokio::test(start_paused = true)]
async fn restore_from_a_backup() {
    let cluster = Cluster::with("get: restore 2 behind, 1 times").await;
    let (mut open, _) = cluster.read(WATCH).await;
    for name in ["d", "e", "f"] {
        cluster.create(name).await;
    }
    let (before, all) = names(&cluster, PODS).await;
    assert_eq!(all, ["a", "b", "c", "d", "e", "f"]);
    cluster.get(&format!("{PODS}/a")).await.unwrap();
    let (after, left) = names(&cluster, PODS).await;
    assert_eq!(left, ["a", "b", "c", "d"], "two revisions are lost");
    assert_eq!(after, before - 2, "versions go back");
    assert_ne!(open.read().await, End::Silence, "open watches end");
}

#[tokio::test(start_paused = true)]
async fn stale_replica() {
    let cluster = Cluster::with("any: stale-replica 2 behind").await;
    cluster.create("d").await;
    cluster.create("e").await;
    let (now, all) = names(&cluster, PODS).await;
    assert_eq!(all, ["a", "b", "c", "d", "e"], "a consistent list is never stale");
    let (then, stale) = names(&cluster, &format!("{PODS}?resourceVersion=0")).await;
    assert_eq!((then, stale), (now - 2, vec!["a".into(), "b".into(), "c".into()]));
    assert_eq!(cluster.get(&format!("{PODS}/e?resourceVersion=0")).await.unwrap().status, 404);
    assert_eq!(cluster.get(&format!("{PODS}/e")).await.unwrap().status, 200);
    let (watch, _) = cluster.read(WATCH).await;
    assert_eq!(watch.events()[..3], ["ADDED a", "ADDED b", "ADDED c"]);
    let (not_older, _) =
        names(&cluster, &format!("{PODS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan")).await;
    assert_eq!(not_older, then);
}

#[tokio::test(start_paused = true)]
async fn an_injected_fault_reaches_watches_that_are_open() {
    let cluster = Cluster::new().await;
    let (mut idle, _) = cluster.read(WATCH).await;
    let (mut other, _) = cluster.read("/api/v1/nodes?watch=true").await;
    cluster.inject("pods: cut-stream");
    assert_eq!(idle.read().await, End::Broken(ErrorKind::ConnectionReset), "at once, without an event");
    assert_eq!(other.read().await, End::Silence);
    assert_eq!(cluster.faults.count(Fault::CutStream), 1);
}

#[tokio::test(start_paused = true)]
async fn a_window_opens_for_watches_that_are_open() {
    let cluster = Cluster::new().await;
    cluster.faults.inject(Rule::on(Fault::EndStream).verb(Verb::Watch).from(Duration::from_secs(20)));
    let (mut watch, end) = cluster.read(WATCH).await;
    assert_eq!(end, End::Silence);
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(watch.read().await, End::Clean);
    assert_eq!(cluster.faults.log()[0].at, Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn after_clear_all_is_well() {
    let cluster = Cluster::with("any: refuse").await;
    assert!(cluster.get(PODS).await.is_err());
    cluster.faults.clear();
    assert_eq!(cluster.get(PODS).await.unwrap().status, 200);
    assert_eq!(cluster.faults.count(Fault::Refuse), 1);
}

#[tokio::test(start_paused = true)]
async fn one_fault_of_each_stage_and_the_first_of_each_wins() {
    let script = "watch: delay 1s\nwatch: gone\nwatch: split-frames\nwatch: drip 9 bytes per 1s\n\
        watch: duplicate-event event ADDED, 1 times\nwatch: lost-event";
    let cluster = Cluster::with(script).await;
    let (answer, _) = cluster.read(WATCH).await;
    assert_eq!(answer.events(), ["ADDED a", "ADDED a"], "a twice, b and c lost");
    assert!(answer.frames.iter().all(|frame| frame.len() == 1));
    let names: Vec<_> = cluster.faults.log().iter().map(|injected| injected.fault.name()).collect();
    assert_eq!(names, ["delay", "split-frames", "duplicate-event", "lost-event", "lost-event"]);
}

#[tokio::test(start_paused = true)]
async fn each_client_is_a_connection() {
    let cluster = Cluster::with("any: refuse connections 2").await;
    let second = Cluster {
        client: cluster.server.client(),
        server: cluster.server.clone(),
        faults: cluster.faults.clone(),
    };
    assert_eq!(cluster.get(PODS).await.unwrap().status, 200);
    assert!(second.get(PODS).await.is_err());
    assert_eq!(cluster.get(PODS).await.unwrap().status, 200);
    let log = cluster.faults.log();
    assert_eq!((log.len(), log[0].connection, log[0].request), (1, 2, 5));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_stalled_answer_frees_its_watch() {
    let cluster = Cluster::with("watch: stall-stream after 1 events").await;
    let (answer, end) = cluster.read(WATCH).await;
    assert_eq!((end, cluster.server.stats().open_watches), (End::Silence, 1));
    drop(answer);
    assert_eq!(cluster.server.stats().open_watches, 0);
}

#[tokio::test(start_paused = true)]
async fn requests_that_a_fault_refuses_are_counted() {
    for fault in ["refuse", "stall", "unavailable", "forbidden", "too-many-requests", "cut", "timeout"] {
        let cluster = Cluster::with(&format!("list: {fault} 3 times\nwatch: {fault} 2 times")).await;
        for _ in 0..4 {
            let _ = cluster.get(PODS).await;
        }
        for _ in 0..3 {
            let _ = cluster.get(WATCH).await;
        }
        let _ = cluster.get(STREAMING).await;
        let stats = cluster.server.stats().resource("pods");
        let counted = (stats.lists, stats.watches, stats.streaming_lists);
        assert_eq!(counted, (4, 3, 1), "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_says_what_was_done() {
    let cluster = Cluster::with("watch pods: cut-frame after 2 events").await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    cluster.read(WATCH).await;
    let log: Vec<String> = cluster.faults.log().iter().map(ToString::to_string).collect();
    assert_eq!(log, ["12s request 4 connection 1: watch pods: cut-frame after 2 events (rule 1)"]);
}
