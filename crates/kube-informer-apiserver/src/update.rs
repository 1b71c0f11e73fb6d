//! Replacing objects: optimistic locking, what a writer may not change, the status subresource, the last finalizer.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use crate::core::{Call, Core};
use crate::crd;
use crate::create;
use crate::defaults;
use crate::kinds::Kind;
use crate::negotiate::{self, Shape};
use crate::object::{EventType, Object, Stored, finalizers, meta, meta_mut, text, text_at};
use crate::options::no_number;
use crate::read;
use crate::request::Verb;
use crate::status::{Answer, Cause, Status};
use crate::storage::Store;
use crate::write::{self, Written};

pub(crate) const STALE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

pub(crate) fn update(core: &Arc<Core>, call: &Call) -> Answer {
    let form = negotiate::form(call, Shape::One)?;
    let dry_run = write::dry_run(call)?;
    let object = write::body_object(call)?;
    let (written, code) = put(core, call, object, dry_run)?;
    core.background.kick(core);
    Ok(written.respond(code, &form))
}

fn put(core: &Core, call: &Call, mut object: Object, dry_run: bool) -> Answer<(Written, StatusCode)> {
    let mut store = core.store();
    if let Some(old) = store.get(&call.kind, &call.key()).cloned() {
        let before = old.parse();
        let written = replace(core, &mut store, call, &old, &before, object, dry_run)?;
        return Ok((written, StatusCode::OK));
    }
    drop(store);
    // Who names a version or a uid means an object that was there.
    let known = |name| meta(&object).is_some_and(|metadata| !text(metadata, name).is_empty());
    if !call.kind.update_creates()
        || call.info.subresource.is_some()
        || known("resourceVersion")
        || known("uid")
    {
        return Err(read::not_found(call));
    }
    write::check_shape(call, &mut object)?;
    check_name(call, &object)?;
    Ok((create::insert(core, call, object, dry_run)?, StatusCode::CREATED))
}

/// Puts an object in the place of another: the end of every update and every patch.
pub(crate) fn replace(
    core: &Core,
    store: &mut Store,
    call: &Call,
    old: &Arc<Stored>,
    before: &Object,
    mut object: Object,
    dry_run: bool,
) -> Answer<Written> {
    let kind = &call.kind;
    write::check_shape(call, &mut object)?;
    check_name(call, &object)?;
    write::check_namespace(call, &mut object)?;
    check_version(call, old, meta_mut(&mut object), before)?;
    check_constants(call, before, &object)?;
    if call.is_sub("status") {
        take_status(call, before, &mut object);
    } else if call.is_sub("finalize") {
        take_namespace_finalizers(before, &mut object);
    } else {
        keep_status(call, before, &mut object);
    }
    keep_metadata(before, &mut object);
    defaults::default(kind, &mut object);
    check_finalizers(call, before, &object)?;
    let mut causes = defaults::validate(kind, &object);
    causes.extend(defaults::validate_change(kind, before, &object));
    if !causes.is_empty() {
        return Err(Status::invalid(&kind.group, &kind.kind, call.name(), &causes));
    }
    if crd::is_definition(kind) && call.info.subresource.is_none() {
        crd::check_update(before, &object)?;
        crd::prepare(&core.clock, &mut object)?;
    }
    if kind.has_generation() && spec_changed(kind, before, &object) {
        let generation = meta_mut(&mut object).get("generation").and_then(Value::as_i64).unwrap_or(0);
        meta_mut(&mut object).insert("generation".to_owned(), json!(generation + 1));
    }
    if is_finished(&object) && !dry_run {
        // The last change is answered but never stored: what watchers see go is the object before it.
        let last = Stored::encode(kind, EventType::Modified, old.key.clone(), old.revision, &object);
        write::check_types(kind, &last)?;
        remove(store, kind, &old.key, &object);
        return Ok(Written::Unsaved(last));
    }
    let stored = write::encode(store, kind, &old.key, &object, dry_run)?;
    if crd::is_definition(kind) && !dry_run {
        crd::define(store, &object)?;
    }
    Ok(write::put(store, kind, stored, dry_run))
}

