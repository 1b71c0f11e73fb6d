//! Defaults and checks of built-in kinds: only those that clients depend on.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::kinds::Kind;
use crate::object::{Object, meta_mut, text_at};
use crate::status::Cause;

/// What the server fills in or takes out when an object is created.
pub(crate) fn prepare_new(kind: &Kind, object: &mut Object) {
    // Whoever creates an object says what should be; what is comes later, through the status subresource.
    if kind.has_status() && !kind.is("", "nodes") {
        object.remove("status");
    }
    match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "pods") => {
            object.insert("status".to_owned(), json!({ "phase": "Pending", "qosClass": "BestEffort" }));
        }
        ("", "namespaces") => {
            let list = section(object, "spec").entry("finalizers").or_insert_with(|| json!([]));
            if let Some(list) =
                list.as_array_mut().filter(|list| !list.iter().any(|name| name == "kubernetes"))
            {
                list.push("kubernetes".into());
            }
            object.insert("status".to_owned(), json!({ "phase": "Active" }));
        }
        ("", "persistentvolumes" | "persistentvolumeclaims") => {
            object.insert("status".to_owned(), json!({ "phase": "Pending" }));
        }
        _ if kind.custom.is_none() && kind.has_status() && !kind.is("", "nodes") => {
            object.insert("status".to_owned(), empty_status(kind));
        }
        _ => {}
    }
    default(kind, object);
}

/// A status before anything is known: numbers that are never left out are 0.
fn empty_status(kind: &Kind) -> Value {
    match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "services") | ("networking.k8s.io", "ingresses") => json!({ "loadBalancer": {} }),
        ("", "replicationcontrollers") | ("apps", "replicasets") => json!({ "replicas": 0 }),
        ("apps", "statefulsets") => json!({ "replicas": 0, "availableReplicas": 0 }),
        ("apps", "daemonsets") => json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        }),
        ("autoscaling", _) => json!({ "desiredReplicas": 0, "currentMetrics": null }),
        ("policy", _) => json!({
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        }),
        ("storage.k8s.io", "volumeattachments") => json!({ "attached": false }),
        _ => json!({}),
    }
}

/// What the server fills in whenever an object is written.
pub(crate) fn default(kind: &Kind, object: &mut Object) {
    match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "namespaces") => {
            let name = text_at(object, &["metadata", "name"]).to_owned();
            let labels = meta_mut(object).entry("labels").or_insert_with(|| json!({}));
            labels["kubernetes.io/metadata.name"] = name.into();
        }
        ("", "pods") => {
            let spec = section(object, "spec");
            set(spec, "restartPolicy", || json!("Always"));
            set(spec, "dnsPolicy", || json!("ClusterFirst"));
            set(spec, "schedulerName", || json!("default-scheduler"));
            set(spec, "terminationGracePeriodSeconds", || json!(30));
            set(spec, "enableServiceLinks", || json!(true));
            set(spec, "securityContext", || json!({}));
        }
        ("", "secrets") => {
            set(object, "type", || json!("Opaque"));
            // `stringData` can be written and never read.
            if let Some(Value::Object(texts)) = object.remove("stringData") {
                let data = section(object, "data");
                for (name, text) in texts {
                    data.insert(name, STANDARD.encode(text.as_str().unwrap_or("")).into());
                }
            }
        }
        ("", "services") => {
            let spec = section(object, "spec");
            set(spec, "type", || json!("ClusterIP"));
            set(spec, "sessionAffinity", || json!("None"));
        }
        ("apps", "deployments" | "replicasets" | "statefulsets") | ("", "replicationcontrollers") => {
            set(section(object, "spec"), "replicas", || json!(1));
        }
        ("batch", "jobs") => {
            let spec = section(object, "spec");
            set(spec, "backoffLimit", || json!(6));
            set(spec, "suspend", || json!(false));
            if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
                spec.insert("completions".to_owned(), json!(1));
            }
            set(spec, "parallelism", || json!(1));
        }
        _ => {}
    }
}

/// What is wrong with an object: few checks, those that people run into.
pub(crate) fn validate(kind: &Kind, object: &Object) -> Vec<Cause> {
    let mut causes = Vec::new();
    if kind.is("", "pods") {
        let containers = object.get("spec").and_then(|spec| spec.get("containers"));
        match containers.and_then(|list| list.as_array()) {
            Some(list) if !list.is_empty() => {
                for (i, container) in list.iter().enumerate() {
                    if container.get("name").and_then(|name| name.as_str()).is_none_or(str::is_empty) {
                        causes.push(Cause::required(&format!("spec.containers[{i}].name"), ""));
                    }
                }
            }
            _ => causes.push(Cause::required("spec.containers", "")),
        }
    }
    causes
}

/// What is wrong with a change: parts that stay as they were made.
pub(crate) fn validate_change(kind: &Kind, before: &Object, after: &Object) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !kind.is("", "configmaps") && !kind.is("", "secrets") {
        return causes;
    }
    let changed = |name: &str| before.get(name) != after.get(name);
    if kind.is("", "secrets") && changed("type") {
        causes.push(Cause::immutable("type", &after["type"]));
    }
    if before.get("immutable") == Some(&json!(true)) {
        let parts = ["immutable", "data", "binaryData"].into_iter().filter(|name| changed(name));
        let why = "field is immutable when `immutable` is set";
        causes.extend(parts.map(|name| Cause::forbidden(name, why)));
    }
    causes
}

fn section<'a>(object: &'a mut Object, name: &str) -> &'a mut Object {
    let section = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if !section.is_object() {
        *section = Value::Object(Map::new());
    }
    section.as_object_mut().expect("just made")
}

fn set(object: &mut Object, name: &str, value: impl FnOnce() -> Value) {
    if object.get(name).is_none_or(Value::is_null) {
        object.insert(name.to_owned(), value());
    }
}
