//! Scenarios of a queue alone.
//!
//! | step | what happens |
//! | --- | --- |
//! | `known a@1` | the consumer has these objects; without this step, none; `known nothing` if it cannot say |
//! | `+a@1`, `~a@2`, `-a@3`, `--a@3` | puts a change; `--` is a delete that was missed |
//! | `replace@7 a@1 b@2` | replaces everything |
//! | `aside a` | an object that could not be read |
//! | `resync` | everything that is known comes round again |
//! | `pop`, `fail`, `drain` | pops one key, or pops it and fails, or pops until nothing is left |
//! | `synced`, `len`, `close` | prints whether it has synced, how many keys wait; closes it |
//!
//! Who pops keeps what it knows up to date, as an informer's store is.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use expect_test::Expect;
use futures_util::FutureExt;
use kube_informer::delta_fifo::{Delta, DeltaFifo, DeltaType, KnownObjects, PopError, Scope};
use kube_informer::object::Entry;
use kube_informer::reflector::{Change, Replacement, Sink};
use kube_informer::{ObjectKey, SetAside};

use super::notation::{Thing, show};

/// Plays a script on a queue and compares what is popped.
#[allow(
    clippy::needless_pass_by_value,
    reason = "`expect!` makes a value, and a test reads better without `&`"
)]
pub fn check_fifo(script: &str, expected: Expect) {
    let steps: Vec<&str> = script.split('·').map(str::trim).filter(|step| !step.is_empty()).collect();
    let known = Arc::new(Known::default());
    let blind = steps.contains(&"known nothing");
    let fifo = DeltaFifo::new((!blind).then(|| Arc::clone(&known) as Arc<dyn KnownObjects>));
    let mut out = String::new();
    for step in steps {
        let words: Vec<&str> = step.split_whitespace().collect();
        play(&fifo, &known, &words, &mut out);
    }
    expected.assert_eq(&out);
}

/// What the consumer of a queue has.
#[derive(Default)]
pub struct Known(Mutex<BTreeMap<ObjectKey, Arc<Entry>>>);

impl KnownObjects for Known {
    fn known(&self, _: &Scope) -> Vec<Arc<Entry>> {
        self.0.lock().unwrap().values().cloned().collect()
    }

    fn has(&self, key: &ObjectKey) -> bool {
        self.0.lock().unwrap().contains_key(key)
    }
}

impl Known {
    pub fn insert(&self, entry: Arc<Entry>) {
        self.0.lock().unwrap().insert(entry.key().clone(), entry);
    }

    fn process(&self, key: &ObjectKey, deltas: &[Delta]) {
        for delta in deltas {
            match delta.kind {
                DeltaType::Deleted => drop(self.0.lock().unwrap().remove(key)),
                _ => self.insert(Arc::clone(&delta.object)),
            }
        }
    }
}

pub fn replacement(version: u64, objects: impl IntoIterator<Item = Arc<Entry>>) -> Replacement {
    let objects = objects.into_iter().map(|entry| Delta::new(DeltaType::Replaced, entry)).collect();
    Replacement::new(objects, version.into())
}

fn play(fifo: &DeltaFifo, known: &Known, words: &[&str], out: &mut String) {
    let things = || words[1..].iter().map(|word| Thing::parse(word));
    match words[0].split_once('@').map_or(words[0], |(verb, _)| verb) {
        "known" if words[1..] == ["nothing"] => {}
        "known" => things().for_each(|thing| known.insert(thing.entry())),
        "replace" => {
            let at = words[0].split_once('@').and_then(|(_, at)| at.parse().ok());
            let version = at.or(things().map(|thing| thing.version).max()).unwrap_or(1);
            fifo.replace(&Scope::CLUSTER, replacement(version, things().map(|thing| thing.entry())));
        }
        "aside" => {
            let key = words[1].parse().ok();
            let aside = SetAside { key, version: None, problem: "unreadable".into(), wrong_kind: false };
            fifo.send(&Scope::CLUSTER, Change::SetAside(aside)).now_or_never().expect("never waits");
        }
        "resync" => {
            let known = known.known(&Scope::CLUSTER).into_iter();
            let deltas = known.map(|entry| Delta::new(DeltaType::Sync, entry));
            fifo.resync(deltas).now_or_never().expect("there is room");
        }
        "pop" => writeln!(out, "{}", pop(fifo, known, true)).unwrap(),
        "fail" => writeln!(out, "{}", pop(fifo, known, false)).unwrap(),
        "drain" => {
            for _ in 0..100 {
                let line = pop(fifo, known, true);
                if line == "nothing" || line == "closed" {
                    return;
                }
                writeln!(out, "{line}").unwrap();
            }
            panic!("the queue does not become empty");
        }
        "synced" => writeln!(out, "{}", if fifo.has_synced() { "synced" } else { "not synced" }).unwrap(),
        "len" => writeln!(out, "{} waiting", fifo.len()).unwrap(),
        "close" => fifo.close(),
        _ => words.iter().for_each(|word| {
            let delta = delta(word);
            fifo.put(&Scope::CLUSTER, delta).now_or_never().expect("there is room");
        }),
    }
}

fn delta(word: &str) -> Delta {
    match (word.strip_prefix("--"), word.split_at(1)) {
        (Some(thing), _) => Delta::tombstone(Thing::parse(thing).entry()),
        (None, ("+", thing)) => Delta::new(DeltaType::Added, Thing::parse(thing).entry()),
        (None, ("~", thing)) => Delta::new(DeltaType::Updated, Thing::parse(thing).entry()),
        (None, ("-", thing)) => Delta::new(DeltaType::Deleted, Thing::parse(thing).entry()),
        _ => panic!("'{word}' is no step"),
    }
}

/// What is popped, as text.
fn pop(fifo: &DeltaFifo, known: &Known, well: bool) -> String {
    let popped = fifo.pop(|key, deltas| {
        let line: String = deltas.iter().map(show_delta).collect();
        if !well {
            return Err(format!("failed at{line}"));
        }
        known.process(key, deltas);
        Ok(line.trim_start().to_owned())
    });
    match popped.now_or_never() {
        None => "nothing".into(),
        Some(Ok(line) | Err(PopError::Process(line))) => line,
        Some(Err(PopError::Closed)) => "closed".into(),
    }
}

fn show_delta(delta: &Delta) -> String {
    let missed = if delta.final_state_unknown { " (missed)" } else { "" };
    format!(" {:?} {}{missed}", delta.kind, show(&delta.object))
}
