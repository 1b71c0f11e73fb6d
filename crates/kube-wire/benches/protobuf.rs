//! What protobuf costs beside JSON, for one pod of ordinary size: `cargo bench -p kube-wire --bench protobuf`.

use std::hint::black_box;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kube_wire::json::{self, ListMeta};
use kube_wire::protobuf::{self, Kind, cut, from_json, from_slice, write_list};
use kube_wire::{FieldPath, Metadata, path};
use serde_json::{Value, json};

fn main() {
    let kind = Kind::find("v1", "Pod").expect("a built-in kind");
    let paths: [FieldPath; 1] = [".metadata.managedFields".parse().expect("a path")];
    let node: FieldPath = ".spec.nodeName".parse().expect("a path");
    let json = pod().to_string().into_bytes();
    let object = from_json(kind, &json).expect("a pod");
    let trimmed = cut(kind, &object, &paths).expect("a pod").expect("managed fields");
    let trimmed_json = path::cut(&json, &paths).expect("a pod").expect("managed fields");
    println!("a pod: {} bytes of JSON, {} of protobuf, {} trimmed", json.len(), object.len(), trimmed.len());

    let items = vec![&object[..]; 100];
    let mut list = Vec::new();
    write_list(&mut list, &ListMeta::default(), &items);
    measure("split a list and cut managedFields", 100, || {
        let mut splitter = protobuf::ListSplitter::default();
        for chunk in list.chunks(16 << 10) {
            splitter.push(chunk);
            while let Some(item) = splitter.next_item().expect("a list") {
                black_box(cut(kind, &item, &paths).expect("a pod"));
            }
        }
    });
    let list_json = format!(r#"{{"items":[{}]}}"#, vec![String::from_utf8_lossy(&json); 100].join(","));
    measure("the same in JSON", 100, || {
        let mut splitter = json::ListSplitter::default();
        for chunk in list_json.as_bytes().chunks(16 << 10) {
            splitter.push(chunk);
            while let Some(item) = splitter.next_item().expect("a list") {
                black_box(path::cut(&item, &paths).expect("a pod"));
            }
        }
    });
    measure("metadata", 1, || drop(black_box(Metadata::from_protobuf(kind, &trimmed))));
    measure("the same in JSON", 1, || drop(black_box(Metadata::from_json(&trimmed_json))));
    measure(".spec.nodeName", 1, || drop(black_box(node.texts_in_protobuf(kind, &trimmed))));
    measure("the same in JSON", 1, || drop(black_box(node.texts(&trimmed_json))));
    measure("a typed pod", 1, || drop(black_box(from_slice::<Pod>(kind, &trimmed))));
    measure("the same in JSON", 1, || drop(black_box(serde_json::from_slice::<Pod>(&trimmed_json))));
    measure("a tree", 1, || drop(black_box(from_slice::<Value>(kind, &trimmed))));
    measure("the same in JSON", 1, || drop(black_box(serde_json::from_slice::<Value>(&trimmed_json))));
    measure("protobuf from JSON", 1, || drop(black_box(from_json(kind, &json))));
}

/// Prints the time of the fastest of many rounds, for each of `pods`.
#[allow(clippy::disallowed_methods, reason = "measuring is what this program is for")]
fn measure(what: &str, pods: u32, mut work: impl FnMut()) {
    let mut fastest = f64::INFINITY;
    for _ in 0..2000 / pods.min(20) {
        let start = Instant::now();
        work();
        fastest = fastest.min(start.elapsed().as_secs_f64() * 1e6 / f64::from(pods));
    }
    println!("{fastest:8.2} µs  {what}");
}

fn pod() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example/team/{name}:v1.2.3"), "imagePullPolicy": "IfNotPresent",
            "args": ["--listen=0.0.0.0:8080", "--log-level=info", "--feature-gates=A=true,B=false"],
            "env": (0..12).map(|i| json!({"name": format!("SETTING_{i}"), "value": format!("value of setting {i}")})).collect::<Value>(),
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}, {"containerPort": 9090, "name": "metrics", "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
            "volumeMounts": [{"mountPath": "/etc/config", "name": "config"}, {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "token", "readOnly": true}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        })
    };
    let conditions: Value = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "lastProbeTime": null}))
        .collect();
    let statuses: Value = ["web", "proxy", "logger"]
        .iter()
        .map(|name| json!({
            "name": name, "image": format!("registry.example/team/{name}:v1.2.3"), "ready": true, "restartCount": 0, "started": true,
            "imageID": format!("registry.example/team/{name}@sha256:{}", "0123456789abcdef".repeat(4)),
            "containerID": format!("containerd://{}", "fedcba9876543210".repeat(4)), "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }))
        .collect();
    let fields: Value = (0..60)
        .map(|i| (format!("k:{{\"name\":\"SETTING_{i}\"}}"), json!({".": {}, "f:name": {}, "f:value": {}})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let managed = json!({"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-7d4b9c6f5d-x2x4z", "generateName": "web-7d4b9c6f5d-", "namespace": "team-a", "uid": "0b9bd1a4-6f4c-4a2b-9c4e-2f1d3a5b7c9d",
            "resourceVersion": "123456789", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-a", "pod-template-hash": "7d4b9c6f5d"},
            "annotations": {"checksum/config": "0123456789abcdef".repeat(4), "prometheus.io/scrape": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f5d", "uid": "5c6e2a10-0d0b-4c5e-8d5f-4a4b4c4d4e4f", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [managed, managed],
        },
        "spec": {
            "containers": [container("web"), container("proxy"), container("logger")], "nodeName": "node-17", "restartPolicy": "Always",
            "serviceAccountName": "web", "serviceAccount": "web", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30, "securityContext": {}, "enableServiceLinks": true, "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [{"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}],
            "volumes": [{"name": "config", "configMap": {"name": "web-config", "defaultMode": 420}},
                {"name": "token", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]}}],
        },
        "status": {"phase": "Running", "conditions": conditions, "containerStatuses": statuses, "hostIP": "10.0.0.17", "podIP": "10.1.2.3",
            "podIPs": [{"ip": "10.1.2.3"}], "qosClass": "Burstable", "startTime": "2026-01-01T00:00:00Z"},
    })
}