/// Removes an object that waits for nothing more.
pub(crate) fn remove(store: &mut Store, kind: &Kind, key: &str, object: &Object) {
    store.remove(kind, key);
    if crd::is_definition(kind) {
        let (group, resource) = crd::names(object);
        store.undefine(group, resource);
    }
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

/// The name of the body must be that of the path.
fn check_name(call: &Call, object: &Object) -> Answer<()> {
    let (name, expected) = (text_at(object, &["metadata", "name"]), call.name());
    if name == expected {
        return Ok(());
    }
    Err(Status::bad_request(if name.is_empty() {
        format!("the name of the object ({expected} based on URL) was undeterminable: name must be provided")
    } else {
        format!("the name of the object ({name}) does not match the name on the URL ({expected})")
    }))
}

/// What is part of an object's identity cannot be written.
fn check_constants(call: &Call, before: &Object, object: &Object) -> Answer<()> {
    let (Some(old), Some(new)) = (meta(before), meta(object)) else { return Ok(()) };
    let causes: Vec<_> = ["uid", "deletionTimestamp"]
        .into_iter()
        .filter(|&name| new.contains_key(name) && old.get(name) != new.get(name))
        .map(|name| Cause::immutable(&format!("metadata.{name}"), &new[name]))
        .collect();
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&call.kind.group, &call.kind.kind, call.name(), &causes))
}

fn check_version(call: &Call, old: &Stored, metadata: &Object, before: &Object) -> Answer<()> {
    let (kind, name) = (&call.kind, call.name());
    let uid = text(metadata, "uid");
    let old_uid = text_at(before, &["metadata", "uid"]);
    if !uid.is_empty() && uid != old_uid && call.info.verb == Some(Verb::Update) {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}",
            kind.resource, old.key
        );
        return Err(Status::conflict(&kind.group, &kind.resource, name, &why));
    }
    let version = text(metadata, "resourceVersion");
    if matches!(version, "" | "0") {
        if kind.update_needs_version() {
            let cause =
                Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(Status::invalid(&kind.group, &kind.resource, name, &[cause]));
        }
    } else if version.parse::<u64>().is_err() {
        return Err(Status::unexplained(no_number("ParseUint", version)));
    } else if version != old.revision.to_string() {
        return Err(Status::conflict(&kind.group, &kind.resource, name, STALE));
    }
    Ok(())
}

/// Of an update of the status, only the status counts; for built-in kinds most of the metadata, too.
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
        let kept = match call.kind.resource.as_str() {
            "deployments" => "labels",
            _ => "ownerReferences",
        };
        match meta(before).and_then(|before| before.get(kept)) {
            Some(value) => metadata.insert(kept.to_owned(), value.clone()),
            None => metadata.remove(kept),
        };
        object.insert("metadata".to_owned(), Value::Object(metadata));
    }
}

/// Of `PUT …/finalize`, the namespace's own finalizers and the metadata count.
fn take_namespace_finalizers(before: &Object, object: &mut Object) {
    let finalizers = object.get("spec").and_then(|spec| spec.get("finalizers")).cloned();
    let finalizers = finalizers.filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
    object.insert("spec".to_owned(), finalizers.map_or_else(|| json!({}), |f| json!({ "finalizers": f })));
    if let Some(status) = before.get("status") {
        object.insert("status".to_owned(), status.clone());
    }
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
    let added: Vec<_> = added.iter().map(|name| format!("{name:?}")).collect();
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    let cause = Cause::forbidden("metadata.finalizers", &why);
    Err(Status::invalid(&call.kind.group, &call.kind.kind, call.name(), &[cause]))
}

/// Whether anything but metadata and status differs, or metadata that counts for the kind.
fn spec_changed(kind: &Kind, before: &Object, after: &Object) -> bool {
    let differs = |before: &Object, after: &Object, counts: &dyn Fn(&str) -> bool| {
        let mut names = before.keys().chain(after.keys()).filter(|name| counts(name));
        names.any(|name| before.get(name) != after.get(name))
    };
    let empty = Object::new();
    let (old, new) = (meta(before).unwrap_or(&empty), meta(after).unwrap_or(&empty));
    differs(before, after, &|name| !matches!(name, "kind" | "apiVersion" | "metadata" | "status"))
        || differs(old, new, &|name| kind.generation_counts(name))
}
