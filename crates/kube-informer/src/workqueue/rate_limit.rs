//! How long a key that failed waits for its next try.
//!
//! A limit is a value: it has no threads, no locks, and no table of keys. The queue counts the failures of each key
//! it holds and forgets them when the key succeeds, so there is nothing here that could grow.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tokio::time::Instant;

use crate::planted::{Bug, planted};

/// Decides the delay before a retry. Given to a queue in
/// [`WorkQueueConfig::retry`](super::WorkQueueConfig::retry).
///
/// ```
/// use kube_informer::workqueue::RateLimit;
/// use std::time::Duration;
///
/// let limit = RateLimit::max_of([
///     RateLimit::exponential(Duration::from_millis(5), Duration::from_secs(300)),
///     RateLimit::bucket(10.0, 100),
/// ])
/// .with_jitter(0.1, 42);
/// ```
#[derive(Debug, Clone)]
pub struct RateLimit(Rule);

#[derive(Debug, Clone)]
enum Rule {
    Exponential { base: Duration, cap: Duration },
    FastSlow { fast: Duration, fast_tries: u32, slow: Duration },
    Bucket(Bucket),
    MaxOf(Vec<RateLimit>),
    AtMost(Box<RateLimit>, Duration),
    Jitter(Box<RateLimit>, f64, fastrand::Rng),
}

impl RateLimit {
    /// Each key by itself: `base` after its first failure, twice as long after each further one, never longer than
    /// `cap`.
    pub fn exponential(base: Duration, cap: Duration) -> Self {
        Self(Rule::Exponential { base, cap })
    }

    /// Each key by itself: `fast` after its first `fast_tries` failures, `slow` after that.
    pub fn fast_slow(fast: Duration, fast_tries: u32, slow: Duration) -> Self {
        Self(Rule::FastSlow { fast, fast_tries, slow })
    }

    /// All keys together: `per_second` retries on average, up to `burst` at once.
    ///
    /// Each failing key has its own place in the line, so however many keys fail, no moment brings more than `burst` of
    /// them. With `n` failing keys the last one waits `n / per_second` seconds. A key that succeeds before its retry,
    /// because an add made it run, gives its place back. A rate that is not a positive number means one an hour.
    ///
    /// The place is taken when a key fails. In [`max_of`](Self::max_of), another limit may make keys wait for longer than that, and
    /// those that failed within such a wait may then run together: leave the other limit's first waits short, as the default does.
    pub fn bucket(per_second: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(SLOWEST).min(SLOWEST);
        Self(Rule::Bucket(Bucket { interval, burst: burst.max(1), next: None, free: BinaryHeap::new() }))
    }

    /// The longest delay that any of the limits asks for. Each of them counts the retry.
    pub fn max_of(limits: impl IntoIterator<Item = Self>) -> Self {
        Self(Rule::MaxOf(limits.into_iter().collect()))
    }

    /// The same limit, but no key waits longer than `longest` for failures of its own. The wait for a place in a
    /// [`bucket`](Self::bucket) stays: a cap would release all keys in line at one moment.
    pub fn at_most(self, longest: Duration) -> Self {
        Self(Rule::AtMost(Box::new(self), longest))
    }

    /// The same limit, each delay made longer by a random part of up to `fraction` of it, so that keys that failed
    /// together are not retried together. The same seed gives the same delays. Waits for a place in a
    /// [`bucket`](Self::bucket) are spread already and stay as they are.
    pub fn with_jitter(self, fraction: f64, seed: u64) -> Self {
        Self(Rule::Jitter(Box::new(self), fraction.max(0.0), fastrand::Rng::with_seed(seed)))
    }

    /// The delay for a key that fails at `now` and has failed `failures` times in a row before.
    pub fn next(&mut self, failures: u32, now: Instant) -> Duration {
        let waits = self.waits(failures, now);
        waits.own.max(waits.in_line)
    }

