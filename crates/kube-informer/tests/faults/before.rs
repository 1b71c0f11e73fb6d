//! Faults that come before the answer.

use expect_test::expect;

use crate::story::story;

#[tokio::test(start_paused = true)]
async fn refuse() {
    story("watch: refuse 2 times", "")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            store: a=2 c=1
            server: 0 lists, 3 streaming lists, 1 watches
            met: 2 errors
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn cut() {
    story("watch: cut 1 times", "")
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

#[tokio::test(start_paused = true)]
async fn stall() {
    story("watch: stall 1 times", "")
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

#[tokio::test(start_paused = true)]
async fn delay() {
    story("watch: delay 20s 1 times", "")
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
async fn unauthorized() {
    story("watch: unauthorized 1 times", "any: end-stream 1 times\nwatch: unauthorized 1 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            store: a=2 c=1
            server: 0 lists, 2 streaming lists, 3 watches
            met: 3 errors
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn forbidden() {
    story("watch: forbidden 1 times", "any: end-stream 1 times\nwatch: forbidden 1 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            store: a=2 c=1
            server: 0 lists, 2 streaming lists, 3 watches
            met: 3 errors
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn not_found() {
    story("watch: not-found 1 times", "any: end-stream 1 times\nwatch: not-found 1 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            delete b=1 (missed)
            update a=1 → a=2
            add c=1
            store: a=2 c=1
            server: 0 lists, 3 streaming lists, 2 watches
            met: 3 errors
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn gone() {
    story("", "any: end-stream 1 times\nwatch: gone 1 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            delete b=1 (missed)
            update a=1 → a=2
            add c=1
            store: a=2 c=1
            server: 0 lists, 2 streaming lists, 2 watches
            met: 2 errors, 1 expired
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn too_many_requests() {
    story(
        "watch: too-many-requests retry-after 7s 1 times",
        "any: end-stream 1 times\nwatch: too-many-requests 3 times",
    )
    .check(expect![[r#"
        add a=1 (initial)
        add b=1 (initial)
        update a=1 → a=2
        add c=1
        delete b=1
        store: a=2 c=1
        server: 1 lists, 2 streaming lists, 6 watches
        met: 5 errors, 1 verifications
    "#]])
    .await;
}

#[tokio::test(start_paused = true)]
async fn internal_error() {
    story("", "any: end-stream 1 times\nwatch: internal-error 5 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            delete b=1 (missed)
            update a=1 → a=2
            add c=1
            store: a=2 c=1
            server: 4 lists, 1 streaming lists, 7 watches
            met: 6 errors
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn unavailable() {
    story("watch: unavailable 1 times", "any: end-stream 1 times\nwatch: unavailable 5 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            store: a=2 c=1
            server: 1 lists, 2 streaming lists, 8 watches
            met: 7 errors, 1 verifications
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn timeout() {
    story("", "any: end-stream 1 times\nwatch: timeout 1 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            store: a=2 c=1
            server: 0 lists, 1 streaming lists, 3 watches
            met: 2 errors
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn version_too_large() {
    story("", "any: end-stream 1 times\nwatch: version-too-large 1 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            delete b=1 (missed)
            update a=1 → a=2
            add c=1
            store: a=2 c=1
            server: 0 lists, 2 streaming lists, 2 watches
            met: 2 errors
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn reject_streaming_list() {
    story("watch: reject-streaming-list", "")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            store: a=2 c=1
            server: 1 lists, 1 streaming lists, 2 watches
            met: 1 errors, paged: the server rejects streaming lists
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn ignore_streaming_list() {
    story("watch: ignore-streaming-list", "")
        .check(expect![[r#"
        add a=1 (initial)
        add b=1 (initial)
        update a=1 → a=2
        add c=1
        delete b=1
        store: a=2 c=1
        server: 1 lists, 0 streaming lists, 3 watches
        met: paged: no end bookmark came in time
    "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn stale_replica() {
    story("list: stale-replica 1 behind, 1 times", "")
        .stale_first_list()
        .check(expect![[r#"
        add a=1 (initial)
        add b=1
        update a=1 → a=2
        add c=1
        delete b=1
        store: a=2 c=1
        server: 1 lists, 0 streaming lists, 2 watches
        met: paged: a stale first list was asked for
    "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn restart() {
    story("", "any: end-stream 1 times\nwatch: restart 1 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            delete b=1 (missed)
            update a=1 → a=2
            add c=1
            store: a=2 c=1
            server: 0 lists, 2 streaming lists, 2 watches
            met: 2 errors, 1 expired
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn compact() {
    story("", "any: end-stream 1 times\nwatch: compact 1 times")
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            delete b=1 (missed)
            update a=1 → a=2
            add c=1
            store: a=2 c=1
            server: 0 lists, 2 streaming lists, 2 watches
            met: 2 errors, 1 expired
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn restore() {
    story("watch: restore 2 behind, requests 2..2", "any: end-stream after 2s, 1 times")
        .verified()
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            delete c=1 (missed)
            update a=2 → a=1
            add b=1
            store: a=1 b=1
            server: 3 lists, 4 streaming lists, 4 watches
            met: 3 errors, 1 restores, 3 verifications
        "#]])
        .await;
}
