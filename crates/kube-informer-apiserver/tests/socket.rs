//! The server on a socket, spoken to in plain bytes.

mod common;

use common::{MAPS, config_map};
use kube_informer_apiserver::{ApiServer, ServeError, Serving};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

async fn connect(serving: &Serving) -> TcpStream {
    TcpStream::connect(serving.address()).await.unwrap()
}

/// Sends bytes and reads all that comes until the server closes the connection.
async fn exchange(serving: &Serving, request: &str) -> String {
    let mut stream = connect(serving).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Reads until the text contains what is waited for.
async fn read_until(stream: &mut TcpStream, text: &mut String, wanted: &str) {
    let mut buffer = [0; 4096];
    while !text.contains(wanted) {
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "the connection ended before {wanted:?}: {text}");
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
}

#[tokio::test]
async fn plain_bytes_are_answered() {
    let server = common::server();
    let serving = server.serve(LOOPBACK).await.unwrap();
    let body = config_map("a").to_string();
    let created = exchange(
        &serving,
        &format!(
            "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ),
    )
    .await;
    assert!(created.starts_with("HTTP/1.1 201 Created\r\n"), "{created}");
    let list =
        exchange(&serving, &format!("GET {MAPS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
            .await;
    assert!(
        list.contains("content-type: application/json\r\n") && list.contains("\"kind\":\"ConfigMapList\""),
        "{list}"
    );
    let missing =
        exchange(&serving, "GET /nope HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(missing.starts_with("HTTP/1.1 404 ") && missing.ends_with("404 page not found\n"), "{missing}");
    let nonsense = exchange(&serving, "\0\u{1}\u{2}\r\n\r\n").await;
    assert!(nonsense.starts_with("HTTP/1.1 400 "), "{nonsense}");
    serving.shutdown().await;
}

#[tokio::test]
async fn a_watch_is_a_chunk_for_each_event_and_ends_with_its_connection() {
    let server = common::server();
    let serving = server.serve(LOOPBACK).await.unwrap();
    let mut stream = connect(&serving).await;
    stream
        .write_all(format!("GET {MAPS}?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut text = String::new();
    read_until(&mut stream, &mut text, "transfer-encoding: chunked").await;
    common::create(&server, MAPS, &config_map("a")).await;
    read_until(&mut stream, &mut text, "{\"type\":\"ADDED\"").await;
    assert_eq!(server.stats().open_watches, 1);
    drop(stream);
    while server.stats().open_watches > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    serving.shutdown().await;
}

#[tokio::test]
async fn dropping_the_handle_closes_socket_and_connections() {
    let server = common::server();
    let serving = server.serve(LOOPBACK).await.unwrap();
    let address = serving.address();
    let mut stream = connect(&serving).await;
    stream
        .write_all(format!("GET {MAPS}?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut text = String::new();
    read_until(&mut stream, &mut text, "200 OK").await;
    drop(serving);
    let mut rest = Vec::new();
    // An end or a reset: either way nothing more comes.
    let _ = stream.read_to_end(&mut rest).await;
    while TcpStream::connect(address).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(server.stats().open_watches, 0);
}

#[tokio::test]
async fn only_loopback_unless_told_otherwise() {
    let anywhere = ([0, 0, 0, 0], 0);
    let refused = ApiServer::new().serve(anywhere).await.unwrap_err();
    assert!(matches!(refused, ServeError::NotLoopback(_)));
    assert!(refused.to_string().contains("allow_remote()"), "{refused}");
    let serving = ApiServer::builder().allow_remote().build().serve(anywhere).await.unwrap();
    let taken = ApiServer::new().serve(([127, 0, 0, 1], serving.address().port())).await.unwrap_err();
    assert!(matches!(taken, ServeError::Listen { .. }), "{taken}");
}

/// The status line's code of one request, and whether the body is a `Status`.
async fn code(serving: &Serving, request: &str) -> u16 {
    let answer = exchange(serving, request).await;
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
    assert!(code == 200 || code == 201 || answer.contains("\"kind\":\"Status\""), "{answer}");
    code
}

fn read_secrets(target: &str, headers: &str) -> String {
    format!("GET {target}/api/v1/secrets HTTP/1.1\r\n{headers}Connection: close\r\n\r\n")
}

#[tokio::test]
async fn other_hosts_are_refused() {
    let server = common::server();
    let serving = server.serve(LOOPBACK).await.unwrap();
    let port = serving.address().port();
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", &format!("127.0.0.1:{port}"), "[::1]", "[::1]:80"] {
        let request = read_secrets("", &format!("Host: {host}\r\n"));
        assert_eq!(code(&serving, &request).await, 200, "{host}");
    }
    for host in ["evil.example", "evil.example:80", "localhost.evil.example", "10.0.0.1", "[::2]", "0.0.0.0"]
    {
        let request = read_secrets("", &format!("Host: {host}\r\n"));
        assert_eq!(code(&serving, &request).await, 403, "{host}");
        let absolute = read_secrets(&format!("http://{host}"), &format!("Host: {host}\r\n"));
        assert_eq!(code(&serving, &absolute).await, 403, "{host}");
    }
    for headers in ["", "Host: localhost\r\nHost: evil.example\r\n", "Host: evil@localhost\r\n", "Host: \r\n"]
    {
        assert_eq!(code(&serving, &read_secrets("", headers)).await, 400, "{headers:?}");
    }
    let two = read_secrets("http://evil.example", "Host: localhost\r\n");
    assert_eq!(code(&serving, &two).await, 400, "URI and header disagree");
    assert_eq!(server.stats().resource("secrets").lists, 6, "the others never reached the server");
    let request = http::Request::get("http://evil.example/api/v1/secrets").header("host", "evil.example");
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    assert_eq!(server.handle(request).await.status(), 200, "in the process any host will do");
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let server = common::server();
    let serving = server.serve(LOOPBACK).await.unwrap();
    let host = format!("127.0.0.1:{}", serving.address().port());
    let body = config_map("a").to_string();
    let post = |origin: &str| {
        format!(
            "POST {MAPS} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{origin}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for origin in ["http://evil.example", "https://evil.example", "null", "http://127.0.0.1:1", "", "http://"]
    {
        assert_eq!(code(&serving, &post(&format!("Origin: {origin}\r\n"))).await, 403, "{origin}");
    }
    assert_eq!(common::get(&server, &format!("{MAPS}/a")).await.code, 404);
    assert_eq!(code(&serving, &post(&format!("Origin: http://{host}\r\n"))).await, 201, "its own");
    assert_eq!(code(&serving, &post("")).await, 409, "no page at all");
}

#[tokio::test]
async fn further_hosts_can_be_named() {
    let server = ApiServer::builder().allow_remote().allow_host("kube.test").build();
    let serving = server.serve(([0, 0, 0, 0], 0)).await.unwrap();
    for (host, expected) in
        [("kube.test:8080", 200), ("10.1.2.3:8080", 200), ("localhost", 200), ("evil.example", 403)]
    {
        let request = read_secrets("", &format!("Host: {host}\r\n"));
        assert_eq!(code(&serving, &request).await, expected, "{host}");
    }
}

#[tokio::test]
async fn a_kubeconfig_leads_to_the_server() {
    let server = common::server();
    let serving = server.serve(LOOPBACK).await.unwrap();
    let config = kube_client::config::Kubeconfig::from_yaml(&serving.kubeconfig()).unwrap();
    let config = kube_client::Config::from_custom_kubeconfig(
        config,
        &kube_client::config::KubeConfigOptions::default(),
    )
    .await
    .unwrap();
    assert_eq!(config.default_namespace, "default");
    let client = kube_client::Client::try_from(config).unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().git_version, "v1.37.1");
    drop(client);
    serving.shutdown().await;
}
