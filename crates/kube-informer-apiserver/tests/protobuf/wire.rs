//! Protobuf on the wire, read back into the JSON it stands for.

use std::time::Duration;

use http_body_util::BodyExt;
use kube_informer_apiserver::{ApiServer, Body};
use kube_wire::json::ListMeta;
use kube_wire::protobuf::{Envelope, FrameSplitter, Kind, ListSplitter, WatchEvent, from_slice, from_value};
use serde_json::{Value, json};

use crate::common::{Answer, brief, open, send_with};

pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
pub(crate) const METADATA_LIST: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// What an envelope holds, with kind and version.
pub(crate) fn decode(bytes: &[u8]) -> Value {
    let envelope = Envelope::parse(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"));
    let kind = Kind::find(envelope.api_version, envelope.kind).expect(envelope.kind);
    from_slice(kind, envelope.raw).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

/// An object in its envelope.
pub(crate) fn encode(object: &Value) -> Vec<u8> {
    let kind = kind_of(object);
    let raw = from_value(kind, object).unwrap_or_else(|error| panic!("{kind}: {error}"));
    let mut bytes = Vec::new();
    Envelope { api_version: kind.api_version(), kind: kind.name(), raw: &raw }.write(&mut bytes);
    bytes
}

/// What an object looks like after a way through protobuf: with everything that Go always writes.
pub(crate) fn canonical(object: &Value) -> Value {
    decode(&encode(object))
}

fn kind_of(object: &Value) -> Kind {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    Kind::find(text("apiVersion"), text("kind")).unwrap_or_else(|| panic!("{object}"))
}

/// The items of a list, and what it says of itself.
pub(crate) fn list(answer: &Answer) -> (Vec<Value>, ListMeta) {
    assert_eq!(answer.headers["content-type"], PROTOBUF);
    let mut splitter = ListSplitter::default();
    splitter.push(&answer.bytes);
    let mut items = Vec::new();
    while let Some(item) = splitter.next_item().unwrap() {
        items.push(item);
    }
    let meta = splitter.finish().unwrap();
    let kind = meta.kind.as_deref().and_then(|kind| kind.strip_suffix("List")).unwrap();
    let kind = Kind::find(meta.api_version.as_deref().unwrap(), kind).unwrap();
    (items.iter().map(|item| from_slice(kind, item).unwrap()).collect(), meta)
}

pub(crate) async fn get(server: &ApiServer, path: &str) -> Answer {
    send_with(server, "GET", path, &[("accept", PROTOBUF)], "").await
}

/// Sends a body of protobuf, and wants protobuf back.
pub(crate) async fn send(server: &ApiServer, method: &str, path: &str, body: &[u8]) -> Answer {
    send_with(server, method, path, &[("accept", PROTOBUF), ("content-type", PROTOBUF)], body).await
}

/// A watch in protobuf, read event by event.
pub(crate) struct Frames {
    body: Body,
    splitter: FrameSplitter,
}

impl Frames {
    pub(crate) async fn open(server: &ApiServer, path: &str) -> Self {
        Self::open_with(server, path, PROTOBUF).await
    }

    pub(crate) async fn open_with(server: &ApiServer, path: &str, accept: &str) -> Self {
        let response = open(server, "GET", path, &[("accept", accept)], b"").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
        Self { body: response.into_body(), splitter: FrameSplitter::default() }
    }

    /// The next event as the JSON that it would be; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(frame) = self.splitter.next_frame().unwrap() {
                let event = WatchEvent::parse(&frame).unwrap();
                let object = event.object;
                let kind = Kind::find(object.api_version, object.kind).expect(object.kind);
                let value: Value = from_slice(kind, object.raw).unwrap();
                return Some(json!({ "type": event.kind.to_string(), "object": value }));
            }
            let frame = self.body.frame().await?.expect("a frame");
            self.splitter.push(frame.data_ref().expect("data"));
        }
    }

    /// The next events as `TYPE name@version`, until none comes for a while.
    pub(crate) async fn news(&mut self) -> Vec<String> {
        let mut news = Vec::new();
        while let Ok(Some(event)) = tokio::time::timeout(Duration::from_millis(100), self.next()).await {
            news.push(brief(&event));
        }
        news
    }
}
