//! One event at a time, end to end, in stores of different sizes; and what a snapshot costs there.

use std::hint::black_box;
use std::sync::Arc;

use kube_informer::Registration;

use crate::Effort;
use crate::clock::{Stopwatch, Took, median, micros_each};
use crate::world::{Heard, World};

/// How many snapshots are taken in a round.
const SNAPSHOTS: usize = 1_000_000;

pub(crate) fn run(effort: &Effort) {
    println!("\none event at a time: bytes in, store and indexes written, handler told; and one snapshot");
    println!("   objects  indexes   µs CPU   µs wall   × smallest   ns a snapshot");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let mut worlds = Vec::new();
        for objects in effort.sizes {
            worlds.push(Listening::with_objects(*objects).await);
        }
        measure(effort, &mut worlds, 0).await;
        for listening in &worlds {
            listening.world.add_indexes();
        }
        measure(effort, &mut worlds, 4).await;
    });
}

/// An informer with a handler that has heard of everything in it.
struct Listening {
    world: World,
    heard: Arc<Heard>,
    _registration: Registration,
}

async fn measure(effort: &Effort, worlds: &mut [Listening], indexes: usize) {
    let mut rounds = vec![Vec::new(); worlds.len()];
    let mut snapshots = vec![Vec::new(); worlds.len()];
    // One round more than is counted: the first only warms up.
    for round in 0..=effort.rounds {
        for (number, listening) in worlds.iter_mut().enumerate() {
            let update = listening.one_by_one(effort.events).await;
            let snapshot = take_snapshots(&listening.world);
            if round > 0 {
                rounds[number].push(update);
                snapshots[number].push(snapshot);
            }
        }
    }
    let smallest = median(&rounds[0]).cpu;
    for (number, objects) in effort.sizes.iter().enumerate() {
        let Took { wall, cpu } = median(&rounds[number]);
        let ratio = cpu.as_secs_f64() / smallest.as_secs_f64();
        let snapshot = micros_each(median(&snapshots[number]).cpu, SNAPSHOTS) * 1_000.0;
        let (cpu, wall) = (micros_each(cpu, effort.events), micros_each(wall, effort.events));
        println!("{objects:>10}  {indexes:>7}   {cpu:6.2}   {wall:7.2}   {ratio:10.2}   {snapshot:13.0}");
    }
}

impl Listening {
    async fn with_objects(objects: usize) -> Self {
        let world = World::with_objects(objects).await;
        let (registration, heard) = world.count_events();
        registration.wait_for_sync().await;
        Self { world, heard, _registration: registration }
    }

    async fn one_by_one(&mut self, count: usize) -> Took {
        let (events, before) = (self.world.events(count), self.heard.count());
        let clock = Stopwatch::start();
        for (number, event) in events.into_iter().enumerate() {
            self.world.feed(event).await;
            self.heard.wait_for(before + number as u64 + 1).await;
        }
        clock.stop()
    }
}

fn take_snapshots(world: &World) -> Took {
    let clock = Stopwatch::start();
    for _ in 0..SNAPSHOTS {
        black_box(world.informer.snapshot());
    }
    clock.stop()
}
