//! Faults in single events and items.

use std::io::ErrorKind;

use kube_informer_apiserver::faults::Fault;
use serde_json::Value;

use crate::cluster::{Answer, Cluster, End, PODS, STREAMING};

async fn watch(script: &str) -> (Answer, End) {
    Cluster::watch_changes("application/json", script).await
}

/// The object of the first event of a type.
fn object(answer: &Answer, kind: &str) -> Value {
    let text = answer.text();
    let mut events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.find(|event| event["type"] == kind).unwrap()["object"].clone()
}

#[tokio::test(start_paused = true)]
async fn without_faults_everything_is_told() {
    let (answer, end) = watch("any: gone from 9999s").await;
    assert_eq!(
        (answer.events(), end),
        (vec!["ADDED d".into(), "MODIFIED d".into(), "DELETED d".into()], End::Silence)
    );
}

#[tokio::test(start_paused = true)]
async fn cut_inside_a_frame() {
    let (answer, end) = watch("watch: cut-frame after 1 events").await;
    assert_eq!(end, End::Broken(ErrorKind::ConnectionReset));
    let events = answer.events();
    assert_eq!((events.len(), &events[0][..], &events[1][..1]), (2, "ADDED d", "?"));
}

#[tokio::test(start_paused = true)]
async fn cut_inside_an_item_of_a_list() {
    let cluster = Cluster::with("list: cut-frame after 1 events").await;
    let (answer, end) = cluster.read(PODS).await;
    assert_eq!(end, End::Broken(ErrorKind::ConnectionReset));
    assert!(answer.text().contains("\"name\":\"b\"") && !answer.text().contains("\"name\":\"c\""));
}

#[tokio::test(start_paused = true)]
async fn end_inside_a_frame() {
    let (answer, end) = watch("watch: truncate-frame").await;
    assert_eq!(end, End::Clean);
    assert!(answer.events().len() == 1 && answer.events()[0].starts_with('?'));
}

#[tokio::test(start_paused = true)]
async fn end_inside_an_item_of_a_list() {
    let cluster = Cluster::with("list: truncate-frame after 2 events").await;
    let (answer, end) = cluster.read(PODS).await;
    assert_eq!(end, End::Clean);
    assert!(serde_json::from_slice::<Value>(&answer.bytes()).unwrap_err().is_eof());
}

#[tokio::test(start_paused = true)]
async fn no_end_bookmark() {
    let cluster = Cluster::with("watch: no-end-bookmark").await;
    let (answer, end) = cluster.read(STREAMING).await;
    assert_eq!(
        (answer.events(), end),
        (vec!["ADDED a".into(), "ADDED b".into(), "ADDED c".into()], End::Silence)
    );
}

#[tokio::test(start_paused = true)]
async fn two_end_bookmarks() {
    let cluster = Cluster::with("watch: two-end-bookmarks").await;
    let (answer, _) = cluster.read(STREAMING).await;
    assert_eq!(answer.events()[3..], ["BOOKMARK end", "BOOKMARK end"]);
}

#[tokio::test(start_paused = true)]
async fn no_bookmarks_at_all() {
    let uri = format!("{STREAMING}&timeoutSeconds=200");
    let mut seen = Vec::new();
    for script in ["create: gone", "watch: no-bookmarks"] {
        let cluster = Cluster::with(script).await;
        let mut answer = cluster.get(&uri).await.unwrap();
        while answer.read().await == End::Silence {}
        seen.push(answer.events().iter().filter(|event| event.starts_with("BOOKMARK")).count());
        assert_eq!(cluster.faults.count(Fault::NoBookmarks) > 0, script.contains("bookmarks"));
    }
    assert!(seen[0] >= 3, "the end of the list, one a minute, one at the end: {seen:?}");
    assert_eq!(seen[1], 0);
}

#[tokio::test(start_paused = true)]
async fn lost_event() {
    let (answer, end) = watch("watch: lost-event event MODIFIED").await;
    assert_eq!((answer.events(), end), (vec!["ADDED d".into(), "DELETED d".into()], End::Silence));
}

