//! The layer itself: every request passes it on its way to the server, every answer on its way back.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use tokio::time::sleep;
use tower::Service;

use super::Faults;
use super::answer::refusal;
use super::book::{Due, Position};
use super::call::Call;
use super::fault::{Fault, Stage};
use super::pieces::Source;
use super::rule::Rule;
use super::stream::{Coding, FaultyAnswer, reset};
use crate::counters::{Counted, Resource};
use crate::negotiate;
use crate::route;
use crate::server::NoEndOfState;
use crate::{ApiServer, Body, BoxError, ServeAtMost, Verb};

/// A connection to a server, with all that befalls it: a [`tower::Service`], as [`ApiServer::connect`] gives it.
///
/// It fails with an [`io::Error`] where a client on a socket would see the connection refused or reset; a socket server
/// closes the connection on it. Clones are the same connection.
#[derive(Clone, Debug)]
pub struct Connection {
    server: ApiServer,
    /// The number of the connection, from 1.
    number: u64,
}

impl Connection {
    pub(crate) fn open(server: ApiServer) -> Self {
        let number = server.faults.as_ref().map_or(1, |faults| {
            let mut book = faults.book();
            book.connections += 1;
            book.connections
        });
        Self { server, number }
    }
}

impl<B> Service<Request<B>> for Connection
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<Body>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.server.clone();
        let Some(faults) = server.faults.clone() else {
            return Box::pin(async move { Ok(server.handle(request).await) });
        };
        // Numbered here and not when the future is first polled: requests count in the order in which they are made.
        let mut book = faults.book();
        book.requests += 1;
        let call = Call::new(book.requests, self.number, &request);
        drop(book);
        Box::pin(respond(server, faults, call, request))
    }
}

async fn respond<B>(
    server: ApiServer,
    faults: Faults,
    call: Call,
    mut request: Request<B>,
) -> io::Result<Response<Body>>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    if let Some(rule) = draw(&faults, &call) {
        let refusal = refusal(&rule.fault, &call);
        // Requests that do not get as far as the server are counted here: a client has made them all the same.
        let is_lost = refusal.is_some() || matches!(rule.fault, Fault::Refuse | Fault::Stall);
        let counters = is_lost.then(|| count(&server, &call));
        if !rule.after.is_zero() {
            sleep(rule.after).await;
        }
        if let (Some(response), Some(counters)) = (refusal, counters) {
            return Ok(response.map(|body| Counted::new(body, counters).boxed_unsync()));
        }
        match rule.fault {
            Fault::Refuse => {
                let message = "connection refused (injected fault)";
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, message));
            }
            Fault::Cut => {
                drop(server.handle(request).await);
                return Err(reset());
            }
            Fault::Stall => return pending().await,
            Fault::Delay(time) => sleep(time).await,
            Fault::IgnoreStreamingList => {
                *request.uri_mut() = without_streaming(request.uri());
                request.extensions_mut().insert(NoEndOfState);
            }
            Fault::StaleReplica { behind } => {
                let revision = server.revision().saturating_sub(behind);
                request.extensions_mut().insert(ServeAtMost(revision));
            }
            Fault::Restart => server.restart(),
            Fault::Compact => server.compact_now(),
            Fault::Restore { behind } => faults.restore(&server, behind),
            _ => {}
        }
    }
    faults.keep_backup(&server);
    let is_touched = {
        let book = faults.book();
        book.concerns(&call, Stage::Answer) || book.concerns(&call, Stage::Event)
    };
    if is_touched {
        // What is compressed cannot be looked into; `gzip-members` compresses here.
        request.headers_mut().remove(header::ACCEPT_ENCODING);
    }
    let response = server.handle(request).await;
    // A watch is wrapped in any case: rules may be injected while it is open.
    Ok(if is_touched || call.is_watch() { wrap(faults, call, response) } else { response })
}

fn count(server: &ApiServer, call: &Call) -> Arc<Resource> {
    server.core.counters.request(&route::resource_id(&server.core, &call.info), &call.info)
}

fn draw(faults: &Faults, call: &Call) -> Option<Rule> {
    let now = faults.now();
    faults.book().draw(call, Stage::Request, Position { now, began: now, events: 0 }, |_| true)
}

fn wrap(faults: Faults, call: Call, response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    let wire = wire(&parts.headers).filter(|_| parts.status == StatusCode::OK);
    let coding = if parts.headers.contains_key(header::CONTENT_ENCODING) {
        Coding::Plain
    } else {
        coding(&faults, &call)
    };
    let source = match (call.info.verb, wire) {
        (Some(Verb::Watch), Some(wire)) => Source::events(body, wire),
        (Some(Verb::List), _) if coding == Coding::Truncated => Source::whole(body),
        (Some(Verb::List), Some(wire)) => Source::list(body, wire),
        _ => Source::frames(body),
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    if coding != Coding::Plain {
        parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Response::from_parts(parts, FaultyAnswer::new(faults, call, source, coding).into_body())
}

/// Whether the answer goes out compressed: known before the headers do.
fn coding(faults: &Faults, call: &Call) -> Coding {
    let now = faults.now();
    let position = Position { now, began: now, events: 0 };
    let is_coding = |fault: &Fault| matches!(fault, Fault::GzipMembers | Fault::GzipTruncated);
    match faults.book().due(call, position, &mut Vec::new(), is_coding) {
        Due::Now(Fault::GzipMembers) => Coding::Members,
        Due::Now(Fault::GzipTruncated) => Coding::Truncated,
        _ => Coding::Plain,
    }
}

/// The wire of an answer that can be looked into.
fn wire(headers: &HeaderMap) -> Option<negotiate::Coding> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let known = negotiate::Coding::of(content_type);
    known.filter(|_| !headers.contains_key(header::CONTENT_ENCODING))
}

/// The request as a server or proxy hears it that knows no streaming lists: without what belongs to them.
fn without_streaming(uri: &Uri) -> Uri {
    let belongs = |name: &str| matches!(name, "sendInitialEvents" | "resourceVersionMatch");
    let pairs =
        form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).filter(|(name, _)| !belongs(name));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{}?{query}", uri.path()).parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_streaming_lists_is_dropped() {
        let uri = "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=a%3Db";
        assert_eq!(without_streaming(&uri.parse().unwrap()), "/api/v1/pods?watch=true&labelSelector=a%3Db");
        let absolute = "http://host:1/api/v1/pods?sendInitialEvents=true&watch=1";
        assert_eq!(without_streaming(&absolute.parse().unwrap()), "http://host:1/api/v1/pods?watch=1");
    }
}
