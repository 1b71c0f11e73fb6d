//! The server as a tower service: limits, then the request's own answer, counted on its way out. Faults, if there are
//! any, are a layer around it, on every connection.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::backup::Backup;
use crate::body::{Body, BoxError};
use crate::builder::Builder;
use crate::core::Core;
use crate::counters::{Counted, Stats};
use crate::faults::{Connection, Faults};
use crate::negotiate;
use crate::pretty;
use crate::request::{RequestInfo, Verb};
use crate::route;
use crate::status::{Answer, Status};

/// How long a client may take to send a body: as long as the real server gives a request.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);

/// A Kubernetes API server in this process.
///
/// A clone is another handle to the same server. It is a [`tower::Service`], so anything that speaks HTTP can be put in
/// front of it; [`client`](Self::client) needs no socket, [`serve`](Self::serve) opens one. Faults are not in the bare
/// service: they befall the connections that [`connect`](Self::connect) opens, for clients and sockets too.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) core: Arc<Core>,
    /// What befalls every connection, if anything does.
    pub(crate) faults: Option<Faults>,
}

/// In a request's extensions: answer reads that need not be fresh as of this revision, as a replica that lags would.
///
/// It concerns gets and lists with `resourceVersion=0` or an older version, and watches that begin with the state
/// at `resourceVersion=0`. A revision that was compacted counts as caught up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeAtMost(pub u64);

/// In a request's extensions: play a server from before streaming lists, whose watches never say where the state ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoEndOfState;

impl ApiServer {
    /// A server with defaults: see [`Builder`].
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Sets up a server.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client of this server that needs no socket. Its default namespace is `default`.
    ///
    /// Must be called within a tokio runtime, as every [`kube_client::Client`] must be made.
    pub fn client(&self) -> kube_client::Client {
        kube_client::Client::new(self.connect(), "default")
    }

    /// A new connection, with the faults that the server was built with: what is under a client and behind a socket.
    pub fn connect(&self) -> Connection {
        Connection::open(self.clone())
    }

    /// What the server has done so far.
    pub fn stats(&self) -> Stats {
        self.core.counters.stats()
    }

    /// The revision of the last write: what a consistent list now would have as its version.
    pub fn revision(&self) -> u64 {
        self.core.store().revision()
    }

    /// Starts again, as after a crash: nothing stored is lost, but open watches are closed, and a watch from
    /// a version of before gets 410.
    pub fn restart(&self) {
        self.core.store().restart();
    }

    /// Forgets everything before a revision: lists, pages and watches of older versions get 410.
    /// Open watches go on.
    pub fn compact(&self, revision: u64) {
        self.core.store().compact(revision);
    }

    /// Forgets everything but the present.
    pub fn compact_now(&self) {
        let mut store = self.core.store();
        let revision = store.revision();
        store.compact(revision);
    }

    /// A copy of everything that is stored. Cheap: it shares the objects with the server.
    pub fn backup(&self) -> Backup {
        Backup::new(self.core.store().backup())
    }

    /// Brings back a backup: objects and revision are as they were, so that versions go backwards. The watch
    /// history is forgotten, and open watches are closed.
    pub fn restore(&self, backup: &Backup) {
        self.core.store().restore(backup.data());
        self.core.background.kick(&self.core);
    }

    /// Answers one request: what the service does, for those who need no service.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        answer(&self.core, request).await
    }
}

/// Says that it is a server, not what it stores: objects can be secrets, and logs are read by many.
impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("has_faults", &self.faults.is_some()).finish_non_exhaustive()
    }
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new()
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.handle(request).await) })
    }
}

/// The core's answer, counted.
pub(crate) async fn answer<B>(core: &Arc<Core>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let info = RequestInfo::parse(request.method(), request.uri());
    let counters = core.counters.request(&route::resource_id(core, &info), &info);
    let for_people = pretty::is_wanted(&info, request.headers());
    let coding = negotiate::status_coding(request.headers());
    let mut response =
        limited(core, info, request).await.unwrap_or_else(|status| status.into_response(coding));
    if for_people {
        response = pretty::indent(response).await;
    }
    response.map(|body| Counted::new(body, counters).boxed_unsync())
}

/// Reads the body and answers, within the limits on size and number.
async fn limited<B>(core: &Arc<Core>, info: RequestInfo, request: Request<B>) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let header: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if header + info.path.len() > core.config.max_header {
        let limit = core.config.max_header;
        return Err(Status::new(431, "", format!("request header fields too large: limit is {limit}")));
    }
    // A watch is long, but waits most of the time: the real server does not count it either.
    let permit = match info.verb {
        Some(Verb::Watch) => None,
        _ => Some(core.in_flight.clone().try_acquire_owned().map_err(|_| Status::too_many_requests())?),
    };
    let reading = Limited::new(body, core.config.max_body).collect();
    let body = match tokio::time::timeout(BODY_TIMEOUT, reading).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return Err(Status::too_large(core.config.max_body));
        }
        Ok(Err(error)) => return Err(Status::bad_request(format!("the body could not be read: {error}"))),
        Err(_) => return Err(Status::new(408, "Timeout", "the body did not arrive in time")),
    };
    let response = route::route(core, info, parts, body).await;
    drop(permit);
    response
}
