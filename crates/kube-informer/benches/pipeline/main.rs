//! What the pipeline costs: from the bytes of an event to the store, the indexes and the handlers.
//!
//! `cargo bench -p kube-informer --bench pipeline` prints a table in about a minute; `-- --quick` takes a few seconds with
//! smaller numbers, `-- update` (or `readers`, `fan-out`) only a part. Everything of the informer runs on one thread, and its CPU time is what the system says of that thread:
//! on a machine that others use as well, that is the number to look at. Numbers are medians of several rounds, and rounds
//! of what is compared take turns.

mod clock;
mod fan_out;
mod readers;
mod update;
mod world;

/// How much is done: everything is a count, so that a run ends.
struct Effort {
    sizes: &'static [usize],
    rounds: usize,
    /// Events in a round.
    events: usize,
    /// Objects in the store while readers list it, and while many handlers listen.
    objects: usize,
}

const FULL: Effort =
    Effort { sizes: &[1_000, 100_000, 1_000_000], rounds: 5, events: 10_000, objects: 10_000 };
const QUICK: Effort = Effort { sizes: &[1_000, 20_000], rounds: 3, events: 1_000, objects: 2_000 };

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let effort = if arguments.iter().any(|argument| argument == "--quick") { QUICK } else { FULL };
    if !clock::counts_cpu_time() {
        println!("(this system does not tell CPU time by thread: wall-clock time stands in its place)");
    }
    let all = arguments.iter().all(|argument| argument.starts_with("--"));
    let wants = |part: &str| all || arguments.iter().any(|argument| argument == part);
    if wants("update") {
        update::run(&effort);
    }
    if wants("readers") {
        readers::run(&effort);
    }
    if wants("fan-out") {
        fan_out::run(&effort);
    }
}
