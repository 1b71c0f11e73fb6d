//! Aggregated discovery: every group, version and resource in one document, which clients revalidate by its hash.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::body::{self, Body};
use crate::kinds::{Kind, Subresource};
use crate::negotiate;
use crate::read;

const TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Whether the client takes the aggregated form, version 2.
pub(crate) fn is_asked_for(headers: &HeaderMap) -> bool {
    negotiate::accept(headers).split(',').any(|range| {
        let parts: Vec<_> = range.split(';').map(|part| part.trim()).collect();
        ["application/json", "g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"]
            .iter()
            .all(|wanted| parts.contains(wanted))
    })
}

/// The document of the core group, or of all the others.
pub(crate) fn answer(kinds: &[Arc<Kind>], core_group: bool, headers: &HeaderMap) -> Response<Body> {
    let text = document(kinds, core_group).to_string();
    // The hash has no key: the same document has the same one in every run.
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let tag = format!("\"{:016X}\"", hasher.finish());
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut response = if known.is_some_and(|known| known.split(',').any(|known| known.trim() == tag)) {
        let mut response = Response::new(body::full(""));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        read::json(StatusCode::OK, text)
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(TYPE));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(header::ETAG, HeaderValue::from_str(&tag).expect("hexadecimal digits in quotes"));
    response
}

fn document(kinds: &[Arc<Kind>], core_group: bool) -> Value {
    let mut groups: Named<Named<Vec<Value>>> = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.group.is_empty() == core_group) {
        let group = entry(&mut groups, &kind.group);
        for version in kind.versions() {
            entry(group, version).push(resource(kind, version));
        }
    }
    let items: Vec<_> = groups
        .into_iter()
        .map(|(name, versions)| {
            let metadata = if name.is_empty() { json!({}) } else { json!({ "name": name }) };
            let versions: Vec<_> = versions
                .into_iter()
                .map(|(version, resources)| {
                    json!({ "version": version, "resources": resources, "freshness": "Current" })
                })
                .collect();
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items })
}

/// A map that keeps the order of arrival.
type Named<'a, T> = Vec<(&'a str, T)>;

/// The value of a name in a list, made at its end if there is none.
fn entry<'a, 'k, T: Default>(list: &'a mut Named<'k, T>, name: &'k str) -> &'a mut T {
    let found = list.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
        list.push((name, T::default()));
        list.len() - 1
    });
    &mut list[found].1
}

fn resource(kind: &Kind, version: &str) -> Value {
    let (group, response_version) =
        if kind.custom.is_some() { (kind.group.as_str(), version) } else { ("", "") };
    let mut row = json!({
        "resource": kind.resource,
        "responseKind": { "group": group, "version": response_version, "kind": kind.kind },
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        row["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        row["categories"] = json!(kind.categories);
    }
    if !kind.subresources.is_empty() {
        row["subresources"] =
            kind.subresources.iter().map(|sub| subresource(sub, group, response_version)).collect();
    }
    row
}

fn subresource(sub: &Subresource, group: &str, version: &str) -> Value {
    let (group, version) =
        if sub.group.is_empty() { (group, version) } else { (sub.group.as_str(), sub.version.as_str()) };
    json!({
        "subresource": sub.name,
        "responseKind": { "group": group, "version": version, "kind": sub.kind },
        "verbs": sub.verbs,
    })
}
