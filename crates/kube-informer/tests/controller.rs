//! Controllers, on the embedded server.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{api, change, config_map, create, delete, server, settle};
use expect_test::expect;
use futures_core::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use kube_client::api::{DeleteParams, PostParams};
use kube_informer::controller::{
    Action, Context, ControllerError, Failure, FinalizerEvent, Predicate, Request, WatchOptions, finalizer,
};
use kube_informer::workqueue::RateLimit;
use kube_informer::{Controller, InformerOptions, Kind, ObjectKey, SharedInformerFactory};
use kube_informer_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// What reconciles have said, a line each.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap()).into_iter().map(|line| line + "\n").collect()
    }
}

fn reasons(request: &Request) -> String {
    let reasons = request.reasons.iter().map(|reason| format!("{} {}", reason.source, reason.event));
    reasons.collect::<Vec<_>>().join(", ")
}

/// Notes each request: key, what the object is, why.
fn noting(
    diary: &Diary,
) -> impl Fn(Request, Context<ConfigMap>) -> std::future::Ready<Result<Action, Failure>> + Send + Sync + 'static
{
    let diary = diary.clone();
    move |request, context| {
        let object = context.get(&request);
        let state = object.map_or("gone".to_owned(), |object| object.label("app").unwrap_or("-").to_owned());
        diary.note(format!("{} {state} ({})", request.key, reasons(&request)));
        std::future::ready(Ok(Action::done()))
    }
}

fn start(server: &ApiServer) -> SharedInformerFactory {
    SharedInformerFactory::new(server.client())
}

