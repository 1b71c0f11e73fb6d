//! A server with three pods and a client that takes answers as they come, to look at what a fault did to them.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use kube_informer_apiserver::ApiServer;
use kube_informer_apiserver::faults::Faults;
use serde_json::{Value, json};
use tokio::time::timeout;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const WATCH: &str = "/api/v1/namespaces/default/pods?watch=true&resourceVersion=0";
pub(crate) const STREAMING: &str = "/api/v1/namespaces/default/pods?watch=true&sendInitialEvents=true\
    &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// A reader that hears nothing for this long calls it silence.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) faults: Faults,
    pub(crate) client: Client,
}

/// An answer that has begun.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) frames: Vec<Bytes>,
    body: Body,
}

/// How a read ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Clean,
    Broken(io::ErrorKind),
    Silence,
}

impl Cluster {
    /// Pods a, b and c, and no rules.
    pub(crate) async fn new() -> Self {
        let faults = Faults::seeded(7);
        let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
        let client = server.client();
        let cluster = Self { server, faults, client };
        for name in ["a", "b", "c"] {
            cluster.create(name).await;
        }
        cluster
    }

    /// Pods a, b and c, then these rules.
    pub(crate) async fn with(script: &str) -> Self {
        let cluster = Self::new().await;
        cluster.inject(script);
        cluster
    }

    pub(crate) fn inject(&self, script: &str) {
        script.lines().for_each(|rule| self.faults.inject(rule.parse().unwrap()));
    }

    pub(crate) async fn create(&self, name: &str) {
        let pod = json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": { "name": name, "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "main", "image": "image" }] },
        });
        let answer = self.send(Method::POST, PODS, &pod.to_string()).await.unwrap();
        assert_eq!(answer.status, 201);
    }

    pub(crate) async fn get(&self, uri: &str) -> Result<Answer, End> {
        self.send(Method::GET, uri, "").await
    }

    /// The whole answer, to its end or until it falls silent.
    pub(crate) async fn read(&self, uri: &str) -> (Answer, End) {
        self.read_as("application/json", uri).await
    }

    /// An answer in a format of one's own choice.
    pub(crate) async fn get_as(&self, accept: &str, uri: &str) -> Answer {
        let request = Request::get(uri).header("accept", accept).body(Body::empty()).unwrap();
        self.request(request).await.unwrap()
    }

    /// The whole of it, to its end or until it falls silent.
    pub(crate) async fn read_as(&self, accept: &str, uri: &str) -> (Answer, End) {
        let mut answer = self.get_as(accept, uri).await;
        let end = answer.read().await;
        (answer, end)
    }

    /// What a watch hears under this script when a config map is made, changed and deleted.
    pub(crate) async fn watch_changes(accept: &str, script: &str) -> (Answer, End) {
        let cluster = Self::with(script).await;
        let (mut answer, end) = cluster.read_as(accept, &format!("{MAPS}?watch=true")).await;
        assert_eq!((answer.frames.len(), end), (0, End::Silence));
        let map = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"d"},"data":{"a":"1"}}"#;
        let name = format!("{MAPS}/d");
        for (method, uri, body) in [
            (Method::POST, MAPS, map),
            (Method::PATCH, &name, r#"{"data":{"a":"2"}}"#),
            (Method::DELETE, &name, ""),
        ] {
            let status = cluster.send(method, uri, body).await.unwrap().status;
            assert!(status == 200 || status == 201);
        }
        let end = answer.read().await;
        (answer, end)
    }

    /// The begin of an answer, or how the lack of one ended.
    pub(crate) async fn send(&self, method: Method, uri: &str, body: &str) -> Result<Answer, End> {
        let content_type =
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(uri).header("content-type", content_type);
        self.request(request.body(Body::from(body.as_bytes().to_vec())).unwrap()).await
    }

    pub(crate) async fn request(&self, request: Request<Body>) -> Result<Answer, End> {
        match timeout(SILENCE, self.client.send(request)).await {
            Err(_) => Err(End::Silence),
            Ok(Err(error)) => Err(End::Broken(io_kind(&error))),
            Ok(Ok(response)) => {
                let (parts, body) = response.into_parts();
                Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, frames: Vec::new(), body })
            }
        }
    }
}

impl Answer {
    /// Reads on until the end, or until nothing comes for a while.
    pub(crate) async fn read(&mut self) -> End {
        loop {
            match timeout(SILENCE, self.body.frame()).await {
                Err(_) => return End::Silence,
                Ok(None) => return End::Clean,
                Ok(Some(Err(error))) => return End::Broken(io_kind(&error)),
                Ok(Some(Ok(frame))) => self.frames.extend(frame.into_data()),
            }
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.frames.concat()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }

    /// The answer as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes()).unwrap()
    }

    /// The events of a watch in short: `ADDED a`, `BOOKMARK`, `BOOKMARK end`, `ERROR 410`, `? …` for what is no event.
    pub(crate) fn events(&self) -> Vec<String> {
        self.text().lines().map(event).collect()
    }
}

fn event(line: &str) -> String {
    let Ok(event) = serde_json::from_str::<Value>(line) else { return format!("? {}", line.len()) };
    let object = &event["object"];
    let metadata = &object["metadata"];
    let kind = event["type"].as_str().unwrap();
    match kind {
        "BOOKMARK" if metadata["annotations"]["k8s.io/initial-events-end"] == "true" => "BOOKMARK end".into(),
        "BOOKMARK" => "BOOKMARK".into(),
        "ERROR" => format!("ERROR {}", object["code"]),
        _ => format!("{kind} {}", metadata["name"].as_str().unwrap_or("?")),
    }
}

/// The I/O error behind an error.
fn io_kind(error: &(dyn Error + 'static)) -> io::ErrorKind {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind();
        }
        cause = error.source();
    }
    panic!("no I/O error behind {error:?}")
}
