//! The HTTP client for informers: HTTP/2 with pings, and no layer that retries or unpacks on its own.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::uri::Scheme;
use http::{HeaderValue, Uri};
use hyper::rt::{Read, Write};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use kube_client::client::{ClientBuilder, ConfigExt};
use kube_client::{Client, Config, Error};
use percent_encoding::percent_decode_str;
use tower::{BoxError, Service, ServiceBuilder};

use super::connections::{Connections, Pings};

/// A silent connection is found dead within 35 s: 20 s without a frame, then 15 s without an answer to a ping.
const PINGS: Pings = Pings { interval: Duration::from_secs(20), timeout: Duration::from_secs(15) };

/// A client for informers: one HTTP/2 connection for all of them, a dead one found within 45 s, and failures seen at once.
///
/// - Over `https://`, requests and watches share connections, at most 64 at a time on each. The client pings a connection
///   that is silent for 20 s, and closes it after 15 s without an answer: also when only the server's process is stopped, which
///   TCP keep-alive does not notice. Servers that do not speak HTTP/2 get HTTP/1.1.
/// - Over `http://` it speaks HTTP/1.1, one connection per watch. TCP keep-alive finds a dead machine, not a stopped process.
/// - It does not retry: by default `kube_client` retries 429, 503 and 504 by itself, up to 15 times, so that an informer learns
///   of trouble late and cannot obey Retry-After.
/// - It does not decompress: where `kube_client`'s `gzip` feature is on, it reads only the first gzip member of a stream.
///
/// Credentials, proxies, headers, timeouts and TLS settings are those of the configuration, as for `Client::try_from`. A
/// `read_timeout` counts pings as life, so it does not end a quiet watch over HTTP/2. docs/connections.md has the details.
///
/// # Errors
/// As `Client::try_from`.
///
/// # Panics
/// Outside of a tokio runtime, as `Client::try_from`.
pub fn client_for_informers(mut config: Config) -> Result<Client, Error> {
    config.default_retry = false;
    config.disable_compression = true;
    let tls = config.cluster_url.scheme() == Some(&Scheme::HTTPS);
    let tls = tls || config.proxy_url.as_ref().is_some_and(|proxy| proxy.scheme() == Some(&Scheme::HTTPS));
    if tls && !cfg!(feature = "rustls-tls") {
        // With the TLS that the application has chosen for kube-client.
        return Client::try_from(config);
    }
    let tcp = tcp();
    let Some(proxy) = config.proxy_url.clone() else { return over_tcp(&config, tcp) };
    match proxy.scheme_str() {
        Some("socks5") => over_tcp(&config, SocksV5::new(proxy, tcp)),
        Some("http") => over_tcp(&config, tunnel(proxy, tcp)),
        #[cfg(feature = "rustls-tls")]
        Some("https") => {
            let tls = config.rustls_https_connector_with_connector(tcp)?;
            over_tcp(&config, tunnel(proxy, tls))
        }
        _ => Err(Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy) }),
    }
}

/// As [`client_for_informers`], over connections that `connector` makes: through a tunnel, a Unix socket, TLS of one's own, or
/// memory in a test.
///
/// Proxy and TLS settings of the configuration are not used. A connection whose
/// [`connected`](Connection::connected) says that HTTP/2 was negotiated is shared and pinged; others get HTTP/1.1.
///
/// # Errors
/// Where credentials or headers of the configuration make no sense.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn client_over<C>(config: &Config, connector: C) -> Result<Client, Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    client_over_both(config, connector.clone(), connector)
}

fn client_over_both<C>(config: &Config, connector: C, http1: C) -> Result<Client, Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let mut pings = PINGS;
    if let Some(limit) = config.read_timeout {
        // The answer to a ping must come before the connection counts as silent.
        pings.interval = pings.interval.min(limit / 2);
    }
    let timed = |connector| {
        let mut timed = TimeoutConnector::new(connector);
        timed.set_connect_timeout(config.connect_timeout);
        timed.set_read_timeout(config.read_timeout);
        timed.set_write_timeout(config.write_timeout);
        timed.set_reset_reader_on_write(config.reset_reader_on_write);
        timed
    };
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(Connections::new(timed(connector), timed(http1), pings));
    let client = ClientBuilder::new(service, config.default_namespace.clone());
    if config.auth_info.exec.is_some() {
        // Only kube-client can tell when credentials of a plugin expire.
        let mut theirs = config.clone();
        theirs.proxy_url = None;
        return Ok(client.with_valid_until(*Client::try_from(theirs)?.valid_until()).build());
    }
    Ok(client.build())
}

#[cfg(feature = "rustls-tls")]
fn over_tcp<C>(config: &Config, connector: C) -> Result<Client, Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    use kube_client::client::RustlsTlsError;

    // Where the build has several TLS providers, kube-client chooses one for the process when it makes a client.
    let mut bare = Config::new(Uri::default());
    bare.root_cert = Some(vec![]);
    drop(ClientBuilder::try_from(bare));
    let http1 = config.rustls_https_connector_with_connector(connector.clone())?;
    let tls = config.rustls_client_config()?;
    let mut builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(RustlsTlsError::InvalidServerName);
        let resolver = hyper_rustls::FixedServerNameResolver::new(name.map_err(Error::RustlsTls)?);
        builder = builder.with_server_name_resolver(resolver);
    }
    client_over_both(config, builder.enable_all_versions().wrap_connector(connector), http1)
}

#[cfg(not(feature = "rustls-tls"))]
fn over_tcp<C>(config: &Config, connector: C) -> Result<Client, Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    client_over(config, connector)
}

/// TCP that finds a dead machine within 45 s, whether bytes are under way to it or not.
fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(PINGS.interval));
    tcp.set_keepalive_interval(Some(PINGS.timeout / 3));
    tcp.set_keepalive_retries(Some(3));
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    tcp.set_tcp_user_timeout(Some(PINGS.interval + PINGS.timeout));
    tcp
}

/// A tunnel through an HTTP proxy, with the user and password of its URL.
fn tunnel<C>(proxy: Uri, connector: C) -> Tunnel<C> {
    let user = proxy.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
    let user = user.map(|(user, _)| percent_decode_str(user).collect::<Vec<u8>>());
    let tunnel = Tunnel::new(proxy, connector);
    let Some(user) = user else { return tunnel };
    let value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(user)));
    let mut value = value.expect("base64 is valid in a header");
    value.set_sensitive(true);
    tunnel.with_auth(value)
}
