//! Discovery and what else a server tells about itself: versions, groups, resources, health.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::aggregated;
use crate::body::{self, Body};
use crate::core::Core;
use crate::kinds::{self, KUBERNETES, Kind};
use crate::read;
use crate::request::RequestInfo;
use crate::route::page_not_found;
use crate::status::{Answer, Status};

/// Answers paths that name no resource.
pub(crate) fn answer(core: &Core, info: &RequestInfo, parts: &Parts) -> Answer {
    let path = info.path.trim_end_matches('/');
    let segments: Vec<_> = path.split('/').skip(1).collect();
    let known = match segments.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Some(text("ok")),
        ["version"] => Some(json_answer(&version())),
        ["api" | "apis"] if aggregated::is_asked_for(&parts.headers) => {
            Some(aggregated::answer(&kinds(core), segments[0] == "api", &parts.headers))
        }
        ["api"] => Some(json_answer(&core_versions())),
        ["apis"] => Some(json_answer(&group_list(core))),
        ["api", version] => resource_list(core, "", version).as_ref().map(json_answer),
        ["apis", group] => find_group(core, group).as_ref().map(json_answer),
        ["apis", group, version] => resource_list(core, group, version).as_ref().map(json_answer),
        _ => None,
    };
    let Some(response) = known else {
        let group = match segments.as_slice() {
            ["api", _] => Some(""),
            ["apis", group, _] => Some(*group),
            _ => None,
        };
        // The groups that are built in answer for their versions themselves.
        let built_in = |group| kinds::builtin().iter().any(|kind| kind.group == group);
        return if group.is_some_and(built_in) {
            Err(Status::no_such_resource())
        } else {
            Ok(page_not_found())
        };
    };
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    Ok(response)
}

fn kinds(core: &Core) -> Vec<Arc<Kind>> {
    let store = core.store();
    kinds::builtin().iter().chain(store.custom_kinds()).cloned().collect()
}

fn version() -> Value {
    let mut parts = KUBERNETES.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    json!({
        "major": major, "minor": minor, "gitVersion": KUBERNETES, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn core_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })
}

/// The groups with their versions, built-in ones first, in the order of a real server.
fn groups(core: &Core) -> Vec<(String, Vec<String>)> {
    let mut order = Vec::new();
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kind in kinds(core).iter().filter(|kind| !kind.group.is_empty()) {
        let group = versions.entry(kind.group.clone()).or_default();
        if group.is_empty() {
            order.push(kind.group.clone());
        }
        for version in kind.versions() {
            if !group.iter().any(|known| known == version) {
                group.push(version.to_owned());
            }
        }
    }
    order.into_iter().map(|group| (group.clone(), versions.remove(&group).unwrap_or_default())).collect()
}

fn group_value(group: &str, versions: &[String]) -> Value {
    let version = |v: &String| json!({ "groupVersion": format!("{group}/{v}"), "version": v });
    json!({
        "name": group, "versions": versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(version),
    })
}

fn group_list(core: &Core) -> Value {
    let groups: Vec<_> = groups(core).iter().map(|(group, versions)| group_value(group, versions)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

fn find_group(core: &Core, group: &str) -> Option<Value> {
    let (group, versions) = groups(core).into_iter().find(|(name, _)| name == group)?;
    let mut value = group_value(&group, &versions);
    value["kind"] = json!("APIGroup");
    value["apiVersion"] = json!("v1");
    Some(value)
}

fn resource_list(core: &Core, group: &str, version: &str) -> Option<Value> {
    let mut rows = Vec::new();
    for kind in kinds(core).iter().filter(|kind| kind.group == group && kind.serves(version)) {
        rows.push(kind.discovery());
        for sub in &kind.subresources {
            let mut row = json!({
                "name": format!("{}/{}", kind.resource, sub.name), "singularName": "",
                "namespaced": kind.namespaced, "kind": sub.kind, "verbs": sub.verbs,
            });
            if !sub.group.is_empty() {
                row["group"] = json!(sub.group);
                row["version"] = json!(sub.version);
            }
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({ "kind": "APIResourceList", "groupVersion": group_version, "resources": rows });
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

fn json_answer(value: &Value) -> Response<Body> {
    read::json(StatusCode::OK, value.to_string())
}

fn text(text: &'static str) -> Response<Body> {
    let mut response = Response::new(body::full(text));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
