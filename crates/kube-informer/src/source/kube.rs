//! A cluster as a source, through a `kube_client::Client`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube_client::Client;
use kube_client::client::Body;
use kube_wire::gzip::Gunzip;
use kube_wire::{ResourceVersion, protobuf};
use tokio::time::Instant;

use super::history::{FEW, Listed};
use super::{
    Answer, CheckRequest, Histories, History, ListRequest, ListWatch, MAX_CAUSES, SourceError, WatchRequest,
    Witness,
};
use crate::object::{Kind, Wire};
use crate::planted::{Bug, planted};

/// How much of an error's body is read.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// How much of the answer to a check is read. It has the metadata of one object, or one object.
const MAX_CHECK_BYTES: usize = 4 << 20;

/// For how long a server must answer that it has not reached a version before it counts as restored, and how often it is asked.
const BEHIND_FOR: Duration = Duration::from_secs(5);
const BEHIND_WAIT: Duration = Duration::from_millis(2500);

/// For how long a server that refused protobuf and JSON together is asked for JSON alone.
const JSON_FOR: Duration = Duration::from_hours(1);

/// How an answer is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    Identity,
    Gzip,
}

/// One kind of a cluster: in all namespaces or in one, all objects or those that selectors choose.
#[derive(Clone)]
pub struct KubeSource {
    client: Client,
    kind: Arc<Kind>,
    namespace: Option<String>,
    labels: String,
    fields: String,
    metadata_only: bool,
    /// Whether protobuf may be asked for.
    protobuf: bool,
    /// Until when only JSON is asked for, because the server refused both. Shared by all clones: what the server refuses one of them
    /// it refuses all.
    json_until: Arc<Mutex<Option<Instant>>>,
    gzip: bool,
    histories: Histories,
}

impl KubeSource {
    /// Every object of a kind.
    pub fn new(client: Client, kind: Kind) -> Self {
        Self {
            client,
            protobuf: Wire::speaks_protobuf(&kind),
            json_until: Arc::default(),
            gzip: false,
            kind: Arc::new(kind),
            namespace: None,
            labels: String::new(),
            fields: String::new(),
            metadata_only: false,
            histories: Histories::default(),
        }
    }

    /// Shares checks of the server's history with other sources of the same client.
    pub fn histories(mut self, histories: Histories) -> Self {
        self.histories = histories;
        self
    }

