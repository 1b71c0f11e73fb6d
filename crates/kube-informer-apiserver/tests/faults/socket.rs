//! The same faults over a socket, where a client sees closed connections and broken chunks. In real time, but nothing
//! here depends on how long it takes.

use std::time::Duration;

use kube_informer_apiserver::ApiServer;
use kube_informer_apiserver::faults::{Fault, Faults, Script};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::{PODS, WATCH};

/// A request as bytes, and all the bytes that come back until the server closes, or until `enough` have come.
async fn exchange(script: &str, uri: &str, enough: usize) -> (String, bool, Faults) {
    let faults = Faults::from(script.parse::<Script>().unwrap());
    let server = ApiServer::builder().faults(faults.clone()).build();
    let serving = server.serve(([127, 0, 0, 1], 0)).await.unwrap();
    let mut socket = TcpStream::connect(serving.address()).await.unwrap();
    let request = format!("GET {uri} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let (mut heard, mut buffer, mut closed) = (Vec::new(), [0; 4096], false);
    while heard.len() < enough && !closed {
        // A reset is as good as an end here.
        match socket.read(&mut buffer).await {
            Ok(len) if len > 0 => heard.extend_from_slice(&buffer[..len]),
            _ => closed = true,
        }
    }
    drop(socket);
    serving.shutdown().await;
    (String::from_utf8_lossy(&heard).into_owned(), closed, faults)
}

/// The last chunk of a body that ended as it should.
const END: &str = "\r\n0\r\n\r\n";

#[tokio::test]
async fn refused_over_a_socket() {
    let (heard, closed, faults) = exchange("any: refuse", PODS, usize::MAX).await;
    assert_eq!((heard.as_str(), closed), ("", true));
    assert_eq!(faults.count(Fault::Refuse), 1);
}

#[tokio::test]
async fn cut_over_a_socket() {
    let (heard, closed, _) = exchange("any: cut", PODS, usize::MAX).await;
    assert_eq!((heard.as_str(), closed), ("", true));
    let (heard, closed, _) = exchange("any: cut-stream", WATCH, usize::MAX).await;
    assert!(closed && heard.starts_with("HTTP/1.1 200") && !heard.ends_with(END), "{heard}");
    let (heard, closed, _) = exchange("any: cut-frame", "/api/v1/namespaces", usize::MAX).await;
    assert!(closed && heard.contains("\"kind\":\"NamespaceList\"") && !heard.ends_with(END), "{heard}");
}

#[tokio::test]
async fn stalled_over_a_socket() {
    let uri = "/api/v1/namespaces";
    let whole = exchange("any: delay 1ms", uri, usize::MAX).await.0;
    assert!(whole.contains("kube-system"));
    // The headers come, and nothing else: a reader waits for as long as it likes.
    let stalled = exchange("any: stall-stream", uri, usize::MAX);
    assert!(tokio::time::timeout(Duration::from_millis(200), stalled).await.is_err());
    let (heard, closed, faults) = exchange("any: stall-stream", uri, 1).await;
    assert!(heard.starts_with("HTTP/1.1 200") && !closed, "{heard}");
    assert_eq!(faults.count(Fault::StallStream), 1);
}

#[tokio::test]
async fn dripped_over_a_socket() {
    let script = "any: drip 1 bytes per 1ms\nany: end-stream after 1 events";
    let (heard, _, faults) = exchange(script, "/api/v1/namespaces", usize::MAX).await;
    let body = heard.split_once("\r\n\r\n").unwrap().1;
    assert!(body.starts_with("1\r\n{\r\n1\r\n"), "chunks of one byte: {body}");
    assert_eq!(
        (faults.count(Fault::Drip { bytes: 0, every: Duration::ZERO }), faults.count(Fault::EndStream)),
        (1, 1)
    );
}
