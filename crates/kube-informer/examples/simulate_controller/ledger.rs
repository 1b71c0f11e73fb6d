//! What one controller does, as seen from outside of the library, and the rules that it must keep at every moment:
//!
//! - no reconcile begins before the server has shown every kind, except an optional one that the server does not have;
//! - every change that the cache has shown is followed by a reconcile of every key that it concerns;
//! - no reconcile begins while the controller is paused;
//! - a patch of a finalizer that was refused makes the reconcile fail, and every failure is counted;
//! - a key that fails runs no more often than its backoff allows, and requests stay within a budget.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_informer::ObjectKey;
use kube_informer::controller::{ControllerHandle, Request};
use tokio::time::Instant;

use super::judge::Judge;
use super::ticket;

/// The kinds of the controller, by resource.
pub const KINDS: [&str; 3] = ["deployments.apps", "configmaps", ticket::RESOURCE];

/// How long the server must answer 404 before an optional kind counts as absent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the controller may take to notice that the server has an optional kind now.
const NOTICE: Duration = Duration::from_secs(2);
/// How many failed runs in a row a key may have at once: a dozen retries in the first ten seconds, ten early runs in the
/// first second.
const FAILED_AT_ONCE: f64 = 26.0;
/// How many more each second: an early run a second, and a retry every ten seconds.
const FAILED_PER_SECOND: f64 = 1.2;
/// How many requests a controller may make at once, and how many more each second.
const REQUESTS_AT_ONCE: f64 = 1500.0;
const REQUESTS_PER_SECOND: f64 = 20.0;

/// The book about one controller.
pub struct Ledger {
    judge: Arc<Judge>,
    optional: bool,
    begun: Instant,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    answers: BTreeMap<&'static str, Answers>,
    /// The last answer to a request for a deployment itself, since its reconcile began.
    last: BTreeMap<String, (bool, u16)>,
    runs: BTreeMap<ObjectKey, Runs>,
    /// What was not reconciled yet: the keys, the objects that concern them, and what happened.
    owed: BTreeMap<(ObjectKey, String), String>,
    begun: u64,
    failed: u64,
    dropped: u64,
    budget: Option<(Instant, f64)>,
    handle: Option<ControllerHandle>,
    paused: bool,
}

/// What the server has answered to lists and watches of a kind.
#[derive(Default)]
struct Answers {
    shown: bool,
    last: Option<u16>,
    since: Option<Instant>,
}

/// The reconciles of a key.
#[derive(Default)]
struct Runs {
    /// The version of each kind's cache when the last one began.
    versions: BTreeMap<&'static str, u64>,
    failed_in_a_row: u32,
    failing_since: Option<Instant>,
}

/// A change of a cached object.
pub struct Seen<'a> {
    pub kind: &'static str,
    pub object: &'a ObjectKey,
    pub version: u64,
    pub what: &'static str,
}

/// How a reconcile ended.
pub enum Outcome {
    Succeeded,
    Failed,
    /// It panicked, or it took too long.
    Dropped,
}

impl Ledger {
    pub fn new(judge: Arc<Judge>, optional: bool) -> Arc<Self> {
        Arc::new(Self { judge, optional, begun: Instant::now(), entries: Mutex::default() })
    }

    pub fn watch(&self, handle: ControllerHandle) {
        self.entries().handle = Some(handle);
    }

    /// Whether somebody has paused the controller.
    pub fn paused(&self, paused: bool) {
        self.entries().paused = paused;
    }

    /// Whether the controller runs for this long and has reconciled nothing.
    pub fn is_idle_for(&self, time: Duration) -> bool {
        self.begun.elapsed() >= time && self.entries().begun == 0
    }

    /// A reconcile begins, while the caches have these versions.
    pub fn begins(&self, request: &Request, versions: BTreeMap<&'static str, u64>) {
        let mut entries = self.entries();
        for kind in KINDS {
            if let Some(why) = self.unread(kind, entries.answers.get(kind)) {
                self.judge.violation(format!("{} was reconciled although {kind} {why}", request.key));
            }
        }
        if entries.paused {
            self.judge.violation(format!("{} was reconciled during a pause", request.key));
        }
        entries.begun += 1;
        entries.last.remove(request.key.name());
        entries.owed.retain(|(key, _), _| *key != request.key);
        let runs = entries.runs.entry(request.key.clone()).or_default();
        runs.versions = versions;
        if request.failures != runs.failed_in_a_row {
            let (said, true_count) = (request.failures, runs.failed_in_a_row);
            self.judge.violation(format!("{} failed {true_count} times, not {said}", request.key));
        }
    }

