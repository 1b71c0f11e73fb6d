//! Servers that refuse watches, are restored, come back, or answer nonsense: the cache converges, or its status says why not.

mod common;
mod scenario;

use std::time::Duration;

use common::{Log, api, change, content, create, cut_off, delete, weather, weather_of};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::Api;
use kube_client::api::{ListParams, PostParams};
use kube_informer::reflector::{Phase, ReflectorConfig};
use kube_informer::source::{Script, ScriptedSource, SourceError};
use kube_informer::{InformerOptions, Kind, SharedInformer, SharedInformerFactory};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, ResourceStats, Verb};
use scenario::{paged, settle};
use serde_json::{Value, json};

fn pods() -> Kind {
    Kind::new("v1", "Pod", "pods", true)
}

fn lists_of(source: &ScriptedSource) -> usize {
    source.asked().iter().filter(|line| line.starts_with("list")).count()
}

fn asked(server: &ApiServer) -> ResourceStats {
    server.stats().resource("configmaps")
}

/// What the server has, as `name=app` in key order.
async fn stored(server: &ApiServer) -> String {
    let all = api(server).list(&ListParams::default()).await.unwrap();
    let text = |map: &ConfigMap| {
        let app = map.metadata.labels.as_ref().and_then(|labels| labels.get("app"));
        format!("{}={}", map.metadata.name.as_deref().unwrap(), app.unwrap())
    };
    all.items.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_for_good_leads_to_polling() {
    for code in [403u16, 405, 500] {
        let source = ScriptedSource::new();
        for version in 5..300u64 {
            source.lists(version, &[("a", version)]);
        }
        for _ in 0..2000 {
            source.on_watch(Script::Fail(SourceError::from_response(code, b"{}", None)));
        }
        let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged());
        informer.start();
        tokio::time::sleep(Duration::from_hours(1)).await;
        let (lists, status) = (lists_of(&source), &informer.status()[0]);
        assert!((100..150).contains(&lists), "{code}: {lists} lists in an hour");
        assert!(status.polling && status.failing_since.is_some(), "{code}: {status:?}");
        assert_eq!(status.last_error_code, Some(code));
        let newest = (4 + lists as u64).into();
        assert_eq!(informer.snapshot().version(), Some(&newest), "{code}: the store follows the lists");
        assert!(status.staleness.unwrap() <= Duration::from_secs(45), "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_event_for_good_leads_to_polling() {
    let source = ScriptedSource::new();
    for version in 5..300u64 {
        source.lists(version, &[("a", version)]);
    }
    let text =
        "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":500,\"message\":\"cannot decode\"}}\n";
    for _ in 0..2000 {
        source.on_watch(Script::Text(text.into()));
    }
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged());
    informer.start();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!((100..150).contains(&lists_of(&source)), "{} lists", lists_of(&source));
    assert!(informer.status()[0].polling);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_never_answers_leads_to_polling() {
    let source = ScriptedSource::new();
    for version in 5..300u64 {
        source.lists(version, &[("a", version)]);
    }
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged());
    informer.start();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(lists_of(&source) > 30, "{} lists", lists_of(&source));
    assert!(informer.status()[0].polling);
}

#[tokio::test(start_paused = true)]
async fn watches_that_work_again_end_the_polling() {
    let (server, faults, _factory, informer) = weather().await;
    faults.inject(Rule::on(Fault::Forbidden).verb(Verb::Watch).times(40));
    faults.inject(Rule::on(Fault::EndStream).times(1));
    tokio::time::sleep(Duration::from_mins(2)).await;
    change(&api(&server), "a", "2").await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(informer.status()[0].polling, "{:?}", informer.status());
    assert_eq!(content(&informer), "a=2", "by a list");
    tokio::time::sleep(Duration::from_hours(1)).await;
    let status = &informer.status()[0];
    assert!(!status.polling && status.last_error.is_none() && status.failing_since.is_none(), "{status:?}");
    assert_eq!((status.phase, status.staleness), (Phase::Watching, Some(Duration::ZERO)));
    let before = asked(&server).lists;
    change(&api(&server), "a", "3").await;
    settle().await;
    assert_eq!((content(&informer).as_str(), asked(&server).lists), ("a=3", before), "by the watch");
}

#[tokio::test(start_paused = true)]
async fn a_restored_cluster_is_found_out_after_a_lost_connection() {
    let (server, faults, _factory, informer) = weather().await;
    let backup = server.backup();
    for number in 0..50 {
        create(&api(&server), &format!("lost-{number}"), "1").await;
    }
    settle().await;
    assert_eq!(informer.snapshot().len(), 51);
    cut_off(&faults).await;
    server.restore(&backup);
    faults.clear();
    for number in 0..10 {
        create(&api(&server), &format!("new-{number}"), "1").await;
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(informer.snapshot().len(), 11);
    change(&api(&server), "a", "2").await;
    settle().await;
    assert!(content(&informer).starts_with("a=2 new-0=1 "), "{}", content(&informer));
    assert_eq!(informer.status()[0].counts.restores, 1);
}

/// A server is restored while the informer is cut off, and its revisions pass those of the cache: `lost` is what the cache saw and
/// the backup does not have, `written` what happened after the restore.
async fn overtake(lost: &str, written: &str, objects: usize) {
    let (server, faults, factory, informer) = weather_of(objects - 1, InformerOptions::default()).await;
    let api = api(&server);
    let selected =
        factory.informer_with::<ConfigMap>(InformerOptions::default().labels("app!=none")).unwrap();
    factory.start();
    create(&api, "b", "1").await;
    settle().await;
    let backup = server.backup();
    for number in 0..5 {
        match lost {
            "create" => drop(create(&api, &format!("lost-{number}"), "1").await),
            "update" => change(&api, "a", &format!("lost-{number}")).await,
            "delete" if number == 0 => delete(&api, "b").await,
            "bookmark" => create_namespace(&server, number).await,
            _ => {}
        }
    }
    // Longer than the interval of bookmarks.
    tokio::time::sleep(Duration::from_mins(2)).await;
    cut_off(&faults).await;
    server.restore(&backup);
    for number in 0..20 {
        match written {
            "create" => drop(create(&api, &format!("new-{number}"), "1").await),
            "same" if number < 5 => change(&api, "a", &format!("new-{number}")).await,
            "one" if number == 0 => change(&api, "b", "new").await,
            "same" | "one" => create_namespace(&server, number).await,
            _ => change(&api, "b", &format!("new-{number}")).await,
        }
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    faults.clear();
    tokio::time::sleep(Duration::from_mins(2)).await;
    let wanted = stored(&server).await;
    for informer in [&informer, &selected] {
        assert_eq!(content(informer), wanted, "{lost} was lost, then {written}, of {objects} objects");
    }
}

/// Moves the revision on without a change of config maps.
async fn create_namespace(server: &ApiServer, number: usize) {
    let metadata = ObjectMeta { name: Some(format!("n{number}")), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let namespaces = Api::<Namespace>::all(server.client());
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restore_whose_revisions_overtook_the_cache_is_found_out() {
    for (lost, written) in
        [("create", "create"), ("create", "update"), ("delete", "create"), ("update", "update")]
    {
        overtake(lost, written, 2).await;
        overtake(lost, written, 600).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restore_that_only_content_shows_is_found_out_in_a_small_kind() {
    // A bookmark alone moved the cache past the backup; or the same object was changed at the same revision.
    for (lost, written) in [("bookmark", "one"), ("update", "same")] {
        overtake(lost, written, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_kind_is_compared_after_a_long_gap_and_a_large_one_is_not() {
    for (objects, lists) in [(5, 1), (600, 0)] {
        let (server, faults, _factory, informer) = weather_of(objects, InformerOptions::default()).await;
        let heard = Log::default();
        let _registration = informer.add_handler(heard.handler());
        settle().await;
        heard.take();
        let before = asked(&server).lists;
        cut_off(&faults).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        faults.clear();
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(asked(&server).lists - before, lists, "{objects} objects");
        assert_eq!(informer.status()[0].counts.verifications, lists);
        assert_eq!((heard.take().as_str(), informer.snapshot().len()), ("", objects), "nothing changed");
    }
}

#[tokio::test(start_paused = true)]
async fn informers_of_a_kind_share_a_check() {
    let (server, faults, factory, first) = weather().await;
    let labelled = InformerOptions::default().labels("app=web");
    let second = factory.informer_with::<ConfigMap>(labelled).unwrap();
    let secrets = factory.informer::<Secret>();
    factory.wait_for_sync().await.unwrap();
    faults.inject(Rule::on(Fault::CutStream).times(3));
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(faults.count(Fault::CutStream), 3);
    assert_eq!(asked(&server).exact_lists, 1, "for two informers");
    assert_eq!(server.stats().resource("secrets").exact_lists, 1);
    drop((first, second, secrets));
}

#[tokio::test(start_paused = true)]
async fn one_stale_replica_is_not_a_restore() {
    let out = scenario::printed(
        paged(),
        "list@100 a@90 b@95 c@100 · watch *101 · expire · list@90 a@90 · list@90 a@90 · list@102 a@90 b@95 c@102 · store",
    )
    .await;
    assert_eq!(
        out.lines().skip(3).collect::<Vec<_>>(),
        ["update c@100→102", "store @102: a@90 b@95 c@102"],
        "no false tombstones"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_closes_gets_one_request_a_second() {
    for open_for in [0, 100, 600] {
        let source = ScriptedSource::new();
        for version in 5..5000u64 {
            source.lists(5, &[("a", 5)]);
            source.on_watch(Script::TextFor(String::new(), Duration::from_millis(open_for)));
            let _ = version;
        }
        let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged());
        informer.start();
        tokio::time::sleep(Duration::from_mins(10)).await;
        let requests = source.asked().len();
        assert!(requests <= 620, "open for {open_for} ms: {requests} requests in ten minutes");
    }
}

#[tokio::test(start_paused = true)]
async fn short_watches_that_bring_events_are_resumed_at_once() {
    let source = ScriptedSource::new();
    source.lists(5, &[("a", 5)]);
    for version in 6..40 {
        source.on_watch(Script::Text(ScriptedSource::event("MODIFIED", "a", version)));
    }
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged());
    informer.start();
    let begun = tokio::time::Instant::now();
    informer.wait_for(|snapshot| snapshot.version() == Some(&12.into())).await;
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    let last = informer.wait_for(|snapshot| snapshot.version() == Some(&39.into()));
    let last = tokio::time::timeout(Duration::from_secs(30), last).await;
    assert!(last.is_ok(), "{:?} {:?}", source.asked(), informer.status());
    assert_eq!(lists_of(&source), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_away_is_found_again_within_two_seconds() {
    for away in [5, 20, 60] {
        let (server, faults, _factory, informer) = weather().await;
        cut_off(&faults).await;
        tokio::time::sleep(Duration::from_secs(away)).await;
        faults.clear();
        create(&api(&server), "b", "1").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(content(&informer), "a=1 b=1", "after {away} s");
        assert_eq!(
            (asked(&server).lists, asked(&server).streaming_lists),
            (1, 1),
            "resumed, and compared once"
        );
        let watches = informer.status()[0].counts.watches;
        assert!(watches <= away + 5, "{watches} attempts in {away} s");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_now_ends_the_wait() {
    let (server, faults, factory, informer) = weather().await;
    cut_off(&faults).await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    faults.clear();
    create(&api(&server), "b", "1").await;
    factory.retry_now();
    settle().await;
    assert_eq!(content(&informer), "a=1 b=1");
}

#[tokio::test(start_paused = true)]
async fn the_waits_start_again_after_a_healthy_day() {
    let source = ScriptedSource::new();
    for _ in 0..8 {
        source.on_list(Script::Fail(SourceError::from_response(500, b"{}", None)));
    }
    source.lists(5, &[("a", 5)]);
    let bookmark = ScriptedSource::event("BOOKMARK", "", 6);
    source.on_watch(Script::TextFor(bookmark, Duration::from_hours(24)));
    source.on_watch(Script::Fail(SourceError::from_response(500, b"{}", None)));
    let _open = source.live_watch();
    let config = ReflectorConfig { watch_timeout: Duration::from_hours(48), ..scenario::streamed_config() };
    let config = ReflectorConfig { streaming_lists: false, ..config };
    let options = InformerOptions::default().reflector(config);
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), options);
    informer.start();
    informer.wait_for_sync().await.unwrap();
    tokio::time::sleep(Duration::from_hours(24) + Duration::from_secs(1)).await;
    assert_eq!(source.asked().len(), 9 + 3, "the third watch followed the second within a second");
}

#[tokio::test(start_paused = true)]
async fn an_api_without_versions_is_cached_by_key() {
    let kind = Kind::new("metrics.k8s.io/v1beta1", "PodMetrics", "pods", true);
    for version in [None, Some("7")] {
        let source = ScriptedSource::new();
        for usage in 0..100 {
            let metadata = version.map_or(json!({}), |version| json!({"resourceVersion": version}));
            let list = json!({"metadata": metadata, "items": [
                {"metadata": {"name": "a", "namespace": "x"}, "usage": usage},
                {"metadata": {"name": "b", "namespace": "x"}, "usage": 1},
            ]});
            source.on_list(Script::Text(list.to_string()));
            source.on_watch(Script::Fail(SourceError::from_response(405, b"{}", None)));
        }
        let informer = SharedInformer::<Value>::over(kind.clone(), source.clone(), paged());
        let changes = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let noted = changes.clone();
        let handler = informer.add_handler(move |event: kube_informer::Event<Value>| {
            noted.lock().unwrap().push(event.object().name().to_owned());
            async {}
        });
        informer.start();
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert!(informer.has_synced(), "{version:?}");
        assert_eq!(informer.snapshot().len(), 2);
        let lists = lists_of(&source);
        let newest = informer.lister().namespace("x").get("a").unwrap();
        assert_eq!(newest.get().unwrap()["usage"], lists - 1, "{version:?}");
        let told = changes.lock().unwrap().clone();
        assert_eq!(
            told.iter().filter(|name| *name == "b").count(),
            1,
            "what did not change is not told again"
        );
        assert_eq!(told.iter().filter(|name| *name == "a").count(), lists);
        drop(handler);
    }
}

#[tokio::test(start_paused = true)]
async fn versions_of_another_form_are_accepted_after_a_few_refusals() {
    for (list, event) in [("eyJycyI6e319", "12"), ("7", "abc-12")] {
        let source = ScriptedSource::new();
        let thing =
            |version: &str| json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version}});
        for _ in 0..20 {
            source.on_list(Script::Text(
                json!({"metadata": {"resourceVersion": list}, "items": [thing(list)]}).to_string(),
            ));
            let event = json!({"type": "MODIFIED", "object": thing(event)});
            source.on_watch(Script::TextThenSilence(format!("{event}\n")));
        }
        let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged());
        informer.start();
        tokio::time::sleep(Duration::from_mins(1)).await;
        let snapshot = informer.snapshot();
        assert_eq!(snapshot.get("a").unwrap().version().to_string(), event, "after {list}");
        assert!(source.asked().len() <= 10, "{:?}", source.asked());
    }
}

#[tokio::test(start_paused = true)]
async fn verifying_every_zero_seconds_is_switched_off() {
    let (server, _, _factory, _first) = weather().await;
    let factory = SharedInformerFactory::with_defaults(
        server.client(),
        InformerOptions::default().verify_every(Duration::ZERO),
    );
    let before = asked(&server);
    let informer = factory.informer::<ConfigMap>();
    factory.start();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let after = asked(&server);
    assert_eq!((after.lists - before.lists, after.streaming_lists - before.streaming_lists), (0, 1));
    drop(informer);
}

#[tokio::test(start_paused = true)]
async fn verify_every_holds_in_either_order_with_a_configuration() {
    let (verify, config) = (Duration::from_secs(20), ReflectorConfig::default);
    for options in [
        InformerOptions::default().verify_every(verify).reflector(config()),
        InformerOptions::default().reflector(config()).verify_every(verify),
    ] {
        let (server, ..) = weather().await;
        let factory = SharedInformerFactory::with_defaults(server.client(), options);
        let informer = factory.informer::<ConfigMap>();
        factory.start();
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(informer.status()[0].counts.verifications >= 2);
    }
}

#[tokio::test(start_paused = true)]
async fn health_says_since_when_the_copy_is_stale() {
    let (_server, faults, factory, informer) = weather().await;
    let limit = Duration::from_secs(30);
    assert!(factory.health(limit).is_ok());
    cut_off(&faults).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(informer.health(limit).is_ok(), "not for long");
    let status = &informer.status()[0];
    assert_ne!(status.phase, Phase::Watching);
    assert!(
        status.failing_since.is_some() && status.staleness.unwrap() >= Duration::from_secs(19),
        "{status:?}"
    );
    tokio::time::sleep(Duration::from_secs(20)).await;
    let why = factory.health(limit).unwrap_err().to_string();
    assert!(why.starts_with("v1 ConfigMap is stale: all namespaces is stale for 4"), "{why}");
    assert!(why.contains("cannot be reached"), "{why}");
    faults.clear();
    tokio::time::sleep(Duration::from_mins(6)).await;
    assert!(factory.health(limit).is_ok(), "{:?}", informer.status());
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_watching_only_once_it_is_open() {
    let source = ScriptedSource::new();
    source.lists(5, &[("a", 5)]);
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged());
    informer.start();
    settle().await;
    assert_eq!(informer.status()[0].phase, Phase::Connecting);
    let _open = source.live_watch();
    settle().await;
    assert_eq!(informer.status()[0].phase, Phase::Watching);
}

#[tokio::test(start_paused = true)]
async fn a_silence_limit_ends_a_half_open_watch() {
    let source = ScriptedSource::new();
    source.lists(5, &[("a", 5)]);
    let config =
        ReflectorConfig { silence_limit: Some(Duration::from_secs(40)), ..scenario::streamed_config() };
    let config = ReflectorConfig { streaming_lists: false, ..config };
    let half_open = source.live_watch();
    let next = source.live_watch();
    let options = InformerOptions::default().reflector(config);
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), options);
    informer.start();
    tokio::time::sleep(Duration::from_secs(41)).await;
    next.send(ScriptedSource::event("MODIFIED", "a", 6)).unwrap();
    settle().await;
    assert_eq!(informer.snapshot().version(), Some(&6.into()));
    drop(half_open);
}

#[tokio::test(start_paused = true)]
async fn lists_stand_in_for_streaming_lists_that_are_refused_for_good() {
    for fault in
        [Fault::Unavailable, Fault::TooManyRequests { retry_after: None }, Fault::NotFound, Fault::Cut]
    {
        // From the start.
        let faults = Faults::seeded(1).rule(Rule::on(fault).verb(Verb::Watch));
        let server = ApiServer::builder().seed(1).faults(faults).build();
        create(&api(&server), "a", "1").await;
        let factory = SharedInformerFactory::new(server.client());
        let informer = factory.informer::<ConfigMap>();
        factory.start();
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(informer.has_synced(), "{fault:?}: {:?}", informer.status());
        // After a version that has expired.
        let (server, faults, _factory, informer) = weather().await;
        faults.inject(Rule::on(Fault::Gone).verb(Verb::Watch).times(1));
        faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
        settle().await;
        faults.inject(Rule::on(fault).verb(Verb::Watch));
        tokio::time::sleep(Duration::from_mins(1)).await;
        change(&api(&server), "a", "2").await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(content(&informer).contains("a=2"), "{fault:?}: {:?}", informer.status());
        faults.clear();
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(!informer.status()[0].polling, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_room_still_takes_one_change_at_a_time() {
    let (server, _faults, _factory, informer) =
        weather_of(1, InformerOptions::default().queue_limit_bytes(0)).await;
    for value in ["2", "3"] {
        change(&api(&server), "a", value).await;
        settle().await;
        assert_eq!(content(&informer), format!("a={value}"));
    }
}
