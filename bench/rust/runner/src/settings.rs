//! What was asked for on the command line, and where things are.

use std::path::PathBuf;

use anyhow::{Context, bail};

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) case: String,
    pub(crate) quick: bool,
    pub(crate) pods: usize,
    pub(crate) rounds: usize,
    pub(crate) seed: u64,
    pub(crate) json: Option<PathBuf>,
    /// The repository.
    pub(crate) root: PathBuf,
    /// Where filled servers are kept.
    pub(crate) cache: PathBuf,
    /// The name of our control plane; whoever started us takes it down if we cannot.
    pub(crate) instance: String,
    /// Of what is measured.
    pub(crate) versions: Vec<(String, String)>,
}

impl Settings {
    pub(crate) fn from_arguments() -> anyhow::Result<Self> {
        let from =
            |name: &str| std::env::var(name).with_context(|| format!("{name} is not set: use bench/run"));
        let mut settings = Self {
            case: String::new(),
            quick: false,
            pods: 0,
            rounds: 0,
            seed: 1,
            json: None,
            root: from("BENCH_ROOT")?.into(),
            cache: from("BENCH_CACHE")?.into(),
            instance: from("BENCH_INSTANCE")?,
            versions: from("BENCH_VERSIONS")?
                .lines()
                .filter_map(|line| line.split_once('='))
                .map(|(name, version)| (name.to_owned(), version.to_owned()))
                .collect(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--quick" => settings.quick = true,
                "--pods" => settings.pods = value()?.parse()?,
                "--rounds" => settings.rounds = value()?.parse()?,
                "--seed" => settings.seed = value()?.parse()?,
                "--json" => settings.json = Some(value()?.into()),
                case if !case.starts_with('-') && settings.case.is_empty() => {
                    case.clone_into(&mut settings.case)
                }
                other => bail!("unknown option {other}"),
            }
        }
        if settings.case.is_empty() {
            bail!(
                "which case? sync, queue, readers, memory, reads, watch, restart, recover, gzip, worst, million or all"
            );
        }
        if settings.pods == 0 {
            settings.pods = if settings.quick { 5_000 } else { 50_000 };
        }
        if settings.rounds == 0 {
            settings.rounds = if settings.quick { 1 } else { 3 };
        }
        Ok(settings)
    }

    /// One of two numbers, the first for a quick run.
    pub(crate) fn either<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// A program of the benchmarks.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        match name {
            "bench-go" => self.root.join("bench/bin/bench-go"),
            name => self.root.join("bench/target/release").join(name),
        }
    }
}
