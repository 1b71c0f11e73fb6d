//! The client for informers: how many connections it has, and when it takes one for dead.
//!
//! Most tests run on the paused clock over pipes in memory that say HTTP/2 was negotiated; one runs over TLS on loopback.

mod common;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use common::{api, create, server};
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::rt::ReadBufCursor;
use hyper::server::conn::{http1, http2};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service as KubeService};
use kube_client::client::Body;
use kube_client::{Client, Config};
use kube_informer::SharedInformerFactory;
use kube_informer::source::{client_for_informers, client_over};
use kube_informer_apiserver::ApiServer;
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::{Service, service_fn};

const WATCH: &str = "/api/v1/configmaps?watch=true&resourceVersion=0";

/// Makes connections in memory, each served by `serve`.
#[derive(Clone)]
struct Pipes {
    http2: bool,
    /// How many connections were made.
    made: Arc<AtomicUsize>,
    /// The peer of the connections up to this number is stopped: they stay open, and nothing passes.
    stopped: watch::Sender<usize>,
    serve: Arc<dyn Fn(TokioIo<DuplexStream>) + Send + Sync>,
}

struct Pipe {
    io: TokioIo<DuplexStream>,
    http2: bool,
}

impl Pipes {
    fn new(http2: bool, serve: impl Fn(TokioIo<DuplexStream>) + Send + Sync + 'static) -> Self {
        Self { http2, made: Arc::default(), stopped: watch::Sender::new(0), serve: Arc::new(serve) }
    }

    /// HTTP/2 with an API server, which allows this number of streams on a connection.
    fn to(server: &ApiServer, streams: u32) -> Self {
        let server = server.clone();
        Self::new(true, move |io| {
            let mut http = http2::Builder::new(TokioExecutor::new());
            http.timer(TokioTimer::new()).max_concurrent_streams(streams);
            tokio::spawn(http.serve_connection(io, TowerToHyperService::new(server.clone())));
        })
    }

    fn client(&self) -> Client {
        client_over(&config(), self.clone()).unwrap()
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    fn stop_all(&self) {
        self.stopped.send_replace(self.made());
    }
}

impl Service<Uri> for Pipes {
    type Response = Pipe;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Pipe>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let (ours, mut near) = tokio::io::duplex(64 << 10);
        let (mut far, theirs) = tokio::io::duplex(64 << 10);
        (self.serve)(TokioIo::new(theirs));
        let mut stopped = self.stopped.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => return,
                _ = stopped.wait_for(|stopped| *stopped >= number) => {}
            }
            // Neither end is closed.
            std::future::pending::<()>().await;
        });
        let pipe = Pipe { io: TokioIo::new(ours), http2: self.http2 };
        // A handshake takes a while, so that requests meet it.
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(pipe)
        })
    }
}

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        if self.http2 { Connected::new().negotiated_h2() } else { Connected::new() }
    }
}

impl hyper::rt::Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl hyper::rt::Write for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

fn config() -> Config {
    Config::new("https://apiserver.test".parse().unwrap())
}

async fn open(client: &Client, path: &str) -> Result<Response<Body>, kube_client::Error> {
    client.send(Request::get(path).body(Body::empty()).unwrap()).await
}

/// Opens watches at the same time, and gives back their bodies.
async fn watches(client: &Client, count: usize) -> Vec<Body> {
    let opened = join_all((0..count).map(|_| open(client, WATCH))).await;
    opened.into_iter().map(|response| response.unwrap().into_body()).collect()
}

#[tokio::test(start_paused = true)]
async fn informers_notice_a_stopped_server_within_45_seconds() {
    let server = server();
    let pipes = Pipes::to(&server, 250);
    let factory = SharedInformerFactory::new(pipes.client());
    let maps = factory.informer::<ConfigMap>();
    let (secrets, services) = (factory.informer::<Secret>(), factory.informer::<KubeService>());
    factory.start();
    factory.wait_for_sync().await.unwrap();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(pipes.made(), 1, "three informers share a connection, and pings keep it");

    pipes.stop_all();
    let stopped = Instant::now();
    create(&api(&server), "late", "1").await;
    while maps.lister().namespace("default").get("late").is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(stopped.elapsed() < Duration::from_secs(45), "the change was not seen in 45 s");
    }
    assert_eq!(pipes.made(), 2, "the three watches moved to one new connection");
    drop((secrets, services));
    factory.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn all_streams_of_a_dead_connection_fail_together() {
    let pipes = Pipes::to(&server(), 250);
    let bodies = watches(&pipes.client(), 20).await;
    pipes.stop_all();
    let stopped = Instant::now();
    let ends = join_all(bodies.into_iter().map(|body| body.collect())).await;
    assert!(ends.iter().all(Result::is_err), "a watch of a dead connection ends with an error");
    assert!(stopped.elapsed() < Duration::from_secs(45), "after {:?}", stopped.elapsed());
    assert_eq!(pipes.made(), 1);
}

