//! Reads a complete store in several ways. Each says its name when it is done, how often it was done, and what it found.

use std::pin::pin;

use anyhow::Context;
use child::{READ_LOOKUPS, READ_NODES, READ_TIMES, WORKLOAD_LABEL, give_back, say};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::core::{Selector, SelectorExt};
use kube::runtime::reflector;
use kube::runtime::reflector::{ObjectRef, store};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};

#[tokio::main]
pub(crate) async fn run() -> anyhow::Result<()> {
    let api = Api::<Pod>::all(Client::try_default().await.context("no KUBECONFIG")?);
    let (pods, writer) = store::<Pod>();
    let mut events = pin!(reflector(writer, crate::sync::stream(api)));
    while !matches!(events.next().await.context("the stream ended")??, Event::InitDone) {}
    let keys: Vec<ObjectRef<Pod>> = pods.state().iter().map(|pod| ObjectRef::from_obj(&**pod)).collect();
    let workload = pods.state().iter().filter_map(|pod| pod.labels().get(WORKLOAD_LABEL).cloned()).min();
    let workload = workload.unwrap_or_default();
    give_back();
    say(&format!("ready {}", keys.len()));

    let mut found = 0;
    for key in &keys {
        if let Some(pod) = pods.get(key) {
            found += pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        }
    }
    say(&format!("get {} {found}", keys.len()));

    found = 0;
    for key in &keys {
        found += pods.get(key).map_or(0, |pod| pod.labels().len());
    }
    say(&format!("peek {} {found}", keys.len()));

    found = 0;
    for _ in 0..READ_TIMES {
        found += pods.state().iter().map(|pod| pod.name_any().len() + pod.labels().len()).sum::<usize>();
    }
    say(&format!("scan {} {found}", READ_TIMES * keys.len()));

    found = 0;
    for _ in 0..READ_TIMES {
        let selector = Selector::from_iter([(WORKLOAD_LABEL.to_owned(), workload.clone())]);
        found += pods.state().iter().filter(|pod| selector.matches(pod.labels())).count();
    }
    say(&format!("selector {} {found}", READ_TIMES * keys.len()));

    // There are no indexes: its users look at all objects. So a few times are enough.
    found = 0;
    let lookups = READ_LOOKUPS / 100;
    for number in 0..lookups {
        let node = format!("node-{:04}.example.com", number % READ_NODES);
        let state = pods.state();
        let on_node = state
            .iter()
            .filter(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&node));
        found += on_node.count();
    }
    say(&format!("index {lookups} {found}"));
    Ok(())
}
