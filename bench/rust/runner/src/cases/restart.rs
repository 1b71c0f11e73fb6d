//! The server is restarted under twenty kinds: what it is asked for afterwards, and how long until all are up to date.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::audit::{Asked, Audit, count};
use crate::cases::{Participant, in_order, participant};
use crate::control_plane::ControlPlane;
use crate::figures::Report;
use crate::notes::Notes;
use crate::process::{Process, run_to_end};
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(180);

const FOLLOWERS: &[Participant] = &[
    participant("ours", "bench-ours", &[]),
    participant("client_go", "bench-go", &[]),
    participant("kube_rs", "bench-kube-rs", &[]),
    participant("kube_rs_tuned", "bench-kube-rs", &["--tuned"]),
];

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let notes = Notes::new(settings)?;
    let audit = Audit::new(&notes)?;
    let plane = ControlPlane::with_objects_and_flags(settings, &audit.flags())?;
    let mut report = Report::new("restart", settings.rounds);
    report.order(FOLLOWERS.iter().map(|participant| participant.name));
    report.note("one process follows 20 built-in kinds; kube-apiserver is killed and started again, then one object of each kind is changed");
    report.note(format!(
        "lists: lists and streaming lists begun after the restart, pages and exact reads of one object not counted, of kinds with {} pods and up to 1000 of the others; \
         fresh_s: from the server's being ready until all 20 changes are seen; server_cpu_s: of the new server until then, its start \
         included; nobody: a restart that nobody waits for",
        settings.pods
    ));
    report.note("client_go: protobuf, streaming list; kube_rs: defaults; kube_rs_tuned: streaming list, managedFields dropped by modify");
    touch(settings, &plane, "before")?;
    for round in 0..settings.rounds {
        for participant in in_order(FOLLOWERS, round) {
            let name = format!("{}-{round}", participant.name.replace('_', "-"));
            let mut command = participant.command(settings, "restart");
            command.args(["--round", &name]).env("KUBECONFIG", &plane.kubeconfig);
            let mut process = Process::start(participant.name, &mut command)?;
            process.wait_for("synced", LIMIT)?;
            process.go_on()?;
            let place = audit.place()?;
            plane.restart()?;
            let ready = Instant::now();
            touch(settings, &plane, &name)?;
            let fresh = process.wait_for("fresh", LIMIT)?;
            report.add(participant.name, "lists", count(&audit.since(place)?, Asked::List));
            report.add(participant.name, "fresh_s", (fresh.at - ready).as_secs_f64());
            report.add(participant.name, "server_cpu_s", plane.cpu_s()?);
        }
        plane.restart()?;
        report.add("nobody", "server_cpu_s", plane.cpu_s()?);
    }
    Ok(report)
}

fn touch(settings: &Settings, plane: &ControlPlane, round: &str) -> anyhow::Result<()> {
    let mut command = Command::new(settings.program("bench-go"));
    command.args(["touch", "--round", round]).env("KUBECONFIG", &plane.kubeconfig);
    run_to_end(&mut command, LIMIT)?;
    Ok(())
}
