//! `Status`: how the server says no, in the words and with the details of the real one.

use std::ops::{Deref, DerefMut};

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::body::Body;
use crate::negotiate::Coding;
use crate::{protobuf, read};

/// A refusal. Boxed, so that what may be refused stays small.
#[derive(Debug, Clone)]
pub(crate) struct Status(Box<Refusal>);

/// Code, reason, message, details.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    /// `""` where the real server gives none.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Value,
    pub(crate) retry_after: Option<u32>,
    /// A fresh continue token, beside a 410.
    pub(crate) continue_token: Option<String>,
}

/// What a handler answers: a response, or a refusal.
pub(crate) type Answer<T = Response<Body>> = Result<T, Status>;

/// One reason why an object is invalid.
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    pub(crate) fn required(field: &str, detail: &str) -> Self {
        let message =
            if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self { reason: "FieldValueRequired", message, field: field.to_owned() }
    }

    pub(crate) fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        let message = format!("Invalid value: {value}: {detail}");
        Self { reason: "FieldValueInvalid", message, field: field.to_owned() }
    }

    pub(crate) fn immutable(field: &str, value: &Value) -> Self {
        Self::invalid(field, value, "field is immutable")
    }

    /// `found` is as the client wrote it, in JSON.
    pub(crate) fn unsupported(field: &str, found: &Value, supported: &[&str]) -> Self {
        let supported: Vec<_> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message = format!("Unsupported value: {found}: supported values: {}", supported.join(", "));
        Self { reason: "FieldValueNotSupported", message, field: field.to_owned() }
    }

    pub(crate) fn forbidden(field: &str, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {detail}"),
            field: field.to_owned(),
        }
    }
}

impl Status {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        let details = Value::Null;
        Self(Box::new(Refusal { code, reason, message, details, retry_after: None, continue_token: None }))
    }

    fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// Tells the client when to come back, in the header and in the details.
    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        if !self.details.is_object() {
            self.details = json!({});
        }
        self.details["retryAfterSeconds"] = json!(seconds);
        self
    }

    pub(crate) fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", qualified(group, resource)))
            .with_details(details(group, resource, name))
    }

    pub(crate) fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    pub(crate) fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", qualified(group, resource)))
            .with_details(details(group, resource, name))
    }

    /// `resource` is the plural for a stale version, and the kind for a precondition that failed.
    pub(crate) fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, resource);
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {what} \"{name}\": {why}"))
            .with_details(details(group, resource, name))
    }

    pub(crate) fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, resource);
        Self::new(403, "Forbidden", format!("{what} \"{name}\" is forbidden: {why}"))
            .with_details(details(group, resource, name))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// A 500 without a reason: what the real server answers in a few places where one expects a 400.
    pub(crate) fn unexplained(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// Options of the query or of a body that do not do.
    pub(crate) fn invalid_options(kind: &str, causes: &[Cause]) -> Self {
        Self::invalid("meta.k8s.io", kind, "", causes)
    }

    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let texts: Vec<_> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let text = if texts.len() == 1 { texts[0].clone() } else { format!("[{}]", texts.join(", ")) };
        let mut details = details(group, kind, name);
        details["causes"] = causes
            .iter()
            .map(|c| json!({ "reason": c.reason, "message": c.message, "field": c.field }))
            .collect();
        Self::new(422, "Invalid", format!("{} \"{name}\" is invalid: {text}", qualified(group, kind)))
            .with_details(details)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause = json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
        Self::new(504, "Timeout", message).with_details(json!({ "causes": [cause] })).retry_after(1)
    }

    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn not_acceptable(accepted: &str) -> Self {
        let message = format!("only the following media types are accepted: {accepted}");
        Self::new(406, "NotAcceptable", message).with_details(json!({}))
    }

    pub(crate) fn too_many_requests() -> Self {
        Self::new(429, "TooManyRequests", "Too many requests, please try again later.").retry_after(1)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// The status as the object that the client reads.
    pub(crate) fn to_json(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }

    pub(crate) fn into_response(self, coding: Coding) -> Response<Body> {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = read::value(code, protobuf::status_kind(), &self.to_json(), coding);
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl Deref for Status {
    type Target = Refusal;

    fn deref(&self) -> &Refusal {
        &self.0
    }
}

impl DerefMut for Status {
    fn deref_mut(&mut self) -> &mut Refusal {
        &mut self.0
    }
}

/// `deployments.apps`, but `pods`.
pub(crate) fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

fn details(group: &str, resource: &str, name: &str) -> Value {
    let mut details = json!({ "kind": resource });
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    if !group.is_empty() {
        details["group"] = json!(group);
    }
    details
}
