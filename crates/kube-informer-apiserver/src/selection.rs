//! Which objects a request is about: namespace, label selector, field selector, checked once and then matched often.

use std::ops::Bound;

use kube_wire::{FieldSelector, LabelSelector};

use crate::fields;
use crate::kinds::Kind;
use crate::object::Stored;
use crate::request::RequestInfo;
use crate::status::{Answer, Status};

/// A scope and its selectors.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// `namespace/`, `""` for all.
    prefix: String,
    labels: LabelSelector,
    fields: Vec<(Place, String, bool)>,
}

/// Where the value of a field stands.
#[derive(Debug)]
enum Place {
    Name,
    Namespace,
    Other(usize),
}

impl Selection {
    /// Reads the scope and the selectors of a request.
    pub(crate) fn of(kind: &Kind, info: &RequestInfo) -> Answer<Self> {
        let labels: LabelSelector = info
            .param("labelSelector")
            .unwrap_or("")
            .parse()
            .map_err(|error| Status::bad_request(format!("{error}")))?;
        let selector: FieldSelector = info
            .param("fieldSelector")
            .unwrap_or("")
            .parse()
            .map_err(|error| Status::bad_request(format!("{error}")))?;
        let mut fields = Vec::new();
        for requirement in selector.requirements() {
            let place = match requirement.field.as_str() {
                "metadata.name" => Place::Name,
                "metadata.namespace" => Place::Namespace,
                name => Place::Other(fields::index(kind, name).ok_or_else(|| unknown(kind, name))?),
            };
            fields.push((place, requirement.value.clone(), requirement.equal));
        }
        let prefix = match &info.namespace {
            Some(namespace) if kind.namespaced => format!("{namespace}/"),
            _ => String::new(),
        };
        Ok(Self { prefix, labels, fields })
    }

    /// Everything in a namespace, or everything there is.
    pub(crate) fn namespace(namespace: &str) -> Self {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        Self { prefix, ..Self::default() }
    }

    pub(crate) fn matches(&self, stored: &Stored) -> bool {
        stored.key.starts_with(&self.prefix)
            && (self.labels.is_empty() || self.labels.matches(|key| stored.label(key)))
            && self.fields.iter().all(|(place, value, equal)| {
                let found = match place {
                    Place::Name => stored.name(),
                    Place::Namespace => stored.namespace(),
                    Place::Other(index) => stored.fields.get(*index).map_or("", |value| &**value),
                };
                (found == value) == *equal
            })
    }

    /// Whether a selector narrows the scope.
    pub(crate) fn has_selectors(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// The keys of the scope, from a key on (exclusive) if one is given.
    pub(crate) fn range(&self, after: Option<&str>) -> (Bound<String>, Bound<String>) {
        let start = match after {
            Some(key) => Bound::Excluded(key.to_owned()),
            None if self.prefix.is_empty() => Bound::Unbounded,
            None => Bound::Included(self.prefix.clone()),
        };
        let end = match self.prefix.strip_suffix('/') {
            // `0` is the character after `/`.
            Some(namespace) => Bound::Excluded(format!("{namespace}0")),
            None => Bound::Unbounded,
        };
        (start, end)
    }
}

fn unknown(kind: &Kind, name: &str) -> Status {
    Status::bad_request(if fields::knows_more(kind) {
        format!("field label not supported: {name}")
    } else {
        format!("{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    })
}