    fn waits(&mut self, failures: u32, now: Instant) -> Waits {
        let own = |own| Waits { own, in_line: Duration::ZERO };
        match &mut self.0 {
            Rule::Exponential { base, cap } => own(double(*base, failures).min(*cap)),
            Rule::FastSlow { fast, fast_tries, slow } => {
                own(if failures < *fast_tries { *fast } else { *slow })
            }
            Rule::Bucket(bucket) => Waits { own: Duration::ZERO, in_line: bucket.take(now) },
            Rule::MaxOf(limits) => limits.iter_mut().fold(Waits::default(), |longest, limit| {
                let waits = limit.waits(failures, now);
                Waits { own: longest.own.max(waits.own), in_line: longest.in_line.max(waits.in_line) }
            }),
            Rule::AtMost(limit, longest) => {
                let waits = limit.waits(failures, now);
                Waits { own: waits.own.min(*longest), ..waits }
            }
            Rule::Jitter(limit, fraction, random) => {
                let waits = limit.waits(failures, now);
                let more = waits.own.as_secs_f64() * *fraction * random.f64();
                let more = Duration::try_from_secs_f64(more).unwrap_or(Duration::MAX);
                Waits { own: waits.own.saturating_add(more), ..waits }
            }
        }
    }

    /// A retry that was to run at this moment is not going to.
    pub(super) fn give_back(&mut self, at: Instant) {
        match &mut self.0 {
            Rule::Exponential { .. } | Rule::FastSlow { .. } => {}
            Rule::Bucket(bucket) => bucket.give_back(at),
            Rule::MaxOf(limits) => limits.iter_mut().for_each(|limit| limit.give_back(at)),
            Rule::AtMost(limit, _) | Rule::Jitter(limit, ..) => limit.give_back(at),
        }
    }
}

/// The two parts of a delay, the longer of which counts. Kept apart, because only the first may be changed.
#[derive(Debug, Default, Clone, Copy)]
struct Waits {
    /// For failures of the key itself.
    own: Duration,
    /// For a place among all keys.
    in_line: Duration,
}

/// The interval of rates that make no sense.
const SLOWEST: Duration = Duration::from_hours(1);

impl Default for RateLimit {
    /// The default of controllers in client-go: 5 ms doubling up to 1,000 s for each key, and 10 a second with a burst of
    /// 100 for all of them.
    fn default() -> Self {
        Self::max_of([
            Self::exponential(Duration::from_millis(5), Duration::from_secs(1000)),
            Self::bucket(10.0, 100),
        ])
    }
}

/// A token bucket that remembers one moment instead of counting tokens, so that nothing is rounded.
#[derive(Debug, Clone)]
struct Bucket {
    interval: Duration,
    burst: u32,
    /// When the bucket is full again.
    next: Option<Instant>,
    /// Places in the line that were given back. The keys behind them keep theirs, so only new ones can take them.
    free: BinaryHeap<Reverse<Instant>>,
}

impl Bucket {
    fn take(&mut self, now: Instant) -> Duration {
        let full_at = self.next.map_or(now, |next| next.max(now));
        let free = self.burst - u32::from(!planted(Bug::BurstByOne));
        let tolerated = self.interval.saturating_mul(free);
        let wait = full_at.duration_since(now).saturating_sub(tolerated);
        while self.free.peek().is_some_and(|place| place.0 < now) {
            self.free.pop();
        }
        if let Some(place) =
            self.free.peek().map(|place| place.0.duration_since(now)).filter(|place| *place < wait)
        {
            self.free.pop();
            return place;
        }
        self.next = full_at.checked_add(self.interval);
        wait
    }

    /// Leaves a place to the next key, if it is in the line: a key may wait longer for failures of its own.
    fn give_back(&mut self, at: Instant) {
        if self.next.is_some_and(|end| at < end) {
            self.free.push(Reverse(at));
        }
    }
}

