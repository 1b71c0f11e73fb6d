//! The pipeline end to end, on the embedded server.

mod common;

use std::time::Duration;

use common::{Log, api, change, content, create, delete, server, settle};
use expect_test::expect;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_informer::SharedInformerFactory;

#[tokio::test(start_paused = true)]
async fn lists_then_watches_and_tells_handlers() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    create(&api, "b", "1").await;

    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    let log = Log::default();
    let seen = informer.add_handler(log.handler());
    factory.start();
    factory.wait_for_sync().await.unwrap();
    seen.wait_for_sync().await;
    expect![[r#"
        add a=1 (initial)
        add b=1 (initial)
    "#]]
    .assert_eq(&log.take());
    assert_eq!(content(&informer), "a=1 b=1");

    change(&api, "a", "2").await;
    create(&api, "c", "1").await;
    delete(&api, "b").await;
    settle().await;
    expect![[r#"
        update a=1 → a=2
        add c=1
        delete b=1
    "#]]
    .assert_eq(&log.take());
    assert_eq!(content(&informer), "a=2 c=1");
    let stats = server.stats().resource("configmaps");
    assert_eq!((stats.lists, stats.streaming_lists, stats.watches), (0, 1, 0));

    factory.shutdown().await.unwrap();
    assert_eq!(factory.running_tasks(), 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.stats().open_watches, 0);
}
