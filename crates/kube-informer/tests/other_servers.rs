//! Servers that are not one healthy kube-apiserver: replicas that are behind, proxies, extension servers, shared checks.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::client::client;
use common::{Log, api, change, content, create, cut_off, settle};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_client::client::Body;
use kube_informer::reflector::ReflectorConfig;
use kube_informer::source::{CheckRequest, Histories, History, KubeSource, ListWatch};
use kube_informer::{InformerOptions, Kind, SharedInformer, SharedInformerFactory};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, Verb};
use serde_json::json;
use tokio::time::Instant;

fn refuse(code: u16, retry_after: &str) -> Box<http::Response<Body>> {
    let answer = http::Response::builder().status(code).header("retry-after", retry_after);
    Box::new(answer.body(Body::from(b"{}".to_vec())).unwrap())
}

fn query(request: &http::Request<Body>) -> &str {
    request.uri().query().unwrap_or_default()
}

async fn server_with(objects: &[&str]) -> (ApiServer, Faults) {
    let faults = Faults::none();
    let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
    for name in objects {
        create(&api(&server), name, "1").await;
    }
    (server, faults)
}

/// A synced informer, and what its handler hears.
async fn follow(client: Client) -> (SharedInformerFactory, SharedInformer<ConfigMap>, Log) {
    let factory = SharedInformerFactory::new(client);
    let informer = factory.informer::<ConfigMap>();
    let heard = Log::default();
    informer.add_handler(heard.handler()).detach();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    heard.take();
    (factory, informer, heard)
}

fn cut(faults: &Faults) {
    faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
}

