//! What a source says when it cannot answer.

use std::error::Error;
use std::time::Duration;

use kube_wire::{WireError, protobuf};
use serde::Deserialize;

use crate::planted::{Bug, planted};

/// How much of a body that is not a `Status` is quoted, and of a `Status`, in characters.
const MAX_QUOTED: usize = 200;
const MAX_MESSAGE: usize = 1000;

/// How many causes of an error are looked at.
pub(crate) const MAX_CAUSES: usize = 32;

/// A list or watch that failed. Answers the questions a reflector has; `source()` carries the cause.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    message: String,
    code: Option<u16>,
    reason: String,
    too_large: bool,
    unreachable: bool,
    late: bool,
    retry_after: Option<Duration>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The part of a `Status` that matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    kind: String,
    message: String,
    reason: String,
    code: u16,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    retry_after_seconds: u64,
    causes: Option<Vec<Cause>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

impl Status {
    /// A `Status` as JSON text or as protobuf in its envelope.
    fn from_body(body: &[u8]) -> Option<Self> {
        if body.starts_with(&protobuf::MAGIC) {
            let envelope = protobuf::Envelope::parse(body).ok()?;
            return (envelope.kind == "Status").then(|| Self::from_protobuf(envelope.raw))?;
        }
        // Every field of a Status is optional, so any JSON object would do: its kind must say it is one.
        serde_json::from_slice(body).ok().filter(|status: &Self| status.kind == "Status")
    }

    fn from_protobuf(message: &[u8]) -> Option<Self> {
        protobuf::from_slice(protobuf::Kind::find("v1", "Status")?, message).ok()
    }
}

impl SourceError {
    /// A failure of the connection: refused, reset, timed out, ended too early.
    pub fn transport(message: impl Into<String>, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(cause.into()), ..Self::plain(message) }
    }

    /// A server that cannot be reached: no connection could be made, so that no other request would get further.
    pub fn unreachable(message: impl Into<String>, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { unreachable: true, ..Self::transport(message, cause) }
    }

    /// A server that did not answer in time.
    pub(crate) fn late(message: impl Into<String>, cause: &'static str) -> Self {
        Self { late: true, ..Self::transport(message, cause) }
    }

    /// The server's refusal, by HTTP code and body. The body need not be a `Status`.
    pub fn from_response(code: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        if let Some(status) = Status::from_body(body) {
            let retry_after = retry_after.or(Self::asked_to_wait(&status));
            return Self { code: Some(code), retry_after, ..Self::from_parsed(&status) };
        }
        let text = one_line(String::from_utf8_lossy(body).trim(), MAX_QUOTED);
        Self { code: Some(code), retry_after, ..Self::plain(format!("HTTP {code}: {text}")) }
    }

    /// The object of an `ERROR` event.
    pub fn from_status(status: &[u8]) -> Self {
        Self::from_event(Status::from_body(status))
    }

    /// The object of an `ERROR` event on the protobuf wire, out of its envelope.
    pub(crate) fn from_protobuf_status(status: &[u8]) -> Self {
        Self::from_event(Status::from_protobuf(status))
    }

    fn from_event(status: Option<Status>) -> Self {
        match status {
            Some(status) => Self { retry_after: Self::asked_to_wait(&status), ..Self::from_parsed(&status) },
            None => Self::plain("the server ended the watch with an error that cannot be read"),
        }
    }

    fn from_parsed(status: &Status) -> Self {
        let causes =
            status.details.as_ref().and_then(|details| details.causes.as_deref()).unwrap_or_default();
        // Four generations of servers say it in four ways.
        let too_large = causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
            || causes.iter().any(|cause| cause.message == "Too large resource version")
            || (status.reason == "Timeout" && status.message.contains("Too large resource version"))
            // An exact read of a future version that etcd itself answers.
            || status.message.contains("required revision is a future revision");
        let message = one_line(&status.message, MAX_MESSAGE);
        let message = if status.code == 0 { message } else { format!("HTTP {}: {message}", status.code) };
        Self {
            code: (status.code != 0).then_some(status.code),
            reason: one_line(&status.reason, MAX_QUOTED),
            too_large,
            ..Self::plain(message)
        }
    }

    fn asked_to_wait(status: &Status) -> Option<Duration> {
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    fn plain(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: None,
            reason: String::new(),
            too_large: false,
            unreachable: false,
            late: false,
            retry_after: None,
            source: None,
        }
    }

    /// The HTTP code of the server's refusal; `None` if the server did not get to answer.
    pub fn code(&self) -> Option<u16> {
        self.code
    }

    /// The server's reason in one word, such as `Expired`.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// This error and its causes, on one line.
    pub(crate) fn with_cause(&self) -> String {
        let mut text = self.message.clone();
        for error in self.causes().map(ToString::to_string) {
            // Many errors quote their cause.
            if !text.contains(&error) {
                text.push_str(": ");
                text.push_str(&error);
            }
        }
        text
    }

    /// Its causes, the next one first. An error that is its own cause must not keep this from ending.
    fn causes(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        std::iter::successors(self.source(), |error| (*error).source()).take(MAX_CAUSES)
    }

    /// Whether no connection to the server could be made.
    pub fn is_unreachable(&self) -> bool {
        self.unreachable
    }

    /// Whether the connection was ended because the other side did not answer, to a ping or at all.
    pub(crate) fn is_timeout(&self) -> bool {
        self.causes().any(|error| {
            let by_ping = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout);
            let by_kernel = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
            by_ping || by_kernel == Some(std::io::ErrorKind::TimedOut)
        })
    }

    /// Whether the server did not answer in time.
    pub fn is_late(&self) -> bool {
        self.late
    }

    /// Whether the version asked for is too old: only a new list helps.
    pub fn is_expired(&self) -> bool {
        self.code == Some(410) || matches!(&*self.reason, "Expired" | "Gone")
    }

    /// Whether the version asked for is newer than the server itself, as after a restore from a backup.
    pub fn is_version_too_large(&self) -> bool {
        self.too_large
    }

    /// Whether there is no such resource (any more): its definition may not be installed.
    pub fn is_not_found(&self) -> bool {
        self.code == Some(404)
    }

    /// Whether the request itself was not understood, such as a parameter that the server does not know.
    pub fn is_rejected(&self) -> bool {
        matches!(self.code, Some(400 | 405 | 406 | 415 | 422))
    }

    /// Whether what was watched can no longer be trusted, so that only a new list helps.
    pub fn needs_list(&self) -> bool {
        (self.is_expired() && !planted(Bug::ExpiryIgnored))
            || self.is_version_too_large()
            || self.is_not_found()
            || self.reason == "StorageReadError"
    }
}

