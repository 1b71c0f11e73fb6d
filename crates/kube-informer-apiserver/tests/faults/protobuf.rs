//! The faults that change what is sent, over the protobuf wire: each does what it does to JSON.

use std::io::{ErrorKind, Read as _};

use http::Request;
use kube_client::client::Body;
use kube_informer_apiserver::faults::Fault;
use kube_wire::Metadata;
use kube_wire::gzip::Gunzip;
use kube_wire::json::EventType;
use kube_wire::protobuf::{Envelope, FrameSplitter, Kind, ListSplitter, WatchEvent, from_slice};
use serde_json::Value;

use crate::cluster::{Answer, Cluster, End, PODS, STREAMING, WATCH};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

async fn get(cluster: &Cluster, uri: &str) -> Answer {
    cluster.get_as(PROTOBUF, uri).await
}

async fn read(cluster: &Cluster, uri: &str) -> (Answer, End) {
    cluster.read_as(PROTOBUF, uri).await
}

/// An event as far as it can be read.
#[derive(Debug)]
struct Event {
    kind: EventType,
    of: Kind,
    raw: Vec<u8>,
}

impl Event {
    fn object(&self) -> Result<Value, kube_wire::WireError> {
        from_slice(self.of, &self.raw)
    }

    fn name(&self) -> Option<String> {
        Metadata::from_protobuf(self.of, &self.raw).ok().map(|metadata| metadata.name.into_owned())
    }
}

