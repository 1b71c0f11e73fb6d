//! Reads a complete cache in several ways. Each says its name when it is done, how often it was done, and what it found.

use child::{READ_LOOKUPS, READ_NODES, READ_TIMES, WORKLOAD_LABEL, argument, give_back, say};
use k8s_openapi::api::core::v1::Pod;
use kube_informer::{IndexBy, Object, ObjectKey};

#[tokio::main]
pub(crate) async fn run() -> anyhow::Result<()> {
    let factory = crate::options::factory().await?;
    let informer = factory.informer::<Pod>();
    let by_node = if argument("--storage").as_deref() == Some("decoded") {
        // There are no bytes to read a field from.
        IndexBy::object(|pod: &Object<Pod>| {
            pod.get().ok().and_then(|pod| pod.spec.as_ref()?.node_name.clone())
        })
    } else {
        IndexBy::field(".spec.nodeName".parse()?)
    };
    informer.add_index_by("node", by_node)?;
    factory.start();
    factory.wait_for_sync().await?;
    let pods = informer.lister();
    let keys: Vec<ObjectKey> = pods.snapshot().iter().map(|pod| pod.key().clone()).collect();
    let workload =
        pods.snapshot().iter().filter_map(|pod| pod.label(WORKLOAD_LABEL).map(str::to_owned)).min();
    let selector = format!("{WORKLOAD_LABEL}={}", workload.unwrap_or_default());
    give_back();
    say(&format!("ready {}", keys.len()));

    let mut found = 0;
    for key in &keys {
        if let Some(pod) = pods.get(key) {
            found += pod.get()?.spec.as_ref().map_or(0, |spec| spec.containers.len());
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
        found += pods.snapshot().iter().map(|pod| pod.name().len() + pod.labels().len()).sum::<usize>();
    }
    say(&format!("scan {} {found}", READ_TIMES * keys.len()));

    found = 0;
    for _ in 0..READ_TIMES {
        found += pods.matching(&selector)?.list().len();
    }
    say(&format!("selector {} {found}", READ_TIMES * keys.len()));

    found = 0;
    for number in 0..READ_LOOKUPS {
        found += pods.by_index("node", format!("node-{:04}.example.com", number % READ_NODES))?.list().len();
    }
    say(&format!("index {READ_LOOKUPS} {found}"));
    Ok(())
}
