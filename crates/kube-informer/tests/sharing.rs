//! What a factory shares, what it keeps apart, and where it says no.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Log, api, content, create, server, settle};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube_client::api::{Api, PostParams};
use kube_core::ApiResource;
use kube_informer::reflector::ReflectorConfig;
use kube_informer::{FieldPath, IndexBy, InformerOptions, Kind, SharedInformerFactory, Storage, Transform};
use serde::Deserialize;
use serde_json::Value;

fn is_same<A, B>(one: &kube_informer::SharedInformer<A>, other: &kube_informer::SharedInformer<B>) -> bool {
    // Both read the same copy if an index of the one is an index of the other.
    let name = "is it the same?";
    one.add_index_by(name, kube_informer::IndexBy::owner()).unwrap();
    let same = other.snapshot().index_values(name).is_ok();
    one.remove_index(name).unwrap();
    same
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_for_the_same_gets_the_same() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let one = factory.informer::<ConfigMap>();
    let two = factory.clone().informer_with::<ConfigMap>(factory.defaults()).unwrap();
    let dynamic = factory.dynamic(&ApiResource::erase::<ConfigMap>(&()), true, factory.defaults()).unwrap();
    let by_kind = factory.informer_of::<Value>(Kind::of::<ConfigMap>(), factory.defaults()).unwrap();
    assert!(is_same(&one, &two) && is_same(&one, &dynamic) && is_same(&one, &by_kind));
    assert!(!is_same(&one, &factory.informer::<Secret>()));
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert_eq!(server.stats().resource("configmaps").streaming_lists, 1);
    assert_eq!(factory.stats().len(), 1, "the informer of secrets is gone, for nobody holds it");
    assert_eq!(dynamic.lister().get("default/a").unwrap().get().unwrap().data["data"]["v"], "1");
    assert_eq!(one.lister().get("default/a").unwrap().get().unwrap().data.as_ref().unwrap()["v"], "1");
}