    /// Why a kind may not be acted on.
    fn unread(&self, kind: &str, answers: Option<&Answers>) -> Option<String> {
        let Some(answers) = answers else { return Some("was never asked for".into()) };
        let optional = self.optional && kind == ticket::RESOURCE;
        let since = answers.since.map(|since| since.elapsed()).unwrap_or_default();
        match answers.last {
            _ if answers.shown => None,
            Some(404) if optional && self.begun.elapsed() >= PATIENCE => None,
            Some(404) if optional => Some("was answered with 404 for a moment only".into()),
            _ if optional && since < NOTICE => None,
            last => Some(format!("was never read; the last answer was {last:?} {since:?} ago")),
        }
    }

    /// A reconcile has ended. `cached`: whether the cache still shows the object that it was about.
    pub fn ends(&self, key: &ObjectKey, outcome: &Outcome, cached: bool) {
        let mut entries = self.entries();
        let last = entries.last.remove(key.name());
        match outcome {
            Outcome::Succeeded => match last {
                Some((true, 409)) => self.judge.violation(format!("{key}: a conflict counts as success")),
                Some((_, 404)) if cached => {
                    self.judge
                        .violation(format!("{key}: a 404 counts as success, though the cache shows it"));
                }
                _ => {}
            },
            Outcome::Failed => entries.failed += 1,
            Outcome::Dropped => entries.dropped += 1,
        }
        let runs = entries.runs.entry(key.clone()).or_default();
        if matches!(outcome, Outcome::Succeeded) {
            (runs.failed_in_a_row, runs.failing_since) = (0, None);
            return;
        }
        runs.failed_in_a_row += 1;
        let since = runs.failing_since.get_or_insert_with(Instant::now).elapsed();
        let allowed = FAILED_AT_ONCE + FAILED_PER_SECOND * since.as_secs_f64();
        self.judge.streak(f64::from(runs.failed_in_a_row) / allowed);
        if f64::from(runs.failed_in_a_row) > allowed {
            let times = runs.failed_in_a_row;
            self.judge.violation(format!("{key} ran {times} times within {since:?} and failed each time"));
        }
    }

    /// The cache shows a change: every key that it concerns has to be reconciled at this version or a later one.
    pub fn changed(&self, seen: &Seen<'_>, keys: impl IntoIterator<Item = ObjectKey>) {
        let mut entries = self.entries();
        for key in keys {
            let at = entries.runs.get(&key).and_then(|runs| runs.versions.get(seen.kind)).copied();
            let owed = (key, format!("{} {}", seen.kind, seen.object));
            if at.is_some_and(|at| at >= seen.version) {
                entries.owed.remove(&owed);
            } else {
                entries.owed.insert(owed, format!("{} at version {}", seen.what, seen.version));
            }
        }
    }

    /// A request is made. `false` if there are too many of them: then it must not be answered, or a loop would not end.
    pub fn asks(&self) -> bool {
        let mut entries = self.entries();
        let (at, left) = entries.budget.unwrap_or((self.begun, REQUESTS_AT_ONCE));
        let refilled = left + REQUESTS_PER_SECOND * at.elapsed().as_secs_f64();
        let left = refilled.min(REQUESTS_AT_ONCE) - 1.0;
        entries.budget = Some((Instant::now(), left));
        self.judge.spent(1.0 - left / REQUESTS_AT_ONCE);
        if left < 0.0 {
            self.judge.violation("the controller makes requests without pause".to_owned());
        }
        left >= 0.0
    }

    /// A list or watch was answered, or failed without an answer.
    pub fn read(&self, kind: &'static str, status: Option<u16>) {
        let mut entries = self.entries();
        let answers = entries.answers.entry(kind).or_default();
        answers.shown |= status == Some(200);
        let is_busy = matches!(status, None | Some(429 | 500..));
        if answers.last == Some(404) && is_busy {
            // That says nothing about a kind that the server did not have.
            return;
        }
        if answers.last != status {
            answers.since = Some(Instant::now());
        }
        answers.last = status;
    }

    /// A get or patch of a deployment was answered.
    pub fn touched(&self, deployment: &str, patch: bool, status: u16) {
        self.entries().last.insert(deployment.to_owned(), (patch, status));
    }

    /// The world rests: nothing may be owed any more, and every failure was counted.
    pub fn close(&self, is_excused: impl Fn(&ObjectKey, &str) -> bool) {
        let entries = self.entries();
        for ((key, object), what) in &entries.owed {
            if !is_excused(key, object) {
                self.judge.violation(format!("{key} was not reconciled after {object} was {what}"));
            }
        }
        let Some(stats) = entries.handle.as_ref().map(ControllerHandle::stats) else { return };
        if stats.failed != entries.failed {
            let (counted, failed) = (stats.failed, entries.failed);
            self.judge.violation(format!("{failed} reconciles failed, {counted} were counted"));
        }
        let counted = stats.panicked + stats.timed_out;
        if counted != entries.dropped {
            let dropped = entries.dropped;
            self.judge
                .violation(format!("{dropped} reconciles panicked or timed out, {counted} were counted"));
        }
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.entries.lock().expect("no user code runs with it")
    }
}