/// The beginning of a foreign text, such that it stays one line of a log: a foreign server must not be able
/// to write lines of its own, or to move the cursor of a terminal.
fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    let mut chars = text.chars();
    for char in chars.by_ref().take(max) {
        // Control characters, line separators, and marks that turn the direction of text around.
        let is_unsafe = char.is_control()
            || matches!(char, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if is_unsafe {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
    if chars.next().is_some() {
        line.push('…');
    }
    line
}

impl From<WireError> for SourceError {
    fn from(error: WireError) -> Self {
        Self::transport("the answer cannot be read", error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_timed_out_is_told_from_one_that_was_reset() {
        let broken = |kind| SourceError::transport("the connection broke", std::io::Error::from(kind));
        assert!(broken(std::io::ErrorKind::TimedOut).is_timeout());
        assert!(!broken(std::io::ErrorKind::ConnectionReset).is_timeout());
    }

    #[test]
    fn a_text_says_each_cause_once() {
        let refused = std::io::Error::other(std::io::Error::other("connection refused"));
        let error = SourceError::transport("the server cannot be reached", refused);
        assert_eq!(error.with_cause(), "the server cannot be reached: connection refused");
    }

    #[test]
    fn a_status_answers_the_questions() {
        let expired = SourceError::from_status(
            br#"{"kind":"Status","message":"too old","reason":"Expired","code":410}"#,
        );
        assert!(expired.is_expired() && expired.needs_list());
        assert_eq!(expired.to_string(), "HTTP 410: too old");
        let busy =
            SourceError::from_response(429, br#"{"kind":"Status","details":{"retryAfterSeconds":7}}"#, None);
        assert_eq!(busy.retry_after(), Some(Duration::from_secs(7)));
        assert!(!busy.needs_list());
    }

    #[test]
    fn too_large_is_recognised_in_three_generations_of_servers() {
        for body in [
            r#"{"kind":"Status","reason":"Timeout","message":"Timeout: Too large resource version: 9, current: 1","code":504}"#,
            r#"{"kind":"Status","reason":"Timeout","details":{"causes":[{"message":"Too large resource version"}]},"code":504}"#,
            r#"{"kind":"Status","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"x"}]},"code":504}"#,
        ] {
            assert!(SourceError::from_response(504, body.as_bytes(), None).is_version_too_large(), "{body}");
        }
        assert!(
            !SourceError::from_response(504, br#"{"kind":"Status","reason":"Timeout","code":504}"#, None)
                .needs_list()
        );
    }

    #[test]
    fn foreign_texts_stay_on_one_line_and_short() {
        let body = format!("<html>\n\x1b[2J\r2026 INFO all is well\u{2028}\u{202e}{}", "x".repeat(500));
        let error = SourceError::from_response(502, body.as_bytes(), None).to_string();
        assert!(
            error.starts_with(r"HTTP 502: <html>\n\u{1b}[2J\r2026 INFO all is well\u{2028}\u{202e}xxx"),
            "{error}"
        );
        assert!(error.chars().count() < 260 && error.ends_with('…'), "{error}");
        let status = serde_json::json!({"kind": "Status", "message": format!("a\nb{}", "x".repeat(5000)), "code": 500});
        for error in [
            SourceError::from_response(500, status.to_string().as_bytes(), None),
            SourceError::from_status(status.to_string().as_bytes()),
        ] {
            let error = error.to_string();
            assert!(error.starts_with(r"HTTP 500: a\nbxxx") && error.chars().count() < 1100, "{error}");
        }
    }

    #[test]
    fn a_body_that_is_no_status_is_quoted() {
        let error = SourceError::from_response(404, b"404 page not found\n", None);
        assert_eq!(error.to_string(), "HTTP 404: 404 page not found");
        assert!(error.is_not_found());
        assert!(SourceError::from_status(b"{}").code().is_none());
    }
}
