//! Reading one object, and waiting until the store is as new as a request wants it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use kube_wire::protobuf::Kind;
use serde_json::Value;

use crate::body::{self, Body};
use crate::core::{Call, Core};
use crate::negotiate::{self, Coding, Shape};
use crate::object::{Form, Stored};
use crate::options::parse_version;
use crate::protobuf;
use crate::status::{Answer, Status};

/// How long a request for a version of the future waits for it.
const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) async fn get(core: &Core, call: &Call) -> Answer {
    let form = negotiate::form(call, Shape::One)?;
    let version =
        parse_version(call.info.param("resourceVersion").unwrap_or("")).map_err(Status::unexplained)?;
    if let Some(revision) = version {
        wait_for(core, revision, call.at_most).await?;
    }
    let key = call.key();
    let store = core.store();
    let lagging = match call.at_most {
        // A get without a version is answered by the quorum, never by a cache that lags; nor does one lag behind
        // what was compacted.
        Some(revision) if version.is_some() => store.objects_at(&call.kind, revision).ok(),
        _ => None,
    };
    let found = match lagging {
        Some(objects) => objects.get(key.as_str()).cloned(),
        None => store.get(&call.kind, &key).cloned(),
    };
    drop(store);
    let stored = found.ok_or_else(|| not_found(call))?;
    Ok(object(StatusCode::OK, &stored, &form))
}

/// Waits a while for a revision, then gives up as the real server does.
pub(crate) async fn wait_for(core: &Core, revision: u64, at_most: Option<u64>) -> Answer<()> {
    let mut revisions = core.store().revisions();
    let reached = async {
        loop {
            let current = *revisions.borrow_and_update();
            if at_most.map_or(current, |at_most| at_most.min(current)) >= revision {
                return;
            }
            // The sender lives in the store, which `core` holds.
            if revisions.changed().await.is_err() {
                return;
            }
        }
    };
    if tokio::time::timeout(PATIENCE, reached).await.is_ok() {
        return Ok(());
    }
    let current = core.store().revision();
    Err(Status::too_large_version(revision, at_most.map_or(current, |at_most| at_most.min(current))))
}

pub(crate) fn not_found(call: &Call) -> Status {
    Status::not_found(&call.kind.group, &call.kind.resource, call.name())
}

/// An answer that is one object.
pub(crate) fn object(status: StatusCode, stored: &Arc<Stored>, form: &Form) -> Response<Body> {
    encoded(status, form.coding(), stored.object(form))
}

/// An answer that is something the server made and does not store, such as a status.
pub(crate) fn value(status: StatusCode, kind: Kind, value: &Value, coding: Coding) -> Response<Body> {
    match coding {
        Coding::Json => json(status, value.to_string()),
        Coding::Protobuf => encoded(status, coding, protobuf::envelope(kind, &protobuf::bare(kind, value))),
    }
}

/// An answer of JSON that is ready.
pub(crate) fn json(status: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
    encoded(status, Coding::Json, bytes)
}

/// An answer that is ready.
pub(crate) fn encoded(status: StatusCode, coding: Coding, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(body::full(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, coding.content_type());
    response
}
