//! The formats that objects come in, and the forms that they are kept in: whichever it is, what is read is the same.

mod common;

use bytes::Bytes;
use common::server;
use http_body_util::{Either, Full};
use k8s_openapi::api::core::v1::Pod;
use kube_client::Api;
use kube_core::dynamic::{ApiResource, DynamicObject};
use kube_core::params::{Patch, PatchParams, PostParams};
use kube_informer::object::Wire;
use kube_informer::store::IndexError;
use kube_informer::{
    FieldPath, IndexBy, InformerOptions, Kind, Object, SharedInformer, SharedInformerFactory, Storage,
};
use kube_informer_apiserver::ApiServer;
use serde_json::{Value, json};
use tower::ServiceExt;

/// A pod of a workload: most of it is the workload's.
fn pod(number: usize) -> Pod {
    let (app, node) = (format!("app-{}", number / 20), format!("node-{}", number % 7));
    let text: Vec<_> = (0..150)
        .map(|i| json!({"name": format!("V{i}"), "value": format!("{app} {}", i * number / 20)}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": format!("{app}-{number:04}"), "namespace": "default", "labels": {"app": app},
            "annotations": {"note": format!("number {number}")}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": format!("{app}:v1"), "env": text}]},
        "status": {"phase": "Running", "podIP": format!("10.0.0.{number}")},
    }))
    .unwrap()
}

async fn pods(count: usize) -> ApiServer {
    let server = server();
    let api: Api<Pod> = Api::namespaced(server.client(), "default");
    for number in 0..count {
        api.create(&PostParams::default(), &pod(number)).await.unwrap();
    }
    server
}

async fn informer(server: &ApiServer, options: InformerOptions) -> SharedInformer<Value> {
    let factory = SharedInformerFactory::with_defaults(server.client(), options.clone());
    let informer = factory.informer_of::<Value>(Kind::of::<Pod>(), options).unwrap();
    let node = |pod: &Object<Value>| Some(pod.get().ok()?["spec"]["nodeName"].as_str()?.to_owned());
    let by_field = IndexBy::field(".spec.nodeName".parse().unwrap());
    match informer.add_index_by("node", by_field) {
        // There are no bytes to read a field from.
        Err(IndexError::NoBytes(_)) => informer.add_index("node", node).unwrap(),
        other => other.unwrap(),
    }
    factory.start();
    informer.wait_for_sync().await.unwrap();
    informer
}

fn values(informer: &SharedInformer<Value>) -> Vec<Value> {
    informer.lister().list().iter().map(|object| object.get().unwrap().clone()).collect()
}

/// Without what is empty or zero: protobuf does not tell that from what is missing, and JSON may have either.
fn sparse(value: &Value) -> Value {
    let full = |value: &Value| match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    };
    match value {
        Value::Array(items) => items.iter().map(sparse).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| (key.clone(), sparse(value)))
            .filter(|(_, value)| full(value))
            .collect(),
        other => other.clone(),
    }
}

fn sparse_values(informer: &SharedInformer<Value>) -> Vec<Value> {
    values(informer).iter().map(sparse).collect()
}

fn wire(informer: &SharedInformer<Value>) -> Option<Wire> {
    informer.stats().reflectors[0].wire
}

