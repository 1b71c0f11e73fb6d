//! The store against an obvious model: a sorted map, and indexes worked out anew for every question.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube_informer::object::Entry;
use kube_informer::store::IndexError;
use kube_informer::{IndexBy, Indexer, Kind, ObjectKey, Snapshot};
use proptest::prelude::*;
use serde_json::{Value, json};

/// An object of the model: two labels, each of which may be missing.
#[derive(Debug, Clone, PartialEq)]
struct Thing {
    namespace: u8,
    name: u8,
    labels: [Option<u8>; 2],
}

#[derive(Debug, Clone)]
enum Step {
    Upsert(Thing),
    Remove(u8, u8),
    AddIndex(usize),
    RemoveIndex(usize),
}

/// Index 0 and 1 are by label, 2 has both labels as values.
const INDEXES: [&str; 3] = ["l0", "l1", "both"];

fn index(number: usize) -> IndexBy {
    match number {
        2 => IndexBy::metadata(|entry| entry.labels().map(|(_, value)| value.to_owned()).collect()),
        label => IndexBy::label(INDEXES[label]),
    }
}

impl Thing {
    fn key(&self) -> String {
        key(self.namespace, self.name)
    }

    fn entry(&self, version: u64) -> Arc<Entry> {
        let labels: BTreeMap<String, String> =
            (0..2).filter_map(|i| Some((INDEXES[i].to_owned(), format!("v{}", self.labels[i]?)))).collect();
        let (namespace, name) = (format!("n{}", self.namespace), format!("o{}", self.name));
        let text = json!({"metadata": {"namespace": namespace, "name": name, "uid": "u",
            "resourceVersion": version.to_string(), "labels": labels}});
        let kind = Arc::new(Kind::new("v1", "Pod", "pods", true));
        Arc::new(Entry::from_json(&kind, text.to_string().as_bytes()).unwrap())
    }

    fn values(&self, index: usize) -> BTreeSet<String> {
        let labels = self.labels.iter().enumerate().filter(|(i, _)| index == 2 || index == *i);
        labels.filter_map(|(_, value)| value.map(|value| format!("v{value}"))).collect()
    }
}

fn key(namespace: u8, name: u8) -> String {
    format!("n{namespace}/o{name}")
}

/// Asks everything there is to ask and compares.
fn compare(snapshot: &Snapshot<Value>, model: &BTreeMap<String, Thing>, indexes: &[usize]) {
    snapshot.check().unwrap();
    let keys = |entries: Vec<String>, wanted: &dyn Fn(&Thing) -> bool, what: &str| {
        let expected: Vec<&String> =
            model.iter().filter(|(_, thing)| wanted(thing)).map(|(key, _)| key).collect();
        assert_eq!(entries.iter().collect::<Vec<_>>(), expected, "{what}");
    };
    let found = |query: &kube_informer::store::Query<Value>| -> Vec<String> {
        query.iter().map(|entry| entry.key().to_string()).collect()
    };
    keys(found(&snapshot.query()), &|_| true, "everything");
    assert_eq!(snapshot.len(), model.len());
    for namespace in 0..3 {
        let name = format!("n{namespace}");
        let in_namespace = snapshot.namespace(&*name);
        keys(found(&in_namespace), &|thing| thing.namespace == namespace, "a namespace");
        let selected = snapshot.namespace(&*name).matching("l0=v1").unwrap();
        keys(found(&selected), &|thing| thing.namespace == namespace && thing.labels[0] == Some(1), "both");
        assert_eq!(selected.count(), found(&selected).len());
    }
    for (number, name) in INDEXES.iter().enumerate() {
        if !indexes.contains(&number) {
            let error = snapshot.by_index(name, "v1").map(|_| ()).unwrap_err();
            assert_eq!(error, IndexError::Unknown((*name).to_owned()));
            continue;
        }
        let mut values = BTreeSet::new();
        for value in 0..3 {
            let text = format!("v{value}");
            let query = snapshot.by_index(name, &*text).unwrap();
            keys(found(&query), &|thing| thing.values(number).contains(&text), "an index");
            let narrow = snapshot.by_index(name, &*text).unwrap().namespace("n1").matching("l1!=v2").unwrap();
            let wanted = |thing: &Thing| {
                thing.values(number).contains(&text) && thing.namespace == 1 && thing.labels[1] != Some(2)
            };
            keys(found(&narrow), &wanted, "index, namespace and selector");
            keys(narrow.clone_by_pages(), &wanted, "the same in pages of one");
            for (key, thing) in model {
                let by_name =
                    snapshot.by_index(name, &*text).unwrap().namespace(format!("n{}", thing.namespace));
                let got = by_name.get(&format!("o{}", thing.name)).map(|object| object.key().to_string());
                assert_eq!(got.as_ref(), thing.values(number).contains(&text).then_some(key));
            }
            if model.values().any(|thing| thing.values(number).contains(&text)) {
                values.insert(text);
            }
        }
        assert_eq!(snapshot.index_values(name).unwrap(), Vec::from_iter(values));
    }
}

