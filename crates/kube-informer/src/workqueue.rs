//! Decides which key is worked on next: each key once at a time, no run for nothing, failures later and later.
//!
//! Fed by event handlers, which only add keys and never wait; feeds the workers of a controller. Nothing here knows
//! Kubernetes: any program can use a [`WorkQueue`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use kube_informer::workqueue::WorkQueue;
//!
//! let queue = WorkQueue::new();
//! queue.add("default/web");
//! queue.add("default/web"); // already there: still one run
//! queue.shut_down(); // accept no more, but hand out what is there
//!
//! while let Some(item) = queue.get().await {
//!     println!("working on {}", *item);
//!     item.done(); // dropped instead, it would be retried later, as by `item.retry()`
//! }
//! # }
//! ```
//!
//! The files, in reading order: `state` (what each call does), `entries` (keys), `ready` (order and priorities),
//! `delay` (deadlines), `failing` and `rate_limit` (delays after failures), `reason` (why a key runs), `item` (a key in work), `stats`.

mod delay;
mod entries;
mod failing;
mod item;
mod rate_limit;
mod ready;
mod reason;
mod state;
mod stats;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::Hash;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

pub use item::Item;
pub use rate_limit::RateLimit;
pub use reason::{Cause, Reason, Reasons};
pub use stats::{Histogram, QueueStats};

use entries::Hasher;
use state::{Next, Sleep, State};

use crate::interleave::{lock, scheduling_point};

/// A queue of keys for any number of producers and workers. Cloning gives another handle to the same queue.
///
/// *Promises*: a key is never worked on twice at the same time. Adds of a key that waits for its turn merge into one
/// run: highest priority, earliest moment, all reasons. A key added while in work runs exactly once more.
///
/// *Ordering*: by priority, and first in, first out within one. Every few hand-outs the key that has waited longest
/// goes first whatever its priority ([`WorkQueueConfig::oldest_every`]), so nothing waits for ever.
///
/// *Memory*: bounded by the number of different keys; given back after a burst, once the queue is empty. There is no task and no thread behind
/// it, and a timer only while a worker waits for a delayed key.
///
/// *Dropping* the last handle drops all keys; items in work keep what they need.
pub struct WorkQueue<T: Eq + Hash + Clone> {
    shared: Arc<Shared<T>>,
}

/// How a queue behaves.
#[derive(Debug, Clone)]
pub struct WorkQueueConfig {
    /// How long keys wait after they failed: after [`Item::retry`], or when an item is dropped.
    pub retry: RateLimit,
    /// Every so many hand-outs, the key that has waited longest goes first, whatever its priority: by default every
    /// 16th. 1 ignores priorities altogether.
    pub oldest_every: u32,
    /// How many different reasons are kept for a key: by default 8. Further ones are only counted.
    pub max_reasons: usize,
}

/// How a key is added; see [`WorkQueue::add_with`].
#[derive(Debug, Clone, Default)]
pub struct Add {
    /// Higher goes first; 0 by default.
    pub priority: i8,
    /// Not before this time has passed; at once by default.
    pub after: Duration,
    /// Why; handed to the worker, merged with other causes. None by default, which costs nothing.
    pub cause: Option<Cause>,
}

/// How a [drain](WorkQueue::drain) ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Everything that was queued has been worked on.
    Complete,
    /// [`shut_down`](WorkQueue::shut_down) or [`shut_down_now`](WorkQueue::shut_down_now) was called meanwhile.
    Aborted,
}

impl<T: Eq + Hash + Clone> WorkQueue<T> {
    /// An empty queue with the default configuration.
    pub fn new() -> Self {
        Self::with_config(WorkQueueConfig::default())
    }

