//! The queue alone: what goes in, what comes out.

mod scenario;

use std::sync::Arc;

use expect_test::expect;
use kube_informer::delta_fifo::{Delta, DeltaFifo, DeltaType, PopError, Scope};
use scenario::{Thing, check_fifo};

#[test]
fn a_key_is_popped_once_with_all_its_changes() {
    check_fifo(
        "+a@1 ~a@2 -a@3 · len · pop · pop",
        expect![[r#"
        1 waiting
        Added a@1 Updated a@2 Deleted a@3
        nothing
    "#]],
    );
}

#[test]
fn keys_come_out_in_the_order_of_their_first_change() {
    check_fifo(
        "+a@1 +b@2 ~a@3 +c@4 ~b@5 · drain",
        expect![[r#"
        Added a@1 Updated a@3
        Added b@2 Updated b@5
        Added c@4
    "#]],
    );
}

#[test]
fn a_key_that_comes_again_stands_at_the_end_of_the_line() {
    check_fifo(
        "+a@1 +b@2 +c@3 · pop · +a@4 · drain",
        expect![[r#"
        Added a@1
        Added b@2
        Added c@3
        Added a@4
    "#]],
    );
}

#[test]
fn a_change_that_comes_while_its_key_is_processed_is_popped_later() {
    let fifo = DeltaFifo::default();
    let put = |delta: Delta| futures_util::FutureExt::now_or_never(fifo.put(&Scope::CLUSTER, delta)).unwrap();
    put(Delta::new(DeltaType::Added, Thing::parse("a@1").entry()));
    put(Delta::new(DeltaType::Added, Thing::parse("b@2").entry()));
    let popped = |during: Option<&str>| {
        let pop = fifo.pop(|_, deltas| {
            if let Some(thing) = during {
                put(Delta::new(DeltaType::Updated, Thing::parse(thing).entry()));
            }
            Ok::<_, ()>(format!("{:?}", deltas.iter().map(|delta| &delta.object).collect::<Vec<_>>()))
        });
        futures_util::FutureExt::now_or_never(pop).unwrap().unwrap()
    };
    assert_eq!([popped(Some("a@3")), popped(None), popped(None)], ["[a@1]", "[b@2]", "[a@3]"]);
    assert!(fifo.is_empty());
}

#[test]
fn an_item_whose_processing_failed_stays_at_the_head() {
    check_fifo(
        "+a@1 +b@2 · fail · fail · ~a@3 · drain",
        expect![[r#"
        failed at Added a@1
        failed at Added a@1
        Added a@1 Updated a@3
        Added b@2
    "#]],
    );
}

#[test]
fn two_deletes_in_a_row_are_one_and_the_one_that_knows_the_end_stays() {
    check_fifo(
        "known a@1 b@1 c@1 · -a@2 -a@3 · --b@1 -b@4 · -c@5 --c@1 · drain",
        expect![[r#"
        Deleted a@2
        Deleted b@4
        Deleted c@5
    "#]],
    );
}

#[test]
fn a_delete_of_what_nobody_has_is_dropped() {
    check_fifo(
        "known a@1 · -b@2 -a@3 · len · drain · len",
        expect![[r#"
        2 waiting
        Deleted a@3
        0 waiting
    "#]],
    );
}

#[test]
fn who_cannot_say_what_it_has_hears_of_every_delete() {
    check_fifo(
        "known nothing · -b@2 · drain",
        expect![[r#"
        Deleted b@2
    "#]],
    );
}

#[test]
fn an_add_and_its_delete_both_come_out() {
    check_fifo(
        "+a@1 -a@2 · drain",
        expect![[r#"
        Added a@1 Deleted a@2
    "#]],
    );
}

#[test]
fn a_list_comes_out_after_what_was_put_before_it_and_before_what_is_put_after() {
    check_fifo(
        "+a@1 · replace@3 a@2 b@3 · ~b@4 +c@5 · drain",
        expect![[r#"
        Added a@1
        Replaced a@2
        Replaced b@3
        Updated b@4
        Added c@5
    "#]],
    );
}

#[test]
fn a_list_after_a_queued_delete_brings_the_object_back() {
    check_fifo(
        "known a@1 · -a@2 · replace@3 a@3 · drain",
        expect![[r#"
        Deleted a@2
        Replaced a@3
    "#]],
    );
}

#[test]
fn a_list_says_what_vanished_before_what_is_there() {
    check_fifo(
        "known a@1 b@1 c@1 · replace@5 b@4 d@5 · drain",
        expect![[r#"
        Deleted a@1 (missed)
        Deleted c@1 (missed)
        Replaced b@4
        Replaced d@5
    "#]],
    );
    check_fifo(
        "known a@1 b@1 · replace@5 · drain",
        expect![[r#"
        Deleted a@1 (missed)
        Deleted b@1 (missed)
    "#]],
    );
}

#[test]
fn a_list_tells_the_end_of_what_was_only_in_the_queue_with_its_newest_state() {
    check_fifo(
        "+a@1 · replace@2 b@2 · drain",
        expect![[r#"
        Added a@1
        Deleted a@1 (missed)
        Replaced b@2
    "#]],
    );
    check_fifo(
        "+a@1 ~a@2 · replace@3 · drain",
        expect![[r#"
        Added a@1 Updated a@2
        Deleted a@2 (missed)
    "#]],
    );
    check_fifo(
        "known a@1 · ~a@2 · replace@3 b@3 · drain",
        expect![[r#"
        Updated a@2
        Deleted a@2 (missed)
        Replaced b@3
    "#]],
    );
    check_fifo(
        "known a@1 · -a@2 · replace@3 b@3 · drain",
        expect![[r#"
        Deleted a@2
        Replaced b@3
    "#]],
    );
    check_fifo(
        "known a@1 · ~a@2 -a@3 +a@4 · replace@5 · drain",
        expect![[r#"
        Updated a@2 Deleted a@3 Added a@4
        Deleted a@4 (missed)
    "#]],
    );
    check_fifo(
        "replace@1 a@1 · replace@2 b@2 · drain",
        expect![[r#"
        Replaced a@1
        Deleted a@1 (missed)
        Replaced b@2
    "#]],
    );
    check_fifo(
        "known nothing · +a@1 · replace@2 b@2 · drain",
        expect![[r#"
        Added a@1
        Deleted a@1 (missed)
        Replaced b@2
    "#]],
    );
    check_fifo(
        "known nothing · replace@1 a@1 c@1 · -c@2 · replace@3 b@2 · drain",
        expect![[r#"
        Replaced a@1
        Replaced c@1
        Deleted c@2
        Deleted a@1 (missed)
        Replaced b@2
    "#]],
    );
}

#[test]
fn a_resync_passes_over_keys_that_have_changes_waiting() {
    check_fifo(
        "known a@1 b@1 c@1 · ~a@2 -b@3 · resync · drain",
        expect![[r#"
        Updated a@2
        Deleted b@3
        Sync c@1
    "#]],
    );
    check_fifo(
        "known a@1 · replace@3 a@1 · resync · drain",
        expect![[r#"
        Replaced a@1
    "#]],
    );
    check_fifo(
        "known a@1 · resync · resync · len · ~a@2 · drain",
        expect![[r#"
        1 waiting
        Sync a@1 Updated a@2
    "#]],
    );
}

#[test]
fn the_first_list_is_synced_when_all_of_it_was_popped() {
    check_fifo(
        "synced · replace@2 a@1 b@2 · synced · pop · synced · pop · synced",
        expect![[r#"
        not synced
        not synced
        Replaced a@1
        not synced
        Replaced b@2
        synced
    "#]],
    );
    check_fifo(
        "replace@1 · synced",
        expect![[r#"
        synced
    "#]],
    );
    check_fifo(
        "+a@1 · synced · pop · synced",
        expect![[r#"
        synced
        Added a@1
        synced
    "#]],
    );
    check_fifo(
        "+a@1 · replace@2 a@2 · synced · pop · synced · pop · synced",
        expect![[r#"
        not synced
        Added a@1
        not synced
        Replaced a@2
        synced
    "#]],
    );
    check_fifo(
        "replace@1 a@1 · pop · replace@2 a@2 b@2 · synced",
        expect![[r#"
        Replaced a@1
        synced
    "#]],
    );
}

#[test]
fn what_vanished_counts_for_the_first_list() {
    check_fifo(
        "known gone@1 · replace@3 a@1 · synced · pop · synced · pop · synced",
        expect![[r#"
        not synced
        Deleted gone@1 (missed)
        not synced
        Replaced a@1
        synced
    "#]],
    );
    check_fifo(
        "known gone@1 · replace@3 · synced · pop · synced",
        expect![[r#"
        not synced
        Deleted gone@1 (missed)
        synced
    "#]],
    );
}

#[test]
fn who_pops_by_hand_is_not_held_up_by_unreadable_objects() {
    check_fifo(
        "aside x · +a@1 · aside a · ~b@2 · aside b · ~b@3 · len · drain · len",
        expect![[r#"
        3 waiting
        Added a@1
        Updated b@2 Updated b@3
        0 waiting
    "#]],
    );
    check_fifo(
        "known nothing · aside x · drain · len",
        expect![[r#"
        0 waiting
    "#]],
    );
}

#[test]
fn a_closed_queue_gives_what_it_has_and_takes_no_more() {
    check_fifo(
        "+a@1 · close · +b@2 · replace@3 c@3 · pop · pop · len",
        expect![[r#"
        Added a@1
        closed
        0 waiting
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_are_told_when_it_closes() {
    let fifo = Arc::new(DeltaFifo::default());
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let fifo = Arc::clone(&fifo);
            tokio::spawn(async move { fifo.pop(|_, _| Ok::<_, ()>(())).await })
        })
        .collect();
    tokio::task::yield_now().await;
    fifo.close();
    for pop in waiting {
        assert_eq!(pop.await.unwrap(), Err(PopError::Closed));
    }
}

#[tokio::test(start_paused = true)]
async fn two_producers_keep_their_order() {
    let fifo = Arc::new(DeltaFifo::default());
    let producers = ["x", "y"].map(|name| {
        let fifo = Arc::clone(&fifo);
        tokio::spawn(async move {
            for i in 1..=100 {
                let entry = Thing::parse(&format!("{name}@{i}")).entry();
                fifo.put(&Scope::CLUSTER, Delta::new(DeltaType::Updated, entry)).await;
                tokio::task::yield_now().await;
            }
        })
    });
    let (mut last, mut seen) = (std::collections::HashMap::new(), 0);
    while seen < 200 {
        let deltas = fifo.pop(|key, deltas| Ok::<_, ()>((key.clone(), deltas.to_vec()))).await.unwrap();
        for delta in deltas.1 {
            let before = last.insert(deltas.0.clone(), delta.object.version().clone());
            assert!(before.is_none_or(|before| before < *delta.object.version()));
            seen += 1;
        }
    }
    for producer in producers {
        producer.await.unwrap();
    }
    assert!(fifo.is_empty());
}

#[tokio::test(start_paused = true)]
async fn puts_wait_while_the_queue_is_full_and_nothing_is_lost_when_they_are_dropped() {
    let fifo = Arc::new(DeltaFifo::with_limit(None, 1));
    let put = |thing: &str| {
        let (fifo, entry) = (Arc::clone(&fifo), Thing::parse(thing).entry());
        async move { fifo.put(&Scope::CLUSTER, Delta::new(DeltaType::Added, entry)).await }
    };
    put("a@1").await;
    let waits = tokio::time::timeout(std::time::Duration::from_secs(1), put("b@2")).await;
    assert!(waits.is_err());
    assert_eq!(fifo.len(), 1, "a put that was dropped has put nothing");
    let waiting = tokio::spawn(put("c@3"));
    fifo.pop(|_, _| Ok::<_, ()>(())).await.unwrap();
    waiting.await.unwrap();
    let key = fifo.pop(|key, _| Ok::<_, ()>(key.to_string())).await.unwrap();
    assert_eq!((key.as_str(), fifo.bytes()), ("c", 0));
}
