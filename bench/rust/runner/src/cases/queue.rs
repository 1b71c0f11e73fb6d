//! Processor time and time on the wall of one add, get and done.

use std::time::Duration;

use crate::cases::{Participant, in_order, participant};
use crate::figures::Report;
use crate::process::Process;
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(120);

/// kube-rs has no queue of its own that could be used.
const QUEUES: &[Participant] = &[
    participant("ours", "bench-ours", &[]),
    participant("client_go", "bench-go", &[]),
    participant("client_go_no_metrics", "bench-go", &["--no-metrics"]),
];

/// What is said when it is done, and the name of its figures. The last ones only we have.
const PHASES: &[(&str, &str)] = &[
    ("one_by_one", ""),
    ("hundred", "hundred_"),
    ("burst", "burst_"),
    ("waiting", "waiting_"),
    ("threads_1", "threads_1_"),
    ("threads_2", "threads_2_"),
    ("threads_4", "threads_4_"),
    ("threads_8", "threads_8_"),
    ("threads_16", "threads_16_"),
    ("priorities", "priorities_"),
    ("reasons", "reasons_"),
];
const OURS_ALONE: usize = 2;

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let keys = settings.either(1_000_000, 3_000_000);
    // Cheap enough to repeat even in a quick run.
    let rounds = settings.rounds.max(3);
    let mut report = Report::new("queue", rounds);
    report.order(QUEUES.iter().map(|participant| participant.name));
    report.note(format!(
        "for each add+get+done of {keys} keys of 30 characters: ns_per_op is processor time, user and system; wall_ns time on the wall"
    ));
    report.note("ours keeps its metrics always; client_go keeps them in counters cheaper than Prometheus'; client_go_no_metrics keeps none, as without a provider; kube-rs has no work queue");
    report.note("ns_per_op alone: one key after the other; hundred: a hundred at a time; burst: all added, then all taken; waiting: four threads add, four workers wait and take; threads_N: N threads, each one key after the other; priorities: a hundred at a time in eight priorities; reasons: a hundred at a time with a cause each");
    report.by_figure();
    for round in 0..rounds {
        for participant in in_order(QUEUES, round) {
            let mut command = participant.command(settings, "queue");
            let mut process = Process::start(participant.name, command.args(["--keys", &keys.to_string()]))?;
            let mut before = process.wait_for("ready", LIMIT)?;
            let phases =
                if participant.name == "ours" { PHASES } else { &PHASES[..PHASES.len() - OURS_ALONE] };
            for (moment, figure) in phases {
                let start = process.go_on()?;
                let after = process.wait_for(moment, LIMIT)?;
                let each = |seconds: f64| seconds * 1e9 / f64::from(keys);
                report.add(participant.name, &format!("{figure}ns_per_op"), each(after.cpu_s - before.cpu_s));
                let wall = after.at.duration_since(start).as_secs_f64();
                report.add(participant.name, &format!("{figure}wall_ns"), each(wall));
                before = after;
            }
        }
    }
    Ok(report)
}
