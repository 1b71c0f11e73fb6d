//! The table of the machine, row by row.

use std::fmt::Write;

use expect_test::{Expect, expect};

use super::*;
use crate::backoff::BackoffConfig;

/// Feeds outcomes, as words, and prints for each what comes next and after which wait.
///
/// `list@5`, `stream@5`: complete at a version. `older`: such a list, refused. `page`: a page expired. `fail:500`, `fail:429/7`: an HTTP
/// code and Retry-After. `away:503`: a stream that was not begun. `late`: no end bookmark. `end:20`: a watch that lasted 20 s;
/// `lost:410`, `unreadable`, `verify`.
#[allow(
    clippy::needless_pass_by_value,
    reason = "`expect!` makes a value, and a test reads better without `&`"
)]
fn check(config: ReflectorConfig, outcomes: &str, expected: Expect) {
    let backoff = BackoffConfig { jitter: 0.0, ..config.backoff };
    let mut machine = Machine::new(&ReflectorConfig { backoff, seed: Some(1), ..config });
    let mut out = format!("{:?}\n", machine.step());
    for word in outcomes.split_whitespace() {
        let (verb, rest) = word.split_once([':', '@']).unwrap_or((word, ""));
        let outcome = match verb {
            "list" | "stream" => match machine.judge(&rest.into()) {
                Verdict::Refuse => Outcome::ListedOlder,
                verdict => {
                    out += if verdict == Verdict::Restored { "restored\n" } else { "" };
                    machine.listed(rest.into(), Instant::now());
                    Outcome::Listed
                }
            },
            "page" => Outcome::PageExpired(error("410")),
            "fail" => Outcome::Failed(error(rest)),
            "away" => Outcome::NotBegun(error(rest)),
            "late" => Outcome::NoEnd("no end bookmark came in time"),
            "end" => Outcome::Ended { lasted: Duration::from_secs(rest.parse().unwrap()), failure: None },
            "lost" => Outcome::Lost(error(rest)),
            "unreadable" => Outcome::Unreadable,
            "verify" => Outcome::Verify,
            _ => panic!("'{word}' is no outcome"),
        };
        let wait = machine.on(&outcome);
        writeln!(out, "{word}: {:?} after {:.1}s", machine.step(), wait.as_secs_f64()).unwrap();
    }
    writeln!(out, "{:?}", machine.mode()).unwrap();
    expected.assert_eq(&out);
}

fn error(code: &str) -> SourceError {
    let (code, wait) = code.split_once('/').unwrap_or((code, ""));
    let wait = wait.parse().ok().map(Duration::from_secs);
    SourceError::from_response(code.parse().unwrap(), b"", wait)
}

fn paged() -> ReflectorConfig {
    ReflectorConfig { streaming_lists: false, ..ReflectorConfig::default() }
}

