//! Watches: frames, bookmarks, streaming lists, selectors, failures.

use std::time::Duration;

use serde_json::json;

use crate::common::{MAPS, Watch, config_map, create, delete, merge_patch, server, update};
use crate::wire::{Frames, METADATA, PROTOBUF};

const STREAMING: &str =
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test(start_paused = true)]
async fn changes_are_told_as_in_json() {
    let server = server();
    let (mut frames, mut lines) = (
        Frames::open(&server, &format!("{MAPS}?watch=true")).await,
        Watch::open(&server, &format!("{MAPS}?watch=true")).await,
    );
    let mut map = create(&server, MAPS, &config_map("a")).await;
    map["data"]["k"] = json!("new");
    update(&server, &format!("{MAPS}/a"), &map).await;
    delete(&server, &format!("{MAPS}/a")).await;
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        let event = lines.next().await.unwrap();
        assert_eq!(event["type"], kind);
        assert_eq!(frames.next().await.unwrap(), event);
    }
}

#[tokio::test(start_paused = true)]
async fn a_selector_is_entered_and_left() {
    let server = server();
    let path = format!("{MAPS}?watch=true&labelSelector=app%3Dweb");
    let mut watches = [
        Frames::open(&server, &path).await,
        Frames::open(&server, &path).await,
        Frames::open_with(&server, &path, METADATA).await,
    ];
    create(&server, MAPS, &config_map("a")).await;
    for app in ["web", "db"] {
        let patch = json!({ "metadata": { "labels": { "app": app } } });
        assert_eq!(merge_patch(&server, &format!("{MAPS}/a"), &patch).await.code, 200);
    }
    let revision = server.revision();
    for watch in &mut watches {
        assert_eq!(
            watch.news().await,
            [format!("ADDED a@{}", revision - 1), format!("DELETED a@{revision}")]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_says_where_it_ends() {
    let server = server();
    for name in ["a", "b"] {
        create(&server, MAPS, &config_map(name)).await;
    }
    let revision = server.revision();
    for accept in [PROTOBUF, METADATA] {
        let mut watch = Frames::open_with(&server, &format!("{MAPS}?{STREAMING}"), accept).await;
        let (a, b) = (revision - 1, revision);
        let expected = [format!("ADDED a@{a}"), format!("ADDED b@{b}"), format!("BOOKMARK @{revision}!")];
        assert_eq!(watch.news().await, expected, "{accept}");
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_have_the_kind_of_the_watch() {
    let server = server();
    for (accept, kind) in [(PROTOBUF, "ConfigMap"), (METADATA, "PartialObjectMetadata")] {
        let path = format!("{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion=1&timeoutSeconds=100");
        let mut watch = Frames::open_with(&server, &path, accept).await;
        let mut bookmarks = Vec::new();
        while let Ok(Some(event)) = tokio::time::timeout(Duration::from_secs(200), watch.next()).await {
            assert_eq!(
                (event["type"].as_str(), event["object"]["kind"].as_str()),
                (Some("BOOKMARK"), Some(kind))
            );
            bookmarks.push(event["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
        }
        assert_eq!(bookmarks, vec![server.revision().to_string(); 2], "one a minute, one before the end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_gone_is_an_error_in_the_stream() {
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    create(&server, MAPS, &config_map("b")).await;
    server.compact_now();
    let mut watch = Frames::open(&server, &format!("{MAPS}?watch=true&resourceVersion=1")).await;
    let event = watch.next().await.unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["kind"].as_str()), (Some("ERROR"), Some("Status")));
    assert_eq!(
        (event["object"]["code"].as_i64(), event["object"]["reason"].as_str()),
        (Some(410), Some("Expired"))
    );
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn all_watchers_get_the_same_bytes() {
    use http_body_util::BodyExt as _;
    let server = server();
    let path = format!("{MAPS}?watch=true");
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let response = crate::common::open(&server, "GET", &path, &[("accept", PROTOBUF)], b"").await;
        bodies.push(response.into_body());
    }
    create(&server, MAPS, &config_map("a")).await;
    let mut frames = Vec::new();
    for body in &mut bodies {
        frames.push(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    assert!(frames.iter().all(|frame| frame.as_ptr() == frames[0].as_ptr()), "encoded once, shared by all");
}
