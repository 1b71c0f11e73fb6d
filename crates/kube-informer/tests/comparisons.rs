//! Comparisons with the server after a long time without a watch: what they cost, and what holds while they fail.

mod common;
mod scenario;

use std::time::Duration;

use common::{api, change, config_map, content, create, cut_off, delete, weather, weather_of};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::Api;
use kube_client::api::{ListParams, PostParams};
use kube_informer::backoff::BackoffConfig;
use kube_informer::reflector::{Phase, ReflectorConfig};
use kube_informer::source::{
    CheckRequest, History, KubeSource, ListWatch, Script, ScriptedSource, SourceError, Witness,
};
use kube_informer::{InformerOptions, Kind, ObjectKey, SharedInformer, SharedInformerFactory};
use kube_informer_apiserver::faults::{Fault, Rule};
use kube_informer_apiserver::{ApiServer, ResourceStats, Verb};
use scenario::{paged, settle};
use serde_json::Value;

const MINUTE: Duration = Duration::from_mins(1);

fn asked(server: &ApiServer) -> ResourceStats {
    server.stats().resource("configmaps")
}

#[tokio::test(start_paused = true)]
async fn comparison_that_fails_is_visible_for_as_long_as_it_fails() {
    let (server, faults, factory, informer) = weather_of(1, InformerOptions::default()).await;
    let backup = server.backup();
    change(&api(&server), "a", "lost").await;
    settle().await;
    cut_off(&faults).await;
    server.restore(&backup);
    let namespaces = Api::<Namespace>::all(server.client());
    for number in 0..20 {
        let metadata = ObjectMeta { name: Some(format!("n{number}")), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    faults.clear();
    faults.inject(Rule::on(Fault::Forbidden).verb(Verb::List).resource("configmaps"));
    for minute in 2..60 {
        tokio::time::sleep(MINUTE).await;
        if minute > 3 {
            assert!(informer.status()[0].doubted_since.is_some(), "minute {minute}");
            assert!(factory.health(MINUTE).is_err(), "minute {minute}");
        }
    }
    faults.clear();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(content(&informer), "a=1");
    assert_eq!(informer.status()[0].doubted_since, None);
    assert!(factory.health(MINUTE).is_ok());
}

#[tokio::test(start_paused = true)]
async fn comparison_that_fails_does_not_stop_a_watch_that_works() {
    for minutes in [1, 5, 10, 30, 60] {
        let options = InformerOptions::default().verify_every(minutes * MINUTE);
        let (server, faults, _factory, informer) = weather_of(1, options).await;
        faults.inject(Rule::on(Fault::InternalError).verb(Verb::List).resource("configmaps"));
        tokio::time::sleep(70 * MINUTE).await;
        change(&api(&server), "a", "2").await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(content(&informer), "a=2", "verified every {minutes} minutes");
    }
}

#[tokio::test(start_paused = true)]
async fn check_of_a_selected_informer_does_not_answer_for_all_objects() {
    for seed in 1..=12 {
        let seeded = |seed| {
            let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
            InformerOptions::default().reflector(config)
        };
        let (server, faults, factory, informer) = weather_of(600, seeded(seed)).await;
        let api = api(&server);
        create(&api, "special", "special").await;
        let selected = factory.informer_with::<ConfigMap>(seeded(seed + 100).labels("app=special")).unwrap();
        factory.wait_for_sync().await.unwrap();
        let backup = server.backup();
        change(&api, "a", "lost").await;
        tokio::time::sleep(2 * MINUTE).await;
        cut_off(&faults).await;
        server.restore(&backup);
        for number in 0..20 {
            change(&api, "more-001", &format!("new-{number}")).await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        faults.clear();
        tokio::time::sleep(10 * MINUTE).await;
        let stored = api.list(&ListParams::default()).await.unwrap();
        assert_eq!(stored.items.len(), informer.snapshot().len());
        assert!(content(&informer).starts_with("a=1 more-001=new-19 "), "seed {seed}");
        drop(selected);
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_open_slowly_cause_few_lists() {
    let (server, faults, _factory, informer) = weather_of(1, InformerOptions::default()).await;
    faults.inject(Rule::on(Fault::Delay(Duration::from_secs(3))).verb(Verb::Watch));
    tokio::time::sleep(60 * MINUTE).await;
    let lists = asked(&server).lists;
    assert!((1..=12).contains(&lists), "{lists} lists in an hour");
    drop(informer);
}

#[tokio::test(start_paused = true)]
async fn silence_limit_causes_few_lists() {
    for (limit, objects) in [(5, 1), (40, 1), (40, 600)] {
        let silence_limit = Some(Duration::from_secs(limit));
        let config = ReflectorConfig { silence_limit, ..ReflectorConfig::default() };
        let (server, _, _factory, informer) =
            weather_of(objects, InformerOptions::default().reflector(config)).await;
        tokio::time::sleep(24 * 60 * MINUTE).await;
        // No bookmark comes within the limit, so the watches might bring nothing.
        let lists = asked(&server).lists;
        assert!(lists <= 30 * objects.div_ceil(500) as u64, "{limit} s: {lists} lists in a day");
        assert_eq!(asked(&server).streaming_lists, 1, "{limit} s");
        drop(informer);
    }
}

#[tokio::test(start_paused = true)]
async fn last_change_that_cannot_be_read_is_not_a_restore() {
    let (server, faults, _factory, informer) = weather_of(2, InformerOptions::default()).await;
    faults.inject(Rule::on(Fault::BadMetadata).verb(Verb::Watch).times(1));
    change(&api(&server), "a", "2").await;
    settle().await;
    assert_eq!(informer.status()[0].counts.set_aside, 1);
    faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(informer.status()[0].counts.restores, 0);
}

#[tokio::test(start_paused = true)]
async fn older_lists_with_a_healthy_watch_between_them_are_not_a_restore() {
    let source = ScriptedSource::new();
    source.lists(100, &[("a", 90), ("b", 95), ("c", 100)]);
    for _ in 0..200 {
        source.on_watch(Script::TextThenSilence(String::new()));
    }
    for _ in 0..2 {
        source.lists(80, &[("a", 80)]);
        source.on_list(Script::Fail(SourceError::from_response(500, b"{}", None)));
    }
    source.lists(80, &[("a", 80)]);
    for _ in 0..50 {
        source.lists(101, &[("a", 90), ("b", 95), ("c", 100)]);
    }
    let config =
        ReflectorConfig { streaming_lists: false, verify_every: Some(MINUTE), ..ReflectorConfig::default() };
    let options = InformerOptions::default().reflector(config);
    let informer = SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source, options);
    informer.start();
    for _ in 0..20 * 60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(informer.snapshot().len(), 3);
    }
    assert_eq!(informer.status()[0].counts.restores, 0);
}

#[tokio::test(start_paused = true)]
async fn small_kind_is_compared_where_the_server_does_not_count() {
    let answer = |request: http::Request<kube_client::client::Body>| async move {
        let one = request.uri().query().unwrap_or_default().contains("fieldSelector");
        let body: &[u8] = if one {
            br#"{"metadata":{"resourceVersion":"7"},"items":[]}"#
        } else {
            br#"{"metadata":{"resourceVersion":"7","continue":"x"},"items":[{"metadata":{"uid":"u","resourceVersion":"3"}}]}"#
        };
        let response = http::Response::builder().header("content-type", "application/json");
        let body = kube_client::client::Body::from(body.to_vec());
        Ok::<_, std::convert::Infallible>(response.body(body).unwrap())
    };
    let client = kube_client::Client::new(tower::service_fn(answer), "default");
    let source = KubeSource::new(client, Kind::new("v1", "ConfigMap", "configmaps", true));
    let now = tokio::time::Instant::now();
    let request = CheckRequest {
        version: "7".into(),
        lost_at: now,
        resumed_at: now,
        witness: Some(Witness { key: ObjectKey::namespaced("default", "gone"), state: None }),
        count: Some(2),
        thorough: true,
    };
    assert_eq!(source.check(request).await.unwrap(), History::Expired);
}

#[tokio::test(start_paused = true)]
async fn error_event_that_asks_to_wait_is_obeyed() {
    let source = ScriptedSource::new();
    source.lists(5, &[("a", 5)]);
    let status = r#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":30}}"#;
    for version in 6..500 {
        let event = ScriptedSource::event("MODIFIED", "a", version);
        source.on_watch(Script::Text(format!("{event}{{\"type\":\"ERROR\",\"object\":{status}}}\n")));
    }
    let kind = Kind::new("v1", "Pod", "pods", true);
    let informer = SharedInformer::<Value>::over(kind, source.clone(), paged());
    informer.start();
    tokio::time::sleep(2 * MINUTE).await;
    let watches = source.asked().iter().filter(|line| line.starts_with("watch")).count();
    assert!(watches <= 6, "{watches}");
}

#[tokio::test(start_paused = true)]
async fn watch_that_is_never_healthy_by_its_configuration_goes_on() {
    let backoff = BackoffConfig { healthy_after: Duration::MAX, ..BackoffConfig::default() };
    let config = ReflectorConfig { backoff, ..ReflectorConfig::default() };
    let (_server, _, _factory, informer) = weather_of(1, InformerOptions::default().reflector(config)).await;
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(informer.status()[0].last_error, None);
}

#[tokio::test(start_paused = true)]
async fn overtaken_restore_is_found_out_by_a_selected_informer_of_a_large_kind() {
    let (server, faults, _factory, _all) = weather_of(600, InformerOptions::default()).await;
    let maps = api(&server);
    maps.create(&PostParams::default(), &config_map("old", &[("app", "special")], &[])).await.unwrap();
    maps.create(&PostParams::default(), &config_map("lost", &[("app", "special")], &[])).await.unwrap();
    let backup = server.backup();
    delete(&maps, "lost").await;
    let factory = SharedInformerFactory::new(server.client());
    let informer =
        factory.informer_with::<ConfigMap>(InformerOptions::default().labels("app=special")).unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    tokio::time::sleep(2 * MINUTE).await;
    cut_off(&faults).await;
    server.restore(&backup);
    for number in 0..20 {
        change(&maps, "more-001", &number.to_string()).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    faults.clear();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(informer.snapshot().len(), 2, "{:?}", informer.status());
}

#[tokio::test(start_paused = true)]
async fn slow_lists_are_given_more_time_to_be_compared() {
    let (server, faults, factory, informer) = weather().await;
    let backup = server.backup();
    change(&api(&server), "a", "lost").await;
    settle().await;
    cut_off(&faults).await;
    server.restore(&backup);
    for number in 0..20 {
        create(&api(&server), &format!("later-{number}"), "1").await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    faults.clear();
    faults.inject(Rule::on(Fault::Delay(Duration::from_secs(25))).verb(Verb::List).resource("configmaps"));
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(informer.snapshot().len(), 21, "{:?}", informer.status());
    assert!(factory.health(MINUTE).is_ok());
}

#[tokio::test(start_paused = true)]
async fn comparison_that_must_wait_does_not_stop_the_watch() {
    let (server, faults, _factory, informer) =
        weather_of(1, InformerOptions::default().verify_every(MINUTE)).await;
    let busy = Fault::TooManyRequests { retry_after: Some(Duration::from_secs(100)) };
    faults.inject(Rule::on(busy).verb(Verb::List).resource("configmaps").times(1));
    tokio::time::sleep(MINUTE + Duration::from_secs(5)).await;
    assert_eq!(faults.count(busy), 1);
    change(&api(&server), "a", "2").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(informer.status()[0].phase, Phase::Watching);
    assert!(content(&informer).contains("a=2"), "{}", content(&informer));
    let lists = asked(&server).lists;
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(asked(&server).lists, lists, "the server asked to wait");
    tokio::time::sleep(10 * MINUTE).await;
    assert!(asked(&server).lists > lists);
}

#[tokio::test(start_paused = true)]
async fn replica_that_is_behind_for_a_moment_is_not_a_restore() {
    for (times, lists) in [(1, 1), (2, 1), (3, 2)] {
        let (_server, faults, _factory, informer) = weather().await;
        faults.inject(Rule::on(Fault::VersionTooLarge).verb(Verb::List).resource("configmaps").times(times));
        faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
        tokio::time::sleep(MINUTE).await;
        assert_eq!(faults.count(Fault::VersionTooLarge), times);
        // A list decides, and this one shows that nothing is wrong.
        let counts = informer.status()[0].counts;
        assert_eq!((counts.streams, counts.restores), (lists, 0), "after {times} answers");
    }
}

#[tokio::test(start_paused = true)]
async fn restore_is_found_out_soon_where_watches_open_slowly() {
    let (server, faults, _factory, informer) = weather().await;
    let slow = || faults.inject(Rule::on(Fault::Delay(Duration::from_secs(3))).verb(Verb::Watch));
    slow();
    tokio::time::sleep(90 * MINUTE).await;
    let backup = server.backup();
    change(&api(&server), "a", "lost").await;
    let compared = informer.status()[0].counts.verifications;
    while informer.status()[0].counts.verifications == compared {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    faults.clear();
    cut_off(&faults).await;
    server.restore(&backup);
    tokio::time::sleep(Duration::from_secs(5)).await;
    faults.clear();
    slow();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(informer.status()[0].counts.restores, 1, "{:?}", informer.status());
}

#[tokio::test(start_paused = true)]
async fn check_obeys_a_server_that_asks_to_wait() {
    let (_server, faults, _factory, informer) = weather().await;
    let busy = Fault::TooManyRequests { retry_after: Some(Duration::from_secs(100)) };
    faults.inject(Rule::on(busy).verb(Verb::List).resource("configmaps"));
    faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
    tokio::time::sleep(Duration::from_secs(95)).await;
    assert_eq!((informer.status()[0].counts.checks, faults.count(busy)), (1, 1));
    faults.clear();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(informer.status()[0].counts.checks, 2);
}

#[tokio::test(start_paused = true)]
async fn connection_that_was_silent_for_long_is_compared_however_it_ends() {
    for (limit, end) in [(Some(160), None), (None, Some(Fault::EndStream)), (None, Some(Fault::CutStream))] {
        let config =
            ReflectorConfig { silence_limit: limit.map(Duration::from_secs), ..ReflectorConfig::default() };
        let (server, faults, _factory, informer) =
            weather_of(3, InformerOptions::default().reflector(config)).await;
        let backup = server.backup();
        change(&api(&server), "a", "lost").await;
        settle().await;
        faults.inject(Rule::on(Fault::StallStream).verb(Verb::Watch).times(1));
        settle().await;
        server.restore(&backup);
        for number in 0..20 {
            change(&api(&server), "more-001", &number.to_string()).await;
        }
        change(&api(&server), "a", "1").await;
        tokio::time::sleep(Duration::from_secs(200)).await;
        if let Some(end) = end {
            faults.inject(Rule::on(end).verb(Verb::Watch).times(1));
        }
        tokio::time::sleep(15 * MINUTE).await;
        assert!(content(&informer).contains("a=1"), "{limit:?} {end:?} {:?}", informer.status());
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Slim {
    metadata: Value,
    #[serde(default)]
    data: std::collections::HashMap<String, String>,
}

#[tokio::test(start_paused = true)]
async fn fields_in_another_order_are_no_change() {
    let server = ApiServer::builder().seed(1).build();
    let data: Vec<(&str, &str)> = ["a", "b", "c", "d", "e", "f", "g"].map(|key| (key, "1")).into();
    for number in 0..20 {
        let map = config_map(&format!("map-{number}"), &[], &data);
        api(&server).create(&PostParams::default(), &map).await.unwrap();
    }
    let factory = SharedInformerFactory::new(server.client());
    // Each time it is written, the fields of a hash map come in another order.
    let transform = kube_informer::Transform::serialized(|slim: &mut Slim| drop(slim.data.remove("a")));
    let options = InformerOptions::default().transform(transform).verify_every(10 * MINUTE);
    let informer = factory.informer_with::<ConfigMap>(options).unwrap();
    factory.start();
    tokio::time::sleep(60 * MINUTE).await;
    let status = informer.status()[0].counts;
    assert!(status.verifications + status.lists >= 5, "{status:?}");
    assert_eq!(informer.stats().store.repairs, 0);
}
