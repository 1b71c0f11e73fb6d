//! `CustomResourceDefinition`s: what a definition must say, and the kind that comes of it.

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::kinds::{self, Custom, Kind, Subresource};
use crate::object::{Object, meta_mut, text_at};
use crate::status::{Answer, Cause, Status, qualified};
use crate::storage::Store;

/// Holds a definition until the objects of its kind are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

const GROUP: &str = "apiextensions.k8s.io";

pub(crate) fn is_definition(kind: &Kind) -> bool {
    kind.is(GROUP, "customresourcedefinitions")
}

/// The group and the resource that a definition is about.
pub(crate) fn names(object: &Object) -> (&str, &str) {
    (text_at(object, &["spec", "group"]), text_at(object, &["spec", "names", "plural"]))
}

/// Checks a definition, fills in what may be left out, and says that it is established.
pub(crate) fn prepare(clock: &Clock, object: &mut Object) -> Answer<()> {
    check(object)?;
    let kind = text_at(object, &["spec", "names", "kind"]).to_owned();
    let spec = object.get_mut("spec").and_then(Value::as_object_mut).expect("checked");
    let names = spec.get_mut("names").and_then(Value::as_object_mut).expect("checked");
    names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
    names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
    let accepted = Value::Object(names.clone());
    spec.entry("conversion").or_insert_with(|| json!({ "strategy": "None" }));
    let storage = storage_version(object).unwrap_or_default();
    let mut stored: Vec<Value> = object
        .get("status")
        .and_then(|s| s.get("storedVersions"))
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if !stored.iter().any(|version| *version == storage) {
        stored.push(storage.into());
    }
    let conditions = object.get("status").and_then(|status| status.get("conditions")).cloned();
    let conditions = conditions.filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
    let conditions = conditions.unwrap_or_else(|| {
        json!([
            condition(clock, "NamesAccepted", "NoConflicts", "no conflicts found"),
            condition(clock, "Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ])
    });
    object.insert(
        "status".to_owned(),
        json!({ "conditions": conditions, "acceptedNames": accepted, "storedVersions": stored }),
    );
    Ok(())
}

/// The scope of a kind stays: its objects are stored by it.
pub(crate) fn check_update(before: &Object, after: &Object) -> Answer<()> {
    let scope = text_at(after, &["spec", "scope"]);
    if scope == text_at(before, &["spec", "scope"]) {
        return Ok(());
    }
    let cause = Cause::invalid("spec.scope", &json!(scope), "field is immutable");
    let name = text_at(after, &["metadata", "name"]);
    Err(Status::invalid(GROUP, "CustomResourceDefinition", name, &[cause]))
}

/// Serves the kind of a definition that was prepared.
pub(crate) fn define(store: &mut Store, object: &Object) -> Answer<()> {
    let kind = kind(object);
    if kinds::find_builtin(&kind.group, &kind.resource).is_some() {
        let why = "a built-in kind has this name";
        return Err(Status::conflict(GROUP, "customresourcedefinitions", &kind.id, why));
    }
    store.define(kind);
    Ok(())
}

/// Says that the definition is on its way out.
pub(crate) fn mark_terminating(clock: &Clock, object: &mut Object) {
    let list = meta_mut(object).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut().filter(|list| !list.iter().any(|name| name == FINALIZER)) {
        list.push(FINALIZER.into());
    }
    let conditions = object.get_mut("status").and_then(|status| status.get_mut("conditions"));
    if let Some(list) = conditions.and_then(Value::as_array_mut)
        && !list.iter().any(|condition| condition["type"] == "Terminating")
    {
        list.push(condition(
            clock,
            "Terminating",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        ));
    }
}

fn is_deleting(object: &Object) -> bool {
    object.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some())
}

fn condition(clock: &Clock, kind: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": "True", "lastTransitionTime": clock.timestamp(0),
        "reason": reason, "message": message,
    })
}

fn versions(object: &Object) -> impl Iterator<Item = &Value> {
    object.get("spec").and_then(|spec| spec.get("versions")).and_then(Value::as_array).into_iter().flatten()
}

fn storage_version(object: &Object) -> Option<String> {
    versions(object).find(|version| version["storage"] == true)?["name"].as_str().map(str::to_owned)
}

fn check(object: &Object) -> Answer<()> {
    let mut causes = Vec::new();
    for path in
        [&["spec", "group"][..], &["spec", "scope"], &["spec", "names", "plural"], &["spec", "names", "kind"]]
    {
        if text_at(object, path).is_empty() {
            causes.push(Cause::required(&path.join("."), ""));
        }
    }
    let name = text_at(object, &["metadata", "name"]);
    let (group, plural) = names(object);
    let expected = qualified(group, plural);
    if causes.is_empty() && name != expected {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &json!(name), why));
    }
    let scope = text_at(object, &["spec", "scope"]);
    if !matches!(scope, "" | "Namespaced" | "Cluster") {
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {scope:?}: supported values: \"Cluster\", \"Namespaced\""),
            field: "spec.scope".to_owned(),
        });
    }
    let storages = versions(object).filter(|version| version["storage"] == true).count();
    let named = versions(object).all(|version| version["name"].as_str().is_some_and(|name| !name.is_empty()));
    if storages != 1 || !named {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &json!(storages), why));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(GROUP, "CustomResourceDefinition", name, &causes))
}

fn kind(object: &Object) -> Kind {
    let (group, plural) = names(object);
    let spec_names = object.get("spec").and_then(|spec| spec.get("names"));
    let texts = |name: &str| -> Vec<String> {
        let list = spec_names.and_then(|names| names.get(name)).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let name = |path: &str| text_at(object, &["spec", "names", path]).to_owned();
    let version = storage_version(object).unwrap_or_default();
    let has_status = versions(object).any(|version| version["subresources"].get("status").is_some());
    let subresources = has_status.then(|| Subresource {
        name: "status".to_owned(),
        group: String::new(),
        version: String::new(),
        kind: name("kind"),
        verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
    });
    let mut served: Vec<String> = versions(object)
        .filter(|version| version["served"] != false)
        .filter_map(|version| version["name"].as_str().map(str::to_owned))
        .collect();
    // The stored version first: it is the one that needs no rewriting.
    served.sort_by_key(|name| *name != version);
    let mut selectable: Vec<String> = versions(object)
        .flat_map(|version| version["selectableFields"].as_array().into_iter().flatten())
        .filter_map(|field| Some(field["jsonPath"].as_str()?.trim_start_matches('.').to_owned()))
        .collect();
    selectable.dedup();
    Kind {
        id: qualified(group, plural).into(),
        group: group.to_owned(),
        version,
        kind: name("kind"),
        list_kind: name("listKind"),
        resource: plural.to_owned(),
        singular: name("singular"),
        namespaced: text_at(object, &["spec", "scope"]) == "Namespaced",
        short_names: texts("shortNames"),
        categories: texts("categories"),
        verbs: ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
            .map(str::to_owned)
            .to_vec(),
        subresources: subresources.into_iter().collect(),
        wire: None,
        custom: Some(Custom { versions: served, selectable, terminating: is_deleting(object) }),
    }
}
