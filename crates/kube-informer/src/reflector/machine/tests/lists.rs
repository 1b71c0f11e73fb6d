//! Lists and streaming lists: which comes next, and after which wait.

use expect_test::expect;

use super::super::*;
use super::{check, paged, steps};

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
fn a_list_that_is_owed_is_made_until_it_succeeds() {
    let mut machine = Machine::new(&ReflectorConfig { seed: Some(1), ..paged() });
    let script = "list@5 fail:403 fail:403 fail:403 fail:500 event:3 unreadable fail:503 fail:504 list@6";
    assert_eq!(steps(&mut machine, script), "W W W L W W L L L W");
}
