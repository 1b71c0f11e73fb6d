//! The connection of one controller, with a look at every answer.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube_client::client::Body;
use kube_informer_apiserver::faults::Connection;
use tower::Service;

use super::ledger::{KINDS, Ledger};

#[derive(Clone)]
pub struct Traffic {
    pub connection: Connection,
    pub ledger: Arc<Ledger>,
}

/// What a request is about, as far as the ledger cares.
enum About {
    Kind(&'static str),
    Deployment { name: String, patch: bool },
    Other,
}

impl About {
    fn of(request: &Request<Body>) -> Self {
        let parts: Vec<&str> = request.uri().path().split('/').collect();
        let plural = |kind: &str| kind.split('.').next().unwrap_or_default().to_owned();
        match (request.method(), &parts[..]) {
            (&(Method::PATCH | Method::GET), [.., "deployments", name]) => {
                let patch = request.method() == Method::PATCH;
                Self::Deployment { name: (*name).to_owned(), patch }
            }
            (&Method::GET, [.., last]) => {
                KINDS.into_iter().find(|kind| plural(kind) == *last).map_or(Self::Other, Self::Kind)
            }
            _ => Self::Other,
        }
    }
}

impl Service<Request<Body>> for Traffic {
    type Response = Response<kube_informer_apiserver::Body>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (ledger, about) = (Arc::clone(&self.ledger), About::of(&request));
        if !ledger.asks() {
            return Box::pin(pending());
        }
        let answer = self.connection.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let status = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            match (about, status) {
                (About::Kind(kind), status) => ledger.read(kind, status),
                (About::Deployment { name, patch }, Some(status)) => ledger.touched(&name, patch, status),
                (About::Deployment { .. } | About::Other, _) => {}
            }
            answer
        })
    }
}
