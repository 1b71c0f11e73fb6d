//! What is around the resources: discovery, version, health, compression, limits.

mod common;

use common::{MAPS, config_map, create, get, send, send_with, server};
use http_body_util::BodyExt;
use kube_informer_apiserver::ApiServer;
use serde_json::{Value, json};

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

#[tokio::test(start_paused = true)]
async fn discovery_lists_groups_versions_and_resources() {
    let server = server();
    for path in ["/api", "/api/"] {
        assert_eq!(get(&server, path).await.json()["versions"], json!(["v1"]));
    }
    let groups = get(&server, "/apis").await.json();
    assert_eq!(groups["kind"], "APIGroupList");
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "apps"));
    assert_eq!(get(&server, "/apis/apps").await.json()["preferredVersion"]["groupVersion"], "apps/v1");
    let core = get(&server, "/api/v1").await.json();
    assert_eq!(core.get("apiVersion"), None, "as the real server does");
    let resources = core["resources"].as_array().unwrap();
    let names: Vec<_> = resources.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"pods") && names.contains(&"pods/status") && !names.contains(&"pods/log"));
    let pods = resources.iter().find(|row| row["name"] == "pods").unwrap();
    assert_eq!((&pods["shortNames"], &pods["namespaced"]), (&json!(["po"]), &json!(true)));
    assert_eq!(get(&server, "/apis/apps/v1").await.json()["apiVersion"], "v1");
    assert_eq!(send(&server, "POST", "/apis", &Value::Null).await.code, 405);
}

