//! Sends requests over few connections: HTTP/2 where the server speaks it, with pings, else HTTP/1.1.
//!
//! A pool of our own, because hyper-util's opens one connection per waiting request until the first has negotiated HTTP/2
//! (20 informers, 20 handshakes), and never opens a second HTTP/2 connection when the first has no stream left: the 101st watch
//! of a server that allows 100 streams would wait until another one ends.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use http::header::UPGRADE;
use http::{Request, Response, Uri};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::{self, connect::Connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube_client::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt};

/// Requests at a time on one connection, watches included. Servers commonly allow 100 or 250; further requests open another
/// connection.
const STREAMS: usize = 64;

/// Bytes of one answer that the server may send before we read them. An informer that stops reading holds back this much.
const STREAM_WINDOW: u32 = 1 << 20;

/// Bytes of all answers that the server may send before we read them: room for every stream, so that informers that do not
/// read never stop those that do. hyper's adaptive window stays off, because it gives one stream as much as all together.
const CONNECTION_WINDOW: u32 = (STREAMS as u32 + 1) * STREAM_WINDOW;

/// After this time, a server that spoke HTTP/1.1 is asked for HTTP/2 again.
const ASK_AGAIN: Duration = Duration::from_mins(10);

/// A request that could not be written is tried on this many further connections. A server that closes every connection at once
/// must not be asked without a pause.
const UNSENT: u32 = 2;

/// How a connection is found dead while its peer's kernel still acknowledges.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pings {
    /// After this time without a frame from the server, a ping is sent.
    pub(super) interval: Duration,
    /// After this time without an answer to it, the connection is closed and all its streams fail.
    pub(super) timeout: Duration,
}

/// The connections to one server.
pub(super) struct Connections<C>(Arc<Inner<C>>);

struct Inner<C> {
    connector: C,
    /// For servers without HTTP/2, and for upgrades (`kubectl exec` and the like), which HTTP/2 does not have.
    http1: legacy::Client<C, Body>,
    pings: Pings,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Vec<Open>,
    /// At most one connection is being made; everybody waits for the same one and shares its error.
    dialing: Option<WeakShared<Dial>>,
    http1_until: Option<Instant>,
    /// The streams that the server allowed on its last connection; 0 if none is known.
    allowed: usize,
}

type Dial = BoxFuture<'static, Result<(), DialError>>;

struct Open {
    sender: http2::SendRequest<Body>,
    /// Held by each stream: one reference more than there are streams.
    streams: Arc<()>,
    /// The streams that the server allows.
    allowed: Box<dyn Fn() -> usize + Send>,
}

/// The way a request goes.
enum Route {
    Stream(http2::SendRequest<Body>, Arc<()>),
    Wait(Shared<Dial>),
    Http1,
}

/// Why no connection could be made, for everybody who waited for it.
#[derive(Debug, Clone)]
struct DialError(Arc<dyn Error + Send + Sync>);

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot connect: {}", self.0)
    }
}

impl Error for DialError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl From<BoxError> for DialError {
    fn from(error: BoxError) -> Self {
        Self(error.into())
    }
}

