//! The finalizer helper where patches are refused.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{api, config_map, create, server, settle};
use futures_core::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Api;
use kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_informer::controller::{Action, Context, Failure, FinalizerEvent, Request, finalizer};
use kube_informer::{Controller, SharedInformerFactory};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, Verb};
use serde_json::json;

const NAME: &str = "example.com/tidy";

/// Reconciles through this API; `cleanup` answers each cleanup, by number.
fn tidy(
    api: &Api<ConfigMap>,
    cleanup: impl Fn(usize) -> Action + Clone + Send + Sync + 'static,
) -> impl Fn(Request, Context<ConfigMap>) -> BoxFuture<'static, Result<Action, Failure>> + Send + Sync + 'static
{
    let (api, cleanups) = (api.clone(), Arc::new(AtomicUsize::new(0)));
    move |request, context| {
        let (api, cleanup, cleanups) = (api.clone(), cleanup.clone(), Arc::clone(&cleanups));
        Box::pin(async move {
            let Some(object) = context.get(&request) else { return Ok(Action::done()) };
            // The server has maps of its own in other namespaces.
            if object.name() == "kube-root-ca.crt" {
                return Ok(Action::done());
            }
            finalizer(&context, &api, NAME, object, |event| async move {
                match event {
                    FinalizerEvent::Apply(_) => Ok(Action::done()),
                    FinalizerEvent::Cleanup(_) => Ok(cleanup(cleanups.fetch_add(1, Ordering::SeqCst))),
                }
            })
            .await
        })
    }
}

/// Reconciles map `a`. During its cleanup, another client leaves only these finalizers and, if the map is gone then, may create
/// another one with the same name. The cleanup goes on for `pause`.
fn interfering(
    maps: &Api<ConfigMap>,
    left: &'static [&'static str],
    successor: Option<&'static [&'static str]>,
    pause: Duration,
) -> impl Fn(Request, Context<ConfigMap>) -> BoxFuture<'static, Result<Action, Failure>> + Send + Sync + 'static
{
    let maps = maps.clone();
    move |request, context| {
        let maps = maps.clone();
        Box::pin(async move {
            let Some(object) = context.get(&request) else { return Ok(Action::done()) };
            if object.name() != "a" {
                return Ok(Action::done());
            }
            finalizer(&context, &maps.clone(), NAME, object, |event| async move {
                if let FinalizerEvent::Cleanup(_) = event {
                    let patch = json!({"metadata": {"finalizers": left}});
                    maps.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await?;
                    if let Some(finalizers) = successor {
                        create_held(&maps, finalizers).await;
                    }
                    tokio::time::sleep(pause).await;
                }
                Ok(Action::done())
            })
            .await
        })
    }
}

