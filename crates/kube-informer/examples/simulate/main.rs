//! Runs the informer pipeline through simulated trouble and checks what it promises.
//!
//! `cargo run --release -p kube-informer --example simulate -- --seeds 2000` runs that many seeds on two threads, from a first
//! seed that is drawn and printed, or given with `--first SEED`. `--stop-at-first` ends with the first violation and does not make
//! it smaller. `--seed SEED` runs one seed and prints all that happens. Time is simulated, and a seed does the same in every run.

#![allow(unreachable_pub, reason = "the modules are shared with a test")]

mod bodies;
mod checker;
mod ledger;
mod log;
mod observer;
mod report;
mod resource;
mod schedule;
#[path = "../common/seeds.rs"]
mod seeds;
mod shrink;
mod trace;
mod truth;
mod world;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};

use report::Numbers;
use schedule::Schedule;
use seeds::Seeds;

const USAGE: &str = "usage: simulate --seeds COUNT [--first SEED] [--stop-at-first] | simulate --seed SEED";
const THREADS: usize = 2;

fn main() -> ExitCode {
    match Seeds::parse(std::env::args().skip(1)) {
        Some(Seeds::One(seed)) => replay(seed),
        Some(Seeds::Many { first, count, stop_at_first }) => many(first, count, stop_at_first),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Runs one seed and prints all that happens.
fn replay(seed: u64) -> ExitCode {
    let report = world::replay(&Schedule::from_seed(seed));
    for line in &report.lines {
        println!("{line}");
    }
    println!("trace {:016x}, the same in every run", report.hash);
    match report.violation {
        None => {
            println!("seed {seed}: no violation");
            ExitCode::SUCCESS
        }
        Some(violation) => {
            println!("seed {seed}: {violation}");
            ExitCode::FAILURE
        }
    }
}

/// Runs many seeds, says what they did, and makes the first that fails smaller.
fn many(first: u64, count: u64, stop: bool) -> ExitCode {
    println!("{count} seeds, the first is {first}");
    let next = AtomicU64::new(first);
    let totals = Mutex::new(Numbers::default());
    let (failed, failures) = mpsc::channel::<(u64, String)>();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let failed = failed.clone();
            scope.spawn(|| {
                let failed = failed;
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    seeds::progress(first, seed, count);
                    let report = world::run(&Schedule::from_seed(seed), false);
                    totals.lock().expect("sums cannot panic").add(&report.numbers);
                    if let Some(violation) = report.violation {
                        if stop {
                            next.store(first + count, Ordering::Relaxed);
                        }
                        // At once, because a long run may be ended before its end.
                        println!(
                            "seed {seed}: {violation}\n  replay: cargo run --release -p kube-informer --example simulate -- --seed {seed}"
                        );
                        let _ = failed.send((seed, violation));
                    }
                }
            });
        }
    });
    drop(failed);
    let mut failures: Vec<(u64, String)> = failures.into_iter().collect();
    failures.sort();
    let totals = totals.into_inner().expect("sums cannot panic");
    print_numbers(&totals);
    if let Some((seed, _)) = failures.first().filter(|_| !stop) {
        println!("\nseed {seed}, made smaller:");
        let smallest = shrink::shrink(&Schedule::from_seed(*seed));
        print!("{}", shrink::describe(&smallest));
        if let Some(violation) = world::run(&smallest, false).violation {
            println!("{violation}");
        }
    }
    println!(
        r#"{{"seeds": {count}, "first": {first}, "violations": {}, "simulated_hours": {}, "faults": {}, "lists": {}, "streaming_lists": {}, "watches": {}, "events": {}, "writes": {}, "snapshots": {}}}"#,
        failures.len(),
        totals.simulated.as_secs() / 3600,
        totals.faults.values().sum::<u64>(),
        totals.lists,
        totals.streaming_lists,
        totals.watches,
        totals.events,
        totals.writes,
        totals.snapshots,
    );
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_numbers(numbers: &Numbers) {
    println!("simulated hours   {:>10.1}", numbers.simulated.as_secs_f64() / 3600.0);
    println!("writes            {:>10}", numbers.writes);
    println!("lists             {:>10}", numbers.lists);
    println!("streaming lists   {:>10}", numbers.streaming_lists);
    println!("watches           {:>10}", numbers.watches);
    println!("events heard      {:>10}", numbers.events);
    println!("snapshots checked {:>10}", numbers.snapshots);
    println!("runs with crowds  {:>10}", numbers.crowds);
    println!("most objects      {:>10}", numbers.most_objects);
    println!("informers         {:>10}", numbers.informers.values().sum::<u64>());
    for (kind, count) in &numbers.informers {
        println!("  {kind:<24}{count:>6}");
    }
    println!("faults injected   {:>10}", numbers.faults.values().sum::<u64>());
    for (kind, count) in &numbers.faults {
        println!("  {kind:<24}{count:>6}");
    }
}