    /// Only objects of this namespace; an empty name means all namespaces.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into()).filter(|namespace| !namespace.is_empty());
        self
    }

    /// Only objects that the server selects by labels. Called several times, an object must satisfy every selector.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        narrow(&mut self.labels, &selector.into());
        self
    }

    /// Only objects that the server selects by fields. Called several times, an object must satisfy every selector.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        narrow(&mut self.fields, &selector.into());
        self
    }

    /// Asks the server for metadata alone, so that nothing else travels.
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Asks for JSON even where the server has protobuf, which is smaller and cheaper for both sides.
    ///
    /// Protobuf has numbers instead of names: fields that are newer than the table in `kube_wire` (Kubernetes 1.37) are not read
    /// from it, by no type. Where such fields matter, as for a generic tool on a newer server, this brings them.
    pub fn json(mut self) -> Self {
        self.protobuf = false;
        self
    }

    /// Asks for compressed answers: fewer bytes for more CPU on both sides. It pays on slow links only. The client must not
    /// unpack them itself: see [`client_for_informers`](super::client_for_informers).
    pub fn gzip(mut self) -> Self {
        self.gzip = true;
        self
    }

    /// What is asked for, most wanted first. The answer's content type says what it is.
    fn accept(&self, list: bool) -> String {
        let one = if list { "PartialObjectMetadataList" } else { "PartialObjectMetadata" };
        let partial =
            if self.metadata_only { format!(";as={one};g=meta.k8s.io;v=v1") } else { String::new() };
        let mut accepted = vec![format!("application/json{partial}")];
        let refused = *self.json_until.lock().unwrap_or_else(PoisonError::into_inner);
        if self.protobuf && refused.is_none_or(|until| Instant::now() >= until) {
            accepted.insert(0, format!("{}{partial}", protobuf::MEDIA_TYPE));
        }
        if self.metadata_only {
            accepted.push("application/json".into());
        }
        accepted.join(",")
    }

    fn wire(&self, content_type: Option<&HeaderValue>) -> Wire {
        let protobuf = content_type
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.starts_with(protobuf::MEDIA_TYPE));
        match (protobuf, self.metadata_only) {
            (false, _) => Wire::Json,
            (true, false) => Wire::Protobuf,
            (true, true) => Wire::ProtobufMetadata,
        }
    }

    fn query(&self) -> form_urlencoded::Serializer<'static, String> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in [("labelSelector", &self.labels), ("fieldSelector", &self.fields)] {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        query
    }

    /// How the answer is encoded. A coding that was not asked for is refused: a server or proxy that compresses all the same
    /// could make a reader unpack what it never agreed to.
    fn coding(&self, headers: &HeaderMap) -> Result<Coding, SourceError> {
        let mut codings = headers.get_all(CONTENT_ENCODING).iter();
        match (codings.next(), codings.next()) {
            (None, _) => Ok(Coding::Identity),
            (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"identity") => Ok(Coding::Identity),
            (Some(one), None) if self.gzip && one.as_bytes().eq_ignore_ascii_case(b"gzip") => {
                Ok(Coding::Gzip)
            }
            (Some(found), _) => {
                let (found, asked) = (String::from_utf8_lossy(found.as_bytes()), self.asked_coding());
                let why = format!("it has the Content-Encoding {found:.40?}, and {asked:?} was asked for");
                Err(SourceError::transport("the answer cannot be read", why))
            }
        }
    }

    fn asked_coding(&self) -> &'static str {
        if self.gzip { "gzip" } else { "identity" }
    }

    async fn send(&self, query: String, list: bool) -> Result<Answer, SourceError> {
        let path = self.kind.path(self.namespace.as_deref());
        self.get(&format!("{path}?{query}"), &self.accept(list)).await
    }

    async fn get(&self, uri: &str, accept: &str) -> Result<Answer, SourceError> {
        let request = http::Request::get(uri)
            .header(ACCEPT, accept)
            // Some stacks unpack only the first of many gzip members; without this they would ask for gzip on their own.
            .header(ACCEPT_ENCODING, self.asked_coding())
            .body(Body::empty())
            .map_err(|error| SourceError::transport("the request cannot be made", error))?;
        let response = self.client.send(request).await.map_err(|error| {
            if is_unreachable(&error) {
                SourceError::unreachable("the server cannot be reached", error)
            } else {
                SourceError::transport("the request failed", error)
            }
        })?;
        let (head, body) = response.into_parts();
        if head.status == StatusCode::NOT_ACCEPTABLE && !planted(Bug::ProtobufOfferedAgain) {
            // Offered both, it took neither: the next try is the plainest there is.
            *self.json_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + JSON_FOR);
        }
        if !head.status.is_success() {
            let retry_after = head
                .headers
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok())
                .filter(|_| !planted(Bug::RetryAfterHeaderIgnored))
                .map(Duration::from_secs);
            let body = Limited::new(body, MAX_ERROR_BYTES).collect().await.map(|body| body.to_bytes());
            let body = body.unwrap_or_default();
            let body = match self.coding(&head.headers) {
                Ok(Coding::Identity) => body,
                Ok(Coding::Gzip) => unpack_error(body),
                // The code says enough.
                Err(_) => Bytes::new(),
            };
            return Err(SourceError::from_response(head.status.as_u16(), &body, retry_after));
        }
        let coding = self.coding(&head.headers)?;
        let body = body.into_data_stream();
        let body = body
            .map(|chunk| chunk.map_err(|error| SourceError::transport("the connection broke", error)))
            .boxed();
        let packed = coding == Coding::Gzip;
        let wire = self.wire(head.headers.get(CONTENT_TYPE));
        Ok(Answer { wire, body: if packed { unpack(body) } else { body } })
    }
}

