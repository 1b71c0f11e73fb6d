//! Work that must be done before an object may go.

use std::fmt::Debug;
use std::future::Future;

use kube_client::Api;
use kube_client::api::{Patch, PatchParams};
use kube_core::Resource;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::action::{Action, Failure};
use crate::object::{Object, View};

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
/// | is wanted | no | it gets the finalizer; the change brings the next reconcile |
/// | is wanted | yes | `Apply` |
/// | is to go | yes | `Cleanup`; when that has succeeded, the finalizer is taken off |
/// | is to go | no | nothing |
///
/// So `Cleanup` runs, and succeeds, for every object that `Apply` has ever run for.
///
/// # Errors
/// What `reconcile` fails with; what the server says to a patch, a conflict if the object has changed meanwhile: then it is
/// tried again.
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
        (false, false) => {
            let with: Vec<String> = finalizers.into_iter().chain([name.to_owned()]).collect();
            set_finalizers(api, &object, &with).await?;
            Ok(Action::done())
        }
        (false, true) => reconcile(FinalizerEvent::Apply(object)).await,
        (true, true) => {
            let action = reconcile(FinalizerEvent::Cleanup(object.clone())).await?;
            let without: Vec<String> = finalizers.into_iter().filter(|held| held != name).collect();
            set_finalizers(api, &object, &without).await?;
            Ok(action)
        }
        (true, false) => Ok(Action::done()),
    }
}

/// With the version that was read: if anybody has changed the object since, the server refuses.
async fn set_finalizers<K>(
    api: &Api<K>,
    object: &Object<K>,
    finalizers: &[String],
) -> Result<(), kube_client::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let version = object.version().to_string();
    let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
    match api.patch(object.name(), &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        // It is gone already, and nothing holds it.
        Err(kube_client::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
