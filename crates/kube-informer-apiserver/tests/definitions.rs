//! Custom kinds, from their definition to their end.

mod common;

use common::{Watch, create, delete, get, merge_patch, name, send, server, update, version};
use kube_informer_apiserver::ApiServer;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/x.io/v1/namespaces/default/foos";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "foos.x.io" },
        "spec": {
            "group": "x.io", "scope": "Namespaced",
            "names": { "plural": "foos", "kind": "Foo", "shortNames": ["fo"], "categories": ["all"] },
            "versions": [
                {
                    "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                    "selectableFields": [{ "jsonPath": ".spec.color" }],
                    "schema": { "openAPIV3Schema": { "type": "object" } },
                },
                { "name": "v1beta1", "served": true, "storage": false, "schema": { "openAPIV3Schema": { "type": "object" } } },
                { "name": "v0", "served": false, "storage": false, "schema": { "openAPIV3Schema": { "type": "object" } } },
            ],
        },
    })
}

fn foo(name: &str, color: &str) -> Value {
    json!({ "apiVersion": "x.io/v1", "kind": "Foo", "metadata": { "name": name }, "spec": { "color": color } })
}

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

async fn with_foos() -> ApiServer {
    let server = server();
    create(&server, DEFINITIONS, &definition()).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_served_at_once() {
    let server = server();
    assert_eq!(get(&server, FOOS).await.code, 404);
    let created = create(&server, DEFINITIONS, &definition()).await;
    let conditions: Vec<_> = created["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| {
            format!("{}={}", condition["type"].as_str().unwrap(), condition["status"].as_str().unwrap())
        })
        .collect();
    assert_eq!(conditions, ["NamesAccepted=True", "Established=True"]);
    assert_eq!(created["status"]["acceptedNames"]["singular"], "foo");
    assert_eq!(created["status"]["storedVersions"], json!(["v1"]));
    let made = create(&server, FOOS, &foo("a", "red")).await;
    assert_eq!(made["metadata"]["generation"], 1);
    let list = get(&server, FOOS).await.json();
    assert_eq!((list["kind"].as_str(), list["metadata"]["continue"].as_str()), (Some("FooList"), Some("")));
    assert_eq!(
        (list["items"][0]["kind"].as_str(), list["items"][0]["apiVersion"].as_str()),
        (Some("Foo"), Some("x.io/v1"))
    );
    assert_eq!(get(&server, "/apis/x.io/v0/foos").await.code, 404, "not served");
}

#[tokio::test(start_paused = true)]
async fn every_served_version_shows_the_same_objects() {
    let server = with_foos().await;
    let a = create(&server, FOOS, &foo("a", "red")).await;
    let beta = FOOS.replace("/v1/", "/v1beta1/");
    let read = get(&server, &format!("{beta}/a")).await.json();
    assert_eq!((read["apiVersion"].as_str(), version(&read)), (Some("x.io/v1beta1"), version(&a)));
    assert_eq!(get(&server, &beta).await.json()["items"][0]["apiVersion"], "x.io/v1beta1");
    let mut watch =
        Watch::open(&server, &format!("{beta}?watch=true&resourceVersion=0&allowWatchBookmarks=true")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["apiVersion"], "x.io/v1beta1");
    assert_eq!(watch.next().await.unwrap()["object"]["apiVersion"], "x.io/v1beta1", "the bookmark");
    let written = json!({ "apiVersion": "x.io/v1beta1", "kind": "Foo", "metadata": { "name": "b" } });
    assert_eq!(create(&server, &beta, &written).await["apiVersion"], "x.io/v1beta1");
    assert_eq!(get(&server, &format!("{FOOS}/b")).await.json()["apiVersion"], "x.io/v1");
    let patched = merge_patch(&server, &format!("{beta}/b"), &json!({ "spec": { "color": "blue" } })).await;
    assert_eq!((patched.code, patched.json()["apiVersion"].as_str()), (200, Some("x.io/v1beta1")));
}

