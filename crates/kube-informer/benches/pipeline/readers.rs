//! How fast the store is written while others read it, against others who only take the processor's time.

use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use kube_informer::Lister;
use serde_json::Value;

use crate::Effort;
use crate::clock::{Stopwatch, Took, median};
use crate::world::World;

const THREADS: usize = 10;

#[derive(Clone, Copy, PartialEq)]
enum Others {
    None,
    Spin,
    List,
}

pub(crate) fn run(effort: &Effort) {
    let events = effort.events;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut world = runtime.block_on(World::with_objects(effort.objects));
    world.add_indexes();
    let cases = [
        (Others::None, "alone"),
        (Others::Spin, "beside ten threads that only spin"),
        (Others::List, "beside ten threads that list everything without pause"),
    ];
    let mut rounds = [const { Vec::new() }; 3];
    let mut lists = 0;
    for _ in 0..effort.rounds {
        for (number, (others, _)) in cases.iter().enumerate() {
            let batch = world.events(events);
            let others = Crowd::start(*others, &world.informer.lister());
            let took = runtime.block_on(async {
                let clock = Stopwatch::start();
                world.feed_all(batch).await;
                clock.stop()
            });
            lists += others.stop();
            rounds[number].push(took);
        }
    }
    println!("\nwriting events into {} objects with 4 indexes, as fast as they are taken", effort.objects);
    println!("   updates/s   × spinning   updates/s of CPU");
    let rate = |took: std::time::Duration| events as f64 / took.as_secs_f64();
    let spinning = rate(median(&rounds[1]).wall);
    for (rounds, (_, name)) in rounds.iter().zip(cases) {
        let Took { wall, cpu } = median(rounds);
        println!("{:12.0}   {:10.2}   {:16.0}   {name}", rate(wall), rate(wall) / spinning, rate(cpu));
    }
    println!("   (the readers listed all objects {lists} times)");
}

/// Threads that do something until they are told to stop.
struct Crowd {
    stop: Arc<AtomicBool>,
    lists: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn start(what: Others, lister: &Lister<Value>) -> Self {
        let (stop, lists) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = |_| {
            let (stop, lists, lister) = (Arc::clone(&stop), Arc::clone(&lists), lister.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if what == Others::List {
                        black_box(lister.list());
                        lists.fetch_add(1, Ordering::Relaxed);
                    } else {
                        spin_loop();
                    }
                }
            })
        };
        let threads = if what == Others::None { 0 } else { THREADS };
        Self { threads: (0..threads).map(thread).collect(), stop, lists }
    }

    /// Ends them, and says how often they listed everything.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("readers never panic");
        }
        self.lists.load(Ordering::Relaxed)
    }
}
