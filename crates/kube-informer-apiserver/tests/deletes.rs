//! Deleting: grace, finalizers, owners, collections, namespaces.

mod common;

use common::{MAPS, PODS, Watch, config_map, create, delete, get, merge_patch, pod, send, server, update};
use kube_informer_apiserver::ApiServer;
use serde_json::{Value, json};

/// Lets the background work run.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

async fn exists(server: &ApiServer, path: &str) -> bool {
    get(server, path).await.code == 200
}

fn owned(name: &str, owner: &Value) -> Value {
    let reference = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": common::name(owner), "uid": owner["metadata"]["uid"] });
    json!({ "metadata": { "name": name, "ownerReferences": [reference] } })
}

#[tokio::test(start_paused = true)]
async fn delete_answers_a_status_or_the_object() {
    let server = server();
    let map = create(&server, MAPS, &config_map("a")).await;
    let answer = delete(&server, &format!("{MAPS}/a")).await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.json()["status"], "Success");
    assert_eq!(
        answer.json()["details"],
        json!({ "name": "a", "kind": "configmaps", "uid": map["metadata"]["uid"] })
    );
    assert_eq!(delete(&server, &format!("{MAPS}/a")).await.code, 404);
    create(&server, PODS, &pod("p")).await;
    assert_eq!(delete(&server, &format!("{PODS}/p")).await.json()["kind"], "Pod");
}

#[tokio::test(start_paused = true)]
async fn pods_on_a_node_end_gracefully() {
    let server = server();
    let mut watch = Watch::open(&server, &format!("{PODS}?watch=true")).await;
    create(&server, PODS, &pod("free")).await;
    delete(&server, &format!("{PODS}/free")).await;
    let types: Vec<_> =
        watch.news().await.iter().map(|news| news.split('@').next().unwrap().to_owned()).collect();
    assert_eq!(types, ["ADDED free", "MODIFIED free", "DELETED free"]);
    let mut bound = pod("bound");
    bound["spec"]["nodeName"] = json!("n");
    create(&server, PODS, &bound).await;
    let answer = delete(&server, &format!("{PODS}/bound")).await.json();
    assert_eq!(answer["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(answer["metadata"]["deletionTimestamp"], "2026-11-15T12:00:30Z");
    assert_eq!(answer["metadata"]["generation"], 2);
    assert!(exists(&server, &format!("{PODS}/bound")).await);
    let again = delete(&server, &format!("{PODS}/bound?gracePeriodSeconds=5")).await.json();
    assert_eq!(again["metadata"]["deletionGracePeriodSeconds"], 5, "sooner is possible");
    let later = delete(&server, &format!("{PODS}/bound?gracePeriodSeconds=50")).await.json();
    assert_eq!(later["metadata"]["deletionGracePeriodSeconds"], 5, "later is not");
    let now = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0 });
    assert_eq!(send(&server, "DELETE", &format!("{PODS}/bound"), &now).await.code, 200);
    assert!(!exists(&server, &format!("{PODS}/bound")).await);
}

