//! Bounds how often a reflector asks the server, however healthy the answers look.

use std::time::Duration;

use tokio::time::Instant;

use crate::planted::{Bug, planted};

/// How many requests may follow each other without a pause.
const BURST: f64 = 10.0;

/// How many requests a second are allowed in the long run.
const RATE: f64 = 1.0;

/// How many requests may be owed: those that a caller made early must not delay the next ones for long.
const DEBT: f64 = 2.0;

/// A budget of requests: a server that accepts every watch and closes it again gets one request a second, while a watch that
/// is cut now and then is resumed at once.
#[derive(Debug)]
pub(super) struct Pace {
    tokens: f64,
    at: Option<Instant>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { tokens: BURST, at: None }
    }

    /// Takes one request out of the budget, and returns how long the request must wait for it.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        let gained = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64() * RATE);
        let debt = if planted(Bug::RequestDebtGrows) { f64::MAX } else { DEBT };
        self.tokens = ((self.tokens + gained).min(BURST) - 1.0).max(-debt);
        self.at = Some(now);
        Duration::from_secs_f64((-self.tokens / RATE).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_then_one_request_a_second() {
        let mut pace = Pace::new();
        let mut asked = 0;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_mins(1) {
            tokio::time::sleep(pace.take(Instant::now())).await;
            asked += 1;
        }
        assert_eq!(asked, 70);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_a_second_apart_never_wait() {
        let mut pace = Pace::new();
        for _ in 0..1000 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(pace.take(Instant::now()), Duration::ZERO);
        }
    }
}
