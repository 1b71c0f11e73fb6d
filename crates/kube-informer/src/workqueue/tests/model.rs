//! The queue against a model of it that is too simple to be wrong.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Add {
        key: u8,
        priority: i8,
        after: u64,
    },
    Take,
    Finish {
        which: usize,
        how: How,
    },
    Advance(u64),
    Pause(bool),
    ShutDown {
        now: bool,
    },
    /// Not after every step: looking makes due what is due.
    Look,
}

#[derive(Debug, Clone, Copy)]
enum How {
    Done,
    RequeueAfter(u64),
    Retry,
    Drop,
    ForgetAndRetry,
}

const OLDEST_EVERY: usize = 3;

/// Times in milliseconds; every collection is searched from end to end.
#[derive(Debug, Default)]
struct Model {
    now: u64,
    /// The ready keys, oldest first.
    line: Vec<Ready>,
    in_work: Vec<(u8, i8)>,
    /// Since when.
    dirty: BTreeMap<u8, u64>,
    /// Deadline and order of arrival.
    delayed: BTreeMap<u8, (u64, u64)>,
    arrivals: u64,
    priorities: BTreeMap<u8, i8>,
    failing: BTreeMap<u8, Failing>,
    /// Keys whose next run names a requeue as its reason, and keys whose run in work does.
    requeued: BTreeSet<u8>,
    requeued_runs: BTreeSet<u8>,
    turns: usize,
    paused: bool,
    closed: bool,
}

/// A ready key, its priority, when it joined those of that priority, and since when it is due.
#[derive(Debug, Clone, Copy)]
struct Ready {
    key: u8,
    priority: i8,
    joined: u64,
    since: u64,
}

/// How a key has failed since it last succeeded.
#[derive(Debug, Clone, Copy, Default)]
struct Failing {
    times: u32,
    retries: u32,
    early: u32,
    retry_at: u64,
    not_before: u64,
}

impl Model {
    /// An add from outside, which is paced while the key fails and waits.
    fn add_from_outside(&mut self, key: u8, priority: i8, after: u64) {
        let waits = self.delayed.contains_key(&key) && !self.is_in_work(key);
        let pace = self.failing.get(&key).map_or(0, |failing| failing.pace(self.now));
        self.add(key, priority, if waits { after.max(pace) } else { after });
    }

    fn add(&mut self, key: u8, priority: i8, after: u64) {
        if self.closed {
            return;
        }
        let old = self.priorities.get(&key).copied().unwrap_or(i8::MIN);
        self.priorities.insert(key, priority.max(old));
        self.arrivals += 1;
        let joined = self.arrivals;
        if let Some(ready) = self.line.iter_mut().find(|ready| ready.key == key && ready.priority < priority)
        {
            (ready.priority, ready.joined) = (priority, joined);
        }
        if self.line.iter().any(|ready| ready.key == key) || self.dirty.contains_key(&key) {
            return;
        }
        if after == 0 {
            self.make_due(key, self.now);
        } else {
            self.delay(key, after);
        }
    }

    fn delay(&mut self, key: u8, after: u64) {
        self.arrivals += 1;
        let new = (self.now + after, self.arrivals);
        let delay = self.delayed.entry(key).or_insert(new);
        delay.0 = delay.0.min(new.0);
    }

    fn is_in_work(&self, key: u8) -> bool {
        self.in_work.iter().any(|&(other, _)| other == key)
    }

    fn make_due(&mut self, key: u8, since: u64) {
        self.delayed.remove(&key);
        if self.is_in_work(key) {
            self.dirty.insert(key, since);
        } else {
            self.arrivals += 1;
            self.line.push(Ready { key, priority: self.priorities[&key], joined: self.arrivals, since });
        }
    }

    fn take(&mut self) -> Option<u8> {
        if self.line.is_empty() || (self.paused && !self.closed) {
            return None;
        }
        self.turns += 1;
        let place = if self.turns == OLDEST_EVERY {
            self.turns = 0;
            0
        } else {
            let order = |&place: &usize| (-i16::from(self.line[place].priority), self.line[place].joined);
            (0..self.line.len()).min_by_key(order)?
        };
        let Ready { key, priority, .. } = self.line.remove(place);
        self.priorities.remove(&key);
        if self.requeued.remove(&key) {
            self.requeued_runs.insert(key);
        }
        self.in_work.push((key, priority));
        Some(key)
    }

    fn finish(&mut self, which: usize, how: How) {
        let (key, priority) = self.in_work[which];
        let requeued = self.requeued_runs.remove(&key);
        if matches!(how, How::Done | How::RequeueAfter(_) | How::ForgetAndRetry) {
            self.failing.remove(&key);
        }
        match how {
            How::Done => {}
            How::RequeueAfter(after) => {
                self.because_of_requeue(key, true);
                self.add(key, 0, after);
            }
            How::Retry | How::Drop | How::ForgetAndRetry => {
                let failing = self.failing.entry(key).or_default();
                failing.fail(self.now);
                let wait = failing.retry_at - self.now;
                self.because_of_requeue(key, requeued);
                self.add(key, priority, wait);
            }
        }
        self.in_work.remove(which);
        if let Some(since) = self.dirty.remove(&key) {
            let pace = self.failing.get(&key).map_or(0, |failing| failing.pace(self.now));
            if pace == 0 || self.closed {
                self.make_due(key, since);
            } else {
                self.delay(key, pace);
            }
        }
        self.forget_absent();
    }

