//! Which changes reach a controller's queue: panics, restores from a backup, merged changes.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{api, change, create, server, settle};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_informer::controller::{Action, Context, Failure, Predicate, Request};
use kube_informer::source::ScriptedSource;
use kube_informer::{
    Controller, InformerOptions, Kind, Object, ObjectKey, SharedInformer, SharedInformerFactory,
};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, Verb};
use serde_json::{Value, json};

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

/// A kind whose events come all at once, faster than any trigger takes them.
struct Burst {
    informer: SharedInformer<Value>,
    watch: tokio::sync::mpsc::UnboundedSender<String>,
}

impl Burst {
    /// An object in the namespace `default` with a label and a controlling owner of this name.
    fn event(event: &str, name: &str, owner: &str, version: u64) -> String {
        let metadata = json!({
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
            "labels": {"app": owner},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": "u", "controller": true}],
        });
        format!("{}\n", json!({"type": event, "object": {"metadata": metadata}}))
    }

    fn new(kind: &str, objects: &[(&str, &str)]) -> Self {
        let source = ScriptedSource::new();
        let watch = source.live_watch();
        let kind = Kind::new("v1", kind, "things", true);
        let informer = SharedInformer::over(kind, source, InformerOptions::default());
        let end = json!({"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}});
        let mut text: String =
            objects.iter().map(|(name, owner)| Self::event("ADDED", name, owner, 1)).collect();
        text.push_str(&json!({"type": "BOOKMARK", "object": end}).to_string());
        text.push('\n');
        watch.send(text).unwrap();
        Self { informer, watch }
    }

    /// Sends changes in one piece, each of a name to an owner. The first object fills a buffer of one.
    fn changes(&self, changes: &[(&str, &str, &str)]) {
        self.changes_from(10, changes);
    }

    /// The wanderer changes owners.
    fn hops(&self, from: u64, owners: &[&str]) {
        let hops: Vec<_> = owners.iter().map(|owner| ("MODIFIED", "wanderer", *owner)).collect();
        self.changes_from(from, &hops);
    }

    fn changes_from(&self, from: u64, changes: &[(&str, &str, &str)]) {
        let filler = Self::event("MODIFIED", "filler", "filler", from);
        let changes = (from + 1..).zip(changes);
        let text = changes.map(|(version, (event, name, owner))| Self::event(event, name, owner, version));
        self.watch.send(filler + &text.collect::<String>()).unwrap();
    }
}

/// A controller of config maps with a buffer of one. Things map to them by label.
fn mapped(factory: &SharedInformerFactory, burst: &Burst) -> Controller<ConfigMap> {
    let key = |thing: &Object<Value>| [ObjectKey::namespaced("default", thing.label("app").unwrap())];
    Controller::new(factory.informer::<ConfigMap>()).buffer_len(1).watches(burst.informer.clone(), key)
}

/// Reconciles of config maps with these names, triggered by a burst of changes of things that they own or that map to them.
async fn keys_after(owned: bool, changes: &[(&str, &str, &str)]) -> Vec<String> {
    let server = server();
    let (factory, seen) = (SharedInformerFactory::new(server.client()), Seen::default());
    let burst = Burst::new("Thing", &[("filler", "filler"), ("wanderer", "a")]);
    let controller = if owned {
        Controller::new(factory.informer::<ConfigMap>()).buffer_len(1).owns(burst.informer.clone())
    } else {
        mapped(&factory, &burst)
    };
    let run = tokio::spawn(controller.run(seen.reconcile()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    seen.take();
    burst.changes(changes);
    tokio::time::sleep(Duration::from_secs(1)).await;
    run.abort();
    let stats = burst.informer.stats();
    assert!(stats.store.changes > 3, "the burst arrived: {stats:?}");
    let mut keys = seen.take();
    keys.retain(|key| key != "filler");
    keys.sort();
    keys.dedup();
    keys
}

#[tokio::test(start_paused = true)]
async fn every_owner_between_is_enqueued_when_changes_merge() {
    let hops = [("MODIFIED", "wanderer", "b"), ("MODIFIED", "wanderer", "c")];
    for owned in [true, false] {
        assert_eq!(keys_after(owned, &hops).await, ["a", "b", "c"], "owned: {owned}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_enqueued_when_its_object_came_and_went() {
    let unheard = [("ADDED", "guest", "b"), ("DELETED", "guest", "b")];
    let again = [("DELETED", "wanderer", "a"), ("ADDED", "wanderer", "b"), ("DELETED", "wanderer", "b")];
    for owned in [true, false] {
        assert_eq!(keys_after(owned, &unheard).await, ["b"], "owned: {owned}");
        assert_eq!(keys_after(owned, &again).await, ["a", "b"], "owned: {owned}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_key_is_enqueued_when_states_between_were_lost() {
    let server = server();
    for name in ["a", "b", "c", "d", "e", "uninvolved"] {
        create(&api(&server), name, "1").await;
    }
    let (factory, seen) = (SharedInformerFactory::new(server.client()), Seen::default());
    let burst = Burst::new("Thing", &[("filler", "filler"), ("wanderer", "a")]);
    let controller = mapped(&factory, &burst);
    let run = tokio::spawn(controller.run(seen.reconcile()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    seen.take();
    burst.hops(10, &["b", "c", "d", "e"]);
    tokio::time::sleep(Duration::from_mins(2)).await;
    let keys = seen.take();
    for owner in ["a", "b", "c", "d", "e"] {
        assert!(keys.contains(&owner.to_owned()), "{owner} does not know that it was an owner: {keys:?}");
    }
    let runs = keys.len();
    assert!(runs < 20, "{runs} runs: the queue merges what comes twice");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn states_that_are_lost_again_within_a_minute_enqueue_every_key() {
    let server = server();
    for name in ["a", "b", "c", "d"] {
        create(&api(&server), name, "1").await;
    }
    let (factory, seen) = (SharedInformerFactory::new(server.client()), Seen::default());
    let burst = Burst::new("Thing", &[("filler", "filler"), ("wanderer", "a")]);
    let controller = mapped(&factory, &burst);
    let run = tokio::spawn(controller.run(seen.reconcile()));
    let ten_seconds = Duration::from_secs(10);
    tokio::time::sleep(ten_seconds).await;
    burst.hops(10, &["b", "c", "d", "a"]);
    tokio::time::sleep(ten_seconds).await;
    burst.hops(20, &["b", "c", "d", "a"]);
    tokio::time::sleep(ten_seconds).await;
    // Runs of their own, and an object that is new.
    for name in ["a", "b", "c", "d"] {
        change(&api(&server), name, "2").await;
    }
    create(&api(&server), "new", "1").await;
    tokio::time::sleep(ten_seconds).await;
    seen.take();
    burst.hops(30, &["b", "c", "new", "d", "a"]);
    tokio::time::sleep(Duration::from_mins(2)).await;
    run.abort();
    let keys = seen.take();
    for owner in ["a", "b", "c", "d", "new"] {
        assert!(keys.contains(&owner.to_owned()), "{owner} does not know that it was an owner: {keys:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn merged_changes_pass_the_predicates() {
    let burst = Burst::new("Thing", &[("filler", "filler"), ("wanderer", "on")]);
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&runs);
    let controller = Controller::new(burst.informer.clone()).buffer_len(1).filter(Predicate::labels());
    let run = tokio::spawn(controller.run(move |request, _| {
        seen.lock().unwrap().push(request.key.name().to_owned());
        std::future::ready(Ok(Action::done()))
    }));
    tokio::time::sleep(Duration::from_secs(1)).await;
    runs.lock().unwrap().clear();
    burst.changes(&[("MODIFIED", "wanderer", "off"), ("MODIFIED", "wanderer", "on")]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    run.abort();
    let mut keys = runs.lock().unwrap().clone();
    keys.dedup();
    assert_eq!(keys, ["wanderer"], "a reconcile may have seen the state between");
}

#[tokio::test(start_paused = true)]
async fn states_that_are_lost_soon_after_others_are_made_up_for_as_well() {
    let server = server();
    create(&api(&server), "uninvolved", "1").await;
    let (factory, seen) = (SharedInformerFactory::new(server.client()), Seen::default());
    let burst = Burst::new("Thing", &[("filler", "filler"), ("wanderer", "a")]);
    let controller = mapped(&factory, &burst);
    let run = tokio::spawn(controller.run(seen.reconcile()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    for first in [10, 20] {
        seen.take();
        burst.hops(first, &["b", "c", "d", "e"]);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    seen.take();
    // The second time comes a minute after the first.
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(seen.take().contains(&"uninvolved".to_owned()));
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_change_that_an_untrusted_list_shows_passes_the_predicates() {
    let faults = Faults::seeded(1);
    let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
    let api = api(&server);
    create(&api, "a", "1").await;
    let (factory, seen) = (SharedInformerFactory::new(server.client()), Seen::default());
    let controller = Controller::new(factory.informer::<ConfigMap>()).filter(Predicate::generation());
    let run = tokio::spawn(controller.run(seen.reconcile()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Meanwhile the server may have been restored: an equal generation does not mean an equal object.
    faults.inject(Rule::on(Fault::Refuse).verb(Verb::Watch));
    faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch));
    tokio::time::sleep(Duration::from_secs(5)).await;
    change(&api, "a", "2").await;
    faults.clear();
    faults.inject(Rule::on(Fault::Gone).verb(Verb::Watch).times(1));
    tokio::time::sleep(Duration::from_mins(10)).await;
    run.abort();
    assert_eq!(seen.last("a").as_deref(), Some("2"));
}
