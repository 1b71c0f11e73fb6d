//! The answers that a fault gives in the server's place, in the words of the real one.

use std::time::Duration;

use bytes::Bytes;
use http::Response;

use super::call::Call;
use super::fault::Fault;
use crate::Body;
use crate::negotiate::Coding;
use crate::status::{Cause, Status, qualified};
use crate::watch::error_line;

/// The refusal that the fault stands for; none if it is none.
pub(crate) fn refusal(fault: &Fault, call: &Call) -> Option<Response<Body>> {
    let status = match fault {
        Fault::Unauthorized => Status::new(401, "Unauthorized", "Unauthorized"),
        Fault::Forbidden => Status::new(403, "Forbidden", forbidden(call)),
        Fault::NotFound => Status::no_such_resource(),
        Fault::MethodNotAllowed => Status::method_not_allowed(),
        Fault::Gone => Status::expired("The resourceVersion for the provided list is too old."),
        Fault::TooManyRequests { retry_after } => {
            let status = Status::new(429, "TooManyRequests", "Too many requests, please try again later.");
            match retry_after {
                Some(time) => status.retry_after(whole_seconds(*time)),
                None => status,
            }
        }
        Fault::InternalError => Status::new(500, "InternalError", "Internal error occurred: injected fault"),
        Fault::Unavailable => {
            Status::new(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        }
        Fault::Timeout => {
            let message = "Timeout: request did not complete within the allotted timeout";
            Status::new(504, "Timeout", message)
        }
        Fault::VersionTooLarge => {
            let asked =
                call.info.param("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(1);
            Status::too_large_version(asked, u64::saturating_sub(asked, 1))
        }
        Fault::RejectStreamingList => {
            let detail =
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
            let cause = Cause::forbidden("sendInitialEvents", detail);
            Status::invalid("meta.k8s.io", "ListOptions", "", &[cause])
        }
        _ => return None,
    };
    Some(status.into_response(call.status_coding))
}

/// The event of a watch that says that it failed; none if the fault says no such thing.
pub(crate) fn error_event(fault: &Fault, coding: Coding) -> Option<Bytes> {
    let status = match fault {
        Fault::ExpiredEvent => Status::expired("The resourceVersion for the provided watch is too old."),
        Fault::ErrorEvent => Status::new(500, "InternalError", "Internal error occurred: injected fault"),
        _ => return None,
    };
    Some(error_line(&status, coding))
}

fn forbidden(call: &Call) -> String {
    let info = &call.info;
    let Some(verb) = info.verb else {
        return format!("forbidden: User \"system:anonymous\" cannot get path \"{}\"", info.path);
    };
    let scope = match &info.namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let (what, resource, group) = (qualified(&info.group, &info.resource), &info.resource, &info.group);
    format!(
        "{what} is forbidden: User \"system:anonymous\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}"
    )
}

/// `Retry-After` knows whole seconds only.
fn whole_seconds(time: Duration) -> u32 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}
