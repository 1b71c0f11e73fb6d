//! What a controller does about sources that it cannot read, that end, or that die.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{api, create, server, settle};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use kube_client::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube_informer::controller::{
    Action, Context, ControllerError, ControllerHandle, Failure, Request, SourceState, WatchOptions,
};
use kube_informer::{Controller, InformerOptions, Kind, ObjectKey, SharedInformer, SharedInformerFactory};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, Verb};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Counts reconciles and asks for another one a minute later.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn reconcile(
        &self,
    ) -> impl Fn(Request, Context<ConfigMap>) -> std::future::Ready<Result<Action, Failure>> + Send + Sync + 'static
    {
        let count = self.clone();
        move |_, _| {
            count.0.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(Action::requeue_after(Duration::from_mins(1))))
        }
    }
}

fn forbidden(resource: &str) -> Rule {
    Rule::on(Fault::Forbidden).verb(Verb::List).verb(Verb::Watch).resource(resource)
}

fn server_with(rule: Rule) -> ApiServer {
    ApiServer::builder().seed(1).faults(Faults::seeded(1).rule(rule)).build()
}

/// The state of each source.
fn states(handle: &ControllerHandle) -> Vec<(String, SourceState)> {
    handle.stats().sources.into_iter().map(|source| (source.name, source.state)).collect()
}

fn foos(factory: &SharedInformerFactory) -> SharedInformer<Value> {
    let kind = Kind::new("example.com/v1", "Foo", "foos", true);
    factory.informer_of::<Value>(kind, InformerOptions::default()).unwrap()
}

