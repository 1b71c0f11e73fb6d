//! A bounded number of simulated runs; `examples/simulate` runs thousands.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the modules are shared with the example, which uses all of them"
)]

#[path = "../examples/simulate/bodies.rs"]
mod bodies;
#[path = "../examples/simulate/checker.rs"]
mod checker;
#[path = "../examples/simulate/ledger.rs"]
mod ledger;
#[path = "../examples/simulate/log.rs"]
mod log;
#[path = "../examples/simulate/observer.rs"]
mod observer;
#[path = "../examples/simulate/report.rs"]
mod report;
#[path = "../examples/simulate/resource.rs"]
mod resource;
#[path = "../examples/simulate/schedule.rs"]
mod schedule;
#[path = "../examples/simulate/trace.rs"]
mod trace;
#[path = "../examples/simulate/truth.rs"]
mod truth;
#[path = "../examples/simulate/world.rs"]
mod world;

use schedule::Schedule;

#[test]
fn sixty_seeds_keep_the_contract() {
    for seed in 1..=60 {
        if let Some(violation) = world::run(&Schedule::from_seed(seed), false).violation {
            panic!(
                "seed {seed}: {violation}\nreplay it with: \
                 cargo run --release -p kube-informer --example simulate -- --seed {seed}"
            );
        }
    }
}

#[test]
fn a_seed_does_the_same_again() {
    for seed in [1, 2, 3, 17] {
        let [one, two] = [(), ()].map(|()| world::run(&Schedule::from_seed(seed), true));
        let differs = one.lines.iter().zip(&two.lines).find(|(one, two)| one != two);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.lines.len(), two.lines.len(), "seed {seed}");
        assert_eq!(one.hash, two.hash, "seed {seed}");
    }
}
