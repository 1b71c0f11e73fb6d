//! Faults of an answer as a whole.

use expect_test::expect;

use crate::story::story;

#[tokio::test(start_paused = true)]
async fn cut_stream() {
    story("", "watch: cut-stream 3 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            store: a=2 c=1
            server: 0 lists, 1 streaming lists, 4 watches
            met: 3 errors
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn end_stream() {
    story("", "watch: end-stream 3 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            delete b=1 (missed)
            update a=1 → a=2
            add c=1
            store: a=2 c=1
            server: 1 lists, 1 streaming lists, 4 watches
            met: 3 errors
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn stall_stream() {
    story("", "watch: stall-stream 1 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            delete b=1 (missed)
            update a=1 → a=2
            add c=1
            store: a=2 c=1
            server: 1 lists, 1 streaming lists, 1 watches
            met: 1 errors, 1 silences, 1 verifications
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn expired_event() {
    story("", "watch: expired-event 1 times")
        .check(expect![[r#"
        add a=1 (initial)
        add b=1 (initial)
        delete b=1 (missed)
        update a=1 → a=2
        add c=1
        store: a=2 c=1
        server: 0 lists, 2 streaming lists, 1 watches
        met: 1 errors, 1 expired
    "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn error_event() {
    story("", "watch: error-event 1 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            store: a=2 c=1
            server: 0 lists, 1 streaming lists, 2 watches
            met: 1 errors
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn drip() {
    story("any: drip 16 bytes per 100ms", "")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            store: a=2 c=1
            server: 0 lists, 1 streaming lists, 1 watches
            met: nothing
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn split_frames() {
    story("any: split-frames", "")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            store: a=2 c=1
            server: 0 lists, 1 streaming lists, 1 watches
            met: nothing
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn gzip_members() {
    story("any: gzip-members", "")
        .gzip()
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            store: a=2 c=1
            server: 0 lists, 1 streaming lists, 1 watches
            met: nothing
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn gzip_truncated() {
    story("any: gzip-truncated 1 times", "")
        .gzip()
        .check(expect![[r#"
        add a=1 (initial)
        add b=1 (initial)
        update a=1 → a=2
        add c=1
        delete b=1
        store: a=2 c=1
        server: 0 lists, 2 streaming lists, 1 watches
        met: 1 errors
    "#]])
        .await;
}
