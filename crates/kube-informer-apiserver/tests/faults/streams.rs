//! Faults in an answer as a whole.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube_client::client::Body;
use kube_wire::gzip::Gunzip;
use tokio::time::Instant;
use tower::Service;

use crate::cluster::{Answer, Cluster, End, PODS, WATCH};

#[tokio::test(start_paused = true)]
async fn cut_between_frames_after_a_time() {
    let cluster = Cluster::with("watch: cut-stream after 3s").await;
    let start = Instant::now();
    let (answer, end) = cluster.read(WATCH).await;
    assert_eq!(end, End::Broken(ErrorKind::ConnectionReset));
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert_eq!(answer.events(), ["ADDED a", "ADDED b", "ADDED c"]);
}

#[tokio::test(start_paused = true)]
async fn cut_between_frames_after_events() {
    let cluster = Cluster::with("watch: cut-stream after 2 events").await;
    let (answer, end) = cluster.read(WATCH).await;
    assert_eq!(end, End::Broken(ErrorKind::ConnectionReset));
    assert_eq!(answer.events(), ["ADDED a", "ADDED b"]);
}

#[tokio::test(start_paused = true)]
async fn cut_inside_a_list() {
    let cluster = Cluster::with("list: cut-stream after 1 events").await;
    let (answer, end) = cluster.read(PODS).await;
    assert_eq!((answer.status, end), (200, End::Broken(ErrorKind::ConnectionReset)));
    assert!(answer.text().contains("\"name\":\"a\"") && !answer.text().contains("\"name\":\"b\""));
}

#[tokio::test(start_paused = true)]
async fn cut_inside_a_single_object() {
    let cluster = Cluster::with("get: cut-frame").await;
    let (answer, end) = cluster.read(&format!("{PODS}/a")).await;
    assert_eq!((answer.status, end), (200, End::Broken(ErrorKind::ConnectionReset)));
    assert!(answer.text().starts_with("{\"kind\":\"Pod\"") && !answer.text().ends_with('}'));
}

#[tokio::test(start_paused = true)]
async fn end_between_frames() {
    let cluster = Cluster::with("watch: end-stream after 1 events").await;
    let (answer, end) = cluster.read(WATCH).await;
    assert_eq!((answer.events(), end), (vec!["ADDED a".into()], End::Clean));
}

