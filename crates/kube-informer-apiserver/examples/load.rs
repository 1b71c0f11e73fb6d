//! How much the server takes, in one process without a socket:
//! `cargo run --release -p kube-informer-apiserver --example load`, with `-- --quick` for a run of seconds.
//!
//! For each number of pods: creations a second, a list in MB/s, memory for each pod; then the same list as protobuf, first when
//! every pod is yet to be converted, and what the converted form takes; then watch events a second for 1, 10 and 100
//! watchers of JSON, and for 100 of protobuf. Nothing should grow faster than the number of pods.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use kube_informer_apiserver::{ApiServer, Body};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Each size is measured in a process of its own, so that memory is counted from nothing.
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    if let Some(pods) = arguments.iter().find_map(|argument| argument.parse().ok()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(measure(pods, if quick { 200 } else { 2_000 }));
        return;
    }
    println!(
        "{:>8} {:>8} {:>10} {:>10} {:>8} {:>10} {:>10} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "pods",
        "KB JSON",
        "creates/s",
        "list MB/s",
        "KB RSS",
        "pb first",
        "pb again",
        "KB more",
        "events ×1",
        "×10",
        "×100",
        "pb ×100"
    );
    let program = std::env::current_exe().expect("this program's path");
    for pods in if quick { ["1000", "3000"].as_slice() } else { &["10000", "30000", "100000"] } {
        let mut command = std::process::Command::new(&program);
        command.args(quick.then_some("--quick")).arg(pods);
        assert!(command.status().expect("a child process").success(), "measuring {pods} pods failed");
    }
}

async fn measure(pods: usize, changes: usize) {
    let memory = resident();
    let server = ApiServer::new();
    let mut sent = 0;
    let mut creating = Duration::ZERO;
    for number in 0..pods {
        let body = pod(number).to_string();
        sent += body.len();
        let start = clock();
        let answer = send(&server, "POST", PODS, JSON, body).await;
        creating += start();
        assert!(answer.status().is_success(), "creating failed: {}", answer.status());
    }
    let creates = pods as f64 / creating.as_secs_f64();
    let per_pod = resident().saturating_sub(memory) as f64 / pods as f64;

    let plain = list(&server, JSON).await;
    let memory = resident();
    let first = list(&server, PROTOBUF).await;
    let more = resident().saturating_sub(memory) as f64 / pods as f64;
    let again = list(&server, PROTOBUF).await;

    let mut rates = Vec::new();
    for (watchers, accept) in [(1, JSON), (10, JSON), (100, JSON), (100, PROTOBUF)] {
        rates.push(watch(&server, pods, watchers, changes / watchers.min(20), accept).await);
    }
    println!(
        "{pods:>8} {:>8.1} {creates:>10.0} {plain:>10.0} {:>8.1} {first:>10.0} {again:>10.0} {:>8.1} {:>9.0} {:>9.0} {:>9.0} {:>9.0}",
        sent as f64 / pods as f64 / 1e3,
        per_pod / 1e3,
        more / 1e3,
        rates[0],
        rates[1],
        rates[2],
        rates[3],
    );
}

/// A list of everything, in MB/s.
async fn list(server: &ApiServer, accept: &str) -> f64 {
    let listing = clock();
    let bytes = drain(send(server, "GET", PODS, accept, String::new()).await.into_body()).await;
    bytes as f64 / 1e6 / listing().as_secs_f64()
}

/// Events that all watchers together receive in a second while pods change.
async fn watch(server: &ApiServer, pods: usize, watchers: usize, changes: usize, accept: &str) -> f64 {
    let mut bodies = Vec::new();
    for _ in 0..watchers {
        let path = format!("{PODS}?watch=true&resourceVersion={}", server.revision());
        bodies.push(send(server, "GET", &path, accept, String::new()).await.into_body());
    }
    let start = clock();
    for change in 0..changes {
        let path = format!("{PODS}/{}/status", name(change % pods));
        let patch = json!({ "status": { "message": format!("{watchers}-{change} {accept}") } });
        send(server, "PATCH", &path, "application/merge-patch+json", patch.to_string()).await;
        for body in &mut bodies {
            body.frame().await.expect("an open watch").expect("a frame");
        }
    }
    (changes * watchers) as f64 / start().as_secs_f64()
}

async fn send(
    server: &ApiServer,
    method: &str,
    path: &str,
    kind: &str,
    body: String,
) -> http::Response<Body> {
    let header = if method == "GET" { "accept" } else { "content-type" };
    let request = Request::builder().method(method).uri(path).header(header, kind);
    server.handle(request.body(Full::new(Bytes::from(body))).expect("a request")).await
}

async fn drain(mut body: Body) -> usize {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame.expect("a frame").data_ref().map_or(0, Bytes::len);
    }
    bytes
}

fn name(number: usize) -> String {
    format!("web-{number:07}")
}

/// A pod of about 10 KB, with what makes real ones large: containers, volumes, environment, managed fields.
fn pod(number: usize) -> Value {
    let containers: Vec<_> = (0..3)
        .map(|i| {
            let environment: Vec<_> = (0..40)
                .map(|variable| json!({ "name": format!("VARIABLE_{variable}"), "value": format!("value {number} {i}") }))
                .collect();
            json!({
                "name": format!("container-{i}"), "image": format!("registry.example/web@{number:064x}"), "env": environment,
                "resources": { "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "100m", "memory": "128Mi" } },
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }, { "name": "config", "mountPath": "/config" }],
                "livenessProbe": { "httpGet": { "path": "/healthz", "port": 8080 }, "periodSeconds": 10 },
            })
        })
        .collect();
    let managed: Vec<_> =
        (0..30).map(|i| (format!("f:field-{i}-{number}"), json!({ "f:value": {}, "f:other": {} }))).collect();
    json!({
        "metadata": {
            "name": name(number),
            "labels": { "app": format!("web-{}", number % 100), "pod-template-hash": format!("{number:x}") },
            "annotations": { "checksum/config": format!("{number:064x}").repeat(30) },
            "managedFields": [{ "manager": "load", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": managed.into_iter().collect::<serde_json::Map<_, _>>() }],
        },
        "spec": { "nodeName": format!("node-{}", number % 1000), "containers": containers,
            "volumes": [{ "name": "data", "emptyDir": {} }, { "name": "config", "configMap": { "name": "web" } }] },
    })
}

/// The memory of this process, in bytes; 0 where the system does not tell.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap_or(0) * 1024
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn clock() -> impl Fn() -> Duration {
    let start = std::time::Instant::now();
    move || start.elapsed()
}