#[tokio::test(start_paused = true)]
async fn duplicate_event() {
    let (answer, _) = watch("watch: duplicate-event 1 times").await;
    assert_eq!(answer.events(), ["ADDED d", "ADDED d", "MODIFIED d", "DELETED d"]);
    let text = answer.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], lines[1]);
}

#[tokio::test(start_paused = true)]
async fn modified_of_an_unknown_object() {
    let (answer, _) = watch("watch: unknown-object 1 times").await;
    assert_eq!(answer.events(), ["ADDED d", "MODIFIED d-unknown", "MODIFIED d", "DELETED d"]);
    assert_ne!(object(&answer, "MODIFIED")["metadata"]["uid"], object(&answer, "ADDED")["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn event_of_another_kind() {
    let (answer, _) = watch("watch: other-kind event DELETED").await;
    assert_eq!(answer.events(), ["ADDED d", "MODIFIED d", "DELETED d", "ADDED d"]);
    let text = answer.text();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["object"]["kind"], "Secret");
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_not_json() {
    let (answer, end) = watch("watch: bad-json event MODIFIED").await;
    assert_eq!(end, End::Silence);
    let events = answer.events();
    assert_eq!((&events[0][..], &events[1][..1], &events[2][..]), ("ADDED d", "?", "DELETED d"));
}

#[tokio::test(start_paused = true)]
async fn unreadable_metadata_in_every_kind_of_event() {
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        let (answer, end) = watch(&format!("watch: no-metadata event {kind}")).await;
        assert_eq!((answer.events().len(), end), (3, End::Silence));
        assert_eq!(object(&answer, kind)["metadata"], 7);

        let (answer, _) = watch(&format!("watch: bad-metadata event {kind}")).await;
        let metadata = object(&answer, kind)["metadata"].clone();
        assert_eq!((&metadata["labels"], &metadata["name"]), (&Value::from(7), &Value::from("d")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_the_wrong_type_in_every_kind_of_event() {
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        let (answer, _) = watch(&format!("watch: bad-body event {kind}")).await;
        let bad = object(&answer, kind);
        assert_eq!((&bad["data"], &bad["metadata"]["name"]), (&Value::from(7), &Value::from("d")));
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_parse_in_a_list() {
    let cluster = Cluster::with(
        "list: no-metadata after 1 events, requests 4..4, 1 times\n\
         list: bad-metadata after 1 events, requests 5..5, 1 times\n\
         list: bad-body after 1 events, requests 6..6, 1 times",
    )
    .await;
    let mut bad = Vec::new();
    for _ in 0..3 {
        let list = cluster.read(PODS).await.0.json();
        assert_eq!(list["items"].as_array().unwrap().len(), 3);
        assert_eq!(list["items"][0]["metadata"]["labels"]["app"], "web");
        assert!(list["items"][2]["spec"]["containers"].is_array());
        bad.push(list["items"][1].clone());
    }
    assert_eq!(bad[0]["metadata"], 7);
    assert_eq!(
        (&bad[1]["metadata"]["labels"], &bad[1]["metadata"]["name"]),
        (&Value::from(7), &Value::from("b"))
    );
    assert_eq!((&bad[2]["spec"], &bad[2]["metadata"]["name"]), (&Value::from(7), &Value::from("b")));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_no_number() {
    let is_number =
        |value: &Value| value["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().is_ok();
    let cluster = Cluster::with("list: bad-version").await;
    let list = cluster.read(PODS).await.0.json();
    assert!(!is_number(&list));
    assert!(is_number(&list["items"][0]), "the objects of the list keep theirs");
    assert_eq!(list["items"].as_array().unwrap().len(), 3);

    let (answer, _) = watch("watch: bad-version event MODIFIED").await;
    assert!(!is_number(&object(&answer, "MODIFIED")));
    assert!(is_number(&object(&answer, "DELETED")));

    let cluster = Cluster::with("watch: bad-version event BOOKMARK").await;
    let (answer, _) = cluster.read(STREAMING).await;
    assert!(!is_number(&object(&answer, "BOOKMARK")));
}
