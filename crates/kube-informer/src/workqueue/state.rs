//! The queue without its lock, its clock and its wake-ups: what each call does to the keys.
//!
//! | call | unknown | waiting | ready | running | dirty |
//! | --- | --- | --- | --- | --- | --- |
//! | add now | ready | ready | – | dirty | – |
//! | add later | waiting | earlier deadline | – | earlier deadline | – |
//! | deadline comes | | ready | | dirty | |
//! | hand out | | | running | | |
//! | finish, no deadline | | | | gone | ready |
//! | finish, deadline | | | | waiting | |
//!
//! A key that keeps failing in runs that adds set off is paced: an add then makes it due a little later instead of now.
//!
//! A key has a deadline or is due at once (ready, dirty), never both, so no run is ever owed twice.

use std::any::Any;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::delay::Delays;
use super::entries::{Entries, KeyHash, Phase};
use super::failing::nanos;
use super::rate_limit::RateLimit;
use super::ready::{Links, List, Ready};
use super::reason::{Cause, Reasons};
use super::stats::QueueStats;
use super::{Add, WorkQueueConfig};
use crate::planted::{Bug, planted};

/// All keys and all counters of a queue. Times are in nanoseconds since `epoch`.
#[derive(Debug)]
pub(super) struct State<T> {
    epoch: Instant,
    entries: Entries<T>,
    links: Links,
    ready: Ready,
    delays: Delays,
    running: Running,
    /// Of the keys in work, how many are dirty.
    dirty_len: usize,
    retry: RateLimit,
    max_reasons: usize,
    /// The source that runs after a `requeue_after` name as their reason.
    requeued: Arc<str>,
    counters: QueueStats,
    paused: bool,
    closed: bool,
    /// How often the queue was told to shut down; a drain gives up when it changes.
    shutdowns: u32,
    /// Workers that sleep until something is ready.
    sleepers: usize,
    /// The deadline for which one of them keeps a timer.
    timer: Option<u64>,
    /// Somebody waits for the queue to be idle.
    idle_wanted: bool,
    wake: Wake,
}

/// Keys in work, longest first.
#[derive(Debug)]
struct Running {
    list: List,
    len: usize,
    /// Moments at which they were handed out, added up: gives the unfinished work without a scan.
    started_sum: u128,
}

/// Who is to be woken once the lock is released.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Wake {
    pub(super) sleepers: usize,
    pub(super) all_sleepers: bool,
    pub(super) idle: bool,
}

/// A key handed out.
#[derive(Debug)]
pub(super) struct Taken<T> {
    pub(super) slot: u32,
    pub(super) key: T,
    pub(super) priority: i8,
    pub(super) failures: u32,
    /// In nanoseconds.
    pub(super) waited: u64,
    pub(super) reasons: Option<Box<Reasons>>,
}

/// What [`State::take`] found.
pub(super) enum Next<T> {
    Take(Taken<T>),
    /// Nothing yet.
    Wait,
    /// Nothing any more.
    Closed,
    /// The clone of the key panicked.
    Panicked(Box<dyn Any + Send>),
}

/// A place among the sleepers, with the deadline this one keeps a timer for, if it is the one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sleep {
    timer: Option<u64>,
    pub(super) until: Option<Instant>,
}

/// How a run ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Done,
    RequeueAfter(Duration),
    /// The same work is still to be done, so the next run gets the reasons and the priority.
    Failed {
        failure: Failure,
        priority: i8,
        reasons: Option<Box<Reasons>>,
    },
}

/// In which way a run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The worker says so.
    Reported,
    /// The item was dropped: the run was cancelled, or left early.
    Dropped,
    Panicked,
}

impl<T: Eq + Hash + Clone> State<T> {
    pub(super) fn new(config: WorkQueueConfig, epoch: Instant) -> Self {
        Self {
            epoch,
            entries: Entries::new(),
            links: Links::default(),
            ready: Ready::new(config.oldest_every),
            delays: Delays::default(),
            running: Running { list: List::EMPTY, len: 0, started_sum: 0 },
            dirty_len: 0,
            retry: config.retry,
            max_reasons: config.max_reasons,
            requeued: "worker".into(),
            counters: QueueStats::default(),
            paused: false,
            closed: false,
            shutdowns: 0,
            sleepers: 0,
            timer: None,
            idle_wanted: false,
            wake: Wake::default(),
        }
    }

