//! Dry runs: every verb and subresource answers, and nothing is stored.

mod common;

use common::{MAPS, PODS, config_map, create, get, merge_patch, pod, send, send_with, server};
use kube_informer_apiserver::ApiServer;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAMESPACES: &str = "/api/v1/namespaces";

fn binding() -> Value {
    json!({ "kind": "Binding", "metadata": { "name": "a" }, "target": { "kind": "Node", "name": "n" } })
}

fn definition() -> Value {
    let schema =
        json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
        },
    })
}

/// A server with pods, an owner with a dependent, a namespace with content and a definition.
async fn filled() -> ApiServer {
    let server = server();
    for name in ["a", "b"] {
        create(&server, PODS, &pod(name)).await;
    }
    let owner = create(&server, MAPS, &config_map("owner")).await;
    let mut dependent = config_map("dependent");
    dependent["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
    }]);
    create(&server, MAPS, &dependent).await;
    create(&server, NAMESPACES, &json!({ "metadata": { "name": "team" } })).await;
    create(&server, "/api/v1/namespaces/team/configmaps", &config_map("inside")).await;
    create(&server, DEFINITIONS, &definition()).await;
    server
}

/// Everything that a client can see.
async fn state(server: &ApiServer) -> (u64, Vec<Value>) {
    // The background work gets its turns.
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    let mut all = Vec::new();
    for path in
        ["/api/v1/pods", "/api/v1/configmaps", NAMESPACES, DEFINITIONS, "/apis/example.com/v1/widgets"]
    {
        all.push(get(server, path).await.json());
    }
    (server.revision(), all)
}

#[tokio::test(start_paused = true)]
async fn an_eviction_deletes_nothing() {
    let server = filled().await;
    let before = state(&server).await;
    let eviction = json!({ "kind": "Eviction", "metadata": { "name": "a" } });
    let path = format!("{PODS}/a/eviction");
    let answer = send(&server, "POST", &format!("{path}?dryRun=All"), &eviction).await;
    assert_eq!(answer.code, 201, "{}", answer.json());
    let mut in_body = eviction.clone();
    in_body["deleteOptions"] = json!({ "dryRun": ["All"] });
    assert_eq!(send(&server, "POST", &path, &in_body).await.code, 201);
    in_body["deleteOptions"] = json!({ "dryRun": [], "gracePeriodSeconds": 0 });
    assert_eq!(send(&server, "POST", &format!("{path}?dryRun=All"), &in_body).await.code, 201);
    assert_eq!(state(&server).await, before);
    in_body["deleteOptions"] = json!({ "dryRun": ["Some"] });
    assert_eq!(send(&server, "POST", &path, &in_body).await.code, 422);
    assert_eq!(state(&server).await, before);
    assert_eq!(send(&server, "POST", &path, &eviction).await.code, 201);
    assert_eq!(get(&server, &format!("{PODS}/a")).await.code, 404, "without a dry run it is gone");
}

#[tokio::test(start_paused = true)]
async fn a_binding_binds_nothing() {
    let server = filled().await;
    let before = state(&server).await;
    for path in [format!("{PODS}/a/binding"), "/api/v1/namespaces/default/bindings".to_owned()] {
        let answer = send(&server, "POST", &format!("{path}?dryRun=All"), &binding()).await;
        assert_eq!(answer.code, 201, "{path}: {}", answer.json());
    }
    assert_eq!(state(&server).await, before);
    assert_eq!(send(&server, "POST", &format!("{PODS}/a/binding"), &binding()).await.code, 201);
    let again = send(&server, "POST", &format!("{PODS}/a/binding?dryRun=All"), &binding()).await;
    assert_eq!(again.code, 409, "a dry run is refused like the write");
}

