//! Changes the library in many small ways, one at a time, and says which changes no test notices.
//!
//! All mutants are built at once: each is a branch that an environment variable chooses, so that a mutant costs a run of some
//! tests, not a build. What does not compile is left out. Run by `testing/mutants/run`, in the root of the project.

mod build;
mod judge;
mod sites;
mod tree;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use judge::Fate;
use sites::Site;

const USAGE: &str = "usage: mutants [--count N] [--seed SEED] [--module NAME]...";

/// The parts of the library that are changed.
const MODULES: [&str; 8] =
    ["store", "delta_fifo", "processor", "shared_informer", "reflector", "workqueue", "controller", "object"];

struct Settings {
    count: usize,
    seed: u64,
    modules: Vec<String>,
}

fn main() -> ExitCode {
    let Some(settings) = settings() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn settings() -> Option<Settings> {
    let mut settings = Settings { count: 400, seed: fastrand::u64(..1 << 40), modules: Vec::new() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--count" => settings.count = words.next()?.parse().ok()?,
            "--seed" => settings.seed = words.next()?.parse().ok()?,
            "--module" => settings.modules.push(words.next()?),
            _ => return None,
        }
    }
    if settings.modules.is_empty() {
        settings.modules = MODULES.map(str::to_owned).into();
    }
    Some(settings)
}

fn run(settings: &Settings) -> Result<(), String> {
    println!("{} mutants, seed {}", settings.count, settings.seed);
    let source = PathBuf::from("crates/kube-informer/src");
    let mut random = fastrand::Rng::with_seed(settings.seed);
    let mut chosen: Vec<Site> = Vec::new();
    // As many of each module, so that a large one does not hide a small one.
    for (number, module) in settings.modules.iter().enumerate() {
        let share = (settings.count - chosen.len()) / (settings.modules.len() - number);
        let mut found = sites::of_module(&source, module)?;
        let all = found.len();
        random.shuffle(&mut found);
        let before = chosen.len();
        for site in found {
            if chosen.len() - before < share && chosen.iter().all(|other| !other.overlaps(&site)) {
                chosen.push(site);
            }
        }
        println!("{module}: {} of {all} places", chosen.len() - before);
    }
    let tree = tree::Tree::copy()?;
    let (viable, programs) = build::viable(&tree, chosen)?;
    println!("{} mutants can be built", viable.len());
    let fates = judge::all(&tree, &programs, &viable)?;
    report(&viable, &fates);
    Ok(())
}

fn report(sites: &[Site], fates: &[Fate]) {
    let mut by_module: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    println!("\nNo test notices:");
    for (site, fate) in sites.iter().zip(fates) {
        let (killed, survived) = by_module.entry(&site.module).or_default();
        match fate {
            Fate::Killed(_) => *killed += 1,
            Fate::Survived => {
                *survived += 1;
                println!("- {}", site.says());
            }
        }
    }
    println!("\n| module | viable | killed | survive |\n| --- | ---: | ---: | ---: |");
    let (mut all_killed, mut all_survived) = (0, 0);
    for (module, (killed, survived)) in by_module {
        println!("| `{module}` | {} | {killed} | {survived} |", killed + survived);
        all_killed += killed;
        all_survived += survived;
    }
    println!("| all | {} | {all_killed} | {all_survived} |", all_killed + all_survived);
}