#[tokio::test(start_paused = true)]
async fn other_objects_are_another_cache() {
    let server = server();
    let factory = SharedInformerFactory::new(server.client());
    let all = factory.informer::<ConfigMap>();
    let transform = Transform::json(|_| {});
    let options = || InformerOptions::default();
    let others = [
        options().namespace("a"),
        options().namespace("b"),
        options().namespace("b").namespace("a"),
        options().labels("app=web"),
        options().fields("metadata.name=a"),
        options().cut(".data".parse::<FieldPath>().unwrap()),
        options().keep_managed_fields(),
        options().metadata_only(),
        options().storage(Storage::Decoded),
        options().transform(transform.clone()),
        options().transform(Transform::json(|_| {})),
        options().changing_namespaces(),
    ];
    let others: Vec<_> =
        others.iter().map(|options| factory.informer_with::<ConfigMap>(options.clone()).unwrap()).collect();
    for (i, one) in others.iter().enumerate() {
        assert!(!is_same(one, &all), "{i}");
        for (j, other) in others.iter().enumerate().filter(|(j, _)| *j != i) {
            assert!(!is_same(one, other), "{i} and {j}");
        }
    }
    let same = [options().namespace("a").namespace("b").namespace("a"), options().transform(transform)];
    for (options, i) in same.into_iter().zip([2, 9]) {
        assert!(is_same(&factory.informer_with::<ConfigMap>(options).unwrap(), &others[i]), "{i}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_setting_for_the_same_objects_is_a_conflict_whoever_comes_first() {
    let server = server();
    let factory = SharedInformerFactory::new(server.client());
    let resync = factory.defaults().resync_every(Duration::from_mins(1));
    let error = factory.informer_with::<ConfigMap>(resync.clone()).unwrap_err();
    assert_eq!((error.kind.as_str(), error.option), ("v1 ConfigMap", "resync_every"));
    let _factorys_own = factory.informer::<ConfigMap>();
    assert_eq!(factory.informer_with::<ConfigMap>(resync.clone()).unwrap_err(), error);
    let error = factory.informer_with::<ConfigMap>(factory.defaults().verify_every(Duration::from_hours(1)));
    assert_eq!(error.unwrap_err().option, "verify_every");
    let error = factory.informer_with::<ConfigMap>(factory.defaults().metadata_only().queue_limit_bytes(1));
    assert_eq!(error.unwrap_err().option, "queue_limit_bytes");
    let _metadata = factory.metadata::<ConfigMap>();
    // Of other objects, whoever comes second must ask for the same.
    let _web = factory.informer_with::<ConfigMap>(resync.clone().labels("app=web")).unwrap();
    let _same = factory.informer_with::<ConfigMap>(resync.labels("app=web")).unwrap();
    let error = factory.informer_with::<ConfigMap>(factory.defaults().labels("app=web")).unwrap_err();
    assert!(error.to_string().starts_with("v1 ConfigMap is cached with another resync_every; "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_after_the_start_starts_at_once() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let informer = factory.informer::<ConfigMap>();
    informer.wait_for_sync().await.unwrap();
    assert_eq!(content(&informer), "a=1");
}

#[tokio::test(start_paused = true)]
async fn defaults_of_the_factory_reach_every_informer() {
    let server = server();
    let config_maps = api(&server);
    create(&config_maps, "a", "1").await;
    let other: Api<ConfigMap> = Api::namespaced(server.client(), "kube-system");
    other.create(&PostParams::default(), &common::config_map("far", &[], &[])).await.unwrap();
    let defaults = InformerOptions::default().namespace("default").resync_every(Duration::from_secs(10));
    let factory = SharedInformerFactory::with_defaults(server.client(), defaults);
    let informer = factory.informer::<ConfigMap>();
    let nodes = factory.informer::<Node>();
    let log = Log::default();
    let _seen = informer.add_handler(log.handler());
    factory.start();
    factory.wait_for_sync().await.unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(log.take(), "add a=1 (initial)\nupdate a=1 → a=1\n", "one namespace, and a resync");
    assert!(nodes.namespaces().is_empty(), "nodes have no namespace");
    assert_eq!(informer.namespaces(), ["default"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_all_says_who_is_late() {
    let server = server();
    let factory = SharedInformerFactory::new(server.client());
    let _known = factory.informer::<ConfigMap>();
    let unknown = ApiResource::from_gvk(&kube_core::GroupVersionKind::gvk("example.org", "v1", "Foo"));
    let _unknown = factory.dynamic(&unknown, true, factory.defaults()).unwrap();
    factory.start();
    let late = factory.wait_for_sync_within(Duration::from_secs(30)).await.unwrap_err();
    assert_eq!(late.0.len(), 1);
    assert_eq!(late.0[0].kind, "example.org/v1 Foo");
    assert!(late.0[0].why.contains("404"), "{}", late.0[0].why);
    // It goes through `?` and says the same.
    let error: Box<dyn std::error::Error + Send + Sync> = late.clone().into();
    assert_eq!(error.to_string(), late.0[0].to_string());
}

#[derive(Deserialize)]
struct Small {
    data: std::collections::BTreeMap<String, String>,
}

#[tokio::test(start_paused = true)]
async fn one_copy_is_read_as_any_type() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    let small = informer.read_as::<Small>();
    let metadata = informer.read_as::<kube_core::metadata::PartialObjectMeta<ConfigMap>>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert_eq!(small.lister().get("default/a").unwrap().get().unwrap().data["v"], "1");
    let object = metadata.lister().get("default/a").unwrap();
    assert_eq!(object.get().unwrap().metadata.name.as_deref(), Some("a"));
    let unfit = informer.read_as::<Vec<u8>>().lister().get("default/a").unwrap();
    let error = unfit.get().unwrap_err().to_string();
    assert!(error.starts_with("v1 ConfigMap default/a cannot be read as"), "{error}");
    assert_eq!(server.stats().resource("configmaps").streaming_lists, 1);
    // An index over the smaller type is an index of the one copy.
    small.add_index("v", |object| object.get().ok().map(|small| small.data["v"].clone())).unwrap();
    assert_eq!(informer.lister().by_index("v", "1").unwrap().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_can_be_asked_of_the_server() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.metadata::<ConfigMap>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let raw = informer.read_as::<Value>().lister().get("default/a").unwrap();
    assert!(raw.get().unwrap().get("data").is_none(), "{:?}", raw.get());
    assert_eq!(raw.label("app"), Some("1"));
    common::change(&api, "a", "2").await;
    settle().await;
    assert_eq!(content(&informer), "a=2");
}

#[tokio::test(start_paused = true)]
async fn decoded_storage_keeps_values_of_one_type() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let decoded = || InformerOptions::default().storage(Storage::Decoded);
    let informer = factory.informer_with::<ConfigMap>(decoded()).unwrap();
    let other = factory.informer_of::<Value>(Kind::of::<ConfigMap>(), decoded()).unwrap();
    assert!(!is_same(&informer, &other), "as another type, it is another cache");
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let (one, two) =
        (informer.lister().get("default/a").unwrap(), informer.lister().get("default/a").unwrap());
    assert!(std::ptr::eq(one.get().unwrap(), two.get().unwrap()), "nothing is decoded again");
    assert!(one.bytes().is_none());
    let error = one.read_as::<Value>().get().unwrap_err().to_string();
    assert!(error.contains("this cache keeps its objects decoded, as another type"), "{error}");
    assert_eq!(other.lister().get("default/a").unwrap().get().unwrap()["data"]["v"], "1");
}

#[tokio::test(start_paused = true)]
async fn cuts_and_transforms_change_what_is_kept_and_never_the_version() {
    let server = server();
    let api = api(&server);
    let made = create(&api, "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let cut = InformerOptions::default().cut(".data".parse().unwrap());
    let cut = factory.informer_with::<ConfigMap>(cut).unwrap();
    let kept = factory.informer_with::<ConfigMap>(InformerOptions::default().keep_managed_fields()).unwrap();
    let serialized = Transform::serialized::<ConfigMap>(|object| {
        object.metadata = kube_core::ObjectMeta::default();
        object.data = Some([("from".to_owned(), "transform".to_owned())].into());
    });
    let serialized =
        factory.informer_with::<ConfigMap>(InformerOptions::default().transform(serialized)).unwrap();
    let made_into = Transform::decoded(|object: ConfigMap| object.data.unwrap_or_default().len());
    let made_into = InformerOptions::default().transform(made_into);
    let lengths = factory.informer_of::<usize>(Kind::of::<ConfigMap>(), made_into).unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let version = made.metadata.resource_version.as_deref().unwrap();
    for informer in [&cut, &kept, &serialized] {
        let object = informer.lister().get("default/a").unwrap();
        assert_eq!(object.version().to_string(), version);
        assert_eq!(*object.uid(), *made.metadata.uid.as_deref().unwrap());
        assert_eq!(object.label("app"), Some("1"));
    }
    assert!(cut.lister().get("default/a").unwrap().get().unwrap().data.is_none());
    let data = |informer: &kube_informer::SharedInformer<ConfigMap>| {
        informer.lister().get("default/a").unwrap().get().unwrap().data.clone().unwrap()
    };
    assert_eq!(data(&serialized)["from"], "transform");
    assert_eq!(data(&kept)["v"], "1");
    assert_eq!(lengths.lister().get("default/a").unwrap().get().unwrap(), &1);
}

#[tokio::test(start_paused = true)]
async fn a_transform_that_panics_sets_one_object_aside_and_an_index_does_not() {
    let server = server();
    let api = api(&server);
    for name in ["bad", "good", "wrong"] {
        create(&api, name, name).await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let transform = Transform::json(|value| assert_ne!(value["metadata"]["name"], "bad", "no bad ones"));
    let informer =
        factory.informer_with::<ConfigMap>(InformerOptions::default().transform(transform)).unwrap();
    informer
        .add_index("v", |object| {
            let value = object.get().ok().map(|map| map.data.as_ref().unwrap()["v"].clone()).unwrap();
            assert_ne!(value, "wrong", "no wrong ones");
            [value]
        })
        .unwrap();
    let log = Log::default();
    let seen = informer.add_handler(log.handler());
    factory.start();
    seen.wait_for_sync().await;
    assert_eq!(log.take(), "add good=good (initial)\nadd wrong=wrong (initial)\n");
    let aside: Vec<_> = informer.stats().store.set_aside;
    let names: Vec<_> = aside.iter().map(|aside| aside.key.as_ref().unwrap().name()).collect();
    assert_eq!(names, ["bad"]);
    assert!(aside[0].problem.contains("no bad ones"), "{aside:?}");
    let snapshot = informer.snapshot();
    let failed: Vec<_> = snapshot.unindexed().collect();
    assert!(failed.len() == 1 && failed[0].problem.contains("no wrong ones"), "{failed:?}");
    common::change(&api, "wrong", "right").await;
    settle().await;
    assert_eq!(log.take(), "update wrong=wrong → wrong=right\n");
    assert_eq!(
        informer.lister().by_index("v", "right").unwrap().count(),
        1,
        "it is tried again when it changes"
    );
    assert_eq!(informer.stats().store.unindexed, 0);
}

#[tokio::test(start_paused = true)]
async fn an_error_hook_is_never_left_out_in_silence() {
    let server = server();
    let factory = SharedInformerFactory::new(server.client());
    let _first = factory.informer::<ConfigMap>();
    let config = ReflectorConfig { on_error: Some(Arc::new(|_| {})), ..ReflectorConfig::default() };
    let hooked = InformerOptions::default().reflector(config);
    let error = factory.informer_with::<ConfigMap>(hooked.clone()).unwrap_err();
    assert_eq!(error.option, "reflector.on_error");
    let web = hooked.labels("app=web");
    let one = factory.informer_with::<ConfigMap>(web.clone()).unwrap();
    assert!(
        is_same(&one, &factory.informer_with::<ConfigMap>(web).unwrap()),
        "the same hook is no difference"
    );
}

#[tokio::test(start_paused = true)]
async fn kinds_without_namespaces_are_not_taken_for_changing_ones() {
    let server = server();
    let defaults = InformerOptions::default().changing_namespaces().namespace("a");
    let factory = SharedInformerFactory::with_defaults(server.client(), defaults);
    let other = factory.defaults().resync_every(Duration::from_mins(1));
    let error = factory.informer_with::<Node>(other).unwrap_err();
    assert_eq!(error.option, "resync_every");
    let _nodes = factory.informer::<Node>();
}

#[tokio::test(start_paused = true)]
async fn a_cache_of_values_refuses_an_index_of_bytes() {
    let server = server();
    let factory = SharedInformerFactory::new(server.client());
    let by = || IndexBy::field(".data.v".parse().unwrap());
    for options in [
        InformerOptions::default().storage(Storage::Decoded),
        InformerOptions::default().transform(Transform::decoded(|map: ConfigMap| map)),
    ] {
        let informer = factory.informer_with::<ConfigMap>(options).unwrap();
        let error = informer.add_index_by("v", by()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the index 'v' reads bytes, and this cache keeps decoded values; use IndexBy::object"
        );
    }
    factory.informer::<ConfigMap>().add_index_by("v", by()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_was_shut_down_is_not_handed_out_again() {
    let server = common::server();
    let factory = SharedInformerFactory::new(server.client());
    let first = factory.informer::<ConfigMap>();
    factory.start();
    first.shutdown_within(Duration::from_secs(1)).await.unwrap();
    let second = factory.informer::<ConfigMap>();
    assert!(second.is_running() && !first.is_running());
}

#[tokio::test(start_paused = true)]
async fn an_informer_with_changing_namespaces_belongs_to_its_factory() {
    let server = common::server();
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().namespace("default").changing_namespaces();
    let maps = factory.informer_with::<ConfigMap>(options).unwrap();
    factory.start();
    assert!(maps.is_running());
    assert_eq!(factory.stats().len(), 1);
}
