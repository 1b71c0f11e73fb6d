//! Makes a failing schedule smaller: leaves out steps and informers as long as it still fails.

use super::schedule::Schedule;
use super::world;

/// How many runs a search may take.
const RUNS: usize = 400;

/// The smallest schedule that was found to fail.
pub fn shrink(schedule: &Schedule) -> Schedule {
    let mut smallest = schedule.clone();
    let mut runs = 0;
    let mut fails = |candidate: &Schedule| {
        runs += 1;
        runs <= RUNS && world::run(candidate, false).violation.is_some()
    };
    let mut size = (smallest.steps.len() / 2).max(1);
    loop {
        let mut start = 0;
        while start < smallest.steps.len() {
            let mut candidate = smallest.clone();
            let end = (start + size).min(candidate.steps.len());
            candidate.steps.drain(start..end);
            if fails(&candidate) {
                smallest = candidate;
            } else {
                start = end;
            }
        }
        if size == 1 {
            return smallest;
        }
        size /= 2;
    }
}

/// The schedule as a list, to be read.
pub fn describe(schedule: &Schedule) -> String {
    let Schedule { seed, healing, gzip, crowd, informers, steps } = schedule;
    let head = format!("seed {seed}, healing {healing}, gzip {gzip}, {crowd:?}, informers {informers:?}\n");
    let steps = steps.iter().map(|step| format!("  after {:?}: {:?}\n", step.wait, step.action));
    std::iter::once(head).chain(steps).collect()
}