impl<C> Connections<C>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
    C::Future: Send + Unpin + 'static,
    C::Error: Into<BoxError>,
{
    /// Connections that `connector` makes; `http1` makes those that must not negotiate HTTP/2.
    pub(super) fn new(connector: C, http1: C, pings: Pings) -> Self {
        let http1 = legacy::Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(http1);
        Self(Arc::new(Inner { connector, http1, pings, state: Mutex::default() }))
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<Counted>, BoxError> {
        let mut unsent = 0;
        loop {
            match self.route(&request) {
                Route::Http1 => break,
                Route::Wait(dial) => dial.await?,
                Route::Stream(mut sender, stream) => match sender.try_send_request(request).await {
                    Ok(response) => {
                        return Ok(response.map(|body| Counted { body, _stream: Some(stream) }));
                    }
                    // The connection ended before the request was written: `sender` is closed now, so another one is chosen.
                    Err(mut error) => match error.take_message() {
                        Some(again) if unsent < UNSENT => (request, unsent) = (again, unsent + 1),
                        _ => return Err(error.into_error().into()),
                    },
                },
            }
        }
        // HTTP/2 has no Host header and an absolute URI; the client for HTTP/1.1 makes of it what it needs.
        let response = self.0.http1.request(request).await?;
        Ok(response.map(|body| Counted { body, _stream: None }))
    }

    fn route(&self, request: &Request<Body>) -> Route {
        let mut state = self.lock();
        if request.headers().contains_key(UPGRADE)
            || state.http1_until.is_some_and(|until| Instant::now() < until)
        {
            return Route::Http1;
        }
        let allowed = state.open.iter().map(|open| (open.allowed)()).find(|allowed| *allowed > 0);
        state.allowed = allowed.unwrap_or(state.allowed);
        let mut spare = 0;
        state.open.retain(|open| {
            spare += usize::from(open.streams() == 0);
            // One idle connection is kept for the next request; pings watch over it.
            !open.sender.is_closed() && (open.streams() > 0 || spare == 1)
        });
        if let Some(open) = state.open.iter().find(|open| open.streams() < open.limit()) {
            return Route::Stream(open.sender.clone(), open.streams.clone());
        }
        if let Some(dial) = state.dialing.as_ref().and_then(WeakShared::upgrade)
            && dial.peek().is_none()
        {
            return Route::Wait(dial);
        }
        let dial = Self(self.0.clone()).dial(request.uri().clone()).boxed().shared();
        state.dialing = dial.downgrade();
        Route::Wait(dial)
    }

    async fn dial(self, uri: Uri) -> Result<(), DialError> {
        let io =
            self.0.connector.clone().oneshot(uri).await.map_err(|error| DialError::from(error.into()))?;
        if !io.connected().is_negotiated_h2() {
            self.lock().http1_until = Some(Instant::now() + ASK_AGAIN);
            return Ok(());
        }
        let known = self.lock().allowed;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(self.0.pings.interval)
            .keep_alive_timeout(self.0.pings.timeout)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            // Until the server has said how many it allows, which would take another round trip.
            .initial_max_send_streams(known)
            .handshake(io)
            .await
            .map_err(|error| DialError(Arc::new(error)))?;
        let connection = Arc::new(Mutex::new(Some(connection)));
        let allowed = {
            let connection = connection.clone();
            move || lock(&connection).as_ref().map_or(0, http2::Connection::current_max_send_streams)
        };
        tokio::spawn(std::future::poll_fn(move |context| {
            let mut connection = lock(&connection);
            let ended = connection.as_mut().map_or(Poll::Ready(Ok(())), |open| open.poll_unpin(context));
            ended.map(|ended| {
                // This closes `sender`.
                *connection = None;
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended");
                }
            })
        }));
        // The first connection waits for that. hyper does not notify us of it. The pings end the connection of a server that never
        // says it.
        let mut wait = Duration::from_millis(1);
        while allowed() == 0 {
            if sender.is_closed() {
                return Err(DialError(Arc::new(io::Error::from(io::ErrorKind::ConnectionAborted))));
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_millis(10));
        }
        self.lock().open.push(Open { sender, streams: Arc::default(), allowed: Box::new(allowed) });
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic under this lock")
}

impl Open {
    fn streams(&self) -> usize {
        Arc::strong_count(&self.streams) - 1
    }

    fn limit(&self) -> usize {
        STREAMS.min((self.allowed)())
    }
}

impl<C> Service<Request<Body>> for Connections<C>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
    C::Future: Send + Unpin + 'static,
    C::Error: Into<BoxError>,
{
    type Response = Response<Counted>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Self(self.0.clone()).send(request).boxed()
    }
}

impl<C> Clone for Connections<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The body of an answer, which counts as a stream of its connection until it is dropped.
pub(super) struct Counted {
    body: Incoming,
    _stream: Option<Arc<()>>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
