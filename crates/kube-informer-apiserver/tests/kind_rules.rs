//! What differs from kind to kind: generations, unconditional updates, updates that create, answers of deletions.

mod common;

use common::{MAPS, PODS, config_map, create, delete, get, merge_patch, pod, send, server, update};
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": {} })
}

#[tokio::test(start_paused = true)]
async fn annotations_of_a_deployment_count_as_a_generation() {
    let server = server();
    create(&server, DEPLOYMENTS, &named("d")).await;
    let path = format!("{DEPLOYMENTS}/d");
    let generation = async |change: Value| {
        merge_patch(&server, &path, &change).await.json()["metadata"]["generation"].clone()
    };
    assert_eq!(generation(json!({ "metadata": { "labels": { "a": "b" } } })).await, 1);
    assert_eq!(generation(json!({ "metadata": { "annotations": { "a": "b" } } })).await, 2);
    assert_eq!(generation(json!({ "spec": { "replicas": 3 } })).await, 3);
    create(&server, PODS, &pod("p")).await;
    let annotated = json!({ "metadata": { "annotations": { "a": "b" } } });
    let pod = merge_patch(&server, &format!("{PODS}/p"), &annotated).await.json();
    assert_eq!(pod["metadata"]["generation"], 1);
}

#[tokio::test(start_paused = true)]
async fn some_kinds_want_to_know_what_an_update_replaces() {
    let server = server();
    create(&server, LEASES, &named("l")).await;
    let blind = send(&server, "PUT", &format!("{LEASES}/l"), &named("l")).await;
    assert_eq!(
        (blind.code, blind.message().as_str()),
        (
            422,
            "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        )
    );
    create(&server, MAPS, &config_map("m")).await;
    update(&server, &format!("{MAPS}/m"), &config_map("m")).await;
}

#[tokio::test(start_paused = true)]
async fn an_update_creates_some_kinds() {
    let server = server();
    let made = send(&server, "PUT", &format!("{LEASES}/l"), &named("l")).await;
    assert_eq!((made.code, made.json()["metadata"]["name"].as_str()), (201, Some("l")));
    let mut known = named("other");
    known["metadata"]["resourceVersion"] = json!("7");
    assert_eq!(send(&server, "PUT", &format!("{LEASES}/other"), &known).await.code, 404, "it was there once");
    assert_eq!(send(&server, "PUT", &format!("{LEASES}/a"), &named("b")).await.code, 400);
    assert_eq!(send(&server, "PUT", &format!("{MAPS}/m"), &config_map("m")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn jobs_leave_their_pods_alone_unless_told() {
    let server = server();
    let job = create(&server, JOBS, &named("j")).await;
    let mut owned = pod("p");
    let reference =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job["metadata"]["uid"] });
    owned["metadata"]["ownerReferences"] = json!([reference]);
    create(&server, PODS, &owned).await;
    let answer = delete(&server, &format!("{JOBS}/j")).await.json();
    assert_eq!(answer["metadata"]["finalizers"], json!(["orphan"]));
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(get(&server, &format!("{JOBS}/j")).await.code, 404);
    assert_eq!(get(&server, PODS).await.names(), ["p"]);
    create(&server, JOBS, &named("k")).await;
    let gone = delete(&server, &format!("{JOBS}/k?propagationPolicy=Background")).await.json();
    assert_eq!(gone["status"], "Success");
}

#[tokio::test(start_paused = true)]
async fn a_status_update_takes_most_of_the_metadata_of_built_in_kinds() {
    let server = server();
    create(&server, PODS, &pod("p")).await;
    let change = json!({
        "metadata": { "labels": { "a": "b" }, "finalizers": ["x.io/hold"], "ownerReferences": [
            { "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u" }] },
        "spec": { "nodeName": "n" }, "status": { "phase": "Running" },
    });
    let pod = merge_patch(&server, &format!("{PODS}/p/status"), &change).await.json();
    assert_eq!(pod["metadata"]["labels"]["a"], "b");
    assert_eq!(pod["metadata"]["finalizers"], json!(["x.io/hold"]));
    assert_eq!(pod["metadata"].get("ownerReferences"), None);
    assert_eq!((pod["spec"].get("nodeName"), pod["status"]["phase"].as_str()), (None, Some("Running")));
    create(&server, DEPLOYMENTS, &named("d")).await;
    let change = json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "a": "b" } } });
    let deployment = merge_patch(&server, &format!("{DEPLOYMENTS}/d/status"), &change).await.json();
    assert_eq!(deployment["metadata"].get("labels"), None, "the one kind that keeps its labels");
    assert_eq!(deployment["metadata"]["annotations"]["a"], "b");
}

#[tokio::test(start_paused = true)]
async fn what_is_immutable_stays() {
    let server = server();
    let frozen = json!({ "metadata": { "name": "m" }, "immutable": true, "data": { "k": "v" } });
    create(&server, MAPS, &frozen).await;
    let refused = merge_patch(&server, &format!("{MAPS}/m"), &json!({ "data": { "k": "w" } })).await;
    assert_eq!(
        refused.message(),
        "ConfigMap \"m\" is invalid: data: Forbidden: field is immutable when `immutable` is set"
    );
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    assert_eq!(merge_patch(&server, &format!("{MAPS}/m"), &labels).await.code, 200);
    let uid = json!({ "metadata": { "uid": "11111111-1111-1111-1111-111111111111" } });
    let refused = merge_patch(&server, &format!("{MAPS}/m"), &uid).await;
    assert_eq!(
        (refused.code, refused.json()["details"]["causes"][0]["field"].as_str()),
        (422, Some("metadata.uid"))
    );
    let secrets = "/api/v1/namespaces/default/secrets";
    create(&server, secrets, &json!({ "metadata": { "name": "s" }, "type": "x.io/t" })).await;
    let refused = merge_patch(&server, &format!("{secrets}/s"), &json!({ "type": "Opaque" })).await;
    assert_eq!(
        refused.message(),
        "Secret \"s\" is invalid: type: Invalid value: \"Opaque\": field is immutable"
    );
}

#[tokio::test(start_paused = true)]
async fn deletions_answer_by_kind() {
    let server = server();
    for (path, answer) in [
        ("/apis/storage.k8s.io/v1/storageclasses", "StorageClass"),
        ("/apis/resource.k8s.io/v1/deviceclasses", "DeviceClass"),
        ("/api/v1/namespaces/default/services", "Service"),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", "Status"),
        (DEPLOYMENTS, "Status"),
        (LEASES, "Status"),
    ] {
        create(&server, path, &named("x")).await;
        assert_eq!(delete(&server, &format!("{path}/x")).await.json()["kind"], answer, "{path}");
    }
}