/// The events of a watch; none for a frame that is no event, and whether the stream stops inside one.
fn frames(answer: &Answer) -> (Vec<Option<Event>>, bool) {
    assert_eq!(answer.headers["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let mut splitter = FrameSplitter::default();
    splitter.push(&answer.bytes());
    let mut events = Vec::new();
    while let Some(frame) = splitter.next_frame().unwrap() {
        events.push(WatchEvent::parse(&frame).ok().map(|event| Event {
            kind: event.kind,
            of: Kind::find(event.object.api_version, event.object.kind).unwrap(),
            raw: event.object.raw.to_vec(),
        }));
    }
    (events, splitter.finish().is_err())
}

/// The events in short: `ADDED a`, `BOOKMARK end`, `ERROR 410`, `?` for what is no event, `…` for half of one.
fn events(answer: &Answer) -> Vec<String> {
    let (frames, is_cut) = frames(answer);
    let mut events: Vec<String> =
        frames.iter().map(|event| event.as_ref().map_or("?".into(), brief)).collect();
    events.extend(is_cut.then(|| "…".to_owned()));
    events
}

fn brief(event: &Event) -> String {
    let object = event.object().unwrap_or_default();
    match event.kind {
        EventType::Bookmark if object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true" => {
            "BOOKMARK end".into()
        }
        EventType::Bookmark => "BOOKMARK".into(),
        EventType::Error => format!("ERROR {}", object["code"]),
        _ => format!("{} {}", event.kind, event.name().unwrap_or("?".into())),
    }
}

async fn watch(script: &str) -> (Answer, End) {
    Cluster::watch_changes(PROTOBUF, script).await
}

/// The first event of a type.
fn first(answer: &Answer, kind: &EventType) -> Event {
    frames(answer).0.into_iter().flatten().find(|event| event.kind == *kind).unwrap()
}

/// The bare items of a list, and its version.
fn items(answer: &Answer) -> (Vec<Vec<u8>>, String) {
    assert_eq!(answer.headers["content-type"], PROTOBUF);
    let mut list = ListSplitter::default();
    list.push(&answer.bytes());
    let mut items = Vec::new();
    while let Some(item) = list.next_item().unwrap() {
        items.push(item.to_vec());
    }
    (items, list.finish().unwrap().resource_version.unwrap().to_string())
}

fn pod() -> Kind {
    Kind::find("v1", "Pod").unwrap()
}

#[tokio::test(start_paused = true)]
async fn without_faults_everything_is_told() {
    let (answer, end) = watch("any: gone from 9999s").await;
    assert_eq!(
        (events(&answer), end),
        (vec!["ADDED d".into(), "MODIFIED d".into(), "DELETED d".into()], End::Silence)
    );
}

#[tokio::test(start_paused = true)]
async fn refusals_are_statuses_in_protobuf() {
    for (fault, code) in [
        ("unauthorized", 401),
        ("forbidden", 403),
        ("not-found", 404),
        ("gone", 410),
        ("too-many-requests retry-after 3s", 429),
        ("internal-error", 500),
        ("unavailable", 503),
        ("timeout", 504),
        ("version-too-large", 504),
    ] {
        let cluster = Cluster::with(&format!("list: {fault}")).await;
        let (answer, _) = read(&cluster, PODS).await;
        let bytes = answer.bytes();
        let envelope = Envelope::parse(&bytes).unwrap();
        assert_eq!((answer.status, envelope.kind), (code, "Status"), "{fault}");
        let status: Value = from_slice(Kind::find("v1", "Status").unwrap(), envelope.raw).unwrap();
        assert_eq!(status["code"], code);
        assert_eq!(
            answer.headers.contains_key("retry-after"),
            fault.contains("retry") || fault.contains("large")
        );
    }
    let cluster = Cluster::with("watch: reject-streaming-list").await;
    let (answer, _) = read(&cluster, STREAMING).await;
    assert_eq!((answer.status, &answer.headers["content-type"]), (422, &PROTOBUF.parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_is_ignored_is_a_watch() {
    let cluster = Cluster::with("watch: ignore-streaming-list").await;
    let (answer, _) = read(&cluster, STREAMING).await;
    assert_eq!(events(&answer), ["ADDED a", "ADDED b", "ADDED c"]);
}

#[tokio::test(start_paused = true)]
async fn cut_ended_stalled_between_frames() {
    let cluster = Cluster::with("watch: cut-stream after 2 events").await;
    let (answer, end) = read(&cluster, WATCH).await;
    assert_eq!(
        (events(&answer), end),
        (vec!["ADDED a".into(), "ADDED b".into()], End::Broken(ErrorKind::ConnectionReset))
    );
    let cluster = Cluster::with("watch: end-stream after 1 events").await;
    let (answer, end) = read(&cluster, WATCH).await;
    assert_eq!((events(&answer), end), (vec!["ADDED a".into()], End::Clean));
    let cluster = Cluster::with("watch: stall-stream after 1 events").await;
    let (answer, end) = read(&cluster, WATCH).await;
    assert_eq!((events(&answer), end), (vec!["ADDED a".into()], End::Silence));
    let cluster = Cluster::with("list: cut-stream after 1 events").await;
    let (answer, end) = read(&cluster, PODS).await;
    assert_eq!((answer.status, end), (200, End::Broken(ErrorKind::ConnectionReset)));
    let mut list = ListSplitter::default();
    list.push(&answer.bytes());
    assert!(list.next_item().unwrap().is_some() && list.next_item().unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn errors_in_the_stream() {
    for (fault, code, reason) in [("expired-event", 410, "Expired"), ("error-event", 500, "InternalError")] {
        let cluster = Cluster::with(&format!("watch: {fault} after 1 events")).await;
        let (answer, end) = read(&cluster, WATCH).await;
        assert_eq!((events(&answer), end), (vec!["ADDED a".into(), format!("ERROR {code}")], End::Clean));
        assert_eq!(first(&answer, &EventType::Error).object().unwrap()["reason"], reason);
    }
}

#[tokio::test(start_paused = true)]
async fn split_and_dripping_frames_say_the_same() {
    for (fault, size) in [("split-frames", 1), ("drip 100 bytes per 50ms", 100)] {
        let cluster = Cluster::with(&format!("any: {fault}")).await;
        let (answer, _) = read(&cluster, WATCH).await;
        assert!(answer.frames.iter().all(|frame| frame.len() <= size));
        assert_eq!(events(&answer), ["ADDED a", "ADDED b", "ADDED c"]);
        let (answer, end) = read(&cluster, PODS).await;
        assert!(answer.frames.iter().all(|frame| frame.len() <= size));
        assert_eq!((items(&answer).0.len(), end), (3, End::Clean));
    }
}

#[tokio::test(start_paused = true)]
async fn gzip_in_many_members_and_gzip_that_stops() {
    for uri in [PODS, WATCH] {
        for fault in ["gzip-members", "gzip-truncated"] {
            let cluster = Cluster::with(&format!("any: {fault}")).await;
            let request = Request::get(uri).header("accept", PROTOBUF).header("accept-encoding", "gzip");
            let mut answer = cluster.request(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.headers["content-encoding"], "gzip");
            answer.read().await;
            let mut gunzip = Gunzip::default();
            let (packed, mut unpacked) = (answer.bytes(), Vec::new());
            let mut packed = &packed[..];
            while !packed.is_empty() {
                unpacked.extend_from_slice(&gunzip.push(&mut packed).unwrap());
            }
            assert_eq!(gunzip.finish().is_ok(), fault == "gzip-members", "{uri}");
            if fault == "gzip-members" {
                let plain = read(&Cluster::new().await, uri).await.0.bytes();
                assert_eq!(unpacked, plain, "{uri}");
                let mut first = Vec::new();
                flate2::read::GzDecoder::new(&answer.bytes()[..]).read_to_end(&mut first).unwrap();
                assert!(first.len() < plain.len(), "{uri}: more than one member");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cut_and_ended_inside_a_frame_or_item() {
    let (answer, end) = watch("watch: cut-frame after 1 events").await;
    assert_eq!(
        (events(&answer), end),
        (vec!["ADDED d".into(), "…".into()], End::Broken(ErrorKind::ConnectionReset))
    );
    let (answer, end) = watch("watch: truncate-frame").await;
    assert_eq!((events(&answer), end), (vec!["…".into()], End::Clean));
    for (fault, expected) in
        [("cut-frame", End::Broken(ErrorKind::ConnectionReset)), ("truncate-frame", End::Clean)]
    {
        let cluster = Cluster::with(&format!("list: {fault} after 1 events")).await;
        let (answer, end) = read(&cluster, PODS).await;
        assert_eq!(end, expected);
        let mut list = ListSplitter::default();
        list.push(&answer.bytes());
        assert!(list.next_item().unwrap().is_some() && list.next_item().unwrap().is_none());
        assert!(list.finish().is_err());
    }
    let cluster = Cluster::with("get: cut-frame").await;
    let (answer, end) = read(&cluster, &format!("{PODS}/a")).await;
    assert_eq!(end, End::Broken(ErrorKind::ConnectionReset));
    assert!(Envelope::parse(&answer.bytes()).is_err());
}

#[tokio::test(start_paused = true)]
async fn bookmarks_that_lack_or_come_twice() {
    let cluster = Cluster::with("watch: no-end-bookmark").await;
    let (answer, end) = read(&cluster, STREAMING).await;
    assert_eq!(
        (events(&answer), end),
        (vec!["ADDED a".into(), "ADDED b".into(), "ADDED c".into()], End::Silence)
    );
    let cluster = Cluster::with("watch: two-end-bookmarks").await;
    let (answer, _) = read(&cluster, STREAMING).await;
    assert_eq!(events(&answer)[3..], ["BOOKMARK end", "BOOKMARK end"]);
    let cluster = Cluster::with("watch: no-bookmarks").await;
    let mut answer = get(&cluster, &format!("{STREAMING}&timeoutSeconds=200")).await;
    while answer.read().await == End::Silence {}
    assert!(events(&answer).iter().all(|event| !event.starts_with("BOOKMARK")));
    assert!(cluster.faults.count(Fault::NoBookmarks) >= 3);
}

#[tokio::test(start_paused = true)]
async fn events_that_are_lost_repeated_or_made_up() {
    let (answer, _) = watch("watch: lost-event event MODIFIED").await;
    assert_eq!(events(&answer), ["ADDED d", "DELETED d"]);
    let (answer, _) = watch("watch: duplicate-event 1 times").await;
    assert_eq!(events(&answer), ["ADDED d", "ADDED d", "MODIFIED d", "DELETED d"]);
    let (answer, _) = watch("watch: unknown-object 1 times").await;
    assert_eq!(events(&answer), ["ADDED d", "MODIFIED d-unknown", "MODIFIED d", "DELETED d"]);
    let uid = |kind| first(&answer, kind).object().unwrap()["metadata"]["uid"].clone();
    assert_ne!(uid(&EventType::Modified), uid(&EventType::Added));
    let (answer, _) = watch("watch: other-kind event DELETED").await;
    assert_eq!(events(&answer), ["ADDED d", "MODIFIED d", "DELETED d", "ADDED d"]);
    let last = frames(&answer).0.pop().unwrap().unwrap();
    assert_eq!(last.of.to_string(), "v1 Secret");
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_is_no_event() {
    let (answer, end) = watch("watch: bad-json event MODIFIED").await;
    assert_eq!(
        (events(&answer), end),
        (vec!["ADDED d".into(), "?".into(), "DELETED d".into()], End::Silence)
    );
}

#[tokio::test(start_paused = true)]
async fn bad_objects_in_every_kind_of_event() {
    for kind in [EventType::Added, EventType::Modified, EventType::Deleted] {
        let (answer, end) = watch(&format!("watch: no-metadata event {kind}")).await;
        assert_eq!((frames(&answer).0.len(), end), (3, End::Silence));
        assert_eq!(first(&answer, &kind).name(), None);

        let (answer, _) = watch(&format!("watch: bad-metadata event {kind}")).await;
        let bad = first(&answer, &kind);
        let error = bad.object().unwrap_err().to_string();
        assert!(bad.name().is_none() && error.contains("labels"), "{error}");
        assert!(bad.raw.windows(3).any(|window| window == b"\x0a\x01d"), "the name is still there");

        let (answer, _) = watch(&format!("watch: bad-body event {kind}")).await;
        let bad = first(&answer, &kind);
        assert_eq!(bad.name().as_deref(), Some("d"));
        let error = bad.object().unwrap_err().to_string();
        assert!(error.contains("data"), "{error}");

        let (answer, _) = watch(&format!("watch: bad-version event {kind}")).await;
        let version = first(&answer, &kind).object().unwrap()["metadata"]["resourceVersion"].clone();
        assert!(version.as_str().unwrap().starts_with('v'), "{version}");
    }
    let cluster = Cluster::with("watch: bad-version event BOOKMARK").await;
    let (answer, _) = read(&cluster, STREAMING).await;
    let bookmark = first(&answer, &EventType::Bookmark).object().unwrap();
    assert!(bookmark["metadata"]["resourceVersion"].as_str().unwrap().starts_with('v'));
}

#[tokio::test(start_paused = true)]
async fn bad_objects_in_a_list() {
    for fault in ["no-metadata", "bad-metadata", "bad-body"] {
        let cluster = Cluster::with(&format!("list: {fault} after 1 events, 1 times")).await;
        let (answer, end) = read(&cluster, PODS).await;
        let (items, _) = items(&answer);
        assert_eq!((items.len(), end), (3, End::Clean), "{fault}");
        for (i, item) in items.iter().enumerate() {
            assert_eq!(from_slice::<Value>(pod(), item).is_ok(), i != 1, "{fault}, item {i}");
        }
        let name = Metadata::from_protobuf(pod(), &items[1]).ok().map(|metadata| metadata.name.into_owned());
        assert_eq!(name.as_deref(), (fault == "bad-body").then_some("b"), "{fault}");
    }
    let cluster = Cluster::with("list: bad-version").await;
    let (items, version) = items(&read(&cluster, PODS).await.0);
    assert!(version.starts_with('v'), "{version}");
    assert_eq!(items.len(), 3);
    assert!(items.iter().all(|item| from_slice::<Value>(pod(), item).is_ok()));
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_is_spoiled_too() {
    let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for (fault, bad) in [("no-metadata", true), ("bad-metadata", true), ("bad-body", false)] {
        let cluster = Cluster::with(&format!("list: {fault}")).await;
        let (answer, _) = cluster.read_as(accept, PODS).await;
        let kind = Kind::find("meta.k8s.io/v1", "PartialObjectMetadata").unwrap();
        for item in items(&answer).0 {
            assert_eq!(Metadata::from_protobuf(kind, &item).is_err(), bad, "{fault}");
        }
    }
}
