//! Writes to the store while others list it.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use child::{Crowd, number, say, small_pod};
use k8s_openapi::api::core::v1::Pod;
use kube_informer::object::Entry;
use kube_informer::{Indexer, Kind, Snapshot};

pub(crate) fn run() -> anyhow::Result<()> {
    let objects = number("--objects", 10_000);
    let time = Duration::from_millis(number("--millis", 2_000) as u64);
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
    let mut turn = 0;
    let mut update = |time: Duration| {
        let (start, mut updates) = (Instant::now(), 0_u64);
        while start.elapsed() < time {
            for _ in 0..16 {
                let version = &versions[(turn / objects + 1) % 2];
                black_box(store.upsert(Arc::clone(&version[turn % objects])));
                turn += 1;
                updates += 1;
            }
        }
        updates as f64 / start.elapsed().as_secs_f64()
    };
    let list = || {
        let store = Arc::clone(&store);
        move || {
            let snapshot: Snapshot<Pod> = store.snapshot();
            black_box(snapshot.query().list());
        }
    };
    let spin = || std::hint::spin_loop;
    update(time / 4);
    let alone = update(time);
    let one = {
        let _crowd = Crowd::start(1, list);
        update(time)
    };
    let ten = {
        let _crowd = Crowd::start(10, list);
        update(time)
    };
    let spinning = {
        let _crowd = Crowd::start(10, spin);
        update(time)
    };
    say(&format!("updates {alone} {one} {ten} {spinning}"));
    Ok(())
}