async fn create_held(api: &Api<ConfigMap>, finalizers: &[&str]) {
    let mut object = config_map("a", &[], &[]);
    object.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
    api.create(&PostParams::default(), &object).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn conflicts_with_a_stale_cache_back_off_and_count_as_failures() {
    let faults = Faults::seeded(1);
    let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
    let api = api(&server);
    for number in 0..20 {
        create(&api, &format!("a{number}"), "1").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let handle = controller.handle();
    handle.pause();
    let run = tokio::spawn(controller.run(tidy(&api, |_| Action::done())));
    tokio::time::sleep(Duration::from_secs(1)).await;
    faults.inject(Rule::on(Fault::StallStream).verb(Verb::Watch).resource("configmaps"));
    settle().await;
    handle.resume();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (patches, stats) = (server.stats().resource("configmaps").patches, handle.stats());
    run.abort();
    assert!(patches <= 20 * 14, "{patches} patches in ten seconds for 20 objects");
    assert!(stats.failed >= 20, "each conflict is a failure: {} failed", stats.failed);
}

#[tokio::test(start_paused = true)]
async fn an_api_of_another_scope_is_a_failure_without_a_request() {
    let server = server();
    let elsewhere: Api<ConfigMap> = Api::namespaced(server.client(), "kube-public");
    create(&elsewhere, "a", "1").await;
    for wrong in [Api::<ConfigMap>::all(server.client()), api(&server)] {
        let factory = SharedInformerFactory::new(server.client());
        let controller = Controller::new(factory.informer::<ConfigMap>());
        let (handle, before) = (controller.handle(), server.stats().total().patches);
        let run = tokio::spawn(controller.run(tidy(&wrong, |_| Action::done())));
        tokio::time::sleep(Duration::from_mins(1)).await;
        run.abort();
        let (stats, patches) = (handle.stats(), server.stats().total().patches - before);
        assert!(stats.failed > 3 && stats.failed < 30, "retried with backoff: {} failed", stats.failed);
        assert_eq!(patches, 0, "an object of another namespace could have the same name");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_cannot_be_taken_off_is_a_failure() {
    // The API of another server, which does not have the object.
    let (server, another) = (server(), server());
    create_held(&api(&server), &[NAME]).await;
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(tidy(&api(&another), |_| Action::done())));
    settle().await;
    api(&server).delete("a", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_hours(1)).await;
    run.abort();
    let there = api(&server).get_opt("a").await.unwrap().is_some();
    assert!(there && handle.stats().failed > 5, "it stays, and that is a failure: {:?}", handle.stats());
}

/// Runs a controller that interferes, deletes map `a`, and returns how many reconciles failed within a minute.
async fn failures_of_a_cleanup(
    server: &ApiServer,
    left: &'static [&'static str],
    successor: Option<&'static [&'static str]>,
    pause: Duration,
) -> u64 {
    let maps = api(server);
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(interfering(&maps, left, successor, pause)));
    settle().await;
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    run.abort();
    handle.stats().failed
}

#[tokio::test(start_paused = true)]
async fn an_object_that_vanished_during_its_cleanup_needs_no_retry() {
    let server = server();
    create_held(&api(&server), &[NAME]).await;
    let failures = failures_of_a_cleanup(&server, &[], None, Duration::from_secs(1)).await;
    assert!(api(&server).get_opt("a").await.unwrap().is_none());
    assert_eq!(failures, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_that_still_runs_keeps_the_finalizer() {
    let server = server();
    let maps = api(&server);
    create_held(&maps, &[NAME]).await;
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let handle = controller.handle();
    let minute = Duration::from_mins(1);
    let run = tokio::spawn(controller.run(tidy(&maps, move |number| {
        if number < 3 { Action::cleanup_running(minute) } else { Action::done() }
    })));
    settle().await;
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(minute * 2 + Duration::from_secs(1)).await;
    let held = maps.get("a").await.unwrap().metadata.finalizers;
    assert_eq!(held, Some(vec![NAME.to_owned()]), "three cleanups, none of which has ended");
    tokio::time::sleep(minute).await;
    assert!(maps.get_opt("a").await.unwrap().is_none());
    assert_eq!(handle.stats().failed, 0);
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_others_took_off_meanwhile_is_not_put_on_again() {
    let server = server();
    create_held(&api(&server), &[NAME, "example.com/other"]).await;
    let failures = failures_of_a_cleanup(&server, &[NAME], None, Duration::ZERO).await;
    assert!(api(&server).get_opt("a").await.unwrap().is_none(), "it is gone");
    assert_eq!(failures, 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_took_the_place_of_the_one_cleaned_up_is_left_alone() {
    const SUCCESSOR: &[&str] = &[NAME, "example.com/other"];
    let server = server();
    create_held(&api(&server), &[NAME]).await;
    let failures = failures_of_a_cleanup(&server, &[], Some(SUCCESSOR), Duration::ZERO).await;
    let successor = api(&server).get("a").await.unwrap();
    assert_eq!(successor.metadata.finalizers.unwrap(), SUCCESSOR);
    let patches = server.stats().resource("configmaps").patches;
    assert_eq!(patches, 2, "one that frees the first, and one that is refused because the second is there");
    assert_eq!(failures, 0);
}
