//! The server driven through `kube-client`: typed, dynamic, custom.

mod common;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_client::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube_core::{DynamicObject, ResourceExt};
use serde_json::json;

fn pod(name: &str) -> Pod {
    serde_json::from_value(common::pod(name)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn typed_objects_are_created_read_listed_watched_changed_and_deleted() {
    let server = common::server();
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let created = pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    assert_eq!(created.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Pending"));
    assert_eq!(pods.get("a").await.unwrap(), created);
    let list = pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items, std::slice::from_ref(&created));

    let version = list.metadata.resource_version.unwrap();
    let mut events = pods.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    pods.create(&PostParams::default(), &pod("b")).await.unwrap();
    let patch = json!({ "metadata": { "labels": { "x": "y" } } });
    pods.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    pods.delete("b", &DeleteParams::default()).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 4 {
        seen.push(match events.try_next().await.unwrap().expect("an event") {
            WatchEvent::Added(pod) => format!("added {}", pod.name_any()),
            WatchEvent::Modified(pod) => format!("modified {}", pod.name_any()),
            WatchEvent::Deleted(pod) => format!("deleted {}", pod.name_any()),
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(seen, ["added b", "modified a", "modified b", "deleted b"]);
    let stats = server.stats().resource("pods");
    assert_eq!((stats.creates, stats.gets, stats.lists, stats.watches), (2, 1, 1, 1));
    assert_eq!((stats.patches, stats.deletes), (1, 1));
    assert!(stats.bytes_out > 0);
    assert_eq!(server.stats().open_watches, 1);
    drop(events);
    tokio::task::yield_now().await;
    assert_eq!(server.stats().open_watches, 0);
}

#[tokio::test(start_paused = true)]
async fn errors_are_the_ones_that_clients_know() {
    let server = common::server();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let missing = maps.get("x").await.unwrap_err();
    let kube_client::Error::Api(status) = missing else { panic!("{missing:?}") };
    assert_eq!((status.code, status.reason.as_str()), (404, "NotFound"));
    assert_eq!(status.message, "configmaps \"x\" not found");
    assert!(maps.get_opt("x").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn custom_kinds_are_found_by_discovery_and_used_dynamically() {
    let server = common::server();
    let client = server.client();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "foos.x.io" },
        "spec": {
            "group": "x.io", "scope": "Namespaced", "names": { "plural": "foos", "kind": "Foo" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } }],
        },
    });
    common::create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    let group = kube_client::discovery::group(&client, "x.io").await.unwrap();
    let (resource, _) = group.recommended_kind("Foo").unwrap();
    let foos: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
    let foo = DynamicObject::new("a", &resource).data(json!({ "spec": { "size": 3 } }));
    foos.create(&PostParams::default(), &foo).await.unwrap();
    assert_eq!(foos.get("a").await.unwrap().data["spec"]["size"], 3);
    assert_eq!(foos.list(&ListParams::default()).await.unwrap().items.len(), 1);
}
