//! Tells a few of the changes, one line each, and counts all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube_informer::event::Deleted;
use kube_informer::reflector::ReflectorError;
use kube_informer::{EventHandler, Object};
use tokio::time::Instant;

/// At most one line in so long; the eye does not read faster.
const PAUSE: Duration = Duration::from_millis(180);

/// A handler: three callbacks, and nothing about lists and watches.
#[derive(Clone)]
pub(super) struct Narrator {
    inner: Arc<Inner>,
}

struct Inner {
    colour: bool,
    clock: Mutex<Option<Clock>>,
    added: AtomicU64,
    updated: AtomicU64,
    deleted: AtomicU64,
    troubles: AtomicU64,
}

struct Clock {
    started: Instant,
    /// When it last spoke, and of what.
    last: Option<(Instant, char)>,
}

impl Clock {
    /// Whether it is time for a line. Creations, updates and deletes take turns, so that each of them is seen. A
    /// change of another kind than the next one waits twice as long.
    fn has_turn(&self, sign: char, now: Instant) -> bool {
        let Some((last, before)) = self.last else { return true };
        let next = match before {
            '+' => '~',
            '~' => '-',
            _ => '+',
        };
        now - last >= if sign == next { PAUSE } else { 2 * PAUSE }
    }
}

impl Narrator {
    pub(super) fn new(colour: bool) -> Self {
        let inner = Inner {
            colour,
            clock: Mutex::new(None),
            added: AtomicU64::new(0),
            updated: AtomicU64::new(0),
            deleted: AtomicU64::new(0),
            troubles: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Speaks from now on.
    pub(super) fn start(&self) {
        let clock = Clock { started: Instant::now(), last: None };
        *self.inner.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock);
    }

    /// Added, updated and deleted so far.
    pub(super) fn heard(&self) -> (u64, u64, u64) {
        let Inner { added, updated, deleted, .. } = &*self.inner;
        (added.load(Ordering::Relaxed), updated.load(Ordering::Relaxed), deleted.load(Ordering::Relaxed))
    }

    /// How often something has gone wrong since it speaks.
    pub(super) fn troubles(&self) -> u64 {
        self.inner.troubles.load(Ordering::Relaxed)
    }

    /// Says that something went wrong, and what happens now.
    pub(super) fn trouble(&self, error: &ReflectorError<'_>) {
        let clock = self.inner.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(clock) = clock.as_ref() else { return };
        self.inner.troubles.fetch_add(1, Ordering::Relaxed);
        let seconds = clock.started.elapsed().as_secs_f64();
        let (doing, wait) = (error.doing, error.retry_in.as_millis());
        println!("   {seconds:>5.1} s  ! {doing} failed: {}. It tries again in {wait} ms.", error.error);
    }

    fn say(
        &self,
        count: &AtomicU64,
        sign: char,
        colour: u8,
        pod: &Object<Pod>,
        news: impl FnOnce() -> Option<String>,
    ) {
        count.fetch_add(1, Ordering::Relaxed);
        let mut clock = self.inner.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(clock) = clock.as_mut() else { return };
        let now = Instant::now();
        if !clock.has_turn(sign, now) {
            return;
        }
        // An event that changes nothing does not use up the turn: the next event gets it.
        let Some(news) = news() else { return };
        clock.last = Some((now, sign));
        let (on, off) =
            if self.inner.colour { (format!("\x1b[{colour}m"), "\x1b[0m") } else { (String::new(), "") };
        let seconds = (now - clock.started).as_secs_f64();
        let total: u64 = [&self.inner.added, &self.inner.updated, &self.inner.deleted]
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum();
        println!(
            "   {seconds:>5.1} s  {on}{sign} {:<34}{off} {:<28} (event {total})",
            pod.key().to_string(),
            news
        );
    }
}

impl EventHandler<Pod> for Narrator {
    async fn on_add(&mut self, pod: Object<Pod>, initial: bool) {
        let news =
            || Some(if initial { "was there".to_owned() } else { format!("created, {}", phase(&pod)) });
        self.say(&self.inner.added, '+', 32, &pod, news);
    }

    async fn on_update(&mut self, old: Object<Pod>, new: Object<Pod>) {
        self.say(&self.inner.updated, '~', 33, &new, || change(&phase(&old), &phase(&new)));
    }

    async fn on_delete(&mut self, gone: Deleted<Pod>) {
        self.say(&self.inner.deleted, '-', 31, &gone.object, || {
            Some(format!("gone, was {}", phase(&gone.object)))
        });
    }
}

/// What an update says about the phase; nothing if that is as before.
fn change(old: &str, new: &str) -> Option<String> {
    (old != new).then(|| format!("{old} → {new}"))
}

/// The pod is decoded here, for the few that are told of, and nowhere else.
fn phase(pod: &Object<Pod>) -> String {
    let pod = pod.get().ok();
    let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.clone());
    phase.unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creations_updates_and_deletes_take_turns() {
        let now = Instant::now();
        let clock = Clock { started: now, last: Some((now, '~')) };
        let turns = |after| ['+', '~', '-'].map(|sign| clock.has_turn(sign, now + after));
        assert_eq!(turns(PAUSE / 2), [false, false, false]);
        assert_eq!(turns(PAUSE), [false, false, true]);
        assert_eq!(turns(2 * PAUSE), [true, true, true]);
    }

    #[test]
    fn a_phase_that_stays_is_no_news() {
        assert_eq!(change("Pending", "Running").as_deref(), Some("Pending → Running"));
        assert_eq!(change("Running", "Running"), None);
    }
}
