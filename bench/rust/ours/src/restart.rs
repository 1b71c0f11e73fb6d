//! Follows twenty kinds while the server is restarted.

use anyhow::Context;
use child::{KINDS, TOUCHED, argument, say};
use kube_core::dynamic::DynamicObject;
use kube_informer::{EventHandler, Kind, Object};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Tells once when it sees an object that this round has touched.
struct Look {
    round: String,
    fresh: Option<UnboundedSender<()>>,
}

impl Look {
    fn look(&mut self, object: &Object<DynamicObject>) {
        if object.label(TOUCHED) == Some(&self.round)
            && let Some(fresh) = self.fresh.take()
        {
            // Nobody listens any more once all are fresh.
            let _ = fresh.send(());
        }
    }
}

impl EventHandler<DynamicObject> for Look {
    async fn on_add(&mut self, object: Object<DynamicObject>, _: bool) {
        self.look(&object);
    }

    async fn on_update(&mut self, _: Object<DynamicObject>, new: Object<DynamicObject>) {
        self.look(&new);
    }
}

#[tokio::main]
pub(crate) async fn run() -> anyhow::Result<()> {
    let round = argument("--round").context("--round is needed")?;
    let factory = crate::options::factory().await?;
    let (sender, mut fresh) = unbounded_channel();
    let mut registrations = vec![];
    for (api_version, kind, resource, namespaced) in KINDS {
        let kind = Kind::new(api_version, kind, resource, namespaced);
        let informer = factory.informer_of::<DynamicObject>(kind, factory.defaults())?;
        let look = Look { round: round.clone(), fresh: Some(sender.clone()) };
        registrations.push(informer.add_handler(look));
    }
    factory.start();
    factory.wait_for_sync().await?;
    say("synced");
    for _ in KINDS {
        fresh.recv().await.context("a handler is gone")?;
    }
    say("fresh");
    Ok(())
}
