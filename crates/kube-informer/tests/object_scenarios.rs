//! What becomes of objects: changed, vanished, recreated, restored, repeated, unreadable, transformed.

mod scenario;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use expect_test::expect;
use kube_informer::delta_fifo::Scope;
use kube_informer::reflector::{Change, Reflector, ReflectorConfig, Sink};
use kube_informer::source::ScriptedSource;
use kube_informer::{Kind, SharedInformer, Transform};
use scenario::{check, check_with, paged, streamed_config};
use serde_json::Value;

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
async fn older_lists_over_five_seconds_are_a_restore() {
    check(
        "list@50 a@40 b@41 c@42 · watch *60 · expire · list@30 a@20 · list@30 a@20 · store · list@30 a@20 b'@21 d@22 · watch ~a@31 · store · asked",
        expect![[r#"
            add a@40 (initial)
            add b@41 (initial)
            add c@42 (initial)
            store @60: a@40 b@41 c@42
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
            > 3.2s list limit 500
            > 6.0s list limit 500
            > 6.0s watch from 30
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_a_restore_known_versions_are_not_trusted() {
    // The same uid and version, but another object: it is an update. What is the same to the last byte is silent.
    check(
        "list@9 a@5{app=old} b@6 · watch · expire · list@7 · list@7 · list@7 a@5{app=new} b@6 · watch ~b@8 · store",
        expect![[r#"
            add a@5{app=old} (initial)
            add b@6 (initial)
            update a@5{app=old}→5{app=new}
            update b@6→8
            store @8: a@5{app=new} b@8
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
            > 0.0s watch from 5
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
            > 0.0s watch from 7
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
async fn an_unreadable_delete_right_after_the_add_is_healed_by_a_list() {
    check(
        "list a@1 · watch +d@2 -d@3! · list@4 a@1 · watch *5 · store · asked",
        expect![[r#"
        add a@1 (initial)
        add d@2
        delete d@2 (missed)
        store @5: a@1
        > 0.0s list limit 500
        > 0.0s watch from 1
        > 0.5s list limit 500
        > 0.5s watch from 4
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_turns_out_to_be_unchanged_is_not_stale_any_more() {
    check(
        "list a@1 · watch ~a@1! · store · watch ~a@1 · store",
        expect![[r#"
        add a@1 (initial)
        store @1: a@1 (stale) (aside a)
        store @1: a@1
    "#]],
    )
    .await;
    check(
        "list a@1 · watch ~a@2! · store · expire · list@5 a@1 · store",
        expect![[r#"
        add a@1 (initial)
        store @2: a@1 (stale) (aside a)
        store @5: a@1
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
            > 240.0s watch from 6
            > 480.0s watch from 6
            > 600.0s list limit 500
            > 600.0s watch from 6
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn repairs_are_counted_and_later_changes_are_none() {
    let source = ScriptedSource::new();
    source.lists(5, &[("a", 1), ("b", 2)]).lists(8, &[("a", 1), ("b", 4), ("c", 7), ("d", 5)]);
    let _live = [source.live_watch(), source.live_watch()];
    let options = paged().verify_every(Duration::from_mins(1));
    let informer =
        SharedInformer::<Value>::over(Kind::new("v1", "Pod", "pods", true), source.clone(), options);
    informer.start();
    informer.wait_for_version(&Scope::CLUSTER, &8.into()).await;
    // b@4 and d@5 should have been there at @5; c@7 came after.
    assert_eq!(informer.stats().store.repairs, 2);
    assert_eq!(informer.status()[0].counts.verifications, 1);
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
