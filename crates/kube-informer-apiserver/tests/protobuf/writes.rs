//! Bodies in protobuf: creates, updates, deletions, reviews, bindings; and bodies that are none.

use kube_wire::protobuf::Envelope;
use serde_json::json;

use crate::common::{self, MAPS, PODS, config_map, create, pod, send_with, server};
use crate::wire::{PROTOBUF, decode, encode, send};

#[tokio::test(start_paused = true)]
async fn an_object_is_made_changed_and_deleted() {
    let server = server();
    let mut map = config_map("a");
    map["kind"] = json!("ConfigMap");
    map["apiVersion"] = json!("v1");
    let created = send(&server, "POST", MAPS, &encode(&map)).await;
    assert_eq!(created.code, 201);
    let mut object = decode(&created.bytes);
    object["data"]["k"] = json!("new");
    let path = format!("{MAPS}/a");
    let updated = send(&server, "PUT", &path, &encode(&object)).await;
    assert_eq!((updated.code, decode(&updated.bytes)["data"]["k"].as_str()), (200, Some("new")));
    let stale = send(&server, "PUT", &path, &encode(&object)).await;
    assert_eq!((stale.code, decode(&stale.bytes)["reason"].as_str()), (409, Some("Conflict")));

    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": "other" } });
    let refused = send(&server, "DELETE", &path, &encode(&options)).await;
    assert_eq!((refused.code, decode(&refused.bytes)["reason"].as_str()), (409, Some("Conflict")));
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"] });
    assert_eq!(send(&server, "DELETE", &path, &encode(&options)).await.code, 200);
    assert_eq!(common::get(&server, &path).await.code, 200, "a dry run deletes nothing");
    let deleted = send(&server, "DELETE", &path, b"").await;
    assert_eq!((deleted.code, decode(&deleted.bytes)["status"].as_str()), (200, Some("Success")));
    assert_eq!(common::get(&server, &path).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_with_options_of_another_group() {
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    let raw = kube_wire::protobuf::from_json(
        kube_wire::protobuf::Kind::find("v1", "DeleteOptions").unwrap(),
        br#"{"propagationPolicy":"Background"}"#,
    )
    .unwrap();
    let mut body = Vec::new();
    Envelope { api_version: "apps/v1", kind: "DeleteOptions", raw: &raw }.write(&mut body);
    let answer = send(&server, "DELETE", MAPS, &body).await;
    assert_eq!((answer.code, decode(&answer.bytes)["kind"].as_str()), (200, Some("ConfigMapList")));
    assert!(common::get(&server, MAPS).await.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_shows_the_object_without_a_version() {
    let server = server();
    let mut map = config_map("a");
    map["kind"] = json!("ConfigMap");
    map["apiVersion"] = json!("v1");
    let answer = send(&server, "POST", &format!("{MAPS}?dryRun=All"), &encode(&map)).await;
    let object = decode(&answer.bytes);
    assert_eq!((answer.code, object["data"]["k"].as_str()), (201, Some("v")));
    assert_eq!(object["metadata"].get("resourceVersion"), None);
    let headers = [("accept", crate::wire::METADATA), ("content-type", PROTOBUF)];
    let answer = send_with(&server, "POST", &format!("{MAPS}?dryRun=All"), &headers, encode(&map)).await;
    let object = decode(&answer.bytes);
    assert_eq!(
        (object["kind"].as_str(), object["metadata"]["name"].as_str()),
        (Some("PartialObjectMetadata"), Some("a"))
    );
    assert_eq!(object["metadata"].get("resourceVersion"), None);
}

#[tokio::test(start_paused = true)]
async fn a_patch_is_json_and_its_answer_need_not_be() {
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    let headers = [("accept", PROTOBUF), ("content-type", "application/merge-patch+json")];
    let answer = send_with(&server, "PATCH", &format!("{MAPS}/a"), &headers, r#"{"data":{"k":"new"}}"#).await;
    assert_eq!(decode(&answer.bytes)["data"]["k"], "new");
    let refused = send(&server, "PATCH", &format!("{MAPS}/a"), b"k8s\0").await;
    assert_eq!(
        (refused.code, decode(&refused.bytes)["reason"].as_str()),
        (415, Some("UnsupportedMediaType"))
    );
}

#[tokio::test(start_paused = true)]
async fn pods_are_bound_and_evicted_and_questions_answered() {
    let server = server();
    create(&server, PODS, &pod("p")).await;
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "p" }, "target": { "name": "n" } });
    let answer = send(&server, "POST", &format!("{PODS}/p/binding"), &encode(&binding)).await;
    assert_eq!((answer.code, decode(&answer.bytes)["status"].as_str()), (201, Some("Success")));
    assert_eq!(common::get(&server, &format!("{PODS}/p")).await.json()["spec"]["nodeName"], "n");
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "p" },
        "deleteOptions": { "gracePeriodSeconds": 0 },
    });
    let answer = send(&server, "POST", &format!("{PODS}/p/eviction"), &encode(&eviction)).await;
    assert_eq!(answer.code, 201);
    assert_eq!(common::get(&server, &format!("{PODS}/p")).await.code, 404);

    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } },
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = send(&server, "POST", path, &encode(&review)).await;
    assert_eq!((answer.code, &decode(&answer.bytes)["status"]["allowed"]), (201, &json!(true)));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_none_is_refused_and_said_why() {
    let server = server();
    let envelope = |api_version, kind, raw: &[u8]| {
        let mut bytes = Vec::new();
        Envelope { api_version, kind, raw }.write(&mut bytes);
        bytes
    };
    let cases: [(Vec<u8>, &str); 6] = [
        (b"{}".to_vec(), "k8s"),
        (Vec::new(), "k8s"),
        (envelope("v1", "ConfigMap", b"\x0a\x05ab"), "protobuf"),
        (envelope("v1", "ConfigMap", b"\x0a\x03\x58\x07\x00"), "protobuf"),
        (envelope("v1", "Secret", b""), "Secret in version"),
        (envelope("v2", "ConfigMap", b""), "the API version in the data (v2) does not match"),
    ];
    for (body, why) in cases {
        let answer = send(&server, "POST", MAPS, &body).await;
        let status = decode(&answer.bytes);
        assert_eq!((answer.code, status["reason"].as_str()), (400, Some("BadRequest")), "{body:?}");
        assert!(status["message"].as_str().unwrap().contains(why), "{status}");
    }
    for body in [&b"{}"[..], b"k8s\0\x12\x02\x0a\x05"] {
        let answer = send(&server, "DELETE", &format!("{MAPS}/a"), body).await;
        assert_eq!(answer.code, 400, "{body:?}");
    }
    // An envelope that does not say what it holds is taken for what belongs there.
    let raw = &encode(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } }));
    let raw = Envelope::parse(raw).unwrap().raw;
    assert_eq!(send(&server, "POST", MAPS, &envelope("", "", raw)).await.code, 201);
    let large = vec![0; 4 << 20];
    assert_eq!(send(&server, "POST", MAPS, &large).await.code, 413);
}

