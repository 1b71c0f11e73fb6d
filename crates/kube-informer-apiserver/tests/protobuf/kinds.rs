//! Every built-in kind: written as JSON and read as protobuf, and the other way round.

use std::collections::BTreeMap;

use kube_informer_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::common::{self, create, server};
use crate::wire::{Frames, canonical, decode, encode, get, list, send};

/// Objects with every field, in the JSON that Go writes for them.
const CORPUS: &str = include_str!("../../../kube-wire/tests/corpus/objects.jsonl");

struct Resource {
    /// Where objects are made.
    path: String,
    api_version: String,
    kind: String,
}

/// The kinds that can be made, listed and watched.
fn resources() -> Vec<Resource> {
    let discovery: Value = serde_json::from_str(include_str!("../../data/discovery-1.37.json")).unwrap();
    let mut resources = Vec::new();
    for group in discovery["items"].as_array().unwrap() {
        let version = &group["versions"][0];
        let number = version["version"].as_str().unwrap();
        let (root, api_version) = match group["metadata"]["name"].as_str() {
            Some(group) => (format!("/apis/{group}/{number}"), format!("{group}/{number}")),
            None => ("/api/v1".to_owned(), "v1".to_owned()),
        };
        for resource in version["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].as_array().unwrap();
            if !["watch", "create"].iter().all(|verb| verbs.contains(&json!(verb))) {
                continue;
            }
            let scope = if resource["scope"] == "Namespaced" { "/namespaces/default" } else { "" };
            resources.push(Resource {
                path: format!("{root}{scope}/{}", resource["resource"].as_str().unwrap()),
                api_version: api_version.clone(),
                kind: resource["responseKind"]["kind"].as_str().unwrap().to_owned(),
            });
        }
    }
    resources
}

/// For each kind, objects of the corpus with metadata that the server accepts.
fn objects() -> BTreeMap<(String, String), Vec<Value>> {
    let mut objects = BTreeMap::<_, Vec<Value>>::new();
    for line in CORPUS.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| entry[name].as_str().unwrap().to_owned();
        let mut object = entry["json"].clone();
        object["metadata"] = json!({
            "name": "a", "labels": { "app": "web" }, "annotations": { "note": "Grüße" },
        });
        object["apiVersion"] = entry["apiVersion"].clone();
        object["kind"] = entry["kind"].clone();
        if object["kind"] == "Pod" && object["spec"]["containers"].is_null() {
            object["spec"]["containers"] = json!([{ "name": "c", "image": "i" }]);
        }
        objects.entry((text("apiVersion"), text("kind"))).or_default().push(object);
    }
    objects
}

/// A definition, which must be more than well-formed.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "foos.x.io", "labels": { "app": "web" } },
        "spec": {
            "group": "x.io", "scope": "Namespaced",
            "names": { "plural": "foos", "kind": "Foo" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

/// The first objects of a kind that the server takes, each with its own name.
async fn accepted(server: &ApiServer, resource: &Resource, candidates: &[Value]) -> Vec<Value> {
    let mut accepted = Vec::new();
    for (i, candidate) in candidates.iter().enumerate() {
        let mut object = candidate.clone();
        if resource.kind != "CustomResourceDefinition" {
            object["metadata"]["name"] = format!("a{i}").into();
        }
        let answer = common::send(server, "POST", &resource.path, &object).await;
        assert!(matches!(answer.code, 201 | 422), "{}: {}", resource.path, answer.json());
        if answer.code == 201 {
            accepted.push(answer.json());
        }
    }
    accepted
}

#[tokio::test(start_paused = true)]
async fn what_was_written_as_json_is_read_as_protobuf() {
    let (mut objects, mut count) = (objects(), 0);
    for resource in resources() {
        let server = server();
        let mut watch = Frames::open(
            &server,
            &format!("{}?watch=true&resourceVersion={}", resource.path, server.revision()),
        )
        .await;
        let key = (resource.api_version.clone(), resource.kind.clone());
        let mut candidates = objects.remove(&key).unwrap_or_else(|| panic!("{key:?}"));
        if resource.kind == "CustomResourceDefinition" {
            candidates.push(definition());
        }
        let written = accepted(&server, &resource, &candidates).await;
        assert!(!written.is_empty(), "no object of {key:?} was accepted");
        count += written.len();
        let expected: Vec<Value> = written.iter().map(canonical).collect();
        for (written, expected) in written.iter().zip(&expected) {
            let path = format!("{}/{}", resource.path, common::name(written));
            let answer = get(&server, &path).await;
            assert_eq!(answer.headers["content-type"], "application/vnd.kubernetes.protobuf");
            assert_eq!(answer.bytes, encode(written), "{path}");
            assert_eq!(decode(&answer.bytes), *expected, "{path}");
            let event = watch.next().await.unwrap();
            assert_eq!(event, json!({ "type": "ADDED", "object": expected }), "{path}");
        }
        let (items, meta) = list(&get(&server, &format!("{}?labelSelector=app%3Dweb", resource.path)).await);
        let mut sorted = expected;
        sorted.sort_by_key(common::name);
        assert_eq!(items, sorted, "{key:?}");
        assert_eq!(meta.kind, Some(format!("{}List", resource.kind)));
        assert_eq!(meta.api_version, Some(resource.api_version));
        assert_eq!(meta.resource_version.unwrap().as_u64(), Some(server.revision()));
    }
    assert!(count > 100, "{count} objects");
}

#[tokio::test(start_paused = true)]
async fn what_was_written_as_protobuf_is_read_as_json() {
    let (mut objects, mut count) = (objects(), 0);
    for resource in resources() {
        let key = (resource.api_version.clone(), resource.kind.clone());
        let mut candidates = objects.remove(&key).unwrap_or_else(|| panic!("{key:?}"));
        if resource.kind == "CustomResourceDefinition" {
            candidates.push(definition());
        }
        for object in candidates {
            // What protobuf can say of the object, created as JSON on one server and as protobuf on another.
            let object = canonical(&object);
            let (first, second) = (server(), server());
            let answer = send(&first, "POST", &resource.path, &encode(&object)).await;
            if answer.code == 422 {
                continue;
            }
            assert_eq!(answer.code, 201, "{key:?}: {}", decode(&answer.bytes));
            let expected = create(&second, &resource.path, &object).await;
            let path = format!("{}/{}", resource.path, common::name(&expected));
            assert_eq!(common::get(&first, &path).await.json(), expected);
            assert_eq!(decode(&answer.bytes), canonical(&expected));
            count += 1;
        }
    }
    assert!(count > 100, "{count} objects");
}
