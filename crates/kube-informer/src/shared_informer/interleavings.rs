//! An informer and a few threads, in thousands of orders under shuttle: handlers join and leave, indexes come and go, namespaces
//! change, while changes are processed.
//!
//! Every reader keeps a history of its own and holds it against the store's. A thread that is never woken shows as a deadlock.
//! A failure prints the schedule that led to it; `shuttle::replay` with the scene and that schedule plays it again.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread::{self, JoinHandle};

use super::{EventStream, InformerOptions, SharedInformer};
use crate::delta_fifo::{Delta, DeltaType, Scope};
use crate::event::Event;
use crate::handler::HandlerOptions;
use crate::object::{Entry, Kind};
use crate::reflector::Replacement;
use crate::source::ScriptedSource;
use crate::store::Snapshot;

const SEED: u64 = 7;
const ORDERS: usize = 400;

/// The last object of every scene: who has seen it has seen all.
const LAST: &str = "z";

#[test]
fn who_joins_at_any_moment_receives_every_change_once_and_in_order() {
    explore(|| {
        let informer = informer(&[]);
        let readers = [0, 1].map(|_| {
            let informer = informer.clone();
            thread::spawn(move || Reader::join(&informer).read_all())
        });
        put(&informer, DeltaType::Added, "a", 1);
        let processor = process(&informer);
        put(&informer, DeltaType::Updated, "a", 2);
        put(&informer, DeltaType::Added, "b", 3);
        put(&informer, DeltaType::Deleted, "b", 4);
        put(&informer, DeltaType::Updated, "a", 5);
        put(&informer, DeltaType::Added, LAST, 6);
        let now = finish(&informer, processor);
        for reader in readers {
            assert_eq!(reader.join().unwrap().told, now);
        }
    });
}

#[test]
fn who_leaves_at_any_moment_takes_nothing_from_others() {
    explore(|| {
        let informer = informer(&[]);
        put(&informer, DeltaType::Added, "a", 1);
        let stays = Reader::join(&informer);
        let processor = process(&informer);
        let leaves = [1, 2].map(|events| {
            let informer = informer.clone();
            thread::spawn(move || {
                let mut reader = Reader::join(&informer);
                for _ in 0..events {
                    reader.read();
                }
            })
        });
        put(&informer, DeltaType::Updated, "a", 2);
        put(&informer, DeltaType::Updated, "a", 3);
        put(&informer, DeltaType::Added, LAST, 4);
        for thread in leaves {
            thread.join().unwrap();
        }
        assert_eq!(stays.read_all().told, finish(&informer, processor));
        assert!(informer.stats().handlers.is_empty(), "all have left");
    });
}

#[test]
fn a_reader_is_synced_once_it_has_the_first_list_whenever_it_joins() {
    explore(|| {
        let informer = informer(&[]);
        let readers = [0, 1].map(|_| {
            let informer = informer.clone();
            thread::spawn(move || {
                let mut reader = Reader::join(&informer).read_all();
                // An event counts as received when the next one is asked for.
                assert!(reader.events.next().now_or_never().is_none());
                assert!(reader.events.has_synced(), "{:?}", reader.events);
                reader
            })
        });
        let processor = process(&informer);
        list(&informer, &Scope::CLUSTER, &["a", "b"], 1);
        put(&informer, DeltaType::Deleted, "a", 2);
        put(&informer, DeltaType::Added, LAST, 3);
        let now = finish(&informer, processor);
        assert!(informer.has_synced());
        for reader in readers {
            let reader = reader.join().unwrap();
            assert_eq!(reader.told, now);
            assert!(reader.initial.contains(&"b".to_owned()), "it was there before: {:?}", reader.initial);
        }
    });
}

