//! The controller under test: a deployment owns as many config maps as it has replicas and one for each ticket that it holds.
//! It has a secret that nobody owns and that its finalizer removes, and its status says what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube_client::{Client, Error};
use kube_informer::controller::{Action, Context, Failure, FinalizerEvent, Request, finalizer};
use kube_informer::{Lister, Object, ObjectKey};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::judge::Judge;
use super::ledger::{KINDS, Ledger, Outcome};
use super::ticket;

/// What a child says, unless somebody has spoilt it.
pub const TEXT: &str = "as it should be";

/// When the cache is to show a child that was made.
const SHOWN_BY: Duration = Duration::from_secs(30);

/// What one controller works with.
pub struct Operator {
    pub client: Client,
    pub children: Lister<ConfigMap>,
    pub tickets: Lister<Value>,
    pub mishaps: Arc<Mishaps>,
    pub judge: Arc<Judge>,
    pub ledger: Arc<Ledger>,
    /// The keys in work, to see that each is there once.
    pub in_work: Mutex<Vec<ObjectKey>>,
    /// How often a cleanup says that it still runs, and how often it has, by uid.
    pub cleanup_rounds: u32,
    pub rounds: Mutex<BTreeMap<String, u32>>,
}

/// What goes wrong in reconciles themselves, and what they have met.
pub struct Mishaps {
    pub random: Mutex<fastrand::Rng>,
    /// Of a thousand.
    pub panics: u32,
    pub until: Instant,
    pub reconciles: AtomicU64,
    pub panicked: AtomicU64,
    pub conflicts: AtomicU64,
}

impl Mishaps {
    /// Panics now and then.
    fn look_out(&self) {
        let unlucky = self.random.lock().expect("nobody panics with it").u32(0..1000) < self.panics;
        if unlucky && Instant::now() < self.until {
            self.panicked.fetch_add(1, Ordering::Relaxed);
            panic!("simulated");
        }
    }
}

pub async fn reconcile(
    operator: Arc<Operator>,
    request: Request,
    context: Context<Deployment>,
) -> Result<Action, Failure> {
    let run = Run::begin(&operator, &request, &context);
    operator.mishaps.reconciles.fetch_add(1, Ordering::Relaxed);
    operator.mishaps.look_out();
    let Some(parent) = context.get(&request) else { return run.end(Ok(Action::done()), false) };
    let (api, uid): (Api<Deployment>, _) =
        (Api::default_namespaced(operator.client.clone()), parent.uid().clone());
    let result = finalizer(&context, &api, "example.com/secret", parent, |event| async {
        match event {
            FinalizerEvent::Apply(parent) => operator.apply(&parent).await,
            FinalizerEvent::Cleanup(parent) => operator.clean_up(&parent).await,
        }
    })
    .await;
    let code = |failure: &Failure| match failure.error().downcast_ref::<Error>() {
        Some(Error::Api(status)) => Some(status.code),
        _ => None,
    };
    if result.as_ref().is_err_and(|failure| code(failure) == Some(409)) {
        operator.mishaps.conflicts.fetch_add(1, Ordering::Relaxed);
    }
    let cached = context.get(&request).is_some_and(|cached| *cached.uid() == uid);
    run.end(result, cached)
}

