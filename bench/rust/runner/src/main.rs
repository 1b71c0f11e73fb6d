//! Runs a case of the benchmarks: every participant in a process of its own, one after the other, measured from outside.

mod audit;
mod cases;
mod control_plane;
mod figures;
mod link;
mod notes;
mod process;
mod settings;
mod switch;
mod variety;

use figures::Earlier;
use settings::Settings;

fn main() -> anyhow::Result<()> {
    let settings = Settings::from_arguments()?;
    let all = [
        "queue", "readers", "sync", "memory", "reads", "watch", "restart", "recover", "gzip", "worst",
        "million",
    ];
    let chosen = if settings.case == "all" { all.to_vec() } else { vec![settings.case.as_str()] };
    let mut earlier = Earlier::of(&settings)?;
    for case in chosen {
        let report = match case {
            "sync" => cases::sync::run(&settings)?,
            "queue" => cases::queue::run(&settings)?,
            "readers" => cases::readers::run(&settings)?,
            "memory" => cases::memory::run(&settings)?,
            "million" => cases::million::run(&settings, &earlier)?,
            "reads" => cases::reads::run(&settings)?,
            "restart" => cases::restart::run(&settings)?,
            "recover" => cases::recover::run(&settings)?,
            "gzip" => cases::gzip::run(&settings)?,
            "worst" => cases::worst::run(&settings)?,
            "watch" => cases::watch::run(&settings)?,
            other => anyhow::bail!("there is no case {other}; there are {}", all.join(", ")),
        };
        earlier.push(report.print(&settings)?);
    }
    Ok(())
}
