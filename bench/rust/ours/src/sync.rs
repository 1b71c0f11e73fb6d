//! Fills a cache with one kind, until it is complete and a handler has had every object.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::bail;
use child::{argument, flag, give_back, number, say};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret};
use kube_core::dynamic::DynamicObject;
use kube_informer::object::View;
use kube_informer::{EventHandler, HandlerOptions, Kind, Object};
use tokio::sync::Notify;

/// Counts what it hears; decodes it, too, if asked to.
struct Count {
    heard: Arc<Heard>,
    decode: bool,
}

#[derive(Default)]
struct Heard {
    objects: AtomicUsize,
    updates: AtomicUsize,
    update: Notify,
}

impl<K: View> EventHandler<K> for Count {
    async fn on_add(&mut self, object: Object<K>, _: bool) {
        if self.decode && object.get().is_err() {
            return;
        }
        self.heard.objects.fetch_add(1, Ordering::Relaxed);
    }

    async fn on_update(&mut self, _: Object<K>, _: Object<K>) {
        self.heard.updates.fetch_add(1, Ordering::Relaxed);
        self.heard.update.notify_one();
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
    let built_in = kind.kind() != "Widget";
    let factory = crate::options::factory().await?;
    let informer = factory.informer_of::<K>(kind, factory.defaults())?;
    let heard = Arc::new(Heard::default());
    let updates = number("--events", 0);
    // None of the changes may be merged, for each is counted.
    let options = HandlerOptions::default().buffer_len(updates.max(1024));
    let count = Count { heard: Arc::clone(&heard), decode: flag("--decode") };
    let registration = informer.add_handler_with(options, count);
    give_back();
    say("ready");
    factory.start();
    factory.wait_for_sync().await?;
    registration.wait_for_sync().await;
    say(&format!("synced {}", heard.objects.load(Ordering::Relaxed)));
    if built_in {
        crate::options::check_wire(&informer)?;
    }
    give_back();
    say("settled");
    while heard.updates.load(Ordering::Relaxed) < updates {
        heard.update.notified().await;
    }
    say("heard");
    Ok(())
}
