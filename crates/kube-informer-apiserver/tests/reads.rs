//! Gets and lists: selectors, pages, versions, metadata only.

mod common;

use std::time::Duration;

use common::{
    MAPS, PODS, config_map, create, delete, get, merge_patch, pod, send_with, server, update, version,
};
use kube_informer_apiserver::ApiServer;
use serde_json::{Value, json};

async fn maps(server: &ApiServer, names: &[&str]) {
    for name in names {
        create(server, MAPS, &config_map(name)).await;
    }
}

fn labelled(name: &str, labels: &Value) -> Value {
    json!({ "metadata": { "name": name, "labels": labels } })
}

#[tokio::test(start_paused = true)]
async fn lists_are_in_key_order_and_their_items_untyped() {
    let server = server();
    create(&server, "/api/v1/namespaces", &json!({ "metadata": { "name": "a" } })).await;
    maps(&server, &["b", "a", "a-b"]).await;
    create(&server, "/api/v1/namespaces/a/configmaps", &config_map("z")).await;
    let all = get(&server, "/api/v1/configmaps").await;
    assert_eq!(all.names(), ["z", "a", "a-b", "b"]);
    let json = all.json();
    assert_eq!((json["kind"].as_str(), json["apiVersion"].as_str()), (Some("ConfigMapList"), Some("v1")));
    assert_eq!(json["items"][0].get("kind"), None);
    assert_eq!(get(&server, "/api/v1/namespaces/a/configmaps").await.names(), ["z"]);
    assert!(get(&server, "/api/v1/namespaces/nowhere/configmaps").await.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn selectors_choose_by_labels_and_by_known_fields() {
    let server = server();
    create(&server, MAPS, &labelled("a", &json!({ "app": "web" }))).await;
    create(&server, MAPS, &labelled("b", &json!({ "app": "db" }))).await;
    assert_eq!(get(&server, &format!("{MAPS}?labelSelector=app%3Dweb")).await.names(), ["a"]);
    assert_eq!(get(&server, &format!("{MAPS}?labelSelector=app+notin+(web)")).await.names(), ["b"]);
    assert_eq!(
        get(&server, &format!("{MAPS}?fieldSelector=metadata.name%3Da,metadata.name%3Da,")).await.names(),
        ["a"]
    );
    assert_eq!(get(&server, &format!("{MAPS}?fieldSelector=metadata.name!%3Da")).await.names(), ["b"]);
    let bad = get(&server, &format!("{MAPS}?labelSelector=%3D%3D")).await;
    assert_eq!(bad.code, 400);
    assert!(bad.message().contains("found '==', expected: !, identifier, or 'end of string'"));
    let unknown = get(&server, &format!("{MAPS}?fieldSelector=data.x%3D1")).await;
    assert_eq!(unknown.code, 400);
    let why = "\"data.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    assert!(unknown.message().ends_with(why), "{}", unknown.message());

    create(&server, PODS, &pod("p")).await;
    let mut bound = pod("q");
    bound["spec"]["nodeName"] = json!("node-1");
    create(&server, PODS, &bound).await;
    for (selector, names) in [
        ("spec.nodeName%3Dnode-1", vec!["q"]),
        ("spec.nodeName%3D", vec!["p"]),
        ("status.phase%3DPending,spec.restartPolicy%3DAlways", vec!["p", "q"]),
        ("status.phase!%3DPending", vec![]),
    ] {
        assert_eq!(
            get(&server, &format!("{PODS}?fieldSelector={selector}")).await.names(),
            names,
            "{selector}"
        );
    }
    let node = json!({ "metadata": { "name": "n" }, "spec": {} });
    create(&server, "/api/v1/nodes", &node).await;
    assert_eq!(get(&server, "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dfalse").await.names(), ["n"]);
    assert_eq!(get(&server, "/api/v1/secrets?fieldSelector=type%3DOpaque").await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn pages_show_the_first_pages_state() {
    let server = server();
    maps(&server, &["a", "b", "c", "d", "e"]).await;
    let first = get(&server, &format!("{MAPS}?limit=2")).await;
    assert_eq!(first.names(), ["a", "b"]);
    assert_eq!(first.json()["metadata"]["remainingItemCount"], 3);
    delete(&server, &format!("{MAPS}/d")).await;
    create(&server, MAPS, &config_map("cc")).await;
    let token = first.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let second = get(&server, &format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((second.names(), second.version()), (vec!["c".to_owned(), "d".to_owned()], first.version()));
    let token = second.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let third = get(&server, &format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(third.names(), ["e"]);
    assert_eq!(third.json()["metadata"].get("continue"), None);
    assert_eq!(third.json()["metadata"].get("remainingItemCount"), None);
    let selected = get(&server, &format!("{MAPS}?limit=1&labelSelector=!x")).await;
    assert_eq!(selected.json()["metadata"].get("remainingItemCount"), None, "unknown with a selector");
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_compacted_state_is_expired_and_says_how_to_go_on() {
    let server = server();
    maps(&server, &["a", "b", "c"]).await;
    let first = get(&server, &format!("{MAPS}?limit=1")).await;
    let token = first.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    create(&server, MAPS, &config_map("bb")).await;
    server.compact_now();
    let expired = get(&server, &format!("{MAPS}?limit=1&continue={token}")).await;
    assert_eq!((expired.code, expired.json()["reason"].as_str()), (410, Some("Expired")));
    let fresh = expired.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    assert_eq!(get(&server, &format!("{MAPS}?continue={fresh}")).await.names(), ["b", "bb", "c"]);
    let garbage = get(&server, &format!("{MAPS}?continue=garbage")).await;
    assert_eq!(garbage.code, 400);
    assert!(garbage.message().starts_with("invalid continue token: "));
}

#[tokio::test(start_paused = true)]
async fn versions_say_how_fresh_a_list_must_be() {
    let server = server();
    maps(&server, &["a"]).await;
    let old = server.revision();
    maps(&server, &["b"]).await;
    let names = async |query: &str| get(&server, &format!("{MAPS}?{query}")).await.names();
    assert_eq!(names("").await, ["a", "b"]);
    assert_eq!(names("resourceVersion=0").await, ["a", "b"]);
    assert_eq!(names("resourceVersion=0&limit=1").await, ["a", "b"], "a list from the cache has no pages");
    assert_eq!(names(&format!("resourceVersion={old}")).await, ["a", "b"]);
    assert_eq!(names(&format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan")).await, ["a", "b"]);
    assert_eq!(names(&format!("resourceVersion={old}&resourceVersionMatch=Exact")).await, ["a"]);
    assert_eq!(names(&format!("resourceVersion={old}&limit=5")).await, ["a"], "pages are exact");
    let exact = get(&server, &format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact")).await;
    assert_eq!(exact.version(), old);
}

#[tokio::test(start_paused = true)]
async fn exact_lists_show_the_past_in_pages() {
    let server = server();
    maps(&server, &["a", "b", "c"]).await;
    let then = server.revision();
    delete(&server, &format!("{MAPS}/a")).await;
    maps(&server, &["d"]).await;
    let exact = format!("resourceVersion={then}&resourceVersionMatch=Exact");
    let first = get(&server, &format!("{MAPS}?{exact}&limit=1")).await;
    assert_eq!((first.names(), first.version()), (vec!["a".to_owned()], then));
    assert_eq!(first.json()["metadata"]["remainingItemCount"], 2);
    let token = first.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    assert_eq!(get(&server, &format!("{MAPS}?continue={token}")).await.names(), ["b", "c"]);
    let other = get(&server, &format!("/api/v1/secrets?{exact}&limit=1")).await;
    assert_eq!((other.names().len(), other.version()), (0, then), "a kind that nobody wrote");
    server.compact_now();
    for path in [MAPS, "/api/v1/secrets"] {
        let expired = get(&server, &format!("{path}?{exact}&limit=1")).await;
        assert_eq!((expired.code, expired.json()["reason"].as_str()), (410, Some("Expired")), "{path}");
        assert_eq!(expired.message(), "The resourceVersion for the provided list is too old.");
    }
    let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", server.revision());
    assert_eq!(get(&server, &format!("{MAPS}?{exact}")).await.names(), ["b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn an_exact_list_of_the_future_is_too_large() {
    let server = server();
    maps(&server, &["a"]).await;
    let backup = server.backup();
    maps(&server, &["b", "c"]).await;
    let (known, path) = (server.revision(), format!("{MAPS}?limit=1&resourceVersionMatch=Exact"));
    server.restore(&backup);
    let start = tokio::time::Instant::now();
    let late = get(&server, &format!("{path}&resourceVersion={known}")).await;
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert_eq!((late.code, late.headers["retry-after"].to_str().unwrap()), (504, "1"));
    let current = backup.revision();
    let message = format!("Timeout: Too large resource version: {known}, current: {current}");
    assert_eq!(late.message(), message);
    assert_eq!(late.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    // Once the restored server has overtaken the version, it answers with a state of its own.
    maps(&server, &["x", "y", "z"]).await;
    let overtaken = get(&server, &format!("{path}&resourceVersion={known}")).await;
    assert_eq!((overtaken.code, overtaken.version()), (200, known));
    assert_eq!(overtaken.json()["metadata"]["remainingItemCount"], 2, "a, x and y");
}

#[tokio::test(start_paused = true)]
async fn a_version_of_the_future_is_waited_for_and_then_refused() {
    let server = server();
    let future = server.revision() + 1;
    let start = tokio::time::Instant::now();
    let late = get(&server, &format!("{MAPS}?resourceVersion={future}")).await;
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert_eq!((late.code, late.headers["retry-after"].to_str().unwrap()), (504, "1"));
    assert_eq!(
        late.message(),
        format!("Timeout: Too large resource version: {future}, current: {}", future - 1)
    );
    assert_eq!(late.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    let path = format!("{MAPS}?resourceVersion={future}");
    let (in_time, _) = tokio::join!(get(&server, &path), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        create(&server, MAPS, &config_map("a")).await
    });
    assert_eq!((in_time.code, in_time.names()), (200, vec!["a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn options_that_contradict_each_other_are_refused() {
    let server = server();
    for query in [
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Sometimes",
        "sendInitialEvents=true",
        "watch=true&sendInitialEvents=true",
        "watch=true&resourceVersion=1&resourceVersionMatch=NotOlderThan",
    ] {
        let answer = get(&server, &format!("{MAPS}?{query}")).await;
        assert_eq!(answer.code, 422, "{query}");
        assert!(
            answer.message().starts_with("ListOptions.meta.k8s.io \"\" is invalid: "),
            "{}",
            answer.message()
        );
        assert!(answer.json()["details"]["causes"][0]["field"].is_string());
    }
    assert_eq!(get(&server, &format!("{MAPS}?limit=x")).await.code, 400);
    assert_eq!(get(&server, &format!("{MAPS}?resourceVersion=abc")).await.code, 400);
    let watch = get(&server, &format!("{MAPS}?watch=true&resourceVersion=abc")).await;
    assert_eq!((watch.code, watch.json().get("reason")), (500, None), "as the real server does");
}

#[tokio::test(start_paused = true)]
async fn metadata_only_is_what_accept_asks_for() {
    let server = server();
    let mut object = labelled("a", &json!({ "app": "web" }));
    object["data"] = json!({ "large": "value" });
    create(&server, MAPS, &object).await;
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let answer = send_with(&server, "GET", MAPS, &[("accept", list)], "").await;
    let json = answer.json();
    assert_eq!(
        (json["kind"].as_str(), json["apiVersion"].as_str()),
        (Some("PartialObjectMetadataList"), Some("meta.k8s.io/v1"))
    );
    assert_eq!(json["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(json["items"][0]["metadata"]["labels"]["app"], "web");
    assert_eq!(json["items"][0].get("data"), None);
    let answer = send_with(&server, "GET", &format!("{MAPS}/a"), &[("accept", one)], "").await;
    assert_eq!(answer.json()["kind"], "PartialObjectMetadata");
    let fallback = "application/yaml;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let answer = send_with(&server, "GET", MAPS, &[("accept", fallback)], "").await;
    assert_eq!(answer.json()["kind"], "ConfigMapList", "what is not offered is passed over");
    for accept in ["application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io", one] {
        assert_eq!(send_with(&server, "GET", MAPS, &[("accept", accept)], "").await.code, 406, "{accept}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_lags_serves_old_state_to_those_who_do_not_mind() {
    use http_body_util::{BodyExt, Empty};
    let server = server();
    let a = create(&server, MAPS, &config_map("a")).await;
    merge_patch(&server, &format!("{MAPS}/a"), &json!({ "data": { "k": "new" } })).await;
    create(&server, MAPS, &config_map("b")).await;
    let stale = async |path: String| {
        let mut request = http::Request::get(path).body(Empty::<bytes::Bytes>::new()).unwrap();
        request.extensions_mut().insert(kube_informer_apiserver::ServeAtMost(version(&a)));
        let bytes = server.handle(request).await.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice::<Value>(&bytes).unwrap()
    };
    let list = stale(format!("{MAPS}?resourceVersion=0")).await;
    assert_eq!((list["items"].as_array().unwrap().len(), version(&list)), (1, version(&a)));
    assert_eq!(stale(format!("{MAPS}/a?resourceVersion=0")).await["data"]["k"], "v");
    assert_eq!(stale(format!("{MAPS}/a")).await["data"]["k"], "new", "a get without a version is fresh");
    assert_eq!(stale(MAPS.to_owned()).await["items"].as_array().unwrap().len(), 2);
    assert_eq!(stale(format!("{MAPS}?resourceVersion={}", server.revision())).await["code"], 504);
    server.compact_now();
    let caught_up = stale(format!("{MAPS}/a?resourceVersion=0")).await;
    assert_eq!(caught_up["data"]["k"], "new", "what was compacted is lagged behind no longer");
}

#[tokio::test(start_paused = true)]
async fn an_update_between_reads_is_seen() {
    let server = server();
    maps(&server, &["a"]).await;
    let object = json!({ "metadata": { "name": "a" }, "data": { "k": "2" } });
    let written = update(&server, &format!("{MAPS}/a"), &object).await;
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.json(), written);
}