#[tokio::test(start_paused = true)]
async fn a_field_of_the_wrong_type_is_refused_in_json_too() {
    let server = server();
    for (field, value) in
        [("args", json!("x")), ("stdin", json!("yes")), ("resources", json!({ "limits": { "cpu": "x" } }))]
    {
        let mut pod = pod("a");
        pod["spec"]["containers"][0][field] = value;
        let answer = common::send(&server, "POST", PODS, &pod).await;
        assert_eq!((answer.code, answer.json()["reason"].as_str()), (400, Some("BadRequest")));
        assert!(
            answer.message().starts_with("Pod in version \"v1\" cannot be handled as a Pod: "),
            "{}",
            answer.message()
        );
    }
    create(&server, MAPS, &config_map("a")).await;
    let answer = common::merge_patch(&server, &format!("{MAPS}/a"), &json!({ "data": { "k": 7 } })).await;
    assert_eq!(answer.code, 400);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_nested_deeper_than_json_can_be_read() {
    let server = server();
    let path = "/apis/apps/v1/namespaces/default/controllerrevisions";
    for (levels, code) in [(90, 201), (110, 400)] {
        // The data is JSON inside protobuf, which no count of messages sees.
        let data = (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let name = format!("a{levels}");
        let revision = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": { "name": name },
            "revision": 1, "data": data,
        });
        let answer = send(&server, "POST", path, &encode(&revision)).await;
        assert_eq!(answer.code, code, "{levels} levels");
    }
    assert_eq!(common::get(&server, path).await.names(), ["a90"]);
}

#[tokio::test(start_paused = true)]
async fn a_definition_with_a_field_of_the_wrong_type_defines_nothing() {
    let server = server();
    let definition = json!({
        "metadata": { "name": "foos.x.io" },
        "spec": { "group": "x.io", "scope": "Namespaced", "names": { "plural": "foos", "kind": "Foo", "categories": 7 },
            "versions": [{ "name": "v1", "served": true, "storage": true }] },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(common::send(&server, "POST", path, &definition).await.code, 400);
    assert_eq!(common::get(&server, "/apis/x.io/v1/foos").await.code, 404);
}