/// One request of each kind that writes: method, path, body, the code of a dry run.
fn writes() -> Vec<(&'static str, String, Value, u16)> {
    let map = format!("{MAPS}/owner");
    let team = json!({ "metadata": { "name": "team" }, "spec": { "finalizers": [] } });
    let generated = json!({ "metadata": { "generateName": "x-" } });
    vec![
        ("POST", MAPS.to_owned(), config_map("new"), 201),
        ("POST", MAPS.to_owned(), generated, 201),
        ("PUT", map.clone(), config_map("owner"), 200),
        ("PATCH", map.clone(), json!({ "data": { "k": "2" } }), 200),
        ("PATCH", map.clone(), json!({ "metadata": { "finalizers": ["a/b"] } }), 200),
        ("PATCH", format!("{PODS}/a/status"), json!({ "status": { "phase": "Failed" } }), 200),
        ("DELETE", map.clone(), Value::Null, 200),
        ("DELETE", map.clone(), json!({ "propagationPolicy": "Foreground" }), 200),
        ("DELETE", map, json!({ "propagationPolicy": "Orphan" }), 200),
        ("DELETE", format!("{PODS}/a"), json!({ "gracePeriodSeconds": 0 }), 200),
        ("DELETE", MAPS.to_owned(), Value::Null, 200),
        ("DELETE", PODS.to_owned(), json!({ "gracePeriodSeconds": 0 }), 200),
        ("DELETE", format!("{NAMESPACES}/team"), Value::Null, 200),
        ("PUT", format!("{NAMESPACES}/team/finalize"), team, 200),
        ("DELETE", format!("{DEFINITIONS}/widgets.example.com"), Value::Null, 200),
        ("DELETE", DEFINITIONS.to_owned(), Value::Null, 200),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
            json!({ "spec": {} }),
            201,
        ),
    ]
}

async fn write(server: &ApiServer, method: &str, path: &str, body: &Value) -> common::Answer {
    let coding = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send_with(server, method, path, &[("content-type", coding)], body).await
}

#[tokio::test(start_paused = true)]
async fn no_verb_stores_anything() {
    let server = filled().await;
    let before = state(&server).await;
    for (method, path, body, code) in writes() {
        let answer = write(&server, method, &format!("{path}?dryRun=All"), &body).await;
        assert_eq!(answer.code, code, "{method} {path} {body}: {}", answer.json());
        assert_eq!(state(&server).await, before, "{method} {path} {body}");
        if method == "DELETE" {
            let mut options = if body.is_null() { json!({}) } else { body };
            options["dryRun"] = json!(["All"]);
            assert_eq!(write(&server, method, &path, &options).await.code, code, "{path} {options}");
            assert_eq!(state(&server).await, before, "{method} {path} {options}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_values_are_refused_and_store_nothing() {
    let server = filled().await;
    let before = state(&server).await;
    let mut writes = writes();
    writes.push(("POST", format!("{PODS}/a/binding"), binding(), 0));
    writes.push(("POST", format!("{PODS}/a/eviction"), json!({ "metadata": { "name": "a" } }), 0));
    for (method, path, body, _) in writes {
        for query in ["dryRun=Some", "dryRun=all", "dryRun=", "dryRun=All&dryRun=None"] {
            let answer = write(&server, method, &format!("{path}?{query}"), &body).await;
            assert_eq!(answer.code, 422, "{method} {path}?{query}: {}", answer.json());
            assert!(answer.message().contains("dryRun: Unsupported value"), "{}", answer.message());
        }
    }
    assert_eq!(state(&server).await, before);
}

#[tokio::test(start_paused = true)]
async fn the_last_finalizer_stays() {
    let server = server();
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["a/b"]);
    create(&server, MAPS, &held).await;
    let path = format!("{MAPS}/held");
    assert_eq!(common::delete(&server, &path).await.code, 200);
    let patch = json!({ "metadata": { "finalizers": null } });
    assert_eq!(merge_patch(&server, &format!("{path}?dryRun=All"), &patch).await.code, 200);
    assert_eq!(get(&server, &path).await.code, 200);
    assert_eq!(merge_patch(&server, &path, &patch).await.code, 200);
    assert_eq!(get(&server, &path).await.code, 404);
}