#[tokio::test(start_paused = true)]
async fn custom_objects_have_status_generation_and_locks() {
    let server = with_foos().await;
    let a = create(&server, FOOS, &foo("a", "red")).await;
    let mut changed = a.clone();
    changed["status"] = json!({ "ready": true });
    assert_eq!(
        update(&server, &format!("{FOOS}/a"), &changed).await,
        a,
        "a status is not taken from an update"
    );
    changed["spec"]["color"] = json!("blue");
    let changed = update(&server, &format!("{FOOS}/a/status"), &changed).await;
    assert_eq!((&changed["spec"]["color"], &changed["status"]["ready"]), (&json!("red"), &json!(true)));
    assert_eq!(changed["metadata"]["generation"], 1);
    let unversioned = send(&server, "PUT", &format!("{FOOS}/a"), &foo("a", "green")).await;
    assert_eq!(unversioned.code, 422);
    assert!(
        unversioned
            .message()
            .ends_with("metadata.resourceVersion: Invalid value: 0: must be specified for an update")
    );
}

#[tokio::test(start_paused = true)]
async fn fields_can_be_made_selectable() {
    let server = with_foos().await;
    create(&server, FOOS, &foo("a", "red")).await;
    create(&server, FOOS, &foo("b", "blue")).await;
    assert_eq!(get(&server, &format!("{FOOS}?fieldSelector=spec.color%3Dred")).await.names(), ["a"]);
    assert_eq!(get(&server, &format!("{FOOS}?fieldSelector=spec.size%3D1")).await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn objects_follow_the_storage_version() {
    let server = with_foos().await;
    let a = create(&server, FOOS, &foo("a", "red")).await;
    let mut watch = Watch::open(&server, &format!("{FOOS}?watch=true")).await;
    watch.news().await;
    let b = version(&create(&server, FOOS, &foo("b", "red")).await);
    let path = format!("{DEFINITIONS}/foos.x.io");
    let mut changed = get(&server, &path).await.json();
    changed["spec"]["versions"][0]["storage"] = json!(false);
    changed["spec"]["versions"][1]["storage"] = json!(true);
    update(&server, &path, &changed).await;
    create(&server, FOOS, &foo("c", "red")).await;
    let told = watch.next().await.unwrap();
    assert_eq!((name(&told["object"]), told["object"]["apiVersion"].as_str()), ("b".into(), Some("x.io/v1")));
    assert!(watch.ended().await, "what comes later is in another form");
    let mut old = Watch::open(&server, &format!("{FOOS}?watch=true&resourceVersion={}", version(&a))).await;
    assert_eq!(old.news().await, [format!("ERROR 410 too old resource version: {} ({b})", version(&a))]);
    assert_eq!(get(&server, &format!("{FOOS}/a")).await.json(), a, "neither content nor version has changed");
    let beta = FOOS.replace("/v1/", "/v1beta1/");
    let mut read = get(&server, &format!("{beta}/a")).await.json();
    assert_eq!((read["apiVersion"].as_str(), version(&read)), (Some("x.io/v1beta1"), version(&a)));
    read["spec"]["color"] = json!("blue");
    assert_eq!(update(&server, &format!("{beta}/a"), &read).await["apiVersion"], "x.io/v1beta1");
    assert_eq!(get(&server, FOOS).await.json()["items"][0]["apiVersion"], "x.io/v1");
}

#[tokio::test(start_paused = true)]
async fn objects_follow_the_selectable_fields() {
    let server = with_foos().await;
    create(&server, FOOS, &foo("a", "red")).await;
    let mut sized = foo("b", "blue");
    sized["spec"]["size"] = json!("red");
    create(&server, FOOS, &sized).await;
    let fields = json!([{ "jsonPath": ".spec.size" }, { "jsonPath": ".spec.color" }]);
    let path = format!("{DEFINITIONS}/foos.x.io");
    let mut changed = get(&server, &path).await.json();
    changed["spec"]["versions"][0]["selectableFields"] = fields;
    update(&server, &path, &changed).await;
    assert_eq!(get(&server, &format!("{FOOS}?fieldSelector=spec.size%3Dred")).await.names(), ["b"]);
    assert_eq!(get(&server, &format!("{FOOS}?fieldSelector=spec.color%3Dred")).await.names(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_definition_takes_its_objects_with_it() {
    let server = with_foos().await;
    create(&server, FOOS, &foo("a", "red")).await;
    let mut held = foo("held", "red");
    held["metadata"]["finalizers"] = json!(["x.io/hold"]);
    create(&server, FOOS, &held).await;
    let mut watch = Watch::open(&server, &format!("{FOOS}?watch=true")).await;
    assert_eq!(watch.news().await.len(), 2);
    let answer = delete(&server, &format!("{DEFINITIONS}/foos.x.io")).await.json();
    assert_eq!(answer["kind"], "CustomResourceDefinition");
    settle().await;
    let types: Vec<_> =
        watch.news().await.iter().map(|news| news.split('@').next().unwrap().to_owned()).collect();
    assert_eq!(types, ["DELETED a", "MODIFIED held"]);
    assert_eq!(send(&server, "POST", FOOS, &foo("new", "red")).await.code, 405);
    merge_patch(&server, &format!("{FOOS}/held"), &json!({ "metadata": { "finalizers": null } })).await;
    settle().await;
    let last = watch.news().await;
    assert!(last.last().unwrap().starts_with("DELETED held"), "{last:?}");
    assert!(watch.ended().await, "nothing can come any more");
    assert_eq!(get(&server, FOOS).await.code, 404);
    assert_eq!(get(&server, &format!("{DEFINITIONS}/foos.x.io")).await.code, 404);
    create(&server, DEFINITIONS, &definition()).await;
    assert!(get(&server, FOOS).await.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_restored_definition_can_end_again() {
    let server = with_foos().await;
    let mut held = foo("held", "red");
    held["metadata"]["finalizers"] = json!(["x.io/hold"]);
    create(&server, FOOS, &held).await;
    let path = format!("{DEFINITIONS}/foos.x.io");
    delete(&server, &path).await;
    settle().await;
    let backup = server.backup();
    for _ in 0..2 {
        let mut watch = Watch::open(&server, &format!("{FOOS}?watch=true")).await;
        assert_eq!(watch.news().await.len(), 1);
        merge_patch(&server, &format!("{FOOS}/held"), &json!({ "metadata": { "finalizers": null } })).await;
        settle().await;
        assert_eq!(get(&server, &path).await.code, 404);
        assert!(watch.news().await[0].starts_with("DELETED held"));
        assert!(watch.ended().await, "nothing can come any more");
        server.restore(&backup);
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_must_make_sense() {
    let server = server();
    let mut wrong_name = definition();
    wrong_name["metadata"]["name"] = json!("bars.x.io");
    let mut two = definition();
    two["spec"]["versions"][1]["storage"] = json!(true);
    let mut scope = definition();
    scope["spec"]["scope"] = json!("Galaxy");
    let nothing = json!({ "metadata": { "name": "foos.x.io" } });
    let odd =
        json!({ "metadata": { "name": "foos.x.io" }, "spec": { "group": 1, "names": [], "versions": "v1" } });
    for bad in [wrong_name, two, scope, nothing, odd] {
        assert_eq!(send(&server, "POST", DEFINITIONS, &bad).await.code, 422, "{bad}");
    }
    let mut made = create(&server, DEFINITIONS, &definition()).await;
    made["spec"]["scope"] = json!("Cluster");
    assert_eq!(
        send(&server, "PUT", &format!("{DEFINITIONS}/foos.x.io"), &made).await.code,
        422,
        "the scope stays"
    );
}
