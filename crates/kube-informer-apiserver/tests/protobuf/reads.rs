//! Gets and lists: selectors, pages, metadata only, sizes, custom kinds.

use std::io::Read as _;

use serde_json::{Value, json};

use crate::common::{self, MAPS, PODS, config_map, create, name, send_with, server};
use crate::wire::{METADATA, METADATA_LIST, PROTOBUF, decode, get, list};

fn names(items: &[Value]) -> Vec<String> {
    items.iter().map(name).collect()
}

#[tokio::test(start_paused = true)]
async fn selectors_and_pages_are_those_of_json() {
    let server = server();
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web"), ("d", "web")] {
        create(&server, MAPS, &json!({ "metadata": { "name": name, "labels": { "app": app } } })).await;
    }
    let (items, _) = list(&get(&server, &format!("{MAPS}?labelSelector=app%3Dweb")).await);
    assert_eq!(names(&items), ["a", "c", "d"]);
    let (items, _) = list(&get(&server, &format!("{MAPS}?fieldSelector=metadata.name%3Db")).await);
    assert_eq!(names(&items), ["b"]);

    let (first, meta) = list(&get(&server, &format!("{MAPS}?limit=3")).await);
    assert_eq!(
        (names(&first), meta.remaining_item_count),
        (vec!["a".into(), "b".into(), "c".into()], Some(1))
    );
    let version = meta.resource_version;
    create(&server, MAPS, &config_map("cc")).await;
    let token = meta.continue_token.unwrap();
    let (second, meta) = list(&get(&server, &format!("{MAPS}?limit=3&continue={token}")).await);
    assert_eq!(names(&second), ["d"], "later pages are of the first one's state");
    assert_eq!(
        (meta.resource_version, meta.continue_token, meta.remaining_item_count),
        (version, None, None)
    );
    // A token of one wire goes on over the other.
    let json = common::get(&server, &format!("{MAPS}?limit=3&continue={token}")).await;
    assert_eq!(json.names(), ["d"]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_is_one() {
    let server = server();
    let answer = get(&server, MAPS).await;
    let (items, meta) = list(&answer);
    assert!(items.is_empty());
    assert_eq!((meta.kind.as_deref(), meta.api_version.as_deref()), (Some("ConfigMapList"), Some("v1")));
    assert_eq!(meta.resource_version.unwrap().as_u64(), Some(server.revision()));
}

#[tokio::test(start_paused = true)]
async fn metadata_alone() {
    let server = server();
    let mut object = config_map("a");
    object["metadata"]["labels"] = json!({ "app": "web" });
    let object = create(&server, MAPS, &object).await;
    let answer = send_with(&server, "GET", &format!("{MAPS}/a"), &[("accept", METADATA)], "").await;
    let expected = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    });
    assert_eq!(answer.headers["content-type"], PROTOBUF);
    assert_eq!(decode(&answer.bytes), expected);
    let (items, meta) = list(&send_with(&server, "GET", MAPS, &[("accept", METADATA_LIST)], "").await);
    assert_eq!(items, [expected]);
    assert_eq!(meta.kind.as_deref(), Some("PartialObjectMetadataList"));
    assert_eq!(meta.api_version.as_deref(), Some("meta.k8s.io/v1"));
}

#[tokio::test(start_paused = true)]
async fn custom_kinds_are_json_but_for_their_metadata() {
    let server = server();
    create(
        &server,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &json!({
            "metadata": { "name": "foos.x.io" },
            "spec": { "group": "x.io", "scope": "Namespaced", "names": { "plural": "foos", "kind": "Foo" },
                "versions": [{ "name": "v1", "served": true, "storage": true }] },
        }),
    )
    .await;
    let foos = "/apis/x.io/v1/namespaces/default/foos";
    let foo =
        json!({ "kind": "Foo", "apiVersion": "x.io/v1", "metadata": { "name": "a" }, "spec": { "x": 1.5 } });
    let foo = create(&server, foos, &foo).await;
    for path in [foos.to_owned(), format!("{foos}/a"), format!("{foos}?watch=true")] {
        let answer = get(&server, &path).await;
        assert_eq!(
            (answer.code, decode(&answer.bytes)["reason"].as_str()),
            (406, Some("NotAcceptable")),
            "{path}"
        );
    }
    let both = format!("{PROTOBUF},application/json");
    let answer = send_with(&server, "GET", &format!("{foos}/a"), &[("accept", &both)], "").await;
    assert_eq!(answer.json(), foo);
    let answer = send_with(&server, "GET", &format!("{foos}/a"), &[("accept", METADATA)], "").await;
    assert_eq!(decode(&answer.bytes)["metadata"], foo["metadata"]);
    let (items, _) = list(&send_with(&server, "GET", foos, &[("accept", METADATA_LIST)], "").await);
    assert_eq!(items[0]["metadata"], foo["metadata"]);
}

#[tokio::test(start_paused = true)]
async fn a_large_list_comes_in_frames_and_compressed_if_asked() {
    let server = server();
    for i in 0..60 {
        let mut map = config_map(&format!("a{i:02}"));
        map["data"]["large"] = "x".repeat(5_000).into();
        create(&server, MAPS, &map).await;
    }
    let plain = get(&server, MAPS).await;
    assert_eq!(list(&plain).0.len(), 60);
    assert!(plain.bytes.len() > 300_000);
    let response = common::open(&server, "GET", MAPS, &[("accept", PROTOBUF)], b"").await;
    let mut frames = 0;
    let mut body = response.into_body();
    while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
        frames += 1;
        assert!(frame.unwrap().data_ref().unwrap().len() < 150_000);
    }
    assert!(frames > 2, "{frames}");
    let headers = [("accept", PROTOBUF), ("accept-encoding", "gzip")];
    let packed = send_with(&server, "GET", MAPS, &headers, "").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&packed.bytes[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain.bytes);
    assert!(server.stats().resource("configmaps").bytes_out > 2 * plain.bytes.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_told_as_the_client_likes_it() {
    let server = server();
    let missing = get(&server, &format!("{PODS}/nobody")).await;
    assert_eq!((missing.code, &missing.headers["content-type"]), (404, &PROTOBUF.parse().unwrap()));
    let json = common::get(&server, &format!("{PODS}/nobody")).await.json();
    assert_eq!(decode(&missing.bytes), json);
    // With a transformation in every clause there is nothing for a status.
    let answer = send_with(&server, "GET", &format!("{PODS}/nobody"), &[("accept", METADATA)], "").await;
    assert_eq!(answer.json(), json);
    let old = format!("{PODS}?resourceVersion=99999&resourceVersionMatch=Exact");
    let answer = get(&server, &old).await;
    assert_eq!((answer.code, &answer.headers["retry-after"]), (504, &"1".parse().unwrap()));
    assert_eq!(decode(&answer.bytes)["details"]["retryAfterSeconds"], 1);
    let nowhere = get(&server, "/api/v1/foos").await;
    assert_eq!((nowhere.code, decode(&nowhere.bytes)["reason"].as_str()), (404, Some("NotFound")));
}

#[tokio::test(start_paused = true)]
async fn indentation_is_for_json_alone() {
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    let path = format!("{MAPS}/a?pretty=true");
    let answer =
        send_with(&server, "GET", &path, &[("accept", PROTOBUF), ("user-agent", "curl/8")], "").await;
    assert_eq!(decode(&answer.bytes)["data"]["k"], "v");
}
