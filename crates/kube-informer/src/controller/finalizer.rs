//! Work that must be done before an object may go.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use kube_client::Api;
use kube_client::Error::Api as Refused;
use kube_client::api::{Patch, PatchParams};
use kube_core::Resource;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::action::{Action, Failure};
use crate::object::{Object, View};

/// When an object that got the finalizer is looked at again, if its change is not heard of before: a filter may keep it back.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// How often the finalizer is taken off again after others have changed the object meanwhile.
const MAX_CONFLICTS: u32 = 4;

/// What a reconcile with a finalizer is asked to do.
#[derive(Debug, Clone)]
pub enum FinalizerEvent<K> {
    /// The object is wanted, and holds the finalizer: whatever is made now will be cleaned up.
    Apply(Object<K>),
    /// The object is to go: clean up what was made for it. When that has succeeded, it goes.
    Cleanup(Object<K>),
}

/// Reconciles an object that must not go before it has been cleaned up after.
///
/// | the object | holds the finalizer | what happens |
/// | --- | --- | --- |
/// | is wanted | no | it gets the finalizer; the change brings the next reconcile, or a short while where a filter drops it |
/// | is wanted | yes | `Apply` |
/// | is to go | yes | `Cleanup`; when that has succeeded, the finalizer is taken off |
/// | is to go | no | nothing |
///
/// So `Cleanup` runs, and succeeds, for every object that `Apply` has ever run for. It may run more than once.
///
/// # Errors
/// What `reconcile` fails with; what the server says to a patch, a conflict if the object has changed since it was read: then
/// it is tried again. Changes during `Cleanup` are no conflict, if the controller may `get` the object as well as `patch` it.
pub async fn finalizer<K, F, Fut>(
    api: &Api<K>,
    name: &str,
    object: Object<K>,
    reconcile: F,
) -> Result<Action, Failure>
where
    K: Resource + View + Clone + Debug + DeserializeOwned,
    F: FnOnce(FinalizerEvent<K>) -> Fut,
    Fut: Future<Output = Result<Action, Failure>>,
{
    let finalizers = object.get()?.meta().finalizers.clone().unwrap_or_default();
    let holds = finalizers.iter().any(|held| held == name);
    match (object.deletion_timestamp().is_some(), holds) {
        (false, false) => put_on(api, &object, finalizers, name).await,
        (false, true) => reconcile(FinalizerEvent::Apply(object)).await,
        (true, true) => {
            let action = reconcile(FinalizerEvent::Cleanup(object.clone())).await?;
            take_off(api, &object, finalizers, name).await?;
            Ok(action)
        }
        (true, false) => Ok(Action::done()),
    }
}

async fn put_on<K>(
    api: &Api<K>,
    object: &Object<K>,
    mut finalizers: Vec<String>,
    name: &str,
) -> Result<Action, Failure>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    finalizers.push(name.to_owned());
    let version = object.version().to_string();
    let patched = match set_finalizers(api, object, &version, &finalizers).await {
        // Somebody was faster, or the cache is behind: either way news is on its way.
        Err(Refused(status)) if status.code == 409 => None,
        patched => patched?,
    };
    if let Some(now) = patched.as_ref().map(Resource::meta) {
        if !now.finalizers.iter().flatten().any(|held| held == name) {
            return Err(Failure::retry(format!("the server took the finalizer {name} off again")));
        }
        if now.resource_version.as_deref() == Some(&*version) {
            let why = "was there already, and the cache does not show it: is .metadata.finalizers cut?";
            return Err(Failure::retry(format!("the finalizer {name} {why}")));
        }
    }
    Ok(Action::requeue_after(LOOK_AGAIN))
}

/// Takes a finalizer off. Who changes the object all the time, its status say, must not make it stay for ever.
async fn take_off<K>(
    api: &Api<K>,
    object: &Object<K>,
    mut finalizers: Vec<String>,
    name: &str,
) -> Result<(), kube_client::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut version = object.version().to_string();
    let mut conflicts = 0;
    loop {
        finalizers.retain(|held| held != name);
        match set_finalizers(api, object, &version, &finalizers).await {
            Err(Refused(status)) if status.code == 409 && conflicts < MAX_CONFLICTS => conflicts += 1,
            done => return done.map(|_| ()),
        }
        let Some(now) = api.get_metadata_opt(object.name()).await? else { return Ok(()) };
        if now.metadata.uid.as_deref().is_some_and(|uid| *object.uid() != *uid) {
            return Ok(());
        }
        version = now.metadata.resource_version.unwrap_or_default();
        finalizers = now.metadata.finalizers.unwrap_or_default();
    }
}

/// For the version that was read: if anybody has changed the object since, the server refuses. `None` if it is gone already,
/// and nothing holds it.
async fn set_finalizers<K>(
    api: &Api<K>,
    object: &Object<K>,
    version: &str,
    finalizers: &[String],
) -> Result<Option<K>, kube_client::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
    match api.patch(object.name(), &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(now) => Ok(Some(now)),
        Err(Refused(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
