//! When compressed answers pay: on loopback, and on slower links.

use std::time::Duration;

use crate::cases::{Participant, participant};
use crate::control_plane::ControlPlane;
use crate::figures::Report;
use crate::link::Link;
use crate::notes::Notes;
use crate::process::Process;
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(300);

/// As many as come over the slowest link in about a minute.
const PODS: usize = 5_000;

const ASKERS: &[Participant] = &[
    participant("ours", "bench-ours", &[]),
    participant("ours_gzip", "bench-ours", &["--gzip"]),
    participant("client_go", "bench-go", &[]),
];

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let settings = &Settings { pods: PODS, ..settings.clone() };
    let plane = ControlPlane::with_objects(settings)?;
    let notes = Notes::new(settings)?;
    let mut report = Report::new("gzip", 1);
    report.note(format!(
        "sync of {PODS} pods; ours: as by default, not compressed; ours_gzip: asked to be; client_go: always asks for it"
    ));
    report.note("loopback, or a proxy that lets so many bits through in a second");
    for megabits in settings.either(&[0, 100][..], &[0, 1000, 100, 10][..]) {
        for asker in ASKERS {
            let row = if *megabits == 0 {
                format!("{}_loopback", asker.name)
            } else {
                format!("{}_{megabits}_mbit", asker.name)
            };
            let link =
                (*megabits > 0).then(|| Link::start(plane.port, megabits * 1_000_000 / 8)).transpose()?;
            let (port, kubeconfig) = match &link {
                Some(link) => {
                    (link.port, notes.kubeconfig_through(&plane.kubeconfig, plane.port, link.port)?)
                }
                None => (plane.port, plane.kubeconfig.clone()),
            };
            let mut command = asker.command(settings, "sync");
            let mut process = Process::start(asker.name, command.env("KUBECONFIG", &kubeconfig))?;
            let before = process.wait_for("ready", LIMIT)?;
            let server_before = plane.cpu_s()?;
            let start = process.go_on()?;
            let synced = process.wait_for("synced", LIMIT)?;
            report.add(&row, "sync_s", (synced.at - start).as_secs_f64());
            report.add(&row, "cpu_s", synced.cpu_s - before.cpu_s);
            report.add(&row, "server_cpu_s", plane.cpu_s()? - server_before);
            report.add(&row, "wire_mb", process.wire_mb(port)?);
        }
    }
    Ok(report)
}
