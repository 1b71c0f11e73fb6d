//! What the client accepts: whole objects or metadata only, plain or compressed.

use http::{HeaderMap, header};

use crate::core::Call;
use crate::object::{Form, opening};
use crate::status::{Answer, Status};

/// What is asked for when metadata alone is wanted: one object, or a list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    List,
}

/// The form of the objects in the answer.
pub(crate) fn form(call: &Call, shape: Shape) -> Answer<Form> {
    let accept = accept(&call.headers);
    if accept.trim().is_empty() {
        return Ok(whole(call));
    }
    for range in accept.split(',') {
        let mut parts = range.split(';').map(|part| part.trim());
        let media = parts.next().unwrap_or("");
        if !matches!(media, "application/json" | "application/*" | "*/*") {
            continue;
        }
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let get = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        match (get("as"), shape) {
            (None, _) if get("stream").is_none_or(|stream| stream == "watch") => return Ok(whole(call)),
            (Some("PartialObjectMetadata"), Shape::One)
            | (Some("PartialObjectMetadataList"), Shape::List)
                if get("g") == Some("meta.k8s.io") && get("v") == Some("v1") =>
            {
                return Ok(Form::Metadata);
            }
            _ => {}
        }
    }
    Err(Status::not_acceptable())
}

/// The `Accept` header, `""` if there is none.
pub(crate) fn accept(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// Whether the client takes gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let offered = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
    offered.split(',').any(|coding| {
        let mut parts = coding.split(';').map(|part| part.trim());
        parts.next() == Some("gzip") && parts.all(|part| part != "q=0")
    })
}

/// Refuses bodies that are not JSON. A body without a content type is JSON.
pub(crate) fn check_json_body(headers: &HeaderMap) -> Answer<()> {
    match content_type(headers) {
        "" | "application/json" | "*/*" => Ok(()),
        _ => Err(Status::unsupported_media_type("application/json")),
    }
}

/// The media type of the request's body, without parameters.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.split(';').next().unwrap_or("").trim()
}

fn whole(call: &Call) -> Form {
    let (kind, version) = (&call.kind, &call.info.version);
    if *version == kind.version {
        Form::Whole
    } else {
        Form::Reversioned(opening(&kind.kind, &kind.api_version(version)))
    }
}
