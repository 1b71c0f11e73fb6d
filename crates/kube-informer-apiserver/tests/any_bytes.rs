//! Whatever comes as path, query, headers and body: an answer, never a panic, never a 5xx that was not asked for.

mod common;

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use kube_informer_apiserver::ApiServer;
use kube_wire::protobuf::{Envelope, Kind, from_slice, from_value};
use serde_json::{Value, json};

const ROUNDS: u64 = 3_000;

/// Words that lead somewhere, so that chance gets past the first check.
const SEGMENTS: &[&str] = &[
    "api",
    "apis",
    "v1",
    "apps",
    "batch",
    "namespaces",
    "default",
    "kube-system",
    "pods",
    "configmaps",
    "nodes",
    "watch",
    "deployments",
    "customresourcedefinitions",
    "apiextensions.k8s.io",
    "a",
    "b",
    "status",
    "binding",
    "eviction",
    "finalize",
    "foos",
    "x.io",
    "",
    "%2F",
    "%ff",
    "%00",
    "..",
    "version",
    "healthz",
    "selfsubjectreviews",
    "authentication.k8s.io",
];
const PARAMETERS: &[&str] = &[
    "watch",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "labelSelector",
    "fieldSelector",
    "sendInitialEvents",
    "allowWatchBookmarks",
    "timeoutSeconds",
    "dryRun",
    "gracePeriodSeconds",
    "propagationPolicy",
    "pretty",
];
const VALUES: &[&str] = &[
    "",
    "true",
    "0",
    "1",
    "7",
    "-1",
    "99999999999999999999999",
    "abc",
    "Exact",
    "NotOlderThan",
    "a%3Db",
    "metadata.name%3Da",
    "app+in+(a,b)",
    "%3D%3D",
    "All",
    "Foreground",
    "Orphan",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0",
    "%ff%fe",
];
const TYPES: &[&str] = &[
    "application/json",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
    "x",
];
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const ACCEPTED: &[&str] = &[
    PROTOBUF,
    "application/vnd.kubernetes.protobuf,application/json",
    "application/json;q=0.1,application/vnd.kubernetes.protobuf;q=0.2",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;stream=watch;type=watch",
    "*/*;q=nan,application/vnd.kubernetes.protobuf;q=;as",
    ";;=,,/;q=1;q=2",
];

fn pick<'a>(random: &mut Rng, from: &[&'a str]) -> &'a str {
    from[random.usize(..from.len())]
}

fn bytes(random: &mut Rng, max: usize) -> Vec<u8> {
    (0..random.usize(..max)).map(|_| random.u8(..)).collect()
}

fn path(random: &mut Rng) -> String {
    let rooted = [
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/pods/a",
        "/api/v1/nodes",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/x.io/v1/namespaces/default/foos",
        "/api/v1/namespaces/n",
        "/api/v1/namespaces",
        "/api/v1/namespaces/default/configmaps/a",
    ];
    // Half of the paths are right, a quarter is right at first, a quarter is chance.
    let (mut path, more) = match random.u8(..4) {
        0 => (String::new(), random.usize(..8)),
        1 => (pick(random, &rooted).to_owned(), random.usize(..3)),
        _ => (pick(random, &rooted).to_owned(), 0),
    };
    for _ in 0..more {
        path.push('/');
        if random.u8(..10) == 0 {
            path.extend(bytes(random, 6).into_iter().map(|b| format!("%{b:02x}")));
        } else {
            path.push_str(pick(random, SEGMENTS));
        }
    }
    let mut separator = if path.is_empty() { "/?" } else { "?" };
    for _ in 0..random.usize(..5) {
        path.push_str(separator);
        path.push_str(pick(random, PARAMETERS));
        path.push('=');
        path.push_str(pick(random, VALUES));
        separator = "&";
    }
    path
}

/// JSON of the right words in the wrong places.
fn value(random: &mut Rng, depth: usize) -> Value {
    const WORDS: &[&str] = &[
        "metadata",
        "name",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "uid",
        "resourceVersion",
        "generateName",
        "spec",
        "status",
        "data",
        "kind",
        "apiVersion",
        "ConfigMap",
        "v1",
        "a",
        "names",
        "plural",
        "group",
        "versions",
        "containers",
        "preconditions",
        "op",
        "path",
        "value",
        "from",
        "/metadata/name",
        "copy",
        "add",
        "deletionTimestamp",
        "target",
        "scope",
        "Namespaced",
        "served",
        "storage",
        "nodeName",
        "stringData",
        "generation",
        "foos.x.io",
        "foos",
        "x.io",
    ];
    match random.u8(..if depth == 0 { 5 } else { 8 }) {
        0 => Value::Null,
        1 => random.bool().into(),
        2 => random.i64(..).into(),
        3 | 4 => pick(random, WORDS).into(),
        5 => (0..random.usize(..4)).map(|_| value(random, depth - 1)).collect(),
        _ => {
            let members = random.usize(..6);
            Value::Object(
                (0..members).map(|_| (pick(random, WORDS).to_owned(), value(random, depth - 1))).collect(),
            )
        }
    }
}

