//! Creating objects: names, uids, times, defaults, and the namespace that must be there.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use crate::core::{Call, Core, key};
use crate::crd;
use crate::defaults;
use crate::delete::{FOREGROUND, ORPHAN};
use crate::kinds::{self, Kind};
use crate::negotiate::{self, Shape};
use crate::object::{Object, finalizers, meta, meta_mut, text, text_at};
use crate::status::{Answer, Cause, Status};
use crate::storage::Store;
use crate::write::{self, Written};

/// What a generated name adds: letters and digits that cannot form words.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LEN: usize = 5;
/// The longest name a generated one may be.
const MAX_GENERATED: usize = 63;
/// How often a generated name may be taken already, as in the real server.
const GENERATE_TRIES: usize = 8;

pub(crate) fn create(core: &Arc<Core>, call: &Call) -> Answer {
    let form = negotiate::form(call, Shape::One)?;
    let dry_run = write::dry_run(call)?;
    let mut object = write::body_object(call)?;
    write::check_shape(call, &mut object)?;
    let written = insert(core, call, object, dry_run)?;
    core.background.kick(core);
    Ok(written.respond(StatusCode::CREATED, &form))
}

/// Stores a new object: the end of every create.
pub(crate) fn insert(core: &Core, call: &Call, mut object: Object, dry_run: bool) -> Answer<Written> {
    let kind = &call.kind;
    if kind.custom.as_ref().is_some_and(|custom| custom.terminating) {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(Status::new(405, "MethodNotAllowed", why));
    }
    if !text(meta_mut(&mut object), "resourceVersion").is_empty() {
        return Err(Status::unexplained("resourceVersion should not be set on objects to be created"));
    }
    write::check_namespace(call, &mut object)?;
    let generated = text(meta_mut(&mut object), "name").is_empty();
    set_name(core, kind, &mut object)?;
    let metadata = meta_mut(&mut object);
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
        metadata.remove(name);
    }
    metadata.insert("uid".to_owned(), core.uid().into());
    metadata.insert("creationTimestamp".to_owned(), core.clock.timestamp(0).into());
    if kind.has_generation() {
        metadata.insert("generation".to_owned(), json!(1));
    }
    let name = text(metadata, "name").to_owned();
    defaults::prepare_new(kind, &mut object);
    let mut causes = check_finalizers(kind, &object);
    causes.extend(defaults::validate(kind, &object));
    if !causes.is_empty() {
        return Err(Status::invalid(&kind.group, &kind.kind, &name, &causes));
    }
    if crd::is_definition(kind) {
        crd::prepare(&core.clock, &mut object)?;
    }
    let mut store = core.store();
    check_home(&store, call, &name)?;
    let namespace = call.info.namespace.as_deref();
    let mut tries = if generated { GENERATE_TRIES } else { 1 };
    let key: Arc<str> = loop {
        let name = text_at(&object, &["metadata", "name"]);
        let key = key(kind, namespace, name);
        if store.get(kind, &key).is_none() {
            break key.into();
        }
        tries -= 1;
        if tries == 0 {
            return Err(Status::already_exists(&kind.group, &kind.resource, name));
        }
        meta_mut(&mut object).remove("name");
        set_name(core, kind, &mut object)?;
    };
    let stored = write::encode(&store, kind, &key, &object, dry_run)?;
    if crd::is_definition(kind) && !dry_run {
        crd::define(&mut store, &object)?;
    }
    Ok(write::put(&mut store, kind, stored, dry_run))
}

/// What lives in a namespace needs one that exists and stays.
fn check_home(store: &Store, call: &Call, name: &str) -> Answer<()> {
    let Some(namespace) = call.info.namespace.as_deref().filter(|_| call.kind.namespaced) else {
        return Ok(());
    };
    match store.get(kinds::core("namespaces"), namespace) {
        None => Err(Status::not_found("", "namespaces", namespace)),
        Some(stored) if stored.deleting => {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let mut status = Status::forbidden(&call.kind.group, &call.kind.resource, name, &why);
            let message = format!("namespace {namespace} is being terminated");
            status.details["causes"] = json!([{ "reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace" }]);
            Err(status)
        }
        Some(_) => Ok(()),
    }
}

fn set_name(core: &Core, kind: &Kind, object: &mut Object) -> Answer<()> {
    let metadata = meta_mut(object);
    let mut name = text(metadata, "name").to_owned();
    let prefix = text(metadata, "generateName");
    if name.is_empty() && !prefix.is_empty() {
        let room = prefix.floor_char_boundary(MAX_GENERATED - SUFFIX_LEN);
        prefix[..room].clone_into(&mut name);
        core.random(|random| {
            for _ in 0..SUFFIX_LEN {
                name.push(char::from(SUFFIX_ALPHABET[random.usize(..SUFFIX_ALPHABET.len())]));
            }
        });
    }
    let cause = if name.is_empty() {
        Cause::required("metadata.name", "name or generateName is required")
    } else if let Err(why) = check_name(kind, &name) {
        Cause::invalid("metadata.name", &Value::from(name.as_str()), why)
    } else {
        metadata.insert("name".to_owned(), name.into());
        return Ok(());
    };
    Err(Status::invalid(&kind.group, &kind.kind, &name, &[cause]))
}

/// Finalizers of built-in kinds are known ones or say whose they are.
fn check_finalizers(kind: &Kind, object: &Object) -> Vec<Cause> {
    let names = meta(object).map(finalizers).unwrap_or_default();
    let known = |name: &str| matches!(name, "kubernetes" | FOREGROUND | ORPHAN) || name.contains('/');
    let unknown = names.into_iter().enumerate().filter(|(_, name)| kind.custom.is_none() && !known(name));
    unknown
        .map(|(i, name)| {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            Cause::invalid(&format!("metadata.finalizers[{i}]"), &name.into(), why)
        })
        .collect()
}

/// Names are DNS subdomains, except where the real server takes anything that fits into a path.
fn check_name(kind: &Kind, name: &str) -> Result<(), &'static str> {
    if matches!(
        kind.group.as_str(),
        "rbac.authorization.k8s.io" | "certificates.k8s.io" | "networking.k8s.io"
    ) {
        let fits = !matches!(name, "." | "..") && !name.contains(['/', '%']);
        return if fits { Ok(()) } else { Err("may not be '.' or '..' and may not contain '/' or '%'") };
    }
    if kind.is("", "namespaces") && name.contains('.') {
        return Err("must not contain dots");
    }
    let label = |label: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let edges = label.bytes().next().is_some_and(inner) && label.bytes().last().is_some_and(inner);
        edges && label.bytes().all(|b| inner(b) || b == b'-')
    };
    if name.len() <= 253 && name.split('.').all(label) {
        return Ok(());
    }
    Err(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    )
}
