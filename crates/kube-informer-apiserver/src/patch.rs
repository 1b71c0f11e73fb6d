//! Patches: JSON Patch and merge patch, applied to the object as it is and then stored like an update.

use std::sync::Arc;

use http::StatusCode;
use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use crate::core::{Call, Core};
use crate::negotiate::{self, Shape};
use crate::object::{Object, is_shallow};
use crate::read;
use crate::status::{Answer, Status};
use crate::update::replace;
use crate::write;

/// How many operations a JSON Patch may have, as in the real server.
const MAX_OPERATIONS: usize = 10_000;
/// How deep a patched object may be nested; a JSON text may be 127 levels deep.
const MAX_DEPTH: usize = 100;

pub(crate) fn patch(core: &Arc<Core>, call: &Call) -> Answer {
    let form = negotiate::form(call, Shape::One)?;
    let dry_run = write::dry_run(call)?;
    let change = Change::of(call)?;
    let written = {
        let mut store = core.store();
        let old = store.get(&call.kind, &call.key()).cloned().ok_or_else(|| read::not_found(call))?;
        let before = old.parse();
        let mut object = Value::Object(before.clone());
        // A version in the patch is a precondition; without one the patch fits whatever there is.
        object["apiVersion"] = call.kind.api_version(&call.info.version).into();
        change.apply(&mut object, core.config.max_body)?;
        let Value::Object(object) = object else {
            return Err(rejected());
        };
        replace(core, &mut store, call, &old, &before, object, dry_run)?
    };
    core.background.kick(core);
    Ok(written.respond(StatusCode::OK, &form))
}

enum Change {
    Json(Patch),
    Merge(Value),
}

impl Change {
    fn of(call: &Call) -> Answer<Self> {
        let unreadable = |error: serde_json::Error| {
            Status::bad_request(format!("error decoding patch: the body is not a patch: {error}"))
        };
        match negotiate::content_type(&call.headers) {
            "application/json-patch+json" => {
                let operations: Vec<Object> = serde_json::from_slice(&call.body).map_err(unreadable)?;
                let patch: Patch = serde_json::from_value(operations.into()).map_err(|_| rejected())?;
                if patch.0.len() > MAX_OPERATIONS {
                    return Err(Status::new(
                        413,
                        "RequestEntityTooLarge",
                        format!(
                            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                            patch.0.len()
                        ),
                    ));
                }
                Ok(Self::Json(patch))
            }
            "application/merge-patch+json" => {
                let patch: Value = serde_json::from_slice(&call.body).map_err(unreadable)?;
                if !patch.is_object() {
                    return Err(Status::bad_request("error decoding patch: a merge patch must be an object"));
                }
                Ok(Self::Merge(patch))
            }
            _ => {
                let accepted = "application/json-patch+json, application/merge-patch+json";
                let mut status = Status::unsupported_media_type(accepted);
                status.details = json!({});
                Err(status)
            }
        }
    }

    fn apply(&self, object: &mut Value, max_size: usize) -> Answer<()> {
        match self {
            Self::Merge(patch) => json_patch::merge(object, patch),
            Self::Json(patch) => {
                let mut copied = 0;
                for operation in &patch.0 {
                    // Copies can double an object with each operation: bound what they add up to.
                    if let PatchOperation::Copy(copy) = operation {
                        let source = object.pointer(copy.from.as_str());
                        copied += source.map_or(0, |value| value.to_string().len());
                        if copied > max_size {
                            return Err(Status::too_large(max_size));
                        }
                    }
                    if operation.path().count() > MAX_DEPTH {
                        return Err(rejected());
                    }
                    json_patch::patch(object, std::slice::from_ref(operation)).map_err(|_| rejected())?;
                    let nests = matches!(operation, PatchOperation::Copy(_) | PatchOperation::Move(_));
                    if nests && !is_shallow(object, 4 * MAX_DEPTH) {
                        return Err(rejected());
                    }
                }
                // What is stored must be readable again.
                if !is_shallow(object, MAX_DEPTH) {
                    return Err(rejected());
                }
            }
        }
        Ok(())
    }
}

fn rejected() -> Status {
    let message = "the server rejected our request due to an error in our request";
    let mut status = Status::new(422, "Invalid", message);
    status.details = json!({});
    status
}
