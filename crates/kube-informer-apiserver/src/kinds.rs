//! The kinds the server knows: a table of the built-in ones, and what definitions of custom ones add.

mod builtin;
mod rules;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kube_wire::protobuf;
use serde_json::{Value, json};

use crate::request::Verb;
use crate::status::qualified;

/// The version of Kubernetes whose kinds these are.
pub(crate) const KUBERNETES: &str = "v1.37.1";

/// One resource of the API.
#[derive(Debug)]
#[allow(clippy::struct_field_names, reason = "`kind` is what Kubernetes calls the field")]
pub(crate) struct Kind {
    /// `pods`, `deployments.apps`: names the kind's table in the store.
    pub(crate) id: Arc<str>,
    pub(crate) group: String,
    /// The version that objects are stored in, which is also the preferred one.
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) resource: String,
    pub(crate) singular: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) verbs: Vec<String>,
    pub(crate) subresources: Vec<Subresource>,
    /// The form on the protobuf wire, which custom kinds have none of.
    pub(crate) wire: Option<protobuf::Kind>,
    /// What only custom kinds have.
    pub(crate) custom: Option<Custom>,
}

/// A subresource that is served.
#[derive(Debug, Clone)]
pub(crate) struct Subresource {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) verbs: Vec<String>,
}

/// What a `CustomResourceDefinition` says beyond names and scope.
#[derive(Debug)]
pub(crate) struct Custom {
    /// Served versions, the preferred first.
    pub(crate) versions: Vec<String>,
    /// Field paths that may stand in a field selector, without the leading dot.
    pub(crate) selectable: Vec<String>,
    /// The definition is being deleted: reading goes on, creating does not.
    pub(crate) terminating: bool,
}

/// A row of the generated table.
struct Builtin {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    resource: &'static str,
    singular: &'static str,
    namespaced: bool,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    verbs: &'static [&'static str],
    subresources: &'static [Sub],
}

struct Sub {
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    verbs: &'static [&'static str],
}

impl Kind {
    /// `v1`, `apps/v1`: for one of the versions that are served.
    pub(crate) fn api_version(&self, version: &str) -> String {
        api_version(&self.group, version)
    }

    /// The served versions, the preferred first.
    pub(crate) fn versions(&self) -> Vec<&str> {
        match &self.custom {
            Some(custom) => custom.versions.iter().map(|v| v.as_str()).collect(),
            None => vec![&self.version],
        }
    }

    pub(crate) fn serves(&self, version: &str) -> bool {
        self.versions().contains(&version)
    }

    pub(crate) fn allows(&self, verb: Verb) -> bool {
        self.verbs.iter().any(|allowed| allowed == verb.as_str())
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    pub(crate) fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    pub(crate) fn is(&self, group: &str, resource: &str) -> bool {
        self.group == group && self.resource == resource
    }

    /// Whether stored objects look the same under another definition of the kind.
    pub(crate) fn encodes_like(&self, other: &Self) -> bool {
        let [mine, theirs] = [self, other].map(|kind| kind.custom.as_ref().map(|custom| &custom.selectable));
        self.version == other.version && self.kind == other.kind && mine == theirs
    }

    /// The kind's row in an `APIResourceList`.
    pub(crate) fn discovery(&self) -> Value {
        let mut row = json!({
            "name": self.resource, "singularName": self.singular, "namespaced": self.namespaced,
            "kind": self.kind, "verbs": self.verbs,
        });
        if !self.short_names.is_empty() {
            row["shortNames"] = json!(self.short_names);
        }
        if !self.categories.is_empty() {
            row["categories"] = json!(self.categories);
        }
        row
    }
}

/// Every built-in kind, in the order of a real server's discovery.
pub(crate) fn builtin() -> &'static [Arc<Kind>] {
    &BUILTIN
}

/// The built-in kind of a group and resource.
pub(crate) fn find_builtin(group: &str, resource: &str) -> Option<&'static Arc<Kind>> {
    BY_ID.get(qualified(group, resource).as_str()).copied()
}

/// The built-in kind of a core resource that is surely there.
pub(crate) fn core(resource: &str) -> &'static Arc<Kind> {
    find_builtin("", resource).expect("a core resource of the generated table")
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

static BUILTIN: LazyLock<Vec<Arc<Kind>>> =
    LazyLock::new(|| builtin::BUILTIN.iter().map(|row| Arc::new(from_row(row))).collect());

static BY_ID: LazyLock<HashMap<&'static str, &'static Arc<Kind>>> =
    LazyLock::new(|| BUILTIN.iter().map(|kind| (&*kind.id, kind)).collect());

fn from_row(row: &Builtin) -> Kind {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    Kind {
        id: qualified(row.group, row.resource).into(),
        group: row.group.to_owned(),
        version: row.version.to_owned(),
        kind: row.kind.to_owned(),
        list_kind: format!("{}List", row.kind),
        resource: row.resource.to_owned(),
        singular: row.singular.to_owned(),
        namespaced: row.namespaced,
        short_names: owned(row.short_names),
        categories: owned(row.categories),
        verbs: owned(row.verbs),
        subresources: row
            .subresources
            .iter()
            .map(|sub| Subresource {
                name: sub.name.to_owned(),
                group: sub.group.to_owned(),
                version: sub.version.to_owned(),
                kind: sub.kind.to_owned(),
                verbs: owned(sub.verbs),
            })
            .collect(),
        wire: protobuf::Kind::find(&api_version(row.group, row.version), row.kind),
        custom: None,
    }
}
