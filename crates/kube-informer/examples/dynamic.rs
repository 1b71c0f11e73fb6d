//! Watches any kind that is named on the command line, built-in or custom, found by discovery.
//!
//! ```text
//! cargo run -p kube-informer --example dynamic -- deployments.apps             # a scripted run on an embedded server
//! cargo run -p kube-informer --example dynamic -- deployments.apps --cluster   # a real one, until Ctrl-C
//! cargo run -p kube-informer --example dynamic -- nodes --metadata-only --kubeconfig PATH
//! ```
//!
//! With `--metadata-only`, the server sends metadata and nothing else: enough for names, labels and owners.

mod common;

use common::{Cluster, Error};
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube_client::discovery::{ApiCapabilities, Discovery, Scope};
use kube_client::{Client, ResourceExt};
use kube_core::ApiResource;
use kube_core::dynamic::DynamicObject;
use kube_informer::{Event, SharedInformer, SharedInformerFactory};
use kube_informer_apiserver::ApiServer;
use serde_json::json;

const USAGE: &str = "usage: dynamic RESOURCE[.GROUP] [--metadata-only] [--cluster | --kubeconfig PATH], \
     such as: dynamic deployments.apps";

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let cluster = Cluster::from_arguments(&mut arguments)?;
    let before = arguments.len();
    arguments.retain(|argument| argument != "--metadata-only");
    let metadata_only = arguments.len() < before;
    let name = match arguments.as_slice() {
        [] => "deployments.apps",
        [name] if !name.starts_with('-') => name,
        _ => return Err(USAGE.into()),
    };

    let real = cluster.client().await?;
    let client = real.clone().unwrap_or_else(|| ApiServer::new().client());
    let (resource, capabilities) = discover(&client, name).await?;
    let factory = SharedInformerFactory::new(client.clone());
    let mut options = factory.defaults();
    if metadata_only {
        options = options.metadata_only();
    }
    let namespaced = capabilities.scope == Scope::Namespaced;
    let informer = factory.dynamic(&resource, namespaced, options)?;
    let log = informer.add_handler(|event: Event<DynamicObject>| async move { println!("{}", line(&event)) });
    factory.start();
    if real.is_some() {
        tokio::signal::ctrl_c().await?;
    } else {
        factory.wait_for_sync().await?;
        script(&client, &resource, namespaced, &informer).await?;
        log.close().await;
    }
    factory.shutdown().await?;
    Ok(())
}

/// Finds a resource by its plural and group, as `kubectl get` does.
async fn discover(client: &Client, name: &str) -> Result<(ApiResource, ApiCapabilities), Error> {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let resources = discovery.get(group).map(|group| group.recommended_resources()).unwrap_or_default();
    let found = resources.into_iter().find(|(resource, _)| resource.plural == plural);
    found.ok_or_else(|| format!("the server has no resource named '{name}'; {USAGE}").into())
}

/// Creates an object of whatever kind it is, labels it and deletes it.
async fn script(
    client: &Client,
    resource: &ApiResource,
    namespaced: bool,
    informer: &SharedInformer<DynamicObject>,
) -> Result<(), Error> {
    let api: Api<DynamicObject> = if namespaced {
        Api::default_namespaced_with(client.clone(), resource)
    } else {
        Api::all_with(client.clone(), resource)
    };
    let mut object = DynamicObject::new("example", resource);
    if resource.plural == "deployments" {
        object = object.data(json!({"spec": {
            "selector": {"matchLabels": {"app": "example"}},
            "template": {
                "metadata": {"labels": {"app": "example"}},
                "spec": {"containers": [{"name": "main", "image": "web:1"}]},
            },
        }}));
    }
    let created = api.create(&PostParams::default(), &object).await?;
    let key = kube_informer::ObjectKey::new(&created.namespace().unwrap_or_default(), "example");
    informer.wait_for_key(&key).await;
    let label = json!({"metadata": {"labels": {"seen": "yes"}}});
    api.patch("example", &PatchParams::default(), &Patch::Merge(&label)).await?;
    let labelled = |object: kube_informer::Object<DynamicObject>| object.label("seen").is_some();
    informer.wait_for(|snapshot| snapshot.get(&key).is_some_and(labelled)).await;
    api.delete("example", &DeleteParams::default()).await?;
    informer.wait_for(|snapshot| !snapshot.contains(&key)).await;
    Ok(())
}

/// An event as text. Nothing here decodes an object: key, version and labels are there without.
fn line(event: &Event<DynamicObject>) -> String {
    let object = event.object();
    let labels: Vec<String> = object.labels().map(|(key, value)| format!("{key}={value}")).collect();
    let what = match event {
        Event::Added { initial: true, .. } => "found".to_owned(),
        Event::Added { .. } => "added".to_owned(),
        Event::Updated { old, .. } => format!("updated {} → {}", old.version(), object.version()),
        Event::Deleted(_) => "deleted".to_owned(),
    };
    format!("{} {what} [{}] {} bytes", object.key(), labels.join(","), object.size())
}