    /// Adds a key, or merges it with what is known of it: the higher priority, the earlier moment, all causes. Hands a key
    /// that it does not keep back.
    pub(super) fn add(&mut self, hash: KeyHash, key: T, add: Add, at: Instant) -> Option<T> {
        if self.closed {
            self.counters.discarded += 1;
            return Some(key);
        }
        let now = self.promote(at);
        let (slot, not_kept) = self.entries.find_or_insert(hash, key);
        self.raise(slot, add.priority);
        if let Some(cause) = add.cause {
            self.because(slot, cause, at);
        }
        // While in work, the pace is that of a failure which may never come; see `finish`.
        let pace = self.pace(slot, now).filter(|_| self.entries.get(slot).phase == Phase::Waiting);
        self.schedule(slot, pace.map_or(add.after, |pace| add.after.max(pace)), now);
        not_kept
    }

    /// Hands out the key whose turn it is.
    pub(super) fn take(&mut self, at: Instant) -> Next<T> {
        let now = self.promote(at);
        if self.paused && !self.closed {
            return Next::Wait;
        }
        let entries = &self.entries;
        let Some(slot) = self.ready.pop(&mut self.links, |slot| entries.get(slot).priority) else {
            // A dirty key will be served once more, even though no new ones are accepted.
            return if self.closed && self.dirty_len == 0 { Next::Closed } else { Next::Wait };
        };
        let entry = self.entries.get_mut(slot);
        let waited = now.saturating_sub(entry.ready_at);
        entry.phase = Phase::Running;
        entry.started_at = now;
        let key = catch_unwind(AssertUnwindSafe(|| entry.key.clone()));
        let priority = std::mem::replace(&mut entry.priority, i8::MIN);
        let failures = entry.failing.as_ref().map_or(0, |failing| failing.times());
        let reasons = entry.reasons.take();
        self.running.list.push(&mut self.links, slot);
        self.running.len += 1;
        self.running.started_sum += u128::from(now);
        self.counters.queue_latency.record(waited);
        self.wake_if_over();
        self.hand_on_timer();
        match key {
            Ok(key) => Next::Take(Taken { slot, key, priority, failures, waited, reasons }),
            Err(panic) => {
                // Retried, as every run that panics is, and later, so that the key does not hold up the others.
                self.finish(slot, Outcome::Failed { failure: Failure::Panicked, priority, reasons }, at);
                Next::Panicked(panic)
            }
        }
    }

    /// Ends the run of a key; says how long a retry is going to wait.
    pub(super) fn finish(&mut self, slot: u32, outcome: Outcome, at: Instant) -> Duration {
        let now = self.promote(at);
        let entry = self.entries.get_mut(slot);
        self.running.list.remove(&mut self.links, slot);
        self.running.len -= 1;
        self.running.started_sum -= u128::from(entry.started_at);
        self.counters.work_duration.record(now.saturating_sub(entry.started_at));

        let mut delay = Duration::ZERO;
        match outcome {
            Outcome::Done => self.forget(slot, at),
            Outcome::RequeueAfter(after) => {
                self.forget(slot, at);
                delay = after;
                if !self.closed {
                    self.because(slot, Cause::new(Arc::clone(&self.requeued), "requeued"), at);
                }
                self.run_again(slot, 0, None, after, now);
            }
            Outcome::Failed { failure, priority, reasons } => {
                self.counters.retries += 1;
                self.counters.dropped += u64::from(failure == Failure::Dropped);
                self.counters.panics += u64::from(failure == Failure::Panicked);
                let failing = entry.failing.get_or_insert_default();
                delay = failing.fail(&mut self.retry, now, at);
                self.run_again(slot, priority, reasons, delay, now);
            }
        }

        match self.entries.get(slot).phase {
            Phase::Dirty => {
                self.dirty_len -= 1;
                match self.pace(slot, now).filter(|_| !self.closed) {
                    None => self.stand_in_line(slot),
                    Some(wait) => {
                        self.entries.get_mut(slot).phase = Phase::Waiting;
                        self.delay(slot, wait, now);
                    }
                }
            }
            _ if self.delays.contains(slot) => self.entries.get_mut(slot).phase = Phase::Waiting,
            _ => self.remove(slot),
        }
        self.wake_if_over();
        delay
    }

    /// Forgets the failures of a key in work.
    pub(super) fn forget(&mut self, slot: u32, at: Instant) {
        let now = self.nanos_at(at);
        let failing = self.entries.get_mut(slot).failing.take().filter(|failing| failing.is_waiting(now));
        // A retry that never runs leaves its place to another key.
        if let Some(failing) = failing.filter(|_| !planted(Bug::GiveBackMissing))
            && let Some(at) = at.checked_add(failing.remaining(now))
        {
            self.retry.give_back(at);
        }
    }

