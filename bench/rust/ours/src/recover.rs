//! Follows twenty kinds, and says "fresh N" when an object with mark N or a later one of each kind was seen.

use anyhow::Context;
use child::{KINDS, TOUCHED, say};
use kube_core::dynamic::DynamicObject;
use kube_informer::{EventHandler, Kind, Object};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

struct Look {
    kind: usize,
    seen: UnboundedSender<(usize, u64)>,
}

impl Look {
    fn look(&mut self, object: &Object<DynamicObject>) {
        if let Some(mark) = object.label(TOUCHED).and_then(|mark| mark.parse().ok()) {
            let _ = self.seen.send((self.kind, mark));
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
    let factory = crate::options::factory().await?;
    let (sender, mut seen) = unbounded_channel();
    let mut registrations = vec![];
    for (number, (api_version, kind, resource, namespaced)) in KINDS.into_iter().enumerate() {
        let kind = Kind::new(api_version, kind, resource, namespaced);
        let informer = factory.informer_of::<DynamicObject>(kind, factory.defaults())?;
        registrations.push(informer.add_handler(Look { kind: number, seen: sender.clone() }));
    }
    factory.start();
    factory.wait_for_sync().await?;
    say("synced");
    let (mut marks, mut fresh) = ([0; KINDS.len()], 1);
    loop {
        let (kind, mark) = seen.recv().await.context("the handlers are gone")?;
        marks[kind] = mark;
        let all = marks.into_iter().min().unwrap_or_default();
        if all > fresh {
            fresh = all;
            say(&format!("fresh {fresh}"));
        }
    }
}
