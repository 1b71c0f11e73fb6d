//! What all writes have in common: reading the body, checking its shape, answering with what was stored.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::body::Body;
use crate::core::Call;
use crate::kinds::Kind;
use crate::negotiate::{self, Coding};
use crate::object::{EventType, Form, Object, Stored, meta, meta_mut, text, text_at};
use crate::protobuf::{self, Read};
use crate::read;
use crate::request::Verb;
use crate::status::{Answer, Cause, Status};
use crate::storage::Store;

/// What became of a write.
pub(crate) enum Written {
    Stored(Arc<Stored>),
    /// It was not stored: this is what would have been.
    Unsaved(Stored),
}

impl Written {
    pub(crate) fn respond(&self, status: StatusCode, form: &Form) -> Response<Body> {
        let bytes = match self {
            Self::Stored(stored) => stored.object(form),
            Self::Unsaved(stored) => without_version(stored, form),
        };
        read::encoded(status, form.coding(), bytes)
    }
}

/// Encodes an object for its place in the store. A field of the wrong type is refused.
pub(crate) fn encode(
    store: &Store,
    kind: &Kind,
    key: &Arc<str>,
    object: &Object,
    dry_run: bool,
) -> Answer<Stored> {
    // An object that would be new has no version; one that would change still has its old one.
    let (event, revision) = match store.get(kind, key) {
        Some(old) => (EventType::Modified, old.revision),
        None => (EventType::Added, 0),
    };
    let revision = if dry_run { revision } else { store.revision() + 1 };
    let stored = Stored::encode(kind, event, key.clone(), revision, object);
    check_types(kind, &stored)?;
    Ok(stored)
}

/// Stores what was encoded, or only says what it would look like.
pub(crate) fn put(store: &mut Store, kind: &Kind, stored: Stored, dry_run: bool) -> Written {
    if dry_run { Written::Unsaved(stored) } else { Written::Stored(store.put_encoded(kind, stored)) }
}

/// Refuses an object that has a field of the wrong type.
pub(crate) fn check_types(kind: &Kind, stored: &Stored) -> Answer<()> {
    stored.check_types().map_err(|error| unreadable(kind, &error.to_string()))
}

/// The object of a request's body, of the kind of its path.
pub(crate) fn body_object(call: &Call) -> Answer<Object> {
    let object = match negotiate::body_coding(&call.headers, call.kind.wire.is_some())? {
        Coding::Json => serde_json::from_slice(&call.body)
            .map_err(|error| unreadable(&call.kind, &format!("the body is not JSON: {error}")))?,
        Coding::Protobuf => protobuf_object(call)?,
    };
    let object = match object {
        Value::Object(object) => object,
        // As in Go, nothing is an object without members.
        Value::Null => Object::new(),
        _ => return Err(Status::bad_request("the body of the request is not a JSON object")),
    };
    // Built-in kinds are known by the path; of custom ones the server has only what the object says.
    if call.kind.custom.is_some()
        && (text(&object, "kind").is_empty() || text(&object, "apiVersion").is_empty())
    {
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' or 'apiVersion' is missing",
            call.kind.kind
        )));
    }
    check_type(call, &object)?;
    Ok(object)
}

/// Checks what later code relies on, and takes out what only the server may say.
pub(crate) fn check_shape(call: &Call, object: &mut Object) -> Answer<()> {
    check_type(call, object)?;
    object.remove("kind");
    object.remove("apiVersion");
    if object.get("metadata").is_some_and(|metadata| !metadata.is_object() && !metadata.is_null()) {
        return Err(wrong(&call.kind, "metadata", "an object"));
    }
    let metadata = meta_mut(object);
    // `null` is how many clients write "nothing".
    metadata.retain(|_, value| !value.is_null());
    metadata.remove("selfLink");
    for name in ["name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if metadata.get(name).is_some_and(|value| !value.is_string()) {
            return Err(wrong(&call.kind, &format!("metadata.{name}"), "a string"));
        }
    }
    for name in ["labels", "annotations"] {
        let strings =
            |value: &Value| value.as_object().is_some_and(|map| map.values().all(|v| v.is_string()));
        if metadata.get(name).is_some_and(|value| !strings(value)) {
            return Err(wrong(&call.kind, &format!("metadata.{name}"), "a map of strings"));
        }
    }
    let list = |value: &Value, fits: fn(&Value) -> bool| value.as_array().is_some_and(|l| l.iter().all(fits));
    if metadata.get("finalizers").is_some_and(|value| !list(value, |v| v.is_string())) {
        return Err(wrong(&call.kind, "metadata.finalizers", "a list of strings"));
    }
    if metadata.get("ownerReferences").is_some_and(|value| !list(value, |v| v.is_object())) {
        return Err(wrong(&call.kind, "metadata.ownerReferences", "a list of objects"));
    }
    // Empty is absent, as in the Go types.
    for name in ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"] {
        let empty = |value: &Value| {
            value.as_object().is_some_and(|map| map.is_empty())
                || value.as_array().is_some_and(|l| l.is_empty())
        };
        if metadata.get(name).is_some_and(empty) {
            metadata.remove(name);
        }
    }
    check_owners(&call.kind, object)
}

