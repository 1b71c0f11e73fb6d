//! The table of the machine, row by row.

use std::fmt::Write;

use expect_test::{Expect, expect};

use super::trust::{OLDER_SPAN, RECHECK_FIRST};
use super::*;
use crate::backoff::BackoffConfig;

/// Feeds outcomes, as words, and prints for each what comes next and after which wait.
///
/// `list@5`, `stream@5`: complete at a version. `older`: such a list, refused. `page`: a page expired. `fail:500`, `fail:429/7`: an HTTP
/// code and Retry-After. `away:503`: a stream that was not begun. `refused`: no connection. `late`: no end bookmark. `end:20`: a watch that
/// lasted 20 s; `event:3`: one that lasted 3 s and brought an event; `error:20`: one that ended with an error after 20 s; `lost:410`,
/// `restored`, `unreadable`, `verify`. `wait:60`: nothing happens for 60 s.
#[allow(
    clippy::needless_pass_by_value,
    reason = "`expect!` makes a value, and a test reads better without `&`"
)]
fn check(config: ReflectorConfig, outcomes: &str, expected: Expect) {
    let backoff = BackoffConfig { jitter: 0.0, ..config.backoff };
    let mut machine = Machine::new(&ReflectorConfig { backoff, seed: Some(1), ..config });
    let mut out = format!("{:?}\n", machine.step());
    let mut now = Instant::now();
    for word in outcomes.split_whitespace() {
        let Some(wait) = play(&mut machine, word, &mut now, &mut out) else { continue };
        let polling = if machine.polling() { " (polling)" } else { "" };
        writeln!(out, "{word}: {:?} after {:.1}s{polling}", machine.step(), wait.as_secs_f64()).unwrap();
    }
    writeln!(out, "{:?}", machine.mode()).unwrap();
    expected.assert_eq(&out);
}

