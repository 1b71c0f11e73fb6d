//! Creating, updating, patching: what the server fills in, refuses and leaves alone.

mod common;

use common::{
    MAPS, PODS, Watch, config_map, create, get, merge_patch, pod, send, send_with, server, update, version,
};
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn create_fills_in_what_only_the_server_knows() {
    let server = server();
    let object = create(&server, PODS, &pod("a")).await;
    assert_eq!((object["kind"].as_str(), object["apiVersion"].as_str()), (Some("Pod"), Some("v1")));
    let metadata = &object["metadata"];
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["creationTimestamp"], "2026-11-15T12:00:00Z");
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_eq!(object["status"]["phase"], "Pending");
    assert_eq!(object["spec"]["restartPolicy"], "Always");
    let map = create(&server, MAPS, &config_map("a")).await;
    assert_eq!(map["metadata"].get("generation"), None, "config maps have none");
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "k": "v" } });
    let secret = create(&server, "/api/v1/namespaces/default/secrets", &secret).await;
    assert_eq!((secret["type"].as_str(), secret["data"]["k"].as_str()), (Some("Opaque"), Some("dg==")));
    let namespace = create(&server, "/api/v1/namespaces", &json!({ "metadata": { "name": "n" } })).await;
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "n");
    assert_eq!(namespace["status"]["phase"], "Active");
}

