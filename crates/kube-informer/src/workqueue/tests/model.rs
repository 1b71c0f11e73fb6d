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
    dirty: BTreeSet<u8>,
    /// Deadline and order of arrival.
    delayed: BTreeMap<u8, (u64, u64)>,
    arrivals: u64,
    priorities: BTreeMap<u8, i8>,
    /// Failures in a row, and when the next try is due.
    failing: BTreeMap<u8, (u32, u64)>,
    turns: usize,
    paused: bool,
    closed: bool,
}

/// A ready key, its priority, and when it joined those of that priority.
#[derive(Debug, Clone, Copy)]
struct Ready {
    key: u8,
    priority: i8,
    joined: u64,
}

impl Model {
    fn add(&mut self, key: u8, priority: i8, after: u64) {
        if self.closed {
            return;
        }
        let old = self.priorities.get(&key).copied().unwrap_or(i8::MIN);
        self.priorities.insert(key, priority.max(old));
        self.arrivals += 1;
        let joined = self.arrivals;
        if let Some(ready) = self.line.iter_mut().find(|ready| ready.key == key && ready.priority < priority) {
            *ready = Ready { key, priority, joined };
        }
        if self.line.iter().any(|ready| ready.key == key) || self.dirty.contains(&key) {
            return;
        }
        if after == 0 {
            self.make_due(key);
        } else {
            self.arrivals += 1;
            let new = (self.now + after, self.arrivals);
            let delay = self.delayed.entry(key).or_insert(new);
            delay.0 = delay.0.min(new.0);
        }
    }

    fn make_due(&mut self, key: u8) {
        self.delayed.remove(&key);
        if self.in_work.iter().any(|&(other, _)| other == key) {
            self.dirty.insert(key);
        } else {
            self.arrivals += 1;
            self.line.push(Ready { key, priority: self.priorities[&key], joined: self.arrivals });
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
        self.in_work.push((key, priority));
        Some(key)
    }

    fn finish(&mut self, which: usize, how: How) {
        let (key, priority) = self.in_work[which];
        if matches!(how, How::Done | How::RequeueAfter(_) | How::ForgetAndRetry) {
            self.failing.remove(&key);
        }
        match how {
            How::Done => {}
            How::RequeueAfter(after) => self.add(key, 0, after),
            How::Retry | How::ForgetAndRetry => {
                let (failures, due) = self.failing.get(&key).copied().unwrap_or((0, 0));
                let (failures, due) = if due <= self.now {
                    (failures + 1, self.now + (1 << failures))
                } else {
                    (failures, due)
                };
                self.failing.insert(key, (failures, due));
                self.add(key, priority, due - self.now);
            }
        }
        self.in_work.remove(which);
        if self.dirty.remove(&key) {
            self.make_due(key);
        }
        self.forget_absent();
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        while let Some((_, key)) = self.delayed.iter().map(|(&key, &delay)| (delay, key)).min() {
            if self.delayed[&key].0 > self.now {
                break;
            }
            self.make_due(key);
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
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let how = prop_oneof![
        3 => Just(How::Done),
        2 => (0..20_u64).prop_map(How::RequeueAfter),
        3 => Just(How::Retry),
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
                model.add(key, priority, after);
            }
            Step::Take => {
                let item = queue.try_get();
                prop_assert_eq!(item.as_ref().map(|item| *item.key()), model.take());
                items.extend(item);
            }
            Step::Finish { which, how } if !items.is_empty() => {
                let which = which % items.len();
                let mut item: Item<u8> = items.remove(which);
                match how {
                    How::Done => item.done(),
                    How::RequeueAfter(after) => item.requeue_after(ms(after)),
                    How::Retry => _ = item.retry(),
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
            }
        }
        for key in 0..6 {
            prop_assert_eq!(
                queue.failures(&key),
                model.failing.get(&key).map_or(0, |&(failures, _)| failures)
            );
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
