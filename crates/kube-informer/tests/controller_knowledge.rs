//! No reconcile begins before the sources were read, whoever polls `run`, and on several threads.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::{api, create, settle};
use futures_util::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::Api;
use kube_client::api::PostParams;
use kube_informer::controller::{Action, Context, Request, SourceState, WatchOptions};
use kube_informer::workqueue::Cause;
use kube_informer::{Controller, InformerOptions, ObjectKey, SharedInformer, SharedInformerFactory};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, Verb};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// A server with one config map, on which the secrets of one namespace cannot be read, and an informer of other secrets.
async fn with_a_closed_namespace() -> (SharedInformerFactory, SharedInformer<Secret>) {
    let closed = Rule::on(Fault::Forbidden).verb(Verb::List).verb(Verb::Watch).resource("secrets");
    let faults = Faults::seeded(1).rule(closed.namespace("closed"));
    let server = ApiServer::builder().seed(1).faults(faults).build();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let options = InformerOptions::default().namespace("default").changing_namespaces();
    let secrets = factory.informer_with(options).unwrap();
    (factory, secrets)
}

/// As in a loop of `select!`: while the body of another branch runs, `run` is not polled, but its workers are.
#[tokio::test(start_paused = true)]
async fn no_worker_acts_on_a_namespace_that_was_added_while_nobody_polls_run() {
    let (factory, secrets) = with_a_closed_namespace().await;
    let controller = Controller::new(factory.informer::<ConfigMap>()).owns(secrets.clone());
    let (early, read) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, all, parts) = (Arc::clone(&early), Arc::clone(&read), secrets.clone());
    let mut run = controller
        .run(move |_: Request, _: Context<ConfigMap>| {
            let unread = parts.status().iter().any(|part| part.scope.to_string().contains("closed"));
            counted.fetch_add(usize::from(unread), Ordering::SeqCst);
            all.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(Action::requeue_after(10 * SECOND)))
        })
        .boxed();
    tokio::select! {
        ended = &mut run => panic!("{ended:?}"),
        () = tokio::time::sleep(MINUTE) => {
            secrets.set_namespaces(["default", "closed"]).await.unwrap();
            tokio::time::sleep(MINUTE).await;
        }
    }
    assert!(read.load(Ordering::SeqCst) > 3, "the controller works before that");
    assert_eq!(early.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn no_worker_acts_on_a_copy_that_was_shut_down_while_nobody_polls_run() {
    let server = common::server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut run = Controller::new(factory.informer::<ConfigMap>())
        .run(move |_: Request, _: Context<ConfigMap>| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(Action::requeue_after(10 * SECOND)))
        })
        .boxed();
    tokio::select! {
        ended = &mut run => panic!("{ended:?}"),
        () = tokio::time::sleep(MINUTE) => {}
    }
    factory.shutdown().await.unwrap();
    let before = runs.load(Ordering::SeqCst);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs.load(Ordering::SeqCst), before);
    // The key that a worker holds does not delay the end.
    let asked = Instant::now();
    assert!(run.await.unwrap_err().to_string().contains("ConfigMap"));
    assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
}

/// A `stop` that nobody awaits has stopped the informer all the same.
#[tokio::test(start_paused = true)]
async fn controller_waits_for_an_informer_that_was_stopped_and_started_unseen() {
    let faults = Faults::none();
    let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let secrets = factory.informer::<Secret>();
    let controller = Controller::new(factory.informer::<ConfigMap>()).owns(secrets.clone());
    let handle = controller.handle();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let run = tokio::spawn(controller.run(move |_: Request, _: Context<ConfigMap>| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Action::requeue_after(10 * SECOND)))
    }));
    tokio::time::sleep(MINUTE).await;
    faults.inject(Rule::on(Fault::Forbidden).resource("secrets"));
    let _ = secrets.stop().now_or_never();
    secrets.start();
    settle().await;
    let before = runs.load(Ordering::SeqCst);
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(runs.load(Ordering::SeqCst), before);
    let states = handle.stats().sources;
    assert!(states.iter().any(|source| matches!(source.state, SourceState::Waiting { .. })), "{states:?}");
    faults.clear();
    tokio::time::sleep(2 * MINUTE).await;
    assert!(runs.load(Ordering::SeqCst) > before + 3);
    run.abort();
}