#[tokio::test(start_paused = true)]
async fn who_reads_on_behind_the_end_gets_nothing() {
    let cluster = Cluster::with("watch: end-stream after 1 events").await;
    let request = Request::get(WATCH).body(Body::empty()).unwrap();
    let mut body = cluster.server.connect().call(request).await.unwrap().into_body();
    while body.frame().await.is_some() {}
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn stall_without_closing() {
    let cluster = Cluster::with("watch: stall-stream after 3 events").await;
    let (mut answer, end) = cluster.read(WATCH).await;
    assert_eq!((answer.status, end), (200, End::Silence));
    cluster.create("d").await;
    assert_eq!(answer.read().await, End::Silence);
    assert_eq!(answer.events(), ["ADDED a", "ADDED b", "ADDED c"], "d is never told");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_stream_can_be_cut() {
    let cluster = Cluster::with(
        "watch: stall-stream after 1s\nwatch: split-frames after 2s\nwatch: cut-stream after 3s",
    )
    .await;
    let start = Instant::now();
    let (_, end) = cluster.read(WATCH).await;
    assert_eq!((end, start.elapsed()), (End::Broken(ErrorKind::ConnectionReset), Duration::from_secs(3)));
}

#[tokio::test(start_paused = true)]
async fn times_beyond_all_clocks_never_come() {
    let ages = "18446744073709551615s";
    let script =
        format!("watch: cut-stream after {ages}\nany: end-stream from {ages}\nlist: drip 1 bytes per {ages}");
    let cluster = Cluster::with(&script).await;
    for uri in [WATCH, PODS] {
        assert_eq!(cluster.read(uri).await.1, End::Silence);
    }
}

#[tokio::test(start_paused = true)]
async fn stall_after_the_headers() {
    let cluster = Cluster::with("list: stall-stream").await;
    let (answer, end) = cluster.read(PODS).await;
    assert_eq!((answer.status, answer.frames.len(), end), (200, 0, End::Silence));
}

#[tokio::test(start_paused = true)]
async fn gone_in_the_stream() {
    let cluster = Cluster::with("watch: expired-event after 1 events").await;
    let (answer, end) = cluster.read(WATCH).await;
    assert_eq!((answer.status, end), (200, End::Clean));
    assert_eq!(answer.events(), ["ADDED a", "ERROR 410"]);
    assert!(answer.text().contains("\"reason\":\"Expired\""));
}

#[tokio::test(start_paused = true)]
async fn internal_error_in_the_stream() {
    let cluster = Cluster::with("watch: error-event").await;
    let (answer, end) = cluster.read(WATCH).await;
    assert_eq!((answer.events(), end), (vec!["ERROR 500".into()], End::Clean));
}

#[tokio::test(start_paused = true)]
async fn slow_drip() {
    let whole = Cluster::new().await.read(PODS).await.0.bytes();
    let cluster = Cluster::with("list: drip 100 bytes per 250ms").await;
    let start = Instant::now();
    let (answer, end) = cluster.read(PODS).await;
    assert_eq!((answer.bytes().len(), end), (whole.len(), End::Clean));
    assert!(answer.frames.iter().all(|frame| frame.len() <= 100));
    assert_eq!(start.elapsed(), Duration::from_millis(250) * answer.frames.len() as u32);
}

#[tokio::test(start_paused = true)]
async fn a_dripping_stream_can_be_cut() {
    let cluster = Cluster::with("watch: drip 1 bytes per 100ms\nwatch: cut-stream after 1s").await;
    let (answer, end) = cluster.read(WATCH).await;
    assert_eq!(end, End::Broken(ErrorKind::ConnectionReset));
    assert!((8..=11).contains(&answer.bytes().len()), "about a byte each tenth of a second");
}

#[tokio::test(start_paused = true)]
async fn frames_split_at_every_byte() {
    let cluster = Cluster::with("watch: split-frames").await;
    let (answer, end) = cluster.read(WATCH).await;
    assert!(answer.frames.iter().all(|frame| frame.len() == 1));
    assert_eq!(
        (answer.events(), end),
        (vec!["ADDED a".into(), "ADDED b".into(), "ADDED c".into()], End::Silence)
    );
}

async fn gzipped(rule: &str, uri: &str) -> (Answer, End) {
    let cluster = Cluster::with(rule).await;
    let request = Request::get(uri).header("accept-encoding", "gzip").body(Body::empty()).unwrap();
    let mut answer = cluster.request(request).await.unwrap();
    assert_eq!(answer.headers["content-encoding"], "gzip");
    let end = answer.read().await;
    (answer, end)
}

fn unpack(answer: &Answer) -> (Vec<u8>, bool) {
    let mut gunzip = Gunzip::default();
    let (packed, mut plain) = (answer.bytes(), Vec::new());
    let mut packed = &packed[..];
    while !packed.is_empty() {
        plain.extend_from_slice(&gunzip.push(&mut packed).unwrap());
    }
    (plain, gunzip.finish().is_ok())
}

#[tokio::test(start_paused = true)]
async fn gzip_in_many_members() {
    let (answer, end) = gzipped("list: gzip-members", PODS).await;
    assert_eq!(end, End::Clean);
    let (bytes, is_complete) = unpack(&answer);
    assert!(is_complete);
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()["items"].as_array().unwrap().len(),
        3
    );

    let mut first = Vec::new();
    flate2::read::GzDecoder::new(answer.bytes().as_slice()).read_to_end(&mut first).unwrap();
    assert!(first.len() < bytes.len(), "a decoder that stops after one member loses the rest");
}

#[tokio::test(start_paused = true)]
async fn gzip_in_many_members_in_a_watch() {
    let (answer, end) = gzipped("watch: gzip-members", WATCH).await;
    assert_eq!(end, End::Silence);
    assert_eq!(answer.frames.len(), 3, "a member for each event");
    let (bytes, is_complete) = unpack(&answer);
    assert!(is_complete);
    assert_eq!(String::from_utf8(bytes).unwrap().lines().count(), 3);
}

#[tokio::test(start_paused = true)]
async fn gzip_truncated() {
    for uri in [PODS, WATCH] {
        let (answer, end) = gzipped("any: gzip-truncated", uri).await;
        assert_eq!(end, End::Clean);
        let (_, is_complete) = unpack(&answer);
        assert!(!is_complete && !answer.bytes().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn gzip_is_only_for_those_who_accept_it() {
    let cluster = Cluster::with("any: gzip-members").await;
    let (answer, _) = cluster.read(PODS).await;
    assert!(!answer.headers.contains_key("content-encoding"));
    assert_eq!(answer.json()["items"].as_array().unwrap().len(), 3);
}

/// A server, or a proxy before it, that accepts watches and does not keep them.
#[tokio::test(start_paused = true)]
async fn a_watch_is_accepted_and_closed_early() {
    for (rule, end) in
        [("watch: end-stream", End::Clean), ("watch: cut-stream", End::Broken(ErrorKind::ConnectionReset))]
    {
        let now = Instant::now();
        let (answer, closed) = Cluster::with(rule).await.read(WATCH).await;
        assert_eq!((answer.status, answer.frames.len(), closed), (200, 0, end), "{rule}");
        assert_eq!(now.elapsed().as_millis(), 0, "{rule}");
    }
    let cluster = Cluster::with("watch: end-stream after 300ms").await;
    let now = Instant::now();
    let (answer, end) = cluster.read(WATCH).await;
    assert_eq!((answer.events().len(), end, now.elapsed().as_millis()), (3, End::Clean, 300));
}
