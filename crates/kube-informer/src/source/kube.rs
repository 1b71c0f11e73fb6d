//! A cluster as a source, through a `kube_client::Client`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, RETRY_AFTER};
use http_body_util::{BodyExt, Limited};
use kube_client::Client;
use kube_client::client::Body;
use kube_wire::gzip::Gunzip;

use super::{Answer, ListRequest, ListWatch, SourceError, WatchRequest};
use crate::object::{Kind, Wire};

/// How much of an error's body is read.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// One kind of a cluster: in all namespaces or in one, all objects or those that selectors choose.
#[derive(Clone)]
pub struct KubeSource {
    client: Client,
    kind: Arc<Kind>,
    namespace: Option<String>,
    labels: String,
    fields: String,
    metadata_only: bool,
}

impl KubeSource {
    /// Every object of a kind.
    pub fn new(client: Client, kind: Kind) -> Self {
        Self {
            client,
            kind: Arc::new(kind),
            namespace: None,
            labels: String::new(),
            fields: String::new(),
            metadata_only: false,
        }
    }

    /// Only objects of this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only objects that the server selects by labels.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = selector.into();
        self
    }

    /// Only objects that the server selects by fields.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = selector.into();
        self
    }

    /// Asks the server for metadata alone, so that nothing else travels.
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
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

    async fn send(&self, query: String, list: bool) -> Result<Answer, SourceError> {
        let accept = match (self.metadata_only, list) {
            (false, _) => "application/json",
            (true, true) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
            }
            (true, false) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        };
        let path = self.kind.path(self.namespace.as_deref());
        let request = http::Request::get(format!("{path}?{query}"))
            .header(ACCEPT, accept)
            // Some stacks unpack only the first of many gzip members; without this they would ask for gzip on their own.
            .header(ACCEPT_ENCODING, "identity")
            .body(Body::empty())
            .map_err(|error| SourceError::transport("the request cannot be made", error))?;
        let response = self
            .client
            .send(request)
            .await
            .map_err(|error| SourceError::transport("the server cannot be reached", error))?;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            let retry_after = head
                .headers
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok())
                .map(Duration::from_secs);
            let body = Limited::new(body, MAX_ERROR_BYTES).collect().await.map(|body| body.to_bytes());
            return Err(SourceError::from_response(
                head.status.as_u16(),
                &body.unwrap_or_default(),
                retry_after,
            ));
        }
        let body = body.into_data_stream();
        let body = body
            .map(|chunk| chunk.map_err(|error| SourceError::transport("the connection broke", error)))
            .boxed();
        let packed = head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
        Ok(Answer { wire: Wire::Json, body: if packed { unpack(body) } else { body } })
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
}

impl std::fmt::Debug for KubeSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KubeSource({})", self.kind.path(self.namespace.as_deref()))
    }
}

/// A client without two layers that get in an informer's way.
///
/// By default `kube_client` retries 429, 503 and 504 by itself, up to 15 times, so that an informer learns of trouble late
/// and cannot obey Retry-After; and where its `gzip` feature is on, it reads only the first gzip member of a stream.
///
/// # Errors
/// As `Client::try_from`.
pub fn client_for_informers(mut config: kube_client::Config) -> Result<Client, kube_client::Error> {
    config.default_retry = false;
    config.disable_compression = true;
    Client::try_from(config)
}

fn unpack(
    body: BoxStream<'static, Result<Bytes, SourceError>>,
) -> BoxStream<'static, Result<Bytes, SourceError>> {
    let state = Some((body, Gunzip::default()));
    futures_util::stream::unfold(state, |state| async move {
        let (mut body, mut gunzip) = state?;
        match body.next().await {
            Some(Ok(chunk)) => match gunzip.push(&chunk) {
                Ok(plain) => Some((Ok(plain), Some((body, gunzip)))),
                Err(error) => Some((Err(error.into()), None)),
            },
            Some(Err(error)) => Some((Err(error), None)),
            None => gunzip.finish().err().map(|error| (Err(error.into()), None)),
        }
    })
    .boxed()
}
