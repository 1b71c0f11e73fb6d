//! The table of built-in kinds.

mod common;
#[allow(unreachable_pub, reason = "it is an example of its own")]
#[path = "../examples/generate_kinds.rs"]
mod generate_kinds;

use common::{get, server};
use serde_json::{Value, json};

#[test]
fn the_committed_table_is_what_the_generator_makes() {
    let committed = include_str!("../src/kinds/builtin.rs");
    assert_eq!(committed, generate_kinds::generate(), "run the example generate_kinds");
}

#[tokio::test(start_paused = true)]
async fn every_kind_that_can_be_listed_and_watched_is() {
    let server = server();
    let discovery: Value = serde_json::from_str(include_str!("../data/discovery-1.37.json")).unwrap();
    let mut count = 0;
    for group in discovery["items"].as_array().unwrap() {
        let version = &group["versions"][0];
        let root = match group["metadata"]["name"].as_str() {
            Some(group) => format!("/apis/{group}/{}", version["version"].as_str().unwrap()),
            None => "/api/v1".to_owned(),
        };
        for resource in version["resources"].as_array().unwrap() {
            if !resource["verbs"].as_array().unwrap().contains(&json!("watch")) {
                continue;
            }
            let path = format!("{root}/{}", resource["resource"].as_str().unwrap());
            let list = get(&server, &path).await;
            assert_eq!(list.code, 200, "{path}");
            let kind = format!("{}List", resource["responseKind"]["kind"].as_str().unwrap());
            assert_eq!(list.json()["kind"], kind.as_str());
            let watch = get(&server, &format!("{path}?watch=true&timeoutSeconds=1")).await;
            assert_eq!(watch.code, 200, "{path}");
            count += 1;
        }
    }
    assert!(count > 60, "{count} kinds");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_told_apart() {
    let server = server();
    let unknown = get(&server, "/api/v1/foos").await;
    assert_eq!(
        (unknown.code, unknown.message().as_str()),
        (404, "the server could not find the requested resource")
    );
    for path in ["/apis/apps/v9/deployments", "/apis/apps/v9", "/api/v2/pods", "/api/v2"] {
        let answer = get(&server, path).await;
        assert_eq!((answer.code, answer.message()), (404, unknown.message()), "{path}: the group is there");
    }
    for path in ["/apis/nobody.io/v1/foos", "/apis/nobody.io/v1", "/apis/nobody.io", "/nothing"] {
        let answer = get(&server, path).await;
        assert_eq!(answer.code, 404, "{path}");
        assert_eq!(&answer.bytes[..], b"404 page not found\n", "{path}");
        assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    }
    let method = common::send(&server, "PUT", common::PODS, &Value::Null).await;
    assert_eq!((method.code, method.json()["reason"].as_str()), (405, Some("MethodNotAllowed")));
}
