//! What it costs to read a complete cache.

use std::time::Duration;

use crate::cases::{Participant, in_order, participant};
use crate::control_plane::ControlPlane;
use crate::figures::Report;
use crate::process::Process;
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(300);

const READERS: &[Participant] = &[
    participant("ours", "bench-ours", &[]),
    participant("ours_raw", "bench-ours", &["--storage", "raw"]),
    participant("ours_stored_decoded", "bench-ours", &["--storage", "decoded"]),
    participant("client_go", "bench-go", &[]),
    participant("kube_rs", "bench-kube-rs", &["--tuned"]),
];

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let plane = ControlPlane::with_objects(settings)?;
    let mut report = Report::new("reads", settings.rounds);
    report.order(READERS.iter().map(|participant| participant.name));
    report.note("ours: packed, the default; ours_raw: Storage::Raw; ours_stored_decoded: Storage::Decoded; kube_rs: managedFields dropped by modify");
    report.note(format!("{} pods; processor time", settings.pods));
    report.note("get: one pod by key, decoded for the first time, each pod once; peek: one pod by key, its labels alone");
    report.note("scan: name and labels of all; selector: the pods of one workload by its label; both for each pod in the cache");
    report.note("index: one look for the pods of a node, of which there are 500; kube_rs has no indexes and looks at all pods");
    for round in 0..settings.rounds {
        for participant in in_order(READERS, round) {
            let mut command = participant.command(settings, "reads");
            let mut process = Process::start(participant.name, command.env("KUBECONFIG", &plane.kubeconfig))?;
            let mut before = process.wait_for("ready", LIMIT)?;
            let pods: usize = before.words[0].parse()?;
            anyhow::ensure!(pods == settings.pods, "{} has {pods} pods", participant.name);
            let phases = [
                ("get", "get_ns_per_op"),
                ("peek", "peek_ns_per_op"),
                ("scan", "scan_ns_per_object"),
                ("selector", "selector_ns_per_object"),
                ("index", "index_ns_per_op"),
            ];
            for (moment, figure) in phases {
                process.go_on()?;
                let after = process.wait_for(moment, LIMIT)?;
                let (times, found): (f64, f64) = (after.words[0].parse()?, after.words[1].parse()?);
                anyhow::ensure!(found > 0.0, "{} found nothing by {moment}", participant.name);
                report.add(participant.name, figure, (after.cpu_s - before.cpu_s) * 1e9 / times);
                before = after;
            }
        }
    }
    Ok(report)
}
