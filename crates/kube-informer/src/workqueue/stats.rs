//! What a queue has done and what it is doing, as plain numbers.

use std::time::Duration;

/// The numbers of a [`WorkQueue`](super::WorkQueue) at one moment.
///
/// Read it as often as you like: taking it costs the same for one key as for a million.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Keys ready to be handed out.
    pub depth: usize,
    /// Keys that wait for a deadline, those among them that are in work as well.
    pub delayed: usize,
    /// Keys in work.
    pub in_work: usize,
    /// How often a key became due to run; client-go calls these adds.
    pub adds: u64,
    /// Adds that found their key already waiting for its turn, and so cost no run.
    pub merged: u64,
    /// Runs that failed: those that ended with [`Item::retry`](super::Item::retry), were dropped, or panicked. They are
    /// retried unless the queue is shut down.
    pub retries: u64,
    /// Of them, runs whose item was dropped: cancelled, or left early. If it grows without a reason, a worker forgets
    /// [`Item::done`](super::Item::done).
    pub dropped: u64,
    /// Of them, runs that ended in a panic.
    pub panics: u64,
    /// Keys, delays and adds that a shutdown let fall.
    pub discarded: u64,
    /// How long keys waited from becoming due to being handed out.
    pub queue_latency: Histogram,
    /// How long keys were in work.
    pub work_duration: Histogram,
    /// How long all keys in work have been in work, added up. If it grows steadily, something is stuck.
    pub unfinished_work: Duration,
    /// How long the key that is longest in work has been.
    pub longest_running: Duration,
    /// How long the key that has been in line longest, of all priorities, has been due. A key that becomes due while
    /// in work joins the line when that run ends.
    pub oldest_age: Duration,
}

/// Durations counted in fixed buckets: up to 10 ns, 100 ns, and so on to 10 s, and beyond.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BOUNDS + 1],
    sum_nanos: u64,
}

const BOUNDS: usize = 10;

impl Histogram {
    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All durations together.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_nanos)
    }

    /// For each bucket its upper bound and how many durations fell into it, not counting those of smaller buckets.
    /// The last has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        self.buckets.iter().enumerate().map(|(place, &count)| {
            let bound = (place < BOUNDS).then(|| Duration::from_nanos(10_u64.pow(place as u32 + 1)));
            (bound, count)
        })
    }

    #[inline]
    pub(super) fn record(&mut self, nanos: u64) {
        let place = nanos.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize;
        self.buckets[place.min(BOUNDS)] += 1;
        self.sum_nanos = self.sum_nanos.saturating_add(nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_bucket_that_bounds_them() {
        let mut histogram = Histogram::default();
        for nanos in [0, 1, 10, 11, 100, 101, 10_000_000_000, 10_000_000_001, u64::MAX] {
            histogram.record(nanos);
        }
        let counts: Vec<u64> = histogram.buckets().map(|(_, count)| count).collect();
        assert_eq!(counts, [3, 2, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
        let bounds: Vec<_> = histogram.buckets().map(|(bound, _)| bound).collect();
        assert_eq!(
            (bounds[0], bounds[9], bounds[10]),
            (Some(Duration::from_nanos(10)), Some(Duration::from_secs(10)), None)
        );
        assert_eq!((histogram.count(), histogram.sum()), (9, Duration::from_nanos(u64::MAX)));
    }
}