    fn because_of_requeue(&mut self, key: u8, requeued: bool) {
        if requeued && !self.closed {
            self.requeued.insert(key);
        }
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        while let Some((_, key)) = self.delayed.iter().map(|(&key, &delay)| (delay, key)).min() {
            let deadline = self.delayed[&key].0;
            if deadline > self.now {
                break;
            }
            self.make_due(key, deadline);
        }
    }

    fn shut_down(&mut self, now: bool) {
        self.closed = true;
        self.delayed.clear();
        if now || self.paused {
            self.line.clear();
            self.dirty.clear();
        }
        self.forget_absent();
    }

    fn pause(&mut self, paused: bool) {
        self.paused = paused;
        if self.closed {
            self.shut_down(false);
        }
    }

    /// A key that is nowhere in the queue has no history.
    fn forget_absent(&mut self) {
        let (line, in_work, delayed) = (&self.line, &self.in_work, &self.delayed);
        let present = |key: &u8| {
            delayed.contains_key(key)
                || line.iter().any(|ready| ready.key == *key)
                || in_work.iter().any(|(other, _)| other == key)
        };
        self.failing.retain(|key, _| present(key));
        self.priorities.retain(|key, _| present(key));
        self.requeued.retain(present);
    }
}

impl Failing {
    fn fail(&mut self, now: u64) {
        self.times += 1;
        if self.retry_at <= now {
            self.retry_at = now + (1 << self.retries);
            self.retries += 1;
        } else {
            self.early += 1;
        }
        self.not_before = now + if self.early == 0 { 0 } else { (5 << (self.early - 1).min(10)).min(1000) };
    }

    /// How long an add waits.
    fn pace(&self, now: u64) -> u64 {
        self.not_before.min(self.retry_at).saturating_sub(now)
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let how = prop_oneof![
        3 => Just(How::Done),
        2 => (0..20_u64).prop_map(How::RequeueAfter),
        3 => Just(How::Retry),
        2 => Just(How::Drop),
        1 => Just(How::ForgetAndRetry),
    ];
    let after = prop_oneof![3 => Just(0), 2 => 1..20_u64];
    let step = prop_oneof![
        40 => (0..6_u8, -1..2_i8, after).prop_map(|(key, priority, after)| Step::Add { key, priority, after }),
        30 => Just(Step::Take),
        25 => (any::<usize>(), how).prop_map(|(which, how)| Step::Finish { which, how }),
        15 => (1..10_u64).prop_map(Step::Advance),
        2 => any::<bool>().prop_map(Step::Pause),
        1 => any::<bool>().prop_map(|now| Step::ShutDown { now }),
        10 => Just(Step::Look),
    ];
    prop::collection::vec(step, 0..150)
}

async fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let queue = WorkQueue::with_config(WorkQueueConfig {
        retry: RateLimit::exponential(ms(1), Duration::from_hours(1)),
        oldest_every: OLDEST_EVERY as u32,
        ..Default::default()
    });
    let (mut model, mut items) = (Model::default(), Vec::new());
    for step in steps.into_iter().chain([Step::Look]) {
        match step {
            Step::Add { key, priority, after } => {
                queue.add_with(key, Add { priority, after: ms(after), cause: None });
                model.add_from_outside(key, priority, after);
            }
            Step::Take => {
                let item = queue.try_get();
                let failures = item.as_ref().map(|item| item.failures());
                let requeued = item.as_ref().map(|item| !item.reasons().is_empty());
                let taken = model.take();
                prop_assert_eq!(item.as_ref().map(|item| *item.key()), taken);
                let failed = |key| model.failing.get(&key).map_or(0, |failing| failing.times);
                prop_assert_eq!(failures, taken.map(failed));
                prop_assert_eq!(requeued, taken.map(|key| model.requeued_runs.contains(&key)));
                items.extend(item);
            }
            Step::Finish { which, how } if !items.is_empty() => {
                let which = which % items.len();
                let mut item: Item<u8> = items.remove(which);
                match how {
                    How::Done => item.done(),
                    How::RequeueAfter(after) => item.requeue_after(ms(after)),
                    How::Retry => _ = item.retry(),
                    How::Drop => drop(item),
                    How::ForgetAndRetry => {
                        item.forget();
                        item.retry();
                    }
                }
                model.finish(which, how);
            }
            Step::Finish { .. } => {}
            Step::Advance(by) => {
                tokio::time::advance(ms(by)).await;
                model.advance(by);
            }
            Step::Pause(paused) => {
                if paused {
                    queue.pause();
                } else {
                    queue.resume();
                }
                model.pause(paused);
            }
            Step::ShutDown { now } => {
                if now {
                    queue.shut_down_now();
                } else {
                    queue.shut_down();
                }
                model.shut_down(now);
            }
            Step::Look => {
                let stats = queue.stats();
                prop_assert_eq!(stats.depth, model.line.len());
                prop_assert_eq!(stats.in_work, model.in_work.len());
                prop_assert_eq!(stats.delayed, model.delayed.len());
                let oldest = model.line.first().map_or(0, |oldest| model.now - oldest.since);
                prop_assert_eq!(stats.oldest_age, ms(oldest));
            }
        }
        for key in 0..6 {
            prop_assert_eq!(queue.failures(&key), model.failing.get(&key).map_or(0, |failing| failing.times));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_its_model(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(steps))?;
    }
}
