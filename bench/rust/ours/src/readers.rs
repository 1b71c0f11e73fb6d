//! Writes to the store while others list it.

use std::hint::black_box;
use std::sync::Arc;

use child::{number, say, small_pod, write_beside_readers};
use k8s_openapi::api::core::v1::Pod;
use kube_informer::object::Entry;
use kube_informer::{Indexer, Kind, Snapshot};

pub(crate) fn run() -> anyhow::Result<()> {
    let objects = number("--objects", 10_000);
    let kind = Arc::new(Kind::of::<Pod>());
    // Two versions of each, so that every write is a change.
    let versions: Vec<Vec<Arc<Entry>>> = (1..=2)
        .map(|version| {
            (0..objects)
                .map(|n| Entry::from_json(&kind, small_pod(n, version).as_bytes()).map(Arc::new))
                .collect::<Result<_, _>>()
        })
        .collect::<Result<_, _>>()?;
    let store = Arc::new(Indexer::new());
    for entry in &versions[0] {
        store.upsert(Arc::clone(entry));
    }
    say("ready");
    let write = |turn: usize| {
        let version = &versions[(turn / objects + 1) % 2];
        black_box(store.upsert(Arc::clone(&version[turn % objects])));
    };
    let list = || {
        let store = Arc::clone(&store);
        move || {
            let snapshot: Snapshot<Pod> = store.snapshot();
            black_box(snapshot.query().list());
        }
    };
    write_beside_readers(write, list);
    Ok(())
}
