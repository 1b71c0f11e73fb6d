//! Memory for each object, by kind.

use std::time::Duration;

use crate::cases::{EVERYBODY, WHO};
use crate::control_plane::ControlPlane;
use crate::figures::Report;
use crate::process::Process;
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let plane = ControlPlane::with_objects(settings)?;
    let mut report = Report::new("memory", 1);
    report.order(EVERYBODY.iter().map(|participant| participant.name));
    report.note(WHO);
    report.note("bytes for each object: what the process has more after its cache is complete than before, memory given back both times; one process for each kind");
    let mut counts = vec![];
    for kind in ["pods", "configmaps", "secrets", "nodes", "deployments", "events", "widgets"] {
        for participant in EVERYBODY {
            let mut command = participant.command(settings, "sync");
            command.args(["--kind", kind]).env("KUBECONFIG", &plane.kubeconfig);
            let mut process = Process::start(participant.name, &mut command)?;
            process.wait_for("ready", LIMIT)?;
            let before = process.rss_mb()?;
            process.go_on()?;
            let objects: f64 = process.wait_for("synced", LIMIT)?.words[0].parse()?;
            process.go_on()?;
            process.wait_for("settled", LIMIT)?;
            let figure = format!("{kind}_bytes_per_object");
            report.add(participant.name, &figure, (process.rss_mb()? - before) * 1e6 / objects);
            if participant.name == "ours" {
                counts.push(format!("{objects} {kind}"));
            }
        }
    }
    report.note(format!("{}; widgets are a custom kind", counts.join(", ")));
    Ok(report)
}
