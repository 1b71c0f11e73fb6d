//! What only pods have: being bound to a node, and being evicted from one.

use std::sync::Arc;

use http::StatusCode;
use kube_wire::protobuf as wire;
use serde_json::{Value, json};

use crate::core::{Call, Core, key};
use crate::delete::{DeleteOptions, delete_object};
use crate::kinds;
use crate::negotiate::{self, Coding, Shape};
use crate::object::{Object, text, text_at};
use crate::protobuf::{self, Read};
use crate::read;
use crate::status::{Answer, Status};
use crate::write;

/// `POST …/pods/{name}/binding`, and the older `POST …/bindings`: what a scheduler does.
pub(crate) fn bind(core: &Arc<Core>, call: &Call) -> Answer {
    let coding = negotiate::form(call, Shape::One)?.coding();
    let dry_run = write::dry_run(call)?;
    let binding = body(call, ("v1", "Binding"))?;
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
    let stored = write::encode(&store, kind, &old.key, &pod, dry_run)?;
    write::put(&mut store, kind, stored, dry_run);
    Ok(success(StatusCode::CREATED, coding))
}

/// `POST …/pods/{name}/eviction`: a deletion; disruption budgets are not looked at.
pub(crate) fn evict(core: &Arc<Core>, call: &Call) -> Answer {
    let coding = negotiate::form(call, Shape::One)?.coding();
    let dry_run = write::dry_run(call)?;
    let eviction = body(call, ("policy/v1", "Eviction"))?;
    let options: DeleteOptions = match eviction.get("deleteOptions") {
        None | Some(Value::Null) => DeleteOptions::default(),
        Some(options) => serde_json::from_value(options.clone())
            .map_err(|error| Status::bad_request(format!("deleteOptions cannot be read: {error}")))?,
    };
    let options = options.checked(dry_run)?;
    delete_object(core, &mut core.store(), kinds::core("pods"), &call.key(), &options)?;
    core.background.kick(core);
    Ok(success(StatusCode::CREATED, coding))
}

fn body(call: &Call, (api_version, name): (&str, &str)) -> Answer<Object> {
    let unreadable = |error: String| Status::bad_request(format!("the body cannot be read: {error}"));
    let wire = wire::Kind::find(api_version, name);
    let object: Object = match (negotiate::body_coding(&call.headers, wire.is_some())?, wire) {
        (Coding::Protobuf, Some(kind)) => {
            match protobuf::read_body(kind, &call.body).map_err(|error| unreadable(error.to_string()))? {
                Read::Object(Value::Object(object)) => object,
                Read::Object(_) => Object::new(),
                Read::Other { kind, .. } => Object::from_iter([("kind".to_owned(), kind.into())]),
            }
        }
        _ => serde_json::from_slice(&call.body).map_err(|error| unreadable(error.to_string()))?,
    };
    let kind = text(&object, "kind");
    if !matches!(kind, "" | "Binding" | "Eviction") {
        return Err(Status::bad_request(format!("a body of kind {kind:?} cannot be handled here")));
    }
    Ok(object)
}

fn success(code: StatusCode, coding: Coding) -> http::Response<crate::Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code.as_u16() });
    read::value(code, protobuf::status_kind(), &status, coding)
}