impl Operator {
    async fn apply(&self, parent: &Object<Deployment>) -> Result<Action, Failure> {
        self.judge.applied(&parent.uid().to_string());
        let secrets: Api<Secret> = Api::default_namespaced(self.client.clone());
        let maps: Api<ConfigMap> = Api::default_namespaced(self.client.clone());
        let secret = serde_json::from_value(json!({"metadata": {"name": parent.name()}}))?;
        unless(409, secrets.create(&PostParams::default(), &secret).await)?;
        self.mishaps.look_out();

        let deployment = parent.get()?;
        let wanted = deployment.spec.replicas.unwrap_or(1);
        let (mut complete, mut unseen) = (true, false);
        let names = self.wanted(parent, wanted);
        for name in &names {
            match self.children.namespace("default").get(name) {
                None => {
                    // If it is there, our copy is behind, or its last owner's is still to be collected.
                    let created = maps.create(&PostParams::default(), &child(parent, name)?).await;
                    complete &= unless(409, created)?.is_some();
                    unseen = true;
                }
                Some(there) if !is_owned_by(&there, parent) => complete = false,
                Some(there) if text(&there) != Some(TEXT) => {
                    let version = there.version().to_string();
                    let patch = json!({"metadata": {"resourceVersion": version}, "data": {"text": TEXT}});
                    maps.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
                }
                Some(_) => {}
            }
            self.mishaps.look_out();
        }
        for child in self.children.namespace("default") {
            if is_owned_by(&child, parent) && !names.contains(child.name()) {
                let only_this =
                    Preconditions { uid: Some(child.uid().to_string()), ..Preconditions::default() };
                let how = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
                unless(404, maps.delete(child.name(), &how).await)?;
                self.mishaps.look_out();
            }
        }
        if !complete {
            return Ok(Action::requeue_after(Duration::from_secs(1)));
        }

        let status = deployment.status.as_ref();
        let said = status.and_then(|status| Some((status.observed_generation?, status.replicas?)));
        if said != Some((parent.generation(), wanted)) {
            let api: Api<Deployment> = Api::default_namespaced(self.client.clone());
            let patch = json!({
                "metadata": {"resourceVersion": parent.version().to_string()},
                "status": {"observedGeneration": parent.generation(), "replicas": wanted},
            });
            api.patch_status(parent.name(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        // A child that goes before the next list, while no watch works, is in no cache: nobody but us knows that it was there.
        Ok(if unseen { Action::requeue_after(SHOWN_BY) } else { Action::done() })
    }

    /// The names of the children that there must be.
    fn wanted(&self, parent: &Object<Deployment>, replicas: i32) -> BTreeSet<String> {
        let slots = (0..replicas).map(|slot| format!("{}-{slot}", parent.name()));
        let tickets = self.tickets.namespace("default").into_iter();
        let held = tickets.filter(|held| ticket::is_on(held) && ticket::holder(held) == parent.name());
        slots.chain(held.map(|held| ticket::child(parent.name(), held.name()))).collect()
    }

    /// Whether one more round of a cleanup is not the last.
    fn still_runs(&self, uid: &str) -> bool {
        let mut rounds = self.rounds.lock().expect("nobody panics with it");
        let round = rounds.entry(uid.to_owned()).or_default();
        *round += 1;
        *round <= self.cleanup_rounds
    }

    async fn clean_up(&self, parent: &Object<Deployment>) -> Result<Action, Failure> {
        let uid = parent.uid().to_string();
        if self.still_runs(&uid) {
            return Ok(Action::cleanup_running(Duration::from_secs(1)));
        }
        let secrets: Api<Secret> = Api::default_namespaced(self.client.clone());
        unless(404, secrets.delete(parent.name(), &DeleteParams::default()).await)?;
        self.mishaps.look_out();
        self.judge.cleaned(&uid);
        Ok(Action::done())
    }
}

fn child(parent: &Object<Deployment>, name: &str) -> serde_json::Result<ConfigMap> {
    serde_json::from_value(json!({
        "metadata": {"name": name, "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "Deployment", "name": parent.name(), "uid": parent.uid(),
            "controller": true, "blockOwnerDeletion": true,
        }]},
        "data": {"text": TEXT},
    }))
}

fn is_owned_by(child: &Object<ConfigMap>, parent: &Object<Deployment>) -> bool {
    child.controller().is_some_and(|owner| owner.uid == *parent.uid())
}

fn text(child: &Object<ConfigMap>) -> Option<&str> {
    child.get().ok()?.data.as_ref()?.get("text").map(String::as_str)
}

/// `None` if the server has answered with this code.
fn unless<T>(code: u16, result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::Api(status)) if status.code == code => Ok(None),
        Err(error) => Err(error),
    }
}

/// One reconcile, from its begin to its end, however it ends.
struct Run<'a> {
    operator: &'a Operator,
    key: ObjectKey,
    outcome: Outcome,
    cached: bool,
}

impl<'a> Run<'a> {
    fn begin(operator: &'a Operator, request: &Request, context: &Context<Deployment>) -> Self {
        let caches = [
            context.lister().snapshot().version().and_then(|version| version.as_u64()),
            operator.children.snapshot().version().and_then(|version| version.as_u64()),
            operator.tickets.snapshot().version().and_then(|version| version.as_u64()),
        ];
        let versions = KINDS.into_iter().zip(caches.map(Option::unwrap_or_default)).collect();
        operator.ledger.begins(request, versions);
        let mut in_work = operator.in_work.lock().expect("nobody panics with it");
        if in_work.contains(&request.key) {
            operator.judge.violation("a key was in work twice at once".to_owned());
        }
        in_work.push(request.key.clone());
        Self { operator, key: request.key.clone(), outcome: Outcome::Dropped, cached: false }
    }

    fn end(mut self, result: Result<Action, Failure>, cached: bool) -> Result<Action, Failure> {
        self.outcome = if result.is_ok() { Outcome::Succeeded } else { Outcome::Failed };
        self.cached = cached;
        result
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.operator.ledger.ends(&self.key, &self.outcome, self.cached);
        let mut in_work = self.operator.in_work.lock().expect("nobody panics with it");
        if let Some(place) = in_work.iter().position(|key| *key == self.key) {
            in_work.remove(place);
        }
    }
}
