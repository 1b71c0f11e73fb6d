//! Real threads: handlers, indexes and namespaces come and go, informers stop and start, while a server's objects change.
//!
//! Every handler keeps its events. The test compares them with the server's own history: each state was one of the server's, none
//! is repeated or left out, and both end alike. The order of threads differs in each run, so what is checked holds
//! in every order.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::config_map;
use fastrand::Rng;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_client::Api;
use kube_client::api::{DeleteParams, PostParams};
use kube_informer::handler::HandlerOptions;
use kube_informer::{
    Event, InformerOptions, Object, SharedInformer, SharedInformerFactory, Snapshot, Transform,
};
use kube_informer_apiserver::ApiServer;
use tokio::task::JoinHandle;

const NAMESPACES: [&str; 3] = ["one", "two", "three"];
const NAMES: usize = 6;
const CHANGES: usize = 400;

/// A hang is a failure; nothing here comes near to this.
const LIMIT: Duration = Duration::from_mins(2);

/// The states of every object: versions in order, and `None` where it was deleted.
type History = BTreeMap<String, Vec<Option<String>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handlers_that_join_and_leave_receive_the_servers_history() {
    limited(async {
        let (server, factory) = server().await;
        let maps = factory.informer::<ConfigMap>();
        let first = Witness::of(&maps);
        factory.start();
        let writer = write(&server, 1);
        let over = Arc::new(AtomicBool::new(false));
        let guests: Vec<_> =
            (0..3).map(|seed| tokio::spawn(visit(maps.clone(), seed, over.clone()))).collect();
        let history = writer.await.unwrap();
        over.store(true, Ordering::SeqCst);
        for guest in guests {
            for visit in guest.await.unwrap() {
                visit.check(&history);
            }
        }
        let last = Witness::of(&maps);
        wait_for_end(&maps, &history).await;
        for witness in [first, last] {
            witness.close().await.check_to_the_end(&history);
        }
        factory.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_informer_that_stops_and_starts_ends_with_the_servers_state() {
    limited(async {
        let (server, factory) = server().await;
        let maps = factory.informer::<ConfigMap>();
        let witness = Witness::of(&maps);
        factory.start();
        let writer = write(&server, 2);
        let others: Vec<_> = (0..3)
            .map(|seed| {
                let maps = maps.clone();
                tokio::spawn(async move {
                    let mut random = Rng::with_seed(seed);
                    for _ in 0..40 {
                        maps.stop().await;
                        maps.start();
                        pause(random.u64(0..3)).await;
                    }
                })
            })
            .collect();
        let history = writer.await.unwrap();
        for other in others {
            other.await.unwrap();
        }
        maps.start();
        wait_for_end(&maps, &history).await;
        // A list leaves out the states between, so only the order is that of the server.
        witness.close().await.check_order(&history);
        factory.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn namespaces_that_change_end_with_the_servers_state() {
    limited(async {
        let (server, factory) = server().await;
        let options = InformerOptions::default().namespace("one").changing_namespaces();
        let maps = factory.informer_with::<ConfigMap>(options).unwrap();
        let witness = Witness::of(&maps);
        factory.start();
        let writer = write(&server, 3);
        let changers: Vec<_> = (0..2)
            .map(|seed| {
                let maps = maps.clone();
                tokio::spawn(async move {
                    let mut random = Rng::with_seed(seed);
                    for _ in 0..15 {
                        let some: Vec<&str> = NAMESPACES.into_iter().filter(|_| random.bool()).collect();
                        maps.set_namespaces(some).await.unwrap();
                        pause(2).await;
                    }
                })
            })
            .collect();
        let mut history = writer.await.unwrap();
        for changer in changers {
            changer.await.unwrap();
        }
        maps.set_namespaces(["one", "three"]).await.unwrap();
        history.retain(|key, _| !key.starts_with("two/"));
        wait_for_end(&maps, &history).await;
        let told = witness.close().await;
        let left = told.last();
        assert_eq!(left, last_of(&history));
        factory.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn indexes_that_come_and_go_are_right_in_every_snapshot() {
    limited(async {
        let (server, factory) = server().await;
        let maps = factory.informer::<ConfigMap>();
        factory.start();
        let writer = write(&server, 4);
        let over = Arc::new(AtomicBool::new(false));
        let builders: Vec<_> = ["left", "right"]
            .map(|name| {
                let (maps, over) = (maps.clone(), over.clone());
                std::thread::spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        maps.add_index(name, |map: &Object<ConfigMap>| map.label("value").map(String::from))
                            .unwrap();
                        for _ in 0..5 {
                            check_index(&maps.snapshot(), name);
                        }
                        maps.remove_index(name).unwrap();
                    }
                    maps.add_index(name, |map: &Object<ConfigMap>| map.label("value").map(String::from))
                        .unwrap();
                })
            })
            .into();
        let history = writer.await.unwrap();
        over.store(true, Ordering::SeqCst);
        for builder in builders {
            builder.join().unwrap();
        }
        wait_for_end(&maps, &history).await;
        for name in ["left", "right"] {
            check_index(&maps.snapshot(), name);
        }
        factory.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shutdown_in_the_middle_of_everything_ends_everything() {
    limited(async {
        for seed in 0..10 {
            let (server, factory) = server().await;
            let maps = factory.informer::<ConfigMap>();
            let witness = Witness::of(&maps);
            factory.start();
            let writer = write(&server, seed);
            let over = Arc::new(AtomicBool::new(false));
            let guest = tokio::spawn(visit(maps.clone(), seed, over.clone()));
            pause(seed * 3).await;
            let (one, two) = tokio::join!(factory.shutdown(), factory.shutdown());
            one.and(two).unwrap();
            over.store(true, Ordering::SeqCst);
            let told = witness.told.lock().unwrap().events.len();
            guest.await.unwrap();
            writer.abort();
            assert_eq!(factory.running_tasks(), 0);
            pause(5).await;
            assert_eq!(
                witness.told.lock().unwrap().events.len(),
                told,
                "nothing is delivered after a shutdown"
            );
            drop(witness);
        }
    })
    .await;
}

/// The reflector of a namespace that leaves is in the middle of its work. What lists all namespaces must wait for its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_namespace_that_leaves_takes_nothing_from_one_that_overlaps() {
    limited(async {
        let (server, factory) = server().await;
        let api: Api<ConfigMap> = Api::namespaced(server.client(), "one");
        api.create(&PostParams::default(), &config_map("first", &[], &[])).await.unwrap();
        let (gate, held) = (Arc::new(Gate::default()), Arc::default());
        let transform = {
            let (gate, held): (_, Arc<AtomicBool>) = (Arc::clone(&gate), Arc::clone(&held));
            Transform::json(move |map| {
                if map["metadata"]["name"] == "held" && !held.swap(true, Ordering::SeqCst) {
                    gate.pass();
                }
            })
        };
        let options = InformerOptions::default().namespace("one").changing_namespaces().transform(transform);
        let maps = factory.informer_with::<ConfigMap>(options).unwrap();
        factory.start();
        factory.wait_for_sync().await.unwrap();
        api.create(&PostParams::default(), &config_map("held", &[], &[])).await.unwrap();
        while !held.load(Ordering::SeqCst) {
            pause(1).await;
        }
        let change = tokio::spawn({
            let maps = maps.clone();
            async move { maps.set_namespaces([""]).await.unwrap() }
        });
        // Time for a list that would come too early.
        pause(200).await;
        gate.open();
        change.await.unwrap();
        maps.wait_for(|snapshot| snapshot.contains("one/first") && snapshot.contains("one/held")).await;
        pause(50).await;
        assert!(maps.snapshot().contains("one/first") && maps.snapshot().contains("one/held"));
        factory.shutdown().await.unwrap();
    })
    .await;
}

/// Holds a thread until it is opened; the runtime gets another one for its tasks.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        tokio::task::block_in_place(|| {
            let is_open = self.is_open.lock().unwrap();
            drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
        });
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

async fn limited(work: impl Future<Output = ()>) {
    tokio::time::timeout(LIMIT, work).await.expect("something hangs");
}

async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

async fn server() -> (ApiServer, SharedInformerFactory) {
    let server = ApiServer::builder().seed(1).build();
    let api: Api<Namespace> = Api::all(server.client());
    for name in NAMESPACES {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        api.create(&PostParams::default(), &namespace).await.unwrap();
    }
    let factory = SharedInformerFactory::new(server.client());
    (server, factory)
}

/// Creates, changes and deletes objects at random, on a thread of its own. Gives all that was done.
fn write(server: &ApiServer, seed: u64) -> JoinHandle<History> {
    let client = server.client();
    tokio::spawn(async move {
        let mut random = Rng::with_seed(seed);
        let mut history = History::new();
        for change in 0..CHANGES {
            let (namespace, name) =
                (random.choice(NAMESPACES).unwrap(), format!("map-{}", random.usize(0..NAMES)));
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            let states = history.entry(format!("{namespace}/{name}")).or_default();
            let map = config_map(
                &name,
                &[("value", &(change % 5).to_string())],
                &[("change", &change.to_string())],
            );
            let version = |map: ConfigMap| map.metadata.resource_version;
            match states.last() {
                None | Some(None) => {
                    states.push(version(api.create(&PostParams::default(), &map).await.unwrap()));
                }
                Some(Some(_)) if random.u8(0..4) == 0 => {
                    api.delete(&name, &DeleteParams::default()).await.unwrap();
                    states.push(None);
                }
                Some(Some(_)) => {
                    states.push(version(api.replace(&name, &PostParams::default(), &map).await.unwrap()));
                }
            }
            if change % 50 == 0 {
                pause(1).await;
            }
        }
        history
    })
}

/// Adds a handler again and again, and removes it in one of two ways.
async fn visit(maps: SharedInformer<ConfigMap>, seed: u64, over: Arc<AtomicBool>) -> Vec<Told> {
    let mut random = Rng::with_seed(seed);
    let mut visits = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let witness = Witness::of(&maps);
        pause(random.u64(0..4)).await;
        if random.bool() {
            visits.push(witness.close().await);
        } else {
            let told = Arc::clone(&witness.told);
            drop(witness);
            visits.push(told.lock().unwrap().clone());
        }
    }
    visits
}

/// A handler that keeps every event that it receives.
struct Witness {
    told: Arc<Mutex<Told>>,
    registration: kube_informer::Registration,
}

impl Witness {
    fn of(maps: &SharedInformer<ConfigMap>) -> Self {
        let told: Arc<Mutex<Told>> = Arc::default();
        let keep = Arc::clone(&told);
        let options = HandlerOptions::default().buffer_len(10_000);
        let registration = maps.add_handler_with(options, move |event: Event<ConfigMap>| {
            keep.lock().unwrap().events.push(Happened::from(&event));
            std::future::ready(())
        });
        Self { told, registration }
    }

    /// Removes it after it was told of everything that waits.
    async fn close(self) -> Told {
        self.registration.close().await;
        self.told.lock().unwrap().clone()
    }
}

#[derive(Debug, Clone, Default)]
struct Told {
    events: Vec<Happened>,
}

#[derive(Debug, Clone)]
enum Happened {
    Added(String, String),
    Updated(String, String, String),
    Deleted(String),
}

impl From<&Event<ConfigMap>> for Happened {
    fn from(event: &Event<ConfigMap>) -> Self {
        let key = event.object().key().to_string();
        match event {
            Event::Added { object, .. } => Self::Added(key, object.version().to_string()),
            Event::Updated { old, new } => {
                Self::Updated(key, old.version().to_string(), new.version().to_string())
            }
            Event::Deleted(_) => Self::Deleted(key),
        }
    }
}

impl Told {
    /// The states of each object in order, once the events fit together.
    fn states(&self) -> History {
        let mut states = History::new();
        for event in &self.events {
            let (key, before, after) = match event {
                Happened::Added(key, version) => (key, None, Some(version.clone())),
                Happened::Updated(key, old, new) => (key, Some(old.clone()), Some(new.clone())),
                Happened::Deleted(key) => (key, None, None),
            };
            let states = states.entry(key.clone()).or_default();
            let last = states.last().cloned().flatten();
            match event {
                Happened::Deleted(_) => assert!(last.is_some(), "{event:?} of nothing"),
                _ => assert_eq!(last, before, "{event:?}"),
            }
            states.push(after);
        }
        states
    }

    fn last(&self) -> BTreeMap<String, String> {
        last_of(&self.states())
    }

    /// What was told of each object is a part of what the server did with it, in one piece.
    fn check(&self, history: &History) {
        for (key, states) in self.states() {
            let all = &history[&key];
            assert!(all.windows(states.len()).any(|part| part == states), "{key}: {states:?} of {all:?}");
        }
    }

    /// As [`check`](Self::check), and it ends as the server did.
    fn check_to_the_end(&self, history: &History) {
        let states = self.states();
        for (key, all) in history {
            let told = states.get(key).map(Vec::as_slice).unwrap_or_default();
            let never = told.is_empty() && all.last() == Some(&None);
            assert!(never || (!told.is_empty() && all.ends_with(told)), "{key}: {told:?} of {all:?}");
        }
    }

    /// What was told of each object is in the server's order, and ends as the server did.
    fn check_order(&self, history: &History) {
        assert_eq!(self.last(), last_of(history));
        for (key, states) in self.states() {
            let versions: Vec<u64> =
                states.iter().flatten().map(|version| version.parse().unwrap()).collect();
            assert!(versions.is_sorted_by(|a, b| a < b), "{key}: {states:?} of {:?}", history[&key]);
            let known = |version: &Option<String>| version.is_none() || history[&key].contains(version);
            assert!(states.iter().all(known), "{key}: {states:?}");
        }
    }
}

/// The objects that are left, with their versions.
fn last_of(history: &History) -> BTreeMap<String, String> {
    history.iter().filter_map(|(key, states)| Some((key.clone(), states.last()?.clone()?))).collect()
}

/// Waits until the store has what is left.
async fn wait_for_end(maps: &SharedInformer<ConfigMap>, history: &History) {
    let left = last_of(history);
    let has = |now: &Snapshot<ConfigMap>| -> BTreeMap<String, String> {
        now.iter().map(|map| (map.key().to_string(), map.version().to_string())).collect()
    };
    maps.wait_for(|now| has(now) == left).await;
}

/// The index by value has what the objects of the same snapshot have.
fn check_index(snapshot: &Snapshot<ConfigMap>, name: &str) {
    for value in 0..5 {
        let value = value.to_string();
        let right = snapshot.iter().filter(|map| map.label("value") == Some(&*value)).count();
        assert_eq!(snapshot.by_index(name, value).unwrap().count(), right);
    }
}
