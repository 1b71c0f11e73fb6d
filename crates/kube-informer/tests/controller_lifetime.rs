//! How controllers begin and end: paused, dropped, stopped at any moment, with sources that fail or were shut down.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{api, create, server, settle};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_informer::controller::{Action, Context, ControllerError, ControllerStats, Failure, Request};
use kube_informer::workqueue::{Cause, RateLimit};
use kube_informer::{Controller, InformerOptions, ObjectKey, SharedInformerFactory};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, Verb};
use tokio::sync::Notify;

/// Counts reconciles and does nothing else.
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
            std::future::ready(Ok(Action::done()))
        }
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_paused_before_it_runs_begins_paused_and_keeps_what_was_asked_for() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let (controller, count) = (Controller::new(factory.informer::<ConfigMap>()), Count::default());
    let handle = controller.handle();
    handle.pause();
    handle.enqueue(key("b"), Cause::new("test", "asked"));
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((count.now(), handle.stats().queue.depth), (0, 2));
    handle.resume();
    settle().await;
    assert_eq!(count.now(), 2);
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_outlives_its_controller_gathers_nothing() {
    let server = server();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let never_run = Controller::new(factory.informer::<ConfigMap>());
    let handles = [controller.handle(), never_run.handle()];
    let run = tokio::spawn(controller.run(Count::default().reconcile()));
    settle().await;
    run.abort();
    drop(never_run);
    settle().await;
    for handle in handles {
        handle.enqueue(key("a"), Cause::new("test", "asked"));
        assert_eq!(handle.stats().queue.depth, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_ends_its_reconciles_its_watches_and_its_handlers() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let alive = Arc::new(());
    let held = Arc::downgrade(&alive);
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(move |_, _| {
        let alive = Arc::clone(&alive);
        async move {
            std::future::pending::<()>().await;
            drop(alive);
            Ok(Action::done())
        }
    }));
    settle().await;
    assert_eq!(handle.stats().running, [key("a")]);
    run.abort();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(held.strong_count(), 0, "nothing of the reconcile is left");
    assert!(handle.stats().running.is_empty());
    assert_eq!((server.stats().open_watches, factory.running_tasks()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_before_every_source_is_ready_ends_the_controller_at_once() {
    let stalled = Rule::on(Fault::Stall).resource("secrets");
    let server = ApiServer::builder().seed(1).faults(Faults::seeded(1).rule(stalled)).build();
    let (factory, count) = (SharedInformerFactory::new(server.client()), Count::default());
    create(&api(&server), "a", "1").await;
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let controller = Controller::new(factory.informer::<ConfigMap>())
        .owns(factory.informer::<Secret>())
        .shutdown_on(async move { stopped.notified().await });
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_mins(10)).await;
    stop.notify_one();
    settle().await;
    assert!(run.is_finished());
    assert_eq!((run.await.unwrap(), count.now()), (Ok(()), 0));
}

/// Half of what is there is no ground to act on: one that deletes what it does not find would delete everything.
#[tokio::test(start_paused = true)]
async fn an_outage_of_a_source_is_waited_for() {
    let outage = Rule::on(Fault::Unavailable).verb(Verb::List).verb(Verb::Watch).resource("secrets");
    let outage = outage.until(Duration::from_mins(3));
    let server = ApiServer::builder().seed(1).faults(Faults::seeded(1).rule(outage)).build();
    let (factory, count) = (SharedInformerFactory::new(server.client()), Count::default());
    create(&api(&server), "a", "1").await;
    let controller = Controller::new(factory.informer::<ConfigMap>()).owns(factory.informer::<Secret>());
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_secs(179)).await;
    assert_eq!(count.now(), 0);
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert_eq!(count.now(), 1);
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_shut_down_before_it_was_read_ends_the_controller() {
    let outage = Rule::on(Fault::Unavailable).verb(Verb::List).verb(Verb::Watch).resource("secrets");
    let server = ApiServer::builder().seed(1).faults(Faults::seeded(1).rule(outage)).build();
    let (factory, count) = (SharedInformerFactory::new(server.client()), Count::default());
    create(&api(&server), "a", "1").await;
    let controller = Controller::new(factory.informer::<ConfigMap>()).owns(factory.informer::<Secret>());
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_secs(10)).await;
    factory.shutdown().await.unwrap();
    settle().await;
    assert!(run.is_finished());
    assert!(matches!(run.await.unwrap(), Err(ControllerError::SourceStopped { .. })));
    assert_eq!(count.now(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_namespace_and_an_unavailable_one_are_both_waited_for() {
    let requests = |fault| Rule::on(fault).verb(Verb::List).verb(Verb::Watch).resource("configmaps");
    let faults = Faults::seeded(1)
        .rule(requests(Fault::Forbidden).namespace("kube-system").until(Duration::from_mins(3)))
        .rule(requests(Fault::Unavailable).namespace("default").until(Duration::from_mins(1)));
    let server = ApiServer::builder().seed(1).faults(faults).build();
    let (factory, count) = (SharedInformerFactory::new(server.client()), Count::default());
    create(&api(&server), "a", "1").await;
    let options = InformerOptions::default().namespace("kube-system").namespace("default");
    let maps = factory.informer_with::<ConfigMap>(options).unwrap();
    let controller = Controller::new(maps);
    let handle = controller.handle();
    handle.enqueue(key("early"), Cause::new("test", "asked"));
    let run = tokio::spawn(controller.run(count.reconcile()));
    tokio::time::sleep(Duration::from_secs(179)).await;
    assert_eq!(count.now(), 0, "acting on a partial cache is unsafe");
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(count.now(), 2);
    run.abort();
}

/// Panics where it is shown.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("on purpose");
    }
}

impl std::error::Error for Unspeakable {}

/// What one worker comes to in so long, on one object, with a limit of a second and retries after another.
async fn work_for<F, Fut>(time: Duration, reconcile: F) -> ControllerStats
where
    F: Fn(Request, Context<ConfigMap>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, Failure>> + Send + 'static,
{
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let second = Duration::from_secs(1);
    let controller = Controller::new(factory.informer::<ConfigMap>())
        .reconcile_limit(second)
        .retry(RateLimit::exponential(second, second));
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(reconcile));
    tokio::time::sleep(time).await;
    run.abort();
    handle.stats()
}

#[tokio::test(start_paused = true)]
async fn an_error_that_panics_where_it_is_shown_costs_no_worker() {
    let unspeakable = |_, _| std::future::ready(Err(Failure::from(Unspeakable)));
    let stats = work_for(Duration::from_millis(9_500), unspeakable).await;
    assert_eq!(stats.panicked, 10, "the one worker goes on");
}

/// Panics where it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_what_a_reconcile_leaves_behind_costs_no_worker() {
    let explosive = |_, _| async {
        let _bomb = Bomb;
        std::future::pending::<Result<Action, Failure>>().await
    };
    let stats = work_for(Duration::from_secs(20), explosive).await;
    assert_eq!((stats.panicked, stats.timed_out), (10, 0), "the one worker goes on");
}

#[tokio::test(start_paused = true)]
async fn callbacks_only_enqueue_and_are_never_held_up_by_workers() {
    let server = server();
    let factory = SharedInformerFactory::new(server.client());
    let maps = factory.informer::<ConfigMap>();
    let controller = Controller::new(maps.clone()).workers(3);
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(|_, _| std::future::pending::<Result<Action, Failure>>()));
    settle().await;
    for number in 0..100 {
        create(&api(&server), &format!("map-{number}"), "1").await;
    }
    settle().await;
    let stats = handle.stats();
    assert_eq!(
        (stats.running.len(), stats.queue.depth),
        (3, 97),
        "as many as there are workers, the rest waits"
    );
    assert!(maps.stats().handlers.iter().all(|handler| handler.depth == 0), "no callback is held up");
    run.abort();
}
