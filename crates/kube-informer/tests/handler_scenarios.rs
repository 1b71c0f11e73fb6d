//! What handlers hear: late, slow, filtered, resynced, panicking, removed.

mod scenario;

use std::time::Duration;

use expect_test::expect;
use scenario::{check, check_with, paged};

#[tokio::test(start_paused = true)]
async fn a_late_handler_hears_what_is_there_and_then_every_change() {
    check(
        "list a@1 b@1 · watch ~a@2 · join x · watch +c@3 -b@4 · handlers",
        expect![[r#"
        add a@1 (initial)
        add b@1 (initial)
        update a@1→2
        x: add a@2 (initial)
        x: add b@1 (initial)
        add c@3
        delete b@4
        x: add c@3
        x: delete b@4
        main synced, 5 heard, 0 waiting
        x synced, 4 heard, 0 waiting
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_is_synced_when_its_own_adds_have_returned() {
    check(
        "list a@1 b@1 · join x slow · handlers · release x · handlers",
        expect![[r#"
        add a@1 (initial)
        add b@1 (initial)
        x: add a@1 (initial)
        main synced, 2 heard, 0 waiting
        x not synced, 0 heard, 1 waiting
        x: add b@1 (initial)
        main synced, 2 heard, 0 waiting
        x synced, 2 heard, 0 waiting
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_synced_when_the_callbacks_of_the_first_list_have_returned() {
    check(
        "join x slow · handlers · list a@1 b@1 · handlers · release x · handlers",
        expect![[r#"
        main not synced, 0 heard, 0 waiting
        x not synced, 0 heard, 0 waiting
        add a@1 (initial)
        add b@1 (initial)
        x: add a@1 (initial)
        main synced, 2 heard, 0 waiting
        x not synced, 0 heard, 1 waiting
        x: add b@1 (initial)
        main synced, 2 heard, 0 waiting
        x synced, 2 heard, 0 waiting
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_first_list_syncs_handlers_at_once() {
    check(
        "handlers · list@1 · handlers",
        expect![[r#"
        main not synced, 0 heard, 0 waiting
        main synced, 0 heard, 0 waiting
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_the_second_list_are_not_initial() {
    check(
        "list a@1 · watch · expire · list@5 a@1 b@2 c@3 · watch ~a@6",
        expect![[r#"
        add a@1 (initial)
        add b@2
        add c@3
        update a@1→6
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_holds_up_nobody_and_hears_merged_events_past_its_bound() {
    check(
        "join x slow buffer=1 · list a@1 b@1 · watch ~a@2 ~b@3 ~a@4 +c@5 -b@6 ~c@7 +d@8 -d@9 +b'@10 · handlers · release x · handlers",
        expect![[r#"
            add a@1 (initial)
            add b@1 (initial)
            x: add a@1 (initial)
            update a@1→2
            update a@2→4
            update b@1→3
            delete b@6
            add b'@10
            add c@5
            update c@5→7
            add d@8
            delete d@9
            main synced, 11 heard, 0 waiting
            x not synced, 0 heard, 5 waiting, 4 merged
            x: add b@1 (initial)
            x: update a@1→2
            x: update a@2→4
            x: delete b@6
            x: add b'@10
            x: add c@7
            main synced, 11 heard, 0 waiting
            x synced, 6 heard, 0 waiting, 4 merged
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn each_handler_with_a_period_hears_everything_again_when_its_time_has_come() {
    check_with(
        paged(),
        "list a@1 · join two resync=2s · join three resync=3s · wait 2100ms · watch +b@2 · wait 1000ms · wait 1000ms · wait 2000ms",
        expect![[r#"
            add a@1 (initial)
            two: add a@1 (initial)
            three: add a@1 (initial)
            two: resync a@1
            add b@2
            two: add b@2
            three: add b@2
            three: resync a@1
            three: resync b@2
            two: resync a@1
            two: resync b@2
            two: resync a@1
            two: resync b@2
            three: resync a@1
            three: resync b@2
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_period_of_the_informer_is_the_default_and_a_second_the_least() {
    check_with(
        paged().resync_every(Duration::from_millis(10)),
        "join x resync=5s · list a@1 · wait 1100ms · wait 1s",
        expect![[r#"
            add a@1 (initial)
            x: add a@1 (initial)
            resync a@1
            resync a@1
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_a_relist_only_those_with_a_period_hear_of_what_did_not_change() {
    check(
        "join x resync=10s · list a@1 b@1 · watch · expire · list@5 a@1 b@3 · wait 12s",
        expect![[r#"
            add a@1 (initial)
            add b@1 (initial)
            x: add a@1 (initial)
            x: add b@1 (initial)
            update b@1→3
            x: update b@1→3
            x: resync a@1
            x: resync b@3
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_filter_turns_updates_into_adds_and_deletes() {
    check(
        "join x filter=app=web · list a@1{app=web} b@1 · watch ~b@2{app=web} ~a@3 ~a@4 ~b@5{app=web} -b@6{app=web} -a@7 · handlers",
        expect![[r#"
            add a@1{app=web} (initial)
            add b@1 (initial)
            x: add a@1{app=web} (initial)
            update b@1→2{app=web}
            update b@2{app=web}→5{app=web}
            delete b@6{app=web}
            update a@1{app=web}→3
            update a@3→4
            delete a@7
            x: add b@2{app=web}
            x: update b@2{app=web}→5{app=web}
            x: delete b@6{app=web}
            x: delete a@1{app=web}
            main synced, 8 heard, 0 waiting
            x synced, 8 heard, 0 waiting
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_filter_judges_a_delete_by_what_was_heard_last() {
    // The final state does not pass any more, but what the handler heard of did.
    check(
        "join x filter=app=web · list a@1{app=web} b@1 · watch -a@2 -b@3{app=web}",
        expect![[r#"
        add a@1{app=web} (initial)
        add b@1 (initial)
        x: add a@1{app=web} (initial)
        delete a@2
        delete b@3{app=web}
        x: delete a@2
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_filter_judges_merged_events_as_one() {
    check(
        "join x filter=app=web slow buffer=1 · list a@1{app=web} b@1{app=web} c@1 · watch ~c@2 ~b@3 ~b@4{app=web} ~a@5 ~c@6{app=web} ~c@7 · release x · handlers",
        expect![[r#"
            add a@1{app=web} (initial)
            add b@1{app=web} (initial)
            add c@1 (initial)
            x: add a@1{app=web} (initial)
            update c@1→2
            update c@2→6{app=web}
            update c@6{app=web}→7
            update b@1{app=web}→3
            update b@3→4{app=web}
            update a@1{app=web}→5
            x: add b@1{app=web} (initial)
            x: update b@1{app=web}→4{app=web}
            x: delete a@1{app=web}
            main synced, 9 heard, 0 waiting
            x synced, 7 heard, 0 waiting, 2 merged
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_counted_and_harms_nobody_not_even_the_handler() {
    check(
        "join x panic · list a@1 b@1 · watch ~a@2 +c@3 · handlers",
        expect![[r#"
        add a@1 (initial)
        add b@1 (initial)
        x: add a@1 (initial)
        x: add b@1 (initial)
        update a@1→2
        add c@3
        x: update a@1→2
        x: add c@3
        main synced, 4 heard, 0 waiting
        x synced, 4 heard, 0 waiting, 3 panics
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_left_hears_nothing_more() {
    check(
        "join x · join y slow · list a@1 b@1 · leave x · leave y · watch ~a@2 · handlers",
        expect![[r#"
        add a@1 (initial)
        add b@1 (initial)
        x: add a@1 (initial)
        x: add b@1 (initial)
        y: add a@1 (initial)
        update a@1→2
        main synced, 3 heard, 0 waiting
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_closed_hears_what_waits_for_it_first() {
    check(
        "join x slow · list a@1 b@1 · watch ~a@2 · close x · watch ~a@3",
        expect![[r#"
        add a@1 (initial)
        add b@1 (initial)
        x: add a@1 (initial)
        update a@1→2
        x: add b@1 (initial)
        x: update a@1→2
        update a@2→3
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn handlers_can_be_closed_whether_or_not_the_informer_ever_ran() {
    check(
        "close main · stop · join x · close x · join y · start · list a@1 · close y · watch ~a@2 · store",
        expect![[r#"
        y: add a@1 (initial)
        store @2: a@2
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_same_handler_twice_is_two_handlers() {
    check(
        "join x · join y · list a@1 · leave x · watch ~a@2 · leave y · watch ~a@3",
        expect![[r#"
        add a@1 (initial)
        x: add a@1 (initial)
        y: add a@1 (initial)
        update a@1→2
        y: update a@1→2
        update a@2→3
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn stopped_and_started_again_handlers_hear_of_what_changed_meanwhile() {
    check(
        "list a@1 b@1 · stop · start · list@7 a@1 b@5 c@6 · watch -a@8 · store · asked",
        expect![[r#"
        add a@1 (initial)
        add b@1 (initial)
        update b@1→5
        add c@6
        delete a@8
        store @8: b@5 c@6
        > 0.0s list limit 500
        > 0.0s watch from 1
        > 0.0s list limit 500
        > 0.0s watch from 7
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn several_changes_of_an_object_before_anybody_hears_are_told_in_order() {
    check(
        "list a@1 · watch ~a@2 -a@3 +a'@4 ~a'@5 -a'@6 +a''@7",
        expect![[r#"
            add a@1 (initial)
            update a@1→2
            delete a@3
            add a'@4
            update a'@4→5
            delete a'@6
            add a''@7
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_add_of_something_known_is_an_update_and_an_update_of_something_unknown_an_add() {
    check(
        "list a@1 · watch +a@2 ~b@3 -c@4 · store",
        expect![[r#"
        add a@1 (initial)
        update a@1→2
        add b@3
        store @4: a@2 b@3
    "#]],
    )
    .await;
}
