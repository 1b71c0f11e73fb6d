//! What each component must do, one test for each promise, in the order of the data flow. docs/tour.md shows them at work.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Log, api, change, config_map, content, create, delete, line, server, settle};
use futures_core::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{Api, ListParams, PostParams};
use kube_core::ApiResource;
use kube_core::dynamic::DynamicObject;
use kube_informer::delta_fifo::{Closed, Delta, DeltaFifo, DeltaType, PopError, Scope};
use kube_informer::object::Entry;
use kube_informer::reflector::{Change, Reflector, ReflectorConfig, Sink};
use kube_informer::source::{
    Answer, KubeSource, ListRequest, ListWatch, Script, ScriptedSource, SourceError, WatchRequest,
};
use kube_informer::{
    Deleted, Event, EventHandler, HandlerOptions, IndexBy, Indexer, InformerOptions, Kind, Object, ObjectKey,
    SharedInformer, SharedInformerFactory,
};
use kube_informer_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Options under which the first objects come by a list, as the rows say it.
fn listing() -> InformerOptions {
    InformerOptions::default()
        .reflector(ReflectorConfig { streaming_lists: false, ..ReflectorConfig::default() })
}

/// A server with these config maps, and a factory on it.
async fn world(names: &[&str]) -> (ApiServer, Api<ConfigMap>, SharedInformerFactory) {
    let server = server();
    let api = api(&server);
    for name in names {
        create(&api, name, "1").await;
    }
    let factory = SharedInformerFactory::with_defaults(server.client(), listing());
    (server, api, factory)
}

/// Starts a factory whose informers will have synced.
async fn synced(factory: &SharedInformerFactory) {
    factory.start();
    factory.wait_for_sync().await.unwrap();
}

/// Lists, streaming lists, watches and gets that the server has answered for config maps.
fn requests(server: &ApiServer) -> (u64, u64, u64, u64) {
    let stats = server.stats().resource("configmaps");
    (stats.lists, stats.streaming_lists, stats.watches, stats.gets)
}

fn pods() -> Kind {
    Kind::new("v1", "Pod", "pods", true)
}

fn entry(key: &str, version: u64) -> Arc<Entry> {
    let (namespace, name) = key.split_once('/').unwrap();
    let json = json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": version.to_string(),
        "labels": {"app": format!("v{version}")}}, "spec": {"nodeName": format!("node-{version}")}});
    Arc::new(Entry::from_json(&Arc::new(pods()), json.to_string().as_bytes()).unwrap())
}

async fn put(fifo: &DeltaFifo, kind: DeltaType, key: &str, version: u64) {
    fifo.put(&Scope::CLUSTER, Delta::new(kind, entry(key, version))).await;
}

/// Takes the next key and its deltas as text.
async fn pop(fifo: &DeltaFifo) -> String {
    let text = fifo.pop(|key, deltas| Ok::<_, Closed>(format!("{key}: {}", deltas_as_text(deltas))));
    text.await.unwrap()
}

fn deltas_as_text(deltas: &[Delta]) -> String {
    let texts = deltas.iter().map(|delta| format!("{:?}@{}", delta.kind, delta.object.version()));
    texts.collect::<Vec<_>>().join(" ")
}

/// A sink that writes down what a reflector hears.
#[derive(Default)]
struct Changes(Mutex<Vec<String>>);

