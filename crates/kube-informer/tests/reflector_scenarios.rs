//! What a reflector asks, and what comes of the answers.

mod scenario;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use expect_test::expect;
use kube_informer::backoff::BackoffConfig;
use kube_informer::delta_fifo::Scope;
use kube_informer::reflector::{Change, Reflector, ReflectorConfig, Sink};
use kube_informer::source::{Script, ScriptedSource, SourceError};
use kube_informer::{InformerOptions, Kind, SharedInformer, Transform};
use scenario::{check, check_with, paged, streamed, streamed_config};
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
async fn a_streaming_list_and_its_watch_are_one_request() {
    check_with(
        streamed(),
        "stream@5 a@1 b@4 · watch ~a@6 +c@7 -b@8 · store · asked · status",
        expect![[r#"
        add a@1 (initial)
        add b@4 (initial)
        update a@1→6
        add c@7
        delete b@8
        store @8: a@6 c@7
        > 0.0s stream
        Watching Streaming @8, no error
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn relist_after_expiry_reports_what_vanished() {
    check(
        "list a@1 b@1 · watch ~a@2 · expire · list a@5 c@5 · store · asked",
        expect![[r#"
        add a@1 (initial)
        add b@1 (initial)
        update a@1→2
        delete b@1 (missed)
        update a@2→5
        add c@5
        store @5: a@5 c@5
        > 0.0s list limit 500
        > 0.0s watch from 1
        > 0.5s list limit 500
        > 0.5s watch from 5
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_missed_recreate_is_a_delete_and_an_add() {
    check(
        "list a@1 b@1 · watch · expire · list@5 a'@4 b@1 · store",
        expect![[r#"
        add a@1 (initial)
        add b@1 (initial)
        delete a@1 (missed)
        add a'@4
        store @5: a'@4 b@1
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
    scenario_settle().await;
    let status = &informer.status()[0];
    assert!(status.last_error.as_ref().unwrap().contains("without an end"), "{status:?}");
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
            > 0.2s watch from 2
            > 0.6s watch from 3
            > 1.4s watch from 9
            > 3.0s watch from 10
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
            > 1.4s watch from 1
            > 3.0s watch from 1
            > 63.2s watch from 1
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
            > 0.6s list limit 500
            > 0.6s watch from 1
            > 1.4s list limit 500
            > 3.0s list limit 500
            > 3.0s watch from 3
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
        > 0.5s list limit 500
        > 0.5s watch from 7
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
async fn a_list_older_than_what_was_seen_is_a_restore_if_it_is_so_twice() {
    check(
        "list@50 a@40 b@41 c@42 · watch *60 · expire · list@30 a@20 b'@21 d@22 · list@30 a@20 b'@21 d@22 · watch ~a@31 · store · asked",
        expect![[r#"
            add a@40 (initial)
            add b@41 (initial)
            add c@42 (initial)
            delete c@42 (missed)
            update a@40→20
            delete b@41 (missed)
            add b'@21
            add d@22
            update a@20→31
            store @31: a@31 b'@21 d@22
            > 0.0s list limit 500
            > 0.0s watch from 50
            > 0.5s list limit 500
            > 0.5s list limit 500
            > 0.5s watch from 30
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_a_restore_known_versions_are_not_trusted() {
    // The same uid and version, but another object: it is an update, for nothing is known of what was.
    check(
        "list@9 a@5{app=old} b@6 · watch · expire · list@7 a@5{app=new} b@6 · list@7 a@5{app=new} b@6 · watch ~b@8 · store",
        expect![[r#"
            add a@5{app=old} (initial)
            add b@6 (initial)
            update a@5{app=old}→5{app=new}
            update b@6→6
            update b@6→8
            store @8: a@5{app=new} b@8
        "#]],
    )
    .await;
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
            Watching Paged("a stale first list was asked for") @8, HTTP 410: too old resource version
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn bookmarks_move_the_version_and_nothing_else() {
    check(
        "list@1 · watch *5 · store · end · watch *6 · asked · store",
        expect![[r#"
        store @5:
        > 0.0s list limit 500
        > 0.0s watch from 1
        > 0.2s watch from 5
        store @6:
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn repeated_and_older_events_say_nothing_and_do_not_turn_the_time_back() {
    check(
        "list@5 a@5 · watch ~a@7 ~a@6 +a@7 *6 · store · end · watch ~a@8 · store · asked",
        expect![[r#"
        add a@5 (initial)
        update a@5→7
        store @7: a@7
        update a@7→8
        store @8: a@8
        > 0.0s list limit 500
        > 0.0s watch from 5
        > 0.2s watch from 7
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn events_of_unknown_type_and_of_another_kind_are_passed_over() {
    let source = ScriptedSource::new();
    source.lists(1, &[("a", 1)]);
    let live = source.live_watch();
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), paged());
    informer.start();
    let table = r#"{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"name":"t","resourceVersion":"9"}}}"#;
    let unknown = r#"{"type":"SURPRISE","object":{}}"#;
    live.send(format!("{table}\n{unknown}\n")).unwrap();
    live.send(ScriptedSource::event("ADDED", "b", 2)).unwrap();
    let snapshot = informer.wait_for(|snapshot| snapshot.contains("b")).await;
    assert_eq!((snapshot.len(), snapshot.version()), (2, Some(&2.into())));
    let counts = informer.status()[0].counts;
    assert_eq!((counts.wrong_kind, counts.unknown_events), (1, 1));
    assert_eq!(source.asked().len(), 2, "the watch went on");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_is_set_aside_and_tried_again_when_it_changes() {
    check(
        "list a@1 b@1! c@1 · store · watch ~b@2 ~a@3! · store · watch ~a@4 · store · watch +d@5! · store · watch -d@6 · store",
        expect![[r#"
            add a@1 (initial)
            add c@1 (initial)
            store @1: a@1 c@1 (aside b)
            add b@2
            store @3: a@1 (stale) b@2 c@1 (aside a)
            update a@1→4
            store @4: a@4 b@2 c@1
            store @5: a@4 b@2 c@1 (aside d)
            store @6: a@4 b@2 c@1
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_was_set_aside_is_forgotten_when_a_list_has_it_no_more() {
    check(
        "list a@1 b@1! · store · watch ~a@2! · store · expire · list@5 a@4 · store",
        expect![[r#"
        add a@1 (initial)
        store @1: a@1 (aside b)
        store @2: a@1 (stale) (aside a) (aside b)
        update a@1→4
        store @5: a@4
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_event_without_a_readable_key_is_healed_by_a_list() {
    check(
        "list a@1 b@1 · watch ~!@2 · list@3 a@1 b@2 · watch *4 · store · asked",
        expect![[r#"
        add a@1 (initial)
        add b@1 (initial)
        update b@1→2
        store @4: a@1 b@2
        > 0.0s list limit 500
        > 0.0s watch from 1
        > 0.2s list limit 500
        > 0.2s watch from 3
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_delete_of_a_known_object_removes_it() {
    check(
        "list a@1 b@1 · watch -a@2! · store · watch +c@3 · asked",
        expect![[r#"
        add a@1 (initial)
        add b@1 (initial)
        delete a@1 (missed)
        store @2: b@1
        add c@3
        > 0.0s list limit 500
        > 0.0s watch from 1
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_delete_of_another_uid_is_the_delete_of_what_was_known() {
    check(
        "list a@1 · watch +a'@3! -a'@4 · store",
        expect![[r#"
        add a@1 (initial)
        delete a@1 (missed)
        store @4:
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_storage_read_error_lists_and_the_corrupt_object_leaves() {
    let source = ScriptedSource::new();
    source.lists(1, &[("a", 1), ("corrupt", 1)]).lists(5, &[("a", 1)]);
    let live = source.live_watch();
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), paged());
    informer.start();
    informer.wait_for_sync().await.unwrap();
    let status = r#"{"kind":"Status","reason":"StorageReadError","message":"corrupt","code":500}"#;
    live.send(format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n")).unwrap();
    let snapshot = informer.wait_for_version(&Scope::CLUSTER, &5.into()).await;
    assert_eq!(snapshot.iter().map(|entry| entry.name()).collect::<Vec<_>>(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_collects_changes_before_its_end_and_tells_them_once() {
    check_with(
        streamed(),
        "stream… a@1 b@2 · watch ~a@3 -b@4 +c@5 · store · watch *4 · store · watch *6! · store · watch ~a@7",
        expect![[r#"
            store no version:
            store no version:
            add a@3 (initial)
            add c@5 (initial)
            store @6: a@3 c@5
            update a@3→7
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_its_end_bookmark_falls_back_to_lists_for_good() {
    check_with(
        streamed(),
        "stream… a@1 · list@5 a@1 b@2 · watch *6 · expire · list@7 b@2 · watch *8 · asked · status",
        expect![[r#"
            add a@1 (initial)
            add b@2 (initial)
            delete a@1 (missed)
            > 0.0s stream
            > 15.0s list limit 500
            > 15.0s watch from 5
            > 15.2s list limit 500
            > 15.2s watch from 7
            Watching Paged("no end bookmark came in time") @8, HTTP 410: too old resource version
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_rejected_stream_falls_back_to_lists_at_once() {
    check_with(
        streamed(),
        "refuse watch 400 · list@5 a@1 · watch *6 · asked · status",
        expect![[r#"
        add a@1 (initial)
        > 0.0s stream
        > 0.0s list limit 500
        > 0.0s watch from 5
        Watching Paged("the server rejects streaming lists") @6, HTTP 400: trouble
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_before_its_end_is_streamed_again() {
    check_with(
        streamed(),
        "stream… a@1 · end · refuse watch 429/3 · stream@5 b@2 · end · watch ~b@6 · expire · stream@9 b@6 · asked · store",
        expect![[r#"
            add b@2 (initial)
            update b@2→6
            > 0.0s stream
            > 0.2s stream
            > 3.4s stream
            > 4.2s watch from 5
            > 5.8s stream
            store @9: b@6
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_fails_three_times_falls_back_to_lists() {
    check_with(
        streamed(),
        "refuse watch 500 · refuse watch 500 · refuse watch 500 · list@5 a@1 · asked · status",
        expect![[r#"
            add a@1 (initial)
            > 0.0s stream
            > 0.2s stream
            > 0.6s stream
            > 1.4s list limit 500
            > 1.4s watch from 5
            Watching Paged("streaming lists failed three times in a row") @5, HTTP 500: trouble
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_stream_is_marked_by_the_word_true_only() {
    let source = ScriptedSource::new();
    let live = source.live_watch();
    let options = streamed();
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), options);
    informer.start();
    let bookmark = |value: &str, version: u64| {
        format!(
            r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"{value}"}}}}}}}}"#
        ) + "\n"
    };
    live.send(ScriptedSource::event("ADDED", "a", 1)).unwrap();
    live.send(bookmark("yes", 3)).unwrap();
    scenario_settle().await;
    assert!(!informer.has_synced());
    live.send(bookmark("true", 4)).unwrap();
    informer.wait_for_sync().await.unwrap();
    assert_eq!(informer.snapshot().version(), Some(&4.into()));
}

#[tokio::test(start_paused = true)]
async fn silence_is_death_by_the_measure_of_bookmarks() {
    check(
        "list@1 · watch *2 · wait 1m · watch *3 · wait 1m · watch *4 · wait 4m · watch +a@5 · asked · status",
        expect![[r#"
            add a@5
            > 0.0s list limit 500
            > 0.0s watch from 1
            > 300.2s watch from 4
            Watching Paged("streaming lists are switched off") @5, the watch is taken for dead: the server was silent too long
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
async fn a_comparison_with_the_server_repairs_what_events_did_not_say() {
    check_with(
        paged().verify_every(Duration::from_mins(10)),
        "list@5 a@1 b@2 c@3 · watch *6 · wait 4m · end · watch *6 · wait 4m · end · watch · list@6 a@1 b@4 · watch ~a@9 · store · asked",
        expect![[r#"
            add a@1 (initial)
            add b@2 (initial)
            add c@3 (initial)
            delete c@3 (missed)
            update b@2→4
            update a@1→9
            store @9: a@9 b@4
            > 0.0s list limit 500
            > 0.0s watch from 5
            > 240.2s watch from 6
            > 480.4s watch from 6
            > 600.0s list limit 500
            > 600.0s watch from 6
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn repairs_are_counted_and_later_changes_are_none() {
    let source = ScriptedSource::new();
    source.lists(5, &[("a", 1), ("b", 2)]).lists(8, &[("a", 1), ("b", 4), ("c", 7)]);
    let _live = [source.live_watch(), source.live_watch()];
    let options = paged().verify_every(Duration::from_mins(1));
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), options);
    informer.start();
    informer.wait_for_version(&Scope::CLUSTER, &8.into()).await;
    // b@4 should have come before @5; c@7 came after.
    assert_eq!(informer.stats().store.repairs, 1);
    assert_eq!(informer.status()[0].counts.verifications, 1);
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
    scenario_settle().await;
    assert!(source.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_hangs_is_given_up_and_asked_for_again() {
    check("wait 62s · list a@1 · asked · status", expect![[r#"
        add a@1 (initial)
        > 0.0s list limit 500
        > 60.2s list limit 500
        > 62.0s watch from 1
        Watching Paged("streaming lists are switched off") @1, the list took too long: no answer within the deadline
    "#]]).await;
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
        listing v1 Pod (all namespaces) failed: HTTP 403: no; next try in 200ms
        listing v1 Pod (all namespaces) failed: HTTP 500: no; next try in 400ms"#]]
    .assert_eq(&told.lock().unwrap().join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_transform_runs_once_for_each_object_that_arrives() {
    let runs = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&runs);
    let transform = Transform::json(move |value| {
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        noted
            .lock()
            .unwrap()
            .push(format!("{name}@{}", value["metadata"]["resourceVersion"].as_str().unwrap()));
        value["spec"] = "transformed".into();
    });
    check_with(
        paged().transform(transform),
        "list@3 a@1 b@2 · watch ~a@4 · expire · list@6 a@4 c@5 · join x resync=10s · wait 11s · leave x · watch -a@7 · store",
        expect![[r#"
            add a@1 (initial)
            add b@2 (initial)
            update a@1→4
            delete b@2 (missed)
            add c@5
            x: add a@4 (initial)
            x: add c@5 (initial)
            x: resync a@4
            x: resync c@5
            delete a@7
            store @7: c@5
        "#]],
    )
    .await;
    // The delete event brings an object too; tombstones, unchanged objects of a relist and resyncs bring none.
    assert_eq!(*runs.lock().unwrap(), ["a@1", "b@2", "a@4", "c@5", "a@7"]);
}

#[tokio::test(start_paused = true)]
async fn a_sink_of_ones_own_hears_every_change_and_version_in_order() {
    struct Log(Mutex<Vec<String>>);
    impl Sink for Log {
        fn send<'a>(&'a self, _: &'a Scope, change: Change) -> futures_core::future::BoxFuture<'a, ()> {
            let line = match change {
                Change::Put { delta, version } => format!("{:?} {:?} {version:?}", delta.kind, delta.object),
                Change::Replace(list) => format!("Replace {} {:?}", list.objects.len(), list.version),
                Change::Advance(version) => format!("Advance {version:?}"),
                Change::SetAside(aside) => format!("SetAside {:?}", aside.key),
            };
            self.0.lock().unwrap().push(line);
            Box::pin(std::future::ready(()))
        }
    }
    let source = ScriptedSource::new();
    source.lists(3, &[("a", 1), ("b", 2)]);
    let live = source.live_watch();
    let sink = Arc::new(Log(Mutex::default()));
    let config = ReflectorConfig { streaming_lists: false, ..streamed_config() };
    let reflector =
        Reflector::new(Kind::new("v1", "Pod", "pods", true), source, Arc::clone(&sink) as _, config);
    live.send(ScriptedSource::event("MODIFIED", "a", 4)).unwrap();
    live.send(ScriptedSource::event("BOOKMARK", "", 6)).unwrap();
    live.send(ScriptedSource::event("DELETED", "b", 7)).unwrap();
    let _ = tokio::time::timeout(Duration::from_secs(1), reflector.run()).await;
    expect![[r#"
        Replace 2 @3
        Updated a@4 Some(@4)
        Advance @6
        Deleted b@7 Some(@7)"#]]
    .assert_eq(&sink.0.lock().unwrap().join("\n"));
    assert_eq!(reflector.status().version, Some(7.into()));
}

async fn scenario_settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
