//! Controllers under simulated trouble: some seeds of the example `simulate_controller`, and an end at each await.
#![allow(unreachable_pub, dead_code, reason = "the modules are the example's")]

#[path = "../examples/simulate_controller/end.rs"]
mod end;
#[path = "../examples/simulate_controller/judge.rs"]
mod judge;
#[path = "../examples/simulate_controller/ledger.rs"]
mod ledger;
#[path = "../examples/simulate_controller/lives.rs"]
mod lives;
#[path = "../examples/simulate_controller/operator.rs"]
mod operator;
#[path = "../examples/simulate_controller/people.rs"]
mod people;
#[path = "../examples/simulate_controller/plan.rs"]
mod plan;
#[path = "../examples/simulate_controller/ticket.rs"]
mod ticket;
#[path = "../examples/simulate_controller/traffic.rs"]
mod traffic;
#[path = "../examples/simulate_controller/trouble.rs"]
mod trouble;
#[path = "../examples/simulate_controller/world.rs"]
mod world;

use std::time::Duration;

use plan::{End, Life, Plan, Step};

#[test]
fn any_trouble_ends_as_a_perfect_world_does() {
    for seed in 1..=40 {
        let report = world::simulate(&Plan::from_seed(seed));
        assert!(report.violations.is_empty(), "seed {seed}: {:#?}", report.violations);
    }
}

/// A controller that dies at the k-th poll, for every k there is, and is followed by another.
#[test]
fn a_controller_may_end_at_every_await() {
    let second = || Step::Rest(Duration::from_secs(1));
    let story = vec![
        Step::Create(2),
        second(),
        Step::Scale(3),
        second(),
        Step::SpoilChild(0),
        second(),
        Step::Scale(1),
        second(),
        Step::Delete,
        second(),
        Step::Create(1),
    ];
    let mut plan = Plan { seed: 7, stories: vec![story], ..Plan::default() };
    let awaits = world::play(&plan).numbers.polls;
    assert!(awaits > 30, "the story is too short to show anything: {awaits} polls");
    for polls in 0..awaits {
        plan.lives = vec![Life { end: End::AfterPolls(polls), pause: Duration::ZERO }];
        let report = world::simulate(&plan);
        assert!(report.violations.is_empty(), "ended after {polls} polls: {:#?}", report.violations);
        assert_eq!(report.numbers.restarts, 1, "it ended after {polls} polls");
    }
}
