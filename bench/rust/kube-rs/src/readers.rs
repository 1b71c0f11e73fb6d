//! Writes to the store while others list it.

use std::hint::black_box;

use child::{number, say, small_pod, write_beside_readers};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::store;
use kube::runtime::watcher::Event;

pub(crate) fn run() -> anyhow::Result<()> {
    let objects = number("--objects", 10_000);
    // Two versions of each, so that every write is a change.
    let versions: Vec<Vec<Event<Pod>>> = (1..=2)
        .map(|version| {
            (0..objects)
                .map(|n| serde_json::from_str(&small_pod(n, version)).map(Event::Apply))
                .collect::<Result<_, _>>()
        })
        .collect::<Result<_, _>>()?;
    let (store, mut writer) = store::<Pod>();
    for event in &versions[0] {
        writer.apply_watcher_event(event);
    }
    say("ready");
    let write = |turn: usize| {
        let version = &versions[(turn / objects + 1) % 2];
        writer.apply_watcher_event(&version[turn % objects]);
    };
    let list = || {
        let store = store.clone();
        move || {
            black_box(store.state());
        }
    };
    write_beside_readers(write, list);
    Ok(())
}
