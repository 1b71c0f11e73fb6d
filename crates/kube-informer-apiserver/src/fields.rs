//! Which fields may stand in a field selector, for each kind, and their values.

use serde_json::Value;

use crate::kinds::Kind;
use crate::object::{Object, at};

/// A field that can be selected by, beside `metadata.name` and `metadata.namespace`.
pub(crate) struct Field {
    name: &'static str,
    /// Where it stands in the object.
    path: &'static str,
    /// What an absent field counts as.
    absent: &'static str,
}

const fn field(name: &'static str) -> Field {
    Field { name, path: name, absent: "" }
}

const fn field_or(name: &'static str, path: &'static str, absent: &'static str) -> Field {
    Field { name, path, absent }
}

const PODS: &[Field] = &[
    field("spec.nodeName"),
    field("spec.restartPolicy"),
    field("spec.schedulerName"),
    field("spec.serviceAccountName"),
    field_or("spec.hostNetwork", "spec.hostNetwork", "false"),
    field("status.phase"),
    field("status.podIP"),
    field("status.nominatedNodeName"),
];
const EVENTS: &[Field] = &[
    field("involvedObject.kind"),
    field("involvedObject.namespace"),
    field("involvedObject.name"),
    field("involvedObject.uid"),
    field("involvedObject.apiVersion"),
    field("involvedObject.resourceVersion"),
    field("involvedObject.fieldPath"),
    field("reason"),
    field("reportingComponent"),
    field_or("source", "source.component", ""),
    field("type"),
];
const NEW_EVENTS: &[Field] = &[
    field("regarding.kind"),
    field("regarding.namespace"),
    field("regarding.name"),
    field("regarding.uid"),
    field("regarding.apiVersion"),
    field("regarding.resourceVersion"),
    field("regarding.fieldPath"),
    field("reason"),
    field("reportingController"),
    field("type"),
];
const SECRETS: &[Field] = &[field("type")];
const NODES: &[Field] = &[field_or("spec.unschedulable", "spec.unschedulable", "false")];
const NAMESPACES: &[Field] = &[field("status.phase")];
const REPLICAS: &[Field] = &[field_or("status.replicas", "status.replicas", "0")];
const SERVICES: &[Field] = &[field("spec.clusterIP"), field("spec.type")];
const JOBS: &[Field] = &[field_or("status.successful", "status.succeeded", "0")];
const SIGNERS: &[Field] = &[field("spec.signerName")];
const POD_CERTIFICATES: &[Field] = &[field("spec.signerName"), field("spec.podName"), field("spec.nodeName")];
const SLICES: &[Field] = &[field("spec.nodeName"), field("spec.driver")];

fn builtin(kind: &Kind) -> &'static [Field] {
    match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "pods") => PODS,
        ("", "events") => EVENTS,
        ("events.k8s.io", "events") => NEW_EVENTS,
        ("", "secrets") => SECRETS,
        ("", "nodes") => NODES,
        ("", "namespaces") => NAMESPACES,
        ("", "services") => SERVICES,
        ("", "replicationcontrollers") => REPLICAS,
        ("batch", "jobs") => JOBS,
        ("certificates.k8s.io", "podcertificaterequests") => POD_CERTIFICATES,
        ("certificates.k8s.io", _) => SIGNERS,
        ("resource.k8s.io", "resourceslices") => SLICES,
        _ => &[],
    }
}

/// Where a field's value stands in [`Stored::fields`](crate::object::Stored): `None` for one the kind does not know.
pub(crate) fn index(kind: &Kind, name: &str) -> Option<usize> {
    match &kind.custom {
        Some(custom) => custom.selectable.iter().position(|path| path == name),
        None => builtin(kind).iter().position(|field| field.name == name),
    }
}

/// Whether the kind knows fields beyond name and namespace: the real server words its refusal after that.
pub(crate) fn knows_more(kind: &Kind) -> bool {
    match &kind.custom {
        Some(custom) => !custom.selectable.is_empty(),
        None => !builtin(kind).is_empty(),
    }
}

/// The values of the kind's fields, in the order that [`index`] counts.
pub(crate) fn extract(kind: &Kind, object: &Object) -> Box<[Box<str>]> {
    let value = |path: &str, absent: &str| -> Box<str> {
        let path: Vec<_> = path.split('.').collect();
        match at(object, &path) {
            None | Some(Value::Null) => absent.into(),
            Some(Value::String(text)) => text.as_str().into(),
            Some(other) => other.to_string().into(),
        }
    };
    match &kind.custom {
        Some(custom) => custom.selectable.iter().map(|path| value(path, "")).collect(),
        None => builtin(kind).iter().map(|field| value(field.path, field.absent)).collect(),
    }
}
