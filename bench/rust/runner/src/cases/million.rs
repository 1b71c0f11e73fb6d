//! Very many pods, more than a real server of this machine could hold: ours only.

use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::cases::LIBRARIES;
use crate::figures::{Earlier, Report};
use crate::notes::Notes;
use crate::process::Process;
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(900);
const EVENTS: usize = 20_000;
const FEW: usize = 1_000;

pub(crate) fn run(settings: &Settings, earlier: &Earlier) -> anyhow::Result<Report> {
    let pods = settings.either(100_000, 1_000_000);
    let notes = Notes::new(settings)?;
    let mut report = Report::new("million", 1);
    report.note(format!(
        "{pods} pods without managedFields, made from the seed by a server of the benchmarks while it sends them, as protobuf and without \
         TLS, in the order of a real server; that server decides how long it takes"
    ));
    report.note(format!(
        "event_cpu_us: processor time of one change from the bytes to the handler, over {EVENTS} changes; ours_{FEW}: the same with {FEW} pods"
    ));
    measure(settings, &notes, pods, "ours", &mut report)?;
    measure(settings, &notes, FEW, &format!("ours_{FEW}"), &mut report)?;
    extrapolate(earlier, pods, &mut report);
    Ok(report)
}

fn measure(
    settings: &Settings,
    notes: &Notes,
    pods: usize,
    name: &str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut server = Command::new(settings.program("bench-go"));
    server
        .args(["stream", "--objects", &pods.to_string(), "--seed", &settings.seed.to_string()])
        .args(["--events", &EVENTS.to_string()]);
    let mut server = Process::start("the server", &mut server)?;
    let ready = server.wait_for("ready", LIMIT)?;
    let kubeconfig = notes.kubeconfig(ready.words.first().context("a port")?)?;
    let mut command = LIBRARIES[0].command(settings, "sync");
    command.args(["--events", &EVENTS.to_string()]).env("KUBECONFIG", &kubeconfig);
    let mut process = Process::start(name, &mut command)?;
    let before = process.wait_for("ready", LIMIT)?;
    let empty = process.rss_mb()?;
    let start = process.go_on()?;
    let synced = process.wait_for("synced", LIMIT)?;
    let heard: usize = synced.words[0].parse()?;
    anyhow::ensure!(heard == pods, "{heard} of {pods} pods were heard of");
    process.go_on()?;
    let settled = process.wait_for("settled", LIMIT)?;
    let settled_mb = process.rss_mb()?;
    report.add(name, "sync_s", (synced.at - start).as_secs_f64());
    report.add(name, "cpu_s", synced.cpu_s - before.cpu_s);
    report.add(name, "peak_mb", process.peak_mb()?);
    report.add(name, "settled_mb", settled_mb);
    report.add(name, "bytes_per_object", (settled_mb - empty) * 1e6 / pods as f64);
    process.go_on()?;
    server.go_on()?;
    let heard = process.wait_for("heard", LIMIT)?;
    report.add(name, "event_cpu_us", (heard.cpu_s - settled.cpu_s) * 1e6 / EVENTS as f64);
    Ok(())
}

/// What the rivals would take: as much more than in `sync` as there are more pods.
fn extrapolate(earlier: &Earlier, pods: usize, report: &mut Report) {
    let Some(sync) = earlier.last("sync") else {
        report.note("no result of sync to extrapolate the rivals' figures from: run all, or sync with the same --json FILE before");
        return;
    };
    let of = sync["pods"].as_f64().unwrap_or(f64::INFINITY);
    report.note(format!(
        "extrapolated: nobody was measured, but the figures of a sync of {of} pods multiplied; there, pods come over TLS and with \
         managedFields, which only client_go_stripped and kube_rs_tuned drop"
    ));
    for name in ["client_go", "client_go_stripped", "kube_rs", "kube_rs_tuned"] {
        for figure in ["sync_s", "cpu_s", "peak_mb", "settled_mb"] {
            if let Some(value) = sync["results"][name][figure].as_f64() {
                report.add(&format!("{name}_extrapolated"), figure, value * pods as f64 / of);
            }
        }
        if let Some(value) = sync["results"][name]["bytes_per_object"].as_f64() {
            report.add(&format!("{name}_extrapolated"), "bytes_per_object", value);
        }
    }
}