#[test]
fn begins_with_a_stream_or_a_list_and_goes_on_with_a_watch() {
    check(
        ReflectorConfig::default(),
        "stream@5",
        expect![[r#"
            Stream
            stream@5: Watch after 0.0s
            Streaming
        "#]],
    );
    check(
        paged(),
        "list@5",
        expect![[r#"
        List { limit: Some(500) }
        list@5: Watch after 0.0s
        Paged("streaming lists are switched off")
    "#]],
    );
}

#[test]
fn a_list_older_than_what_was_seen_is_asked_for_again_and_then_taken_as_a_restore() {
    check(
        paged(),
        "list@5 lost:410 list@3 list@3",
        expect![[r#"
        List { limit: Some(500) }
        list@5: Watch after 0.0s
        lost:410: List { limit: Some(500) } after 0.7s
        list@3: List { limit: Some(500) } after 0.0s
        restored
        list@3: Watch after 0.0s
        Paged("streaming lists are switched off")
    "#]],
    );
}

#[test]
fn a_newer_list_after_an_older_one_is_no_restore() {
    check(
        paged(),
        "list@5 lost:410 list@3 list@6",
        expect![[r#"
        List { limit: Some(500) }
        list@5: Watch after 0.0s
        lost:410: List { limit: Some(500) } after 0.7s
        list@3: List { limit: Some(500) } after 0.0s
        list@6: Watch after 0.0s
        Paged("streaming lists are switched off")
    "#]],
    );
}

#[test]
fn an_expired_page_leads_to_one_list_without_pages() {
    check(
        paged(),
        "page list@5 lost:410",
        expect![[r#"
        List { limit: Some(500) }
        page: List { limit: None } after 0.2s
        list@5: Watch after 0.0s
        lost:410: List { limit: Some(500) } after 0.4s
        Paged("streaming lists are switched off")
    "#]],
    );
}

#[test]
fn failed_lists_wait_longer_each_time_and_as_long_as_the_server_asks() {
    check(
        paged(),
        "fail:500 fail:500 fail:429/7 fail:403",
        expect![[r#"
        List { limit: Some(500) }
        fail:500: List { limit: Some(500) } after 0.2s
        fail:500: List { limit: Some(500) } after 0.4s
        fail:429/7: List { limit: Some(500) } after 7.5s
        fail:403: List { limit: Some(500) } after 1.6s
        Paged("streaming lists are switched off")
    "#]],
    );
}

#[test]
fn a_rejected_stream_is_never_tried_again() {
    check(
        ReflectorConfig::default(),
        "fail:400 list@5 lost:410",
        expect![[r#"
        Stream
        fail:400: List { limit: Some(500) } after 0.0s
        list@5: Watch after 0.0s
        lost:410: List { limit: Some(500) } after 0.7s
        Paged("the server rejects streaming lists")
    "#]],
    );
}

#[test]
fn a_stream_without_end_is_never_tried_again() {
    check(
        ReflectorConfig::default(),
        "late list@5 lost:410",
        expect![[r#"
        Stream
        late: List { limit: Some(500) } after 0.0s
        list@5: Watch after 0.0s
        lost:410: List { limit: Some(500) } after 0.7s
        Paged("no end bookmark came in time")
    "#]],
    );
}

#[test]
fn a_stream_may_fail_twice_in_a_row() {
    check(
        ReflectorConfig::default(),
        "fail:500 fail:500 stream@5 lost:410 fail:500 fail:500",
        expect![[r#"
        Stream
        fail:500: Stream after 0.2s
        fail:500: Stream after 0.4s
        stream@5: Watch after 0.0s
        lost:410: Stream after 0.8s
        fail:500: Stream after 1.6s
        fail:500: Stream after 3.2s
        Streaming
    "#]],
    );
    check(
        ReflectorConfig::default(),
        "fail:500 fail:500 fail:500 list@5",
        expect![[r#"
        Stream
        fail:500: Stream after 0.2s
        fail:500: Stream after 0.4s
        fail:500: List { limit: Some(500) } after 0.8s
        list@5: Watch after 0.0s
        Paged("streaming lists failed three times in a row")
    "#]],
    );
    check(
        ReflectorConfig::default(),
        "away:503 away:429/7 away:503 away:503",
        expect![[r#"
        Stream
        away:503: Stream after 0.2s
        away:429/7: Stream after 7.5s
        away:503: Stream after 0.8s
        away:503: Stream after 1.6s
        Streaming
    "#]],
    );
    check(
        ReflectorConfig::default(),
        "fail:404 fail:404 fail:404 fail:404",
        expect![[r#"
        Stream
        fail:404: Stream after 0.2s
        fail:404: Stream after 0.4s
        fail:404: Stream after 0.8s
        fail:404: Stream after 1.6s
        Streaming
    "#]],
    );
}

#[test]
fn a_watch_that_ends_is_resumed_and_starts_the_waits_again_if_it_lasted() {
    check(
        paged(),
        "list@5 end:0 end:1 end:2 end:60 end:0",
        expect![[r#"
        List { limit: Some(500) }
        list@5: Watch after 0.0s
        end:0: Watch after 0.2s
        end:1: Watch after 0.4s
        end:2: Watch after 0.8s
        end:60: Watch after 0.2s
        end:0: Watch after 0.4s
        Paged("streaming lists are switched off")
    "#]],
    );
}

#[test]
fn a_watch_that_cannot_be_had_is_tried_again_and_only_an_expired_one_lists() {
    check(
        paged(),
        "list@5 fail:500 fail:429/7 fail:410",
        expect![[r#"
        List { limit: Some(500) }
        list@5: Watch after 0.0s
        fail:500: Watch after 0.2s
        fail:429/7: Watch after 7.5s
        fail:410: List { limit: Some(500) } after 0.8s
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
        lost:410: List { limit: Some(500) } after 0.7s
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
        lost:404: Stream after 0.7s
        Streaming
    "#]],
    );
}

#[test]
fn an_unreadable_event_and_a_verification_list() {
    check(
        ReflectorConfig::default(),
        "stream@5 unreadable list@6 verify list@7",
        expect![[r#"
        Stream
        stream@5: Watch after 0.0s
        unreadable: List { limit: Some(500) } after 0.2s
        list@6: Watch after 0.0s
        verify: List { limit: Some(500) } after 0.0s
        list@7: Watch after 0.0s
        Streaming
    "#]],
    );
}

#[test]
fn a_stale_first_list_asks_for_any_version_once() {
    let config = ReflectorConfig { stale_first_list: true, ..ReflectorConfig::default() };
    let mut machine = Machine::new(&config);
    assert_eq!(machine.list_version(), Some(ResourceVersion::ANY));
    assert_eq!(machine.mode(), Mode::Paged("a stale first list was asked for"));
    machine.listed("5".into(), Instant::now());
    assert_eq!(machine.list_version(), None, "from now on nothing goes back in time");
    assert_eq!(machine.judge(&"4".into()), Verdict::Refuse);
}

#[test]
fn versions_go_forward_only_where_they_have_an_order() {
    let mut machine = Machine::new(&paged());
    machine.listed("5".into(), Instant::now());
    for (heard, now) in [("7", "7"), ("6", "7"), ("odd", "odd"), ("8", "8")] {
        machine.moved(heard.into());
        assert_eq!(machine.version(), Some(&now.into()));
    }
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
fn the_time_to_verify_counts_from_the_last_list() {
    let every = Duration::from_hours(1);
    let mut machine = Machine::new(&ReflectorConfig { verify_every: Some(every), ..paged() });
    assert_eq!(machine.verify_at(), None);
    let now = Instant::now();
    machine.listed("5".into(), now);
    machine.on(&Outcome::Ended { lasted: Duration::from_mins(5), failure: None });
    assert_eq!(machine.verify_at(), Some(now + every), "however many watches there were");
    machine.on(&Outcome::Verify);
    assert_eq!(machine.verifies(), Some("5".into()));
    machine.listed("6".into(), now);
    assert_eq!(machine.verifies(), None);
}
