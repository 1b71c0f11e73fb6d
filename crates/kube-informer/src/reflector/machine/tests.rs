//! The table of the machine, row by row.

mod lists;
mod trust;
mod watches;

use std::fmt::Write;

use expect_test::Expect;

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
