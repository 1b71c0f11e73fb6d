//! What only pods have: being bound to a node, and being evicted from one.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use crate::core::{Call, Core, key};
use crate::delete::{DeleteOptions, delete_object};
use crate::kinds;
use crate::negotiate;
use crate::object::{Object, text, text_at};
use crate::read;
use crate::status::{Answer, Status};

/// `POST …/pods/{name}/binding`, and the older `POST …/bindings`: what a scheduler does.
pub(crate) fn bind(core: &Arc<Core>, call: &Call) -> Answer {
    let binding = body(call)?;
    let node = text_at(&binding, &["target", "name"]);
    let name = call.info.name.as_deref().unwrap_or_else(|| text_at(&binding, &["metadata", "name"]));
    if node.is_empty() {
        return Err(Status::unexplained("target.name: Required value"));
    }
    let kind = kinds::core("pods");
    let key = key(kind, call.info.namespace.as_deref(), name);
    let mut store = core.store();
    let Some(old) = store.get(kind, &key).cloned() else {
        return Err(Status::not_found("", "pods", name));
    };
    let mut pod = old.parse();
    let bound = text_at(&pod, &["spec", "nodeName"]);
    if !bound.is_empty() {
        let why = format!("pod {name} is already assigned to node {bound:?}");
        return Err(Status::conflict("", "pods/binding", name, &why));
    }
    if old.deleting {
        let why = format!("pod {name} is being deleted, cannot be assigned to a host");
        return Err(Status::conflict("", "pods/binding", name, &why));
    }
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("nodeName".to_owned(), node.into());
    }
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": core.clock.timestamp(0),
    });
    if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        if let Some(list) = conditions.as_array_mut() {
            list.retain(|condition| condition["type"] != "PodScheduled");
            list.push(scheduled);
        }
    }
    store.put(kind, &old.key, &pod);
    Ok(success(StatusCode::CREATED))
}

/// `POST …/pods/{name}/eviction`: a deletion; disruption budgets are not looked at.
pub(crate) fn evict(core: &Arc<Core>, call: &Call) -> Answer {
    let eviction = body(call)?;
    let options = match eviction.get("deleteOptions") {
        None | Some(Value::Null) => DeleteOptions::default(),
        Some(options) => serde_json::from_value(options.clone())
            .map_err(|error| Status::bad_request(format!("deleteOptions cannot be read: {error}")))?,
    };
    delete_object(core, &mut core.store(), kinds::core("pods"), &call.key(), &options)?;
    core.background.kick(core);
    Ok(success(StatusCode::CREATED))
}

fn body(call: &Call) -> Answer<Object> {
    negotiate::check_json_body(&call.headers)?;
    let object: Object = serde_json::from_slice(&call.body)
        .map_err(|error| Status::bad_request(format!("the body cannot be read: {error}")))?;
    let kind = text(&object, "kind");
    if !matches!(kind, "" | "Binding" | "Eviction") {
        return Err(Status::bad_request(format!("a body of kind {kind:?} cannot be handled here")));
    }
    Ok(object)
}

fn success(code: StatusCode) -> http::Response<crate::Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code.as_u16() });
    read::json(code, status.to_string())
}