/// The namespace of the body must be that of the path.
pub(crate) fn check_namespace(call: &Call, object: &mut Object) -> Answer<()> {
    let metadata = meta_mut(object);
    let Some(namespace) = call.info.namespace.as_deref().filter(|_| call.kind.namespaced) else {
        metadata.remove("namespace");
        return Ok(());
    };
    let found = text(metadata, "namespace");
    if !found.is_empty() && found != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata.insert("namespace".to_owned(), namespace.into());
    Ok(())
}

/// Whether the query says that nothing is to be stored. Each verb that writes asks this first.
pub(crate) fn dry_run(call: &Call) -> Answer<bool> {
    let kind = match call.info.verb {
        Some(Verb::Update) => "UpdateOptions",
        Some(Verb::Patch) => "PatchOptions",
        Some(Verb::Delete | Verb::DeleteCollection) => "DeleteOptions",
        _ => "CreateOptions",
    };
    // Every value counts, the empty one too: a write that its sender calls a dry run must never be stored.
    let values: Vec<_> = call.info.query.iter().filter(|(name, _)| name == "dryRun").collect();
    let values: Vec<_> = values.iter().map(|(_, value)| value.as_str()).collect();
    check_dry_run(kind, &values)
}

/// Whether there are values of `dryRun`; all of them must be `All`.
pub(crate) fn check_dry_run(options: &str, values: &[&str]) -> Answer<bool> {
    if values.iter().all(|&value| value == "All") {
        return Ok(!values.is_empty());
    }
    Err(Status::invalid_options(options, &[Cause::unsupported("dryRun", &json!(values), &["All"])]))
}

fn check_type(call: &Call, object: &Object) -> Answer<()> {
    let kind = &call.kind;
    let api_version = kind.api_version(&call.info.version);
    let (found_kind, found_version) = (text(object, "kind"), text(object, "apiVersion"));
    if !found_version.is_empty() && found_version != api_version {
        return Err(Status::bad_request(format!(
            "the API version in the data ({found_version}) does not match the expected API version ({api_version})"
        )));
    }
    if !found_kind.is_empty() && found_kind != kind.kind {
        if kind.custom.is_some() {
            let name = text_at(object, &["metadata", "name"]);
            let cause = Cause::invalid("kind", &json!(found_kind), &format!("must be {}", kind.kind));
            return Err(Status::invalid(&kind.group, found_kind, name, &[cause]));
        }
        return Err(Status::bad_request(format!(
            "{found_kind} in version {:?} cannot be handled as a {}: the kind of the object does not match",
            call.info.version, kind.kind
        )));
    }
    Ok(())
}

fn check_owners(kind: &Kind, object: &Object) -> Answer<()> {
    let metadata = meta(object);
    let owners = metadata.and_then(|m| m.get("ownerReferences")).and_then(|list| list.as_array());
    let mut causes = Vec::new();
    for (i, owner) in owners.into_iter().flatten().enumerate() {
        for name in ["apiVersion", "kind", "name", "uid"] {
            if owner.get(name).and_then(|value| value.as_str()).is_none_or(str::is_empty) {
                let field = format!("metadata.ownerReferences[{i}].{name}");
                causes.push(Cause::required(&field, "must not be empty"));
            }
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    let name = metadata.map_or("", |metadata| text(metadata, "name"));
    Err(Status::invalid(&kind.group, &kind.kind, name, &causes))
}

/// The object of a protobuf body; of one that says it is something else no more than that.
fn protobuf_object(call: &Call) -> Answer<Value> {
    let Some(kind) = call.kind.wire else { return Ok(Value::Null) };
    let read = protobuf::read_body(kind, &call.body).map_err(|error| {
        unreadable(&call.kind, &format!("the body is not protobuf of that kind: {error}"))
    })?;
    Ok(match read {
        Read::Object(object) => object,
        Read::Other { api_version, kind } => json!({ "apiVersion": api_version, "kind": kind }),
    })
}

fn unreadable(kind: &Kind, why: &str) -> Status {
    let (version, kind) = (&kind.version, &kind.kind);
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
}

fn wrong(kind: &Kind, field: &str, expected: &str) -> Status {
    unreadable(kind, &format!("{field} must be {expected}"))
}

fn without_version(stored: &Stored, form: &Form) -> Bytes {
    if stored.revision > 0 {
        return stored.object(form);
    }
    let without = |json: &[u8]| {
        let mut object: Object = serde_json::from_slice(json).expect("what the server encoded is JSON");
        meta_mut(&mut object).remove("resourceVersion");
        object
    };
    match form.coding() {
        Coding::Json => Value::Object(without(&stored.object(form))).to_string().into(),
        Coding::Protobuf => {
            let (kind, json) = match form {
                Form::ProtobufMetadata => (protobuf::metadata_kind(), stored.object(&Form::Metadata)),
                _ => (stored.wire_kind(), stored.json()),
            };
            protobuf::envelope(kind, &protobuf::bare(kind, &Value::Object(without(&json))))
        }
    }
}