    /// An empty queue.
    pub fn with_config(config: WorkQueueConfig) -> Self {
        let state = Mutex::new(State::new(config, Instant::now()));
        let shared = Shared { hasher: Hasher::default(), state, ready: Notify::new(), idle: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Adds a key to be worked on as soon as a worker is free. Never waits. A delay that the key may have is cancelled.
    ///
    /// A failing key that runs because of an add, before its retry is due, and fails again is paced: the next such add
    /// takes effect 5 ms after the failure, then 10 ms, up to a second, or when the retry is due.
    ///
    /// Does nothing once the queue is shut down; this is so for every way of adding.
    pub fn add(&self, key: T) {
        self.add_with(key, Add::default());
    }

    /// Adds a key to be worked on after a while. If it is due earlier anyway, that stands.
    pub fn add_after(&self, key: T, after: Duration) {
        self.add_with(key, Add { after, ..Add::default() });
    }

    /// Adds a key with a priority, a delay, a cause, or all of them.
    ///
    /// ```
    /// use kube_informer::workqueue::{Add, Cause, WorkQueue};
    /// let queue = WorkQueue::new();
    /// queue.add_with("web", Add { priority: 10, ..Add::default() });
    /// queue.add_with("web", Add { cause: Some(Cause::new("pods", "delete")), ..Add::default() });
    ///
    /// let item = queue.try_get().unwrap();
    /// assert_eq!((*item, item.priority(), item.reasons()[0].event), ("web", 10, "delete"));
    /// ```
    pub fn add_with(&self, key: T, add: Add) {
        let hash = self.shared.hasher.hash(&key);
        let not_kept = self.shared.with(|state| state.add(hash, key, add, Instant::now()));
        drop(not_kept); // without the lock
    }

    /// Waits for a key and hands it out. `None` means that the queue is shut down and has nothing left.
    ///
    /// *Cancel safety*: a dropped `get` has taken nothing.
    ///
    /// # Panics
    /// If the clone of the key panics. The key is then retried later, as one whose run failed.
    pub async fn get(&self) -> Option<Item<T>> {
        loop {
            match self.shared.take() {
                Next::Take(taken) => return Some(Item::new(taken, self.shared.clone())),
                Next::Closed => return None,
                Next::Wait => self.shared.sleep().await,
                Next::Panicked(panic) => resume_unwind(panic),
            }
        }
    }

    /// Hands out a key if one is ready.
    ///
    /// # Panics
    /// As [`get`](Self::get).
    pub fn try_get(&self) -> Option<Item<T>> {
        match self.shared.take() {
            Next::Take(taken) => Some(Item::new(taken, self.shared.clone())),
            Next::Wait | Next::Closed => None,
            Next::Panicked(panic) => resume_unwind(panic),
        }
    }

    /// How many keys are ready, not counting those in work or delayed.
    pub fn len(&self) -> usize {
        self.shared.with(|state| state.ready_len(Instant::now()))
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many runs of a key failed in a row: 0 once it has succeeded.
    pub fn failures(&self, key: &T) -> u32 {
        let hash = self.shared.hasher.hash(key);
        self.shared.with(|state| state.failures(hash, key))
    }

    /// Sets the delays after failures from now on.
    pub(crate) fn set_retry(&self, retry: RateLimit) {
        self.shared.with(|state| state.set_retry(retry));
    }

    /// Hands out nothing until [`resume`](Self::resume), while keys are accepted and merged as ever: for a standby that
    /// is not the leader yet. Keys in work are not affected.
    pub fn pause(&self) {
        self.shared.with(|state| state.set_paused(true));
    }

    /// Hands out keys again.
    pub fn resume(&self) {
        self.shared.with(|state| state.set_paused(false));
    }

    /// Accepts nothing more, drops all delays, and lets workers take what is ready: then `get` returns `None`.
    /// Waits for nobody, and makes a [drain](Self::drain) stop waiting.
    ///
    /// A paused queue hands out nothing, so what is ready is dropped as well.
    pub fn shut_down(&self) {
        self.shared.with(|state| state.shut_down(Instant::now()));
    }

    /// As [`shut_down`](Self::shut_down), and drops what is ready: `get` returns `None` from now on. Keys in work are
    /// not affected.
    pub fn shut_down_now(&self) {
        self.shared.with(|state| {
            state.shut_down(Instant::now());
            state.discard_ready();
        });
    }

    /// Accepts nothing more, drops all delays, and waits until what is ready or in work is done. Somebody has to take it:
    /// workers must be running. A later [`shut_down`](Self::shut_down) ends the waiting.
    ///
    /// *Cancel safety*: the queue stays shut down; only the waiting ends.
    pub async fn drain(&self) -> Drained {
        let before = self.shared.with(|state| {
            state.close(Instant::now());
            state.shutdowns()
        });
        loop {
            let changed = self.shared.idle.notified();
            let (idle, now) = self.shared.with(|state| (state.is_idle(Instant::now()), state.shutdowns()));
            match (now == before, idle) {
                (false, _) => return Drained::Aborted,
                (true, true) => return Drained::Complete,
                (true, false) => changed.await,
            }
        }
    }

    /// Waits until nothing is ready and nothing in work; delayed keys may remain.
    ///
    /// *Cancel safety*: safe; it only watches.
    pub async fn idle(&self) {
        loop {
            let changed = self.shared.idle.notified();
            if self.shared.with(|state| state.is_idle(Instant::now())) {
                return;
            }
            changed.await;
        }
    }

    /// Whether the queue accepts nothing more.
    pub fn is_shut_down(&self) -> bool {
        self.shared.with(|state| state.is_closed())
    }

    /// The numbers of this moment.
    pub fn stats(&self) -> QueueStats {
        self.shared.with(|state| state.stats(Instant::now()))
    }
}

impl Default for WorkQueueConfig {
    fn default() -> Self {
        Self { retry: RateLimit::default(), oldest_every: 16, max_reasons: 8 }
    }
}

impl<T: Eq + Hash + Clone> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Eq + Hash + Clone> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T: Eq + Hash + Clone> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// What handles and items share.
struct Shared<T> {
    hasher: Hasher,
    state: Mutex<State<T>>,
    /// Wakes workers that sleep in `get`.
    ready: Notify,
    /// Wakes those who wait for the queue to be idle.
    idle: Notify,
}

impl<T: Eq + Hash + Clone> Shared<T> {
    /// Does something to the state, then wakes the waiters that it concerns, without the lock.
    fn with<R>(&self, call: impl FnOnce(&mut State<T>) -> R) -> R {
        let state = lock(&self.state);
        let mut locked = Locked { shared: self, state: Some(state) };
        // Of the user's code only comparisons of keys can unwind from here. They run before the key is changed.
        call(locked.state.as_mut().expect("taken only when it is dropped"))
    }

    fn take(&self) -> Next<T> {
        self.with(|state| state.take(Instant::now()))
    }

    /// Sleeps until there may be something to take.
    async fn sleep(&self) {
        let mut woken = pin!(self.ready.notified());
        // In line before the last look, so that nothing that becomes ready after it is missed.
        woken.as_mut().enable();
        let Some(sleep) = self.with(|state| state.fall_asleep(Instant::now())) else { return };
        let mut sleeper = Sleeper { shared: self, sleep, cancelled: true };
        match sleep.until {
            None => woken.await,
            Some(deadline) => tokio::select! {
                biased;
                () = woken => {}
                () = sleep_until(deadline) => {}
            },
        }
        sleeper.cancelled = false;
    }
}

/// The lock. Dropped, also by a panic, it releases the lock and then wakes waiters.
struct Locked<'a, T: Eq + Hash + Clone> {
    shared: &'a Shared<T>,
    state: Option<MutexGuard<'a, State<T>>>,
}

impl<T: Eq + Hash + Clone> Drop for Locked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        let wake = state.take_wake();
        drop(state);
        scheduling_point();
        if wake.all_sleepers {
            self.shared.ready.notify_waiters();
        }
        for _ in 0..wake.sleepers {
            self.shared.ready.notify_one();
        }
        if wake.idle {
            self.shared.idle.notify_waiters();
        }
    }
}

/// A place among the sleepers, given up when the sleep ends or is cancelled.
struct Sleeper<'a, T: Eq + Hash + Clone> {
    shared: &'a Shared<T>,
    sleep: Sleep,
    cancelled: bool,
}

impl<T: Eq + Hash + Clone> Drop for Sleeper<'_, T> {
    fn drop(&mut self) {
        self.shared.with(|state| state.wake_up(self.sleep, self.cancelled));
    }
}
