//! What more handlers cost.

use crate::Effort;
use crate::clock::{Stopwatch, Took, median, micros_each};
use crate::world::World;

/// How many events are under way at once: fewer than a handler's buffer holds, so that each hears every one.
const WINDOW: usize = 500;

pub(crate) fn run(effort: &Effort) {
    println!("\nfan-out: every handler hears every event, on {} objects without indexes", effort.objects);
    println!("  handlers   µs CPU an event   µs wall   ns CPU a delivery");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let mut world = World::with_objects(effort.objects).await;
        for handlers in [1, 10, 100] {
            let mut rounds = Vec::new();
            for _ in 0..effort.rounds {
                rounds.push(deliver(&mut world, handlers, effort.events).await);
            }
            let Took { wall, cpu } = median(&rounds);
            let each = micros_each(cpu, effort.events);
            let (wall, delivery) = (micros_each(wall, effort.events), each * 1_000.0 / handlers as f64);
            println!("{handlers:>10}   {each:15.2}   {wall:7.2}   {delivery:17.0}");
        }
    });
}

async fn deliver(world: &mut World, handlers: usize, count: usize) -> Took {
    let handlers: Vec<_> = (0..handlers).map(|_| world.count_events()).collect();
    for (registration, _) in &handlers {
        registration.wait_for_sync().await;
    }
    let events = world.events(count);
    let mut expected = handlers[0].1.count();
    let clock = Stopwatch::start();
    for window in events.chunks(WINDOW) {
        for event in window {
            world.feed(event.clone()).await;
        }
        expected += window.len() as u64;
        for (_, heard) in &handlers {
            heard.wait_for(expected).await;
        }
    }
    let took = clock.stop();
    for (registration, _) in &handlers {
        assert_eq!(registration.stats().merged, 0, "every handler hears every event");
    }
    took
}
