//! The queue against an obvious model: any sequence of steps, one consumer that keeps a store.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use kube_informer::delta_fifo::{Delta, DeltaFifo, DeltaType, KnownObjects, PopError, Scope};
use kube_informer::object::Entry;
use kube_informer::reflector::Replacement;
use kube_informer::{Kind, ObjectKey};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Put(DeltaType, u8),
    Replace(Vec<u8>),
    Resync,
    Pop,
    Fail,
}

/// One change, as the model sees it: type, version, whether it was missed.
type Change = (DeltaType, u64, bool);

/// What stands in line: changes by key, and lists whose time has not come.
#[derive(Debug)]
enum Waiting {
    Changes(Vec<(u8, Vec<Change>)>),
    List(Vec<(u8, u64)>),
}

#[derive(Default)]
struct Model {
    line: VecDeque<Waiting>,
    store: BTreeMap<u8, u64>,
    /// Keys of the first list that were not popped; `None` before it is worked out.
    initial: Vec<u8>,
    populated: bool,
    listed: bool,
}

impl Model {
    fn put(&mut self, name: u8, change: Change) {
        if !matches!(self.line.back(), Some(Waiting::Changes(_))) {
            self.line.push_back(Waiting::Changes(Vec::new()));
        }
        let Some(Waiting::Changes(changes)) = self.line.back_mut() else { unreachable!() };
        match changes.iter_mut().find(|(of, _)| *of == name) {
            None => changes.push((name, vec![change])),
            Some((_, of_key)) => {
                // Two deletes in a row are one: the one that knows the final state.
                let last = *of_key.last().unwrap();
                match (last, change) {
                    ((DeltaType::Deleted, _, false), (DeltaType::Deleted, ..)) => {}
                    ((DeltaType::Deleted, _, true), (DeltaType::Deleted, ..)) => {
                        *of_key.last_mut().unwrap() = change;
                    }
                    _ => of_key.push(change),
                }
            }
        }
    }

    fn waits(&self, name: u8) -> bool {
        self.line.iter().any(|waiting| match waiting {
            Waiting::Changes(changes) => changes.iter().any(|(of, _)| *of == name),
            Waiting::List(_) => true,
        })
    }

    /// The head of the line, once what nobody needs is gone and a list at the head is worked out.
    fn head(&mut self) -> Option<(u8, Vec<Change>)> {
        loop {
            match self.line.front_mut()? {
                Waiting::Changes(changes) => {
                    let Some((name, of_key)) = changes.first().cloned() else {
                        self.line.pop_front();
                        continue;
                    };
                    let only_deletes = of_key.iter().all(|(kind, ..)| *kind == DeltaType::Deleted);
                    if !only_deletes || self.store.contains_key(&name) {
                        return Some((name, of_key));
                    }
                    changes.remove(0);
                    self.initial.retain(|key| *key != name);
                }
                Waiting::List(list) => {
                    let list = std::mem::take(list);
                    let vanished =
                        self.store.iter().filter(|(name, _)| list.iter().all(|(of, _)| of != *name));
                    let vanished =
                        vanished.map(|(name, version)| (*name, vec![(DeltaType::Deleted, *version, true)]));
                    let mut changes: Vec<_> = vanished.collect();
                    changes.extend(
                        list.into_iter()
                            .map(|(name, version)| (name, vec![(DeltaType::Replaced, version, false)])),
                    );
                    if !self.listed {
                        self.initial = changes.iter().map(|(name, _)| *name).collect();
                        self.listed = true;
                    }
                    self.line.pop_front();
                    self.line.push_front(Waiting::Changes(changes));
                }
            }
        }
    }

    fn pop(&mut self) -> Option<(u8, Vec<Change>)> {
        let (name, of_key) = self.head()?;
        let Some(Waiting::Changes(changes)) = self.line.front_mut() else { unreachable!() };
        changes.remove(0);
        self.initial.retain(|key| *key != name);
        for (kind, version, _) in &of_key {
            match kind {
                DeltaType::Deleted => drop(self.store.remove(&name)),
                DeltaType::Sync => {}
                _ => drop(self.store.insert(name, *version)),
            }
        }
        Some((name, of_key))
    }

    fn has_synced(&self) -> bool {
        let mut lists = self.line.iter().filter_map(|waiting| match waiting {
            Waiting::List(list) => Some(list),
            Waiting::Changes(_) => None,
        });
        // An empty list with nothing to vanish need not be popped.
        let first = lists.next().filter(|_| !self.listed);
        let first_waits = first.is_some_and(|list| !list.is_empty() || !self.store.is_empty());
        self.populated && self.initial.is_empty() && !first_waits
    }
}

