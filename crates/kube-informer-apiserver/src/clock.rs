//! The server's time of day: an epoch from outside, moved on by tokio's clock, which a test can pause.

use jiff::{Timestamp, Unit};
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Clock {
    epoch: Timestamp,
    start: Instant,
}

impl Clock {
    pub(crate) fn new(epoch: Timestamp) -> Self {
        Self { epoch, start: Instant::now() }
    }

    /// Now, or some seconds from now, as it stands in objects: whole seconds in UTC.
    pub(crate) fn timestamp(&self, seconds_ahead: i64) -> String {
        let elapsed = jiff::SignedDuration::try_from(self.start.elapsed()).unwrap_or_default();
        let ahead = jiff::SignedDuration::from_secs(seconds_ahead);
        let time = self.epoch.saturating_add(elapsed).and_then(|time| time.saturating_add(ahead));
        let time = time.unwrap_or(Timestamp::MAX);
        let second = jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Trunc);
        time.round(second).unwrap_or(time).to_string()
    }
}