#[tokio::test(start_paused = true)]
async fn preconditions_are_checked() {
    let server = server();
    let object = create(&server, MAPS, &config_map("pre")).await;
    let uid = object["metadata"]["uid"].as_str().unwrap();
    let wrong = json!({ "preconditions": { "uid": "x" } });
    let answer = send(&server, "DELETE", &format!("{MAPS}/pre"), &wrong).await;
    assert_eq!(answer.code, 409);
    assert_eq!(
        answer.message(),
        format!(
            "Operation cannot be fulfilled on ConfigMap \"pre\": the UID in the precondition (x) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        )
    );
    let stale = json!({ "preconditions": { "resourceVersion": "1" } });
    assert_eq!(send(&server, "DELETE", &format!("{MAPS}/pre"), &stale).await.code, 409);
    let right =
        json!({ "preconditions": { "uid": uid, "resourceVersion": object["metadata"]["resourceVersion"] } });
    assert_eq!(send(&server, "DELETE", &format!("{MAPS}/pre"), &right).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object() {
    let server = server();
    let path = format!("{MAPS}/a");
    create(&server, MAPS, &json!({ "metadata": { "name": "a", "finalizers": ["x.io/hold"] } })).await;
    let marked = delete(&server, &path).await.json();
    assert_eq!(marked["kind"], "ConfigMap");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(delete(&server, &path).await.code, 200, "a second deletion changes nothing");
    let added =
        merge_patch(&server, &path, &json!({ "metadata": { "finalizers": ["x.io/hold", "x.io/more"] } }))
            .await;
    assert_eq!(added.code, 422);
    let freed = merge_patch(&server, &path, &json!({ "metadata": { "finalizers": null } })).await;
    assert_eq!(freed.code, 200);
    assert!(!exists(&server, &path).await);
}

#[tokio::test(start_paused = true)]
async fn the_change_that_frees_an_object_is_answered_and_never_stored() {
    let server = server();
    let object = json!({ "metadata": { "name": "a", "finalizers": ["x.io/hold"] }, "data": { "k": "v" } });
    create(&server, MAPS, &object).await;
    let marked = delete(&server, &format!("{MAPS}/a")).await.json();
    let version = marked["metadata"]["resourceVersion"].clone();
    let path = format!("{MAPS}?watch=true&resourceVersion={}", version.as_str().unwrap());
    let mut watch = Watch::open(&server, &path).await;
    let change = json!({ "metadata": { "finalizers": null }, "data": { "k": "w" } });
    let freed = merge_patch(&server, &format!("{MAPS}/a"), &change).await.json();
    assert_eq!((&freed["data"]["k"], &freed["metadata"]["resourceVersion"]), (&json!("w"), &version));
    let event = watch.next().await.unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["data"]["k"].as_str()), (Some("DELETED"), Some("v")));
    assert_eq!(event["object"]["metadata"]["finalizers"], json!(["x.io/hold"]));
    assert!(watch.news().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_shows_what_a_deletion_would_leave() {
    let server = server();
    let mut bound = pod("p");
    bound["spec"]["nodeName"] = json!("n");
    create(&server, PODS, &bound).await;
    let shown = delete(&server, &format!("{PODS}/p?dryRun=All")).await.json();
    assert_eq!(shown["metadata"]["deletionGracePeriodSeconds"], 30);
    let stored = get(&server, &format!("{PODS}/p")).await.json();
    assert_eq!(stored["metadata"].get("deletionTimestamp"), None);
    assert_eq!(stored["metadata"]["resourceVersion"], shown["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_page_by_page_and_shown_as_it_was() {
    let server = server();
    let before =
        create(&server, MAPS, &json!({ "metadata": { "name": "a", "finalizers": ["x.io/hold"] } })).await;
    create(&server, MAPS, &config_map("b")).await;
    create(&server, MAPS, &config_map("c")).await;
    let page = delete(&server, &format!("{MAPS}?limit=2")).await;
    assert_eq!(page.names(), ["a", "b"]);
    let list = page.json();
    assert_eq!(list["items"][0]["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(list["metadata"]["remainingItemCount"], 1);
    assert_eq!(get(&server, MAPS).await.names(), ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn options_of_a_deletion_must_make_sense() {
    let server = server();
    create(&server, MAPS, &config_map("a")).await;
    for options in [
        json!({ "propagationPolicy": "Sideways" }),
        json!({ "propagationPolicy": "Orphan", "orphanDependents": true }),
        json!({ "dryRun": ["Some"] }),
    ] {
        let refused = send(&server, "DELETE", &format!("{MAPS}/a"), &options).await;
        assert_eq!(
            (refused.code, refused.json()["details"]["kind"].as_str()),
            (422, Some("DeleteOptions")),
            "{options}"
        );
    }
    assert!(exists(&server, &format!("{MAPS}/a")).await);
}

#[tokio::test(start_paused = true)]
async fn garbage_goes_with_its_owner() {
    let server = server();
    let owner = create(&server, MAPS, &config_map("owner")).await;
    let child = create(&server, MAPS, &owned("child", &owner)).await;
    create(&server, MAPS, &owned("grandchild", &child)).await;
    create(&server, MAPS, &config_map("other")).await;
    delete(&server, &format!("{MAPS}/owner")).await;
    settle().await;
    assert_eq!(get(&server, MAPS).await.names(), ["other"]);
    create(&server, MAPS, &owned("late", &owner)).await;
    settle().await;
    assert_eq!(get(&server, MAPS).await.names(), ["other"], "an owner that is gone cannot own");
}

#[tokio::test(start_paused = true)]
async fn an_object_stays_while_one_of_its_owners_does() {
    let server = server();
    let first = create(&server, MAPS, &config_map("first")).await;
    let second = create(&server, MAPS, &config_map("second")).await;
    let mut child = owned("child", &first);
    let reference = owned("", &second)["metadata"]["ownerReferences"][0].clone();
    child["metadata"]["ownerReferences"].as_array_mut().unwrap().push(reference);
    create(&server, MAPS, &child).await;
    delete(&server, &format!("{MAPS}/first")).await;
    settle().await;
    assert_eq!(get(&server, MAPS).await.names(), ["child", "second"]);
    delete(&server, &format!("{MAPS}/second")).await;
    settle().await;
    assert!(get(&server, MAPS).await.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn orphans_are_let_go_and_foreground_waits() {
    let server = server();
    let owner = create(&server, MAPS, &config_map("owner")).await;
    create(&server, MAPS, &owned("child", &owner)).await;
    delete(&server, &format!("{MAPS}/owner?propagationPolicy=Orphan")).await;
    settle().await;
    assert_eq!(get(&server, MAPS).await.names(), ["child"]);
    assert_eq!(get(&server, &format!("{MAPS}/child")).await.json()["metadata"].get("ownerReferences"), None);

    let owner = create(&server, MAPS, &config_map("owner")).await;
    let mut held = owned("held", &owner);
    held["metadata"]["finalizers"] = json!(["x.io/hold"]);
    create(&server, MAPS, &held).await;
    let answer = delete(&server, &format!("{MAPS}/owner?propagationPolicy=Foreground")).await.json();
    assert_eq!(answer["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    settle().await;
    assert!(exists(&server, &format!("{MAPS}/owner")).await, "the dependent is still there");
    let held = get(&server, &format!("{MAPS}/held")).await.json();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    let free: Vec<_> = held["metadata"]["finalizers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|f| **f != "x.io/hold")
        .cloned()
        .collect();
    merge_patch(&server, &format!("{MAPS}/held"), &json!({ "metadata": { "finalizers": free } })).await;
    settle().await;
    assert_eq!(get(&server, MAPS).await.names(), ["child"]);
}

#[tokio::test(start_paused = true)]
async fn garbage_collection_can_be_switched_off() {
    let server = ApiServer::builder().garbage_collection(false).build();
    let owner = create(&server, MAPS, &config_map("owner")).await;
    create(&server, MAPS, &owned("child", &owner)).await;
    delete(&server, &format!("{MAPS}/owner")).await;
    settle().await;
    assert_eq!(get(&server, MAPS).await.names(), ["child"]);
}

#[tokio::test(start_paused = true)]
async fn deletecollection_deletes_what_the_selector_says() {
    let server = server();
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "db")] {
        create(&server, MAPS, &json!({ "metadata": { "name": name, "labels": { "app": app } } })).await;
    }
    let answer = delete(&server, &format!("{MAPS}?labelSelector=app%3Dweb")).await;
    assert_eq!((answer.code, answer.names()), (200, vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(get(&server, MAPS).await.names(), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_their_content_with_them() {
    let server = server();
    let path = "/api/v1/namespaces/team";
    create(&server, "/api/v1/namespaces", &json!({ "metadata": { "name": "team" } })).await;
    create(&server, &format!("{path}/configmaps"), &config_map("a")).await;
    let held = json!({ "metadata": { "name": "held", "finalizers": ["x.io/hold"] } });
    create(&server, &format!("{path}/configmaps"), &held).await;
    let mut bound = pod("p");
    bound["spec"]["nodeName"] = json!("n");
    create(&server, &format!("{path}/pods"), &bound).await;
    let answer = delete(&server, path).await.json();
    assert_eq!(
        (answer["kind"].as_str(), answer["status"]["phase"].as_str()),
        (Some("Namespace"), Some("Terminating"))
    );
    let refused = send(&server, "POST", &format!("{path}/configmaps"), &config_map("new")).await;
    assert_eq!((refused.code, refused.json()["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(refused.json()["details"]["causes"][0]["reason"], "NamespaceTerminating");
    settle().await;
    assert_eq!(get(&server, &format!("{path}/configmaps")).await.names(), ["held"]);
    assert!(get(&server, &format!("{path}/pods")).await.names().is_empty());
    assert!(exists(&server, path).await, "something is still in it");
    merge_patch(&server, &format!("{path}/configmaps/held"), &json!({ "metadata": { "finalizers": [] } }))
        .await;
    settle().await;
    assert!(!exists(&server, path).await);
    let forbidden = delete(&server, "/api/v1/namespaces/default").await;
    assert_eq!(forbidden.code, 403);
    assert_eq!(
        get(&server, "/api/v1/namespaces").await.names(),
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespaces_finalizers_are_its_own_subresource() {
    let server = server();
    let path = "/api/v1/namespaces/team";
    let mut namespace =
        create(&server, "/api/v1/namespaces", &json!({ "metadata": { "name": "team" } })).await;
    namespace["spec"]["finalizers"] = json!(["kubernetes", "x.io/hold"]);
    let same = update(&server, path, &namespace).await;
    assert_eq!(same["spec"]["finalizers"], json!(["kubernetes"]), "not by an update");
    let finalized = update(&server, &format!("{path}/finalize"), &namespace).await;
    assert_eq!(finalized["spec"]["finalizers"], json!(["kubernetes", "x.io/hold"]));
}
