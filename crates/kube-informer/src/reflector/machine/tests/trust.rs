//! What a list or a gap says about the copy: restores, checks and comparisons.

use expect_test::expect;

use super::super::trust::{OLDER_SPAN, RECHECK_FIRST};
use super::super::*;
use super::{check, error, paged};

#[test]
fn older_lists_for_five_seconds_are_a_restore() {
    check(
        paged(),
        "list@5 lost:410 list@3 list@3 list@4",
        expect![[r#"
            List { limit: Some(500) }
            list@5: Watch after 0.0s
            lost:410: List { limit: Some(500) } after 0.2s
            list@3: List { limit: Some(500) } after 2.8s
            list@3: List { limit: Some(500) } after 2.8s
            restored
            list@4: Watch after 0.0s
            Paged("streaming lists are switched off")
        "#]],
    );
}

#[test]
fn a_newer_list_after_older_ones_is_not_a_restore() {
    check(
        paged(),
        "list@5 lost:410 list@3 list@3 list@6",
        expect![[r#"
            List { limit: Some(500) }
            list@5: Watch after 0.0s
            lost:410: List { limit: Some(500) } after 0.2s
            list@3: List { limit: Some(500) } after 2.8s
            list@3: List { limit: Some(500) } after 2.8s
            list@6: Watch after 0.0s
            Paged("streaming lists are switched off")
        "#]],
    );
}

#[test]
fn versions_go_forward_only_where_they_have_an_order() {
    let mut machine = Machine::new(&paged());
    machine.listed("5".into(), None, Instant::now());
    for (heard, now) in [("7", "7"), ("6", "7"), ("odd", "odd"), ("8", "8")] {
        machine.moved(heard.into(), None);
        assert_eq!(machine.version(), Some(&now.into()));
    }
}

#[test]
fn the_time_to_verify_counts_from_the_last_list() {
    let every = Duration::from_hours(1);
    let mut machine = Machine::new(&ReflectorConfig { verify_every: Some(every), ..paged() });
    assert_eq!(machine.verify_at(), None);
    let now = Instant::now();
    machine.listed("5".into(), None, now);
    let lasted = Duration::from_mins(5);
    let ended = Ended { lasted, on_time: true, silent: Duration::ZERO, dead: false, failure: None };
    machine.on(&Outcome::Ended(ended), now);
    assert_eq!(machine.verify_at(), Some(now + every), "however many watches there were");
    machine.on(&Outcome::Verify, now);
    assert_eq!(machine.verifies(), Some("5".into()));
    machine.listed("6".into(), None, now);
    assert_eq!(machine.verifies(), None);
}

#[test]
fn a_check_follows_a_lost_connection_and_not_a_watch_that_ended_on_time() {
    let now = Instant::now();
    let mut machine = Machine::new(&paged());
    let mut end = |on_time, silent| {
        machine.listed("5".into(), None, now);
        machine.opened(now);
        machine.moved("6".into(), None);
        let ended = Ended { lasted: Duration::from_mins(5), on_time, silent, dead: false, failure: None };
        machine.on(&Outcome::Ended(ended), now);
        machine.begin(now, |_| Some(3));
        machine.opened(now);
        machine.doubt().check_at(now).is_some()
    };
    assert!(!end(true, Duration::from_mins(1)));
    assert!(end(false, Duration::ZERO));
    assert!(end(true, Duration::from_mins(4)), "it was silent");
}

/// Whether the next watch leads to a thorough check, if it is asked for this long after a watch has ended.
fn is_doubted(ended: Ended, after: Duration) -> bool {
    let now = Instant::now();
    let mut machine = Machine::new(&paged());
    machine.listed("5".into(), None, now);
    machine.opened(now);
    machine.moved("6".into(), None);
    machine.on(&Outcome::Ended(ended), now);
    machine.begin(now + after, |_| Some(3));
    machine.opened(now + after);
    machine.begin_check(now + after).is_some_and(|reached| reached.unwrap().is_long_ago())
}

#[test]
fn a_watch_that_ended_on_time_is_doubted_if_the_next_one_comes_late() {
    let lasted = Duration::from_mins(5);
    let ended = || Ended { lasted, on_time: true, silent: Duration::ZERO, dead: false, failure: None };
    assert!(is_doubted(ended(), Duration::from_secs(10)));
    assert!(!is_doubted(ended(), Duration::from_secs(1)));
}

#[test]
fn a_watch_that_is_taken_for_dead_was_a_gap_since_its_last_frame() {
    let (lasted, silent) = (Duration::from_mins(5), Duration::from_mins(1));
    let failure = || Some(SourceError::late("the watch is taken for dead", "silent"));
    let ended = |dead| Ended { lasted, on_time: false, silent, dead, failure: failure() };
    assert!(is_doubted(ended(true), Duration::ZERO));
    assert!(!is_doubted(ended(false), Duration::ZERO));
}

#[test]
fn a_connection_that_breaks_after_a_silence_was_a_gap_since_its_last_frame() {
    let ended = |silent, failure| {
        let lasted = Duration::from_mins(5);
        Ended {
            lasted,
            on_time: false,
            silent: Duration::from_secs(silent),
            dead: false,
            failure: Some(failure),
        }
    };
    let broken = || SourceError::transport("the watch broke", "reset");
    assert!(is_doubted(ended(150, broken()), Duration::ZERO));
    assert!(!is_doubted(ended(149, broken()), Duration::ZERO));
    assert!(is_doubted(ended(150, SourceError::late("silence_limit", "silent")), Duration::ZERO));
    // This server speaks.
    assert!(!is_doubted(ended(150, error("500")), Duration::ZERO));
}

#[test]
fn checks_count_as_requests() {
    let now = Instant::now();
    let mut machine = Machine::new(&paged());
    machine.listed("5".into(), None, now);
    machine.opened(now);
    for _ in 0..10 {
        let _ = machine.begin_check(now);
    }
    assert!(machine.on(&Outcome::Verify, now) >= Duration::from_millis(900), "the burst is used up");
}

#[test]
fn bookmarks_say_which_silence_is_suspicious() {
    let mut machine = Machine::new(&paged());
    assert_eq!(machine.suspicious_after(), QUIET);
    machine.saw_bookmark(Some(Duration::from_mins(1)));
    assert_eq!(machine.suspicious_after(), Duration::from_secs(90));
    machine.saw_bookmark(Some(Duration::from_secs(200)));
    assert_eq!(machine.suspicious_after(), QUIET);
}

#[test]
fn older_lists_in_quick_succession_are_not_a_restore() {
    let now = Instant::now();
    let mut machine = Machine::new(&paged());
    machine.listed("9".into(), None, now);
    // As often as `retry_now` asks for it.
    for number in 0..5 {
        let at = now + number * Duration::from_millis(300);
        assert_eq!(machine.judge(&"5".into(), at), Verdict::Refuse, "list {number}");
        machine.on(&Outcome::ListedOlder, at);
    }
    assert_eq!(machine.judge(&"5".into(), now + OLDER_SPAN), Verdict::Restored);
}

#[test]
fn a_comparison_that_succeeds_brings_the_interval_back() {
    let now = Instant::now();
    let mut machine =
        Machine::new(&ReflectorConfig { verify_every: Some(Duration::from_mins(1)), ..paged() });
    machine.listed("5".into(), None, now);
    for _ in 0..2 {
        machine.on(&Outcome::Verify, now);
        machine.on(&Outcome::Failed(error("500")), now);
    }
    assert_eq!(machine.verify_at(), Some(now + 4 * RECHECK_FIRST), "sooner than the next one is due");
    machine.listed("6".into(), None, now);
    assert_eq!(machine.verify_at(), Some(now + Duration::from_mins(1)));
}