#[derive(Default)]
struct Store(Mutex<BTreeMap<ObjectKey, Arc<Entry>>>);

impl KnownObjects for Store {
    fn known(&self, _: &Scope) -> Vec<Arc<Entry>> {
        self.0.lock().unwrap().values().cloned().collect()
    }

    fn has(&self, key: &ObjectKey) -> bool {
        self.0.lock().unwrap().contains_key(key)
    }
}

fn entry(name: u8, version: u64) -> Arc<Entry> {
    let text =
        format!(r#"{{"metadata":{{"name":"{}","uid":"u","resourceVersion":"{version}"}}}}"#, name as char);
    let kind = Arc::new(Kind::new("v1", "Pod", "pods", true));
    Arc::new(Entry::from_json(&kind, text.as_bytes()).unwrap())
}

fn pop(fifo: &DeltaFifo, store: &Store, well: bool) -> Option<(u8, Vec<Change>)> {
    let popped = fifo.pop(|key, deltas| {
        let changes = deltas
            .iter()
            .map(|delta| (delta.kind, delta.object.version().as_u64().unwrap(), delta.final_state_unknown));
        let popped = (key.name().as_bytes()[0], changes.collect());
        if !well {
            return Err(popped);
        }
        for delta in deltas {
            match delta.kind {
                DeltaType::Deleted => drop(store.0.lock().unwrap().remove(key)),
                DeltaType::Sync => {}
                _ => drop(store.0.lock().unwrap().insert(key.clone(), Arc::clone(&delta.object))),
            }
        }
        Ok(popped)
    });
    match popped.now_or_never()? {
        Ok(popped) | Err(PopError::Process(popped)) => Some(popped),
        Err(PopError::Closed) => panic!("nobody closed it"),
    }
}

fn step() -> impl Strategy<Value = Step> {
    let name = || b'a'..b'e';
    let put =
        (prop_oneof![Just(DeltaType::Added), Just(DeltaType::Updated), Just(DeltaType::Deleted)], name());
    prop_oneof![
        5 => put.prop_map(|(kind, name)| Step::Put(kind, name)),
        1 => proptest::collection::btree_set(name(), 0..4).prop_map(|names| Step::Replace(names.into_iter().collect())),
        1 => Just(Step::Resync),
        4 => Just(Step::Pop),
        1 => Just(Step::Fail),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_its_model(steps in proptest::collection::vec(step(), 0..60)) {
        let store = Arc::new(Store::default());
        let fifo = DeltaFifo::new(Some(Arc::clone(&store) as Arc<dyn KnownObjects>));
        let mut model = Model::default();
        for (i, step) in steps.iter().enumerate() {
            let version = i as u64 + 1;
            match step {
                Step::Put(kind, name) => {
                    let delta = Delta::new(*kind, entry(*name, version));
                    fifo.put(&Scope::CLUSTER, delta).now_or_never().expect("there is room");
                    model.populated = true;
                    model.put(*name, (*kind, version, false));
                }
                Step::Replace(names) => {
                    let objects = names.iter().map(|name| Delta::new(DeltaType::Replaced, entry(*name, version)));
                    fifo.replace(&Scope::CLUSTER, Replacement {
                        objects: objects.collect(),
                        set_aside: Vec::new(),
                        version: version.into(),
                        trusted: true,
                        verifies: None,
                    });
                    model.populated = true;
                    model.line.push_back(Waiting::List(names.iter().map(|name| (*name, version)).collect()));
                }
                Step::Resync => {
                    let known = store.known(&Scope::CLUSTER).into_iter();
                    let deltas = known.map(|entry| Delta::new(DeltaType::Sync, entry));
                    fifo.resync(deltas).now_or_never().expect("there is room");
                    for (name, version) in model.store.clone() {
                        if !model.waits(name) {
                            model.put(name, (DeltaType::Sync, version, false));
                        }
                    }
                }
                Step::Pop => prop_assert_eq!(pop(&fifo, &store, true), model.pop(), "{:?}", &steps[..=i]),
                Step::Fail => prop_assert_eq!(pop(&fifo, &store, false), model.head(), "{:?}", &steps[..=i]),
            }
            prop_assert_eq!(fifo.has_synced(), model.has_synced(), "synced after {:?}", &steps[..=i]);
        }
        while let Some(popped) = model.pop() {
            prop_assert_eq!(pop(&fifo, &store, true), Some(popped));
        }
        prop_assert_eq!(pop(&fifo, &store, true), None);
        prop_assert_eq!((fifo.len(), fifo.bytes()), (0, 0));
    }
}