#[tokio::test(start_paused = true)]
async fn three_hundred_watches_use_five_connections() {
    let pipes = Pipes::to(&server(), 250);
    let client = pipes.client();
    let bodies = watches(&client, 300).await;
    assert_eq!(pipes.made(), 5, "64 streams on each");
    drop(bodies);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _bodies = watches(&client, 64).await;
    assert_eq!(pipes.made(), 5, "a connection with free streams is used again");
}

#[tokio::test(start_paused = true)]
async fn server_limit_on_streams_opens_further_connections() {
    let pipes = Pipes::to(&server(), 10);
    let _bodies = watches(&pipes.client(), 25).await;
    assert_eq!(pipes.made(), 3, "no watch waits for another one to end");
}

/// Pipes whose first connection works for a second; the others are served by `later`.
fn failing_after_the_first(later: impl Fn(TokioIo<DuplexStream>) + Send + Sync + 'static) -> Pipes {
    let (server, connections) = (server(), AtomicUsize::new(0));
    Pipes::new(true, move |io| {
        if connections.fetch_add(1, Ordering::Relaxed) > 0 {
            return later(io);
        }
        let service = TowerToHyperService::new(server.clone());
        let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(io, service);
        tokio::spawn(tokio::time::timeout(Duration::from_secs(1), connection));
    })
}

