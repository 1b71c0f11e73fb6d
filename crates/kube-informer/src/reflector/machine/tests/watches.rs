//! Watches that end, fail or are refused, polling, and how long a silence may last.

use expect_test::expect;

use super::super::*;
use super::{check, error, paged, steps};

#[test]
fn a_healthy_watch_that_ends_is_resumed_at_once() {
    check(
        paged(),
        "list@5 end:0 end:1 end:0 end:0 event:0 end:0",
        expect![[r#"
            List { limit: Some(500) }
            list@5: Watch after 0.0s
            end:0: Watch after 0.2s
            end:1: Watch after 0.0s
            end:0: Watch after 0.2s
            end:0: Watch after 0.4s
            event:0: Watch after 0.0s
            end:0: Watch after 0.2s
            Paged("streaming lists are switched off")
        "#]],
    );
}

#[test]
fn a_refused_watch_is_tried_again_and_an_expired_one_lists() {
    check(
        paged(),
        "list@5 fail:500 fail:429/7 fail:410",
        expect![[r#"
            List { limit: Some(500) }
            list@5: Watch after 0.0s
            fail:500: Watch after 0.2s
            fail:429/7: Watch after 7.5s
            fail:410: List { limit: Some(500) } after 0.2s
            Paged("streaming lists are switched off")
        "#]],
    );
}

#[test]
fn a_lost_watch_lists_after_a_spread() {
    check(
        paged(),
        "list@5 lost:410 list@6",
        expect![[r#"
            List { limit: Some(500) }
            list@5: Watch after 0.0s
            lost:410: List { limit: Some(500) } after 0.2s
            list@6: Watch after 0.0s
            Paged("streaming lists are switched off")
        "#]],
    );
    check(
        ReflectorConfig::default(),
        "stream@5 lost:404",
        expect![[r#"
            Stream
            stream@5: Watch after 0.0s
            lost:404: Stream after 0.2s
            Streaming
        "#]],
    );
}

#[test]
fn silence_is_measured_by_bookmarks_once_two_were_seen() {
    let mut machine = Machine::new(&paged());
    let (timeout, secs) = (Duration::from_mins(5), Duration::from_secs);
    assert_eq!(machine.silence_limit(timeout), timeout + secs(30));
    machine.saw_bookmark(None);
    assert_eq!(machine.silence_limit(timeout), timeout + secs(30), "one bookmark has no interval");
    machine.saw_bookmark(Some(secs(60)));
    machine.saw_bookmark(Some(secs(50)));
    assert_eq!(machine.silence_limit(timeout), secs(180), "three times the longest");
    machine.saw_bookmark(Some(secs(1000)));
    assert_eq!(machine.silence_limit(timeout), timeout + secs(30), "never longer than the watch");
}

#[test]
fn watches_are_asked_to_last_between_one_and_two_times_what_is_set() {
    let mut machine = Machine::new(&ReflectorConfig { seed: Some(1), ..paged() });
    let timeouts: Vec<u64> = (0..100).map(|_| machine.watch_timeout().as_secs()).collect();
    assert!(timeouts.iter().all(|timeout| (300..600).contains(timeout)), "{timeouts:?}");
    assert!(timeouts.iter().max().unwrap() - timeouts.iter().min().unwrap() > 100, "{timeouts:?}");
    let mut longer = Machine::new(&ReflectorConfig { watch_timeout: Duration::from_mins(30), ..paged() });
    assert!(longer.watch_timeout() >= Duration::from_mins(30));
}

#[test]
fn three_fruitless_watches_lead_to_polling_until_one_works() {
    for refusal in ["fail:403", "fail:405", "fail:500", "end:0", "error:0", "error:1"] {
        let script =
            format!("list@5 {refusal} {refusal} {refusal} list@6 {refusal} list@7 {refusal} list@8 event:1");
        let mut machine = Machine::new(&ReflectorConfig { seed: Some(1), ..paged() });
        let steps = steps(&mut machine, &script);
        assert_eq!(steps, "W W W L W L W L W W", "{refusal}");
        assert!(!machine.polling());
    }
    check(
        paged(),
        "list@5 fail:403 fail:403 fail:403 list@6 fail:403 list@7 fail:403 list@8 end:20 fail:403",
        expect![[r#"
            List { limit: Some(500) }
            list@5: Watch after 0.0s
            fail:403: Watch after 0.2s
            fail:403: Watch after 0.4s
            fail:403: List { limit: Some(500) } after 0.2s (polling)
            list@6: Watch after 0.0s (polling)
            fail:403: List { limit: Some(500) } after 0.4s (polling)
            list@7: Watch after 0.0s (polling)
            fail:403: List { limit: Some(500) } after 0.8s (polling)
            list@8: Watch after 0.0s (polling)
            end:20: Watch after 0.0s
            fail:403: Watch after 0.2s
            Paged("streaming lists are switched off")
        "#]],
    );
}

#[test]
fn a_server_that_is_away_is_never_polled_and_soon_found_again() {
    check(
        paged(),
        "list@5 event:20 refused refused refused refused refused wait:50 refused refused wait:600 refused",
        expect![[r#"
            List { limit: Some(500) }
            list@5: Watch after 0.0s
            event:20: Watch after 0.0s
            refused: Watch after 0.2s
            refused: Watch after 0.4s
            refused: Watch after 0.8s
            refused: Watch after 1.5s
            refused: Watch after 1.5s
            refused: Watch after 1.5s
            refused: Watch after 1.5s
            refused: Watch after 16.4s
            Paged("streaming lists are switched off")
        "#]],
    );
}

#[test]
fn a_busy_server_is_listed_after_a_dozen_refusals() {
    let mut machine = Machine::new(&ReflectorConfig { seed: Some(1), ..paged() });
    let busy = "fail:503 ".repeat(12);
    assert_eq!(
        steps(&mut machine, &format!("list@5 {busy} fail:503 list@6")),
        "W W W W W W W W W W W W L W W"
    );
}

#[test]
fn a_success_starts_the_waits_again() {
    check(
        paged(),
        "fail:500 fail:500 fail:500 fail:403 fail:403 list@5 fail:500 event:1 fail:500",
        expect![[r#"
            List { limit: Some(500) }
            fail:500: List { limit: Some(500) } after 0.2s
            fail:500: List { limit: Some(500) } after 0.4s
            fail:500: List { limit: Some(500) } after 0.8s
            fail:403: List { limit: Some(500) } after 0.2s
            fail:403: List { limit: Some(500) } after 0.4s
            list@5: Watch after 0.0s
            fail:500: Watch after 0.2s
            event:1: Watch after 0.0s
            fail:500: Watch after 0.2s
            Paged("streaming lists are switched off")
        "#]],
    );
}

#[test]
fn polling_waits_as_long_as_the_server_asks() {
    let now = Instant::now();
    let mut machine = Machine::new(&paged());
    assert_eq!(steps(&mut machine, "list@5 fail:403 fail:403 fail:403 list@5"), "W W W L W");
    assert!(machine.polling());
    assert!(machine.on(&Outcome::Failed(error("403/20")), now) >= Duration::from_secs(20));
}

#[test]
fn after_a_silence_the_interval_of_bookmarks_is_learned_again() {
    let timeout = Duration::from_mins(5);
    let mut machine = Machine::new(&paged());
    machine.saw_bookmark(Some(Duration::from_secs(1)));
    assert_eq!(machine.silence_limit(timeout), GRACE);
    machine.was_silent();
    assert_eq!(machine.silence_limit(timeout), timeout + GRACE);
}
