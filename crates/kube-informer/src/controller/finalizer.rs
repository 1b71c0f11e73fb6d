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

use super::Context;
use super::action::{Action, Failure};
use crate::object::{Object, View};
use crate::planted::{Bug, planted};

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
/// | is wanted | no | it gets the finalizer; the next reconcile follows from that change, or comes a moment later if a filter drops the change |
/// | is wanted | yes | `Apply` |
/// | is to go | yes | `Cleanup`; when that has succeeded, the finalizer is taken off |
/// | is to go | no | nothing |
///
/// **Call it for every object of the kind**, also for one that your controller no longer cares about: an object that holds the
/// finalizer and is never passed to this function can never be deleted. For an object that is not wanted any more, do the cleanup in
/// `Apply` and leave the finalizer on; the cleanup runs once more when the object is deleted.
///
/// So `Cleanup` runs, and succeeds, for every object that `Apply` has ever run for, unless somebody removes the finalizer by force or
/// the cluster is restored from an older backup: then the object is gone at once. It may run more than once. A cleanup that
/// takes longer than one reconcile returns [`Action::cleanup_running`]: the finalizer stays, and `Cleanup` runs again.
///
/// # Example
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube_client::{Api, Client};
/// use kube_informer::controller::{Action, Context, Failure, FinalizerEvent, Request, finalizer};
///
/// async fn reconcile(request: Request, context: Context<ConfigMap>, client: Client) -> Result<Action, Failure> {
///     let Some(map) = context.lister().get(&request.key) else { return Ok(Action::done()) };
///     let api = Api::namespaced(client, request.key.namespace().unwrap_or_default());
///     finalizer(&context, &api, "example.org/bucket", map, async |event| match event {
///         FinalizerEvent::Apply(map) if map.label("bucket") == Some("wanted") => {
///             // Make the bucket.
///             Ok(Action::done())
///         }
///         // It is not wanted any more, or it is to go.
///         FinalizerEvent::Apply(_) | FinalizerEvent::Cleanup(_) => {
///             // Remove the bucket, if it exists.
///             Ok(Action::done())
///         }
///     })
///     .await
/// }
/// ```
///
/// # Errors
/// The error of `reconcile`; the server's answer to a patch. All of them are retried with backoff and count as failures:
/// - a conflict (409), because the object has changed since it was cached. A conflict after `Cleanup` is resolved with a `get`
///   first, if the controller may `get` the object, so that frequent changes do not repeat the cleanup;
/// - a missing object (404), as long as the cache shows it;
/// - an `api` of another namespace than the object's.
pub async fn finalizer<K, F, Fut>(
    context: &Context<K>,
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
    check_scope(api, &object)?;
    let finalizers = object.get()?.meta().finalizers.clone().unwrap_or_default();
    let holds = finalizers.iter().any(|held| held == name);
    match (object.deletion_timestamp().is_some(), holds) {
        (false, false) => put_on(api, &object, finalizers, name).await,
        (false, true) => reconcile(FinalizerEvent::Apply(object)).await,
        (true, true) => {
            let action = reconcile(FinalizerEvent::Cleanup(object.clone())).await?;
            if !action.is_cleanup_running() {
                take_off(context, api, &object, finalizers, name).await?;
            }
            Ok(action)
        }
        (true, false) => Ok(Action::done()),
    }
}

/// An `Api` of another scope would address another object, or none.
fn check_scope<K: Resource>(api: &Api<K>, object: &Object<K>) -> Result<(), Failure> {
    if api.namespace() == object.namespace() {
        return Ok(());
    }
    let scope =
        |namespace: Option<&str>| namespace.map_or("no namespace".into(), |name| format!("namespace {name}"));
    let (wrong, key, right) = (scope(api.namespace()), object.key(), scope(object.namespace()));
    Err(Failure::retry(format!("the Api given to finalizer() is for {wrong}, but {key} is in {right}")))
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
    let patched = set_finalizers(api, object, &version, &finalizers).await?;
    let now = patched.meta();
    if !now.finalizers.iter().flatten().any(|held| held == name) {
        return Err(Failure::retry(format!("the server took the finalizer {name} off again")));
    }
    if now.resource_version.as_deref() == Some(&*version) {
        let why = "was there already, and the cache does not show it: is .metadata.finalizers cut?";
        return Err(Failure::retry(format!("the finalizer {name} {why}")));
    }
    Ok(Action::requeue_after(LOOK_AGAIN))
}

/// Takes a finalizer off. Frequent changes by others, of the status for example, must not keep the object.
async fn take_off<K>(
    context: &Context<K>,
    api: &Api<K>,
    object: &Object<K>,
    mut finalizers: Vec<String>,
    name: &str,
) -> Result<(), Failure>
where
    K: View + Clone + Debug + DeserializeOwned,
{
    let mut version = object.version().to_string();
    let mut conflicts = 0;
    loop {
        finalizers.retain(|held| held != name);
        let gone = match set_finalizers(api, object, &version, &finalizers).await {
            Ok(_) => return Ok(()),
            Err(Refused(status)) if status.code == 404 => true,
            Err(Refused(status)) if status.code == 409 && conflicts < MAX_CONFLICTS => false,
            Err(error) => return Err(error.into()),
        };
        conflicts += 1;
        let now = if gone { None } else { api.get_metadata_opt(object.name()).await? };
        let Some(now) = now else { return confirm_gone(context, object) };
        let another = now.metadata.uid.as_deref().is_some_and(|uid| *object.uid() != *uid);
        if another && !planted(Bug::AnotherUidPatched) {
            return Ok(());
        }
        version = now.metadata.resource_version.unwrap_or_default();
        if !planted(Bug::OthersFinalizersDropped) {
            finalizers = now.metadata.finalizers.unwrap_or_default();
        }
    }
}

/// A 404 is believed once the cache agrees: it is also the answer to a request for the wrong server, kind or scope, and then the
/// object stays for good with its finalizer.
fn confirm_gone<K: View>(context: &Context<K>, object: &Object<K>) -> Result<(), Failure> {
    match context.lister().get(object.key()) {
        Some(cached) if cached.uid() == object.uid() => {
            Err(Failure::retry(format!("the server has no {}, but the cache shows it", object.key())))
        }
        _ => Ok(()),
    }
}

/// Refused by the server if anybody has changed the object since this version, or if it is another object of this name.
async fn set_finalizers<K>(
    api: &Api<K>,
    object: &Object<K>,
    version: &str,
    finalizers: &[String],
) -> Result<K, kube_client::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let uid = object.uid().to_string();
    let patch = json!({"metadata": {"uid": uid, "resourceVersion": version, "finalizers": finalizers}});
    api.patch(object.name(), &PatchParams::default(), &Patch::Merge(&patch)).await
}