fn body(random: &mut Rng) -> Vec<u8> {
    let mut object = match random.u8(..6) {
        0 => return bytes(random, 40),
        1 => common::config_map("a"),
        2 => common::pod("a"),
        3 => json!({
            "metadata": { "name": "foos.x.io" },
            "spec": { "group": "x.io", "scope": "Namespaced", "names": { "plural": "foos", "kind": "Foo" },
                "versions": [{ "name": "v1", "served": true, "storage": true }] },
        }),
        _ => return value(random, 5).to_string().into_bytes(),
    };
    match random.u8(..4) {
        // One part is something else.
        0 | 1 => {
            let part = pick(random, &["metadata", "spec", "data", "kind", "apiVersion", "status"]);
            object[part] = value(random, 3);
        }
        2 => {
            let parts =
                ["name", "labels", "finalizers", "ownerReferences", "annotations", "namespace", "uid"];
            object["metadata"][pick(random, &parts)] = value(random, 3);
        }
        _ => {}
    }
    object.to_string().into_bytes()
}

/// Protobuf of an object that fits here or there, perhaps with a byte changed or its end missing; or chance in an envelope.
fn protobuf_body(random: &mut Rng) -> Vec<u8> {
    let objects = [
        ("v1", "ConfigMap", common::config_map("a")),
        ("v1", "Pod", common::pod("a")),
        ("v1", "Namespace", json!({ "metadata": { "name": "n" } })),
        ("v1", "DeleteOptions", json!({ "gracePeriodSeconds": 0, "propagationPolicy": "Orphan" })),
        ("v1", "Binding", json!({ "target": { "name": "a" } })),
        ("policy/v1", "Eviction", json!({ "deleteOptions": {} })),
    ];
    let (api_version, kind, object) = &objects[random.usize(..objects.len())];
    let mut raw = from_value(Kind::find(api_version, kind).expect("a kind"), object).expect("an object");
    match random.u8(..5) {
        0 => raw = bytes(random, 60),
        1 => raw.truncate(random.usize(..raw.len())),
        2 => {
            let at = random.usize(..raw.len());
            raw[at] = random.u8(..);
        }
        _ => {}
    }
    let mut body = Vec::new();
    Envelope { api_version, kind, raw: &raw }.write(&mut body);
    if random.u8(..8) == 0 {
        let at = random.usize(..body.len());
        body[at] = random.u8(..);
    }
    body
}

fn request(random: &mut Rng) -> Option<Request<Full<Bytes>>> {
    let uri: Uri = path(random).parse().ok()?;
    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"];
    let method: Method = pick(random, &methods).parse().ok()?;
    let body = if method == Method::GET { Vec::new() } else { body(random) };
    let kind = match (random.u8(..3), &method) {
        (0, _) => TYPES[random.usize(..TYPES.len())],
        (_, &Method::PATCH) => TYPES[random.usize(1..3)],
        _ => TYPES[0],
    };
    let (kind, body) = match random.u8(..4) {
        0 => (PROTOBUF, protobuf_body(random)),
        _ => (kind, body),
    };
    let mut request = Request::builder().method(method).uri(uri).body(Full::new(body.into())).ok()?;
    let headers = request.headers_mut();
    headers.insert("content-type", HeaderValue::from_static(kind));
    for name in ["accept", "accept-encoding", "if-none-match", "x-anything"] {
        if random.u8(..4) == 0
            && let Ok(value) = HeaderValue::from_bytes(&bytes(random, 30))
        {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    if random.u8(..3) == 0 {
        headers.insert("accept", HeaderValue::from_static(pick(random, ACCEPTED)));
    }
    Some(request)
}

/// The few 5xx that the real server gives, too.
fn is_asked_for(code: u16, status: &Value) -> bool {
    let message = status["message"].as_str().unwrap_or("");
    match code {
        500 => message.starts_with("resourceVersion"),
        504 => message.starts_with("Timeout: Too large resource version"),
        _ => code < 500,
    }
}

async fn run(seed: u64) {
    let server = ApiServer::builder().epoch("2026-11-15T12:00:00Z".parse().unwrap()).seed(seed).build();
    let mut random = Rng::with_seed(seed);
    let mut refused_in_protobuf = 0;
    let mut codes = std::collections::BTreeMap::<u16, u32>::new();
    for _ in 0..ROUNDS {
        let Some(request) = request(&mut random) else { continue };
        let what = format!("seed {seed}: {} {}", request.method(), request.uri());
        let answer = tokio::time::timeout(Duration::from_secs(10), server.handle(request)).await;
        let (parts, body) = answer.unwrap_or_else(|_| panic!("{what}: no answer")).into_parts();
        let code = parts.status.as_u16();
        *codes.entry(code).or_default() += 1;
        if code < 400 {
            // A watch goes on; a little of it is enough.
            let _ = tokio::time::timeout(Duration::from_millis(1), body.collect()).await;
            continue;
        }
        let bytes = body.collect().await.expect("a body").to_bytes();
        let status: Value = match parts.headers["content-type"].to_str().unwrap() {
            "application/json" => serde_json::from_slice(&bytes).unwrap(),
            PROTOBUF => {
                refused_in_protobuf += 1;
                let envelope = Envelope::parse(&bytes).unwrap();
                from_slice(Kind::find(envelope.api_version, envelope.kind).unwrap(), envelope.raw).unwrap()
            }
            _ => {
                assert_eq!((code, &bytes[..]), (404, &b"404 page not found\n"[..]), "{what}");
                continue;
            }
        };
        assert_eq!(status["kind"], "Status", "{what}: {status}");
        assert!(is_asked_for(code, &status), "{what}: {status}");
    }
    assert_eq!(server.stats().open_watches, 0, "seed {seed}");
    assert!(refused_in_protobuf > 100, "seed {seed}: {refused_in_protobuf} refusals in protobuf");
    for code in [200, 201, 400, 404, 405, 406, 415, 422] {
        assert!(codes.contains_key(&code), "seed {seed} never got as far as {code}: {codes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn any_request_is_answered() {
    for seed in 1..=12 {
        run(seed).await;
    }
}
