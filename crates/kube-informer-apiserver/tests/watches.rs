//! Watches: where they begin, what they tell, when they end.

mod common;

use std::time::Duration;

use common::{MAPS, Watch, brief, config_map, create, delete, merge_patch, name, send_with, server, version};
use kube_informer_apiserver::ApiServer;
use serde_json::json;
use tokio::time::Instant;

async fn label(server: &ApiServer, name: &str, value: &str) -> u64 {
    let patch = json!({ "metadata": { "labels": { "app": value } } });
    merge_patch(server, &format!("{MAPS}/{name}"), &patch).await.version()
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_nothing_or_from_0_begins_with_the_state() {
    let server = server();
    let a = version(&create(&server, MAPS, &config_map("a")).await);
    for version in ["", "&resourceVersion=0", "&resourceVersion="] {
        let mut watch = Watch::open(&server, &format!("{MAPS}?watch=true{version}")).await;
        assert_eq!(watch.news().await, [format!("ADDED a@{a}")], "{version}");
    }
    let mut told =
        Watch::open(&server, &format!("{MAPS}?watch=1&resourceVersion=0&allowWatchBookmarks=true")).await;
    assert_eq!(told.news().await, [format!("ADDED a@{a}"), format!("BOOKMARK @{a}!")]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_tells_what_came_after_it() {
    let server = server();
    let a = version(&create(&server, MAPS, &config_map("a")).await);
    let b = version(&create(&server, MAPS, &config_map("b")).await);
    let mut watch = Watch::open(&server, &format!("{MAPS}?watch=true&resourceVersion={a}")).await;
    assert_eq!(watch.news().await, [format!("ADDED b@{b}")]);
    let a2 = label(&server, "a", "x").await;
    delete(&server, &format!("{MAPS}/b")).await;
    let gone = server.revision();
    assert_eq!(watch.news().await, [format!("MODIFIED a@{a2}"), format!("DELETED b@{gone}")]);
    assert!(gone > a2, "a deletion has a version of its own");
    let mut elsewhere = Watch::open(
        &server,
        &format!("/api/v1/namespaces/kube-system/configmaps?watch=true&resourceVersion={a}"),
    )
    .await;
    assert!(elsewhere.news().await.is_empty());
    let mut future = Watch::open(&server, &format!("{MAPS}?watch=true&resourceVersion={}", gone + 2)).await;
    label(&server, "a", "y").await;
    label(&server, "a", "z").await;
    assert!(future.news().await.is_empty(), "the future is silent until it comes");
    let now = label(&server, "a", "w").await;
    assert_eq!(future.news().await, [format!("MODIFIED a@{now}")]);
}

#[tokio::test(start_paused = true)]
async fn selectors_turn_entering_into_added_and_leaving_into_deleted() {
    let server = server();
    let mut watch = Watch::open(&server, &format!("{MAPS}?watch=true&labelSelector=app%3Dweb")).await;
    create(&server, MAPS, &config_map("a")).await;
    assert!(watch.news().await.is_empty());
    let entered = label(&server, "a", "web").await;
    assert_eq!(watch.news().await, [format!("ADDED a@{entered}")]);
    let left = label(&server, "a", "db").await;
    let event = watch.next().await.unwrap();
    assert_eq!(brief(&event), format!("DELETED a@{left}"));
    assert_eq!(event["object"]["metadata"]["labels"]["app"], "web", "the object as it was");
    delete(&server, &format!("{MAPS}/a")).await;
    assert!(watch.news().await.is_empty(), "it had left already");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_about_once_a_minute_and_before_the_end() {
    let server = server();
    let path = format!(
        "{MAPS}?watch=true&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds=100",
        server.revision()
    );
    let mut watch = Watch::open(&server, &path).await;
    let start = Instant::now();
    let elsewhere = version(&create(&server, common::PODS, &common::pod("p")).await);
    let first = watch.next().await.unwrap();
    assert_eq!(brief(&first), format!("BOOKMARK @{elsewhere}"), "the version moves with the whole store");
    assert_eq!(
        (first["object"]["kind"].as_str(), first["object"]["apiVersion"].as_str()),
        (Some("ConfigMap"), Some("v1"))
    );
    assert!((60..=75).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(brief(&watch.next().await.unwrap()), format!("BOOKMARK @{elsewhere}"));
    assert_eq!(start.elapsed().as_secs(), 98);
    assert_eq!(watch.next().await, None);
    assert_eq!(start.elapsed().as_secs(), 100);
    let mut silent = Watch::open(&server, &format!("{MAPS}?watch=true&timeoutSeconds=100")).await;
    assert_eq!(silent.next().await, None, "no bookmarks unless asked for");
}

/// As after a restore: the real server accepts the watch and says nothing until its revision passes that version.
#[tokio::test(start_paused = true)]
async fn a_watch_of_the_future_gets_no_bookmarks_either() {
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    let backup = server.backup();
    for value in ["1", "2", "3"] {
        label(&server, "a", value).await;
    }
    let known = server.revision();
    server.restore(&backup);
    let path =
        format!("{MAPS}?watch=true&resourceVersion={known}&allowWatchBookmarks=true&timeoutSeconds=3600");
    let answer = common::open(&server, "GET", &path, &[], b"").await;
    assert_eq!(answer.status(), 200);
    let mut watch = Watch::open(&server, &path).await;
    let silence =
        async |watch: &mut Watch| tokio::time::timeout(Duration::from_mins(10), watch.next()).await.is_err();
    assert!(silence(&mut watch).await, "nothing has happened");
    label(&server, "a", "4").await;
    label(&server, "a", "5").await;
    assert!(silence(&mut watch).await, "below the version");
    assert_eq!(label(&server, "a", "6").await, known);
    assert!(silence(&mut watch).await, "at the version");
    let next = label(&server, "a", "7").await;
    assert_eq!(brief(&watch.next().await.unwrap()), format!("MODIFIED a@{next}"));
    assert_eq!(brief(&watch.next().await.unwrap()), format!("BOOKMARK @{next}"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_timeout_ends_within_the_hour() {
    let server = server();
    let start = Instant::now();
    let mut watch = Watch::open(&server, &format!("{MAPS}?watch=true")).await;
    assert_eq!(watch.next().await, None);
    assert!((30 * 60..60 * 60).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn streaming_lists_end_with_a_bookmark_that_says_so() {
    let server = server();
    let a = version(&create(&server, MAPS, &config_map("a")).await);
    let b = version(&create(&server, MAPS, &config_map("b")).await);
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Watch::open(&server, &format!("{MAPS}?{query}")).await;
    let state = [format!("ADDED a@{a}"), format!("ADDED b@{b}"), format!("BOOKMARK @{b}!")];
    assert_eq!(watch.news().await, state);
    let c = version(&create(&server, MAPS, &config_map("c")).await);
    assert_eq!(watch.news().await, [format!("ADDED c@{c}")], "then it is a watch");
    let stats = server.stats().resource("configmaps");
    assert_eq!((stats.streaming_lists, stats.watches), (1, 0));
    let query =
        "watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut without = Watch::open(&server, &format!("{MAPS}?{query}")).await;
    assert!(without.news().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn streaming_lists_are_compressed_member_by_member() {
    use http_body_util::BodyExt;
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    create(&server, MAPS, &config_map("b")).await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1";
    let answer =
        common::open(&server, "GET", &format!("{MAPS}?{query}"), &[("accept-encoding", "gzip")], b"").await;
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    let members = bytes.windows(3).filter(|window| *window == [0x1f, 0x8b, 8]).count();
    assert_eq!(members, 3);
    let mut gunzip = kube_wire::gzip::Gunzip::default();
    let (mut packed, mut text) = (&bytes[..], Vec::new());
    while !packed.is_empty() {
        text.extend_from_slice(&gunzip.push(&mut packed).unwrap());
    }
    assert_eq!(std::str::from_utf8(&text).unwrap().lines().count(), 3);
}

#[tokio::test(start_paused = true)]
async fn metadata_only_watches_tell_metadata_only() {
    let server = server();
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let path = format!("{MAPS}?watch=true&resourceVersion=0&allowWatchBookmarks=true");
    let mut watch = Watch::open_with(&server, &path, &[("accept", accept)]).await;
    assert_eq!(watch.next().await.unwrap()["object"]["kind"], "PartialObjectMetadata", "the bookmark");
    create(&server, MAPS, &config_map("a")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(
        (event["object"]["kind"].as_str(), name(&event["object"])),
        (Some("PartialObjectMetadata"), "a".to_owned())
    );
    assert_eq!(event["object"].get("data"), None);
}

#[tokio::test(start_paused = true)]
async fn a_slow_watcher_is_closed_and_can_come_back() {
    let server = ApiServer::builder().history_len(10).build();
    create(&server, MAPS, &config_map("a")).await;
    let mut slow = Watch::open(&server, &format!("{MAPS}?watch=true")).await;
    let mut quick = Watch::open(&server, &format!("{MAPS}?watch=true")).await;
    assert_eq!((slow.news().await.len(), quick.news().await.len()), (1, 1));
    for value in 0..30 {
        label(&server, "a", &value.to_string()).await;
        assert_eq!(quick.news().await.len(), 1);
    }
    assert!(slow.ended().await);
    assert_eq!(server.stats().open_watches, 1, "whatever it held is free");
    drop(quick);
    assert_eq!(server.stats().open_watches, 0);
}

#[tokio::test(start_paused = true)]
async fn watchers_share_one_encoding() {
    use http_body_util::BodyExt;
    let server = server();
    let path = format!("{MAPS}?watch=true");
    let mut bodies = Vec::new();
    for _ in 0..3 {
        bodies.push(common::open(&server, "GET", &path, &[], b"").await.into_body());
    }
    create(&server, MAPS, &config_map("a")).await;
    let mut addresses = Vec::new();
    for body in &mut bodies {
        addresses.push(body.frame().await.unwrap().unwrap().into_data().unwrap().as_ptr());
    }
    assert_eq!(addresses[0], addresses[1]);
    assert_eq!(addresses[0], addresses[2]);
}

#[tokio::test(start_paused = true)]
async fn who_takes_bookmarks_is_told_where_the_state_ends() {
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    for from in ["", "&resourceVersion=0"] {
        let mut watch =
            Watch::open(&server, &format!("{MAPS}?watch=true&allowWatchBookmarks=true{from}")).await;
        let news = watch.news().await;
        assert_eq!((news.len(), news[1].ends_with('!')), (2, true), "{news:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_of_the_future_is_refused_in_the_stream() {
    let server = server();
    let path = format!(
        "{MAPS}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=900"
    );
    let mut watch = Watch::open(&server, &path).await;
    let news = watch.news().await;
    assert!(news[0].starts_with("ERROR 504 Timeout: Too large resource version: 900"), "{news:?}");
    assert!(watch.ended().await);
}

#[tokio::test(start_paused = true)]
async fn web_sockets_are_refused_so_that_clients_fall_back() {
    let server = server();
    let headers = [("upgrade", "websocket"), ("connection", "Upgrade")];
    let refused = send_with(&server, "GET", &format!("{MAPS}?watch=true"), &headers, "").await;
    assert_eq!((refused.code, refused.json()["kind"].as_str()), (503, Some("Status")));
}

#[tokio::test(start_paused = true)]
async fn the_old_watch_paths_still_work() {
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    create(&server, MAPS, &config_map("b")).await;
    let mut watch = Watch::open(&server, "/api/v1/watch/namespaces/default/configmaps/a").await;
    assert_eq!(watch.news().await.len(), 1);
    let refused = send_with(&server, "GET", &format!("{MAPS}?watch=true&timeoutSeconds=soon"), &[], "").await;
    assert_eq!(refused.code, 400);
    tokio::time::sleep(Duration::from_secs(1)).await;
}
