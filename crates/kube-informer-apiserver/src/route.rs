//! From a request to the function that answers it.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};

use crate::body::{self, Body};
use crate::core::{Call, Core};
use crate::kinds::{self, Kind};
use crate::request::{RequestInfo, Verb};
use crate::server::{NoEndOfState, ServeAtMost};
use crate::status::{Answer, Status};
use crate::{create, delete, discovery, list, patch, pods, read, reviews, update, watch};

/// Answers a request whose body has been read.
pub(crate) async fn route(core: &Arc<Core>, info: RequestInfo, parts: Parts, body: Bytes) -> Answer {
    if info.resource.is_empty() {
        return discovery::answer(core, &info, &parts);
    }
    let kind = match find(core, &info) {
        Found::Kind(kind) => kind,
        Found::NoSuchGroup => return Ok(page_not_found()),
        Found::NoSuchResource => return Err(Status::no_such_resource()),
    };
    let at_most = parts.extensions.get::<ServeAtMost>().map(|at_most| at_most.0);
    let tells_end_of_state = parts.extensions.get::<NoEndOfState>().is_none();
    let call = Call { info, kind, headers: parts.headers, body, at_most, tells_end_of_state };
    let verb = call.info.verb.ok_or_else(Status::method_not_allowed)?;
    check_scope(&call, verb)?;
    if call.info.subresource.is_some() {
        return subresource(core, &call, verb).await;
    }
    if !call.kind.allows(verb) {
        return Err(Status::method_not_allowed());
    }
    match verb {
        Verb::Get => read::get(core, &call).await,
        Verb::List => list::list(core, &call).await,
        // Clients that try a WebSocket first fall back to a plain watch, but only if they are refused.
        Verb::Watch if call.headers.contains_key(header::UPGRADE) => {
            let why = "watches are not served over WebSockets: ask without the Upgrade header";
            Err(Status::new(503, "ServiceUnavailable", why))
        }
        Verb::Watch => watch::watch(core, call).await,
        Verb::Create if reviews::is_review(&call) => reviews::answer(&call),
        Verb::Create if call.kind.is("", "bindings") => pods::bind(core, &call),
        Verb::Create => create::create(core, &call),
        Verb::Update => update::update(core, &call),
        Verb::Patch => patch::patch(core, &call),
        Verb::Delete => delete::delete(core, &call),
        Verb::DeleteCollection => delete::delete_collection(core, &call).await,
    }
}

async fn subresource(core: &Arc<Core>, call: &Call, verb: Verb) -> Answer {
    let name = call.info.subresource.as_deref().unwrap_or("");
    let served = call.kind.subresource(name).ok_or_else(Status::no_such_resource)?;
    if !served.verbs.iter().any(|allowed| allowed == verb.as_str()) {
        return Err(Status::method_not_allowed());
    }
    match (name, verb) {
        ("binding", _) => pods::bind(core, call),
        ("eviction", _) => pods::evict(core, call),
        (_, Verb::Get) => read::get(core, call).await,
        (_, Verb::Patch) => patch::patch(core, call),
        (_, Verb::Update) => update::update(core, call),
        _ => Err(Status::method_not_allowed()),
    }
}

/// The resource that a request names, for counting: `""` if there is none such.
pub(crate) fn resource_id(core: &Core, info: &RequestInfo) -> Arc<str> {
    match find(core, info) {
        Found::Kind(kind) => kind.id.clone(),
        _ => "".into(),
    }
}

enum Found {
    Kind(Arc<Kind>),
    NoSuchResource,
    /// Nothing built in has this group; custom kinds may, but not this one.
    NoSuchGroup,
}

fn find(core: &Core, info: &RequestInfo) -> Found {
    let kind = core.store().kind(&info.group, &info.resource);
    match kind.filter(|kind| kind.serves(&info.version)) {
        Some(kind) => Found::Kind(kind),
        None if kinds::builtin().iter().any(|kind| kind.group == info.group) => Found::NoSuchResource,
        None => Found::NoSuchGroup,
    }
}

/// One object of a namespaced kind is named with its namespace; nothing of another kind is.
fn check_scope(call: &Call, verb: Verb) -> Answer<()> {
    let in_namespace = call.info.namespace.is_some();
    if !call.kind.namespaced && in_namespace {
        return Err(Status::no_such_resource());
    }
    if call.kind.namespaced && !in_namespace && (call.info.name.is_some() || verb == Verb::Create) {
        // The real server has no such route.
        return Err(if call.info.name.is_some() {
            Status::no_such_resource()
        } else {
            Status::method_not_allowed()
        });
    }
    if verb == Verb::Create && call.info.name.is_some() && call.info.subresource.is_none() {
        return Err(Status::method_not_allowed());
    }
    if call.info.name.is_none() && matches!(verb, Verb::Update | Verb::Patch) {
        return Err(Status::method_not_allowed());
    }
    if call.kind.namespaced && !in_namespace && verb == Verb::DeleteCollection {
        return Err(Status::method_not_allowed());
    }
    Ok(())
}

/// What the real server answers where it has no group.
pub(crate) fn page_not_found() -> Response<Body> {
    let mut response = Response::new(body::full("404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