#[test]
fn an_index_is_right_in_every_snapshot_that_has_it() {
    explore(|| {
        let informer = informer(&[]);
        put(&informer, DeltaType::Added, "a", 1);
        put(&informer, DeltaType::Added, "b", 2);
        let processor = process(&informer);
        let builder = {
            let informer = informer.clone();
            thread::spawn(move || {
                let values = |object: &crate::Object<Value>| object.label("version").map(String::from);
                informer.add_index("version", values).unwrap();
                assert_index_is_right(&informer.snapshot());
                informer.remove_index("version").unwrap();
                informer.add_index("version", values).unwrap();
                assert_index_is_right(&informer.snapshot());
            })
        };
        put(&informer, DeltaType::Updated, "a", 3);
        put(&informer, DeltaType::Deleted, "b", 4);
        put(&informer, DeltaType::Added, "c", 5);
        builder.join().unwrap();
        finish(&informer, processor);
        assert_index_is_right(&informer.snapshot());
        let names: Vec<String> = informer
            .snapshot()
            .by_index("version", "3")
            .unwrap()
            .into_iter()
            .map(|a| a.name().to_owned())
            .collect();
        assert_eq!(names, ["a"]);
    });
}

#[test]
fn namespaces_that_change_leave_the_objects_of_the_last_ones() {
    explore(|| {
        let [one, two] = ["one", "two"].map(Scope::namespace);
        let informer = informer(std::slice::from_ref(&one));
        let processor = process(&informer);
        list(&informer, &one, &["one/a"], 1);
        let reader = {
            let informer = informer.clone();
            thread::spawn(move || Reader::join(&informer).read_until("two/z"))
        };
        let changer = {
            let informer = informer.clone();
            thread::spawn(move || {
                block_on(informer.keeper.change_scopes_to(&[one.clone(), two.clone()]));
                list(&informer, &two, &["two/b"], 2);
                block_on(informer.keeper.change_scopes_to(std::slice::from_ref(&two)));
                put_into(&informer, &two, DeltaType::Added, "two/z", 3);
            })
        };
        changer.join().unwrap();
        let now = finish(&informer, processor);
        assert_eq!(now.keys().collect::<Vec<_>>(), ["two/b", "two/z"]);
        assert!(informer.has_synced());
        assert_eq!(reader.join().unwrap().told, now);
    });
}

#[test]
fn a_shutdown_ends_streams_and_waits_at_any_moment() {
    explore(|| {
        let informer = informer(&[]);
        put(&informer, DeltaType::Added, "a", 1);
        let processor = process(&informer);
        let reader = {
            let informer = informer.clone();
            thread::spawn(move || {
                let mut reader = Reader::join(&informer);
                while reader.try_read() {}
            })
        };
        let waits = {
            let informer = informer.clone();
            thread::spawn(move || block_on(informer.wait_for_sync()).is_err())
        };
        informer.keeper.cancel();
        reader.join().unwrap();
        assert!(waits.join().unwrap());
        finish(&informer, processor);
    });
}

/// Plays a scene in many orders: in random ones, and in such as need few but badly timed changes of thread.
fn explore(scene: fn()) {
    play(scene, RandomScheduler::new_from_seed(SEED, ORDERS));
    play(scene, PctScheduler::new_from_seed(SEED, 3, ORDERS));
}

fn play(scene: fn(), scheduler: impl Scheduler + 'static) {
    shuttle::Runner::new(scheduler, shuttle::Config::new()).run(scene);
}

/// An informer that nothing is read for; of these namespaces, which may change, or of the cluster.
fn informer(scopes: &[Scope]) -> SharedInformer<Value> {
    let all = scopes.iter().filter_map(Scope::as_namespace);
    let mut options = all.fold(InformerOptions::default(), InformerOptions::namespace);
    if !scopes.is_empty() {
        options = options.changing_namespaces();
    }
    SharedInformer::over(kind(), ScriptedSource::new(), options)
}

fn kind() -> Kind {
    Kind::new("v1", "Pod", "pods", true)
}

