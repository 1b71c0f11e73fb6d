//! The options of lists and watches, read from the query and checked as the real server checks them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::request::RequestInfo;
use crate::status::{Answer, Cause, Status};

/// How fresh an answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// As fresh as it gets.
    Latest,
    /// Whatever is at hand (`resourceVersion=0`).
    Any,
    /// This revision or a later one.
    AtLeast(u64),
    /// This very revision.
    Exact(u64),
}

/// What a list asks for.
#[derive(Debug)]
pub(crate) struct ListOptions {
    pub(crate) version: Version,
    pub(crate) limit: Option<usize>,
    pub(crate) token: Option<Continue>,
}

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Continue {
    v: String,
    /// The first page's revision; -1 goes on at the latest one.
    pub(crate) rv: i64,
    /// The last key of the page before.
    pub(crate) start: String,
}

/// What a watch asks for.
#[derive(Debug)]
pub(crate) struct WatchOptions {
    /// `None`: no version was given.
    pub(crate) version: Option<u64>,
    pub(crate) initial_events: Option<bool>,
    pub(crate) bookmarks: bool,
    pub(crate) timeout_seconds: Option<u64>,
}

impl ListOptions {
    pub(crate) fn of(info: &RequestInfo) -> Answer<Self> {
        let text = info.param("resourceVersion").unwrap_or("");
        let matching = info.param("resourceVersionMatch").unwrap_or("");
        let limit = number::<i64>(info, "limit")?.unwrap_or(0);
        let token = info.param("continue").filter(|token| !token.is_empty());
        let mut causes = Vec::new();
        match matching {
            "" => {}
            _ if text.is_empty() => causes.push(Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            )),
            _ if token.is_some() => causes.push(Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden when continue is provided",
            )),
            "Exact" if text == "0" => causes.push(Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            )),
            "Exact" | "NotOlderThan" => {}
            other => {
                let supported = &["Exact", "NotOlderThan", ""];
                causes.push(Cause::unsupported("resourceVersionMatch", &other.into(), supported));
            }
        }
        if info.param("sendInitialEvents").is_some() {
            causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        // A list has no use for it, but wants it to be a number.
        number::<i64>(info, "timeoutSeconds")?;
        refuse(&causes)?;
        let bad_version = |why| Status::bad_request(format!("invalid resource version: {why}"));
        let version = match (parse_version(text).map_err(bad_version)?, matching) {
            (None, _) => Version::Latest,
            (Some(0), _) => Version::Any,
            (Some(revision), "Exact") => Version::Exact(revision),
            // Pages have always been read at the very version that was asked for.
            (Some(revision), "") if limit > 0 => Version::Exact(revision),
            (Some(revision), _) => Version::AtLeast(revision),
        };
        let token = token.map(Continue::decode).transpose()?;
        if token.is_some() && !matches!(version, Version::Latest | Version::Any) {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        // Without `Exact`, a limited list at a version is read at exactly it, as from etcd.
        let limit = usize::try_from(limit).ok().filter(|&limit| limit > 0);
        Ok(Self {
            version,
            limit: if version == Version::Any && token.is_none() { None } else { limit },
            token,
        })
    }
}

impl WatchOptions {
    pub(crate) fn of(info: &RequestInfo) -> Answer<Self> {
        let matching = info.param("resourceVersionMatch").unwrap_or("");
        let initial_events = info.param("sendInitialEvents").map(|_| info.flag("sendInitialEvents"));
        let mut causes = Vec::new();
        match (matching, initial_events) {
            ("", None) | ("NotOlderThan", Some(_)) => {}
            (other, Some(_)) => {
                causes.push(Cause::forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
                if !other.is_empty() {
                    let supported = &["NotOlderThan"];
                    causes.push(Cause::unsupported("resourceVersionMatch", &other.into(), supported));
                }
            }
            (_, None) => causes.push(Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
        }
        refuse(&causes)?;
        let text = info.param("resourceVersion").unwrap_or("");
        // Where one expects a 400, the real server answers 500 without a reason.
        let version = parse_version(text).map_err(Status::unexplained)?;
        Ok(Self {
            version,
            initial_events,
            bookmarks: info.flag("allowWatchBookmarks"),
            timeout_seconds: number::<i64>(info, "timeoutSeconds")?
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|&seconds| seconds > 0),
        })
    }
}

impl Continue {
    pub(crate) fn new(revision: u64, start: &str) -> Self {
        Self {
            v: "meta.k8s.io/v1".to_owned(),
            rv: i64::try_from(revision).unwrap_or(i64::MAX),
            start: start.to_owned(),
        }
    }

    /// The token that goes on at the latest revision.
    pub(crate) fn inconsistent(&self) -> Self {
        Self { rv: -1, ..self.clone() }
    }

    pub(crate) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("plain data"))
    }

    fn decode(token: &str) -> Answer<Self> {
        let bad = |why: String| Status::bad_request(format!("invalid continue token: {why}"));
        let bytes =
            URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|error| bad(error.to_string()))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if token.v != "meta.k8s.io/v1" || token.rv == 0 || token.rv < -1 {
            return Err(bad("not one of this server".to_owned()));
        }
        Ok(token)
    }
}

/// A number of the query; text that is none is refused.
pub(crate) fn number<T: std::str::FromStr>(info: &RequestInfo, name: &str) -> Answer<Option<T>> {
    match info.param(name) {
        None | Some("") => Ok(None),
        Some(text) => match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Status::bad_request(no_number("ParseInt", text))),
        },
    }
}

/// A version of a request, `None` for the empty text.
pub(crate) fn parse_version(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    // Unlike Go's, Rust's parser takes a plus sign.
    let number = if text.starts_with('+') { None } else { text.parse().ok() };
    number
        .map(Some)
        .ok_or_else(|| format!("resourceVersion: Invalid value: {text:?}: {}", no_number("ParseUint", text)))
}

/// Why a text is no number, in the words of the real server, which are Go's.
pub(crate) fn no_number(function: &str, text: &str) -> String {
    let digits = text.trim_start_matches(['-', '+']);
    let too_large = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let signed = function == "ParseInt" || digits.len() == text.len();
    let why = if too_large && signed { "value out of range" } else { "invalid syntax" };
    format!("strconv.{function}: parsing {text:?}: {why}")
}

fn refuse(causes: &[Cause]) -> Answer<()> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid_options("ListOptions", causes))
}