#[test]
fn no_key_that_is_added_after_a_namespace_is_reconciled_before_it_was_read() {
    const ROUNDS: usize = 100;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let (factory, secrets) = with_a_closed_namespace().await;
        let controller = Controller::new(factory.informer::<ConfigMap>()).owns(secrets.clone()).workers(4);
        let handle = controller.handle();
        let (ran, mut runs) = tokio::sync::watch::channel(0);
        let closed = Arc::new(AtomicBool::new(false));
        let (is_closed, early) = (Arc::clone(&closed), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&early);
        let run = tokio::spawn(controller.run(move |_: Request, _: Context<ConfigMap>| {
            counted.fetch_add(usize::from(is_closed.load(Ordering::SeqCst)), Ordering::SeqCst);
            ran.send_modify(|runs| *runs += 1);
            std::future::ready(Ok(Action::done()))
        }));
        runs.wait_for(|runs| *runs > 0).await.unwrap();
        for _ in 0..ROUNDS {
            secrets.set_namespaces(["default", "closed"]).await.unwrap();
            closed.store(true, Ordering::SeqCst);
            let before = *runs.borrow();
            handle.enqueue(ObjectKey::namespaced("default", "a"), Cause::new("test", "asked"));
            // Some turns for the workers, in which they must do nothing.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            closed.store(false, Ordering::SeqCst);
            secrets.set_namespaces(["default"]).await.unwrap();
            runs.wait_for(|runs| *runs > before).await.unwrap();
        }
        run.abort();
        assert_eq!(early.load(Ordering::SeqCst), 0);
    });
}

/// A worker that has taken a key waits for a namespace; a pause that begins meanwhile, as when a lease is lost, holds for it, too.
#[tokio::test(start_paused = true)]
async fn no_reconcile_begins_in_a_pause_though_its_key_was_taken_before() {
    let (factory, secrets) = with_a_closed_namespace().await;
    let controller = Controller::new(factory.informer::<ConfigMap>()).owns(secrets.clone());
    let (handle, runs) = (controller.handle(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&runs);
    let mut run = controller
        .run(move |_: Request, _: Context<ConfigMap>| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(Action::done()))
        })
        .boxed();
    tokio::select! {
        ended = &mut run => panic!("{ended:?}"),
        () = tokio::time::sleep(MINUTE) => {}
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    secrets.set_namespaces(["default", "closed"]).await.unwrap();
    handle.enqueue(ObjectKey::namespaced("default", "a"), Cause::new("test", "asked"));
    tokio::time::sleep(SECOND).await;
    handle.pause();
    secrets.set_namespaces(["default"]).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    handle.resume();
    settle().await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// 404 for a second, and then an outage: the server has not said for five seconds that it does not have the kind.
#[tokio::test(start_paused = true)]
async fn outage_after_404s_does_not_make_a_kind_absent() {
    for fault in [Fault::Unavailable, Fault::Refuse, Fault::Unauthorized] {
        let answer = |fault| Rule::on(fault).verb(Verb::List).verb(Verb::Watch).resource("secrets");
        let faults = Faults::seeded(1)
            .rule(answer(Fault::NotFound).until(SECOND))
            .rule(answer(fault).from(SECOND).until(MINUTE));
        let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
        create(&api(&server), "a", "1").await;
        let mut secret = Secret::default();
        secret.metadata.name = Some("s".into());
        Api::default_namespaced(server.client()).create(&PostParams::default(), &secret).await.unwrap();
        let factory = SharedInformerFactory::new(server.client());
        let secrets = factory.informer::<Secret>();
        let (begun, lister) = (Instant::now(), secrets.lister());
        let runs = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&runs);
        let optional = WatchOptions::default().optional();
        let controller =
            Controller::new(factory.informer::<ConfigMap>())
                .watches_with(secrets, optional, |secret| [secret.key().clone()]);
        let run = tokio::spawn(controller.run(move |_: Request, _: Context<ConfigMap>| {
            noted.lock().unwrap().push((lister.count(), begun.elapsed()));
            std::future::ready(Ok(Action::done()))
        }));
        tokio::time::sleep(2 * MINUTE).await;
        run.abort();
        assert!(faults.count(Fault::NotFound) >= 2);
        let runs = runs.lock().unwrap();
        assert!(!runs.is_empty() && runs.iter().all(|(secrets, _)| *secrets == 1), "{fault:?}: {runs:?}");
    }
}

/// Such as a controller that asks for the time until a certificate expires, which was a minute ago.
#[test]
fn reconciles_that_never_wait_leave_turns_to_others() {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let server = common::server();
            create(&api(&server), "a", "1").await;
            let factory = SharedInformerFactory::new(server.client());
            let (ran, mut runs) = tokio::sync::watch::channel(0_u32);
            let enough = async move {
                let _ = runs.wait_for(|runs| *runs >= 1000).await;
            };
            let controller = Controller::new(factory.informer::<ConfigMap>()).shutdown_on(enough);
            let result = controller
                .run(move |_, _| {
                    ran.send_modify(|runs| *runs += 1);
                    std::future::ready(Ok(Action::requeue_after(Duration::ZERO)))
                })
                .await;
            let _ = done.send(result);
        });
    });
    // A hang is seen after this time; no shorter time is asserted.
    let ended = ended.recv_timeout(2 * MINUTE);
    assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
}