#[tokio::test(start_paused = true)]
async fn an_update_names_what_it_updates() {
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    let nameless = send(&server, "PUT", &format!("{MAPS}/a"), &json!({ "data": { "k": "v" } })).await;
    let why = "the name of the object (a based on URL) was undeterminable: name must be provided";
    assert_eq!((nameless.code, nameless.message().as_str()), (400, why));
    let nameless = merge_patch(&server, &format!("{MAPS}/a"), &json!({ "metadata": { "name": null } })).await;
    assert_eq!((nameless.code, nameless.message().as_str()), (400, why));
    let odd = json!({ "metadata": { "name": "a", "resourceVersion": "abc" } });
    let odd = send(&server, "PUT", &format!("{MAPS}/a"), &odd).await;
    assert_eq!(
        (odd.code, odd.message().as_str()),
        (500, "strconv.ParseUint: parsing \"abc\": invalid syntax")
    );
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_built_in_kinds_say_whose_they_are() {
    let server = server();
    let refused =
        send(&server, "POST", MAPS, &json!({ "metadata": { "name": "a", "finalizers": ["mine"] } })).await;
    assert_eq!(
        refused.message(),
        "ConfigMap \"a\" is invalid: metadata.finalizers[0]: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified"
    );
}

#[tokio::test(start_paused = true)]
async fn generated_names_get_five_characters_more() {
    let server = server();
    let generated = json!({ "metadata": { "generateName": "web-" } });
    let first = common::name(&create(&server, MAPS, &generated).await);
    let second = common::name(&create(&server, MAPS, &generated).await);
    assert_eq!((first.len(), first.starts_with("web-")), (9, true));
    assert_ne!(first, second);
    let long = json!({ "metadata": { "generateName": "x".repeat(80) } });
    assert_eq!(common::name(&create(&server, MAPS, &long).await).len(), 63);
}

#[tokio::test(start_paused = true)]
async fn create_refuses_in_the_words_of_the_real_server() {
    let server = server();
    create(&server, MAPS, &config_map("dup")).await;
    let cases = [
        (MAPS, config_map("dup"), 409, "AlreadyExists", "configmaps \"dup\" already exists"),
        (
            MAPS,
            json!({}),
            422,
            "Invalid",
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            PODS,
            json!({ "metadata": { "name": "x" } }),
            422,
            "Invalid",
            "Pod \"x\" is invalid: spec.containers: Required value",
        ),
        ("/api/v1/namespaces/no/configmaps", config_map("x"), 404, "NotFound", "namespaces \"no\" not found"),
        (
            MAPS,
            json!({ "metadata": { "name": "x", "namespace": "other" } }),
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ];
    for (path, object, code, reason, message) in cases {
        let answer = send(&server, "POST", path, &object).await;
        assert_eq!((answer.code, answer.message().as_str()), (code, message));
        let status = answer.json();
        assert_eq!(status["reason"], reason);
        assert_eq!(
            (status["kind"].as_str(), status["status"].as_str(), status["code"].as_u64()),
            (Some("Status"), Some("Failure"), Some(u64::from(code)))
        );
    }
    let invalid = send(&server, "POST", PODS, &json!({ "metadata": { "name": "x" } })).await.json();
    assert_eq!(invalid["details"]["kind"], "Pod");
    assert_eq!(
        invalid["details"]["causes"],
        json!([{ "reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers" }])
    );
    let versioned = json!({ "metadata": { "name": "x", "resourceVersion": "1" } });
    let answer = send(&server, "POST", MAPS, &versioned).await;
    assert_eq!(
        (answer.code, answer.message().as_str()),
        (500, "resourceVersion should not be set on objects to be created")
    );
    for (name, code) in [("Upper", 422), ("-a", 422), ("a_b", 422), ("a.b-c", 201)] {
        assert_eq!(send(&server, "POST", MAPS, &config_map(name)).await.code, code, "{name}");
    }
    let kind = json!({ "kind": "Secret", "apiVersion": "v1", "metadata": { "name": "x" } });
    assert_eq!(send(&server, "POST", MAPS, &kind).await.code, 400);
    let api_version = json!({ "kind": "ConfigMap", "apiVersion": "v2", "metadata": { "name": "x" } });
    let answer = send(&server, "POST", MAPS, &api_version).await;
    assert_eq!(
        answer.message(),
        "the API version in the data (v2) does not match the expected API version (v1)"
    );
}

#[tokio::test(start_paused = true)]
async fn bodies_are_json_whether_they_say_so_or_not() {
    let server = server();
    let text = config_map("a").to_string();
    assert_eq!(send_with(&server, "POST", MAPS, &[], &text).await.code, 201, "python sends no content type");
    let charset = [("content-type", "application/json; charset=utf-8")];
    assert_eq!(send_with(&server, "POST", MAPS, &charset, &config_map("b").to_string()).await.code, 201);
    let yaml = [("content-type", "application/yaml")];
    let refused = send_with(&server, "POST", MAPS, &yaml, "kind: ConfigMap").await;
    assert_eq!((refused.code, refused.json()["reason"].as_str()), (415, Some("UnsupportedMediaType")));
    assert_eq!(send_with(&server, "POST", MAPS, &[], "{").await.code, 400);
    assert_eq!(send_with(&server, "POST", MAPS, &[], "[]").await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn update_is_locked_by_the_version() {
    let server = server();
    let path = format!("{MAPS}/a");
    let first = create(&server, MAPS, &config_map("a")).await;
    let mut second = first.clone();
    second["data"]["k"] = json!("2");
    let second = update(&server, &path, &second).await;
    assert!(version(&second) > version(&first));
    let stale = send(&server, "PUT", &path, &first).await;
    assert_eq!((stale.code, stale.json()["reason"].as_str()), (409, Some("Conflict")));
    assert_eq!(
        stale.message(),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    assert_eq!(stale.json()["details"], json!({ "name": "a", "kind": "configmaps" }));
    let unconditional = json!({ "metadata": { "name": "a" }, "data": { "k": "3" } });
    let third = update(&server, &path, &unconditional).await;
    assert_eq!(third["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(third["metadata"]["creationTimestamp"], first["metadata"]["creationTimestamp"]);
    let mut other = third.clone();
    other["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    assert_eq!(send(&server, "PUT", &path, &other).await.code, 409);
    let renamed = send(&server, "PUT", &path, &config_map("b")).await;
    assert_eq!(
        (renamed.code, renamed.message().as_str()),
        (400, "the name of the object (b) does not match the name on the URL (a)")
    );
    assert_eq!(send(&server, "PUT", &format!("{MAPS}/none"), &config_map("none")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_changes_nothing_is_not_told() {
    let server = server();
    let object = create(&server, MAPS, &config_map("a")).await;
    let mut watch =
        Watch::open(&server, &format!("{MAPS}?watch=true&resourceVersion={}", version(&object))).await;
    assert_eq!(update(&server, &format!("{MAPS}/a"), &object).await, object);
    assert_eq!(merge_patch(&server, &format!("{MAPS}/a"), &json!({})).await.json(), object);
    assert!(watch.news().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_apart() {
    let server = server();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment =
        json!({ "metadata": { "name": "d" }, "spec": { "replicas": 1 }, "status": { "replicas": 9 } });
    let created = create(&server, path, &deployment).await;
    assert_eq!(created["status"], json!({}), "a status is not taken from a creation");
    let mut object = created.clone();
    object["spec"]["replicas"] = json!(5);
    object["status"] = json!({ "replicas": 2 });
    let with_status = update(&server, &format!("{path}/d/status"), &object).await;
    assert_eq!(
        (&with_status["spec"]["replicas"], &with_status["status"]["replicas"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(with_status["metadata"]["generation"], 1);
    object["metadata"]["resourceVersion"] = with_status["metadata"]["resourceVersion"].clone();
    object["status"] = json!({ "replicas": 7 });
    let with_spec = update(&server, &format!("{path}/d"), &object).await;
    assert_eq!((&with_spec["spec"]["replicas"], &with_spec["status"]["replicas"]), (&json!(5), &json!(2)));
    assert_eq!(with_spec["metadata"]["generation"], 2, "only a spec makes a generation");
    let patched =
        merge_patch(&server, &format!("{path}/d/status"), &json!({ "status": { "replicas": 3 } })).await;
    assert_eq!(patched.json()["status"]["replicas"], 3);
    assert_eq!(get(&server, &format!("{path}/d/status")).await.json(), patched.json());
    assert_eq!(get(&server, &format!("{path}/d/log")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn patches_come_as_json_patch_and_merge_patch() {
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    let path = format!("{MAPS}/a");
    let patch = async |kind: &str, body: Value| {
        send_with(&server, "PATCH", &path, &[("content-type", kind)], &body.to_string()).await
    };
    let merged = patch("application/merge-patch+json", json!({ "data": { "k": null, "x": "1" } })).await;
    assert_eq!((merged.code, &merged.json()["data"]), (200, &json!({ "x": "1" })));
    let json_patch = "application/json-patch+json";
    let added = patch(json_patch, json!([{ "op": "add", "path": "/data/y", "value": "2" }])).await;
    assert_eq!(added.json()["data"]["y"], "2");
    let failed = patch(json_patch, json!([{ "op": "test", "path": "/data/y", "value": "3" }])).await;
    assert_eq!(
        (failed.code, failed.message().as_str()),
        (422, "the server rejected our request due to an error in our request")
    );
    assert_eq!(patch(json_patch, json!({ "op": "add" })).await.code, 400);
    let stale =
        patch("application/merge-patch+json", json!({ "metadata": { "resourceVersion": "1" } })).await;
    assert_eq!((stale.code, stale.json()["reason"].as_str()), (409, Some("Conflict")));
    for kind in ["application/json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"]
    {
        let refused = patch(kind, json!({})).await;
        assert_eq!((refused.code, refused.json()["kind"].as_str()), (415, Some("Status")), "{kind}");
    }
    let renamed = patch("application/merge-patch+json", json!({ "metadata": { "name": "b" } })).await;
    assert_eq!(renamed.code, 400);
    assert_eq!(merge_patch(&server, &format!("{MAPS}/none"), &json!({})).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_patch_cannot_grow_without_bound() {
    let server = server();
    let value = "x".repeat(1000);
    create(&server, MAPS, &json!({ "metadata": { "name": "a" }, "data": { "k": value } })).await;
    let double: Vec<_> =
        (0..40).map(|i| json!({ "op": "copy", "from": "/data", "path": format!("/data/{i}") })).collect();
    let headers = [("content-type", "application/json-patch+json")];
    let answer =
        send_with(&server, "PATCH", &format!("{MAPS}/a"), &headers, &Value::from(double).to_string()).await;
    assert_eq!(answer.code, 413);
    let many: Vec<_> = (0..10_001).map(|_| json!({ "op": "test", "path": "", "value": 1 })).collect();
    let answer =
        send_with(&server, "PATCH", &format!("{MAPS}/a"), &headers, &Value::from(many).to_string()).await;
    assert_eq!(answer.code, 413);
}

#[tokio::test(start_paused = true)]
async fn a_patch_cannot_nest_without_bound() {
    let server = server();
    // Of all that is built in, the data of a revision may be anything.
    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let path = format!("{revisions}/a");
    create(&server, revisions, &json!({ "metadata": { "name": "a" }, "revision": 1, "data": { "a": {} } }))
        .await;
    let patch = async |operations: Vec<Value>| {
        let headers = [("content-type", "application/json-patch+json")];
        send_with(&server, "PATCH", &path, &headers, &Value::from(operations).to_string()).await.code
    };
    let deeper = |i: usize| json!({ "op": "add", "path": format!("/data{}", "/a".repeat(i)), "value": {} });
    assert_eq!(patch((1..50).map(deeper).collect()).await, 200);
    assert_eq!(patch((1..300).map(deeper).collect()).await, 422);
    let inwards = json!({ "op": "copy", "from": "/data", "path": "/data/a" });
    assert_eq!(patch(vec![inwards; 80]).await, 422);
    assert_eq!(get(&server, &path).await.code, 200);
    assert_eq!(merge_patch(&server, &path, &json!({ "data": null })).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn dry_runs_answer_and_store_nothing() {
    let server = server();
    let before = server.revision();
    let answer = send(&server, "POST", &format!("{MAPS}?dryRun=All"), &config_map("a")).await;
    assert_eq!(answer.code, 201);
    assert!(answer.json()["metadata"]["uid"].is_string());
    assert_eq!(answer.json()["metadata"].get("resourceVersion"), None);
    assert_eq!((get(&server, &format!("{MAPS}/a")).await.code, server.revision()), (404, before));
    let object = create(&server, MAPS, &config_map("a")).await;
    let patched =
        merge_patch(&server, &format!("{MAPS}/a?dryRun=All"), &json!({ "data": { "k": "2" } })).await;
    assert_eq!((&patched.json()["data"]["k"], patched.version()), (&json!("2"), version(&object)));
    let deleted = send(&server, "DELETE", &format!("{MAPS}/a?dryRun=All"), &Value::Null).await;
    assert_eq!(deleted.code, 200);
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.json(), object);
    assert_eq!(send(&server, "POST", &format!("{MAPS}?dryRun=Some"), &config_map("b")).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn pods_are_bound_to_nodes_and_evicted_from_them() {
    let server = server();
    create(&server, PODS, &pod("a")).await;
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "a" }, "target": { "kind": "Node", "name": "n" } });
    assert_eq!(send(&server, "POST", &format!("{PODS}/a/binding"), &binding).await.code, 201);
    assert_eq!(get(&server, &format!("{PODS}/a")).await.json()["spec"]["nodeName"], "n");
    assert_eq!(send(&server, "POST", &format!("{PODS}/a/binding"), &binding).await.code, 409);
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "a" } });
    assert_eq!(send(&server, "POST", &format!("{PODS}/a/eviction"), &eviction).await.code, 201);
    assert!(get(&server, &format!("{PODS}/a")).await.json()["metadata"]["deletionTimestamp"].is_string());
    let review = json!({ "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } } });
    let answer =
        send(&server, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await;
    assert_eq!((answer.code, &answer.json()["status"]["allowed"]), (201, &json!(true)));
}