    /// How many runs of a key failed in a row.
    pub(super) fn failures(&self, hash: KeyHash, key: &T) -> u32 {
        let failing = self.entries.find(hash, key).and_then(|slot| self.entries.get(slot).failing.as_ref());
        failing.map_or(0, |failing| failing.times())
    }

    pub(super) fn set_retry(&mut self, retry: RateLimit) {
        self.retry = retry;
    }

    pub(super) fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
        if self.closed && paused {
            self.discard_ready();
        }
        if planted(Bug::ResumeWakesOne) && !paused {
            return self.wake_sleeper();
        }
        self.wake.all_sleepers |= !paused;
    }

    /// Accepts nothing more and lets everything fall that waits for a deadline yet to come.
    pub(super) fn close(&mut self, at: Instant) {
        self.promote(at);
        self.closed = true;
        for slot in self.delays.clear() {
            self.counters.discarded += 1;
            if self.entries.get(slot).phase == Phase::Waiting {
                self.remove(slot);
            }
        }
        if self.paused {
            self.discard_ready();
        }
        self.wake.all_sleepers = true;
        self.wake_if_over();
    }

    /// Closes, and makes every drain give up.
    pub(super) fn shut_down(&mut self, at: Instant) {
        self.shutdowns += 1;
        self.wake.idle = true;
        self.close(at);
    }

    /// Lets everything fall that is not in work.
    pub(super) fn discard_ready(&mut self) {
        while let Some(slot) = self.ready.pop(&mut self.links, |slot| self.entries.get(slot).priority) {
            self.counters.discarded += 1;
            self.remove(slot);
        }
        for slot in self.running.list.iter(&self.links) {
            let entry = self.entries.get_mut(slot);
            if entry.phase == Phase::Dirty {
                entry.phase = Phase::Running;
                self.counters.discarded += 1;
            }
        }
        self.dirty_len = 0;
        self.wake_if_over();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn shutdowns(&self) -> u32 {
        self.shutdowns
    }

    /// Whether nothing is ready and nothing in work. If not, whoever waits for that is woken when it is so.
    pub(super) fn is_idle(&mut self, at: Instant) -> bool {
        self.promote(at);
        let idle = self.ready.len() == 0 && self.running.len == 0;
        self.idle_wanted |= !idle;
        idle
    }

    pub(super) fn ready_len(&mut self, at: Instant) -> usize {
        self.promote(at);
        self.ready.len()
    }

    pub(super) fn stats(&mut self, at: Instant) -> QueueStats {
        let now = self.promote(at);
        let age = |since: u64| Duration::from_nanos(now.saturating_sub(since));
        let unfinished = u128::from(now) * self.running.len as u128;
        let unfinished = unfinished.saturating_sub(self.running.started_sum);
        let longest = self.running.list.head().map(|slot| age(self.entries.get(slot).started_at));
        let oldest = self.ready.oldest().map(|slot| age(self.entries.get(slot).ready_at));
        QueueStats {
            depth: self.ready.len(),
            delayed: self.delays.len(),
            in_work: self.running.len,
            unfinished_work: Duration::from_nanos(u64::try_from(unfinished).unwrap_or(u64::MAX)),
            longest_running: longest.unwrap_or_default(),
            oldest_age: oldest.unwrap_or_default(),
            ..self.counters.clone()
        }
    }

    /// Takes a place among the sleepers, unless there is something to take or never will be. One of them keeps a timer
    /// for the earliest deadline, the others need none.
    pub(super) fn fall_asleep(&mut self, at: Instant) -> Option<Sleep> {
        self.promote(at);
        let held_back = self.paused && !self.closed;
        let over = self.closed && self.dirty_len == 0;
        if !held_back && (over || self.ready.len() > 0) {
            return None;
        }
        self.sleepers += 1;
        let earliest = self.delays.earliest().filter(|_| !held_back);
        let timer = earliest.filter(|&earliest| self.timer.is_none_or(|timer| earliest < timer));
        self.timer = timer.or(self.timer);
        Some(Sleep {
            timer,
            until: timer.and_then(|nanos| self.epoch.checked_add(Duration::from_nanos(nanos))),
        })
    }

    /// Leaves the sleepers. Whoever was woken looks for a key next, and either takes one or falls asleep again; whoever
    /// was cancelled does neither, and so has to see to the timer here.
    pub(super) fn wake_up(&mut self, sleep: Sleep, cancelled: bool) {
        self.sleepers -= 1;
        if sleep.timer.is_some() && sleep.timer == self.timer {
            self.timer = None;
            if cancelled && !planted(Bug::TimerNotHandedOn) {
                self.hand_on_timer();
            }
        }
    }

    /// Whom the calls since the last one have woken.
    pub(super) fn take_wake(&mut self) -> Wake {
        std::mem::take(&mut self.wake)
    }

    /// Makes everything due whose deadline has come. First in every call, so that keys line up in the order of their
    /// deadlines even if nobody looked when they came.
    fn promote(&mut self, at: Instant) -> u64 {
        let now = self.nanos_at(at);
        while let Some((slot, deadline)) = self.delays.pop_due(now) {
            self.make_due(slot, deadline);
        }
        now
    }

    fn nanos_at(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    fn because(&mut self, slot: u32, cause: Cause, at: Instant) {
        let reasons = self.entries.get_mut(slot).reasons.get_or_insert_default();
        reasons.add(cause, at, self.max_reasons);
    }

    fn run_again(
        &mut self,
        slot: u32,
        priority: i8,
        reasons: Option<Box<Reasons>>,
        after: Duration,
        now: u64,
    ) {
        if self.closed {
            self.counters.discarded += 1;
            return;
        }
        self.raise(slot, priority);
        if let Some(older) = reasons {
            let reasons = self.entries.get_mut(slot).reasons.get_or_insert_default();
            reasons.prepend(*older, self.max_reasons);
        }
        self.schedule(slot, after, now);
    }

    /// Sees to it that a key runs after a while, or as soon as it was going to anyway.
    fn schedule(&mut self, slot: u32, after: Duration, now: u64) {
        if after.is_zero() {
            self.make_due(slot, now);
            return;
        }
        if matches!(self.entries.get(slot).phase, Phase::Ready | Phase::Dirty) {
            self.counters.merged += 1;
            return;
        }
        self.counters.merged += u64::from(self.delays.contains(slot));
        self.delay(slot, after, now);
    }

    /// Lets a key wait, at most until the deadline that it has.
    fn delay(&mut self, slot: u32, after: Duration, now: u64) {
        let earliest = self.delays.earliest();
        self.delays.insert(slot, now.saturating_add(nanos(after)));
        if self.delays.earliest() != earliest {
            // The timer is set too late: let a sleeper set it again.
            self.wake_sleeper();
        }
    }

    /// A key is to run, from this moment on.
    fn make_due(&mut self, slot: u32, moment: u64) {
        let entry = self.entries.get_mut(slot);
        match entry.phase {
            Phase::Ready | Phase::Dirty => {
                self.counters.merged += 1;
                return;
            }
            Phase::Waiting => {
                entry.ready_at = moment;
                self.stand_in_line(slot);
            }
            Phase::Running => {
                entry.ready_at = moment;
                entry.phase = Phase::Dirty;
                self.dirty_len += 1;
            }
        }
        if !planted(Bug::DelayKeptWhenDue) {
            self.delays.remove(slot);
        }
        self.counters.adds += 1;
    }

    fn stand_in_line(&mut self, slot: u32) {
        let entry = self.entries.get_mut(slot);
        entry.phase = Phase::Ready;
        self.ready.push(&mut self.links, slot, entry.priority);
        self.wake_sleeper();
    }

    fn raise(&mut self, slot: u32, priority: i8) {
        let entry = self.entries.get_mut(slot);
        let old = entry.priority;
        if priority <= old {
            return;
        }
        entry.priority = priority;
        if entry.phase == Phase::Ready {
            self.ready.raise(&mut self.links, slot, old, priority);
        }
    }

    /// How long an add of a key has to wait because of earlier failures, if at all.
    fn pace(&self, slot: u32, now: u64) -> Option<Duration> {
        self.entries.get(slot).failing.as_ref()?.pace(now)
    }

    fn remove(&mut self, slot: u32) {
        self.entries.remove(slot);
        if self.entries.is_empty() && self.entries.is_large() {
            // The burst is over: give its memory back.
            self.entries = Entries::new();
            self.links = Links::default();
            self.ready.shrink();
            self.delays = Delays::default();
        }
    }

    /// Lets a sleeper keep the timer if nobody does.
    fn hand_on_timer(&mut self) {
        if self.timer.is_none() && self.delays.len() > 0 {
            self.wake_sleeper();
        }
    }

    /// One more sleeper is to be woken, if there is one that is not woken anyway.
    fn wake_sleeper(&mut self) {
        self.wake.sleepers = (self.wake.sleepers + 1).min(self.sleepers);
    }

    fn wake_if_over(&mut self) {
        let nothing_ready = self.ready.len() == 0;
        self.wake.all_sleepers |= self.closed && nothing_ready && self.dirty_len == 0;
        if self.idle_wanted && nothing_ready && self.running.len == 0 {
            self.idle_wanted = false;
            self.wake.idle = true;
        }
    }
}
