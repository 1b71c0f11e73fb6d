//! Deleting: preconditions, grace periods, finalizers, propagation; one object or many.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::Body;
use crate::core::{Call, Core};
use crate::crd;
use crate::kinds::Kind;
use crate::list;
use crate::negotiate::{self, Coding, Shape};
use crate::object::{EventType, Form, Object, Stored, finalizers, meta, meta_mut, text, text_at};
use crate::options::number;
use crate::protobuf::{self, Read};
use crate::read;
use crate::status::{Answer, Cause, Status};
use crate::storage::Store;
use crate::update;
use crate::write;

/// Finalizers that the garbage collector takes away again.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// How to delete; every part may be absent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeleteOptions {
    kind: Option<String>,
    pub(crate) grace_period_seconds: Option<i64>,
    preconditions: Option<Preconditions>,
    pub(crate) propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    dry_run: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// What a deletion led to.
pub(crate) struct Deleted {
    /// The object as it is now, or as it was last.
    pub(crate) object: Arc<Stored>,
    /// Whether it is gone; otherwise it waits for something.
    pub(crate) gone: bool,
}

pub(crate) fn delete(core: &Arc<Core>, call: &Call) -> Answer {
    let form = negotiate::form(call, Shape::One)?;
    let options = DeleteOptions::of(call)?;
    let deleted = {
        let mut store = core.store();
        delete_object(core, &mut store, &call.kind, &call.key(), &options)?
    };
    core.background.kick(core);
    Ok(respond(call, &deleted, &form))
}

/// Deletes what a list of the same options shows, and answers with that list.
pub(crate) async fn delete_collection(core: &Arc<Core>, call: &Call) -> Answer {
    let form = negotiate::form(call, Shape::List)?;
    let options = DeleteOptions::of(call)?;
    let page = list::page(core, call).await?;
    for stored in &page.items {
        match delete_object(core, &mut core.store(), &call.kind, &stored.key, &options) {
            // Someone else was faster.
            Err(status) if status.code == 404 => {}
            deleted => drop(deleted?),
        }
    }
    core.background.kick(core);
    Ok(list::respond(call, form, page).await)
}

/// Deletes an object, or marks it as being deleted if something must happen first.
pub(crate) fn delete_object(
    core: &Core,
    store: &mut Store,
    kind: &Kind,
    key: &str,
    options: &DeleteOptions,
) -> Answer<Deleted> {
    let Some(old) = store.get(kind, key).cloned() else {
        let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
        return Err(Status::not_found(&kind.group, &kind.resource, name));
    };
    let mut object = old.parse();
    check_preconditions(kind, &old, &object, options)?;
    if kind.is("", "namespaces") && matches!(old.name(), "default" | "kube-system" | "kube-public") {
        return Err(Status::forbidden("", "namespaces", old.name(), "this namespace may not be deleted"));
    }
    let grace = grace(kind, &object, options);
    let already = meta(&object).is_some_and(|metadata| metadata.contains_key("deletionTimestamp"));
    add_finalizers(kind, &mut object, options, already);
    let waits = meta(&object).is_some_and(|metadata| !finalizers(metadata).is_empty())
        || kind.is("", "namespaces")
        || crd::is_definition(kind);
    // Pods are told that they end before they do, even if they need not wait.
    if !waits && !kind.is("", "pods") {
        let object = if options.is_dry_run() { old } else { store.remove(kind, key).unwrap_or(old) };
        return Ok(Deleted { object, gone: true });
    }
    mark(core, kind, &mut object, grace, already);
    if kind.is("", "namespaces") {
        object.insert("status".to_owned(), json!({ "phase": "Terminating" }));
    }
    if crd::is_definition(kind) {
        crd::mark_terminating(&core.clock, &mut object);
    }
    if options.is_dry_run() {
        let object = Stored::encode(kind, EventType::Modified, old.key.clone(), old.revision, &object);
        return Ok(Deleted { object: Arc::new(object), gone: false });
    }
    if crd::is_definition(kind) {
        crd::define(store, &object)?;
    }
    let marked = store.put(kind, &old.key, &object);
    if update::is_finished(&object) {
        let object = store.remove(kind, key).unwrap_or(marked);
        return Ok(Deleted { object, gone: true });
    }
    Ok(Deleted { object: marked, gone: false })
}

impl DeleteOptions {
    pub(crate) fn now() -> Self {
        Self { grace_period_seconds: Some(0), ..Self::with_policy("Background") }
    }

    pub(crate) fn with_policy(policy: &str) -> Self {
        Self { propagation_policy: Some(policy.to_owned()), ..Self::default() }
    }

    /// From the body, else from the query.
    fn of(call: &Call) -> Answer<Self> {
        let mut options = Self::default();
        if !call.body.is_empty() {
            let coding = negotiate::body_coding(&call.headers, true)?;
            options = Self::read(coding, &call.body)
                .map_err(|why| Status::bad_request(format!("the body is not DeleteOptions: {why}")))?;
            if options.kind.as_deref().is_some_and(|kind| !matches!(kind, "" | "DeleteOptions")) {
                return Err(Status::bad_request("the body of a deletion must be of kind DeleteOptions"));
            }
        }
        if let Some(seconds) = number::<i64>(&call.info, "gracePeriodSeconds")? {
            options.grace_period_seconds.get_or_insert(seconds);
        }
        if let Some(policy) = call.info.param("propagationPolicy") {
            options.propagation_policy.get_or_insert_with(|| policy.to_owned());
        }
        if call.info.param("orphanDependents").is_some() {
            options.orphan_dependents.get_or_insert(call.info.flag("orphanDependents"));
        }
        options.checked(write::dry_run(call)?)
    }

