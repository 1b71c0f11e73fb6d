//! What a request asks for, read from its method, path and query alone: no I/O, no look at what exists.

use std::fmt;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

/// What a request does to a resource, in the words of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read many objects.
    List,
    /// Follow changes. A streaming list is a watch too.
    Watch,
    /// Make an object.
    Create,
    /// Replace an object.
    Update,
    /// Change parts of an object.
    Patch,
    /// Delete an object.
    Delete,
    /// Delete many objects.
    DeleteCollection,
}

impl Verb {
    /// Every verb there is.
    pub const ALL: [Self; 8] = [
        Self::Get,
        Self::List,
        Self::Watch,
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::DeleteCollection,
    ];

    /// The verb as RBAC and discovery write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether the verb changes something.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request, taken apart.
///
/// ```
/// use kube_informer_apiserver::{RequestInfo, Verb};
/// let uri = "/apis/apps/v1/namespaces/team-a/deployments?watch=true".parse().unwrap();
/// let info = RequestInfo::parse(&http::Method::GET, &uri);
/// assert_eq!(info.verb, Some(Verb::Watch));
/// assert_eq!((info.group.as_str(), info.resource.as_str()), ("apps", "deployments"));
/// assert_eq!(info.namespace.as_deref(), Some("team-a"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// What is asked of the resource; `None` for paths that name none and for methods that mean nothing.
    pub verb: Option<Verb>,
    /// The API group, `""` for the core group.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// The resource, plural; `""` if the path names none.
    pub resource: String,
    /// The namespace, if the path is inside one.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: Option<String>,
    /// What follows the name: `status`, `scale`, `log` …
    pub subresource: Option<String>,
    /// The path, as it was sent.
    pub path: String,
    /// The query's parameters, decoded, in order.
    pub query: Vec<(String, String)>,
}

impl RequestInfo {
    /// Takes a request apart. Never fails: what cannot be understood has no verb.
    pub fn parse(method: &Method, uri: &Uri) -> Self {
        let query = form_urlencoded::parse(uri.query().unwrap_or("").as_bytes()).into_owned().collect();
        let mut info = Self { path: uri.path().to_owned(), query, ..Self::default() };
        let segments: Vec<String> = uri
            .path()
            .split('/')
            .skip(1)
            .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
            .collect();
        let mut parts: &[String] = &segments;
        match parts {
            [api, version, rest @ ..] if api == "api" => {
                info.version.clone_from(version);
                parts = rest;
            }
            [apis, group, version, rest @ ..] if apis == "apis" => {
                info.group.clone_from(group);
                info.version.clone_from(version);
                parts = rest;
            }
            _ => return info,
        }
        // `/api/v1/watch/pods` is the old way to write `/api/v1/pods?watch=true`.
        let old_watch = parts.len() > 1 && parts[0] == "watch";
        if old_watch {
            parts = &parts[1..];
        }
        let filled = |segment: &String| Some(segment.clone()).filter(|segment| !segment.is_empty());
        if parts.len() > 2
            && parts[0] == "namespaces"
            && !matches!(parts[2].as_str(), "status" | "finalize" | "")
        {
            info.namespace = filled(&parts[1]);
            parts = &parts[2..];
        }
        let Some(resource) = parts.first().and_then(filled) else { return info };
        info.resource = resource;
        info.name = parts.get(1).and_then(filled);
        if parts.len() > 2 {
            info.subresource = Some(parts[2..].join("/")).filter(|rest| !rest.is_empty());
        }
        let one = info.name.is_some();
        info.verb = match *method {
            Method::GET if old_watch || (!one && info.flag("watch")) => Some(Verb::Watch),
            Method::GET => Some(if one { Verb::Get } else { Verb::List }),
            Method::POST => Some(Verb::Create),
            Method::PUT => Some(Verb::Update),
            Method::PATCH => Some(Verb::Patch),
            Method::DELETE => Some(if one { Verb::Delete } else { Verb::DeleteCollection }),
            _ => None,
        };
        if old_watch && let Some(name) = info.name.take() {
            info.query.push(("fieldSelector".to_owned(), format!("metadata.name={name}")));
        }
        info
    }

    /// The first value of a query parameter.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A query parameter as a switch: there, and neither `false` nor `0`.
    pub fn flag(&self, name: &str) -> bool {
        self.param(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Whether this is a list of the state at exactly one version.
    pub fn is_exact_list(&self) -> bool {
        let exact = |(name, value): &(String, String)| name == "resourceVersionMatch" && value == "Exact";
        self.verb == Some(Verb::List) && self.query.iter().any(exact)
    }

    /// Whether this is a watch that sends the state first (`sendInitialEvents`).
    pub fn is_streaming_list(&self) -> bool {
        self.verb == Some(Verb::Watch) && self.flag("sendInitialEvents")
    }

    /// Whether the path names a group and version, whatever follows.
    pub fn is_api(&self) -> bool {
        !self.version.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, uri: &str, expected: &str) {
        let info = RequestInfo::parse(&method.parse().unwrap(), &uri.parse().unwrap());
        let text = |option: &Option<String>| option.clone().unwrap_or_else(|| "-".into());
        let found = format!(
            "{} {}/{}/{} ns={} name={} sub={}",
            info.verb.map_or("-".to_owned(), |verb| verb.to_string()),
            info.group,
            info.version,
            info.resource,
            text(&info.namespace),
            text(&info.name),
            text(&info.subresource)
        );
        assert_eq!(found, expected, "{method} {uri}");
    }

    #[test]
    fn paths_say_what_is_asked() {
        check("GET", "/api/v1/pods", "list /v1/pods ns=- name=- sub=-");
        check("GET", "/api/v1/pods?watch=1", "watch /v1/pods ns=- name=- sub=-");
        check("GET", "/api/v1/pods?watch=false", "list /v1/pods ns=- name=- sub=-");
        check("GET", "/api/v1/namespaces/a/pods/b", "get /v1/pods ns=a name=b sub=-");
        check("PUT", "/api/v1/namespaces/a/pods/b/status", "update /v1/pods ns=a name=b sub=status");
        check("GET", "/api/v1/namespaces", "list /v1/namespaces ns=- name=- sub=-");
        check("GET", "/api/v1/namespaces/a", "get /v1/namespaces ns=- name=a sub=-");
        check("PUT", "/api/v1/namespaces/a/finalize", "update /v1/namespaces ns=- name=a sub=finalize");
        check(
            "POST",
            "/apis/apps/v1/namespaces/a/deployments",
            "create apps/v1/deployments ns=a name=- sub=-",
        );
        check(
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/b",
            "patch apps/v1/deployments ns=a name=b sub=-",
        );
        check("DELETE", "/apis/x.io/v1/foos", "deletecollection x.io/v1/foos ns=- name=- sub=-");
        check("DELETE", "/apis/x.io/v1/foos/a%2Fb", "delete x.io/v1/foos ns=- name=a/b sub=-");
        check("GET", "/api/v1/watch/namespaces/a/pods", "watch /v1/pods ns=a name=- sub=-");
        check("HEAD", "/api/v1/pods", "- /v1/pods ns=- name=- sub=-");
    }

    #[test]
    fn what_is_no_resource_has_no_verb() {
        for path in [
            "/",
            "/api",
            "/apis",
            "/api/v1",
            "/apis/apps",
            "/apis/apps/v1",
            "/healthz",
            "//",
            "/api//",
            "/%ff",
        ] {
            assert_eq!(RequestInfo::parse(&Method::GET, &path.parse().unwrap()).verb, None, "{path}");
        }
    }
}
