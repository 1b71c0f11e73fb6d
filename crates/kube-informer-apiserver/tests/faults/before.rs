//! Faults before the answer.

use std::io::ErrorKind;
use std::time::Duration;

use http::Method;
use kube_informer_apiserver::faults::Fault;
use tokio::time::Instant;

use crate::cluster::{Cluster, End, PODS, STREAMING, WATCH};

/// The status and its reason.
async fn refused(rule: &str, uri: &str) -> (u16, String, Option<String>) {
    let cluster = Cluster::with(rule).await;
    let (answer, end) = cluster.read(uri).await;
    assert_eq!(end, End::Clean);
    let status = answer.json();
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["code"], answer.status);
    let retry_after = answer.headers.get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    (answer.status, status["reason"].as_str().unwrap().to_owned(), retry_after)
}

#[tokio::test(start_paused = true)]
async fn refuse() {
    let cluster = Cluster::with("delete: refuse 1 times").await;
    let end = cluster.send(Method::DELETE, &format!("{PODS}/a"), "").await.err();
    assert_eq!(end, Some(End::Broken(ErrorKind::ConnectionRefused)));
    assert_eq!(cluster.get(&format!("{PODS}/a")).await.unwrap().status, 200, "the server never heard of it");
}

#[tokio::test(start_paused = true)]
async fn cut_before_the_answer() {
    let cluster = Cluster::with("delete: cut").await;
    let end = cluster.send(Method::DELETE, &format!("{PODS}/a?gracePeriodSeconds=0"), "").await.err();
    assert_eq!(end, Some(End::Broken(ErrorKind::ConnectionReset)));
    assert_eq!(cluster.get(&format!("{PODS}/a")).await.unwrap().status, 404, "the server has done it");
}

#[tokio::test(start_paused = true)]
async fn stall_before_the_answer() {
    let cluster = Cluster::with("list: stall").await;
    assert_eq!(cluster.get(PODS).await.err(), Some(End::Silence));
    assert_eq!(cluster.get(&format!("{PODS}/a")).await.unwrap().status, 200, "the rest goes on");
}

#[tokio::test(start_paused = true)]
async fn delay() {
    let cluster = Cluster::with("list: delay 1500ms").await;
    let start = Instant::now();
    assert_eq!(cluster.get(PODS).await.unwrap().status, 200);
    assert_eq!(start.elapsed().as_millis(), 1500);
}

#[tokio::test(start_paused = true)]
async fn a_fault_before_the_answer_can_be_held_back() {
    let cluster = Cluster::with("list: version-too-large after 3s").await;
    let start = Instant::now();
    assert_eq!(cluster.get(PODS).await.unwrap().status, 504);
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn unauthorized() {
    assert_eq!(refused("any: unauthorized", PODS).await, (401, "Unauthorized".into(), None));
}

#[tokio::test(start_paused = true)]
async fn forbidden() {
    assert_eq!(refused("any: forbidden", WATCH).await, (403, "Forbidden".into(), None));
}

#[tokio::test(start_paused = true)]
async fn not_found() {
    assert_eq!(refused("any: not-found", PODS).await, (404, "NotFound".into(), None));
}

#[tokio::test(start_paused = true)]
async fn method_not_allowed() {
    assert_eq!(refused("any: method-not-allowed", WATCH).await, (405, "MethodNotAllowed".into(), None));
}

#[tokio::test(start_paused = true)]
async fn gone() {
    assert_eq!(refused("any: gone", WATCH).await, (410, "Expired".into(), None));
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_without_retry_after() {
    assert_eq!(refused("any: too-many-requests", PODS).await, (429, "TooManyRequests".into(), None));
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_with_retry_after() {
    let rule = "any: too-many-requests retry-after 1500ms";
    assert_eq!(refused(rule, PODS).await, (429, "TooManyRequests".into(), Some("2".into())));
}

#[tokio::test(start_paused = true)]
async fn internal_error() {
    assert_eq!(refused("any: internal-error", PODS).await, (500, "InternalError".into(), None));
}

#[tokio::test(start_paused = true)]
async fn unavailable() {
    assert_eq!(refused("any: unavailable", WATCH).await, (503, "ServiceUnavailable".into(), None));
}

#[tokio::test(start_paused = true)]
async fn gateway_timeout() {
    assert_eq!(refused("any: timeout", PODS).await, (504, "Timeout".into(), None));
}

#[tokio::test(start_paused = true)]
async fn version_too_large() {
    let cluster = Cluster::with("any: version-too-large").await;
    let (answer, _) = cluster.read(&format!("{PODS}?resourceVersion=900")).await;
    assert_eq!((answer.status, &answer.headers["retry-after"]), (504, &"1".parse().unwrap()));
    let status = answer.json();
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert!(status["message"].as_str().unwrap().contains("Too large resource version: 900"));
}

#[tokio::test(start_paused = true)]
async fn streaming_list_rejected() {
    assert_eq!(refused("any: reject-streaming-list", STREAMING).await, (422, "Invalid".into(), None));
    let cluster = Cluster::with("any: reject-streaming-list").await;
    assert_eq!(cluster.get(WATCH).await.unwrap().status, 200, "an ordinary watch is none");
}

#[tokio::test(start_paused = true)]
async fn streaming_list_ignored() {
    let cluster = Cluster::with("any: ignore-streaming-list").await;
    let (answer, end) = cluster.read(STREAMING).await;
    assert_eq!((answer.status, end), (200, End::Silence));
    assert_eq!(answer.events(), ["ADDED a", "ADDED b", "ADDED c"], "no end bookmark");
    assert_eq!(cluster.faults.count(Fault::IgnoreStreamingList), 1);
}

/// Every refusal can be aimed at watches alone, for as long as a test needs.
#[tokio::test(start_paused = true)]
async fn watches_are_refused_while_lists_work() {
    for (fault, status) in [
        ("unauthorized", 401),
        ("forbidden", 403),
        ("not-found", 404),
        ("method-not-allowed", 405),
        ("gone", 410),
        ("too-many-requests", 429),
        ("internal-error", 500),
        ("unavailable", 503),
        ("timeout", 504),
    ] {
        let cluster = Cluster::with(&format!("watch: {fault} until 3600s")).await;
        for _ in 0..20 {
            assert_eq!(cluster.get(WATCH).await.unwrap().status, status, "{fault}");
            assert_eq!(cluster.get(PODS).await.unwrap().status, 200, "{fault}");
        }
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(cluster.get(WATCH).await.unwrap().status, 200, "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_never_sends_headers_while_lists_work() {
    let cluster = Cluster::with("watch: stall").await;
    assert_eq!(cluster.get(WATCH).await.err(), Some(End::Silence));
    assert_eq!(cluster.get(PODS).await.unwrap().status, 200);
}
