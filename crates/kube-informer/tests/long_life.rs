//! What holds in the long run: kinds that go, informers that rest, comparisons that fail, servers that refuse again and again.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{api, change, config_map, content, create, cut_off, settle, weather, weather_of};
use futures_core::future::BoxFuture;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use kube_client::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube_informer::controller::{Action, Context, Failure, Request, SourceState, WatchOptions, finalizer};
use kube_informer::delta_fifo::Scope;
use kube_informer::reflector::{Change, Reflector, ReflectorConfig, Sink};
use kube_informer::source::{Histories, KubeSource, ScriptedSource};
use kube_informer::{
    Controller, HandlerOptions, InformerOptions, Kind, Object, ObjectKey, SharedInformer,
    SharedInformerFactory,
};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, Verb};
use serde_json::{Value, json};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

fn seeded(seed: u64) -> InformerOptions {
    let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
    InformerOptions::default().reflector(config)
}

fn definition(versions: &[(&str, bool)]) -> CustomResourceDefinition {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let last = versions.len() - 1;
    let version = |(number, (name, served)): (usize, &(&str, bool))| json!({"name": name, "served": served, "storage": number == last, "schema": schema});
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    let names = json!({"plural": "foos", "kind": "Foo"});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions});
    serde_json::from_value(json!({"metadata": {"name": "foos.example.com"}, "spec": spec})).unwrap()
}

fn foos_of(server: &ApiServer, version: &str) -> (Api<DynamicObject>, ApiResource) {
    let kind = GroupVersionKind::gvk("example.com", version, "Foo");
    let resource = ApiResource::from_gvk_with_plural(&kind, "foos");
    (Api::default_namespaced_with(server.client(), &resource), resource)
}

/// A controller for which foos are optional.
fn with_optional_foos(factory: &SharedInformerFactory) -> (SharedInformer<Value>, Controller<ConfigMap>) {
    let kind = Kind::new("example.com/v1", "Foo", "foos", true);
    let foos = factory.informer_of::<Value>(kind, InformerOptions::default()).unwrap();
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let options = WatchOptions::default().optional();
    let controller = controller.watches_with(foos.clone(), options, |held| [held.key().clone()]);
    (foos, controller)
}

async fn nothing(_: Request, _: Context<ConfigMap>) -> Result<Action, Failure> {
    Ok(Action::done())
}