#[tokio::test(start_paused = true)]
async fn every_wire_and_every_form_of_storage_brings_the_same() {
    let server = pods(200).await;
    let options = InformerOptions::default;
    let packed = informer(&server, options()).await;
    let all = sparse_values(&packed);
    assert_eq!(all.len(), 200);
    assert_eq!(wire(&packed), Some(Wire::Protobuf));
    let cases = [
        ("raw", options().storage(Storage::Raw), Wire::Protobuf),
        ("decoded", options().storage(Storage::Decoded), Wire::Protobuf),
        ("eager", options().pack_eagerly(), Wire::Protobuf),
        ("gzip", options().gzip(), Wire::Protobuf),
        ("json", options().json(), Wire::Json),
        ("json, raw", options().json().storage(Storage::Raw), Wire::Json),
        ("json, gzip", options().json().gzip(), Wire::Json),
        ("pages", options().reflector(paged()), Wire::Protobuf),
    ];
    for (name, options, expected) in cases {
        let other = informer(&server, options).await;
        assert_eq!(wire(&other), Some(expected), "{name}");
        for (one, theirs) in all.iter().zip(sparse_values(&other)) {
            assert_eq!(theirs, *one, "{name} reads the same objects");
        }
        let on_node = |informer: &SharedInformer<Value>| {
            let snapshot = informer.snapshot();
            snapshot
                .by_index("node", "node-3")
                .unwrap()
                .iter()
                .map(|object| object.key().clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(on_node(&other), on_node(&packed), "{name} has the same index");
    }
}

fn paged() -> kube_informer::reflector::ReflectorConfig {
    kube_informer::reflector::ReflectorConfig {
        streaming_lists: false,
        page_size: Some(30),
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn packed_objects_take_a_fraction_and_are_read_in_place() {
    let server = pods(400).await;
    let packed = informer(&server, InformerOptions::default()).await;
    let raw = informer(&server, InformerOptions::default().storage(Storage::Raw)).await;
    let bytes = |informer: &SharedInformer<Value>| informer.stats().store.bytes;
    // Their numbers differ in 150 places each: most kinds become smaller.
    assert!(bytes(&packed) * 9 < bytes(&raw) * 2, "{} of {}", bytes(&packed), bytes(&raw));
    let stats = packed.stats().store;
    assert!(stats.dictionaries == 1 && stats.dictionary_bytes < 600 << 10, "{stats:?}");
    let images: FieldPath = ".spec.containers[*].image".parse().unwrap();
    let object = packed.lister().get("default/app-3-0061").unwrap();
    assert_eq!(object.texts(&images), ["app-3:v1"]);
    assert_eq!(object.bytes(), raw.lister().get("default/app-3-0061").unwrap().bytes());
}

#[tokio::test(start_paused = true)]
async fn a_change_takes_little_more_than_what_differs() {
    let server = pods(400).await;
    let packed = informer(&server, InformerOptions::default()).await;
    let raw = informer(&server, InformerOptions::default().storage(Storage::Raw)).await;
    let before = packed.stats().store.bytes;
    let api: Api<Pod> = Api::namespaced(server.client(), "default");
    let restarted = json!({"metadata": {"annotations": {"restarted": "once"}}});
    api.patch("app-3-0061", &PatchParams::default(), &Patch::Merge(&restarted)).await.unwrap();
    let of = |informer: &SharedInformer<Value>| informer.lister().get("default/app-3-0061").unwrap();
    let changed = |informer: &SharedInformer<Value>| {
        of(informer).get().unwrap()["metadata"]["annotations"]["restarted"] == "once"
    };
    while !changed(&packed) || !changed(&raw) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(of(&packed).bytes(), of(&raw).bytes());
    let more = packed.stats().store.bytes - before;
    assert!((1..100).contains(&more), "{more} bytes more");
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_comes_as_protobuf_too() {
    let server = pods(3).await;
    let options = InformerOptions::default().metadata_only();
    let protobuf = informer(&server, options.clone()).await;
    assert_eq!(wire(&protobuf), Some(Wire::ProtobufMetadata));
    let json = informer(&server, options.json()).await;
    assert_eq!(wire(&json), Some(Wire::Json));
    let all = values(&protobuf);
    assert_eq!(sparse_values(&protobuf), sparse_values(&json));
    assert_eq!(all[0]["kind"], "PartialObjectMetadata");
    assert_eq!(all[0]["metadata"]["labels"]["app"], "app-0");
    assert_eq!(all[0].get("spec"), None);
}

#[tokio::test(start_paused = true)]
async fn custom_kinds_come_as_json() {
    let server = server();
    let resource = |api_version: &str, kind: &str, plural: &str| ApiResource {
        group: api_version.split('/').next().unwrap().into(),
        version: "v1".into(),
        api_version: api_version.into(),
        kind: kind.into(),
        plural: plural.into(),
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    let definitions =
        resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
    let api: Api<DynamicObject> = Api::all_with(server.client(), &definitions);
    api.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let kind = Kind::new("example.com/v1", "Widget", "widgets", true);
    let informer = factory.informer_of::<Value>(kind, InformerOptions::default()).unwrap();
    factory.start();
    informer.wait_for_sync().await.unwrap();
    assert_eq!(wire(&informer), Some(Wire::Json));
}

#[tokio::test(start_paused = true)]
async fn changes_come_as_protobuf_and_are_packed_like_the_list() {
    let server = pods(400).await;
    let informer = informer(&server, InformerOptions::default()).await;
    let api: Api<Pod> = Api::namespaced(server.client(), "default");
    let before = informer.lister().get("default/app-3-0061").unwrap();
    let mut changed = api.get("app-3-0061").await.unwrap();
    changed.status.as_mut().unwrap().phase = Some("Failed".into());
    api.replace_status("app-3-0061", &PostParams::default(), &changed).await.unwrap();
    informer
        .wait_for(|snapshot| {
            let now = snapshot.get("default/app-3-0061").unwrap();
            now.get().unwrap()["status"]["phase"] == "Failed"
        })
        .await;
    let after = informer.lister().get("default/app-3-0061").unwrap();
    assert!(after.size() < before.size() * 2, "{} against {}", after.size(), before.size());
    assert_eq!(before.get().unwrap()["status"]["phase"], "Pending", "what was read before stays what it was");
}

#[test]
fn objects_are_packed_on_any_runtime() {
    let follow = async || {
        let server = pods(400).await;
        for options in [InformerOptions::default(), InformerOptions::default().storage(Storage::Raw)] {
            let informer = informer(&server, options).await;
            assert_eq!(values(&informer).len(), 400);
        }
    };
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    threads.block_on(follow());
    tokio::task::LocalSet::new()
        .block_on(&threads, async { tokio::task::spawn_local(follow()).await.unwrap() });
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_no_protobuf_is_asked_for_json() {
    let server = pods(3).await;
    let connection = server.connect();
    let picky = tower::service_fn(move |request: http::Request<kube_client::client::Body>| {
        let connection = connection.clone();
        async move {
            let accept = request.headers()["accept"].to_str().unwrap().to_owned();
            if accept.contains("protobuf") {
                let body = Either::Left(Full::new(Bytes::from_static(b"only application/json")));
                return Ok(http::Response::builder().status(406).body(body).unwrap());
            }
            connection.oneshot(request).await.map(|answer| answer.map(Either::Right))
        }
    });
    let factory = SharedInformerFactory::new(kube_client::Client::new(picky, "default"));
    let informer = factory.informer_of::<Value>(Kind::of::<Pod>(), InformerOptions::default()).unwrap();
    factory.start();
    informer.wait_for_sync().await.unwrap();
    assert_eq!((values(&informer).len(), wire(&informer)), (3, Some(Wire::Json)));
}
