//! How many requests an informer makes, by the server's own count.

mod common;

use std::time::Duration;

use common::{Log, api, change, content, create, server, settle};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_client::api::{Api, PostParams};
use kube_informer::source::KubeSource;
use kube_informer::{InformerOptions, Kind, SharedInformer, SharedInformerFactory};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, ResourceStats};

fn asked(server: &ApiServer) -> ResourceStats {
    server.stats().resource("configmaps")
}

/// How often the whole state was asked for, one way or the other.
fn lists(server: &ApiServer) -> u64 {
    asked(server).lists + asked(server).streaming_lists
}

#[tokio::test(start_paused = true)]
async fn twenty_users_of_a_kind_share_one_list_and_one_watch() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let logs: Vec<Log> = (0..20).map(|_| Log::default()).collect();
    let users: Vec<_> = logs
        .iter()
        .map(|log| {
            let informer = factory.informer::<ConfigMap>();
            let handler = informer.add_handler(log.handler());
            (informer, handler)
        })
        .collect();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    change(&api(&server), "a", "2").await;
    settle().await;
    assert!(logs.iter().all(|log| log.take() == "add a=1 (initial)\nupdate a=1 → a=2\n"));
    // A streaming list goes on as the watch.
    assert_eq!((lists(&server), asked(&server).watches, server.stats().open_watches), (1, 0, 1));
    drop(users);
}

#[tokio::test(start_paused = true)]
async fn in_an_hour_there_is_no_further_list() {
    let server = server();
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    for minute in 0..60 {
        create(&api(&server), &format!("m{minute}"), "1").await;
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    assert_eq!(informer.lister().count(), 60);
    assert_eq!(lists(&server), 1);
    // Each watch lasts five to ten minutes.
    assert!((5..=12).contains(&asked(&server).watches), "{:?}", asked(&server));
}

#[tokio::test(start_paused = true)]
async fn connections_cut_a_hundred_times_cost_no_list() {
    let faults = Faults::none();
    let server = ApiServer::builder().faults(faults.clone()).build();
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    let log = Log::default();
    let seen = informer.add_handler(log.handler());
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let before = lists(&server);
    for number in 0..100 {
        faults.inject(Rule::on(Fault::CutStream).times(1));
        create(&api(&server), &format!("c{number}"), "1").await;
        tokio::time::sleep(Duration::from_secs(15)).await;
    }
    assert_eq!(faults.count(Fault::CutStream), 100);
    assert_eq!(lists(&server) - before, 0);
    assert_eq!(asked(&server).watches, 100);
    assert_eq!((informer.lister().count(), log.len()), (100, 100), "nothing lost, nothing told twice");
    drop(seen);
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_server_costs_one_list_and_tells_nothing_of_what_did_not_change() {
    let server = server();
    for name in ["a", "b", "c"] {
        create(&api(&server), name, "1").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    let log = Log::default();
    let seen = informer.add_handler(log.handler());
    factory.start();
    factory.wait_for_sync().await.unwrap();
    seen.wait_for_sync().await;
    log.take();
    let before = lists(&server);

    // Something else moves the server on, so that it does not know the informer's version after the restart.
    let other: Api<Namespace> = Api::all(server.client());
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("other".to_owned());
    other.create(&PostParams::default(), &namespace).await.unwrap();
    server.restart();
    change(&api(&server), "b", "2").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(lists(&server) - before, 1);
    assert_eq!(log.take(), "update b=1 → b=2\n");
    assert_eq!(content(&informer), "a=1 b=2 c=1");
}

#[tokio::test(start_paused = true)]
async fn the_selectors_of_a_source_narrow_with_every_call() {
    let server = ApiServer::new();
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "db")] {
        create(&api(&server), name, app).await;
    }
    let kind = Kind::new("v1", "ConfigMap", "configmaps", true);
    let source = KubeSource::new(server.client(), kind.clone());
    let source =
        source.labels("app=web").labels("app!=db").fields("metadata.name!=a").fields("metadata.name!=c");
    let informer = SharedInformer::<ConfigMap>::over(kind, source, InformerOptions::default());
    informer.start();
    informer.wait_for_sync().await.unwrap();
    assert_eq!(content(&informer), "b=web");
}