fn double(base: Duration, times: u32) -> Duration {
    let nanos = base.as_nanos().saturating_mul(1 << times.min(100));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn delays(limit: &mut RateLimit, failures: std::ops::Range<u32>) -> Vec<Duration> {
        failures.map(|failures| limit.next(failures, Instant::now())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn exponential_doubles_up_to_its_cap() {
        let mut limit = RateLimit::exponential(ms(1), ms(10));
        assert_eq!(delays(&mut limit, 0..6), [ms(1), ms(2), ms(4), ms(8), ms(10), ms(10)]);
    }

    #[tokio::test(start_paused = true)]
    async fn exponential_never_overflows() {
        let cap = Duration::from_secs(1000);
        for failures in [40, 63, 64, 127, 128, 1000, u32::MAX] {
            assert_eq!(RateLimit::exponential(ms(1), cap).next(failures, Instant::now()), cap);
            assert_eq!(RateLimit::exponential(Duration::MAX, cap).next(failures, Instant::now()), cap);
            assert_eq!(
                RateLimit::exponential(Duration::ZERO, cap).next(failures, Instant::now()),
                Duration::ZERO
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fast_tries_come_before_slow_ones() {
        let mut limit = RateLimit::fast_slow(ms(5), 3, Duration::from_secs(10));
        let (fast, slow) = (ms(5), Duration::from_secs(10));
        assert_eq!(delays(&mut limit, 0..5), [fast, fast, fast, slow, slow]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_given_back_goes_to_the_next_key() {
        let mut limit = RateLimit::bucket(10.0, 1);
        let now = Instant::now();
        let first = delays(&mut limit, 0..20);
        for delay in &first[5..10] {
            limit.give_back(now + *delay);
        }
        // Nobody else runs at these moments, and the others keep theirs.
        assert_eq!(delays(&mut limit, 0..6), [ms(500), ms(600), ms(700), ms(800), ms(900), ms(2000)]);
        // A delay of the key's own, past the end of the line, is not a place in it.
        limit.give_back(now + Duration::from_mins(1));
        assert_eq!(delays(&mut limit, 0..1), [ms(2100)]);
        // A place whose time has passed is of no use.
        limit.give_back(now + ms(300));
        tokio::time::advance(ms(400)).await;
        assert_eq!(delays(&mut limit, 0..1), [ms(1800)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_lets_a_burst_through_and_then_its_rate() {
        let mut limit = RateLimit::bucket(10.0, 3);
        assert_eq!(delays(&mut limit, 0..5), [ms(0), ms(0), ms(0), ms(100), ms(200)]);
        assert_eq!(delays(&mut limit, 0..2), [ms(300), ms(400)], "the line has no end");
        tokio::time::advance(ms(500)).await;
        assert_eq!(delays(&mut limit, 0..2), [ms(0), ms(100)]);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(delays(&mut limit, 0..4), [ms(0), ms(0), ms(0), ms(100)]);
    }

    #[tokio::test(start_paused = true)]
    async fn senseless_rates_do_not_panic() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE] {
            let mut limit = RateLimit::bucket(rate, 0);
            assert!(delays(&mut limit, 0..5).iter().all(|&delay| delay <= 4 * SLOWEST), "{rate}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn max_of_takes_the_longest_and_counts_in_all() {
        let mut limit = RateLimit::max_of([
            RateLimit::fast_slow(ms(5), 3, Duration::from_secs(3)),
            RateLimit::exponential(ms(1), Duration::from_secs(1)),
            RateLimit::bucket(10.0, 5),
        ]);
        let slow = Duration::from_secs(3);
        assert_eq!(delays(&mut limit, 0..5), [ms(5), ms(5), ms(5), slow, slow]);
        // The bucket was asked each time, though it never had the last word.
        assert_eq!(limit.next(0, Instant::now()), ms(100));
        assert_eq!(RateLimit::max_of([]).next(0, Instant::now()), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn at_most_caps_another_limit() {
        let mut limit =
            RateLimit::fast_slow(ms(5), 2, Duration::from_secs(3)).at_most(Duration::from_secs(1));
        assert_eq!(delays(&mut limit, 0..3), [ms(5), ms(5), Duration::from_secs(1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn neither_a_cap_nor_jitter_changes_the_places_in_a_line() {
        let mut limit = RateLimit::bucket(10.0, 1).with_jitter(0.5, 1).at_most(ms(150));
        assert_eq!(delays(&mut limit, 0..4), [ms(0), ms(100), ms(200), ms(300)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_given_back_is_taken_by_the_next() {
        let mut limit = RateLimit::max_of([RateLimit::bucket(10.0, 1)]);
        assert_eq!(delays(&mut limit, 0..3), [ms(0), ms(100), ms(200)]);
        limit.give_back(Instant::now() + ms(100));
        assert_eq!(delays(&mut limit, 0..2), [ms(100), ms(300)]);
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_lengthens_within_its_fraction_and_follows_its_seed() {
        let limit = |seed| RateLimit::exponential(ms(100), ms(100)).with_jitter(0.5, seed);
        let seen = delays(&mut limit(1), 0..100);
        assert!(seen.iter().all(|&delay| delay >= ms(100) && delay < ms(150)));
        assert!(seen.iter().any(|&delay| delay != seen[0]));
        assert_eq!(seen, delays(&mut limit(1), 0..100));
        assert_ne!(seen, delays(&mut limit(2), 0..100));
    }
}
