//! Processor time of one add, get and done.

use std::time::Duration;

use crate::cases::{LIBRARIES, in_order};
use crate::figures::Report;
use crate::process::Process;
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let keys = settings.either(1_000_000, 3_000_000);
    // Cheap enough to repeat even in a quick run.
    let rounds = settings.rounds.max(3);
    let mut report = Report::new("queue", rounds);
    // kube-rs has no queue of its own that could be used.
    let two = &LIBRARIES[..2];
    report.order(two.iter().map(|participant| participant.name));
    report.note(format!(
        "processor time, user and system, for each add+get+done of {keys} keys; kube-rs has no work queue"
    ));
    report.note("ns_per_op: one key after the other; hundred: a hundred at a time; burst: all added, then all taken; contended: four threads add, four workers take");
    for round in 0..rounds {
        for participant in in_order(two, round) {
            let mut command = participant.command(settings, "queue");
            let mut process = Process::start(participant.name, command.args(["--keys", &keys.to_string()]))?;
            let mut before = process.wait_for("ready", LIMIT)?;
            let phases = [
                ("one_by_one", "ns_per_op"),
                ("hundred", "hundred_ns_per_op"),
                ("burst", "burst_ns_per_op"),
                ("contended", "contended_ns_per_op"),
            ];
            for (moment, figure) in phases {
                process.go_on()?;
                let after = process.wait_for(moment, LIMIT)?;
                report.add(participant.name, figure, (after.cpu_s - before.cpu_s) * 1e9 / f64::from(keys));
                before = after;
            }
        }
    }
    Ok(report)
}
