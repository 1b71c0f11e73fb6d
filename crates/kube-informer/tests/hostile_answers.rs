//! Answers that want to harm: compressed without being asked for, far larger than they look, or made to be logged.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::Full;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube_client::client::Body;
use kube_informer::source::{KubeSource, ListRequest, ListWatch, SourceError};
use kube_informer::{InformerOptions, Kind, SharedInformerFactory};
use kube_wire::gzip::{MAX_STEP, member};
use serde_json::json;

/// A source whose server answers every request with this.
fn source(status: u16, encoding: Option<&'static str>, body: Vec<u8>) -> KubeSource {
    let body = Bytes::from(body);
    let answer = tower::service_fn(move |_: http::Request<Body>| {
        let mut response = http::Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .header("retry-after", "7");
        if let Some(encoding) = encoding {
            response = response.header("content-encoding", encoding);
        }
        let response = response.body(Full::new(body.clone())).unwrap();
        async move { Ok::<_, Infallible>(response) }
    });
    KubeSource::new(kube_client::Client::new(answer, "default"), Kind::of::<Pod>())
}

async fn refusal(source: &KubeSource) -> SourceError {
    source.list(ListRequest::default()).await.map(drop).unwrap_err()
}

/// All causes on one line.
fn said(error: &SourceError) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    format!("{error}: {}", cause.unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn compression_that_was_not_asked_for_is_refused() {
    let list = br#"{"metadata":{"resourceVersion":"1"},"items":[]}"#;
    for encoding in ["gzip", "GZIP", "deflate", "gzip, gzip", "\tbr"] {
        let error = said(&refusal(&source(200, Some(encoding), member(list))).await);
        assert!(
            error.contains("Content-Encoding") && error.contains("\"identity\" was asked for"),
            "{error}"
        );
    }
    let error = said(&refusal(&source(200, Some("deflate"), member(list)).gzip()).await);
    assert!(error.contains("\"gzip\" was asked for"), "{error}");
    for (encoding, gzip) in [(None, false), (Some("identity"), false), (None, true), (Some("gzip"), true)] {
        let packed = encoding == Some("gzip");
        let source = source(200, encoding, if packed { member(list) } else { list.to_vec() });
        let source = if gzip { source.gzip() } else { source };
        let body = source.list(ListRequest::default()).await.unwrap().body;
        let chunks: Vec<_> = body.map(Result::unwrap).collect().await;
        assert_eq!(chunks.concat(), list, "{encoding:?} {gzip}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bomb_is_unpacked_in_small_pieces() {
    let plain = 8 << 20;
    let bomb = member(&vec![b' '; plain]);
    assert!(bomb.len() < 64 << 10);
    let answer = source(200, Some("gzip"), bomb).gzip().list(ListRequest::default()).await.unwrap();
    let mut body = answer.body;
    let (mut largest, mut total) = (0, 0);
    while let Some(chunk) = body.next().await {
        let chunk = chunk.unwrap();
        largest = largest.max(chunk.len());
        total += chunk.len();
    }
    assert_eq!(total, plain);
    assert!(largest <= MAX_STEP, "{largest}");
}

#[tokio::test(start_paused = true)]
async fn compressed_errors_are_read_up_to_a_limit() {
    let status =
        json!({"kind": "Status", "reason": "Expired", "message": "too old", "code": 410}).to_string();
    let error = refusal(&source(410, Some("gzip"), member(status.as_bytes())).gzip()).await;
    assert!(error.is_expired() && error.to_string().contains("too old"), "{error}");
    let error = refusal(&source(410, Some("gzip"), member(status.as_bytes()))).await;
    assert!(error.is_expired(), "the code says it: {error}");
    let error = refusal(&source(500, Some("gzip"), member(&vec![b'x'; 4 << 20])).gzip()).await;
    assert!(error.to_string().len() < 300, "{}", error.to_string().len());
}

#[tokio::test(start_paused = true)]
async fn error_bodies_cannot_write_log_lines() {
    let body = b"<html>\n2026-11-16 INFO everything is fine\x1b[2J\r\n".to_vec();
    let error = refusal(&source(502, None, body)).await.to_string();
    assert!(!error.chars().any(char::is_control), "{error:?}");
    assert!(error.starts_with(r"HTTP 502: <html>\n2026-11-16 INFO"), "{error}");
    let status = json!({"kind": "Status", "reason": "a\nb", "message": "c\nd", "code": 500}).to_string();
    let error = refusal(&source(500, None, status.into_bytes())).await;
    assert!(!format!("{error}{}", error.reason()).chars().any(char::is_control), "{error:?}");
}

/// The password stands where a map should be.
#[tokio::test(start_paused = true)]
async fn decode_errors_show_the_place_and_not_the_value() {
    let list = json!({
        "kind": "SecretList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
        "items": [{"metadata": {"name": "s", "namespace": "default", "resourceVersion": "1"}, "data": "hunter2"}],
    });
    let body = Bytes::from(list.to_string());
    let answer = tower::service_fn(move |request: http::Request<Body>| {
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let body = body.clone();
        async move {
            if watch {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(http::Response::new(Full::new(body)))
        }
    });
    let options = InformerOptions::default().json();
    let factory = SharedInformerFactory::with_defaults(kube_client::Client::new(answer, "default"), options);
    let informer = factory.informer::<Secret>();
    factory.start();
    // The first request may be a streaming list that is never answered.
    tokio::time::timeout(std::time::Duration::from_mins(30), informer.wait_for_sync())
        .await
        .unwrap()
        .unwrap();
    let secret = informer.lister().get("default/s").unwrap();
    let error = secret.get().map(drop).unwrap_err().to_string();
    assert!(error.contains(".data: invalid type: string, expected a map"), "{error}");
    for text in [error, format!("{secret:?}"), format!("{informer:?}"), format!("{:?}", informer.stats())] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    let entry = kube_informer::object::Entry::from_json(
        &std::sync::Arc::new(Kind::of::<Secret>()),
        br#"{"metadata":{"name":"s","resourceVersion":"1","labels":"hunter2"}}"#,
    );
    if let Err(error) = entry {
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn time_to_wait_is_read_from_the_header_where_the_body_says_nothing() {
    for (code, body) in [(429, "slow down"), (503, ""), (500, "{}")] {
        let error = refusal(&source(code, None, body.into())).await;
        assert_eq!(error.retry_after(), Some(std::time::Duration::from_secs(7)), "{code}");
    }
}
