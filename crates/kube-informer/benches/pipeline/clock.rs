//! CPU time of this thread and wall-clock time, side by side.

use std::time::Duration;

use tokio::time::Instant;

/// When something began.
pub(crate) struct Stopwatch {
    wall: Instant,
    cpu: Option<Duration>,
}

/// How long it took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Took {
    pub(crate) wall: Duration,
    /// CPU time of the thread that measured; wall-clock time where the system does not tell.
    pub(crate) cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { wall: Instant::now(), cpu: cpu_time() }
    }

    pub(crate) fn stop(&self) -> Took {
        let wall = self.wall.elapsed();
        let cpu = self.cpu.and_then(|before| cpu_time()?.checked_sub(before));
        Took { wall, cpu: cpu.unwrap_or(wall) }
    }
}

/// Whether the system tells CPU time by thread.
pub(crate) fn counts_cpu_time() -> bool {
    cpu_time().is_some()
}

/// The median of each of the two.
pub(crate) fn median(rounds: &[Took]) -> Took {
    let middle = |of: fn(&Took) -> Duration| {
        let mut all: Vec<Duration> = rounds.iter().map(of).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    Took { wall: middle(|took| took.wall), cpu: middle(|took| took.cpu) }
}

/// Microseconds for each of `count`.
pub(crate) fn micros_each(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / 1_000.0 / count as f64
}

/// The first number of the file is the time this thread has run, in nanoseconds.
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}