/// Feeds one outcome, and returns the wait after it.
fn play(machine: &mut Machine, word: &str, now: &mut Instant, out: &mut String) -> Option<Duration> {
    let (verb, rest) = word.split_once([':', '@']).unwrap_or((word, ""));
    let outcome = match verb {
        "wait" => {
            *now += Duration::from_secs(rest.parse().unwrap());
            return None;
        }
        "list" | "stream" => match machine.judge(&rest.into(), *now) {
            Verdict::Refuse => Outcome::ListedOlder,
            verdict => {
                *out += if verdict == Verdict::Restored { "restored\n" } else { "" };
                machine.listed(rest.into(), None, *now);
                machine.recovered();
                Outcome::Listed
            }
        },
        "page" => Outcome::PageExpired(error("410")),
        "fail" => Outcome::Failed(error(rest)),
        "refused" => Outcome::Failed(SourceError::unreachable("no connection", "refused")),
        "away" => Outcome::NotBegun(error(rest)),
        "late" => Outcome::NoEnd("no end bookmark came in time"),
        "end" | "event" | "error" => {
            let lasted = Duration::from_secs(rest.parse().unwrap());
            *now += lasted;
            machine.opened(*now);
            if verb == "event" {
                let next = machine.version().and_then(ResourceVersion::as_u64).unwrap() + 1;
                machine.moved(next.into(), None);
            }
            if machine.proven_after().is_some_and(|after| lasted >= after) {
                machine.prove();
            }
            let failure = (verb == "error").then(|| error("500"));
            Outcome::Ended(Ended { lasted, on_time: false, silent: Duration::ZERO, dead: false, failure })
        }
        "lost" => Outcome::Lost(error(rest)),
        "restored" => Outcome::Restored(error("500")),
        "unreadable" => Outcome::Unreadable,
        "verify" => Outcome::Verify,
        _ => panic!("'{word}' is not an outcome"),
    };
    let wait = machine.on(&outcome, *now);
    *now += wait;
    Some(wait)
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
fn an_expired_page_leads_to_one_list_without_pages() {
    check(
        paged(),
        "page list@5 lost:410",
        expect![[r#"
            List { limit: Some(500) }
            page: List { limit: None } after 0.2s
            list@5: Watch after 0.0s
            lost:410: List { limit: Some(500) } after 0.2s
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
            fail:403: List { limit: Some(500) } after 0.4s
            Paged("streaming lists are switched off")
        "#]],
    );
}

#[test]
fn a_rejected_stream_is_tried_again_after_an_hour() {
    check(
        ReflectorConfig::default(),
        "fail:400 list@5 lost:410 list@6 wait:3600 lost:410",
        expect![[r#"
            Stream
            fail:400: List { limit: Some(500) } after 0.0s
            list@5: Watch after 0.0s
            lost:410: List { limit: Some(500) } after 0.2s
            list@6: Watch after 0.0s
            lost:410: Stream after 0.4s
            Streaming
        "#]],
    );
}

#[test]
fn a_stream_without_end_is_tried_again_after_an_hour() {
    check(
        ReflectorConfig::default(),
        "late list@5 lost:410 list@6 wait:3600 lost:410",
        expect![[r#"
            Stream
            late: List { limit: Some(500) } after 0.0s
            list@5: Watch after 0.0s
            lost:410: List { limit: Some(500) } after 0.2s
            list@6: Watch after 0.0s
            lost:410: Stream after 0.4s
            Streaming
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
            lost:410: Stream after 0.2s
            fail:500: Stream after 0.2s
            fail:500: Stream after 0.4s
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
            away:503: List { limit: Some(500) } after 0.4s
            away:503: List { limit: Some(500) } after 0.8s
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
            fail:404: List { limit: Some(500) } after 0.8s
            fail:404: Stream after 1.6s
            Streaming
        "#]],
    );
}

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
    machine.listed("5".into(), None, Instant::now());
    assert_eq!(machine.list_version(), None, "from now on nothing goes back in time");
    assert_eq!(machine.judge(&"4".into(), Instant::now()), Verdict::Refuse);
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
fn lists_without_a_healthy_watch_between_them_are_spread_out() {
    check(
        paged(),
        "list@5 lost:410 list@6 lost:410 list@7 lost:410 list@8 unreadable list@9 event:3 lost:410",
        expect![[r#"
            List { limit: Some(500) }
            list@5: Watch after 0.0s
            lost:410: List { limit: Some(500) } after 0.2s
            list@6: Watch after 0.0s
            lost:410: List { limit: Some(500) } after 0.4s
            list@7: Watch after 0.0s
            lost:410: List { limit: Some(500) } after 0.8s (polling)
            list@8: Watch after 0.0s (polling)
            unreadable: List { limit: Some(500) } after 1.6s (polling)
            list@9: Watch after 0.0s (polling)
            event:3: Watch after 0.0s
            lost:410: List { limit: Some(500) } after 0.8s
            Paged("streaming lists are switched off")
        "#]],
    );
}

#[test]
fn streams_return_after_refusals_that_had_nothing_to_do_with_them() {
    check(
        ReflectorConfig::default(),
        "fail:403 fail:403 fail:401 list@5 event:5 lost:410 fail:404 fail:404 fail:404 fail:500 stream@6",
        expect![[r#"
            Stream
            fail:403: Stream after 0.2s
            fail:403: Stream after 0.4s
            fail:401: List { limit: Some(500) } after 0.8s
            list@5: Watch after 0.0s
            event:5: Watch after 0.0s
            lost:410: Stream after 0.8s
            fail:404: Stream after 0.2s
            fail:404: Stream after 0.4s
            fail:404: List { limit: Some(500) } after 0.8s
            fail:500: Stream after 0.2s
            stream@6: Watch after 0.0s
            Streaming
        "#]],
    );
    check(
        ReflectorConfig::default(),
        "fail:500 fail:500 fail:500 list@5 event:5 lost:410 list@6 event:600 lost:410",
        expect![[r#"
            Stream
            fail:500: Stream after 0.2s
            fail:500: Stream after 0.4s
            fail:500: List { limit: Some(500) } after 0.8s
            list@5: Watch after 0.0s
            event:5: Watch after 0.0s
            lost:410: List { limit: Some(500) } after 0.8s
            list@6: Watch after 0.0s
            event:600: Watch after 0.0s
            lost:410: Stream after 0.2s
            Streaming
        "#]],
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

#[test]
fn a_list_that_is_owed_is_made_until_it_succeeds() {
    let mut machine = Machine::new(&ReflectorConfig { seed: Some(1), ..paged() });
    let script = "list@5 fail:403 fail:403 fail:403 fail:500 event:3 unreadable fail:503 fail:504 list@6";
    assert_eq!(steps(&mut machine, script), "W W W L W W L L L W");
}

/// Feeds outcomes and returns the steps that follow: `L`, `S` or `W`.
fn steps(machine: &mut Machine, outcomes: &str) -> String {
    let mut steps = Vec::new();
    for word in outcomes.split_whitespace() {
        play(machine, word, &mut Instant::now(), &mut String::new());
        steps.push(match machine.step() {
            Step::List { .. } => "L",
            Step::Stream => "S",
            Step::Watch => "W",
        });
    }
    steps.join(" ")
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
