//! Which wire an `Accept` header leads to.

use crate::common::{MAPS, config_map, create, send_with, server};

#[tokio::test(start_paused = true)]
async fn the_wire_is_what_the_client_prefers_of_what_there_is() {
    const JSON: Option<&str> = Some("application/json");
    const PROTOBUF: Option<&str> = Some("application/vnd.kubernetes.protobuf");
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    for (accept, expected) in [
        ("", JSON),
        ("application/json", JSON),
        ("application/vnd.kubernetes.protobuf", PROTOBUF),
        ("application/vnd.kubernetes.protobuf,application/json", PROTOBUF),
        ("application/vnd.kubernetes.protobuf, application/json", PROTOBUF),
        ("application/json,application/vnd.kubernetes.protobuf", JSON),
        ("application/json;q=0.5,application/vnd.kubernetes.protobuf", PROTOBUF),
        ("application/json;q=0.5,application/vnd.kubernetes.protobuf;q=0.4", JSON),
        ("application/vnd.kubernetes.protobuf;q=0.4,application/json;q=0.5", JSON),
        ("application/vnd.kubernetes.protobuf;q=0.4,application/xml", PROTOBUF),
        ("application/vnd.kubernetes.protobuf;q=odd,application/json;q=0.9", PROTOBUF),
        ("*/*", JSON),
        ("application/*", JSON),
        ("*", JSON),
        // What is named comes before what is covered.
        ("*/*,application/vnd.kubernetes.protobuf", PROTOBUF),
        ("*/*,application/vnd.kubernetes.protobuf;q=0.1", PROTOBUF),
        ("text/html,*/*;q=0.8", JSON),
        ("application/vnd.kubernetes.protobuf;type=watch", PROTOBUF),
        ("application/vnd.kubernetes.protobuf;stream=watch", PROTOBUF),
        ("application/vnd.kubernetes.protobuf;stream=odd,application/json", JSON),
        ("application/vnd.kubernetes.protobuf;stream=odd", None),
        ("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json", JSON),
        ("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", None),
        ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", PROTOBUF),
        ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v2", None),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            JSON,
        ),
        ("application/cbor,application/yaml", None),
        ("application/vnd.kubernetes.protobuf2", None),
        ("garbage", None),
        (",;,=", None),
    ] {
        let answer = send_with(&server, "GET", &format!("{MAPS}/a"), &[("accept", accept)], "").await;
        match expected {
            Some(expected) => {
                assert_eq!(
                    (answer.code, answer.headers["content-type"].to_str().unwrap()),
                    (200, expected),
                    "{accept}"
                );
            }
            None => assert_eq!(answer.code, 406, "{accept}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_of_any_length_is_read_in_no_time() {
    let server = server();
    let long: String = (0..100_000)
        .map(|i| format!("a/b;q=0.{i},"))
        .take_while({
            let mut length = 0;
            move |clause| {
                length += clause.len();
                length < 900_000
            }
        })
        .collect();
    let accept = format!("application/vnd.kubernetes.protobuf,{long}");
    let answer = send_with(&server, "GET", MAPS, &[("accept", &accept)], "").await;
    assert_eq!(answer.headers["content-type"], "application/vnd.kubernetes.protobuf");
}