/// Installs the kind and creates one object of it.
async fn install_foos(server: &ApiServer, name: &str) {
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let definition = serde_json::from_value(json!({
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .unwrap();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Foo"), "foos");
    let api: Api<DynamicObject> = Api::default_namespaced_with(server.client(), &resource);
    api.create(&PostParams::default(), &DynamicObject::new(name, &resource)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_child_is_made_while_the_owned_kind_is_forbidden() {
    let server = server_with(forbidden("secrets").until(Duration::from_mins(1)));
    let owner = create(&api(&server), "a", "1").await;
    let secrets: Api<Secret> = Api::default_namespaced(server.client());
    let child = move || -> Secret {
        serde_json::from_value(json!({"metadata": {"generateName": "a-", "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": owner.metadata.uid, "controller": true}]}}))
        .unwrap()
    };
    secrets.create(&PostParams::default(), &child()).await.unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let owned = factory.informer::<Secret>();
    let lister = owned.lister();
    let controller = Controller::new(factory.informer::<ConfigMap>()).owns(owned);
    let make = secrets.clone();
    let run = tokio::spawn(controller.run(move |_, _| {
        let (make, lister, child) = (make.clone(), lister.clone(), child.clone());
        async move {
            if lister.count() == 0 {
                make.create(&PostParams::default(), &child()).await?;
            }
            Ok::<_, Failure>(Action::requeue_after(Duration::from_secs(10)))
        }
    }));
    tokio::time::sleep(Duration::from_mins(5)).await;
    let there = secrets.list(&ListParams::default()).await.unwrap().items.len();
    run.abort();
    assert_eq!(there, 1, "one child is wanted, and one was there before the controller began");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_while_a_watched_kind_is_forbidden() {
    let server = server_with(forbidden("secrets").until(Duration::from_secs(30)));
    let (maps, secrets): (_, Api<Secret>) = (api(&server), Api::default_namespaced(server.client()));
    for number in 0..50 {
        create(&maps, &format!("m{number}"), "1").await;
        let secret = json!({"metadata": {"name": format!("m{number}")}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let factory = SharedInformerFactory::new(server.client());
    let owners = factory.informer::<Secret>();
    let lister = owners.lister();
    let controller = Controller::new(factory.informer::<ConfigMap>())
        .watches(owners, |owner| [ObjectKey::namespaced("default", owner.name())]);
    let gone = maps.clone();
    let run = tokio::spawn(controller.run(move |request, context| {
        let (gone, lister) = (gone.clone(), lister.clone());
        async move {
            let Some(map) = context.get(&request) else { return Ok(Action::done()) };
            if lister.namespace("default").get(map.name()).is_none() {
                gone.delete(map.name(), &DeleteParams::default()).await?;
            }
            Ok::<_, Failure>(Action::done())
        }
    }));
    tokio::time::sleep(Duration::from_mins(5)).await;
    let there = maps.list(&ListParams::default()).await.unwrap().items.len();
    run.abort();
    assert_eq!(there, 50, "every map has its secret on the server");
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_source_is_shown_and_costs_one_request_per_backoff() {
    let server = server_with(forbidden("secrets"));
    for number in 0..100 {
        create(&api(&server), &format!("m{number}"), "1").await;
    }
    let (factory, count) = (SharedInformerFactory::new(server.client()), Count::default());
    let controller = Controller::new(factory.informer::<ConfigMap>()).owns(factory.informer::<Secret>());
    let handle = controller.handle();
    assert!(matches!(&states(&handle)[1], (name, SourceState::Waiting { .. }) if name == "v1 Secret"));
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_hours(1)).await;
    let states = states(&handle);
    assert_eq!(states[0], ("v1 ConfigMap".to_owned(), SourceState::Ready));
    let SourceState::Waiting { why } = &states[1].1 else { panic!("{states:?}") };
    assert!(why.contains("403") || why.to_lowercase().contains("forbidden"), "{why}");
    assert_eq!(count.now(), 0);
    let requests = factory.informer::<Secret>().status()[0].counts.errors;
    assert!(requests < 300, "{requests} refused requests in an hour, whatever the number of keys");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn every_namespace_of_a_source_is_waited_for() {
    let rule = forbidden("configmaps").namespace("kube-system").until(Duration::from_mins(10));
    let (server, count) = (server_with(rule), Count::default());
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().namespace("kube-system").namespace("default");
    let controller = Controller::new(factory.informer_with::<ConfigMap>(options).unwrap());
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_mins(9)).await;
    assert_eq!(count.now(), 0, "one namespace may not be read yet");
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(count.now() > 0);
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn workers_pause_until_an_added_namespace_was_read() {
    let rule = forbidden("secrets").namespace("kube-system").until(Duration::from_mins(10));
    let (server, count) = (server_with(rule), Count::default());
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().namespace("default").changing_namespaces();
    let secrets = factory.informer_with::<Secret>(options).unwrap();
    let controller = Controller::new(factory.informer::<ConfigMap>()).owns(secrets.clone());
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(count.now(), 2);
    secrets.set_namespaces(["default", "kube-system"]).await.unwrap();
    settle().await;
    // The user's own pause ends, the controller's does not.
    handle.pause();
    handle.resume();
    tokio::time::sleep(Duration::from_mins(7)).await;
    assert_eq!(count.now(), 2, "a namespace may not be read yet");
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(count.now() > 2);
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_is_waited_for_unless_it_is_optional() {
    let (server, count) = (server(), Count::default());
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let key = |foo: &kube_informer::Object<Value>| [ObjectKey::namespaced("default", foo.name())];
    let required = Controller::new(factory.informer::<ConfigMap>()).watches(foos(&factory), key);
    let waits = tokio::spawn(required.run(count.reconcile()));
    let owning = Controller::new(factory.informer::<ConfigMap>()).owns(foos(&factory));
    let owns = tokio::spawn(owning.run(count.reconcile()));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(count.now(), 0, "a kind that was not declared optional is waited for");
    waits.abort();
    owns.abort();

    let options = WatchOptions::default().optional();
    let optional =
        Controller::new(factory.informer::<ConfigMap>()).watches_with(foos(&factory), options, key);
    let handle = optional.handle();
    let run = tokio::spawn(optional.run(count.reconcile()));
    tokio::task::yield_now().await;
    factory.wait_for_sync_within(Duration::from_mins(1)).await.unwrap();
    assert!(factory.health(Duration::from_secs(1)).is_ok(), "{:?}", factory.health(Duration::from_secs(1)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(count.now(), 1);
    assert_eq!(states(&handle)[1], ("example.com/v1 Foo".to_owned(), SourceState::Absent));
    install_foos(&server, "b").await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(states(&handle)[1].1, SourceState::Ready);
    assert!(handle.stats().succeeded >= 4, "a each minute, and b: {:?}", handle.stats());
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_is_forbidden_is_waited_for() {
    let (server, count) = (server_with(forbidden("secrets")), Count::default());
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let options = WatchOptions::default().optional();
    let controller = Controller::new(factory.informer::<ConfigMap>()).watches_with(
        factory.informer::<Secret>(),
        options,
        |_| [ObjectKey::cluster("x")],
    );
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(count.now(), 0);
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn workers_pause_when_an_optional_kind_appears_that_is_forbidden() {
    let (faults, count) = (Faults::seeded(1), Count::default());
    let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let options = WatchOptions::default().optional();
    let controller =
        Controller::new(factory.informer::<ConfigMap>())
            .watches_with(foos(&factory), options, |_| [ObjectKey::cluster("x")]);
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(count.now(), 1);
    faults.inject(forbidden("foos").until(Duration::from_hours(1)));
    install_foos(&server, "b").await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    let paused_at = count.now();
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(count.now(), paused_at, "the server has the kind and does not show it");
    assert!(matches!(states(&handle)[1].1, SourceState::Waiting { .. }));
    tokio::time::sleep(Duration::from_mins(40)).await;
    assert!(count.now() > paused_at);
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_start_limit_ends_the_wait_with_an_error() {
    let (server, count) = (server_with(forbidden("secrets")), Count::default());
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let limit = Duration::from_millis(90_500);
    let controller = Controller::new(factory.informer::<ConfigMap>())
        .owns(factory.informer::<Secret>())
        .start_limit(limit);
    let begun = tokio::time::Instant::now();
    let error = controller.run(count.reconcile()).await.unwrap_err();
    assert_eq!(begun.elapsed().as_millis(), 90_500);
    let ControllerError::NotStarted { limit: named, sources } = &error else { panic!("{error:?}") };
    assert_eq!((*named, sources.len(), sources[0].name.as_str(), count.now()), (limit, 1, "v1 Secret", 0));
    assert!(error.to_string().contains("v1 Secret"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_controller_ends_when_its_factory_is_shut_down() {
    let (server, count) = (server(), Count::default());
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let run = tokio::spawn(Controller::new(factory.informer::<ConfigMap>()).run(count.reconcile()));
    settle().await;
    assert_eq!(count.now(), 1);
    factory.shutdown().await.unwrap();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(run.is_finished(), "{} reconciles on a frozen cache", count.now() - 1);
    let error = run.await.unwrap().unwrap_err();
    assert_eq!((error, count.now()), (ControllerError::SourceStopped { name: "v1 ConfigMap".into() }, 1));
}

#[tokio::test(start_paused = true)]
async fn a_controller_ends_when_an_informer_is_stopped() {
    let (server, count) = (server(), Count::default());
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let secrets = factory.informer::<Secret>();
    let controller = Controller::new(factory.informer::<ConfigMap>()).owns(secrets.clone());
    let run = tokio::spawn(controller.run(count.reconcile()));
    settle().await;
    secrets.stop().await;
    settle().await;
    assert!(run.is_finished());
    let error = run.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("v1 Secret was stopped"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_panics_ends_the_controller() {
    let (server, count) = (server(), Count::default());
    let factory = SharedInformerFactory::new(server.client());
    let mut number = 0;
    let stream = futures_util::stream::poll_fn(move |_| {
        number += 1;
        assert!(number < 3, "on purpose");
        std::task::Poll::Ready(Some(ObjectKey::namespaced("default", "x")))
    });
    let controller = Controller::new(factory.informer::<ConfigMap>()).triggered_by("bus", stream);
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(run.is_finished(), "the stream is dead");
    let error = run.await.unwrap().unwrap_err();
    assert_eq!(error, ControllerError::StreamPanicked { name: "bus".into(), panic: "on purpose".into() });
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_end_and_the_stats_show_it() {
    let (server, count) = (server(), Count::default());
    let factory = SharedInformerFactory::new(server.client());
    let stream = futures_util::stream::iter([ObjectKey::namespaced("default", "x")]);
    let controller = Controller::new(factory.informer::<ConfigMap>()).triggered_by("once", stream);
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!run.is_finished());
    assert_eq!((count.now(), states(&handle)[1].clone()), (1, ("once".into(), SourceState::Ended)));
    run.abort();
}

/// Panics when an error is logged, which happens in a worker itself, outside of any reconcile.
struct Fragile;

impl tracing::Subscriber for Fragile {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        assert!(*metadata.level() != tracing::Level::ERROR, "on purpose");
        false
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}

    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::sometimes()
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_ends_the_controller() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let _log = tracing::subscriber::set_default(Fragile);
    let controller = Controller::new(factory.informer::<ConfigMap>()).workers(2);
    let run = tokio::spawn(controller.run(|_, _| std::future::ready(Err(Failure::terminal("never")))));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(run.is_finished(), "one of two workers is dead");
    let error = run.await.unwrap().unwrap_err();
    assert_eq!(error, ControllerError::WorkerDied { why: "on purpose".into() });
}

#[tokio::test(start_paused = true)]
async fn workers_do_not_pause_when_a_busy_server_is_asked_for_an_absent_kind() {
    for fault in [
        Fault::TooManyRequests { retry_after: Some(Duration::from_mins(1)) },
        Fault::TooManyRequests { retry_after: None },
        Fault::Unavailable,
        Fault::Unauthorized,
        Fault::Stall,
    ] {
        let (faults, count, run) = without_foos().await;
        faults.inject(Rule::on(fault).resource("foos"));
        let before = count.now();
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(faults.count(fault) > 0);
        // Each minute, and not a minute less.
        assert!(count.now() - before >= 10, "{fault:?}: {} runs", count.now() - before);
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn workers_pause_while_the_server_refuses_to_show_a_kind_that_was_absent() {
    // An internal error may come from the conversion of objects that are there.
    for fault in [Fault::Forbidden, Fault::Gone, Fault::InternalError] {
        let (faults, count, run) = without_foos().await;
        faults.inject(Rule::on(fault).resource("foos").until(Duration::from_mins(20)));
        tokio::time::sleep(Duration::from_mins(1)).await;
        let before = count.now();
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(count.now(), before, "{fault:?}");
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(count.now() > before, "{fault:?}: the server has no such kind again");
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn workers_pause_while_a_kind_that_was_absent_is_shown_and_cannot_be_read() {
    for fault in [Fault::CutFrame, Fault::CutStream, Fault::StallStream, Fault::TruncateFrame] {
        let (faults, count, run) = without_foos().await;
        // Each answer begins with 200.
        faults.inject(Rule::on(fault).verb(Verb::List).verb(Verb::Watch).resource("foos"));
        install_foos(&run.server, "f").await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        let before = count.now();
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(count.now(), before, "{fault:?}");
        faults.clear();
        tokio::time::sleep(Duration::from_mins(20)).await;
        assert!(count.now() > before, "{fault:?}: it was read");
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_404_for_a_moment_does_not_make_a_kind_absent() {
    for (before, times) in [(Fault::Refuse, 3), (Fault::Unavailable, 3), (Fault::Forbidden, 1)] {
        let foos_are = |fault| Rule::on(fault).verb(Verb::List).verb(Verb::Watch).resource("foos");
        let seconds = Duration::from_secs;
        let faults = Faults::seeded(1)
            .rule(foos_are(before).until(seconds(10)))
            .rule(foos_are(Fault::NotFound).from(seconds(10)).times(times));
        let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
        install_foos(&server, "f").await;
        create(&api(&server), "a", "1").await;
        let factory = SharedInformerFactory::new(server.client());
        let foos = foos(&factory);
        let (lister, early) = (foos.lister(), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&early);
        let controller = Controller::new(factory.informer::<ConfigMap>()).watches_with(
            foos,
            WatchOptions::default().optional(),
            |foo| [foo.key().clone()],
        );
        let run = tokio::spawn(controller.run(move |_, _| {
            seen.fetch_add(usize::from(lister.count() == 0), Ordering::SeqCst);
            std::future::ready(Ok::<_, Failure>(Action::done()))
        }));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(faults.count(Fault::NotFound) > 0);
        assert_eq!(early.load(Ordering::SeqCst), 0, "{before:?}");
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn one_controllers_optional_kind_is_still_needed_by_another() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let done = |_, _| std::future::ready(Ok::<_, Failure>(Action::done()));
    let optional = Controller::new(factory.informer::<ConfigMap>()).watches_with(
        foos(&factory),
        WatchOptions::default().optional(),
        |foo| [foo.key().clone()],
    );
    let optional = tokio::spawn(optional.run(done));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(factory.health(Duration::from_secs(1)).is_ok());
    let needs =
        Controller::new(factory.informer::<ConfigMap>()).watches(foos(&factory), |foo| [foo.key().clone()]);
    let needs = tokio::spawn(needs.run(done));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(factory.health(Duration::from_secs(1)).is_err(), "the second controller waits for it");
    needs.abort();
    let _ = needs.await;
    assert!(factory.health(Duration::from_secs(1)).is_ok(), "nobody else needs it");
    optional.abort();
    let _ = optional.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_is_added_at_any_moment_pauses_the_workers() {
    let forbidden = Rule::on(Fault::Forbidden).verb(Verb::List).verb(Verb::Watch);
    let faults = Faults::seeded(1).rule(forbidden.resource("secrets").namespace("kube-system"));
    let server = ApiServer::builder().seed(1).faults(faults).build();
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().namespace("default").changing_namespaces();
    let secrets = factory.informer_with::<Secret>(options).unwrap();
    let controller = Controller::new(factory.informer::<ConfigMap>()).owns(secrets.clone());
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(|_, _| std::future::ready(Ok::<_, Failure>(Action::done()))));
    factory.start();
    factory.wait_for_sync().await.unwrap();
    for round in 0..300_u32 {
        secrets.set_namespaces(["default"]).await.unwrap();
        // Whatever the controller is doing then.
        for _ in 0..round % 40 * 50 {
            std::hint::spin_loop();
        }
        secrets.set_namespaces(["default", "kube-system"]).await.unwrap();
        let waits = async {
            while !matches!(handle.stats().sources[1].state, SourceState::Waiting { .. }) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let waits = tokio::time::timeout(Duration::from_secs(10), waits).await;
        assert!(waits.is_ok(), "round {round}: {:?}", handle.stats().sources);
    }
    run.abort();
}

/// A controller that reconciles each minute, ten minutes after it has begun without the optional foos.
async fn without_foos() -> (Faults, Count, RunsOn) {
    let (faults, count) = (Faults::seeded(1), Count::default());
    let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new(factory.informer::<ConfigMap>()).watches_with(
        foos(&factory),
        WatchOptions::default().optional(),
        |_| [ObjectKey::cluster("x")],
    );
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_mins(10)).await;
    (faults, count, RunsOn { server, run })
}

/// A controller that runs, and its server.
struct RunsOn {
    server: ApiServer,
    run: JoinHandle<Result<(), ControllerError>>,
}

impl RunsOn {
    fn abort(&self) {
        self.run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn no_key_is_reconciled_before_every_source_was_mapped() {
    let server = server();
    for number in 0..400 {
        create(&api(&server), &format!("m-{number:03}"), "1").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let maps = factory.informer::<ConfigMap>();
    let selected = factory.informer_with::<ConfigMap>(InformerOptions::default().labels("app=1")).unwrap();
    factory.start();
    // The informers are read already: only the keys are still to be queued.
    factory.wait_for_sync().await.unwrap();
    let (mapped, first) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(None)));
    let (count, look, seen) = (Arc::clone(&mapped), Arc::clone(&mapped), Arc::clone(&first));
    let controller = Controller::new(maps).watches(selected, move |map| {
        *count.lock().unwrap() += 1;
        [map.key().clone()]
    });
    let run = tokio::spawn(controller.run(move |_: Request, _: Context<ConfigMap>| {
        seen.lock().unwrap().get_or_insert(*look.lock().unwrap());
        std::future::ready(Ok(Action::done()))
    }));
    tokio::time::sleep(Duration::from_mins(1)).await;
    run.abort();
    assert_eq!(*first.lock().unwrap(), Some(400), "mapped before the first reconcile");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_only_read_is_started_and_waited_for() {
    let rule = forbidden("secrets").until(Duration::from_mins(2));
    let server = server_with(rule);
    create(&api(&server), "a", "1").await;
    let secrets: Api<Secret> = Api::default_namespaced(server.client());
    let mut secret = Secret::default();
    secret.metadata.name = Some("s".into());
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let read = factory.informer::<Secret>();
    let (lister, counts) = (read.lister(), Arc::new(Mutex::new(Vec::new())));
    let controller = Controller::new(factory.informer::<ConfigMap>()).reads(read);
    let seen = Arc::clone(&counts);
    let run = tokio::spawn(controller.run(move |_, _| {
        seen.lock().unwrap().push(lister.snapshot().len());
        std::future::ready(Ok(Action::done()))
    }));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(*counts.lock().unwrap(), Vec::<usize>::new(), "nothing is reconciled yet");
    tokio::time::sleep(Duration::from_mins(5)).await;
    let before = counts.lock().unwrap().clone();
    assert!(!before.is_empty() && before.iter().all(|count| *count == 1), "{before:?}");
    secret.metadata.name = Some("t".into());
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    settle().await;
    assert_eq!(counts.lock().unwrap().len(), before.len(), "its changes concern no key");
    run.abort();
}
