//! Corners of the pipeline: what must hold although hardly anything depends on it in good weather.

mod common;
mod scenario;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::checked::Checked;
use common::client::client;
use common::{api, change, config_map, content, create, cut_off, weather, weather_of};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{DeleteParams, PostParams};
use kube_client::client::Body;
use kube_informer::controller::{Action, Context, Failure, FinalizerEvent, Request, WatchOptions, finalizer};
use kube_informer::delta_fifo::{Delta, DeltaFifo, DeltaType, KnownObjects, Scope};
use kube_informer::object::Entry;
use kube_informer::source::{
    CheckRequest, Histories, History, KubeSource, ListWatch, Script, ScriptedSource, SourceError, Witness,
};
use kube_informer::{Controller, InformerOptions, Kind, ObjectKey, SharedInformer, SharedInformerFactory};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, Verb};
use scenario::{Thing, paged, settle};
use serde_json::{Value, json};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_mins(1);

fn pods() -> Kind {
    Kind::new("v1", "Pod", "pods", true)
}

fn expired() -> String {
    format!("{}\n", json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}))
}

fn refused(code: u16, retry_after: Option<u64>) -> Script {
    Script::Fail(SourceError::from_response(code, b"{}", retry_after.map(Duration::from_secs)))
}

#[tokio::test(start_paused = true)]
async fn restore_that_was_proven_once_does_not_excuse_the_next_older_list() {
    let script = ScriptedSource::new();
    let source = Checked::new(&script, &[History::Other("proof"), History::Same]);
    script.lists(50, &[("a", 5)]);
    script.on_watch(Script::TextFor(String::new(), Duration::from_secs(3)));
    let first = script.live_watch();
    script.lists(30, &[("a", 5)]);
    let second = script.live_watch();
    let informer = SharedInformer::<Value>::over(pods(), source, paged());
    informer.start();
    tokio::time::sleep(MINUTE).await;
    drop(first);
    assert_eq!((informer.status()[0].counts.restores, informer.snapshot().version()), (1, Some(&30.into())));
    second.send(ScriptedSource::event("ADDED", "b", 60)).unwrap();
    tokio::time::sleep(MINUTE).await;
    // A replica that is behind.
    script.lists(40, &[("a", 5)]);
    second.send(expired()).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((informer.snapshot().len(), informer.status()[0].counts.restores), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn server_that_asks_to_wait_for_a_day_is_compared_sooner() {
    let script = ScriptedSource::new();
    let source = Checked::new(&script, &[History::Expired]);
    script.lists(5, &[("a", 5)]);
    script.on_watch(Script::TextFor(String::new(), Duration::from_secs(3)));
    script.on_watch(Script::TextThenSilence(String::new()));
    script.on_list(refused(429, Some(86_400)));
    for _ in 0..5 {
        script.on_watch(Script::TextFor(String::new(), 20 * MINUTE));
    }
    script.lists(6, &[("a", 5), ("b", 6)]);
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged());
    informer.start();
    tokio::time::sleep(15 * MINUTE).await;
    assert_eq!(informer.snapshot().len(), 2, "{} checks, {:?}", source.checks().len(), script.asked());
}

#[tokio::test(start_paused = true)]
async fn stop_during_an_outage_makes_no_copy_fresh() {
    let (_server, faults, _factory, informer) = weather().await;
    cut_off(&faults).await;
    tokio::time::sleep(10 * MINUTE).await;
    let before = informer.status()[0].staleness.unwrap();
    informer.stop().await;
    let after = informer.status()[0].staleness.unwrap();
    assert!(before >= 9 * MINUTE && after >= before, "{before:?} {after:?}");
}

#[tokio::test(start_paused = true)]
async fn events_whose_keys_cannot_be_read_cause_few_lists_for_as_long_as_they_come() {
    let (server, faults, _factory, informer) = weather_of(2, InformerOptions::default()).await;
    faults.inject(Rule::on(Fault::NoMetadata).verb(Verb::Watch));
    let mut lists = Vec::new();
    for _ in 0..3 {
        let before = informer.status()[0].counts.lists;
        for round in 0..300 {
            change(&api(&server), "a", &round.to_string()).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        lists.push(informer.status()[0].counts.lists - before);
    }
    assert!(lists.iter().all(|lists| (10..40).contains(lists)), "{lists:?} lists in ten minutes each");
}

#[tokio::test(start_paused = true)]
async fn polling_after_an_outage_is_as_slow_as_before_it() {
    let (_server, faults, _factory, informer) = weather().await;
    faults.inject(Rule::on(Fault::Forbidden).verb(Verb::Watch));
    faults.inject(Rule::on(Fault::InternalError).verb(Verb::List).until(5 * MINUTE));
    faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
    tokio::time::sleep(10 * MINUTE).await;
    let before = informer.status()[0].counts.lists;
    tokio::time::sleep(60 * MINUTE).await;
    let lists = informer.status()[0].counts.lists - before;
    assert!(informer.status()[0].polling && (100..150).contains(&lists), "{lists} lists in an hour");
}

#[tokio::test(start_paused = true)]
async fn check_does_not_hide_a_comparison_that_failed() {
    let script = ScriptedSource::new();
    let source = Checked::new(&script, &[History::Same]);
    script.lists(5, &[("a", 5)]);
    let first = script.live_watch();
    script.on_list(refused(500, None));
    let second = script.live_watch();
    let third = script.live_watch();
    let informer = SharedInformer::<Value>::over(pods(), source.clone(), paged().verify_every(2 * MINUTE));
    informer.start();
    tokio::time::sleep(3 * MINUTE).await;
    assert!(informer.status()[0].doubted_since.is_some(), "{:?}", informer.status());
    drop((first, second));
    tokio::time::sleep(MINUTE / 2).await;
    assert_eq!(source.checks().len(), 1);
    assert!(informer.status()[0].doubted_since.is_some(), "nothing was compared yet");
    drop(third);
}

#[tokio::test(start_paused = true)]
async fn answer_about_another_object_proves_nothing() {
    let server = ApiServer::builder().seed(1).build();
    create(&api(&server), "a", "1").await;
    let to = client({
        let server = server.clone();
        move |request| {
            let uri = request.uri().to_string();
            if let Some((path, query)) = uri.split_once('?') {
                let kept: Vec<&str> =
                    query.split('&').filter(|pair| !pair.starts_with("fieldSelector")).collect();
                *request.uri_mut() = format!("{path}?{}", kept.join("&")).parse().unwrap();
            }
            Ok(server.clone())
        }
    });
    let source = KubeSource::new(to, Kind::of::<ConfigMap>());
    let request = CheckRequest {
        version: server.revision().into(),
        lost_at: Instant::now(),
        resumed_at: Instant::now(),
        witness: Some(Witness { key: ObjectKey::namespaced("default", "gone"), state: None }),
        count: None,
        thorough: false,
    };
    assert_eq!(source.check(request).await.unwrap(), History::Unknown);
}

#[tokio::test(start_paused = true)]
async fn content_that_cannot_be_decoded_is_never_the_same() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    let list = |app: &str, version: &str| {
        Script::Text(format!(
            r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[{{"metadata":{{"name":"a","namespace":"x","uid":"u","resourceVersion":"5","labels":{{"app":"{app}"}}}},"spec":{deep}}}]}}"#
        ))
    };
    let script = ScriptedSource::new();
    let source = Checked::new(&script, &[History::Unknown]);
    script.on_list(list("old", "5"));
    script.on_watch(Script::TextFor(String::new(), Duration::from_secs(3)));
    let watch = script.live_watch();
    script.on_list(list("new", "6"));
    let informer = SharedInformer::<Value>::over(pods(), source, paged());
    informer.start();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(content(&informer), "a=old");
    watch.send(expired()).unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(content(&informer), "a=new");
}