#[tokio::test(start_paused = true)]
async fn every_key_is_reconciled_with_its_reasons_and_so_is_one_whose_object_is_gone() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    let (diary, factory) = (Diary::default(), start(&server));
    let run = tokio::spawn(Controller::new(factory.informer::<ConfigMap>()).run(noting(&diary)));
    settle().await;
    create(&api, "b", "1").await;
    settle().await;
    change(&api, "a", "2").await;
    settle().await;
    delete(&api, "a").await;
    settle().await;
    expect![[r#"
        default/a 1 (ConfigMap added)
        default/b 1 (ConfigMap added)
        default/a 2 (ConfigMap updated)
        default/a gone (ConfigMap deleted)
    "#]]
    .assert_eq(&diary.take());
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn what_an_object_owns_and_what_is_mapped_to_it_concerns_it() {
    let server = server();
    let owner = create(&api(&server), "owner", "1").await;
    let secrets: Api<Secret> = Api::default_namespaced(server.client());
    let (diary, factory) = (Diary::default(), start(&server));
    let namespaces = factory.informer::<k8s_openapi::api::core::v1::Namespace>();
    let controller = Controller::new(factory.informer::<ConfigMap>())
        .owns(factory.informer::<Secret>())
        .watches(namespaces, |namespace| {
            (namespace.name() == "kube-public").then(|| ObjectKey::namespaced("default", "mapped"))
        });
    let run = tokio::spawn(controller.run(noting(&diary)));
    settle().await;
    let mut owned = Secret::default();
    owned.metadata.name = Some("owned".into());
    owned.metadata.owner_references = serde_json::from_value(json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid, "controller": true,
    }]))
    .unwrap();
    secrets.create(&PostParams::default(), &owned).await.unwrap();
    let mut foreign = owned.clone();
    foreign.metadata.name = Some("foreign".into());
    foreign.metadata.owner_references.as_mut().unwrap()[0].controller = Some(false);
    secrets.create(&PostParams::default(), &foreign).await.unwrap();
    settle().await;
    expect![[r#"
        default/owner 1 (ConfigMap added)
        default/mapped gone (Namespace added)
        default/owner 1 (Secret added)
    "#]]
    .assert_eq(&diary.take());
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_later_and_later_and_forgotten_after_a_success() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let (diary, factory) = (Diary::default(), start(&server));
    let notes = diary.clone();
    let begun = Instant::now();
    let tries = AtomicUsize::new(0);
    // The default without its jitter.
    let controller = Controller::new(factory.informer::<ConfigMap>()).retry(RateLimit::default());
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(move |request, _| {
        notes.note(format!("{} ms, {} failures", begun.elapsed().as_millis(), request.failures));
        let number = tries.fetch_add(1, Ordering::SeqCst);
        async move {
            match number {
                0 => Err(Failure::retry("not yet")),
                1 => Err(std::io::Error::other("any error will do"))?,
                2 => panic!("on purpose"),
                3 => Ok(Action::requeue_after(Duration::from_secs(1))),
                4 => Err(Failure::terminal("never")),
                _ => Ok(Action::done()),
            }
        }
    }));
    tokio::time::sleep(Duration::from_mins(1)).await;
    expect![[r#"
        0 ms, 0 failures
        5 ms, 1 failures
        15 ms, 2 failures
        35 ms, 3 failures
        1035 ms, 0 failures
    "#]]
    .assert_eq(&diary.take());
    let stats = handle.stats();
    assert_eq!((stats.succeeded, stats.failed, stats.panicked, stats.terminal), (1, 2, 1, 1));
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_takes_too_long_is_ended_and_tried_again() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = start(&server);
    let controller = Controller::new(factory.informer::<ConfigMap>()).reconcile_limit(Duration::from_secs(5));
    let handle = controller.handle();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let run = tokio::spawn(controller.run(move |_, _| {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                std::future::pending::<()>().await;
            }
            Ok(Action::done())
        }
    }));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(tries.load(Ordering::SeqCst), 2);
    let stats = handle.stats();
    assert_eq!((stats.timed_out, stats.succeeded, stats.running.len()), (1, 1, 0));
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn one_key_is_never_worked_on_twice_at_once_and_others_go_on() {
    let server = server();
    let api = api(&server);
    for name in ["a", "b", "c", "d"] {
        create(&api, name, "1").await;
    }
    let factory = start(&server);
    let running = Arc::new(Mutex::new(Vec::<ObjectKey>::new()));
    let most = Arc::new(AtomicUsize::new(0));
    let (seen, highest) = (Arc::clone(&running), Arc::clone(&most));
    let run =
        tokio::spawn(Controller::new(factory.informer::<ConfigMap>()).workers(3).run(move |request, _| {
            let (seen, highest) = (Arc::clone(&seen), Arc::clone(&highest));
            async move {
                {
                    let mut seen = seen.lock().unwrap();
                    assert!(!seen.contains(&request.key), "{} twice at once", request.key);
                    seen.push(request.key.clone());
                    highest.fetch_max(seen.len(), Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                seen.lock().unwrap().retain(|key| *key != request.key);
                Ok(Action::done())
            }
        }));
    for version in ["2", "3", "4"] {
        tokio::time::sleep(Duration::from_millis(300)).await;
        for name in ["a", "b", "c", "d"] {
            change(&api, name, version).await;
        }
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert!(running.lock().unwrap().is_empty());
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn workers_start_only_when_every_source_has_queued_what_is_there() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    let (diary, factory) = (Diary::default(), start(&server));
    // This source takes a while: each answer comes after two seconds.
    let slow = kube_informer::source::ScriptedSource::new();
    let slow_kind = Kind::new("v1", "Slow", "slows", true);
    let slow_informer =
        kube_informer::SharedInformer::<Value>::over(slow_kind, slow.clone(), InformerOptions::default());
    let controller = Controller::new(factory.informer::<ConfigMap>())
        .watches(slow_informer, |_| [ObjectKey::namespaced("default", "a")]);
    let run = tokio::spawn(controller.run(noting(&diary)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(diary.take(), "", "nothing before the slow source is there");
    let event = kube_informer::source::ScriptedSource::event("ADDED", "default/x", 7);
    let end = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}});
    slow.on_watch(kube_informer::source::Script::TextThenSilence(format!("{event}{end}\n")));
    tokio::time::sleep(Duration::from_secs(1)).await;
    expect![[r#"
        default/a 1 (ConfigMap added, Slow added)
    "#]]
    .assert_eq(&diary.take());
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_is_not_installed_joins_when_it_appears() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    let (diary, factory) = (Diary::default(), start(&server));
    let kind = Kind::new("example.com/v1", "Foo", "foos", true);
    let foos = factory.informer_of::<Value>(kind, InformerOptions::default()).unwrap();
    let controller = Controller::new(factory.informer::<ConfigMap>()).watches_with(
        foos,
        WatchOptions::default().optional(),
        |foo| [ObjectKey::namespaced("default", foo.name())],
    );
    let run = tokio::spawn(controller.run(noting(&diary)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(diary.take(), "default/a 1 (ConfigMap added)\n");
    // Events of the others are as quick as ever.
    change(&api, "a", "2").await;
    settle().await;
    assert_eq!(diary.take(), "default/a 2 (ConfigMap updated)\n");

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
    let resource = kube_client::core::ApiResource::from_gvk_with_plural(
        &kube_client::core::GroupVersionKind::gvk("example.com", "v1", "Foo"),
        "foos",
    );
    let dynamic: Api<kube_client::core::DynamicObject> =
        Api::default_namespaced_with(server.client(), &resource);
    dynamic
        .create(&PostParams::default(), &kube_client::core::DynamicObject::new("a", &resource))
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(diary.take(), "default/a 2 (Foo added)\n");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn predicates_drop_and_count_what_is_not_worth_a_reconcile() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    let (diary, factory) = (Diary::default(), start(&server));
    let labels = Predicate::labels();
    let controller = Controller::new(factory.informer::<ConfigMap>()).filter(labels.clone());
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(noting(&diary)));
    settle().await;
    let patch = json!({"data": {"v": "other"}});
    let parameters = kube_client::api::PatchParams::default();
    api.patch("a", &parameters, &kube_client::api::Patch::Merge(&patch)).await.unwrap();
    settle().await;
    change(&api, "a", "2").await;
    settle().await;
    expect![[r#"
        default/a 1 (ConfigMap added)
        default/a 2 (ConfigMap updated)
    "#]]
    .assert_eq(&diary.take());
    assert_eq!(labels.dropped(), 1);
    assert_eq!(handle.stats().dropped, [("labels".to_owned(), 1)]);
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_change_must_pass_every_filter() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    let never = || Predicate::new("never an update", |change| change.old.is_none());
    let (diary, factory) = (Diary::default(), start(&server));
    let both = WatchOptions::default().filter(never()).filter(Predicate::resource_version());
    let controller = Controller::new(factory.informer::<ConfigMap>())
        .filter(never())
        .filter(Predicate::resource_version())
        .watches_with(factory.informer::<ConfigMap>(), both, |map| [map.key().clone()]);
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(noting(&diary)));
    settle().await;
    change(&api, "a", "2").await;
    settle().await;
    run.abort();
    assert_eq!(diary.take(), "default/a 1 (ConfigMap added)\n", "the first filter drops updates");
    let dropped = handle.stats().dropped;
    assert_eq!(dropped[..2], [("never an update".to_owned(), 1), ("resourceVersion".to_owned(), 0)]);
}

#[tokio::test(start_paused = true)]
async fn keys_come_from_streams_and_from_the_handle_too() {
    let server = server();
    let (diary, factory) = (Diary::default(), start(&server));
    let (sender, receiver) = mpsc::unbounded_channel();
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    });
    let controller = Controller::new(factory.informer::<ConfigMap>()).triggered_by("timer", stream);
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(noting(&diary)));
    settle().await;
    sender.send(ObjectKey::namespaced("default", "x")).unwrap();
    settle().await;
    handle.pause();
    handle.enqueue(
        ObjectKey::namespaced("default", "y"),
        kube_informer::workqueue::Cause::new("test", "asked"),
    );
    settle().await;
    assert_eq!(diary.take(), "default/x gone (timer asked)\n");
    handle.resume();
    settle().await;
    assert_eq!(diary.take(), "default/y gone (test asked)\n");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_what_runs_end_and_names_what_does_not() {
    let server = server();
    let api = api(&server);
    create(&api, "quick", "1").await;
    create(&api, "stuck", "1").await;
    create(&api, "waits", "1").await;
    let (diary, factory) = (Diary::default(), start(&server));
    let stop = Arc::new(Notify::new());
    let (notes, stopped) = (diary.clone(), Arc::clone(&stop));
    let controller = Controller::new(factory.informer::<ConfigMap>())
        .workers(2)
        .shutdown_limit(Duration::from_secs(3))
        .shutdown_on(async move { stopped.notified().await });
    let run = tokio::spawn(controller.run(move |request, _| {
        let notes = notes.clone();
        async move {
            let stuck = request.key.name() == "stuck";
            tokio::time::sleep(Duration::from_secs(if stuck { 1000 } else { 2 })).await;
            notes.note(request.key.name());
            Ok(Action::done())
        }
    }));
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.notify_one();
    let error = run.await.unwrap().unwrap_err();
    let keys = vec![ObjectKey::namespaced("default", "stuck")];
    assert_eq!(error, ControllerError::StillRunning { keys });
    assert_eq!(diary.take(), "quick\n", "what ran has ended, what waited has not begun");
}

/// Reconciles with a finalizer and notes what it is asked to do; `work` says what comes of it.
fn tidy<F, Fut>(
    api: &Api<ConfigMap>,
    diary: &Diary,
    work: F,
) -> impl Fn(Request, Context<ConfigMap>) -> BoxFuture<'static, Result<Action, Failure>> + Send + Sync + 'static
where
    F: Fn(FinalizerEvent<ConfigMap>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, Failure>> + Send,
{
    let (api, diary) = (api.clone(), diary.clone());
    move |request, context| {
        let (api, diary, work) = (api.clone(), diary.clone(), work.clone());
        Box::pin(async move {
            let Some(object) = context.get(&request) else {
                diary.note("gone");
                return Ok(Action::done());
            };
            finalizer(&context, &api, "example.com/tidy", object, |event| {
                diary.note(if matches!(event, FinalizerEvent::Apply(_)) { "apply" } else { "cleanup" });
                work(event)
            })
            .await
        })
    }
}

async fn nothing(_: FinalizerEvent<ConfigMap>) -> Result<Action, Failure> {
    Ok(Action::done())
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_guarantees_that_cleanup_follows_apply() {
    let server = server();
    let (api, diary, factory) = (api(&server), Diary::default(), start(&server));
    create(&api, "a", "1").await;
    let cleanups = Arc::new(AtomicUsize::new(0));
    let work = tidy(&api, &diary, move |event| {
        let cleanup = matches!(event, FinalizerEvent::Cleanup(_));
        let first = cleanup && cleanups.fetch_add(1, Ordering::SeqCst) == 0;
        let result = if first { Err(Failure::retry("the first cleanup fails")) } else { Ok(Action::done()) };
        std::future::ready(result)
    });
    let run = tokio::spawn(Controller::new(factory.informer::<ConfigMap>()).run(work));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(diary.take(), "apply\n");
    let held = api.get("a").await.unwrap().metadata.finalizers;
    assert_eq!(held, Some(vec!["example.com/tidy".to_owned()]));
    api.delete("a", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(diary.take(), "cleanup\ncleanup\ngone\n");
    assert!(api.get_opt("a").await.unwrap().is_none());
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn apply_follows_the_finalizer_where_a_filter_drops_its_change() {
    let server = server();
    let (api, diary, factory) = (api(&server), Diary::default(), start(&server));
    create(&api, "a", "1").await;
    // ConfigMaps have no generation, so no update passes.
    let controller = Controller::new(factory.informer::<ConfigMap>()).filter(Predicate::generation());
    let run = tokio::spawn(controller.run(tidy(&api, &diary, nothing)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(diary.take(), "apply\n");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn changes_during_a_cleanup_do_not_bring_another() {
    let server = server();
    let (api, diary, factory) = (api(&server), Diary::default(), start(&server));
    let mut object = config_map("a", &[], &[]);
    object.metadata.finalizers = Some(vec!["example.com/tidy".to_owned(), "example.com/other".to_owned()]);
    api.create(&PostParams::default(), &object).await.unwrap();
    let client_api = api.clone();
    let work = tidy(&api, &diary, move |event| {
        let api = client_api.clone();
        async move {
            if let FinalizerEvent::Cleanup(_) = event {
                change(&api, "a", "2").await;
            }
            Ok(Action::done())
        }
    });
    let run = tokio::spawn(Controller::new(factory.informer::<ConfigMap>()).run(work));
    settle().await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(diary.take(), "apply\ncleanup\n");
    let held = api.get("a").await.unwrap().metadata.finalizers;
    assert_eq!(held, Some(vec!["example.com/other".to_owned()]), "only its own is taken off");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_the_cache_does_not_show_is_a_failure_and_no_loop() {
    let server = server();
    let (api, diary) = (api(&server), Diary::default());
    create(&api, "a", "1").await;
    let options = InformerOptions::default().cut(".metadata.finalizers".parse().unwrap());
    let factory = SharedInformerFactory::with_defaults(server.client(), options);
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(tidy(&api, &diary, nothing)));
    tokio::time::sleep(Duration::from_mins(10)).await;
    let stats = handle.stats();
    assert_eq!((stats.succeeded, diary.take().as_str()), (1, ""), "only the patch that put it on");
    assert!(stats.failed > 5 && stats.failed < 40, "tried later and later: {}", stats.failed);
    run.abort();
}
