//! Very many pods, more than a real server of this machine could hold: ours only.

use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::cases::LIBRARIES;
use crate::figures::Report;
use crate::notes::Notes;
use crate::process::Process;
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(900);

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let pods = settings.either(100_000, 1_000_000);
    let notes = Notes::new(settings)?;
    let mut report = Report::new("million", 1);
    report.note(format!(
        "{pods} pods without managedFields, made from the seed by a server of the benchmarks while it sends them, as JSON and without TLS; \
         that server decides how long it takes"
    ));
    let mut server = Command::new(settings.program("bench-go"));
    server.args(["stream", "--pods", &pods.to_string(), "--seed", &settings.seed.to_string()]);
    let mut server = Process::start("the server", &mut server)?;
    let ready = server.wait_for("ready", LIMIT)?;
    let kubeconfig = notes.kubeconfig(ready.words.first().context("a port")?)?;
    let ours = &LIBRARIES[0];
    let mut command = ours.command(settings, "sync");
    let mut process = Process::start(ours.name, command.env("KUBECONFIG", &kubeconfig))?;
    let before = process.wait_for("ready", LIMIT)?;
    let empty = process.rss_mb()?;
    let start = process.go_on()?;
    let synced = process.wait_for("synced", LIMIT)?;
    let heard: usize = synced.words[0].parse()?;
    anyhow::ensure!(heard == pods, "{heard} of {pods} pods were heard of");
    process.go_on()?;
    process.wait_for("settled", LIMIT)?;
    let settled = process.rss_mb()?;
    report.add(ours.name, "sync_s", (synced.at - start).as_secs_f64());
    report.add(ours.name, "cpu_s", synced.cpu_s - before.cpu_s);
    report.add(ours.name, "peak_mb", process.peak_mb()?);
    report.add(ours.name, "settled_mb", settled);
    report.add(ours.name, "bytes_per_object", (settled - empty) * 1e6 / pods as f64);
    Ok(report)
}
