//! Follows twenty kinds while the server is restarted.

use std::fmt::Debug;
use std::hash::Hash;
use std::pin::pin;

use anyhow::Context;
use child::{TOUCHED, argument, say};
use futures_util::StreamExt;
use k8s_openapi::api::{
    apps::v1 as apps, batch::v1 as batch, core::v1 as core, networking::v1 as networking, rbac::v1 as rbac,
};
use kube::runtime::reflector;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// What one of the twenty has to say.
enum News {
    Synced,
    Fresh,
}

#[tokio::main]
pub(crate) async fn run() -> anyhow::Result<()> {
    let round = argument("--round").context("--round is needed")?;
    let client = Client::try_default().await.context("no KUBECONFIG")?;
    let (sender, mut news) = unbounded_channel();
    let mut kinds = 0;
    macro_rules! follow {
        ($($kind:ty),* $(,)?) => {$(
            kinds += 1;
            tokio::spawn(follow::<$kind>(client.clone(), round.clone(), sender.clone()));
        )*};
    }
    follow!(
        core::Pod,
        core::Service,
        core::ConfigMap,
        core::Secret,
        core::ServiceAccount,
        core::Node,
        core::Namespace
    );
    follow!(core::Event, core::ResourceQuota, core::LimitRange);
    follow!(
        apps::Deployment,
        apps::ReplicaSet,
        apps::StatefulSet,
        apps::DaemonSet,
        batch::Job,
        batch::CronJob
    );
    follow!(networking::Ingress, networking::NetworkPolicy, rbac::Role, rbac::RoleBinding);
    anyhow::ensure!(kinds == child::KINDS.len(), "{kinds} kinds, not {}", child::KINDS.len());
    let (mut synced, mut fresh) = (0, 0);
    while fresh < kinds {
        match news.recv().await.context("a watch is gone")? {
            News::Synced => synced += 1,
            News::Fresh => fresh += 1,
        }
        if synced == kinds {
            synced = 0;
            // On a thread of its own: whoever waits for the runner still has to hear of news.
            std::thread::spawn(|| say("synced"));
        }
    }
    say("fresh");
    Ok(())
}

async fn follow<K>(client: Client, round: String, news: UnboundedSender<News>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Eq + Hash + Unpin,
{
    let writer = Writer::<K>::new(());
    let mut events = pin!(reflector(writer, crate::sync::stream(Api::<K>::all(client))));
    let (mut synced, mut fresh) = (false, false);
    while let Some(event) = events.next().await {
        // Errors are part of a restart: the stream goes on after them.
        let Ok(event) = event else { continue };
        match event {
            Event::InitDone if !synced => {
                synced = true;
                let _ = news.send(News::Synced);
            }
            Event::Apply(object) | Event::InitApply(object)
                if !fresh && object.labels().get(TOUCHED) == Some(&round) =>
            {
                fresh = true;
                let _ = news.send(News::Fresh);
            }
            _ => {}
        }
    }
}
