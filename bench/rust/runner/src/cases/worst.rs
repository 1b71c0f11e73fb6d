//! Objects that cannot be packed: what it costs to have tried.

use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::cases::{Participant, in_order, participant};
use crate::figures::Report;
use crate::notes::Notes;
use crate::process::Process;
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(300);

const STORAGES: &[Participant] =
    &[participant("ours", "bench-ours", &[]), participant("ours_raw", "bench-ours", &["--storage", "raw"])];

/// Kind, how many, random bytes in each.
const WORST: &[(&str, usize, usize)] = &[("configmaps", 50_000, 200), ("secrets", 2_000, 100_000)];

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let notes = Notes::new(settings)?;
    // Cheap enough to repeat even in a quick run.
    let rounds = settings.rounds.max(3);
    let mut report = Report::new("worst", rounds);
    report.order(STORAGES.iter().map(|participant| participant.name));
    for (kind, count, bytes) in WORST {
        report.note(format!(
            "{kind}: {count} of {bytes} random bytes each, as protobuf, without TLS, from a server of the benchmarks"
        ));
    }
    report.note(
        "ours: packed, the default; ours_raw: Storage::Raw; ratio: packed divided by raw, of the medians",
    );
    for round in 0..rounds {
        for (kind, count, bytes) in WORST {
            for participant in in_order(STORAGES, round) {
                measure(settings, &notes, participant, (kind, *count, *bytes), &mut report)?;
            }
        }
    }
    for (kind, ..) in WORST {
        for figure in ["cpu_s", "settled_mb"] {
            let figure = format!("{kind}_{figure}");
            if let (Some(packed), Some(raw)) =
                (report.median("ours", &figure), report.median("ours_raw", &figure))
            {
                report.add("ratio", &figure, packed / raw);
            }
        }
    }
    Ok(report)
}

fn measure(
    settings: &Settings,
    notes: &Notes,
    participant: &Participant,
    (kind, count, bytes): (&str, usize, usize),
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut server = Command::new(settings.program("bench-go"));
    server
        .args(["stream", "--kind", kind, "--objects", &count.to_string(), "--bytes", &bytes.to_string()])
        .args(["--seed", &settings.seed.to_string()]);
    let mut server = Process::start("the server", &mut server)?;
    let ready = server.wait_for("ready", LIMIT)?;
    let kubeconfig = notes.kubeconfig(ready.words.first().context("a port")?)?;
    let mut command = participant.command(settings, "sync");
    command.args(["--kind", kind]).env("KUBECONFIG", &kubeconfig);
    let mut process = Process::start(participant.name, &mut command)?;
    let before = process.wait_for("ready", LIMIT)?;
    process.go_on()?;
    let synced = process.wait_for("synced", LIMIT)?;
    let heard: usize = synced.words[0].parse()?;
    anyhow::ensure!(heard == count, "{heard} of {count} {kind} were heard of");
    process.go_on()?;
    process.wait_for("settled", LIMIT)?;
    report.add(participant.name, &format!("{kind}_cpu_s"), synced.cpu_s - before.cpu_s);
    report.add(participant.name, &format!("{kind}_settled_mb"), process.rss_mb()?);
    Ok(())
}
