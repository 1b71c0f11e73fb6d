//! Streaming lists: what they bring, and what is done where they do not work.

mod scenario;

use expect_test::expect;
use kube_informer::source::ScriptedSource;
use kube_informer::{Kind, SharedInformer};
use scenario::{check_with, settle, streamed};
use serde_json::Value;

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
async fn a_stream_without_its_end_bookmark_falls_back_to_lists() {
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
            Watching Paged("no end bookmark came in time") @8, no error
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
            Watching Paged("the server rejects streaming lists") @6, no error
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
            > 3.6s watch from 5
            > 3.7s stream
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
            Connecting Paged("streaming lists failed three times in a row") @5, no error
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_too_much_to_do_is_asked_for_streams_all_the_same() {
    check_with(
        streamed(),
        "refuse watch 503 · refuse watch 429 · refuse watch 503 · refuse list 503 · stream@5 a@1 · asked · status",
        expect![[r#"
            add a@1 (initial)
            > 0.0s stream
            > 0.2s stream
            > 0.4s stream
            > 0.8s list limit 500
            > 1.6s stream
            Watching Streaming @5, no error
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_begins_a_stream_is_asked_for_lists() {
    // No watch is scripted: each request for one waits for ever.
    check_with(
        streamed(),
        "wait 4m · list@5 a@1 · asked · status",
        expect![[r#"
        add a@1 (initial)
        > 0.0s stream
        > 60.2s stream
        > 120.6s stream
        > 181.4s list limit 500
        > 240.0s watch from 5
        Connecting Paged("streaming lists failed three times in a row") @5, no error
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
    settle().await;
    assert!(!informer.has_synced());
    live.send(bookmark("true", 4)).unwrap();
    informer.wait_for_sync().await.unwrap();
    assert_eq!(informer.snapshot().version(), Some(&4.into()));
}
