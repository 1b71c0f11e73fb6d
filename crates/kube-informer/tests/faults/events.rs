//! Faults of single events and items.

use expect_test::expect;

use crate::story::story;

#[tokio::test(start_paused = true)]
async fn cut_frame() {
    story("watch: cut-frame 1 times", "watch: cut-frame 2 times")
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
async fn truncate_frame() {
    story("watch: truncate-frame 1 times", "watch: truncate-frame 2 times")
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
async fn no_end_bookmark() {
    story("watch: no-end-bookmark", "")
        .check(expect![[r#"
        add a=1 (initial)
        add b=1 (initial)
        update a=1 → a=2
        add c=1
        delete b=1
        store: a=2 c=1
        server: 1 lists, 1 streaming lists, 2 watches
        met: paged: no end bookmark came in time
    "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn two_end_bookmarks() {
    story("watch: two-end-bookmarks", "")
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
async fn no_bookmarks() {
    story("watch: no-bookmarks after 3 events", "")
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
async fn lost_event() {
    story("", "watch: lost-event event DELETED, 1 times")
        .verified()
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1 (missed)
            store: a=2 c=1
            server: 3 lists, 1 streaming lists, 3 watches
            met: 3 verifications, 1 repairs
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn duplicate_event() {
    story("watch: duplicate-event", "")
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
async fn unknown_object() {
    story("", "watch: unknown-object 1 times")
        .verified()
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add a-unknown=2
            add c=1
            delete b=1
            delete a-unknown=2 (missed)
            store: a=2 c=1
            server: 3 lists, 1 streaming lists, 3 watches
            met: 3 verifications, 1 repairs
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn other_kind() {
    story("watch: other-kind", "")
        .check(expect![[r#"
        add a=1 (initial)
        add b=1 (initial)
        update a=1 → a=2
        add c=1
        delete b=1
        store: a=2 c=1
        server: 0 lists, 1 streaming lists, 1 watches
        met: 5 of another kind
    "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn bad_json() {
    story("watch: bad-json 1 times", "watch: bad-json 1 times")
        .check(expect![[r#"
        add b=1 (initial)
        delete b=1 (missed)
        add a=2
        add c=1
        store: a=2 c=1
        server: 1 lists, 1 streaming lists, 2 watches
        met: 2 set aside
    "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn no_metadata() {
    story("watch: no-metadata 1 times", "watch: no-metadata event DELETED, 1 times")
        .check(expect![[r#"
        add b=1 (initial)
        add a=2
        add c=1
        delete b=1 (missed)
        store: a=2 c=1
        server: 1 lists, 1 streaming lists, 2 watches
        met: 2 set aside
    "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn bad_metadata() {
    story("watch: bad-metadata 1 times", "watch: bad-metadata event ADDED, 1 times").check(expect![[r#"
        add b=1 (initial)
        add a=2
        delete b=1
        store: a=2
        server: 0 lists, 1 streaming lists, 1 watches
        met: 2 set aside
        aside: Some("default/c"): unexpected value: invalid type: integer, expected a map of strings at line 1 column 203
    "#]]).await;
}

#[tokio::test(start_paused = true)]
async fn bad_body() {
    story("", "watch: bad-body event MODIFIED, 1 times")
        .verified()
        .check(expect![[r#"
            add a=1 (initial)
            add b=1 (initial)
            update a=1 → a=2
            add c=1
            delete b=1
            update a=2 → a=2
            store: a=2 c=1
            server: 3 lists, 1 streaming lists, 3 watches
            met: 3 verifications, 1 repairs
        "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn bad_version() {
    story("watch: bad-version 1 times", "watch: bad-version 2 times")
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
