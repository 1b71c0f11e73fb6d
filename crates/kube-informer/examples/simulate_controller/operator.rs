//! The controller that is tried: a deployment owns as many config maps as it has replicas, has a secret that nobody owns and
//! that its finalizer takes away, and says in its status what is there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube_client::{Client, Error};
use kube_informer::controller::{Action, Context, Failure, FinalizerEvent, Request, finalizer};
use kube_informer::{Lister, Object, ObjectKey};
use serde_json::json;
use tokio::time::Instant;

/// What a child says, unless somebody has spoilt it.
pub const TEXT: &str = "as it should be";

/// What one controller works with.
pub struct Operator {
    pub client: Client,
    pub children: Lister<ConfigMap>,
    pub mishaps: Arc<Mishaps>,
    /// The keys in work, to see that each is there once.
    pub in_work: Mutex<Vec<ObjectKey>>,
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
    pub twice_at_once: AtomicU64,
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
    let _one_at_a_time = InWork::new(&operator, &request.key);
    operator.mishaps.reconciles.fetch_add(1, Ordering::Relaxed);
    operator.mishaps.look_out();
    let Some(parent) = context.get(&request) else { return Ok(Action::done()) };
    let api: Api<Deployment> = Api::default_namespaced(operator.client.clone());
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
    result
}

impl Operator {
    async fn apply(&self, parent: &Object<Deployment>) -> Result<Action, Failure> {
        let secrets: Api<Secret> = Api::default_namespaced(self.client.clone());
        let maps: Api<ConfigMap> = Api::default_namespaced(self.client.clone());
        let secret = serde_json::from_value(json!({"metadata": {"name": parent.name()}}))?;
        unless(409, secrets.create(&PostParams::default(), &secret).await)?;
        self.mishaps.look_out();

        let deployment = parent.get()?;
        let wanted = deployment.spec.replicas.unwrap_or(1);
        let mut complete = true;
        for slot in 0..wanted {
            let name = format!("{}-{slot}", parent.name());
            match self.children.namespace("default").get(&name) {
                None => {
                    // If it is there, our copy is behind, or its last owner's is still to be collected.
                    let created = maps.create(&PostParams::default(), &child(parent, &name)?).await;
                    complete &= unless(409, created)?.is_some();
                }
                Some(there) if !is_owned_by(&there, parent) => complete = false,
                Some(there) if text(&there) != Some(TEXT) => {
                    let version = there.version().to_string();
                    let patch = json!({"metadata": {"resourceVersion": version}, "data": {"text": TEXT}});
                    maps.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
                }
                Some(_) => {}
            }
            self.mishaps.look_out();
        }
        for child in self.children.namespace("default") {
            let slot = child.name().rsplit_once('-').and_then(|(_, slot)| slot.parse::<i32>().ok());
            if is_owned_by(&child, parent) && slot.is_some_and(|slot| slot >= wanted) {
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
        Ok(Action::done())
    }

    async fn clean_up(&self, parent: &Object<Deployment>) -> Result<Action, Failure> {
        let secrets: Api<Secret> = Api::default_namespaced(self.client.clone());
        unless(404, secrets.delete(parent.name(), &DeleteParams::default()).await)?;
        self.mishaps.look_out();
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

/// Notices a key that is worked on twice at once.
struct InWork<'a>(&'a Operator, ObjectKey);

impl<'a> InWork<'a> {
    fn new(operator: &'a Operator, key: &ObjectKey) -> Self {
        let mut in_work = operator.in_work.lock().expect("nobody panics with it");
        if in_work.contains(key) {
            operator.mishaps.twice_at_once.fetch_add(1, Ordering::Relaxed);
        }
        in_work.push(key.clone());
        Self(operator, key.clone())
    }
}

impl Drop for InWork<'_> {
    fn drop(&mut self) {
        let mut in_work = self.0.in_work.lock().expect("nobody panics with it");
        if let Some(place) = in_work.iter().position(|key| *key == self.1) {
            in_work.remove(place);
        }
    }
}
