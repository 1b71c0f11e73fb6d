//! What happened in a run, in order, and the first thing that went wrong.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Display;
use std::hash::Hasher;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

/// Shared by everything that takes part in a run.
#[derive(Clone)]
pub struct Trace(Arc<Mutex<Inner>>);

struct Inner {
    begun: Instant,
    /// Lines are kept only where somebody will read them; a hash of all of them always is.
    lines: Option<Vec<String>>,
    hasher: DefaultHasher,
    violation: Option<String>,
}

impl Trace {
    pub fn new(keep_lines: bool) -> Self {
        let lines = keep_lines.then(Vec::new);
        let inner = Inner { begun: Instant::now(), lines, hasher: DefaultHasher::new(), violation: None };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// Writes one line, with the simulated time.
    pub fn line(&self, text: impl Display) {
        let mut inner = self.lock();
        let line = format!("{:>9.3}s {text}", inner.begun.elapsed().as_secs_f64());
        inner.hasher.write(line.as_bytes());
        if let Some(lines) = &mut inner.lines {
            lines.push(line);
        }
    }

    /// Writes one line for readers, which does not count as part of what happened.
    pub fn aside(&self, text: impl Display) {
        let mut inner = self.lock();
        let line = format!("{:>9.3}s {text}", inner.begun.elapsed().as_secs_f64());
        if let Some(lines) = &mut inner.lines {
            lines.push(line);
        }
    }

    /// Reports that the contract is broken. Only the first report counts: others may follow from it.
    pub fn violation(&self, text: impl Display) {
        self.line(format_args!("VIOLATION {text}"));
        self.lock().violation.get_or_insert(text.to_string());
    }

    pub fn first_violation(&self) -> Option<String> {
        self.lock().violation.clone()
    }

    pub fn elapsed(&self) -> Duration {
        self.lock().begun.elapsed()
    }

    pub fn lines(&self) -> Vec<String> {
        self.lock().lines.clone().unwrap_or_default()
    }

    /// Equal for equal runs.
    pub fn hash(&self) -> u64 {
        self.lock().hasher.finish()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().expect("a trace line cannot panic")
    }
}