/// Reads the preface and frames of HTTP/2 until the headers of a request.
async fn read_headers(io: &mut DuplexStream) -> io::Result<()> {
    const PREFACE: usize = 24;
    const HEADERS: u8 = 1;
    io.read_exact(&mut [0; PREFACE]).await?;
    loop {
        let mut head = [0; 9];
        io.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        io.read_exact(&mut vec![0; length as usize]).await?;
        if head[3] == HEADERS {
            return Ok(());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn later_connection_does_not_wait_for_settings() {
    let asked = watch::Sender::new(false);
    let mut asks = asked.subscribe();
    // The server sends nothing, not even its settings.
    let pipes = failing_after_the_first(move |io| {
        let (mut io, asked) = (io.into_inner(), asked.clone());
        tokio::spawn(async move {
            asked.send_replace(read_headers(&mut io).await.is_ok());
            std::future::pending::<()>().await;
        });
    });
    let client = pipes.client();
    let _ = watches(&client, 1).await.pop().unwrap().collect().await;
    let began = Instant::now();
    tokio::select! {
        _ = open(&client, WATCH) => panic!("nothing was answered"),
        asked = asks.wait_for(|asked| *asked) => assert!(asked.is_ok()),
    }
    assert!(began.elapsed() < Duration::from_secs(1), "after {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn server_that_closes_every_connection_is_not_asked_without_pause() {
    let pipes = failing_after_the_first(drop);
    let client = pipes.client();
    let _ = watches(&client, 1).await.pop().unwrap().collect().await;
    assert!(open(&client, WATCH).await.is_err());
    assert!(pipes.made() <= 4, "{} connections for one request", pipes.made());
}

#[tokio::test(start_paused = true)]
async fn quiet_watch_outlives_a_short_read_timeout() {
    let pipes = Pipes::to(&server(), 250);
    let mut config = config();
    config.read_timeout = Some(Duration::from_secs(6));
    let client = client_over(&config, pipes.clone()).unwrap();
    let mut bodies = watches(&client, 1).await;
    let frames = async { while bodies[0].frame().await.is_some_and(|frame| frame.is_ok()) {} };
    let ended = tokio::time::timeout(Duration::from_secs(50), frames).await;
    assert!(ended.is_err(), "the watch ended although the server answered pings");
    assert_eq!(pipes.made(), 1);
}

#[tokio::test(start_paused = true)]
async fn unread_streams_do_not_stop_others() {
    // Every answer is 2 MB, which is more than a stream's window.
    let pipes = Pipes::new(true, |io| {
        let service = service_fn(|_: Request<hyper::body::Incoming>| async {
            let chunks = (0..32).map(|_| Ok::<_, io::Error>(Frame::data(Bytes::from(vec![b'x'; 64 << 10]))));
            Ok::<_, io::Error>(Response::new(StreamBody::new(stream::iter(chunks))))
        });
        let http = http2::Builder::new(TokioExecutor::new());
        tokio::spawn(http.serve_connection(io, TowerToHyperService::new(service)));
    });
    let client = pipes.client();
    let unread = watches(&client, 63).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let body = watches(&client, 1).await.pop().unwrap();
    let read = tokio::time::timeout(Duration::from_secs(10), body.collect()).await;
    assert_eq!(read.expect("a stream starved").unwrap().to_bytes().len(), 2 << 20);
    assert_eq!(pipes.made(), 1);
    drop(unread);
}

#[tokio::test(start_paused = true)]
async fn server_without_http2_gets_http1() {
    let server = server();
    let pipes = Pipes::new(false, move |io| {
        let service = TowerToHyperService::new(server.clone());
        tokio::spawn(http1::Builder::new().timer(TokioTimer::new()).serve_connection(io, service));
    });
    let client = pipes.client();
    let _bodies = watches(&client, 3).await;
    assert_eq!(pipes.made(), 4, "one that showed that there is no HTTP/2, and one for each watch");
}

#[tokio::test(start_paused = true)]
async fn failed_connection_fails_all_who_wait_for_it() {
    let made = Arc::new(AtomicUsize::new(0));
    let counter = made.clone();
    let refuse = service_fn(move |_: Uri| {
        counter.fetch_add(1, Ordering::Relaxed);
        async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Err::<Pipe, _>(io::Error::from(io::ErrorKind::ConnectionRefused))
        }
    });
    let client = client_over(&config(), refuse).unwrap();
    let began = Instant::now();
    let answers = join_all((0..20).map(|_| open(&client, WATCH))).await;
    assert!(answers.iter().all(Result::is_err));
    assert_eq!(made.load(Ordering::Relaxed), 1, "twenty requests, one attempt");
    assert_eq!(began.elapsed().as_secs(), 10, "nobody waits for an attempt of their own");
}

#[tokio::test]
async fn informers_share_one_tls_connection() {
    let server = server();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let (counter, served) = (accepted.clone(), server.clone());
    tokio::spawn(async move {
        let tls = tokio_rustls::TlsAcceptor::from(Arc::new(tls()));
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
            let (tls, service) = (tls.clone(), TowerToHyperService::new(served.clone()));
            tokio::spawn(async move {
                let Ok(tls) = tls.accept(tcp).await else { return };
                let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
                let io = TokioIo::new(tls);
                if http2 {
                    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
                } else {
                    let _ = http1::Builder::new().serve_connection(io, service).await;
                }
            });
        }
    });
    let mut config = Config::new(format!("https://{address}").parse().unwrap());
    config.tls_server_name = Some("apiserver.test".into());
    let certificate = pem(include_str!("tls/cert.pem"));
    config.root_cert = Some(vec![certificate]);
    let client = client_for_informers(config).unwrap();
    let _bodies = watches(&client, 20).await;
    assert_eq!(accepted.load(Ordering::Relaxed), 1, "connections for 20 watches");
}

fn tls() -> tokio_rustls::rustls::ServerConfig {
    use tokio_rustls::rustls::{ServerConfig, pki_types::PrivateKeyDer};
    let key = PrivateKeyDer::try_from(pem(include_str!("tls/key.pem"))).unwrap();
    let chain = vec![pem(include_str!("tls/cert.pem")).into()];
    let mut tls = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    tls
}

/// The bytes of a PEM file with one block. `tls/` holds a self-signed certificate for `apiserver.test` and its key:
/// `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 -addext subjectAltName=DNS:apiserver.test`.
fn pem(text: &str) -> Vec<u8> {
    use base64::Engine;
    let base64: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    base64::prelude::BASE64_STANDARD.decode(base64).unwrap()
}
