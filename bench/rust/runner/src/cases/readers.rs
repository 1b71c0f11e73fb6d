//! Writes a second while others list the store.

use std::time::Duration;

use crate::cases::{LIBRARIES, in_order};
use crate::figures::Report;
use crate::process::Process;
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(120);
const OBJECTS: usize = 10_000;

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let millis = settings.either(1_500, 5_000);
    let mut report = Report::new("readers", settings.rounds);
    report.order(LIBRARIES.iter().map(|participant| participant.name));
    report.note(format!(
        "one thread writes ready-made objects into a store of {OBJECTS}, one by one, for {millis} ms; the others list all of it without pause, or only spin"
    ));
    for round in 0..settings.rounds {
        for participant in in_order(LIBRARIES, round) {
            let mut command = participant.command(settings, "readers");
            command.args(["--objects", &OBJECTS.to_string(), "--millis", &millis.to_string()]);
            let mut process = Process::start(participant.name, &mut command)?;
            process.wait_for("ready", LIMIT)?;
            process.go_on()?;
            let done = process.wait_for("updates", LIMIT)?;
            let figures = [
                "updates_per_s",
                "updates_per_s_1_reader",
                "updates_per_s_10_readers",
                "updates_per_s_10_spinning",
            ];
            for (figure, value) in figures.into_iter().zip(&done.words) {
                report.add(participant.name, figure, value.parse()?);
            }
        }
    }
    Ok(report)
}