impl Sink for Changes {
    fn send<'a>(&'a self, _: &'a Scope, change: Change) -> BoxFuture<'a, ()> {
        let text = match change {
            Change::Put { delta, .. } => deltas_as_text(&[delta]),
            Change::Replace(list) => format!("{} objects@{}", list.objects.len(), list.version),
            Change::Advance(version) => format!("Bookmark@{version}"),
            Change::SetAside(aside) => format!("SetAside {}", aside.problem),
        };
        self.0.lock().unwrap().push(text);
        std::future::ready(()).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn row_1_one_list_one_watch_then_reads_come_from_memory() {
    let (server, _, factory) = world(&["a", "b"]).await;
    let informer = factory.informer::<ConfigMap>();
    synced(&factory).await;
    settle().await;
    assert_eq!(requests(&server), (1, 0, 1, 0));
    let lister = informer.lister();
    for _ in 0..1_000 {
        assert_eq!(lister.list().len(), 2);
        assert!(lister.get("default/a").unwrap().get().is_ok());
    }
    assert_eq!(requests(&server), (1, 0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn row_2_a_change_reaches_store_and_handlers_before_any_time_passes() {
    let (_server, api, factory) = world(&["a"]).await;
    let informer = factory.informer::<ConfigMap>();
    let log = Log::default();
    let _seen = informer.add_handler(log.handler());
    synced(&factory).await;
    settle().await;
    log.take();
    let before = Instant::now();
    change(&api, "a", "2").await;
    informer.wait_for(|snapshot| snapshot.get("default/a").unwrap().label("app") == Some("2")).await;
    settle().await;
    assert_eq!(log.take(), "update a=1 → a=2\n");
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn row_3_a_user_writes_three_callbacks_and_nothing_about_list_and_watch() {
    struct Mine(Arc<Mutex<Vec<String>>>);
    impl EventHandler<ConfigMap> for Mine {
        async fn on_add(&mut self, object: Object<ConfigMap>, _: bool) {
            self.0.lock().unwrap().push(format!("+{}", object.name()));
        }
        async fn on_update(&mut self, _: Object<ConfigMap>, new: Object<ConfigMap>) {
            self.0.lock().unwrap().push(format!("~{}", new.name()));
        }
        async fn on_delete(&mut self, deleted: Deleted<ConfigMap>) {
            self.0.lock().unwrap().push(format!("-{}", deleted.object.name()));
        }
    }
    let (_server, api, factory) = world(&["a"]).await;
    let heard = Arc::default();
    let _seen = factory.informer::<ConfigMap>().add_handler(Mine(Arc::clone(&heard)));
    synced(&factory).await;
    change(&api, "a", "2").await;
    delete(&api, "a").await;
    settle().await;
    assert_eq!(*heard.lock().unwrap(), ["+a", "~a", "-a"]);
}

/// The smallest source there is: one object, and one that comes later.
struct Planets;

impl ListWatch for Planets {
    fn list(&self, _: ListRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        let earth = json!({"metadata": {"name": "earth", "uid": "3", "resourceVersion": "1"}});
        std::future::ready(Ok(Answer::list(&1.into(), [earth]))).boxed()
    }

    fn watch(&self, _: WatchRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        let mars = json!({"metadata": {"name": "mars", "uid": "4", "resourceVersion": "2"}});
        let events = stream::iter([("ADDED", mars)]).chain(stream::pending());
        std::future::ready(Ok(Answer::events(events))).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn row_4_any_value_with_a_list_and_a_watch_is_a_source() {
    let kind = Kind::new("sky.example/v1", "Planet", "planets", false);
    let informer = SharedInformer::<Value>::over(kind, Planets, listing());
    informer.start();
    let planets = informer.wait_for(|snapshot| snapshot.len() == 2).await;
    assert_eq!(planets.get("mars").unwrap().get().unwrap()["kind"], "Planet");
}

#[tokio::test(start_paused = true)]
async fn row_4_a_client_makes_a_source_for_any_kind() {
    let (server, _, _) = world(&["a", "b"]).await;
    for (kind, count) in
        [(Kind::of::<ConfigMap>(), 2), (Kind::new("v1", "Namespace", "namespaces", false), 4)]
    {
        let source = KubeSource::new(server.client(), kind.clone());
        let informer = SharedInformer::<Value>::over(kind, source, listing());
        informer.start();
        informer.wait_for_sync().await.unwrap();
        assert_eq!(informer.snapshot().len(), count);
    }
}

#[tokio::test(start_paused = true)]
async fn row_5_a_reflector_speaks_for_one_kind_built_in_or_custom() {
    let (server, _, _) = world(&["a"]).await;
    let spec = json!({
        "group": "x.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    });
    let resource = |version: &str, kind: &str| {
        let (group, version) = version.split_once('/').unwrap();
        ApiResource::from_gvk(&kube_core::GroupVersionKind::gvk(group, version, kind))
    };
    let make = async |resource: ApiResource, api: Api<DynamicObject>, name: &str, data: Value| {
        let object = DynamicObject::new(name, &resource).data(data);
        api.create(&PostParams::default(), &object).await.unwrap();
    };
    let definitions = resource("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let all = Api::all_with(server.client(), &definitions);
    make(definitions, all, "foos.x.io", json!({"spec": spec})).await;
    let foos = resource("x.io/v1", "Foo");
    let namespaced = Api::default_namespaced_with(server.client(), &foos);
    make(foos, namespaced, "one", json!({})).await;

    for kind in [Kind::of::<ConfigMap>(), Kind::new("x.io/v1", "Foo", "foos", true)] {
        let sink = Arc::new(Changes::default());
        let source = KubeSource::new(server.client(), kind.clone());
        let reflector = Reflector::new(kind, source, Arc::clone(&sink) as _, listing_config());
        tokio::select! {
            () = reflector.run() => {}
            () = settle() => {}
        }
        let heard = sink.0.lock().unwrap().clone();
        assert_eq!(heard, [format!("1 objects@{}", server.revision())]);
    }
}

fn listing_config() -> ReflectorConfig {
    ReflectorConfig { streaming_lists: false, ..ReflectorConfig::default() }
}

#[tokio::test(start_paused = true)]
async fn row_6_first_a_list_then_a_watch_from_its_version() {
    let source = ScriptedSource::new();
    source.lists(7, &[("n/a", 3), ("n/b", 5)]);
    let watch = source.live_watch();
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), listing());
    let log = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&log);
    let _seen = informer.add_handler(move |event: Event<Value>| {
        lines.lock().unwrap().push(line(&event));
        std::future::ready(())
    });
    informer.start();
    for (kind, key, version) in [("ADDED", "n/c", 8), ("MODIFIED", "n/a", 9), ("DELETED", "n/b", 10)] {
        watch.send(ScriptedSource::event(kind, key, version)).unwrap();
    }
    settle().await;
    assert_eq!(source.asked(), ["list limit 500", "watch from 7"]);
    let heard = log.lock().unwrap().join(", ");
    assert_eq!(heard, "add a=- (initial), add b=- (initial), add c=-, update a=- → a=-, delete b=-");
    assert_eq!(informer.snapshot().version().unwrap(), &10.into());
}

#[tokio::test(start_paused = true)]
async fn row_7_what_is_of_another_kind_is_reported_and_not_stored() {
    let source = ScriptedSource::new();
    source.lists(7, &[("n/a", 3)]);
    let watch = source.live_watch();
    let informer = SharedInformer::<Value>::over(pods(), source, listing());
    informer.start();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n", "resourceVersion": "8"}});
    watch.send(format!("{}\n", json!({"type": "ADDED", "object": secret}))).unwrap();
    watch.send(ScriptedSource::event("ADDED", "n/b", 9)).unwrap();
    settle().await;
    assert_eq!(content(&informer), "a=- b=-");
    assert_eq!(informer.status()[0].counts.wrong_kind, 1);
}

#[tokio::test(start_paused = true)]
async fn row_8_what_a_reflector_hears_goes_into_the_fifo_in_order() {
    let source = ScriptedSource::new();
    source.lists(7, &[("n/a", 3)]);
    let events = [("ADDED", "n/c", 8), ("MODIFIED", "n/c", 9), ("DELETED", "n/a", 10)];
    let text = events.map(|(kind, key, version)| ScriptedSource::event(kind, key, version)).concat();
    source.on_watch(Script::TextThenSilence(text));
    let fifo = Arc::new(DeltaFifo::default());
    let reflector = Reflector::new(pods(), source, Arc::clone(&fifo) as _, listing_config());
    tokio::select! {
        () = reflector.run() => {}
        () = settle() => {}
    }
    assert_eq!(pop(&fifo).await, "n/a: Replaced@3");
    assert_eq!(pop(&fifo).await, "n/c: Added@8 Updated@9");
    assert_eq!(pop(&fifo).await, "n/a: Deleted@10");
}

#[tokio::test(start_paused = true)]
async fn row_9_a_comparison_with_the_server_is_made_on_request_and_off_by_default() {
    let (server, _, factory) = world(&["a"]).await;
    let _plain = factory.informer::<ConfigMap>();
    synced(&factory).await;
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert_eq!(requests(&server).0, 1, "no list but the first");

    // Only a list can find what no event told: here the server's watch keeps it to itself.
    let source = ScriptedSource::new();
    source.lists(7, &[("n/a", 3), ("n/b", 4)]).lists(9, &[("n/a", 3)]);
    source.on_watch(Script::TextThenSilence(String::new()));
    source.on_watch(Script::TextThenSilence(String::new()));
    let options = listing().verify_every(Duration::from_mins(1));
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), options);
    informer.start();
    let compared = informer.wait_for(|snapshot| snapshot.version() == Some(&9.into())).await;
    assert_eq!(compared.len(), 1);
    assert_eq!(informer.status()[0].counts.verifications, 1);
}

#[tokio::test]
async fn row_10_first_in_first_out_by_key_with_all_its_deltas_in_order() {
    let fifo = DeltaFifo::default();
    put(&fifo, DeltaType::Added, "n/b", 1).await;
    put(&fifo, DeltaType::Added, "n/a", 2).await;
    put(&fifo, DeltaType::Updated, "n/b", 3).await;
    assert_eq!(fifo.len(), 2);
    assert_eq!(pop(&fifo).await, "n/b: Added@1 Updated@3");
    assert_eq!(pop(&fifo).await, "n/a: Added@2");
    assert!(fifo.is_empty());
}

#[tokio::test]
async fn row_11_deltas_are_added_updated_deleted_replaced_and_sync() {
    use DeltaType::{Added, Deleted, Replaced, Sync, Updated};
    let fifo = DeltaFifo::default();
    for (version, kind) in [Added, Updated, Replaced, Sync, Deleted].into_iter().enumerate() {
        put(&fifo, kind, "n/a", version as u64 + 1).await;
    }
    assert_eq!(pop(&fifo).await, "n/a: Added@1 Updated@2 Replaced@3 Sync@4 Deleted@5");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_12_adding_is_one_locked_action_and_two_deletes_in_a_row_are_one() {
    let fifo = DeltaFifo::default();
    put(&fifo, DeltaType::Deleted, "n/a", 1).await;
    put(&fifo, DeltaType::Deleted, "n/a", 2).await;
    let popped = pop(&fifo).await;
    assert_eq!(popped.matches("Deleted").count(), 1, "{popped}");

    let fifo = Arc::new(DeltaFifo::default());
    let writers = (0..8).map(|writer| {
        let fifo = Arc::clone(&fifo);
        tokio::spawn(async move {
            for number in 0..100 {
                put(&fifo, DeltaType::Updated, &format!("n/{number}"), writer + 1).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(fifo.len(), 100);
    for _ in 0..100 {
        let deltas = fifo.pop(|_, deltas| Ok::<_, Closed>(deltas.len())).await.unwrap();
        assert_eq!(deltas, 8, "every writer's change is there");
    }
}

#[tokio::test(start_paused = true)]
async fn row_13_pop_waits_lets_the_process_function_run_and_keeps_what_failed() {
    let fifo = Arc::new(DeltaFifo::default());
    let later = Arc::clone(&fifo);
    let waiting = tokio::spawn(async move { pop(&later).await });
    settle().await;
    assert!(!waiting.is_finished(), "there is nothing yet");
    put(&fifo, DeltaType::Added, "n/a", 1).await;
    assert_eq!(waiting.await.unwrap(), "n/a: Added@1");

    put(&fifo, DeltaType::Added, "n/b", 2).await;
    let failed: Result<(), _> = fifo.pop(|_, _| Err("no")).await;
    assert_eq!(failed, Err(PopError::Process("no")));
    assert_eq!(pop(&fifo).await, "n/b: Added@2", "it is still at the head");
}

#[test]
fn row_14_a_store_by_key_that_threads_can_share() {
    let indexer = Indexer::new();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let indexer = &indexer;
            scope.spawn(move || {
                for number in 0..100 {
                    indexer.upsert(entry(&format!("n{writer}/{number}"), 1));
                    indexer.snapshot::<Value>().check().unwrap();
                }
            });
        }
    });
    let snapshot = indexer.snapshot::<Value>();
    assert_eq!(snapshot.len(), 400);
    assert_eq!(snapshot.get("n2/7").unwrap().key(), &ObjectKey::namespaced("n2", "7"));
}

#[test]
fn row_15_any_number_of_indexes_by_namespace_label_and_field() {
    let indexer = Indexer::new();
    indexer.add_index("app", IndexBy::label("app")).unwrap();
    indexer.add_index("node", IndexBy::field(".spec.nodeName".parse().unwrap())).unwrap();
    for (key, version) in [("n/a", 1), ("n/b", 2), ("m/c", 2)] {
        indexer.upsert(entry(key, version));
    }
    // Also on what is there already, and by any function.
    let odd = IndexBy::metadata(|entry| vec![(entry.name() == "b").to_string()]);
    indexer.add_index("is-b", odd).unwrap();
    let snapshot = indexer.snapshot::<Value>();
    let keys = |index: &str, value: &str| -> Vec<String> {
        snapshot.by_index(index, value).unwrap().iter().map(|entry| entry.key().to_string()).collect()
    };
    assert_eq!(keys("app", "v2"), ["m/c", "n/b"]);
    assert_eq!(keys("node", "node-1"), ["n/a"]);
    assert_eq!(keys("is-b", "true"), ["n/b"]);
    assert_eq!(snapshot.namespace("n").count(), 2, "the namespace index is built in");
    assert_eq!(snapshot.index_values("app").unwrap(), ["v1", "v2"]);
}

#[tokio::test(start_paused = true)]
async fn row_16_objects_and_index_entries_follow_added_updated_and_deleted() {
    let (_server, api, factory) = world(&[]).await;
    let informer = factory.informer::<ConfigMap>();
    informer.add_index_by("app", IndexBy::label("app")).unwrap();
    synced(&factory).await;
    let values = || informer.lister().index_values("app").unwrap();
    create(&api, "a", "1").await;
    settle().await;
    assert_eq!((content(&informer).as_str(), values()), ("a=1", vec!["1".to_owned()]));
    change(&api, "a", "2").await;
    settle().await;
    assert_eq!((content(&informer).as_str(), values()), ("a=2", vec!["2".to_owned()]));
    delete(&api, "a").await;
    settle().await;
    assert_eq!((content(&informer).as_str(), values()), ("", vec![]));
}

#[tokio::test(start_paused = true)]
async fn row_17_the_store_equals_the_server_once_changes_stop() {
    let (_server, api, factory) = world(&[]).await;
    let informer = factory.informer::<ConfigMap>();
    synced(&factory).await;
    let seed = 17;
    let mut random = fastrand::Rng::with_seed(seed);
    for step in 0..300 {
        let name = format!("m{}", random.u8(..10));
        match (api.get_opt(&name).await.unwrap(), random.u8(..3)) {
            (None, _) => drop(create(&api, &name, &step.to_string()).await),
            (Some(_), 0) => delete(&api, &name).await,
            (Some(_), _) => change(&api, &name, &step.to_string()).await,
        }
    }
    settle().await;
    let listed = api.list(&ListParams::default()).await.unwrap();
    let on_server: Vec<_> =
        listed.items.iter().map(|map| map.metadata.resource_version.clone().unwrap()).collect();
    let in_store: Vec<_> = informer.snapshot().iter().map(|entry| entry.version().to_string()).collect();
    assert_eq!(in_store, on_server, "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn row_18_the_lister_finds_by_name_namespace_selector_and_index_without_a_request() {
    let (server, api, factory) = world(&["a", "b"]).await;
    change(&api, "b", "2").await;
    let other: Api<ConfigMap> = Api::namespaced(server.client(), "kube-public");
    other.create(&PostParams::default(), &config_map("c", &[("app", "2")], &[])).await.unwrap();
    let informer = factory.informer::<ConfigMap>();
    informer.add_index_by("app", IndexBy::label("app")).unwrap();
    synced(&factory).await;
    settle().await;
    let before = requests(&server);
    let lister = informer.lister();
    assert_eq!(lister.get("default/a").unwrap().name(), "a");
    assert_eq!(lister.namespace("default").get("b").unwrap().label("app"), Some("2"));
    assert_eq!(lister.namespace("default").count(), 2);
    assert_eq!(lister.matching("app in (2)").unwrap().count(), 2);
    assert_eq!(lister.by_index("app", "2").unwrap().namespace("default").count(), 1);
    assert!(lister.by_index("none", "2").is_err());
    assert_eq!(lister.list().len(), 3);
    assert_eq!(requests(&server), before);
}

#[tokio::test(start_paused = true)]
async fn row_19_the_loop_ties_reflector_queue_and_store() {
    let (_server, api, factory) = world(&["a"]).await;
    let informer = factory.informer::<ConfigMap>();
    assert!(!informer.is_running() && informer.snapshot().is_empty());
    synced(&factory).await;
    change(&api, "a", "2").await;
    settle().await;
    let stats = informer.stats();
    assert_eq!((stats.reflectors[0].counts.lists, stats.reflectors[0].counts.events), (1, 1));
    assert_eq!((stats.queue.depth, stats.store.objects, stats.store.changes), (0, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn row_20_the_store_has_a_change_before_any_handler_hears_of_it() {
    let (_server, api, factory) = world(&["a"]).await;
    let informer = factory.informer::<ConfigMap>();
    let (lister, stale) = (informer.lister(), Arc::new(Mutex::new(Vec::new())));
    let late = Arc::clone(&stale);
    let seen = informer.add_handler(move |event: Event<ConfigMap>| {
        let stored = lister.get(event.object().key());
        let behind = match &event {
            Event::Deleted(_) => stored.is_some(),
            _ => stored.is_none_or(|stored| stored.version() < event.object().version()),
        };
        late.lock().unwrap().extend(behind.then(|| line(&event)));
        std::future::ready(())
    });
    synced(&factory).await;
    for round in 2..20 {
        change(&api, "a", &round.to_string()).await;
        settle().await;
    }
    delete(&api, "a").await;
    settle().await;
    assert_eq!(*stale.lock().unwrap(), Vec::<String>::new());
    assert_eq!(seen.stats().delivered, 20);
}

#[tokio::test(start_paused = true)]
async fn row_21_every_handler_hears_of_every_change() {
    let (_server, api, factory) = world(&["a"]).await;
    let informer = factory.informer::<ConfigMap>();
    let logs = [Log::default(), Log::default(), Log::default()];
    let _seen = logs.each_ref().map(|log| informer.add_handler(log.handler()));
    synced(&factory).await;
    change(&api, "a", "2").await;
    delete(&api, "a").await;
    settle().await;
    for log in &logs {
        assert_eq!(log.take(), "add a=1 (initial)\nupdate a=1 → a=2\ndelete a=2\n");
    }
}

#[tokio::test(start_paused = true)]
async fn row_22_one_reflector_however_many_users_there_are() {
    let (server, _, factory) = world(&["a"]).await;
    let users: Vec<_> = (0..20).map(|_| factory.informer::<ConfigMap>()).collect();
    synced(&factory).await;
    settle().await;
    assert_eq!(requests(&server), (1, 0, 1, 0));
    assert!(users.iter().all(|user| user.snapshot().len() == 1));
    assert_eq!(factory.stats().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn row_23_no_callback_holds_up_another_handler() {
    let (_server, api, factory) = world(&["a"]).await;
    let informer = factory.informer::<ConfigMap>();
    let stuck = informer.add_handler(|_: Event<ConfigMap>| std::future::pending::<()>());
    let log = Log::default();
    let _seen = informer.add_handler(log.handler());
    synced(&factory).await;
    change(&api, "a", "2").await;
    settle().await;
    assert_eq!(log.take(), "add a=1 (initial)\nupdate a=1 → a=2\n");
    assert_eq!((stuck.stats().delivered, stuck.depth()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn row_24_handlers_hear_add_update_with_old_and_new_and_delete() {
    let (_server, api, factory) = world(&[]).await;
    let log = Log::default();
    let _seen = factory.informer::<ConfigMap>().add_handler(log.handler());
    synced(&factory).await;
    create(&api, "a", "1").await;
    change(&api, "a", "2").await;
    delete(&api, "a").await;
    settle().await;
    assert_eq!(log.take(), "add a=1\nupdate a=1 → a=2\ndelete a=2\n");
}

#[tokio::test(start_paused = true)]
async fn row_25_a_resync_brings_the_stores_objects_round_without_a_request() {
    let (server, _, factory) = world(&["a", "b"]).await;
    let informer = factory.informer::<ConfigMap>();
    let (often, never) = (Log::default(), Log::default());
    let options = HandlerOptions::default().resync_every(Duration::from_secs(10));
    let _often = informer.add_handler_with(options, often.handler());
    let _never = informer.add_handler(never.handler());
    synced(&factory).await;
    settle().await;
    let before = requests(&server);
    often.take();
    never.take();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(often.take(), "update a=1 → a=1\nupdate b=1 → b=1\n");
    assert_eq!(never.take(), "");
    assert_eq!(requests(&server), before);
}

#[tokio::test(start_paused = true)]
async fn row_26_a_factory_has_a_default_resync_shares_starts_and_waits() {
    let (server, _, _) = world(&["a"]).await;
    let options = listing().resync_every(Duration::from_secs(10));
    let factory = SharedInformerFactory::with_defaults(server.client(), options);
    let log = Log::default();
    let _seen = factory.informer::<ConfigMap>().add_handler(log.handler());
    let kind = Kind::new("v1", "Namespace", "namespaces", false);
    let namespaces = factory.informer_of::<Value>(kind.clone(), factory.defaults()).unwrap();
    let again = factory.informer_of::<Value>(kind, factory.defaults()).unwrap();
    assert_eq!(factory.stats().len(), 2, "two kinds, although one was asked for twice");
    assert!(!namespaces.is_running());
    synced(&factory).await;
    assert!(namespaces.has_synced() && again.has_synced());
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(log.take(), "add a=1 (initial)\nupdate a=1 → a=1\n");
}

#[tokio::test(start_paused = true)]
async fn row_27_every_kind_gives_an_informer_and_a_lister() {
    use k8s_openapi::api::core::v1::Namespace;
    let (_server, _, factory) = world(&["a"]).await;
    let (maps, namespaces) =
        (factory.informer::<ConfigMap>().lister(), factory.informer::<Namespace>().lister());
    synced(&factory).await;
    assert_eq!(maps.get("default/a").unwrap().get().unwrap().data.as_ref().unwrap()["v"], "1");
    assert_eq!(namespaces.get("default").unwrap().get().unwrap().metadata.name.as_deref(), Some("default"));
}

#[tokio::test(start_paused = true)]
async fn row_28_a_running_informer_ends_when_told_and_leaves_nothing_behind() {
    let (server, _, factory) = world(&["a"]).await;
    let informer = factory.informer::<ConfigMap>();
    let log = Log::default();
    informer.add_handler(log.handler()).detach();
    synced(&factory).await;
    settle().await;
    assert_eq!(server.stats().open_watches, 1);
    factory.shutdown().await.unwrap();
    settle().await;
    assert_eq!((factory.running_tasks(), server.stats().open_watches), (0, 0));
    assert!(!informer.is_running());
    assert_eq!(content(&informer), "a=1", "what it had can still be read");
}