/// A load balancer moves the client to a replica that is behind for some seconds.
#[tokio::test(start_paused = true)]
async fn replica_that_is_behind_for_seconds_is_not_a_restore() {
    for lag in [4, 6, 7, 8, 9] {
        let (server, faults) = server_with(&["a"]).await;
        let behind = ApiServer::builder().seed(1).build();
        behind.restore(&server.backup());
        create(&api(&server), "b", "1").await;
        let moved = Arc::new(AtomicBool::new(false));
        let to = client({
            let (moved, server, behind) = (Arc::clone(&moved), server.clone(), behind.clone());
            move |_| Ok(if moved.load(Ordering::Relaxed) { behind.clone() } else { server.clone() })
        });
        let (_factory, informer, heard) = follow(to).await;
        moved.store(true, Ordering::Relaxed);
        cut(&faults);
        tokio::time::sleep(Duration::from_secs(lag)).await;
        behind.restore(&server.backup());
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!((heard.take().as_str(), informer.snapshot().len()), ("", 2), "{lag} s behind");
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_ignores_field_selectors_is_not_taken_for_restored() {
    let (server, faults) = server_with(&["a", "b"]).await;
    let to = client(move |request| {
        let uri = request.uri().to_string();
        if let Some((path, query)) = uri.split_once('?') {
            let kept: Vec<&str> =
                query.split('&').filter(|pair| !pair.starts_with("fieldSelector")).collect();
            *request.uri_mut() = format!("{path}?{}", kept.join("&")).parse().unwrap();
        }
        Ok(server.clone())
    });
    let (_factory, informer, _) = follow(to).await;
    for _ in 0..3 {
        cut(&faults);
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    let counts = informer.status()[0].counts;
    assert_eq!((counts.checks, counts.restores), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn list_that_compares_obeys_a_server_that_asks_to_wait() {
    let (server, faults) = server_with(&["a"]).await;
    let (busy, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let to = client({
        let (busy, asked) = (Arc::clone(&busy), Arc::clone(&asked));
        move |request| {
            let other = query(request).contains("Exact") || query(request).contains("watch=true");
            if other || !busy.load(Ordering::Relaxed) {
                return Ok(server.clone());
            }
            asked.lock().unwrap().push(Instant::now());
            Err(refuse(429, "120"))
        }
    });
    let (_factory, _informer, _) = follow(to).await;
    cut_off(&faults).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    busy.store(true, Ordering::Relaxed);
    faults.clear();
    tokio::time::sleep(Duration::from_mins(10)).await;
    let times = asked.lock().unwrap().clone();
    assert!(times.len() > 1, "it is tried again");
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_mins(2), "{:?} apart", pair[1] - pair[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn check_of_a_late_informer_does_not_condemn_another() {
    let (server, _) = server_with(&["a"]).await;
    let source = KubeSource::new(server.client(), Kind::of::<ConfigMap>()).histories(Histories::default());
    let start = Instant::now();
    let request = |version: u64, lost: u64| CheckRequest {
        version: version.into(),
        lost_at: start + Duration::from_secs(lost),
        resumed_at: start + Duration::from_secs(lost),
        witness: None,
        count: None,
        thorough: false,
    };
    tokio::time::sleep(Duration::from_secs(10)).await;
    // One was read before a restore. The other has listed since, and lost its connection at second 9.
    assert!(matches!(source.check(request(1000, 0)).await, Ok(History::Other(_))));
    assert!(matches!(source.check(request(1001, 0)).await, Ok(History::Other(_))));
    assert_eq!(source.check(request(server.revision(), 9)).await.unwrap(), History::Same);
}

#[tokio::test(start_paused = true)]
async fn answer_on_another_wire_is_no_change() {
    let (server, faults) = server_with(&["a", "b", "c"]).await;
    let picky = Arc::new(AtomicBool::new(false));
    let to = client({
        let picky = Arc::clone(&picky);
        move |request| {
            let refused = query(request).contains("watch=true") && picky.swap(false, Ordering::Relaxed);
            if refused { Err(refuse(406, "0")) } else { Ok(server.clone()) }
        }
    });
    let (_factory, informer, heard) = follow(to).await;
    let before = informer.status()[0].wire;
    cut_off(&faults).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    picky.store(true, Ordering::Relaxed);
    faults.clear();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_ne!(informer.status()[0].wire, before, "from protobuf to JSON");
    assert_eq!((heard.take().as_str(), informer.stats().store.repairs), ("", 0));
}

#[tokio::test(start_paused = true)]
async fn outage_that_is_answered_is_over_as_soon_as_one_that_is_not() {
    for fault in [Fault::Refuse, Fault::Unavailable, Fault::Timeout, Fault::InternalError] {
        for lasts in [20, 40, 55, 120] {
            let (server, faults) = server_with(&["a"]).await;
            let (_factory, informer, _) = follow(server.client()).await;
            for verb in [Verb::Watch, Verb::List] {
                faults.inject(Rule::on(fault).verb(verb));
            }
            faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch));
            settle().await;
            tokio::time::sleep(Duration::from_secs(lasts)).await;
            faults.clear();
            common::change(&api(&server), "a", "2").await;
            // Two waits: one list or watch may still be refused for its own sake.
            tokio::time::sleep(Duration::from_secs(8)).await;
            assert_eq!(common::content(&informer), "a=2", "{fault:?} for {lasts} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn check_without_an_answer_shows_in_the_status() {
    for fault in [Fault::InternalError, Fault::Stall] {
        let (server, faults) = server_with(&["a"]).await;
        let backup = server.backup();
        create(&api(&server), "lost", "1").await;
        let (_factory, informer, _) = follow(server.client()).await;
        cut_off(&faults).await;
        server.restore(&backup);
        faults.clear();
        faults.inject(Rule::on(fault).verb(Verb::List).times(3));
        let mut silent = 0;
        while common::content(&informer) != "a=1" {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let status = &informer.status()[0];
            silent += u32::from(status.failing_since.is_none() && status.doubted_since.is_none());
        }
        // The first check has the time of any request to be answered.
        assert!(silent <= 75, "{fault:?}: wrong for {silent} s without a word");
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(informer.status()[0].doubted_since, None, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_whose_keys_cannot_be_read_cause_few_lists() {
    for fault in [Fault::NoMetadata, Fault::BadJson] {
        let (server, faults) = server_with(&["a", "b"]).await;
        let (_factory, informer, _) = follow(server.client()).await;
        let before = informer.status()[0].counts;
        faults.inject(Rule::on(fault).verb(Verb::Watch));
        for round in 0..300 {
            common::change(&api(&server), "a", &round.to_string()).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let lists = informer.status()[0].counts.lists - before.lists;
        assert!((10..40).contains(&lists), "{fault:?}: {lists} lists in ten minutes");
        faults.clear();
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(common::content(&informer), "a=299 b=1");
    }
}

/// A server that says of each version that it has not reached it, and opens watches slowly.
#[tokio::test(start_paused = true)]
async fn server_without_exact_reads_is_rarely_listed() {
    let faults = Faults::none();
    let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
    create(&api(&server), "a", "1").await;
    let to = client({
        let server = server.clone();
        move |request| {
            let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Timeout", "code": 504,
                "message": "Too large resource version: 7, current: 5", "details": {"causes": [cause]}});
            let answer = http::Response::builder().status(504).header("content-type", "application/json");
            let too_large = answer.body(Body::from(status.to_string().into_bytes())).unwrap();
            if query(request).contains("Exact") { Err(Box::new(too_large)) } else { Ok(server.clone()) }
        }
    });
    let config = ReflectorConfig { streaming_lists: false, ..ReflectorConfig::default() };
    let options = InformerOptions::default().reflector(config);
    let factory = SharedInformerFactory::with_defaults(to, options);
    let informer = factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    faults.inject(Rule::on(Fault::Delay(Duration::from_secs(3))).verb(Verb::Watch));
    tokio::time::sleep(Duration::from_hours(3)).await;
    let counts = informer.status()[0].counts;
    assert!(counts.lists <= 40, "{counts:?}");
    // A change is still seen.
    change(&api(&server), "a", "2").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(content(&informer), "a=2");
}

#[tokio::test(start_paused = true)]
async fn one_refusal_of_protobuf_does_not_last_for_days() {
    let (server, _faults) = server_with(&["a"]).await;
    let (refused, last) = (AtomicBool::new(false), Arc::new(Mutex::new(String::new())));
    let client = client({
        let (server, last) = (server.clone(), Arc::clone(&last));
        move |request| {
            let accept = request.headers().get("accept").and_then(|accept| accept.to_str().ok());
            *last.lock().unwrap() = accept.unwrap_or_default().to_owned();
            if refused.swap(true, Ordering::Relaxed) { Ok(server.clone()) } else { Err(refuse(406, "0")) }
        }
    });
    let factory = SharedInformerFactory::new(client);
    let _informer = factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert_eq!(*last.lock().unwrap(), "application/json");
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert!(last.lock().unwrap().contains("protobuf"));
}