/// Processes all changes until the queue is closed, as the informer's own task does.
fn process(informer: &SharedInformer<Value>) -> JoinHandle<()> {
    let informer = informer.clone();
    thread::spawn(move || {
        while let Ok(batch) = block_on(informer.core().fifo.drain()) {
            informer.core().process(batch);
        }
    })
}

/// Waits until everything is processed. Gives the version of each object.
fn finish(informer: &SharedInformer<Value>, processor: JoinHandle<()>) -> BTreeMap<String, u64> {
    informer.core().fifo.close();
    processor.join().unwrap();
    informer.snapshot().iter().map(|object| (key(object), version(object))).collect()
}

fn put(informer: &SharedInformer<Value>, what: DeltaType, name: &str, version: u64) {
    put_into(informer, &Scope::CLUSTER, what, name, version);
}

fn put_into(informer: &SharedInformer<Value>, scope: &Scope, what: DeltaType, name: &str, version: u64) {
    block_on(informer.core().fifo.put(scope, Delta::new(what, entry(name, version))));
}

fn list(informer: &SharedInformer<Value>, scope: &Scope, names: &[&str], version: u64) {
    let objects = names.iter().map(|name| Delta::new(DeltaType::Replaced, entry(name, version))).collect();
    informer.core().fifo.replace(scope, Replacement::new(objects, version.into()));
}

/// An object whose label says its version.
fn entry(name: &str, version: u64) -> Arc<Entry> {
    let (namespace, name) =
        name.split_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
    let version = version.to_string();
    let object = json!({"metadata": {
        "name": name, "namespace": namespace, "uid": name, "resourceVersion": version, "labels": {"version": version},
    }});
    Arc::new(Entry::from_json(&Arc::new(kind()), object.to_string().as_bytes()).unwrap())
}

fn key(object: &Entry) -> String {
    object.key().to_string()
}

fn version(object: &Entry) -> u64 {
    object.version().as_u64().unwrap()
}

/// A reader of all events, who checks each against those before it.
struct Reader {
    events: EventStream<Value>,
    /// The version of each object that it was told of.
    told: BTreeMap<String, u64>,
    initial: Vec<String>,
}

impl Reader {
    fn join(informer: &SharedInformer<Value>) -> Self {
        let events = informer.events(HandlerOptions::default());
        Self { events, told: BTreeMap::new(), initial: Vec::new() }
    }

    fn read_all(self) -> Self {
        self.read_until(LAST)
    }

    fn read_until(mut self, last: &str) -> Self {
        while !self.told.contains_key(last) {
            self.read();
        }
        self
    }

    fn read(&mut self) {
        assert!(self.try_read(), "the stream has ended; told: {:?}", self.told);
    }

    /// Reads one event; `false` if the stream has ended.
    fn try_read(&mut self) -> bool {
        let Some(event) = block_on(self.events.next()) else { return false };
        match event {
            Event::Added { object, initial } => {
                let before = self.told.insert(key(&object), version(&object));
                assert_eq!(before, None, "{} was added twice", object.key());
                self.initial.extend(initial.then(|| key(&object)));
            }
            Event::Updated { old, new } => {
                assert!(version(&new) > version(&old));
                let before = self.told.insert(key(&new), version(&new));
                assert_eq!(before, Some(version(&old)), "the state before of {}", new.key());
            }
            Event::Deleted(deleted) => {
                let before = self.told.remove(&key(&deleted.object));
                assert!(before.is_some(), "{} was deleted and never added", deleted.object.key());
            }
        }
        true
    }
}

/// The index by version has what the objects of the same snapshot have.
fn assert_index_is_right(snapshot: &Snapshot<Value>) {
    for value in 1..=5 {
        let right: Vec<String> =
            snapshot.iter().filter(|object| version(object) == value).map(|object| key(object)).collect();
        let found = snapshot.by_index("version", value.to_string()).unwrap().into_iter();
        assert_eq!(found.map(|object| key(&object)).collect::<Vec<_>>(), right);
    }
}
