//! Replacing objects: optimistic locking, what a writer may not change, the status subresource, the last finalizer.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use crate::core::{Call, Core};
use crate::crd;
use crate::defaults;
use crate::negotiate::{self, Shape};
use crate::object::{Object, Stored, finalizers, meta, meta_mut, text, text_at};
use crate::read;
use crate::status::{Answer, Cause, Status};
use crate::storage::Store;
use crate::write::{self, Written};

pub(crate) const STALE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

pub(crate) fn update(core: &Arc<Core>, call: &Call) -> Answer {
    let form = negotiate::form(call, Shape::One)?;
    let dry_run = write::dry_run(call)?;
    let object = write::body_object(call)?;
    let written = {
        let mut store = core.store();
        let old = store.get(&call.kind, &call.key()).cloned().ok_or_else(|| read::not_found(call))?;
        replace(core, &mut store, call, &old, object, dry_run)?
    };
    core.background.kick(core);
    Ok(written.respond(StatusCode::OK, &form))
}

/// Puts an object in the place of another: the end of every update and every patch.
pub(crate) fn replace(
    core: &Core,
    store: &mut Store,
    call: &Call,
    old: &Arc<Stored>,
    mut object: Object,
    dry_run: bool,
) -> Answer<Written> {
    let kind = &call.kind;
    write::check_shape(call, &mut object)?;
    write::check_namespace(call, &mut object)?;
    let before = old.parse();
    let metadata = meta_mut(&mut object);
    let name = text(metadata, "name");
    if name.is_empty() {
        metadata.insert("name".to_owned(), call.name().into());
    } else if name != call.name() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    check_version(call, old, metadata, &before)?;
    if call.is_sub("status") {
        take_status(call, &before, &mut object);
    } else if call.is_sub("finalize") {
        take_namespace_finalizers(&before, &mut object);
    } else {
        keep_status(call, &before, &mut object);
    }
    keep_metadata(&before, &mut object);
    defaults::default(kind, &mut object);
    check_finalizers(call, &before, &object)?;
    let causes = defaults::validate(kind, &object);
    if !causes.is_empty() {
        return Err(Status::invalid(&kind.group, &kind.kind, call.name(), &causes));
    }
    if crd::is_definition(kind) && call.info.subresource.is_none() {
        crd::check_update(&before, &object)?;
        crd::prepare(&core.clock, &mut object)?;
    }
    if kind.has_generation() && spec_changed(&before, &object) {
        let generation = meta_mut(&mut object).get("generation").and_then(Value::as_i64).unwrap_or(0);
        meta_mut(&mut object).insert("generation".to_owned(), json!(generation + 1));
    }
    let written = write::put(store, kind, &old.key, &object, dry_run);
    if dry_run {
        return Ok(written);
    }
    if crd::is_definition(kind) {
        crd::define(store, &object)?;
    }
    if is_finished(&object) {
        // The answer is the object as it was written last; its end is told by the watch.
        store.remove(kind, &old.key);
    }
    Ok(written)
}

/// Whether an object that is being deleted has nothing left to wait for.
pub(crate) fn is_finished(object: &Object) -> bool {
    let Some(metadata) = meta(object) else { return false };
    let grace = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let namespace_finalizers = object.get("spec").and_then(|spec| spec.get("finalizers"));
    metadata.contains_key("deletionTimestamp")
        && grace == 0
        && finalizers(metadata).is_empty()
        && namespace_finalizers.and_then(Value::as_array).is_none_or(|list| list.is_empty())
}

fn check_version(call: &Call, old: &Stored, metadata: &Object, before: &Object) -> Answer<()> {
    let (kind, name) = (&call.kind, call.name());
    let uid = text(metadata, "uid");
    let old_uid = text_at(before, &["metadata", "uid"]);
    if !uid.is_empty() && uid != old_uid {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}");
        return Err(Status::conflict(&kind.group, &kind.resource, name, &why));
    }
    let version = text(metadata, "resourceVersion");
    if matches!(version, "" | "0") {
        // Custom kinds want to know what they replace.
        if kind.custom.is_some() {
            let cause =
                Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(Status::invalid(&kind.group, &kind.kind, name, &[cause]));
        }
    } else if version != old.revision.to_string() {
        return Err(Status::conflict(&kind.group, &kind.resource, name, STALE));
    }
    Ok(())
}

/// Of an update of the status, only the status counts; for built-in kinds also labels and annotations.
fn take_status(call: &Call, before: &Object, object: &mut Object) {
    let status = object.remove("status");
    let metadata = object.remove("metadata");
    object.clone_from(before);
    object.remove("kind");
    object.remove("apiVersion");
    match status {
        Some(status) => object.insert("status".to_owned(), status),
        None => object.remove("status"),
    };
    if call.kind.custom.is_none()
        && let Some(Value::Object(mut metadata)) = metadata
    {
        for name in ["finalizers", "ownerReferences"] {
            match meta(before).and_then(|before| before.get(name)) {
                Some(value) => metadata.insert(name.to_owned(), value.clone()),
                None => metadata.remove(name),
            };
        }
        object.insert("metadata".to_owned(), Value::Object(metadata));
    }
}

/// Of `PUT …/finalize`, only the namespace's own finalizers count.
fn take_namespace_finalizers(before: &Object, object: &mut Object) {
    let finalizers = object.get("spec").and_then(|spec| spec.get("finalizers")).cloned();
    object.clone_from(before);
    object.remove("kind");
    object.remove("apiVersion");
    object.insert("spec".to_owned(), finalizers.map_or_else(|| json!({}), |f| json!({ "finalizers": f })));
}

/// Of an update of the object, the status does not count where it is a subresource.
fn keep_status(call: &Call, before: &Object, object: &mut Object) {
    if call.kind.has_status() {
        match before.get("status") {
            Some(status) => object.insert("status".to_owned(), status.clone()),
            None => object.remove("status"),
        };
    }
    if call.kind.is("", "namespaces")
        && let Some(spec) = before.get("spec")
    {
        object.insert("spec".to_owned(), spec.clone());
    }
}

/// What only the server says stays as it was.
fn keep_metadata(before: &Object, object: &mut Object) {
    let Some(old) = meta(before) else { return };
    let metadata = meta_mut(object);
    metadata.remove("resourceVersion");
    for name in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ] {
        match old.get(name) {
            Some(value) => metadata.insert(name.to_owned(), value.clone()),
            None => metadata.remove(name),
        };
    }
}

/// Once an object is being deleted, finalizers can only go.
fn check_finalizers(call: &Call, before: &Object, object: &Object) -> Answer<()> {
    let (Some(old), Some(new)) = (meta(before), meta(object)) else { return Ok(()) };
    if !old.contains_key("deletionTimestamp") {
        return Ok(());
    }
    let known = finalizers(old);
    let added: Vec<_> = finalizers(new).into_iter().filter(|name| !known.contains(name)).collect();
    if added.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
    );
    let cause = Cause::forbidden("metadata.finalizers", &why);
    Err(Status::invalid(&call.kind.group, &call.kind.kind, call.name(), &[cause]))
}

/// Whether anything but metadata and status differs.
fn spec_changed(before: &Object, after: &Object) -> bool {
    let counts = |name: &&String| !matches!(name.as_str(), "kind" | "apiVersion" | "metadata" | "status");
    before.keys().chain(after.keys()).filter(counts).any(|name| before.get(name) != after.get(name))
}
