//! A small client for tests: requests and answers as they are on the wire.
#![allow(dead_code, unreachable_pub, reason = "no test file uses all of it, and each has its own copy")]

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use kube_informer_apiserver::{ApiServer, Body};
use serde_json::{Value, json};

/// A server whose clock and randomness are fixed.
pub fn server() -> ApiServer {
    ApiServer::builder().epoch("2026-11-15T12:00:00Z".parse().unwrap()).seed(7).build()
}

/// An answer whose body has been read.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {:?}", self.bytes))
    }

    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or("").to_owned()
    }

    pub fn version(&self) -> u64 {
        version(&self.json())
    }

    /// The names of a list's items.
    pub fn names(&self) -> Vec<String> {
        self.json()["items"].as_array().expect("a list").iter().map(name).collect()
    }
}

pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).expect("a version")
}

pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or("").to_owned()
}

/// Sends a request and hands back the answer with its body unread.
pub async fn open(
    server: &ApiServer,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body))).expect("a request");
    server.handle(request).await
}

/// Sends a request and reads the answer.
pub async fn send_with(
    server: &ApiServer,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Answer {
    let (parts, body) = open(server, method, path, headers, body.as_ref()).await.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    Answer { code: parts.status.as_u16(), headers: parts.headers, bytes }
}

pub async fn send(server: &ApiServer, method: &str, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send_with(server, method, path, &[("content-type", "application/json")], &body).await
}

pub async fn get(server: &ApiServer, path: &str) -> Answer {
    send(server, "GET", path, &Value::Null).await
}

/// Creates an object that must be accepted.
pub async fn create(server: &ApiServer, path: &str, object: &Value) -> Value {
    let answer = send(server, "POST", path, object).await;
    assert_eq!(answer.code, 201, "{}", answer.json());
    answer.json()
}

/// Replaces an object, which must be accepted.
pub async fn update(server: &ApiServer, path: &str, object: &Value) -> Value {
    let answer = send(server, "PUT", path, object).await;
    assert_eq!(answer.code, 200, "{}", answer.json());
    answer.json()
}

pub async fn delete(server: &ApiServer, path: &str) -> Answer {
    send(server, "DELETE", path, &Value::Null).await
}

pub async fn merge_patch(server: &ApiServer, path: &str, patch: &Value) -> Answer {
    let headers = [("content-type", "application/merge-patch+json")];
    send_with(server, "PATCH", path, &headers, &patch.to_string()).await
}

pub fn config_map(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "data": { "k": "v" } })
}

pub fn pod(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": "i" }] } })
}

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PODS: &str = "/api/v1/namespaces/default/pods";

/// A watch, read event by event.
pub struct Watch {
    body: Body,
    text: Vec<u8>,
}

impl Watch {
    pub async fn open(server: &ApiServer, path: &str) -> Self {
        Self::open_with(server, path, &[]).await
    }

    pub async fn open_with(server: &ApiServer, path: &str, headers: &[(&str, &str)]) -> Self {
        let response = open(server, "GET", path, headers, b"").await;
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), text: Vec::new() }
    }

    /// The next event; `None` when the stream has ended. Waits for as long as it takes.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("a line of JSON"));
            }
            let frame = self.body.frame().await?.expect("a frame");
            self.text.extend_from_slice(frame.data_ref().expect("data"));
        }
    }

    /// The next events as `TYPE name@version`, until none comes for a while.
    pub async fn news(&mut self) -> Vec<String> {
        let mut news = Vec::new();
        while let Ok(Some(event)) = tokio::time::timeout(Duration::from_millis(100), self.next()).await {
            news.push(brief(&event));
        }
        news
    }

    /// Whether the stream ends soon.
    pub async fn ended(&mut self) -> bool {
        matches!(tokio::time::timeout(Duration::from_millis(100), self.next()).await, Ok(None))
    }
}

/// `TYPE name@version`, without the name for bookmarks, with `!` for the bookmark that ends the state.
pub fn brief(event: &Value) -> String {
    let (kind, object) = (event["type"].as_str().unwrap_or("?"), &event["object"]);
    if kind == "ERROR" {
        return format!("ERROR {} {}", object["code"], object["message"].as_str().unwrap_or(""));
    }
    let end = object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
    format!("{kind} {}@{}{}", name(object), version(object), if end { "!" } else { "" })
}
