//! Fills a store with one kind, until it is complete and whoever reads the stream has had every object.

use std::fmt::Debug;
use std::hash::Hash;
use std::pin::pin;

use anyhow::{Context, bail};
use child::{argument, flag, give_back, say};
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent, Node, Pod, Secret};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

#[tokio::main]
pub(crate) async fn run() -> anyhow::Result<()> {
    match argument("--kind").as_deref().unwrap_or("pods") {
        "pods" => sync::<Pod>(()).await,
        "configmaps" => sync::<ConfigMap>(()).await,
        "secrets" => sync::<Secret>(()).await,
        "nodes" => sync::<Node>(()).await,
        "events" => sync::<CoreEvent>(()).await,
        "deployments" => sync::<Deployment>(()).await,
        "widgets" => {
            let kind = GroupVersionKind::gvk("bench.example.com", "v1", "Widget");
            sync::<DynamicObject>(ApiResource::from_gvk_with_plural(&kind, "widgets")).await
        }
        kind => bail!("unknown kind {kind}"),
    }
}

async fn sync<K>(kind: K::DynamicType) -> anyhow::Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Eq + Hash + Unpin,
{
    let api = Api::<K>::all_with(Client::try_default().await.context("no KUBECONFIG")?, &kind);
    let writer = Writer::<K>::new(kind);
    let store = writer.as_reader();
    give_back();
    say("ready");
    let mut events = pin!(reflector(writer, stream(api)));
    let mut heard = 0;
    while let Some(event) = events.next().await {
        match event? {
            Event::InitApply(_) => heard += 1,
            Event::InitDone => break,
            Event::Init | Event::Apply(_) | Event::Delete(_) => {}
        }
    }
    store.wait_until_ready().await?;
    anyhow::ensure!(store.len() == heard, "the store has {} of {heard}", store.len());
    say(&format!("synced {heard}"));
    give_back();
    say("settled");
    Ok(())
}

/// The watch as its users have it, or tuned: without managedFields, and with streaming lists.
pub(crate) fn stream<K>(api: Api<K>) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let tuned = flag("--tuned");
    let config = if tuned { Config::default().streaming_lists() } else { Config::default() };
    watcher(api, config).default_backoff().modify(move |object| {
        if tuned {
            object.managed_fields_mut().clear();
        }
    })
}
