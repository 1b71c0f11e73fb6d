//! A healthy server gets no request that is not needed: only watches that end by their own time are opened again.

mod common;

use std::time::Duration;

use common::{api, change, create, server};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube_informer::reflector::ReflectorConfig;
use kube_informer::{InformerOptions, SharedInformerFactory};
use kube_informer_apiserver::{ApiServer, ResourceStats};

const DAY: Duration = Duration::from_hours(24);

fn reads(server: &ApiServer) -> ResourceStats {
    let all = server.stats().total();
    ResourceStats { creates: 0, updates: 0, patches: 0, deletes: 0, bytes_out: 0, ..all }
}

/// Six informers of three kinds: quiet, busy, selected, of two namespaces, as metadata.
fn informers(factory: &SharedInformerFactory) -> Vec<Box<dyn std::any::Any>> {
    let with = |options: InformerOptions| factory.informer_with::<ConfigMap>(options).unwrap();
    vec![
        Box::new(factory.informer::<Secret>()),
        Box::new(factory.informer::<ConfigMap>()),
        Box::new(factory.informer::<Namespace>()),
        Box::new(with(InformerOptions::default().labels("app=web"))),
        Box::new(with(InformerOptions::default().namespace("default").namespace("kube-system"))),
        Box::new(with(InformerOptions::default().metadata_only())),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_healthy_day_costs_only_watches_that_end_in_time() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "0").await;
    let factory = SharedInformerFactory::new(server.client());
    let paged = ReflectorConfig { streaming_lists: false, ..ReflectorConfig::default() };
    let paged = InformerOptions::default().reflector(paged);
    let in_pages = SharedInformerFactory::with_defaults(server.client(), paged);
    let informers = (informers(&factory), in_pages.informer::<ConfigMap>());
    for factory in [&factory, &in_pages] {
        factory.start();
        factory.wait_for_sync().await.unwrap();
    }
    let before = reads(&server);
    for hour in 0..24 {
        change(&api, "a", &hour.to_string()).await;
        tokio::time::sleep(DAY / 24).await;
    }
    let after = reads(&server);
    let watches = after.watches - before.watches;
    assert_eq!(ResourceStats { watches: before.watches, ..after }, before, "watches are the only requests");
    // Of seven informers, one has two reflectors. A watch lasts five to ten minutes, after the first one, which is open already.
    let (least, most) = (8 * 24 * 6, 8 * 24 * 12);
    assert!((least - 8..=most).contains(&watches), "{watches} watches, expected {least} to {most}");
    assert_eq!(server.stats().open_watches, 8);
    drop(informers);
}

#[tokio::test(start_paused = true)]
async fn verification_costs_one_list_each_time() {
    let server = server();
    create(&api(&server), "a", "0").await;
    let reflector =
        ReflectorConfig { verify_every: Some(Duration::from_hours(1)), ..ReflectorConfig::default() };
    let options = InformerOptions::default().reflector(reflector);
    let factory = SharedInformerFactory::with_defaults(server.client(), options);
    let informer = factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let before = reads(&server);
    tokio::time::sleep(DAY + Duration::from_mins(1)).await;
    let after = reads(&server);
    assert_eq!(after.lists - before.lists, 24);
    assert_eq!(
        ResourceStats { watches: 0, lists: 0, ..after },
        ResourceStats { watches: 0, lists: 0, ..before }
    );
    drop(informer);
}