#[tokio::test(start_paused = true)]
async fn aggregated_discovery_is_revalidated_by_its_tag() {
    let server = server();
    let answer = send_with(&server, "GET", "/apis", &[("accept", AGGREGATED)], "").await;
    assert_eq!(
        answer.headers["content-type"],
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    assert_eq!(
        (&answer.headers["vary"], &answer.headers["cache-control"]),
        (&"Accept".parse().unwrap(), &"public".parse().unwrap())
    );
    let items = answer.json()["items"].as_array().unwrap().clone();
    let apps = items.iter().find(|item| item["metadata"]["name"] == "apps").unwrap();
    assert_eq!(apps["versions"][0]["resources"].as_array().unwrap().len(), 5);
    let tag = answer.headers["etag"].to_str().unwrap();
    let headers = [("accept", AGGREGATED), ("if-none-match", tag)];
    let again = send_with(&server, "GET", "/apis", &headers, "").await;
    assert_eq!((again.code, again.bytes.len()), (304, 0));
    let core = send_with(&server, "GET", "/api", &headers, "").await;
    assert_eq!((core.code, &core.json()["items"][0]["versions"][0]["version"]), (200, &json!("v1")));
}

#[tokio::test(start_paused = true)]
async fn version_and_health_are_told() {
    let server = server();
    for path in ["/version", "/version/"] {
        let version = get(&server, path).await.json();
        assert_eq!(
            (version["gitVersion"].as_str(), version["minor"].as_str()),
            (Some("v1.37.1"), Some("37"))
        );
    }
    for path in ["/healthz", "/livez", "/readyz", "/readyz?verbose"] {
        let answer = get(&server, path).await;
        assert_eq!((answer.code, &answer.bytes[..]), (200, &b"ok"[..]), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn large_lists_are_compressed_for_those_who_take_it() {
    let server = server();
    let gzip = [("accept-encoding", "gzip")];
    create(&server, MAPS, &config_map("small")).await;
    assert!(!send_with(&server, "GET", MAPS, &gzip, "").await.headers.contains_key("content-encoding"));
    for i in 0..40 {
        let object = json!({ "metadata": { "name": format!("m{i}") }, "data": { "k": "v".repeat(10_000) } });
        create(&server, MAPS, &object).await;
    }
    let plain = get(&server, MAPS).await;
    assert!(!plain.headers.contains_key("content-encoding"));
    assert_eq!(plain.names().len(), 41);
    let packed = send_with(&server, "GET", MAPS, &gzip, "").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(packed.bytes.len() < plain.bytes.len() / 10);
    let mut gunzip = kube_wire::gzip::Gunzip::default();
    let (mut rest, mut unpacked) = (packed.bytes.clone(), Vec::new());
    while !rest.is_empty() {
        unpacked.extend_from_slice(&gunzip.push(&mut rest).unwrap());
    }
    assert_eq!(unpacked, plain.bytes);
    let refused = send_with(&server, "GET", MAPS, &[("accept-encoding", "gzip;q=0")], "").await;
    assert!(!refused.headers.contains_key("content-encoding"));
}

#[tokio::test(start_paused = true)]
async fn bodies_headers_and_numbers_are_limited() {
    let server = ApiServer::builder().max_body(1000).max_requests(2).build();
    let large = json!({ "metadata": { "name": "a" }, "data": { "k": "v".repeat(1000) } });
    let answer = send(&server, "POST", MAPS, &large).await;
    assert_eq!((answer.code, answer.json()["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    let header = "x".repeat(1024 * 1024);
    let answer = send_with(&server, "GET", MAPS, &[("x-large", &header)], "").await;
    assert_eq!(answer.code, 431);
    // Two requests wait for a version of the future; the third is one too many.
    let path = format!("{MAPS}?resourceVersion=1000000");
    let (first, second, third) = tokio::join!(get(&server, &path), get(&server, &path), get(&server, MAPS));
    assert_eq!((first.code, second.code, third.code), (504, 504, 429));
    assert_eq!(third.headers["retry-after"], "1");
    assert_eq!(get(&server, MAPS).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn everything_is_counted() {
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    let answer = get(&server, MAPS).await;
    get(&server, "/version").await;
    get(&server, "/api/v1/nonsense").await;
    let stats = server.stats();
    assert_eq!(stats.resource("configmaps").lists, 1);
    assert_eq!(stats.resource("").gets + stats.resource("").lists, 2);
    let before = stats.resource("configmaps").bytes_out;
    get(&server, MAPS).await;
    assert_eq!(server.stats().resource("configmaps").bytes_out - before, answer.bytes.len() as u64);
    assert_eq!(server.stats().total().creates, 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_watch_frees_everything() {
    let server = server();
    let answer = common::open(&server, "GET", &format!("{MAPS}?watch=true"), &[], b"").await;
    assert_eq!(server.stats().open_watches, 1);
    let mut body = answer.into_body();
    create(&server, MAPS, &config_map("a")).await;
    assert!(body.frame().await.is_some());
    drop(body);
    assert_eq!(server.stats().open_watches, 0);
}

#[tokio::test(start_paused = true)]
async fn people_get_it_indented() {
    let server = server();
    let path = "/api/v1/namespaces/default";
    assert!(!get(&server, path).await.bytes.contains(&b'\n'));
    for (query, agent, lines) in
        [("?pretty=true", "x", true), ("", "curl/8.5.0", true), ("?pretty=false", "curl/8.5.0", false)]
    {
        let answer = send_with(&server, "GET", &format!("{path}{query}"), &[("user-agent", agent)], "").await;
        assert_eq!(answer.bytes.starts_with(b"{\n  \"kind\": \"Namespace\",\n"), lines, "{query} {agent}");
        assert_eq!(answer.json()["metadata"]["name"], "default");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_comes_is_not_waited_for() {
    let server = server();
    let never = http_body_util::StreamBody::new(futures_util::stream::pending::<
        Result<http_body::Frame<bytes::Bytes>, std::io::Error>,
    >());
    let start = tokio::time::Instant::now();
    let answer = server.handle(http::Request::post(MAPS).body(never).unwrap()).await;
    assert_eq!((answer.status().as_u16(), start.elapsed().as_secs()), (408, 60));
}
