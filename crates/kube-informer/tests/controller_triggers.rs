//! Which changes reach a controller's queue: panics, restores from a backup, merged changes.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{api, change, create, server, settle};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_informer::controller::{Action, Context, Failure, Predicate, Request};
use kube_informer::{Controller, ObjectKey, SharedInformerFactory};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, Verb};

/// The key of a reconcile, with the object's label `app` at that time.
type Look = (String, Option<String>);

/// All reconciles.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Look>>>);

impl Seen {
    fn reconcile(
        &self,
    ) -> impl Fn(Request, Context<ConfigMap>) -> std::future::Ready<Result<Action, Failure>> + Send + Sync + 'static
    {
        let seen = self.clone();
        move |request, context| {
            let app = context.get(&request).and_then(|map| map.label("app").map(str::to_owned));
            seen.0.lock().unwrap().push((request.key.name().to_owned(), app));
            std::future::ready(Ok(Action::done()))
        }
    }

    fn last(&self, name: &str) -> Option<String> {
        let seen = self.0.lock().unwrap();
        seen.iter().rev().find(|(key, _)| key == name).and_then(|(_, app)| app.clone())
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap()).into_iter().map(|(key, _)| key).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_predicate_that_panics_lets_the_change_pass() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "1").await;
    let (factory, seen) = (SharedInformerFactory::new(server.client()), Seen::default());
    let fragile = Predicate::new("fragile", |change| {
        let new = change.new.expect("there");
        new.label("app") != Some("2") || new.label("team").expect("everybody has a team") == "red"
    });
    // Neither a second filter nor a negation may turn the panic into a drop.
    let controller = Controller::new(factory.informer::<ConfigMap>())
        .filter(fragile.not().not())
        .filter(Predicate::resource_version());
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(seen.reconcile()));
    settle().await;
    change(&api, "a", "2").await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    run.abort();
    assert_eq!(seen.last("a").as_deref(), Some("2"), "state 2 is never reconciled");
    assert_eq!(handle.stats().predicate_panics, [("not not fragile".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_mapping_that_panics_about_one_state_keeps_the_keys_of_the_other() {
    let server = server();
    let api = api(&server);
    create(&api, "a", "old").await;
    create(&api, "other", "other").await;
    let (factory, seen) = (SharedInformerFactory::new(server.client()), Seen::default());
    let controller = Controller::new(factory.informer::<ConfigMap>())
        .filter(Predicate::new("nothing", |_| false))
        .watches(factory.informer::<ConfigMap>(), |map| {
            let app = map.label("app").unwrap().to_owned();
            assert!(app != "new", "on purpose");
            [ObjectKey::namespaced("default", &app)]
        });
    let handle = controller.handle();
    let run = tokio::spawn(controller.run(seen.reconcile()));
    settle().await;
    assert_eq!(seen.take(), ["old", "other"]);
    change(&api, "a", "new").await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    run.abort();
    let keys = seen.take();
    assert!(keys.contains(&"old".to_owned()), "the object has left this key: {keys:?}");
    assert_eq!(handle.stats().sources[1].panics, 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_by_a_restore_passes_the_predicates() {
    for predicate in [Predicate::resource_version(), Predicate::generation(), Predicate::annotations()] {
        let faults = Faults::seeded(1);
        let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
        let api = api(&server);
        create(&api, "a", "1").await;
        create(&api, "z", "1").await;
        let (factory, seen) = (SharedInformerFactory::new(server.client()), Seen::default());
        let maps = factory.informer::<ConfigMap>();
        let name = predicate.name().to_owned();
        let run = tokio::spawn(Controller::new(maps.clone()).filter(predicate).run(seen.reconcile()));
        settle().await;
        let backup = server.backup();
        change(&api, "a", "2").await;
        for number in 0..5 {
            change(&api, "z", &format!("{number}")).await;
        }
        settle().await;
        server.restore(&backup);
        // The same resource version as state 2 had.
        change(&api, "a", "3").await;
        faults.inject(Rule::on(Fault::Gone).verb(Verb::Watch).times(2));
        tokio::time::sleep(Duration::from_hours(2)).await;
        run.abort();
        let cached = maps.lister().get("default/a").and_then(|map| map.label("app").map(str::to_owned));
        assert_eq!(cached.as_deref(), Some("3"), "the cache");
        assert_eq!(seen.last("a"), cached, "{name}: the cached state was reconciled last");
    }
}
