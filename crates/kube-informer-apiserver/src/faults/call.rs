//! One request, as rules look at it.

use http::Request;

use super::fault::Fault;
use crate::negotiate::{Coding, accepts_gzip, status_coding};
use crate::{RequestInfo, Verb};

/// What is known of one request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Its number, from 1, over all connections.
    pub(crate) number: u64,
    /// The number of its connection, from 1.
    pub(crate) connection: u64,
    pub(crate) info: RequestInfo,
    /// How a refusal is told.
    pub(crate) status_coding: Coding,
    accepts_gzip: bool,
}

impl Call {
    pub(crate) fn new<B>(number: u64, connection: u64, request: &Request<B>) -> Self {
        let info = RequestInfo::parse(request.method(), request.uri());
        let headers = request.headers();
        let (status_coding, accepts_gzip) = (status_coding(headers), accepts_gzip(headers));
        Self { number, connection, info, status_coding, accepts_gzip }
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.info.verb == Some(Verb::Watch)
    }

    /// Whether the fault can befall this request or its answer.
    pub(crate) fn can_meet(&self, fault: &Fault) -> bool {
        let reads_many = matches!(self.info.verb, Some(Verb::List | Verb::Watch));
        match fault {
            Fault::RejectStreamingList | Fault::IgnoreStreamingList => self.info.is_streaming_list(),
            Fault::StaleReplica { .. } => self.allows_stale(),
            Fault::VersionTooLarge => reads_many || self.info.verb == Some(Verb::Get),
            Fault::ExpiredEvent
            | Fault::ErrorEvent
            | Fault::NoEndBookmark
            | Fault::TwoEndBookmarks
            | Fault::NoBookmarks
            | Fault::LostEvent
            | Fault::DuplicateEvent
            | Fault::UnknownObject
            | Fault::OtherKind
            | Fault::BadJson => self.is_watch(),
            Fault::NoMetadata | Fault::BadMetadata | Fault::BadBody | Fault::BadVersion => reads_many,
            Fault::GzipMembers | Fault::GzipTruncated => self.accepts_gzip,
            _ => true,
        }
    }

    /// Whether the request says that any state, or one no older than a version, will do.
    ///
    /// A read without a version is consistent, and so is a streaming list without one: those are never stale.
    fn allows_stale(&self) -> bool {
        let version = self.info.param("resourceVersion").unwrap_or_default();
        match self.info.verb {
            Some(Verb::Get) => !version.is_empty(),
            Some(Verb::List) => {
                // Later pages come from the state of the first, and an exact version has only one state.
                let exact = self.info.param("resourceVersionMatch") == Some("Exact");
                !version.is_empty() && !exact && self.info.param("continue").is_none_or(str::is_empty)
            }
            // A watch from a version starts there, wherever the replica is; a streaming list may be any state since then.
            Some(Verb::Watch) => version == "0" || (self.info.is_streaming_list() && !version.is_empty()),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(uri: &str) -> Call {
        Call::new(1, 1, &Request::get(uri).header("accept-encoding", "br, gzip;q=0.5").body(()).unwrap())
    }

    #[test]
    fn only_reads_that_allow_it_are_stale() {
        let stale = Fault::StaleReplica { behind: 3 };
        for (uri, expected) in [
            ("/api/v1/pods", false),
            ("/api/v1/pods?resourceVersion=0", true),
            ("/api/v1/pods?resourceVersion=7", true),
            ("/api/v1/pods?resourceVersion=7&resourceVersionMatch=NotOlderThan", true),
            ("/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact", false),
            ("/api/v1/pods?continue=abc&resourceVersion=0", false),
            ("/api/v1/namespaces/a/pods/b", false),
            ("/api/v1/namespaces/a/pods/b?resourceVersion=0", true),
            ("/api/v1/pods?watch=true", false),
            ("/api/v1/pods?watch=true&resourceVersion=0", true),
            ("/api/v1/pods?watch=true&resourceVersion=7", false),
            ("/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", false),
            (
                "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7",
                true,
            ),
        ] {
            assert_eq!(call(uri).can_meet(&stale), expected, "{uri}");
        }
    }

    #[test]
    fn gzip_is_for_those_who_accept_it() {
        assert!(call("/api/v1/pods").can_meet(&Fault::GzipMembers));
        for refused in ["identity", "gzip;q=0", "deflate"] {
            let request = Request::get("/api/v1/pods").header("accept-encoding", refused).body(()).unwrap();
            assert!(!Call::new(1, 1, &request).can_meet(&Fault::GzipMembers), "{refused}");
        }
    }
}
