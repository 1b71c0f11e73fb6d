//! Runs a controller through simulated trouble and checks that it keeps its rules and that all ends well.
//!
//! `cargo run --release -p kube-informer --example simulate_controller -- --seeds 1000 [--first SEED]` runs many seeds on two
//! threads, from a first seed that is drawn and printed unless it is given. `--seed N` runs one and says what it did. Time is
//! simulated. Among the troubles: controllers that end at any await and begin again; kinds that may not be read for up to twenty
//! minutes, or that are installed late; caches that lag behind; bursts of changes past a small buffer; storms of conflicts; writes
//! that fail, some of which were carried out all the same; finalizers that are refused; reconciles that panic.

#![allow(unreachable_pub, reason = "the modules are shared with a test")]

mod end;
mod judge;
mod ledger;
mod lives;
mod operator;
mod people;
mod plan;
#[path = "../common/seeds.rs"]
mod seeds;
mod ticket;
mod traffic;
mod trouble;
mod world;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use plan::Plan;
use seeds::Seeds;
use world::{Numbers, simulate};

const USAGE: &str = "usage: simulate_controller --seeds COUNT [--first SEED] [--stop-at-first] | simulate_controller --seed SEED";
const THREADS: usize = 2;

fn main() -> ExitCode {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str() != Some("simulated") {
            usual(panic);
        }
    }));
    match Seeds::parse(std::env::args().skip(1)) {
        Some(Seeds::One(seed)) => one(seed),
        Some(Seeds::Many { first, count, stop_at_first }) => many(first, count, stop_at_first),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Runs one seed and says what it was and what came of it.
fn one(seed: u64) -> ExitCode {
    let plan = Plan::from_seed(seed);
    for (number, story) in plan.stories.iter().enumerate() {
        println!("web{number}: {story:?}");
    }
    for (number, turns) in plan.tickets.iter().enumerate() {
        println!("ticket t{number}: {turns:?}");
    }
    println!("tickets are installed after {:?}", plan.installed);
    println!("{:?}", plan.settings);
    for life in &plan.lives {
        println!("a controller ends {:?}, the next begins {:?} later", life.end, life.pause);
    }
    for rule in &plan.rules {
        println!("{rule}");
    }
    println!("{} of 1000 looks panic", plan.panics);
    let report = simulate(&plan);
    println!("{:#?}\n{:#?}", report.end, report.numbers);
    for violation in &report.violations {
        println!("violation: {violation}");
    }
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn many(first: u64, count: u64, stop_at_first: bool) -> ExitCode {
    println!("{count} seeds, the first is {first}");
    let next = AtomicU64::new(first);
    let totals = Mutex::new(Numbers::default());
    let failures = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    seeds::progress(first, seed, count);
                    let report = simulate(&Plan::from_seed(seed));
                    totals.lock().expect("sums cannot panic").add(&report.numbers);
                    for violation in report.violations {
                        // At once, because a long run may be ended before its end.
                        println!(
                            "seed {seed}: {violation}\n  replay: cargo run --release -p kube-informer --example simulate_controller -- --seed {seed}"
                        );
                        if stop_at_first {
                            next.store(first + count, Ordering::Relaxed);
                        }
                        failures.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner();
    let totals = totals.into_inner().expect("sums cannot panic");
    println!(
        r#"{{"seeds": {count}, "first": {first}, "violations": {}, "simulated_hours": {}, "faults": {}, "restarts": {}, "reconciles": {}, "panics": {}, "conflicts": {}, "children": {}, "merges": {}, "streak": {:.2}, "requests": {:.2}, "polls": {}}}"#,
        failures,
        totals.simulated.as_secs() / 3600,
        totals.faults,
        totals.restarts,
        totals.reconciles,
        totals.panics,
        totals.conflicts,
        totals.children,
        totals.merges,
        totals.longest_streak,
        totals.most_requests,
        totals.polls,
    );
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
