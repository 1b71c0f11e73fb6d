//! What a controller does with reconciles that fail, again and again.

mod common;

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{api, change, create, server};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{Patch, PatchParams};
use kube_informer::controller::{Action, Failure};
use kube_informer::workqueue::RateLimit;
use kube_informer::{Controller, SharedInformerFactory};
use serde_json::json;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn many_failing_keys_share_an_overall_limit_by_default() {
    let server = server();
    let api = api(&server);
    for number in 0..2_000 {
        create(&api, &format!("a{number}"), "1").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new(factory.informer::<ConfigMap>()).workers(16);
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(|_, _| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Err::<Action, _>(Failure::retry("503"))
    }));
    tokio::time::sleep(10 * SECOND).await;
    let failed = handle.stats().failed;
    run.abort();
    assert!(failed >= 2_000, "first runs are not held back: {failed}");
    assert!(failed <= 2_000 + 100 + 100, "each key once, a burst of 100, 10 a second: {failed}");
}

#[tokio::test(start_paused = true)]
async fn keys_that_fail_together_are_not_retried_together_by_default() {
    let server = server();
    let api = api(&server);
    for number in 0..20 {
        create(&api, &format!("a{number}"), "1").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new(factory.informer::<ConfigMap>()).workers(20);
    let moments = Arc::new(Mutex::new(Vec::new()));
    let (noted, start) = (Arc::clone(&moments), Instant::now());
    let run = tokio::spawn(controller.run(move |request, _| {
        if request.failures == 4 {
            noted.lock().unwrap().push(start.elapsed());
        }
        std::future::ready(Err(Failure::retry("503")))
    }));
    tokio::time::sleep(5 * SECOND).await;
    run.abort();
    let mut moments = moments.lock().unwrap().clone();
    assert_eq!(moments.len(), 20);
    moments.sort_unstable();
    moments.dedup();
    // Twenty draws from some twenty milliseconds: without jitter there is one moment.
    assert!(moments.len() >= 5, "the same delays for all: {moments:?}");
}

/// Panics where it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_whose_payload_panics_costs_no_worker() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let controller =
        Controller::new(factory.informer::<ConfigMap>()).retry(RateLimit::exponential(SECOND, SECOND));
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(|_, _| async { std::panic::panic_any(Bomb) }));
    tokio::time::sleep(Duration::from_millis(9_500)).await;
    let (alive, stats) = (!run.is_finished(), handle.stats());
    run.abort();
    assert_eq!((alive, stats.panicked), (true, 10), "the one worker goes on");
}

#[tokio::test(start_paused = true)]
async fn a_requeued_reconcile_has_a_reason() {
    let server = server();
    create(&api(&server), "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&reasons);
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let run = tokio::spawn(controller.run(move |request, _| {
        let reason = request.reasons.first().map(|reason| format!("{} {}", reason.source, reason.event));
        noted.lock().unwrap().push(reason.unwrap_or_default());
        std::future::ready(Ok(Action::requeue_after(SECOND)))
    }));
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    run.abort();
    assert_eq!(*reasons.lock().unwrap(), ["ConfigMap added", "worker requeued", "worker requeued"]);
}

/// A reconcile that writes its failure into the object, so that each run brings an event for the next.
#[tokio::test(start_paused = true)]
async fn a_reconcile_that_writes_its_failure_backs_off() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    let factory = SharedInformerFactory::new(server.client());
    let (runs, failures) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (counted, most) = (Arc::clone(&runs), Arc::clone(&failures));
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let writer = api.clone();
    let run = tokio::spawn(controller.run(move |request, _| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        most.fetch_max(request.failures, Ordering::SeqCst);
        let api = writer.clone();
        async move {
            // Every write takes a millisecond, and there are at most as many as a broken limit would let through.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let patch = json!({"metadata": {"annotations": {"failed": number.to_string()}}});
            api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await?;
            Err::<Action, _>(Failure::retry("no luck"))
        }
    }));
    tokio::time::sleep(3 * SECOND).await;
    let early = runs.load(Ordering::SeqCst);
    tokio::time::sleep(60 * SECOND).await;
    run.abort();
    let (runs, failures) = (runs.load(Ordering::SeqCst), failures.load(Ordering::SeqCst));
    assert_eq!(failures + 1, runs, "every failed run is counted");
    assert!(early < 30, "{early} runs in 3 s");
    assert!(runs < 30 + 70, "{runs} runs in a minute: at most one a second after the first seconds");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_failing_object_is_reconciled_within_a_second() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "broken").await;
    let factory = SharedInformerFactory::new(server.client());
    let fixed = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&fixed);
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let run = tokio::spawn(controller.run(move |request, context| {
        counted.fetch_add(1, Ordering::SeqCst);
        let app = context.get(&request).and_then(|map| map.label("app").map(str::to_owned));
        let result = if app.as_deref() == Some("fixed") {
            *noted.lock().unwrap() = Some(Instant::now());
            Ok(Action::done())
        } else {
            Err(Failure::retry("broken"))
        };
        std::future::ready(result)
    }));
    // It has failed for an hour, so the next retry is minutes away; noise has made it run early many times.
    tokio::time::sleep(3600 * SECOND).await;
    for number in 0..100 {
        change(&api, "a", &format!("noise-{number}")).await;
        tokio::time::sleep(SECOND / 10).await;
    }
    change(&api, "a", "fixed").await;
    let changed = Instant::now();
    tokio::time::sleep(2 * SECOND).await;
    run.abort();
    let fixed = fixed.lock().unwrap().expect("the change is reconciled");
    assert!(fixed - changed <= SECOND, "reconciled {:?} after the change", fixed - changed);
}
