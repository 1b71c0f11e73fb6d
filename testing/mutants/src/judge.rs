//! Runs the tests against each mutant until one notices.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::build::Program;
use crate::sites::Site;
use crate::tree::Tree;

/// A program that takes so much longer than without a change hangs, which a user would notice.
const HANGS: u32 = 5;
const AT_LEAST: Duration = Duration::from_secs(20);
const THREADS: usize = 2;

pub enum Fate {
    /// By this program.
    Killed(String),
    Survived,
}

/// How many mutants a program has killed, how long it took for all it was asked about, and how long it may take.
#[derive(Clone, Copy)]
struct Record {
    limit: Duration,
    killed: f64,
    took: f64,
}

/// The fate of each mutant, by its number.
pub fn all(tree: &Tree, programs: &[Program], sites: &[Site]) -> Result<Vec<Fate>, String> {
    // Without a change nothing may fail.
    let mut records = Vec::new();
    for program in programs {
        let begun = Instant::now();
        if notices(tree, program, None, Duration::MAX)? {
            return Err(format!("{} fails without any change", program.name));
        }
        let took = begun.elapsed();
        records.push(Record { limit: took * HANGS + AT_LEAST, killed: 1.0, took: took.as_secs_f64() });
    }
    let records = Mutex::new(records);
    let next = AtomicUsize::new(0);
    let fates = Mutex::new(sites.iter().map(|_| Fate::Survived).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let mutant = next.fetch_add(1, Ordering::Relaxed);
                    let Some(site) = sites.get(mutant) else { return };
                    let fate = one(tree, programs, &records, mutant);
                    let said = match &fate {
                        Fate::Killed(by) => format!("killed by {by}"),
                        Fate::Survived => "SURVIVES".to_owned(),
                    };
                    println!("{mutant} of {}: {}: {said}", sites.len(), site.says());
                    fates.lock().expect("no panic")[mutant] = fate;
                }
            });
        }
    });
    Ok(fates.into_inner().expect("no panic"))
}

/// Asks the programs, those first that have killed the most for the time they took.
fn one(tree: &Tree, programs: &[Program], records: &Mutex<Vec<Record>>, mutant: usize) -> Fate {
    let mut order: Vec<usize> = (0..programs.len()).collect();
    let known = records.lock().expect("no panic").clone();
    let worth = |number: &usize| known[*number].killed / known[*number].took;
    order.sort_by(|one, two| worth(two).total_cmp(&worth(one)));
    for number in order {
        let begun = Instant::now();
        let killed = notices(tree, &programs[number], Some(mutant), known[number].limit).unwrap_or(true);
        let mut records = records.lock().expect("no panic");
        records[number].took += begun.elapsed().as_secs_f64();
        records[number].killed += f64::from(u8::from(killed));
        if killed {
            return Fate::Killed(programs[number].name.clone());
        }
    }
    Fate::Survived
}

/// Whether a program fails, or hangs.
fn notices(tree: &Tree, program: &Program, mutant: Option<usize>, limit: Duration) -> Result<bool, String> {
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).current_dir(tree.root.join("crates/kube-informer"));
    command.env("RUST_BACKTRACE", "0").env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(mutant) = mutant {
        command.env("KUBE_INFORMER_MUTANT", mutant.to_string());
    }
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.path))?;
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(!status.success());
        }
        if begun.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
