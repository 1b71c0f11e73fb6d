//! Makes the statistics that every dictionary of the library begins with, from the objects of a server, and prints them as Rust.
//!
//! zstd keeps them in front of the text of a dictionary: how often each byte occurs among those that match nothing, and how
//! long and how far away matches are. They are nearly the same for all kinds, so they are made once, from many.
//!
//! It needs a server with the objects of the benchmarks, in this folder:
//! `../../testing/control-plane/control-plane run --copy-of DATA -- cargo run --release -p bench-statistics`, where DATA is what
//! `bench/run sync` keeps in its cache.

use anyhow::{Context, ensure};
use kube_client::Config;
use kube_core::dynamic::DynamicObject;
use kube_informer::source::client_for_informers;
use kube_informer::{InformerOptions, Kind, SharedInformerFactory, Storage};
use zstd_safe::{CDict, train_from_buffer};

/// API version, kind, resource, and whether it has namespaces.
const KINDS: [(&str, &str, &str, bool); 7] = [
    ("v1", "Pod", "pods", true),
    ("v1", "ConfigMap", "configmaps", true),
    ("v1", "Secret", "secrets", true),
    ("v1", "Node", "nodes", false),
    ("v1", "Event", "events", true),
    ("apps/v1", "Deployment", "deployments", true),
    ("bench.example.com/v1", "Widget", "widgets", true),
];

/// So many objects of each kind, in each format.
const SAMPLES: usize = 300;

/// The dictionary whose first bytes they are. Of 8 KB to 1 MB, this one left the least bytes for nearly all kinds.
const TRAINED_BYTES: usize = 128 << 10;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (mut samples, mut sizes) = (Vec::new(), Vec::new());
    for json in [false, true] {
        for kind in KINDS {
            for object in objects(kind, json).await? {
                samples.extend_from_slice(&object);
                sizes.push(object.len());
            }
        }
    }
    let mut trained = Vec::with_capacity(TRAINED_BYTES);
    train_from_buffer(&mut trained, &samples, &sizes)
        .map_err(zstd_safe::get_error_name)
        .map_err(anyhow::Error::msg)?;
    // The number of the dictionary: with none, packed objects need not carry it.
    trained[4..8].fill(0);
    let least = (8..trained.len()).find(|length| CDict::try_create(&trained[..*length], 3).is_some());
    let statistics = &trained[..least.context("no dictionary")?];
    println!("// {} bytes, of {} objects of {} bytes in all.", statistics.len(), sizes.len(), samples.len());
    for line in statistics.chunks(20) {
        println!("    {},", line.iter().map(u8::to_string).collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

/// Some objects of a kind, from all over the list.
async fn objects(kind: (&str, &str, &str, bool), json: bool) -> anyhow::Result<Vec<Vec<u8>>> {
    let (api_version, name, resource, namespaced) = kind;
    let options = InformerOptions::default().storage(Storage::Raw);
    let options = if json { options.json() } else { options };
    let client = client_for_informers(Config::infer().await.context("no KUBECONFIG")?)?;
    let factory = SharedInformerFactory::with_defaults(client, options);
    let kind = Kind::new(api_version, name, resource, namespaced);
    let informer = factory.informer_of::<DynamicObject>(kind, factory.defaults())?;
    factory.start();
    factory.wait_for_sync().await?;
    let all = informer.snapshot().query().list();
    ensure!(all.len() >= SAMPLES, "too few {resource}");
    let some = all.iter().step_by(all.len() / SAMPLES).take(SAMPLES);
    Ok(some.filter_map(|object| object.bytes()).map(|(_, bytes)| bytes).collect())
}
