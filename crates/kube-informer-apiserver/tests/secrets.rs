//! Stored objects do not show in `{:?}`: a log line with a server in it must not hold its secrets.

mod common;

use common::{create, server};
use kube_informer_apiserver::ApiServer;
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn debug_output_shows_no_stored_object() {
    let faults = Faults::seeded(1).rule(Rule::on(Fault::Restore { behind: 1 }).requests(9..=9));
    let server = ApiServer::builder().faults(faults.clone()).build();
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "password": "hunter2" }, "data": { "k": "aHVudGVyMg==" } });
    create(&server, "/api/v1/namespaces/default/secrets", &secret).await;
    // Each request leaves a backup with the faults.
    let _ = server.client().apiserver_version().await;
    let (connection, backup) = (server.connect(), server.backup());
    let builder = ApiServer::builder().faults(faults.clone());
    for text in [
        format!("{server:?}"),
        format!("{server:#?}"),
        format!("{connection:?}"),
        format!("{backup:?}"),
        format!("{faults:?}"),
        format!("{builder:?}"),
        format!("{:?}", server.stats()),
    ] {
        assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{text}");
        assert!(text.len() < 10_000, "{}", text.len());
    }
    assert!(format!("{backup:?}").contains(&backup.revision().to_string()), "{backup:?}");
}

#[test]
fn debug_output_is_short_without_a_runtime() {
    assert_eq!(format!("{:?}", server()), "ApiServer { has_faults: false, .. }");
}