impl ListWatch for KubeSource {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        let mut query = self.query();
        if let Some(limit) = request.limit {
            query.append_pair("limit", &limit.to_string());
        }
        if let Some(token) = &request.continue_token {
            query.append_pair("continue", token);
        } else if let Some(version) = &request.version {
            query.append_pair("resourceVersion", &version.to_string());
            if !version.is_any() {
                query.append_pair("resourceVersionMatch", "NotOlderThan");
            }
        }
        let query = query.finish();
        Box::pin(self.send(query, true))
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        let mut query = self.query();
        query.append_pair("watch", "true").append_pair("allowWatchBookmarks", "true");
        query.append_pair("timeoutSeconds", &request.timeout.as_secs().to_string());
        if let Some(version) = &request.version {
            query.append_pair("resourceVersion", &version.to_string());
        }
        if request.initial_events {
            query
                .append_pair("sendInitialEvents", "true")
                .append_pair("resourceVersionMatch", "NotOlderThan");
        }
        let query = query.finish();
        Box::pin(self.send(query, false))
    }

    fn check(&self, request: CheckRequest) -> BoxFuture<'_, Result<History, SourceError>> {
        Box::pin(async move {
            let of = (Kind::clone(&self.kind), self.namespace.clone());
            let history = self.histories.check(of, &request, self.confirmed_history(&request)).await?;
            // After a long gap a doubt is not left alone.
            let doubtful = history == History::Unknown && request.thorough;
            Ok(if doubtful { History::Expired } else { history })
        })
    }
}

impl KubeSource {
    /// What several answers over five seconds say: a replica that is behind for a moment is not a restored server.
    ///
    /// Some servers answer at once that they have not reached a version, some wait for it for three seconds.
    async fn confirmed_history(&self, request: &CheckRequest) -> Result<History, SourceError> {
        let begun = Instant::now();
        let mut next = begun;
        loop {
            tokio::time::sleep_until(next).await;
            let history = self.read_history(request).await?;
            if !history.is_behind() || next > begun && begun.elapsed() >= BEHIND_FOR {
                return Ok(history);
            }
            next = Instant::now().max(next + BEHIND_WAIT);
        }
    }

    /// One or two exact reads of metadata at the version of the cache, at most one object each.
    async fn read_history(&self, request: &CheckRequest) -> Result<History, SourceError> {
        let selected =
            (!self.labels.is_empty() || !self.fields.is_empty()) && !planted(Bug::CountDespiteSelector);
        if request.thorough || request.witness.is_none() {
            let listed = match self.exact(&request.version, None).await? {
                Ok(listed) => listed,
                Err(history) => return Ok(history),
            };
            match (listed.count(), request.count) {
                // No server counts what a selector leaves.
                (_, Some(count)) if selected && request.thorough && count <= FEW => return Ok(History::Few),
                _ if selected && request.thorough => return Ok(History::Expired),
                _ if selected => {}
                (Some(found), Some(count)) if found != count => {
                    return Ok(History::Other("the number of objects is not as it was"));
                }
                (Some(found), _) if found <= FEW && request.thorough => return Ok(History::Few),
                // Not every server counts.
                (None, _) if request.thorough => return Ok(History::Expired),
                _ => {}
            }
        }
        if let Some(witness) = &request.witness {
            let listed = match self.exact(&request.version, Some(witness)).await? {
                Ok(listed) => listed,
                Err(history) => return Ok(history),
            };
            match listed.shows(witness) {
                Some(true) => {}
                Some(false) => return Ok(History::Other("the object that changed last is not as it was")),
                None => return Ok(History::Unknown),
            }
        }
        Ok(History::Same)
    }

