//! A little language for scenarios: what the server does in, what handlers hear out.
//!
//! A script is a line of steps with `·` between them; [`check`] plays it on the paused clock and compares what it prints.
//!
//! An object is `key@version`: `a@1`, `ns/a@1`. `a'@3` is another object of the same name (another uid), `a@1{app=web}` has
//! labels, `a@1!` has metadata that cannot be read, and `!@3` not even a name.
//!
//! | step | what happens |
//! | --- | --- |
//! | `list a@1 b@2`, `list@7 a@1` | answers a list, at the newest version in it or at 7; `list@7 a@1 …next` is a page, with more to come |
//! | `stream a@1`, `stream@7` | answers a streaming list: the objects, the end bookmark; the watch stays open. `stream… a@1` has no end |
//! | `watch +a@1 ~a@2 -a@3 *4 *4! ?5` | added, modified, deleted, a bookmark, one that ends a streaming list, an event of unknown type; on the open watch, or on a new one |
//! | `end`, `cut`, `expire`, `error 500` | the open watch ends, breaks, or says `ERROR` with 410 or another code |
//! | `refuse list 403`, `refuse watch 429/7` | answers the next list or watch with this code, and asks to come back in 7 s |
//! | `wait 5s` | time passes |
//! | `join x …` | adds handler `x`; then `resync=10s`, `filter=app=web`, `buffer=1`, `slow`, `panic` (on each add) as wanted |
//! | `release x`, `leave x`, `close x` | lets a slow handler go on; drops its registration; closes it |
//! | `start`, `stop` | starts and stops the informer, which runs from the beginning |
//! | `store`, `asked`, `status`, `handlers` | prints the store, the requests since last time, the reflector, the handlers |
//!
//! Handler `main` is there from the beginning; the lines of others begin with their name.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "each test file uses its part")]

mod fifo;
mod notation;
mod play;
mod server;

use expect_test::Expect;
use kube_informer::InformerOptions;
use kube_informer::backoff::BackoffConfig;
use kube_informer::reflector::ReflectorConfig;

pub use fifo::check_fifo;
pub use notation::Thing;
pub use play::settle;

/// Plays a script against lists in pages, which is what most scenarios are about, and compares what it prints.
pub async fn check(script: &str, expected: Expect) {
    check_with(paged(), script, expected).await;
}

/// Plays a script with other options.
#[allow(
    clippy::needless_pass_by_value,
    reason = "`expect!` makes a value, and a test reads better without `&`"
)]
pub async fn check_with(options: InformerOptions, script: &str, expected: Expect) {
    let printed = play::play(options, script).await;
    expected.assert_eq(&printed);
}

/// Plays a script and gives what it prints.
pub async fn printed(options: InformerOptions, script: &str) -> String {
    play::play(options, script).await
}

/// Lists in pages; waits without jitter, so that times in the output are round.
pub fn paged() -> InformerOptions {
    InformerOptions::default().reflector(ReflectorConfig { streaming_lists: false, ..streamed_config() })
}

/// Streaming lists.
pub fn streamed() -> InformerOptions {
    InformerOptions::default().reflector(streamed_config())
}

pub fn streamed_config() -> ReflectorConfig {
    let backoff = BackoffConfig { jitter: 0.0, ..BackoffConfig::default() };
    ReflectorConfig { backoff, seed: Some(1), ..ReflectorConfig::default() }
}