#[tokio::test(start_paused = true)]
async fn optional_kind_that_went_unseen_is_not_healthy_with_its_objects() {
    let faults = Faults::none();
    let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    definitions.create(&PostParams::default(), &definition(&[("v1", true)])).await.unwrap();
    let (objects, resource) = foos_of(&server, "v1");
    objects.create(&PostParams::default(), &DynamicObject::new("b", &resource)).await.unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let (foos, controller) = with_optional_foos(&factory);
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(nothing));
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(foos.snapshot().len(), 1);
    cut_off(&faults).await;
    definitions.delete("foos.example.com", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(10 * SECOND).await;
    faults.clear();
    tokio::time::sleep(HOUR).await;
    assert_eq!(foos.snapshot().len(), 1);
    factory.health(2 * MINUTE).unwrap_err();
    run.abort();
    // An operator that starts now does without it.
    let factory = SharedInformerFactory::new(server.client());
    let (_foos, controller) = with_optional_foos(&factory);
    drop(handle);
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(nothing));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(handle.stats().sources[1].state, SourceState::Absent);
    factory.health(2 * MINUTE).unwrap();
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn optional_kind_whose_version_is_not_served_any_more_is_not_healthy_with_its_objects() {
    let server = common::server();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let both = definition(&[("v1", true), ("v2", true)]);
    definitions.create(&PostParams::default(), &both).await.unwrap();
    let (objects, resource) = foos_of(&server, "v2");
    objects.create(&PostParams::default(), &DynamicObject::new("b", &resource)).await.unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let (foos, controller) = with_optional_foos(&factory);
    let run = tokio::spawn(controller.run(nothing));
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(foos.snapshot().len(), 1);
    let patch = json!({"spec": {"versions": definition(&[("v1", false), ("v2", true)]).spec.versions}});
    definitions.patch("foos.example.com", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    // The last watch ends.
    tokio::time::sleep(20 * MINUTE).await;
    let patch = json!({"metadata": {"labels": {"app": "changed"}}});
    objects.patch("b", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    tokio::time::sleep(HOUR).await;
    assert_eq!(content(&foos), "b=-");
    factory.health(2 * MINUTE).unwrap_err();
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn controller_waits_for_informers_that_were_stopped_and_start_again() {
    for refused in [false, true] {
        let faults = Faults::none();
        let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
        create(&api(&server), "a", "1").await;
        let factory = SharedInformerFactory::new(server.client());
        let (maps, secrets) = (factory.informer::<ConfigMap>(), factory.informer::<Secret>());
        factory.start();
        factory.wait_for_sync().await.unwrap();
        // Another replica leads now.
        secrets.stop().await;
        let mut child = Secret::default();
        child.metadata.name = Some("child-of-a".into());
        let api: Api<Secret> = Api::default_namespaced(server.client());
        api.create(&PostParams::default(), &child).await.unwrap();
        tokio::time::sleep(10 * HOUR).await;
        if refused {
            faults.inject(Rule::on(Fault::Forbidden).resource("secrets"));
        }
        let children = secrets.lister();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let controller = Controller::new(maps).owns(secrets.clone());
        let handle = controller.handle();
        let run = tokio::spawn(controller.run({
            let seen = Arc::clone(&seen);
            move |_: Request, _: Context<ConfigMap>| {
                seen.lock().unwrap().push(children.snapshot().len());
                std::future::ready(Ok(Action::requeue_after(10 * MINUTE)))
            }
        }));
        tokio::time::sleep(HOUR).await;
        let seen = seen.lock().unwrap().clone();
        if refused {
            assert!(seen.is_empty(), "{seen:?}");
            assert!(matches!(handle.stats().sources[1].state, SourceState::Waiting { .. }));
        } else {
            assert!(seen.len() > 5 && seen.iter().all(|children| *children == 1), "{seen:?}");
        }
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn comparison_that_failed_is_made_again() {
    for (objects, outage, fault) in [
        (600, 5, Fault::Forbidden),
        (600, 5, Fault::NotFound),
        (600, 5, Fault::Gone),
        (3, 0, Fault::Gone),
        (3, 5, Fault::Forbidden),
    ] {
        let (_server, faults, factory, informer) = weather_of(objects, InformerOptions::default()).await;
        tokio::time::sleep(3 * MINUTE).await;
        if outage > 0 {
            cut_off(&faults).await;
            tokio::time::sleep(Duration::from_secs(outage)).await;
            faults.clear();
        } else {
            faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
        }
        faults.inject(Rule::on(fault).verb(Verb::List));
        tokio::time::sleep(15 * SECOND).await;
        faults.clear();
        tokio::time::sleep(15 * MINUTE).await;
        assert_eq!(informer.status()[0].doubted_since, None, "{objects} objects, {fault:?}");
        factory.health(2 * MINUTE).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn retries_that_were_asked_for_during_an_outage_do_not_delay_its_end() {
    for (every, outage) in [(100, 60), (500, 300), (500, 60)] {
        let (server, faults, factory, informer) = weather_of(1, seeded(7)).await;
        tokio::time::sleep(MINUTE).await;
        cut_off(&faults).await;
        for _ in 0..outage * 1000 / every {
            tokio::time::sleep(Duration::from_millis(every)).await;
            factory.retry_now();
        }
        faults.clear();
        for data in ["2", "3"] {
            change(&api(&server), "a", data).await;
            tokio::time::sleep(6 * SECOND).await;
            assert_eq!(content(&informer), format!("a={data}"), "every {every} ms for {outage} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_expire_again_and_again_cause_few_lists() {
    for (lasts, streaming_lists) in [(1, true), (1, false), (5, true), (5, false)] {
        let config = ReflectorConfig { streaming_lists, ..ReflectorConfig::default() };
        let (_server, faults, _factory, informer) =
            weather_of(3, InformerOptions::default().reflector(config)).await;
        faults.inject(Rule::on(Fault::ExpiredEvent).verb(Verb::Watch).after(Duration::from_secs(lasts)));
        let mut failing = 0;
        for _ in 0..3600 {
            tokio::time::sleep(SECOND).await;
            failing += u32::from(informer.status()[0].failing_since.is_some());
        }
        let counts = informer.status()[0].counts;
        let lists = counts.lists + counts.streams;
        assert!(lists <= 150 && failing > 3000, "{lasts} s: {lists} lists, {failing} s failing");
    }
}

#[tokio::test(start_paused = true)]
async fn selected_informer_does_not_make_a_large_kind_be_listed() {
    for seed in 1..=12 {
        let (server, faults, factory, informer) = weather_of(600, seeded(seed)).await;
        create(&api(&server), "special", "special").await;
        let selected = factory.informer_with::<ConfigMap>(seeded(seed + 100).labels("app=special")).unwrap();
        factory.wait_for_sync().await.unwrap();
        tokio::time::sleep(3 * MINUTE).await;
        cut_off(&faults).await;
        tokio::time::sleep(5 * SECOND).await;
        faults.clear();
        tokio::time::sleep(10 * MINUTE).await;
        assert_eq!(informer.status()[0].counts.verifications, 0, "seed {seed}");
        drop(selected);
    }
}

#[tokio::test(start_paused = true)]
async fn health_does_not_fail_while_a_healthy_copy_is_compared() {
    let options = InformerOptions::default().verify_every(4 * MINUTE);
    let (_server, faults, factory, _informer) = weather_of(3, options).await;
    faults.inject(Rule::on(Fault::Delay(8 * SECOND)).verb(Verb::List).resource("configmaps"));
    for second in 0..1800 {
        tokio::time::sleep(SECOND).await;
        factory.health(2 * MINUTE).unwrap_or_else(|error| panic!("second {second}: {error}"));
    }
}

#[tokio::test(start_paused = true)]
async fn health_does_not_fail_as_soon_as_a_watch_ends() {
    for fault in [Fault::ErrorEvent, Fault::ExpiredEvent, Fault::CutStream] {
        let (_server, faults, factory, informer) = weather().await;
        tokio::time::sleep(4 * MINUTE).await;
        faults.inject(Rule::on(Fault::Refuse).verb(Verb::List));
        faults.inject(Rule::on(Fault::Refuse).verb(Verb::Watch));
        faults.inject(Rule::on(fault).verb(Verb::Watch).times(1));
        tokio::time::sleep(5 * SECOND).await;
        let staleness = informer.status()[0].staleness;
        assert!(staleness.is_some_and(|staleness| staleness <= 5 * SECOND), "{fault:?}: {staleness:?}");
        factory.health(2 * MINUTE).unwrap();
    }
}

/// Waits on threads, where no clock is paused; for a minute, which is far more than it takes.
async fn until(holds: impl Fn() -> bool) {
    let waits = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(MINUTE, waits).await.expect("it holds at last");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn buffer_of_a_slow_mapping_does_not_grow_with_objects_that_are_gone() {
    const OBJECTS: u64 = 5_000;
    let server = common::server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let source = ScriptedSource::new();
    let watch = source.live_watch();
    let kind = Kind::new("v1", "Thing", "things", true);
    let things = SharedInformer::<Value>::over(kind, source, InformerOptions::default());
    let metadata = json!({"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}});
    watch.send(format!("{}\n", json!({"type": "BOOKMARK", "object": {"metadata": metadata}}))).unwrap();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let mapping = move |thing: &Object<Value>| {
        // It waits until it is released.
        let _ = tokio::task::block_in_place(|| wait.lock().unwrap().recv());
        [thing.key().clone()]
    };
    let controller =
        Controller::new(factory.informer::<ConfigMap>()).buffer_len(16).watches(things.clone(), mapping);
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(nothing));
    until(|| handle.stats().succeeded > 0).await;
    let mut version = 10;
    for object in 0..OBJECTS {
        for event in ["ADDED", "DELETED"] {
            version += 1;
            let name = format!("job-{object}");
            let metadata = json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": version.to_string()});
            watch.send(format!("{}\n", json!({"type": event, "object": {"metadata": metadata}}))).unwrap();
        }
    }
    until(|| things.stats().store.changes >= 2 * OBJECTS).await;
    let stats = things.stats();
    assert_eq!(stats.store.objects, 0);
    assert!(stats.handlers[0].buffered < 100, "{:?}", stats.handlers[0]);
    // Which keys the lost states concern is not known, so every object of the kind itself is reconciled again.
    drop(release);
    until(|| handle.stats().sources[1].state == SourceState::Ready && handle.stats().succeeded > 1).await;
    run.abort();
}

/// Waits without end when it is full.
#[derive(Default)]
struct Full(AtomicBool);

impl Sink for Full {
    fn send<'a>(&'a self, _: &'a Scope, change: Change) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if matches!(change, Change::Put { .. }) && self.0.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn reflector_that_waits_for_room_does_not_keep_others_from_checking() {
    let faults = Faults::none();
    let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
    create(&api(&server), "a", "1").await;
    let (histories, sinks) = (Histories::default(), [Arc::new(Full::default()), Arc::new(Full::default())]);
    let reflectors = sinks.clone().map(|sink| {
        let kind = Kind::of::<ConfigMap>();
        let source = KubeSource::new(server.client(), kind.clone()).histories(histories.clone());
        Arc::new(Reflector::new(kind, source, sink, ReflectorConfig::default()))
    });
    for reflector in &reflectors {
        let reflector = Arc::clone(reflector);
        tokio::spawn(async move { reflector.run().await });
    }
    tokio::time::sleep(10 * SECOND).await;
    sinks[0].0.store(true, Ordering::Relaxed);
    faults.inject(Rule::on(Fault::Delay(SECOND)).verb(Verb::List));
    faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(2));
    // While the check of the first is under way, a change comes for which it has no room.
    tokio::time::sleep(Duration::from_millis(800)).await;
    change(&api(&server), "a", "2").await;
    tokio::time::sleep(30 * SECOND).await;
    faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(reflectors[1].status().doubted_since, None);
}

#[tokio::test(start_paused = true)]
async fn finalizer_is_not_put_on_another_object_of_the_same_name_and_version() {
    let faults = Faults::none();
    let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
    let backup = server.backup();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let maps = factory.informer::<ConfigMap>();
    let (go, to) = (Arc::new(tokio::sync::Notify::new()), api(&server));
    let controller = Controller::new(maps.clone());
    let handle = controller.handle();
    let run = tokio::spawn(controller.run({
        let go = Arc::clone(&go);
        move |request: Request, context: Context<ConfigMap>| {
            let (go, to) = (Arc::clone(&go), to.clone());
            async move {
                let Some(map) = context.get(&request) else { return Ok(Action::done()) };
                go.notified().await;
                finalizer(&context, &to, "example.org/mine", map, async |_| Ok(Action::done())).await
            }
        }
    }));
    tokio::time::sleep(SECOND).await;
    // A development server is replaced by an empty one, and the same manifest is applied.
    cut_off(&faults).await;
    server.restore(&backup);
    let mut again = config_map("a", &[("app", "1")], &[("v", "1")]);
    again.metadata.finalizers = Some(vec!["example.org/others".into()]);
    let made = api(&server).create(&PostParams::default(), &again).await.unwrap();
    let cached = maps.lister().get("default/a").unwrap();
    assert_eq!(Some(cached.version().to_string()), made.metadata.resource_version);
    go.notify_one();
    settle().await;
    let now = api(&server).get("a").await.unwrap().metadata;
    assert_eq!(now.finalizers, Some(vec!["example.org/others".to_owned()]));
    assert_eq!(handle.stats().failed, 1);
    run.abort();
}

/// How many turns another task has until `done`.
async fn turns_until(done: impl Future<Output = ()>) -> u64 {
    let turns = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&turns);
    let task = tokio::spawn(async move {
        loop {
            tokio::task::yield_now().await;
            *counted.lock().unwrap() += 1;
        }
    });
    done.await;
    task.abort();
    *turns.lock().unwrap()
}

#[tokio::test]
async fn stream_of_many_keys_lets_others_have_their_turns() {
    const KEYS: usize = 20_000;
    let server = common::server();
    let factory = SharedInformerFactory::new(server.client());
    let keys = (0..KEYS).map(|number| ObjectKey::namespaced("default", &format!("n-{number}")));
    let controller = Controller::new(factory.informer::<ConfigMap>())
        .triggered_by("file", futures_util::stream::iter(keys));
    let handle = controller.handle();
    handle.pause();
    let all = async {
        while handle.stats().queue.depth < KEYS {
            tokio::task::yield_now().await;
        }
    };
    let turns = turns_until(async {
        tokio::select! {
            _ = controller.run(nothing) => {}
            () = all => {}
        }
    });
    assert!(turns.await > 50);
}

#[tokio::test]
async fn filtered_stream_lets_others_have_their_turns() {
    let source = ScriptedSource::new();
    let names: Vec<String> = (0..5_000).map(|number| format!("default/n-{number:04}")).collect();
    let items: Vec<(&str, u64)> =
        names.iter().zip(1..).map(|(key, version)| (key.as_str(), version)).collect();
    source.lists(200_000, &items);
    let _watch = source.live_watch();
    let config = ReflectorConfig { streaming_lists: false, ..ReflectorConfig::default() };
    let kind = Kind::new("v1", "Thing", "things", true);
    let things = SharedInformer::<Value>::over(kind, source, InformerOptions::default().reflector(config));
    things.start();
    things.wait_for_sync().await.unwrap();
    let options = HandlerOptions::default().filter(|thing: &Object<Value>| thing.name() == "n-4999");
    let mut events = things.events(options);
    let begun = Instant::now();
    let turns = turns_until(async { drop(events.next().await) }).await;
    assert!(turns > 20, "{turns} turns in {:?}", begun.elapsed());
}