    fn exact_uri(&self, version: &ResourceVersion, witness: Option<&Witness>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", "1").append_pair("resourceVersion", &version.to_string());
        query.append_pair("resourceVersionMatch", "Exact");
        let mut namespace = self.namespace.as_deref();
        if let Some(witness) = witness {
            // An object that left the selection is deleted for the cache.
            let mut fields = format!("metadata.name={}", witness.key.name());
            narrow(&mut fields, &self.fields);
            query.append_pair("fieldSelector", &fields);
            if !self.labels.is_empty() {
                query.append_pair("labelSelector", &self.labels);
            }
            namespace = witness.key.namespace();
        }
        format!("{}?{}", self.kind.path(namespace), query.finish())
    }

    /// Reads one object at exactly this version, or learns why that is impossible.
    async fn exact(
        &self,
        version: &ResourceVersion,
        witness: Option<&Witness>,
    ) -> Result<Result<Listed, History>, SourceError> {
        let uri = self.exact_uri(version, witness);
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        let answer = match self.get(&uri, accept).await {
            Ok(answer) => answer,
            Err(error) if error.is_version_too_large() => {
                return Ok(Err(super::history::BEHIND));
            }
            Err(error) if error.is_expired() => return Ok(Err(History::Expired)),
            // A server that does not know exact reads, or does not allow this one, cannot tell.
            Err(error) if matches!(error.code(), Some(400 | 403 | 404 | 405 | 406 | 422)) => {
                return Ok(Err(History::Unknown));
            }
            Err(error) => return Err(error),
        };
        let mut body = answer.body;
        let mut text = Vec::new();
        while let Some(chunk) = body.next().await {
            text.extend_from_slice(&chunk?);
            if text.len() > MAX_CHECK_BYTES {
                return Ok(Err(History::Unknown));
            }
        }
        let Ok(listed) = serde_json::from_slice::<Listed>(&text) else { return Ok(Err(History::Unknown)) };
        Ok(listed.misses(version).map_or(Ok(listed), Err))
    }
}

/// Adds a requirement to a selector: the server joins them by "and".
pub(crate) fn narrow(selector: &mut String, more: &str) {
    if !selector.is_empty() && !more.is_empty() {
        selector.push(',');
    }
    selector.push_str(more);
}

/// Whether no connection could be made at all.
fn is_unreachable(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    std::iter::successors(Some(error), |error| error.source())
        .take(MAX_CAUSES)
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable))
}

impl std::fmt::Debug for KubeSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KubeSource({})", self.kind.path(self.namespace.as_deref()))
    }
}

/// Unpacks a stream in steps of bounded size. The next step waits until the one before was taken.
fn unpack(
    body: BoxStream<'static, Result<Bytes, SourceError>>,
) -> BoxStream<'static, Result<Bytes, SourceError>> {
    let state = Some((body, Bytes::new(), Gunzip::default()));
    futures_util::stream::unfold(state, |state| async move {
        let (mut body, mut packed, mut gunzip) = state?;
        loop {
            while packed.has_remaining() {
                match gunzip.push(&mut packed) {
                    Ok(plain) if plain.is_empty() => {}
                    Ok(plain) => return Some((Ok(plain), Some((body, packed, gunzip)))),
                    Err(error) => return Some((Err(error.into()), None)),
                }
            }
            match body.next().await {
                Some(Ok(chunk)) => packed = chunk,
                Some(Err(error)) => return Some((Err(error), None)),
                None => return gunzip.finish().err().map(|error| (Err(error.into()), None)),
            }
        }
    })
    .boxed()
}

/// As much of a compressed error as is read of any error.
fn unpack_error(mut packed: Bytes) -> Bytes {
    let (mut gunzip, mut plain) = (Gunzip::default(), Vec::new());
    while packed.has_remaining() && plain.len() < MAX_ERROR_BYTES {
        let Ok(step) = gunzip.push(&mut packed) else { break };
        plain.extend_from_slice(&step);
    }
    plain.truncate(MAX_ERROR_BYTES);
    plain.into()
}
