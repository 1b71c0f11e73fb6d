//! What a reflector asks, when, and how often.

mod scenario;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use expect_test::expect;
use kube_informer::backoff::BackoffConfig;
use kube_informer::delta_fifo::Scope;
use kube_informer::reflector::ReflectorConfig;
use kube_informer::source::{Script, ScriptedSource, SourceError};
use kube_informer::{InformerOptions, Kind, SharedInformer};
use scenario::{check, check_with, paged, settle, streamed_config};
use serde_json::Value;

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_is_asked_for_and_then_a_watch_from_its_version() {
    check(
        "list@5 a@1 b@4 · watch ~a@6 +c@7 -b@8 · store · asked · status",
        expect![[r#"
        add a@1 (initial)
        add b@4 (initial)
        update a@1→6
        add c@7
        delete b@8
        store @8: a@6 c@7
        > 0.0s list limit 500
        > 0.0s watch from 5
        Watching Paged("streaming lists are switched off") @8, no error
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn pages_are_read_to_the_end_with_the_size_that_was_set() {
    let config = ReflectorConfig { streaming_lists: false, page_size: Some(4), ..streamed_config() };
    check_with(
        InformerOptions::default().reflector(config),
        "list@9 a@1 b@2 c@3 d@4 …next · list@12 e@5 f@6 …next · list@13 g@7 · watch +h@10 · store · asked",
        expect![[r#"
            add a@1 (initial)
            add b@2 (initial)
            add c@3 (initial)
            add d@4 (initial)
            add e@5 (initial)
            add f@6 (initial)
            add g@7 (initial)
            add h@10
            store @10: a@1 b@2 c@3 d@4 e@5 f@6 g@7 h@10
            > 0.0s list limit 4
            > 0.0s list limit 4 continue page-0
            > 0.0s list limit 4 continue page-1
            > 0.0s watch from 9
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_leads_to_one_list_without_pages() {
    check(
        "list@9 a@1 …next · refuse list 410 · list@10 a@1 b@2 · watch *11 · expire · list@12 b@2 · asked",
        expect![[r#"
            add a@1 (initial)
            add b@2 (initial)
            delete a@1 (missed)
            > 0.0s list limit 500
            > 0.0s list limit 500 continue page-0
            > 0.2s list
            > 0.2s watch from 10
            > 1.0s list limit 500
            > 1.0s watch from 12
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_goes_in_circles_is_given_up() {
    let source = ScriptedSource::new();
    for _ in 0..2 {
        let page = r#"{"metadata":{"resourceVersion":"1","continue":"same"},"items":[]}"#;
        source.on_list(Script::Text(page.into()));
    }
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), paged());
    informer.start();
    settle().await;
    let status = &informer.status()[0];
    assert!(status.last_error.as_ref().unwrap().contains("no end"), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_tokens_alternate_is_given_up() {
    for tokens in [2, 3, 7] {
        let source = ScriptedSource::new();
        for page in 0..100 {
            let token = if page == 0 { "first".to_owned() } else { format!("page-{}", page % tokens) };
            let page = format!(r#"{{"metadata":{{"resourceVersion":"1","continue":"{token}"}},"items":[]}}"#);
            source.on_list(Script::Text(page));
        }
        let informer =
            SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), paged());
        informer.start();
        settle().await;
        let asked = source.asked();
        // The second list begins without a token.
        let pages = asked.iter().skip(1).take_while(|asked| asked.contains("continue")).count();
        assert!(pages < 5 * tokens, "{tokens} tokens: {pages} pages");
        let error = informer.status()[0].last_error.clone().unwrap();
        assert!(error.contains("its continue tokens repeat"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_is_no_empty_list() {
    let source = ScriptedSource::new();
    source.lists(5, &[("a", 1)]);
    source.on_watch(Script::Fail(SourceError::from_response(410, b"{}", None)));
    let table =
        r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"rows":[]}"#;
    source.on_list(Script::Text(table.into()));
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), paged());
    informer.start();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let status = &informer.status()[0];
    assert!(status.last_error.as_ref().unwrap().contains("a list, which has items"), "{status:?}");
    assert!(informer.snapshot().contains("a"), "what was there is not taken for gone");
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_or_break_are_resumed_and_cost_no_list() {
    check(
        "list a@1 · watch ~a@2 · end · watch ~a@3 · cut · watch *9 · end · watch +b@10 · error 500 · watch ~b@11 · asked",
        expect![[r#"
            add a@1 (initial)
            update a@1→2
            update a@2→3
            add b@10
            update b@10→11
            > 0.0s list limit 500
            > 0.0s watch from 1
            > 0.0s watch from 2
            > 0.0s watch from 3
            > 0.1s watch from 9
            > 0.1s watch from 10
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_resumed_after_a_growing_wait() {
    check(
        "list@1 · watch · end · watch · end · watch · end · watch · end · watch · wait 1m · end · watch *2 · asked",
        expect![[r#"
            > 0.0s list limit 500
            > 0.0s watch from 1
            > 0.2s watch from 1
            > 0.6s watch from 1
            > 0.8s list limit 500
            > 61.0s watch from 1
            > 61.4s list limit 500
            > 121.8s watch from 1
            > 181.8s list limit 500
            > 191.8s watch from 1
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_watch_is_tried_again_with_growing_waits_up_to_a_cap() {
    let backoff = BackoffConfig {
        floor: Duration::from_millis(10),
        cap: Duration::from_millis(100),
        jitter: 0.0,
        ..BackoffConfig::default()
    };
    let config = ReflectorConfig { streaming_lists: false, backoff, ..streamed_config() };
    let source = ScriptedSource::new();
    source.lists(1, &[("a", 1)]);
    for _ in 0..6 {
        source.on_watch(Script::Fail(SourceError::transport("connection refused", "nobody listens")));
    }
    let live = source.live_watch();
    let times = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&times);
    let config = ReflectorConfig {
        on_error: Some(Arc::new(move |error| noted.lock().unwrap().push(error.retry_in.as_millis()))),
        ..config
    };
    let options = InformerOptions::default().reflector(config);
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), options);
    informer.start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    live.send(ScriptedSource::event("MODIFIED", "a", 2)).unwrap();
    informer.wait_for(|snapshot| snapshot.get("a").is_some_and(|a| *a.version() == 2.into())).await;
    assert_eq!(*times.lock().unwrap(), [10, 20, 40, 80, 100, 100]);
    let lists = source.asked().iter().filter(|asked| asked.starts_with("list")).count();
    assert_eq!((lists, source.asked().len()), (1, 8), "no list but the first");
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_are_obeyed_and_cost_no_list() {
    check(
        "list a@1 · refuse watch 429/7 · refuse watch 429 · watch · error 429 · refuse watch 429 · watch ~a@2 · asked",
        expect![[r#"
            add a@1 (initial)
            update a@1→2
            > 0.0s list limit 500
            > 0.0s watch from 1
            > 7.2s watch from 1
            > 7.6s watch from 1
            > 8.4s watch from 1
            > 10.0s watch from 1
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn lists_that_fail_are_tried_again_and_harm_nothing() {
    check(
        "refuse list 500 · refuse list 403 · list a@1 · watch +b@2 · expire · refuse list 500 · store · list@3 b@2 · watch *4 · store · asked",
        expect![[r#"
            add a@1 (initial)
            add b@2
            store @2: a@1 b@2
            delete a@1 (missed)
            store @4: b@2
            > 0.0s list limit 500
            > 0.2s list limit 500
            > 0.4s list limit 500
            > 0.4s watch from 1
            > 1.2s list limit 500
            > 1.4s list limit 500
            > 1.4s watch from 3
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_as_expired_lists() {
    check(
        "list a@1 · refuse watch 410 · list@7 b@5 · watch *8 · asked",
        expect![[r#"
            add a@1 (initial)
            delete a@1 (missed)
            add b@5
            > 0.0s list limit 500
            > 0.0s watch from 1
            > 0.2s list limit 500
            > 0.2s watch from 7
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_large_lists_without_a_version() {
    for body in [
        r#"{"kind":"Status","reason":"Timeout","message":"Timeout: Too large resource version: 9","code":504}"#,
        r#"{"kind":"Status","reason":"Timeout","details":{"causes":[{"message":"Too large resource version"}]},"code":504}"#,
        r#"{"kind":"Status","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]},"code":504}"#,
    ] {
        let source = ScriptedSource::new();
        source.lists(9, &[("a", 9)]).lists(10, &[("a", 10)]);
        source.on_watch(Script::Fail(SourceError::from_response(504, body.as_bytes(), None)));
        let informer =
            SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), paged());
        informer.start();
        informer.wait_for_version(&Scope::CLUSTER, &10.into()).await;
        assert_eq!(source.asked()[..3], ["list limit 500", "watch from 9", "list limit 500"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_first_list_may_be_asked_for() {
    let config = ReflectorConfig { stale_first_list: true, ..streamed_config() };
    check_with(
        InformerOptions::default().reflector(config),
        "list@5 a@1 · watch *6 · expire · list@7 a@1 · watch *8 · asked · status",
        expect![[r#"
            add a@1 (initial)
            > 0.0s list from 0 limit 500
            > 0.0s watch from 5
            > 0.5s list limit 500
            > 0.5s watch from 7
            Watching Paged("a stale first list was asked for") @8, no error
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn silence_is_death_by_the_measure_of_bookmarks() {
    check(
        "list@1 · watch *2 · wait 1m · watch *3 · wait 1m · watch *4 · wait 4m · watch +a@5 · asked · status",
        expect![[r#"
            add a@5
            > 0.0s list limit 500
            > 0.0s watch from 1
            > 300.0s watch from 4
            Watching Paged("streaming lists are switched off") @5, no error
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_bookmarks_is_left_alone_for_as_long_as_it_may_last() {
    check(
        "list@1 · watch +a@2 · wait 5m · watch ~a@3 · asked",
        expect![[r#"
        add a@2
        update a@2→3
        > 0.0s list limit 500
        > 0.0s watch from 1
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_error_event_closes_the_watch_and_stopping_does_too() {
    let source = ScriptedSource::new();
    source.lists(1, &[("a", 1)]);
    let (first, second) = (source.live_watch(), source.live_watch());
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), paged());
    informer.start();
    informer.wait_for_sync().await.unwrap();
    first.send("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":500}}\n".into()).unwrap();
    first.closed().await;
    second.send(ScriptedSource::event("MODIFIED", "a", 2)).unwrap();
    informer.wait_for_version(&Scope::CLUSTER, &2.into()).await;
    informer.stop().await;
    assert!(second.is_closed() && !informer.is_running());
}

#[tokio::test(start_paused = true)]
async fn stopped_before_it_began_it_asks_nothing() {
    let source = ScriptedSource::new();
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), paged());
    informer.start();
    informer.stop().await;
    settle().await;
    assert!(source.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_hangs_is_given_up_and_asked_for_again() {
    check(
        "wait 62s · list a@1 · asked · status",
        expect![[r#"
        add a@1 (initial)
        > 0.0s list limit 500
        > 60.2s list limit 500
        > 62.0s watch from 1
        Connecting Paged("streaming lists are switched off") @1, no error
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_error_reaches_the_hook_and_a_hook_that_panics_harms_nothing() {
    let source = ScriptedSource::new();
    for code in [403, 500] {
        source.on_list(Script::Fail(SourceError::from_response(code, b"no", None)));
    }
    source.lists(1, &[("a", 1)]);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let hook = move |error: &kube_informer::reflector::ReflectorError<'_>| {
        tell.lock().unwrap().push(error.to_string());
        panic!("a hook that panics");
    };
    let config =
        ReflectorConfig { streaming_lists: false, on_error: Some(Arc::new(hook)), ..streamed_config() };
    let options = InformerOptions::default().reflector(config);
    let informer = SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source, options);
    informer.start();
    informer.wait_for_sync().await.unwrap();
    expect![[r#"
        list of v1 Pod (all namespaces) failed: HTTP 403: no; retrying in 200.0ms
        list of v1 Pod (all namespaces) failed: HTTP 500: no; retrying in 200.0ms"#]]
    .assert_eq(&told.lock().unwrap().join("\n"));
}
