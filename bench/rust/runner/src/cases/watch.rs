//! Changes while they happen: how late they come from a real server, and how many can come at all from a replaying one.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::cases::{EVERYBODY, Participant, WHO, in_order, participant};
use crate::control_plane::ControlPlane;
use crate::figures::Report;
use crate::notes::Notes;
use crate::process::{Process, run_to_end};
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(180);
const RATE: usize = 200;
const REPLAYED_PODS: usize = 2_000;

/// Besides everybody: with the frames that kube-rs gets, which reads JSON alone.
const WITH_JSON: &[Participant] = &[
    participant("ours_json", "bench-ours", &["--json"]),
    participant("client_go_json", "bench-go", &["--plain-json"]),
];

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let plane = ControlPlane::with_objects(settings)?;
    let mut report = Report::new("watch", settings.rounds);
    report.order(EVERYBODY.iter().map(|participant| participant.name));
    report.note(WHO);
    let changes = RATE * settings.either(10, 60);
    report.note(format!(
        "cpu_s, p50_ms, p99_ms, max_ms: {changes} changes, {RATE} a second, of {} pods by the real server; from the write's return to the handler (below 0: heard before that); written_per_s: the rate that the writer reached",
        settings.pods
    ));
    let events = settings.either(10_000, 40_000);
    report.note(format!(
        "events_per_s, events_per_cpu_s: {events} changes of {REPLAYED_PODS} recorded pods (ready or not, a container started again, an annotation, by turns), sent as fast as they are taken, without TLS; as protobuf, and to kube_rs and those named json as JSON"
    ));
    let notes = Notes::new(settings)?;
    for round in 0..settings.rounds {
        for participant in in_order(EVERYBODY, round) {
            steadily(settings, &plane, participant, changes, &notes, &mut report)?;
        }
        for participant in in_order(EVERYBODY, round).into_iter().chain(WITH_JSON) {
            flat_out(settings, &plane, participant, events, &notes, &mut report)?;
        }
    }
    Ok(report)
}

/// Real changes at a rate that the server can do with ease.
fn steadily(
    settings: &Settings,
    plane: &ControlPlane,
    participant: &Participant,
    changes: usize,
    notes: &Notes,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (written, heard) = (notes.path("written"), notes.path("heard"));
    let mut command = participant.command(settings, "watch");
    command
        .args(["--events", &changes.to_string(), "--times"])
        .arg(&heard)
        .env("KUBECONFIG", &plane.kubeconfig);
    let mut process = Process::start(participant.name, &mut command)?;
    let before = process.wait_for("synced", LIMIT)?;
    process.go_on()?;
    let mut writer = Command::new(settings.program("bench-go"));
    writer
        .args(["change", "--pods", &settings.pods.to_string(), "--seed", &settings.seed.to_string()])
        .args(["--rate", &RATE.to_string(), "--events", &changes.to_string(), "--times"])
        .arg(&written)
        .env("KUBECONFIG", &plane.kubeconfig);
    let (_, _, reached) = run_to_end(&mut writer, LIMIT)?;
    let after = process.wait_for("heard", LIMIT)?;
    report.add(participant.name, "written_per_s", reached.trim().parse()?);
    report.add(participant.name, "cpu_s", after.cpu_s - before.cpu_s);
    drop(process);
    let mut late = delays_ms(&written, &heard)?;
    anyhow::ensure!(late.len() == changes, "{} heard {} of {changes}", participant.name, late.len());
    late.sort_by(f64::total_cmp);
    report.add(participant.name, "p50_ms", late[late.len() / 2]);
    report.add(participant.name, "p99_ms", late[late.len() * 99 / 100]);
    report.add(participant.name, "max_ms", late[late.len() - 1]);
    Ok(())
}

/// Recorded changes as fast as the participant takes them.
fn flat_out(
    settings: &Settings,
    plane: &ControlPlane,
    participant: &Participant,
    events: usize,
    notes: &Notes,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut server = Command::new(settings.program("bench-go"));
    server
        .args(["replay", "--pods", &REPLAYED_PODS.to_string(), "--events", &events.to_string()])
        .env("KUBECONFIG", &plane.kubeconfig);
    let mut server = Process::start("the replaying server", &mut server)?;
    let ready = server.wait_for("ready", LIMIT)?;
    let port = ready.words.first().context("a port")?;
    let kubeconfig = notes.kubeconfig(port)?;
    let mut command = participant.command(settings, "watch");
    command.args(["--events", &events.to_string()]).env("KUBECONFIG", &kubeconfig);
    let mut process = Process::start(participant.name, &mut command)?;
    let before = process.wait_for("synced", LIMIT)?;
    process.go_on()?;
    let start = server.go_on()?;
    let after = process.wait_for("heard", LIMIT)?;
    report.add(participant.name, "events_per_s", events as f64 / (after.at - start).as_secs_f64());
    report.add(participant.name, "events_per_cpu_s", events as f64 / (after.cpu_s - before.cpu_s));
    Ok(())
}

/// How long after its write each change was heard.
fn delays_ms(written: &Path, heard: &Path) -> anyhow::Result<Vec<f64>> {
    let read = |path: &Path| -> anyhow::Result<HashMap<String, i128>> {
        let text = fs::read_to_string(path)?;
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.map(|(version, time)| Ok((version.to_owned(), time.parse()?))).collect()
    };
    let heard = read(heard)?;
    let delays = read(written)?.into_iter().filter_map(|(version, time)| Some(heard.get(&version)? - time));
    Ok(delays.map(|nanoseconds| nanoseconds as f64 / 1e6).collect())
}
