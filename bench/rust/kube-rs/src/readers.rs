//! Writes to the store while others list it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use child::{Crowd, number, say, small_pod};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::store;
use kube::runtime::watcher::Event;

pub(crate) fn run() -> anyhow::Result<()> {
    let objects = number("--objects", 10_000);
    let time = Duration::from_millis(number("--millis", 2_000) as u64);
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
    let mut turn = 0;
    let mut update = |time: Duration| {
        let (start, mut updates) = (Instant::now(), 0_u64);
        while start.elapsed() < time {
            for _ in 0..16 {
                let version = &versions[(turn / objects + 1) % 2];
                writer.apply_watcher_event(&version[turn % objects]);
                turn += 1;
                updates += 1;
            }
        }
        updates as f64 / start.elapsed().as_secs_f64()
    };
    let list = || {
        let store = store.clone();
        move || {
            black_box(store.state());
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