trait ByPages {
    fn clone_by_pages(&self) -> Vec<String>;
}

impl ByPages for kube_informer::store::Query<Value> {
    fn clone_by_pages(&self) -> Vec<String> {
        let mut keys = Vec::new();
        let mut after: Option<ObjectKey> = None;
        loop {
            let page = self.page(after.as_ref(), 1);
            let Some(object) = page.first() else { return keys };
            keys.push(object.key().to_string());
            after = Some(object.key().clone());
        }
    }
}

fn thing() -> impl Strategy<Value = Thing> {
    let label = || proptest::option::of(0_u8..3);
    (0_u8..3, 0_u8..4, [label(), label()]).prop_map(|(namespace, name, labels)| Thing {
        namespace,
        name,
        labels,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => thing().prop_map(Step::Upsert),
        2 => (0_u8..3, 0_u8..4).prop_map(|(namespace, name)| Step::Remove(namespace, name)),
        1 => (0_usize..3).prop_map(Step::AddIndex),
        1 => (0_usize..3).prop_map(Step::RemoveIndex),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_as_its_model(steps in proptest::collection::vec(step(), 0..40)) {
        let indexer = Indexer::new();
        let (mut model, mut indexes) = (BTreeMap::new(), Vec::new());
        let mut past = Vec::new();
        for (version, step) in (1..).zip(&steps) {
            match step {
                Step::Upsert(thing) => {
                    let before = indexer.upsert(thing.entry(version));
                    prop_assert_eq!(before.is_some(), model.insert(thing.key(), thing.clone()).is_some());
                }
                Step::Remove(namespace, name) => {
                    let key = key(*namespace, *name);
                    let before = indexer.remove(&key.parse().unwrap());
                    prop_assert_eq!(before.is_some(), model.remove(&key).is_some());
                }
                Step::AddIndex(number) => {
                    let added = indexer.add_index(INDEXES[*number], index(*number));
                    prop_assert_eq!(added.is_ok(), !indexes.contains(number));
                    if added.is_ok() {
                        indexes.push(*number);
                    }
                }
                Step::RemoveIndex(number) => {
                    let removed = indexer.remove_index(INDEXES[*number]);
                    prop_assert_eq!(removed.is_ok(), indexes.contains(number));
                    indexes.retain(|index| index != number);
                }
            }
            compare(&indexer.snapshot(), &model, &indexes);
            past.push((indexer.snapshot(), model.clone(), indexes.clone()));
        }
        // Whatever came after them, snapshots are what they were.
        for (snapshot, model, indexes) in past.iter().step_by(7) {
            compare(snapshot, model, indexes);
        }
    }
}

#[test]
fn indexes_come_and_go_on_another_thread_while_objects_are_written() {
    let indexer = Arc::new(Indexer::new());
    let done = Arc::new(AtomicBool::new(false));
    let (other, ended) = (Arc::clone(&indexer), Arc::clone(&done));
    let indexing = std::thread::spawn(move || {
        let mut rounds = 0;
        while !ended.load(Ordering::Relaxed) || rounds < 20 {
            for (number, name) in INDEXES.iter().enumerate() {
                other.add_index(name, index(number)).unwrap();
                other.snapshot::<Value>().check().unwrap();
            }
            for name in INDEXES {
                other.snapshot::<Value>().check().unwrap();
                other.remove_index(name).unwrap();
            }
            rounds += 1;
        }
        for (number, name) in INDEXES.iter().enumerate() {
            other.add_index(name, index(number)).unwrap();
        }
    });
    let mut random = fastrand::Rng::with_seed(7);
    let mut model = BTreeMap::new();
    for version in 1..3000 {
        let label = |random: &mut fastrand::Rng| random.bool().then(|| random.u8(0..3));
        let labels = [label(&mut random), label(&mut random)];
        let thing = Thing { namespace: random.u8(0..3), name: random.u8(0..4), labels };
        if random.u8(0..4) == 0 {
            indexer.remove(&thing.key().parse().unwrap());
            model.remove(&thing.key());
        } else {
            indexer.upsert(thing.entry(version));
            model.insert(thing.key(), thing);
        }
    }
    done.store(true, Ordering::Relaxed);
    indexing.join().unwrap();
    compare(&indexer.snapshot(), &model, &[0, 1, 2]);
}
