//! What must hold of a store at every moment, and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube_informer::delta_fifo::Scope;
use kube_informer::object::Entry;
use kube_informer::{IndexBy, Object, ObjectKey, Snapshot};
use serde_json::Value;

use super::bodies;
use super::schedule::{InformerKind, NAMESPACES};
use super::truth::{Fact, History};

/// The indexes that come and go.
pub const INDEXES: [&str; 3] = ["app", "turn-and-namespace", "data"];

/// How each of them is made.
pub fn index_by(index: usize) -> IndexBy {
    match index {
        0 => IndexBy::label("app"),
        1 => IndexBy::metadata(|entry| values_of(1, entry)),
        _ => IndexBy::object(|object: &Object<Value>| {
            let values = data_of(object);
            if panics(&values) {
                // Not `panic!`: the hook that prints it would run.
                std::panic::resume_unwind(Box::new("on purpose"));
            }
            values
        }),
    }
}

fn values_of(index: usize, entry: &Entry) -> Vec<String> {
    match index {
        0 => entry.label("app").map(str::to_owned).into_iter().collect(),
        1 => entry.label("turn").into_iter().chain(entry.namespace()).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

fn data_of(object: &Object<Value>) -> Vec<String> {
    let value = object.get().ok().and_then(|object| object["data"]["v"].as_str());
    value.map(str::to_owned).into_iter().collect()
}

/// Whether the third index cannot be made for an object.
fn panics(values: &[String]) -> bool {
    values.iter().any(|value| value.ends_with('7'))
}

/// A snapshot's indexes are what its objects say, and its bookkeeping is right.
pub fn check_indexes(snapshot: &Snapshot<Value>) -> Result<(), String> {
    snapshot.check()?;
    for (number, name) in INDEXES.iter().enumerate() {
        let Ok(values) = snapshot.index_values(name) else { continue };
        let mut expected: BTreeMap<String, BTreeSet<ObjectKey>> = BTreeMap::new();
        let mut left_out = BTreeSet::new();
        for entry in snapshot.iter() {
            let mut own = values_of(number, entry);
            if number == 2 {
                let object = Object::from(Arc::clone(entry));
                own = data_of(&object);
                if panics(&own) || object.get().is_err() {
                    left_out.insert(entry.key());
                    own.clear();
                }
            }
            for value in own {
                expected.entry(value).or_default().insert(entry.key().clone());
            }
        }
        let found: BTreeMap<String, BTreeSet<ObjectKey>> = values
            .into_iter()
            .map(|value| {
                let query = snapshot.by_index(name, value.as_str()).expect("the index is there");
                let keys = query.iter().map(|entry| entry.key().clone()).collect();
                (value, keys)
            })
            .collect();
        if found != expected {
            return Err(format!("index {name} has {found:?}, its objects say {expected:?}"));
        }
        let unindexed: BTreeSet<&ObjectKey> = snapshot
            .unindexed()
            .filter(|unindexed| unindexed.index == *name)
            .map(|unindexed| unindexed.key)
            .collect();
        if unindexed != left_out {
            return Err(format!("index {name} leaves out {unindexed:?}, it cannot be made for {left_out:?}"));
        }
    }
    Ok(())
}

/// A snapshot at a version is what the server was at that version, set-aside objects aside; and if `garbled`, those whose version
/// is not a number.
pub fn check_version(
    snapshot: &Snapshot<Value>,
    kind: InformerKind,
    history: &History,
    garbled: bool,
) -> Result<(), String> {
    // Something whose key is not known is missing or outdated: it may be anything.
    if snapshot.set_aside().any(|aside| aside.key.is_none()) {
        return Ok(());
    }
    let mut aside = unread(snapshot);
    if !garbled {
        aside.retain(|key| snapshot.set_aside().any(|aside| aside.key.as_ref() == Some(key)));
    }
    for scope in scopes() {
        let Some(version) = snapshot.version_of(&scope).and_then(|version| version.as_u64()) else {
            continue;
        };
        let Some(facts) = history.at(version) else { continue };
        let expected: BTreeMap<&ObjectKey, &Fact> = facts
            .iter()
            .filter(|(key, fact)| scope.contains(key) && kind.selects(key, fact.web) && !aside.contains(*key))
            .collect();
        let stored: BTreeMap<&ObjectKey, &Arc<Entry>> = snapshot
            .iter()
            .map(|entry| (entry.key(), entry))
            .filter(|(key, _)| scope.contains(key) && !aside.contains(*key))
            .collect();
        for (key, fact) in &expected {
            match stored.get(key) {
                None => {
                    return Err(format!(
                        "at {version} ({scope}) the server has {key}@{}, the store nothing",
                        fact.version
                    ));
                }
                Some(entry)
                    if *entry.uid() != *fact.uid || entry.version().as_u64() != Some(fact.version) =>
                {
                    let (server, store) = (fact.version, entry.version());
                    return Err(format!(
                        "at {version} ({scope}) the server has {key}@{server}, the store {store}"
                    ));
                }
                Some(_) => {}
            }
        }
        if let Some(key) = stored.keys().find(|key| !expected.contains_key(**key)) {
            return Err(format!("at {version} ({scope}) the store has {key}, the server nothing"));
        }
    }
    Ok(())
}

/// The objects whose newest content could not be read: set aside, or stored with a version that was garbled on the way.
pub fn unread(snapshot: &Snapshot<Value>) -> BTreeSet<ObjectKey> {
    let garbled = snapshot.iter().filter(|entry| !entry.version().is_comparable());
    let garbled = garbled.map(|entry| entry.key().clone());
    snapshot.set_aside().filter_map(|aside| aside.key.clone()).chain(garbled).collect()
}

/// At the end, the store is what the server is, content and all. Unless `exact`, without [`unread`] objects.
pub fn difference(
    snapshot: &Snapshot<Value>,
    kind: InformerKind,
    namespaces: &[String],
    server: &BTreeMap<ObjectKey, Value>,
    exact: bool,
) -> Option<String> {
    let unread = if exact { BTreeSet::new() } else { unread(snapshot) };
    if let Some(aside) = snapshot.set_aside().find(|aside| exact || aside.key.is_none()) {
        return Some(format!("{:?} is set aside: {}", aside.key, aside.problem));
    }
    let in_scope = |key: &ObjectKey| {
        let all = namespaces.is_empty() && kind != InformerKind::Changing;
        all || namespaces.iter().any(|namespace| key.namespace() == Some(namespace))
    };
    let expected: BTreeMap<&ObjectKey, &Value> = server
        .iter()
        .filter(|(key, object)| {
            in_scope(key) && kind.selects(key, object["metadata"]["labels"]["app"] == "web")
        })
        .filter(|(key, _)| !unread.contains(*key))
        .collect();
    for entry in snapshot.iter().filter(|entry| !unread.contains(entry.key())) {
        let Some(expected) = expected.get(entry.key()) else {
            return Some(format!("the store has {}@{}, the server nothing", entry.key(), entry.version()));
        };
        let object = Object::<Value>::from(Arc::clone(entry));
        let Ok(stored) = object.get() else { return Some(format!("{} cannot be read", entry.key())) };
        if let Some(field) = bodies::difference(stored, expected, kind, true) {
            return Some(format!(
                "{} {field}: the store has {}, the server {}",
                entry.key(),
                stored[field],
                expected[field]
            ));
        }
    }
    let missing = expected.keys().find(|key| !snapshot.contains(**key));
    missing.map(|key| format!("the server has {key}, the store nothing"))
}

pub fn scopes() -> impl Iterator<Item = Scope> {
    [Scope::CLUSTER].into_iter().chain(NAMESPACES.into_iter().map(Scope::namespace))
}

/// Everything in a snapshot, to see that it never changes.
pub fn digest(snapshot: &Snapshot<Value>) -> Vec<String> {
    let mut lines: Vec<String> = snapshot
        .iter()
        .map(|entry| {
            let body = Object::<Value>::from(Arc::clone(entry)).get().map(Value::to_string);
            format!("{entry:?} {} {:?} {body:?}", entry.uid(), entry.labels().collect::<Vec<_>>())
        })
        .collect();
    for name in INDEXES {
        for value in snapshot.index_values(name).into_iter().flatten() {
            let found = snapshot.by_index(name, value.as_str()).into_iter().flatten();
            let keys: Vec<String> = found.map(|object| object.key().to_string()).collect();
            lines.push(format!("{name} {value} {}", keys.join(" ")));
        }
    }
    lines
}