fn foos(factory: &SharedInformerFactory) -> SharedInformer<Value> {
    let kind = Kind::new("example.com/v1", "Foo", "foos", true);
    factory.informer_of::<Value>(kind, InformerOptions::default()).unwrap()
}

fn counting(
    count: &Arc<AtomicUsize>,
) -> impl Fn(Request, Context<ConfigMap>) -> std::future::Ready<Result<Action, Failure>> + Send + Sync + 'static
{
    let count = Arc::clone(count);
    move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Action::requeue_after(MINUTE)))
    }
}

#[tokio::test(start_paused = true)]
async fn kind_that_is_only_read_and_missing_is_waited_for() {
    let (server, count) = (common::server(), Arc::default());
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new(factory.informer::<ConfigMap>()).reads(foos(&factory));
    let run = tokio::spawn(controller.run(counting(&count)));
    tokio::time::sleep(60 * MINUTE).await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn mark_that_comes_while_an_index_is_built_stays() {
    let script = ScriptedSource::new();
    script.lists(5, &[("x/a", 5)]);
    let watch = script.live_watch();
    let informer = SharedInformer::<Value>::over(pods(), script.clone(), paged());
    informer.start();
    informer.wait_for_sync().await.unwrap();
    settle().await;
    let ((begun, begins), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel::<()>());
    let goes_on = Mutex::new(goes_on);
    let building = std::thread::spawn({
        let informer = informer.clone();
        move || {
            informer
                .add_index("slow", move |_: &kube_informer::Object<Value>| {
                    begun.send(()).unwrap();
                    let _ = goes_on.lock().unwrap().recv();
                    Vec::<String>::new()
                })
                .unwrap();
        }
    });
    begins.recv().unwrap();
    let unreadable = json!({"metadata": {"name": "a", "namespace": "x", "uid": "uid-a", "resourceVersion": "6", "labels": 7}});
    watch.send(format!("{}\n", json!({"type": "MODIFIED", "object": unreadable}))).unwrap();
    settle().await;
    assert!(informer.snapshot().is_stale("x/a"), "while it is built");
    drop(go_on);
    building.join().unwrap();
    assert!(informer.snapshot().is_stale("x/a"), "once it is built");
}

#[tokio::test(start_paused = true)]
async fn conflicts_without_end_are_failures() {
    let server = common::server();
    let mut object = config_map("a", &[], &[]);
    object.metadata.finalizers = Some(vec!["example.com/tidy".into()]);
    api(&server).create(&PostParams::default(), &object).await.unwrap();
    let patches = Arc::new(AtomicUsize::new(0));
    let to = client({
        let (server, patches) = (server.clone(), Arc::clone(&patches));
        move |request| {
            if request.method() != http::Method::PATCH || patches.fetch_add(1, Ordering::SeqCst) > 1000 {
                return Ok(server.clone());
            }
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409, "reason": "Conflict", "message": "changed"});
            Err(Box::new(
                http::Response::builder()
                    .status(409)
                    .body(Body::from(status.to_string().into_bytes()))
                    .unwrap(),
            ))
        }
    });
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let handle = controller.handle();
    let busy: kube_client::Api<ConfigMap> = kube_client::Api::default_namespaced(to);
    let run = tokio::spawn(controller.run(move |request: Request, context: Context<ConfigMap>| {
        let busy = busy.clone();
        async move {
            let Some(object) = context.get(&request).filter(|object| object.name() == "a") else {
                return Ok(Action::done());
            };
            finalizer(&context, &busy, "example.com/tidy", object, |_: FinalizerEvent<ConfigMap>| async {
                Ok(Action::done())
            })
            .await
        }
    }));
    settle().await;
    api(&server).delete("a", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    run.abort();
    assert!(handle.stats().failed > 3, "{} patches", patches.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn object_of_another_kind_in_a_list_hides_no_delete() {
    let script = ScriptedSource::new();
    script.lists(5, &[("x/a", 5), ("x/b", 5)]);
    script.on_watch(Script::Text(expired()));
    let named = |name: &str| json!({"metadata": {"name": name, "namespace": "x", "uid": format!("uid-{name}"), "resourceVersion": "5"}});
    let mut other = named("c");
    other["apiVersion"] = json!("v1");
    other["kind"] = json!("Secret");
    let list = json!({"metadata": {"resourceVersion": "6"}, "items": [named("a"), other]});
    script.on_list(Script::Text(list.to_string()));
    let informer = SharedInformer::<Value>::over(pods(), script.clone(), paged());
    informer.start();
    tokio::time::sleep(MINUTE).await;
    let keys: Vec<String> = informer.snapshot().iter().map(|entry| entry.key().to_string()).collect();
    assert_eq!(keys, ["x/a"], "{:?}", script.asked());
}

#[tokio::test(start_paused = true)]
async fn kind_that_appears_beside_a_ready_source_pauses_the_workers() {
    let (faults, count) = (Faults::seeded(1), Arc::default());
    let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let own = factory
        .informer_with::<ConfigMap>(InformerOptions::default().namespace("default").changing_namespaces())
        .unwrap();
    let controller =
        Controller::new(own)
            .watches_with(foos(&factory), WatchOptions::default().optional(), |_| [ObjectKey::cluster("x")]);
    let run = tokio::spawn(controller.run(counting(&count)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(count.load(Ordering::SeqCst) > 0);
    // The server has the kind from now on, and does not show it.
    faults.inject(Rule::on(Fault::Forbidden).verb(Verb::List).verb(Verb::Watch).resource("foos"));
    tokio::time::sleep(5 * MINUTE).await;
    let paused_at = count.load(Ordering::SeqCst);
    tokio::time::sleep(30 * MINUTE).await;
    assert_eq!(count.load(Ordering::SeqCst), paused_at);
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn informers_at_one_version_share_a_check_of_a_server_that_is_behind() {
    let server = ApiServer::builder().seed(1).build();
    let source = KubeSource::new(server.client(), Kind::of::<ConfigMap>()).histories(Histories::default());
    let request = CheckRequest {
        version: 1_000_000.into(),
        lost_at: Instant::now(),
        resumed_at: Instant::now(),
        witness: None,
        count: None,
        thorough: false,
    };
    let begun = Instant::now();
    assert!(matches!(source.check(request.clone()).await, Ok(History::Other(_))));
    let asked = begun.elapsed();
    assert!(matches!(source.check(request).await, Ok(History::Other(_))));
    assert!(asked >= Duration::from_secs(5) && begun.elapsed() == asked, "{asked:?} {:?}", begun.elapsed());
}

struct Nothing;

impl KnownObjects for Nothing {
    fn known(&self, _: &Scope) -> Vec<Arc<Entry>> {
        Vec::new()
    }
    fn has(&self, _: &ObjectKey) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn room_of_deletes_that_nobody_needs_is_given_on() {
    let fifo = Arc::new(DeltaFifo::with_limit(Some(Arc::new(Nothing)), 1));
    fifo.put(&Scope::CLUSTER, Delta::new(DeltaType::Deleted, Thing::parse("a@1").entry())).await;
    let putting = tokio::spawn({
        let fifo = Arc::clone(&fifo);
        async move { fifo.put(&Scope::CLUSTER, Delta::new(DeltaType::Added, Thing::parse("b@2").entry())).await }
    });
    settle().await;
    let popped = fifo.pop(|key, _| Ok::<_, ()>(key.to_string()));
    let popped = tokio::time::timeout(MINUTE, popped).await;
    assert!(popped.is_ok(), "the change that waits for room never comes");
    putting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn owner_that_lost_an_object_and_got_it_back_is_reconciled() {
    let server = common::server();
    for name in ["a", "b"] {
        create(&api(&server), name, "1").await;
    }
    let thing = |name: &str, owner: &str, app: &str, version: u64| {
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner, "controller": true}]);
        json!({"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": version.to_string(), "labels": {"app": app}, "ownerReferences": owner}})
    };
    let script = ScriptedSource::new();
    let list = json!({"metadata": {"resourceVersion": "5"}, "items": [thing("filler", "b", "1", 4), thing("wanderer", "a", "1", 5)]});
    script.on_list(Script::Text(list.to_string()));
    let watch = script.live_watch();
    let things =
        SharedInformer::<Value>::over(Kind::new("example.org/v1", "Thing", "things", true), script, paged());
    let factory = SharedInformerFactory::new(server.client());
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&runs);
    let controller = Controller::new(factory.informer::<ConfigMap>())
        .buffer_len(1)
        .owns_filtered(things.clone(), kube_informer::controller::Predicate::labels());
    let run = tokio::spawn(controller.run(move |request: Request, _: Context<ConfigMap>| {
        seen.lock().unwrap().push(request.key.name().to_owned());
        std::future::ready(Ok(Action::done()))
    }));
    tokio::time::sleep(Duration::from_secs(1)).await;
    runs.lock().unwrap().clear();
    let event = |object: Value| format!("{}\n", json!({"type": "MODIFIED", "object": object}));
    let lines =
        [thing("filler", "b", "2", 6), thing("wanderer", "b", "2", 7), thing("wanderer", "a", "1", 8)];
    watch.send(lines.map(event).concat()).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    run.abort();
    let merged: u64 = things.stats().handlers.iter().map(|handler| handler.merged).sum();
    assert_eq!(merged, 1);
    assert!(runs.lock().unwrap().contains(&"a".to_owned()), "{:?}", runs.lock().unwrap());
}

/// A proxy answers watches itself, while lists do not reach the server.
#[tokio::test(start_paused = true)]
async fn lists_and_watches_that_fail_in_different_ways_are_retried_rarely() {
    for refusal in [Fault::Forbidden, Fault::MethodNotAllowed] {
        for outage in [Fault::Refuse, Fault::Unavailable] {
            let (_server, faults, _factory, informer) = weather().await;
            faults.inject(Rule::on(refusal).verb(Verb::Watch));
            faults.inject(Rule::on(outage).verb(Verb::List));
            faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
            tokio::time::sleep(10 * MINUTE).await;
            let before = informer.status()[0].counts;
            tokio::time::sleep(60 * MINUTE).await;
            let counts = informer.status()[0].counts;
            let (lists, watches) = (counts.lists - before.lists, counts.watches - before.watches);
            assert!(lists + watches < 600, "{refusal:?}, {outage:?}: {lists} lists and {watches} watches");
            faults.clear();
            tokio::time::sleep(MINUTE).await;
            assert_eq!(content(&informer), "a=1");
            informer.health(MINUTE).unwrap();
        }
    }
}
