//! The server on a socket: HTTP/1.1, on loopback unless told otherwise.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::body::{Body, BoxError};
use crate::faults::Connection;
use crate::hosts::{self, Hosts};
use crate::kubeconfig;
use crate::server::ApiServer;

/// How long a client may take to send its headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How many connections are open at once; the next one waits.
const MAX_CONNECTIONS: usize = 10_000;

/// Why a server could not be put on a socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address can be reached by other machines, and that was not asked for.
    #[error(
        "{0} is not a loopback address, and whoever reaches the server may do everything: \
         use 127.0.0.1, or `allow_remote()` of the builder (--allow-remote of the command)"
    )]
    NotLoopback(SocketAddr),
    /// The address is taken, or not one of this machine.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A server on a socket. Dropping it closes the socket and all connections at once.
#[derive(Debug)]
#[must_use = "the socket closes when this is dropped"]
pub struct Serving {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// Listens on an address; port 0 takes a free one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = kube_informer_apiserver::ApiServer::new();
    /// let serving = server.serve(([127, 0, 0, 1], 0)).await?;
    /// println!("{}", serving.kubeconfig());
    /// serving.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn serve(&self, address: impl Into<SocketAddr>) -> Result<Serving, ServeError> {
        let address = address.into();
        if !address.ip().is_loopback() && !self.core.config.allow_remote {
            return Err(ServeError::NotLoopback(address));
        }
        let listen = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopped) = watch::channel(false);
        let hosts = Arc::new(Hosts::new(address, &self.core.config.hosts));
        let task = tokio::spawn(accept(self.clone(), hosts, listener, stopped));
        Ok(Serving { address, stop, task: Some(task) })
    }
}

impl Serving {
    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:12345`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The text of a kubeconfig file for this socket.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::text(&self.url())
    }

    /// Closes the socket, lets requests that are under way end for a moment, cuts off watches.
    ///
    /// *Cancel safety*: dropping the future closes everything at once.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        if let Some(mut task) = self.task.take() {
            // A watch would go on for an hour.
            if tokio::time::timeout(Duration::from_secs(1), &mut task).await.is_err() {
                task.abort();
                let _ = task.await;
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Connections live in the set: they end with this task.
async fn accept(
    server: ApiServer,
    hosts: Arc<Hosts>,
    listener: TcpListener,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    while !*stopped.borrow() {
        tokio::select! {
            _ = stopped.changed() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                let Ok((stream, _)) = accepted else {
                    // Out of file descriptors, most likely: it passes.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                // Events are small and should not wait for more of them.
                let _ = stream.set_nodelay(true);
                connections.spawn(connection(server.clone(), hosts.clone(), stream, stopped.clone()));
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// A connection over a socket: requests for other hosts and from other origins do not reach the server.
#[derive(Clone)]
struct Guarded {
    hosts: Arc<Hosts>,
    connection: Connection,
}

impl<B> tower::Service<Request<B>> for Guarded
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
        match self.hosts.check(&request) {
            Ok(()) => self.connection.call(request),
            Err(status) => {
                let response = hosts::refuse(status, request.headers());
                Box::pin(std::future::ready(Ok(response)))
            }
        }
    }
}

async fn connection(
    server: ApiServer,
    hosts: Arc<Hosts>,
    stream: tokio::net::TcpStream,
    mut stopped: watch::Receiver<bool>,
) {
    let service = Guarded { hosts, connection: server.connect() };
    let max_header = server.core.config.max_header.max(8192);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(max_header)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
}