    /// Refuses options that contradict each other. A dry run that the query asks for is one, whatever the body says.
    pub(crate) fn checked(mut self, dry_run: bool) -> Answer<Self> {
        self.check()?;
        if dry_run {
            self.dry_run = Some(vec!["All".to_owned()]);
        }
        Ok(self)
    }

    /// From a body, which may be protobuf whatever the kind is.
    fn read(coding: Coding, body: &[u8]) -> Result<Self, String> {
        match coding {
            Coding::Json => serde_json::from_slice(body).map_err(|error| error.to_string()),
            Coding::Protobuf => {
                let read = protobuf::read_body(protobuf::delete_options_kind(), body);
                match read.map_err(|error| error.to_string())? {
                    Read::Object(options) => {
                        serde_json::from_value(options).map_err(|error| error.to_string())
                    }
                    Read::Other { kind, .. } => Ok(Self { kind: Some(kind), ..Self::default() }),
                }
            }
        }
    }

    fn check(&self) -> Answer<()> {
        let values: Vec<_> = self.dry_run.iter().flatten().map(String::as_str).collect();
        write::check_dry_run("DeleteOptions", &values)?;
        let cause = match (self.propagation_policy.as_deref(), self.orphan_dependents) {
            (Some(policy), Some(_)) => Cause::invalid(
                "propagationPolicy",
                &policy.into(),
                "orphanDependents and deletionPropagation cannot be both set",
            ),
            (None | Some("Background" | "Foreground" | "Orphan"), _) => return Ok(()),
            (Some(other), None) => {
                let supported = &["Foreground", "Background", "Orphan", "nil"];
                Cause::unsupported("propagationPolicy", &other.into(), supported)
            }
        };
        Err(Status::invalid_options("DeleteOptions", &[cause]))
    }

    fn is_dry_run(&self) -> bool {
        self.dry_run.as_ref().is_some_and(|values| values.iter().any(|value| value == "All"))
    }
}

fn check_preconditions(kind: &Kind, old: &Stored, object: &Object, options: &DeleteOptions) -> Answer<()> {
    let Some(wanted) = &options.preconditions else { return Ok(()) };
    let record = text_at(object, &["metadata", "uid"]);
    if let Some(uid) = wanted.uid.as_deref().filter(|&uid| uid != record) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({record}). The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(&kind.group, &kind.kind, old.name(), &why));
    }
    let record = old.revision.to_string();
    if let Some(version) = wanted.resource_version.as_deref().filter(|&version| version != record) {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({record}). The object might have been modified"
        );
        return Err(Status::conflict(&kind.group, &kind.kind, old.name(), &why));
    }
    Ok(())
}

/// Only pods that run on a node end gracefully.
fn grace(kind: &Kind, object: &Object, options: &DeleteOptions) -> i64 {
    let running = !text_at(object, &["spec", "nodeName"]).is_empty()
        && !matches!(text_at(object, &["status", "phase"]), "Succeeded" | "Failed");
    if !kind.is("", "pods") || !running {
        return 0;
    }
    let spec = object.get("spec").and_then(|spec| spec.get("terminationGracePeriodSeconds"));
    let wanted = options.grace_period_seconds.or_else(|| spec.and_then(Value::as_i64)).unwrap_or(30);
    // A negative period means the shortest one.
    if wanted < 0 { 1 } else { wanted.min(i64::from(u32::MAX)) }
}

fn add_finalizers(kind: &Kind, object: &mut Object, options: &DeleteOptions, already: bool) {
    let finalizer = match (options.propagation_policy.as_deref(), options.orphan_dependents) {
        (Some("Foreground"), _) => FOREGROUND,
        (Some("Orphan"), _) | (_, Some(true)) => ORPHAN,
        (None, None) if kind.orphans_by_default() => ORPHAN,
        _ => return,
    };
    // A namespace takes its content with it in any case.
    if already || kind.is("", "namespaces") {
        return;
    }
    let metadata = meta_mut(object);
    if !finalizers(metadata).contains(&finalizer) {
        let list = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.push(finalizer.into());
        }
    }
}

/// Says when the object ends; a second deletion can only bring that forward.
fn mark(core: &Core, kind: &Kind, object: &mut Object, grace: i64, already: bool) {
    let metadata = meta_mut(object);
    if kind.ends_by_controller() {
        metadata.entry("deletionTimestamp").or_insert_with(|| core.clock.timestamp(0).into());
        return;
    }
    if already {
        let current = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        if grace >= current {
            return;
        }
    }
    metadata.insert("deletionTimestamp".to_owned(), core.clock.timestamp(grace).into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
    if !already && let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
        metadata.insert("generation".to_owned(), json!(generation + 1));
    }
}

fn respond(call: &Call, deleted: &Deleted, form: &Form) -> Response<Body> {
    let kind = &call.kind;
    if !deleted.gone || kind.delete_answers_object() {
        return read::object(StatusCode::OK, &deleted.object, form);
    }
    let object = deleted.object.parse();
    let uid = meta(&object).map_or("", |metadata| text(metadata, "uid"));
    let mut details = json!({ "name": call.name(), "kind": kind.resource, "uid": uid });
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    });
    read::value(StatusCode::OK, protobuf::status_kind(), &status, form.coding())
}
