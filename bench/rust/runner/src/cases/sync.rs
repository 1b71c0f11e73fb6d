//! From nothing to a complete cache and a handler that has had every object.

use std::time::Duration;

use crate::cases::{EVERYBODY, WHO, in_order};
use crate::control_plane::ControlPlane;
use crate::figures::Report;
use crate::process::Process;
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let plane = ControlPlane::with_objects(settings)?;
    let mut report = Report::new("sync", settings.rounds);
    report.order(EVERYBODY.iter().map(|participant| participant.name));
    report.note(crate::variety::of_pods(settings, &plane)?);
    report.note(WHO);
    report.note("floor: curl reads the list as protobuf over the same TLS to nowhere; floor_json: as JSON");
    for round in 0..settings.rounds {
        for participant in in_order(EVERYBODY, round) {
            let mut command = participant.command(settings, "sync");
            let mut process = Process::start(participant.name, command.env("KUBECONFIG", &plane.kubeconfig))?;
            let before = process.wait_for("ready", LIMIT)?;
            let empty = process.rss_mb()?;
            let server_before = plane.cpu_s()?;
            let start = process.go_on()?;
            let synced = process.wait_for("synced", LIMIT)?;
            let server_after = plane.cpu_s()?;
            let heard: usize = synced.words[0].parse()?;
            anyhow::ensure!(heard == settings.pods, "{} heard of {heard} pods", participant.name);
            let wire = process.wire_mb(plane.port)?;
            process.go_on()?;
            process.wait_for("settled", LIMIT)?;
            let mut add = |figure, value| report.add(participant.name, figure, value);
            add("sync_s", (synced.at - start).as_secs_f64());
            add("cpu_s", synced.cpu_s - before.cpu_s);
            add("server_cpu_s", server_after - server_before);
            add("wire_mb", wire);
            add("peak_mb", process.peak_mb()?);
            let settled = process.rss_mb()?;
            add("settled_mb", settled);
            add("bytes_per_object", (settled - empty) * 1e6 / settings.pods as f64);
        }
        for (name, accept) in
            [("floor", "application/vnd.kubernetes.protobuf"), ("floor_json", "application/json")]
        {
            let server_before = plane.cpu_s()?;
            let (wall, cpu, megabytes) = plane.read("pods", accept)?;
            report.add(name, "sync_s", wall);
            report.add(name, "cpu_s", cpu);
            report.add(name, "server_cpu_s", plane.cpu_s()? - server_before);
            report.add(name, "wire_mb", megabytes);
        }
    }
    Ok(report)
}
