//! Versions, compaction, restarts, backups.

mod common;

use std::time::Duration;

use common::{MAPS, Watch, config_map, create, delete, get, server, update, version};
use kube_informer_apiserver::ApiServer;
use serde_json::{Value, json};

async fn touch(server: &ApiServer, name: &str, value: &str) -> u64 {
    let object = json!({ "metadata": { "name": name }, "data": { "k": value } });
    version(&update(server, &format!("{MAPS}/{name}"), &object).await)
}

#[tokio::test(start_paused = true)]
async fn one_revision_counts_for_everything() {
    let server = server();
    let first = version(&create(&server, MAPS, &config_map("a")).await);
    let second = version(&create(&server, common::PODS, &common::pod("p")).await);
    assert_eq!(second, first + 1);
    assert_eq!(get(&server, MAPS).await.version(), second, "a list has the store's revision");
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.version(), first, "an object that of its last write");
    assert_eq!(server.revision(), second);
}

#[tokio::test(start_paused = true)]
async fn restart_forgets_the_watch_history_and_nothing_else() {
    let server = server();
    let before = version(&create(&server, MAPS, &config_map("a")).await);
    let mut open = Watch::open(&server, &format!("{MAPS}?watch=true&resourceVersion={before}")).await;
    let now = touch(&server, "a", "w").await;
    server.restart();
    assert!(open.ended().await, "open streams are closed");
    let mut old = Watch::open(&server, &format!("{MAPS}?watch=true&resourceVersion={before}")).await;
    assert_eq!(old.news().await, [format!("ERROR 410 too old resource version: {before} ({now})")]);
    let mut current = Watch::open(&server, &format!("{MAPS}?watch=true&resourceVersion={now}")).await;
    let next = touch(&server, "a", "x").await;
    assert_eq!(current.news().await, [format!("MODIFIED a@{next}")]);
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.json()["data"]["k"], "x");
}

#[tokio::test(start_paused = true)]
async fn compaction_expires_old_versions_and_spares_open_watches() {
    let server = server();
    let old = version(&create(&server, MAPS, &config_map("a")).await);
    let mut open = Watch::open(&server, &format!("{MAPS}?watch=true&resourceVersion={old}")).await;
    let new = touch(&server, "a", "w").await;
    server.compact_now();
    assert_eq!(open.news().await, [format!("MODIFIED a@{new}")], "a live watch had not read it yet");
    let exact = get(&server, &format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact")).await;
    assert_eq!((exact.code, exact.json()["reason"].as_str()), (410, Some("Expired")));
    assert_eq!(exact.message(), "The resourceVersion for the provided list is too old.");
    let mut late = Watch::open(&server, &format!("{MAPS}?watch=true&resourceVersion={old}")).await;
    assert_eq!(late.news().await, [format!("ERROR 410 too old resource version: {old} ({new})")]);
}

#[tokio::test(start_paused = true)]
async fn history_is_bounded_by_length_and_by_age() {
    let server = ApiServer::builder().history_len(3).history_age(Duration::from_secs(10)).build();
    let first = version(&create(&server, MAPS, &config_map("a")).await);
    for value in 0..4 {
        touch(&server, "a", &value.to_string()).await;
    }
    let watch = async |from: u64| {
        Watch::open(&server, &format!("{MAPS}?watch=true&resourceVersion={from}")).await.news().await.len()
    };
    assert_eq!(watch(first + 1).await, 3, "the last three are known");
    let mut gone = Watch::open(&server, &format!("{MAPS}?watch=true&resourceVersion={first}")).await;
    assert!(gone.news().await[0].starts_with("ERROR 410"));
    tokio::time::sleep(Duration::from_secs(11)).await;
    let last = touch(&server, "a", "last").await;
    assert_eq!(watch(last - 1).await, 1);
    let mut aged = Watch::open(&server, &format!("{MAPS}?watch=true&resourceVersion={}", last - 2)).await;
    assert!(aged.news().await[0].starts_with("ERROR 410"));
}

#[tokio::test(start_paused = true)]
async fn a_backup_brings_objects_and_revision_back() {
    let server = server();
    let a = create(&server, MAPS, &config_map("a")).await;
    let backup = server.backup();
    create(&server, MAPS, &config_map("b")).await;
    delete(&server, &format!("{MAPS}/a")).await;
    let mut open = Watch::open(&server, &format!("{MAPS}?watch=true")).await;
    open.news().await;
    server.restore(&backup);
    assert!(open.ended().await);
    let list = get(&server, MAPS).await;
    assert_eq!((list.names(), list.version()), (vec!["a".to_owned()], backup.revision()));
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.json(), a);
    let c = create(&server, MAPS, &config_map("c")).await;
    assert_eq!(version(&c), backup.revision() + 1, "versions go backwards");
    let mut watch =
        Watch::open(&server, &format!("{MAPS}?watch=true&resourceVersion={}", backup.revision())).await;
    assert_eq!(watch.news().await, [format!("ADDED c@{}", version(&c))]);
}

#[tokio::test(start_paused = true)]
async fn what_was_ending_in_a_backup_ends() {
    let server = server();
    let ending = "/api/v1/namespaces/ending";
    create(&server, "/api/v1/namespaces", &json!({ "metadata": { "name": "ending" } })).await;
    let owner = create(&server, MAPS, &config_map("owner")).await;
    let mut owned = config_map("owned");
    owned["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"] }]);
    create(&server, MAPS, &owned).await;
    delete(&server, ending).await;
    delete(&server, &format!("{MAPS}/owner")).await;
    // The background work has had no turn yet.
    let backup = server.backup();
    let ended = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        (get(&server, ending).await.code, get(&server, MAPS).await.names())
    };
    assert_eq!(ended().await, (404, Vec::new()));
    server.restore(&backup);
    assert_eq!(get(&server, ending).await.json()["status"]["phase"], "Terminating");
    assert_eq!(ended().await, (404, Vec::new()), "and again");
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_objects() {
    let mut seen: Vec<Value> = Vec::new();
    for _ in 0..2 {
        let server = server();
        let generated = json!({ "metadata": { "generateName": "g-" } });
        seen.push(create(&server, MAPS, &generated).await);
    }
    assert_eq!(seen[0], seen[1]);
}
