//! How long to wait before the next attempt.

use std::time::Duration;

use crate::planted::{Bug, planted};

/// The shortest bound of a wait while the server is away, jitter aside.
const AWAY_CAP: Duration = Duration::from_millis(1500);

/// While the server is away, a wait is at most this part of the outage so far.
const AWAY_SHARE: u32 = 40;

/// Settings of the waits between attempts: exponential with jitter, from a floor to a cap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackoffConfig {
    /// The first wait, and the shortest there is after a failure.
    pub floor: Duration,
    /// The longest wait, jitter aside.
    pub cap: Duration,
    /// By how much each wait is longer than the one before.
    pub factor: f64,
    /// Each wait is drawn from `wait × (1 ± jitter)`, so that many clients do not retry at the same moment.
    pub jitter: f64,
    /// A watch that was open for this long is healthy: when its connection breaks, the reflector resumes at once. 500
    /// milliseconds by default. An event that advances the version makes a watch healthy as well.
    pub healthy_after: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self {
            floor: Duration::from_millis(200),
            cap: Duration::from_secs(30),
            factor: 2.0,
            jitter: 0.5,
            healthy_after: Duration::from_millis(500),
        }
    }
}

/// Waits that grow with each failure and start again after a success.
#[derive(Debug)]
pub(crate) struct Backoff {
    config: BackoffConfig,
    failures: u32,
    random: fastrand::Rng,
}

impl Backoff {
    pub(crate) fn new(config: BackoffConfig, seed: u64) -> Self {
        Self { config, failures: 0, random: fastrand::Rng::with_seed(seed) }
    }

    /// How long to wait after one more failure. The server's Retry-After is a lower bound.
    pub(crate) fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        self.wait(self.config.cap, retry_after)
    }

    /// As [`next`](Self::next), for a server that is away since `since`. A refused connection costs the server nothing, so
    /// the waits stay short during the first minutes, and the cache is fresh soon after the server returned.
    pub(crate) fn next_away(&mut self, since: Duration, retry_after: Option<Duration>) -> Duration {
        let cap = (since / AWAY_SHARE).max(AWAY_CAP).min(self.config.cap);
        self.wait(cap, retry_after)
    }

    fn wait(&mut self, cap: Duration, retry_after: Option<Duration>) -> Duration {
        let BackoffConfig { floor, factor, jitter, .. } = self.config;
        let exponent = i32::try_from(self.failures).unwrap_or(i32::MAX);
        self.failures = self.failures.saturating_add(1);
        let wait = (floor.as_secs_f64() * factor.powi(exponent)).min(cap.as_secs_f64());
        let spread = 1.0 + jitter * (self.random.f64() * 2.0 - 1.0);
        let wait = Duration::from_secs_f64(wait * spread).max(floor.mul_f64(1.0 - jitter));
        if planted(Bug::NoBackoff) {
            return Duration::from_millis(1);
        }
        // A server that asks for an hour does not get one: the cache would be stale for as long.
        let most = if planted(Bug::RetryAfterUnbounded) { Duration::MAX / 4 } else { self.config.cap * 4 };
        let asked = retry_after.unwrap_or_default().min(most);
        wait.max(asked + asked.mul_f64(self.random.f64() * 0.1))
    }

    /// A random delay of up to `limit`, so that many clients do not send a request at the same moment.
    pub(crate) fn spread(&mut self, limit: Duration) -> Duration {
        limit.mul_f64(self.random.f64())
    }

    /// Draws from `[low, 2 × low)`.
    pub(crate) fn doubled(&mut self, low: Duration) -> Duration {
        low.mul_f64(1.0 + self.random.f64())
    }

    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_cap_and_start_again_after_a_success() {
        let config = BackoffConfig { jitter: 0.0, ..BackoffConfig::default() };
        let mut backoff = Backoff::new(config, 1);
        let waits: Vec<u128> = (0..10).map(|_| backoff.next(None).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        backoff.succeeded();
        assert_eq!(backoff.next(None).as_millis(), 200);
    }

    #[test]
    fn waits_stay_short_while_the_server_is_away() {
        let config = BackoffConfig { jitter: 0.0, ..BackoffConfig::default() };
        let mut backoff = Backoff::new(config, 1);
        let minutes = [0, 0, 0, 0, 1, 2, 10, 60];
        let waits = minutes.map(|minutes| backoff.next_away(Duration::from_mins(minutes), None).as_millis());
        assert_eq!(waits, [200, 400, 800, 1500, 1500, 3000, 12800, 25600]);
    }

    #[test]
    fn jitter_spreads_and_a_seed_repeats() {
        let waits = |seed| {
            let mut backoff = Backoff::new(BackoffConfig::default(), seed);
            (0..20).map(|_| backoff.next(None)).collect::<Vec<_>>()
        };
        assert_eq!(waits(7), waits(7));
        assert_ne!(waits(7), waits(8));
        assert!(waits(7).iter().all(|wait| *wait >= Duration::from_millis(100)));
    }

    #[test]
    fn what_the_server_asks_for_is_the_least_but_not_without_bound() {
        let mut backoff = Backoff::new(BackoffConfig::default(), 1);
        assert!(backoff.next(Some(Duration::from_secs(5))) >= Duration::from_secs(5));
        assert!(backoff.next(Some(Duration::from_hours(24))) <= Duration::from_secs(132));
    }

    #[test]
    fn many_failures_do_not_overflow() {
        let mut backoff = Backoff::new(BackoffConfig::default(), 1);
        backoff.failures = u32::MAX;
        assert!(backoff.next(None) <= Duration::from_secs(45));
    }
}
