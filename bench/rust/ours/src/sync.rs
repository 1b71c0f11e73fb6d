//! Fills a cache with one kind, until it is complete and a handler has had every object.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail};
use child::{argument, flag, give_back, say};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret};
use kube_client::Config;
use kube_core::dynamic::DynamicObject;
use kube_informer::object::View;
use kube_informer::source::client_for_informers;
use kube_informer::{EventHandler, Kind, Object, SharedInformerFactory};

/// Counts what it hears; decodes it, too, if asked to.
struct Count {
    heard: Arc<AtomicUsize>,
    decode: bool,
}

impl<K: View> EventHandler<K> for Count {
    async fn on_add(&mut self, object: Object<K>, _: bool) {
        if self.decode && object.get().is_err() {
            return;
        }
        self.heard.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::main]
pub(crate) async fn run() -> anyhow::Result<()> {
    match argument("--kind").as_deref().unwrap_or("pods") {
        "pods" => sync::<Pod>(Kind::of::<Pod>()).await,
        "configmaps" => sync::<ConfigMap>(Kind::of::<ConfigMap>()).await,
        "secrets" => sync::<Secret>(Kind::of::<Secret>()).await,
        "nodes" => sync::<Node>(Kind::of::<Node>()).await,
        "events" => sync::<Event>(Kind::of::<Event>()).await,
        "deployments" => sync::<Deployment>(Kind::of::<Deployment>()).await,
        "widgets" => {
            sync::<DynamicObject>(Kind::new("bench.example.com/v1", "Widget", "widgets", true)).await
        }
        kind => bail!("unknown kind {kind}"),
    }
}

async fn sync<K: View>(kind: Kind) -> anyhow::Result<()> {
    let config = Config::infer().await.context("no KUBECONFIG")?;
    let factory = SharedInformerFactory::new(client_for_informers(config)?);
    let informer = factory.informer_of::<K>(kind, factory.defaults())?;
    let heard = Arc::new(AtomicUsize::new(0));
    let registration = informer.add_handler(Count { heard: Arc::clone(&heard), decode: flag("--decode") });
    give_back();
    say("ready");
    factory.start();
    factory.wait_for_sync().await?;
    registration.wait_for_sync().await;
    say(&format!("synced {}", heard.load(Ordering::Relaxed)));
    give_back();
    say("settled");
    Ok(())
}
