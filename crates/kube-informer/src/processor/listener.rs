//! One handler's side of the fan-out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::buffer::{Buffer, Hops};
use super::walk::Walk;
use crate::event::Owed;
use crate::interleave::lock;
use crate::planted::{Bug, planted};
use crate::store::{Applied, State};

/// What a handler has heard and has yet to hear.
#[derive(Debug, Clone)]
pub struct HandlerStats {
    /// The handler's name.
    pub name: String,
    /// Whether it has heard of everything that was there before it.
    pub has_synced: bool,
    /// How many events wait.
    pub depth: usize,
    /// How many of them the buffer holds; the others are read from the store one by one when their turn comes.
    pub buffered: usize,
    /// How long the oldest of them has waited.
    pub lag: Duration,
    /// For how long the callback that runs now has been running.
    pub busy_for: Option<Duration>,
    /// Events it has heard; a filter may have dropped some of them.
    pub delivered: u64,
    /// Events that were merged into others because the buffer was full.
    pub merged: u64,
    /// Callbacks that panicked.
    pub panics: u64,
}

pub(crate) struct Listener {
    config: ListenerConfig,
    buffer: Mutex<Inner>,
    ready: Notify,
    synced: watch::Sender<bool>,
    /// Whether its task has ended.
    finished: watch::Sender<bool>,
    delivered: AtomicU64,
    panics: AtomicU64,
}

#[derive(Clone)]
pub(crate) struct ListenerConfig {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) resync_every: Option<Duration>,
    pub(crate) buffer_len: usize,
    pub(crate) hops: Hops,
}

struct Inner {
    buffer: Buffer,
    /// Whether the store had its first list, so that nothing initial comes any more.
    listed: bool,
    end: End,
    busy_since: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It goes on.
    No,
    /// After what waits has been heard.
    Drained,
    /// Now.
    Now,
}

impl Listener {
    /// A listener that first receives the objects in `found`. `listed`: the store has had its first list.
    pub(crate) fn new(config: ListenerConfig, found: Option<Arc<State>>, listed: bool) -> Arc<Self> {
        let buffer = Buffer::new(config.buffer_len, config.hops.clone(), found);
        let synced = listed && buffer.initial_done();
        Arc::new(Self {
            buffer: Mutex::new(Inner { buffer, listed, end: End::No, busy_since: None }),
            ready: Notify::new(),
            synced: watch::Sender::new(synced),
            finished: watch::Sender::new(false),
            delivered: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            config,
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.config.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    pub(crate) fn resync_every(&self) -> Option<Duration> {
        self.config.resync_every
    }

    pub(crate) fn push(&self, applied: &Applied) {
        self.change(|inner| {
            if let Some(listed) = &applied.listed {
                inner.buffer.walk(Walk::over(listed));
            }
            for note in &applied.notes {
                let due =
                    |round: &Arc<[u64]>| planted(Bug::ResyncToEverybody) || round.contains(&self.config.id);
                if note.round.as_ref().is_none_or(due) {
                    inner.buffer.push(note.key.clone(), note.owed.clone());
                }
            }
        });
        self.ready.notify_one();
    }

    pub(crate) fn first_list_complete(&self) {
        self.change(|inner| inner.listed = true);
    }

    /// What is to be heard next; `None` when it is over.
    ///
    /// # Cancel safety
    /// Dropped while it waits, nothing is lost.
    pub(crate) async fn next(&self) -> Option<Owed> {
        loop {
            let ready = self.ready.notified();
            {
                let mut inner = self.lock();
                if inner.end == End::Now {
                    return None;
                }
                if let Some(owed) = inner.buffer.pop() {
                    inner.busy_since = Some(Instant::now());
                    return Some(owed);
                }
                if inner.end == End::Drained {
                    return None;
                }
            }
            ready.await;
        }
    }

    /// The callbacks for what [`next`](Self::next) gave have returned.
    pub(crate) fn heard(&self, initial: bool) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
        self.change(|inner| {
            inner.busy_since = None;
            if initial {
                inner.buffer.heard_initial();
            }
        });
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends it, after what waits or at once.
    pub(crate) fn end(&self, drained: bool) {
        let mut inner = self.lock();
        if inner.end != End::Now || planted(Bug::CloseOverrulesEnd) {
            inner.end = if drained { End::Drained } else { End::Now };
        }
        drop(inner);
        self.ready.notify_one();
    }

    /// Whether the handler was removed, so that nothing more may be delivered.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().end == End::Now
    }

    pub(crate) fn finish(&self) {
        self.finished.send_replace(true);
    }

    pub(crate) fn finished(&self) -> watch::Receiver<bool> {
        self.finished.subscribe()
    }

    pub(crate) fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    pub(crate) fn stats(&self) -> HandlerStats {
        let inner = self.lock();
        HandlerStats {
            name: self.config.name.clone(),
            has_synced: self.has_synced(),
            depth: inner.buffer.len(),
            buffered: inner.buffer.buffered(),
            lag: inner.buffer.oldest().map(|oldest| oldest.elapsed()).unwrap_or_default(),
            busy_for: inner.busy_since.map(|since| since.elapsed()),
            delivered: self.delivered.load(Ordering::Relaxed),
            merged: inner.buffer.merges,
            panics: self.panics.load(Ordering::Relaxed),
        }
    }

    /// Changes what waits. Any change can remove the last initial add, merges included, so each one checks for "synced".
    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.lock();
        change(&mut inner);
        let synced = inner.listed && inner.buffer.initial_done();
        drop(inner);
        if synced {
            self.synced.send_if_modified(|was| !std::mem::replace(was, true));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::object::Entry;
    use crate::store::Note;

    fn note(name: &str, owed: impl Fn(Arc<Entry>) -> Owed) -> Note {
        let kind = Arc::new(Kind::new("v1", "Pod", "pods", true));
        let text = format!(r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"1"}}}}"#);
        let entry = Arc::new(Entry::from_json(&kind, text.as_bytes()).unwrap());
        Note { key: entry.key().clone(), owed: owed(entry), round: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_merge_that_removes_the_last_initial_add_syncs() {
        let config =
            ListenerConfig { id: 1, name: "x".into(), resync_every: None, buffer_len: 1, hops: Hops::Skip };
        let listener = Listener::new(config, None, false);
        let add = |entry| Owed::add(entry, true);
        let push = |notes| listener.push(&Applied { notes, ..Applied::default() });
        push(vec![note("a", add), note("b", add)]);
        listener.first_list_complete();
        let first = listener.next().await.unwrap();
        listener.heard(first.initial);
        assert!(!listener.has_synced(), "b waits");
        push(vec![note("b", |entry| Owed::delete(Arc::clone(&entry), entry, false))]);
        assert_eq!((listener.stats().depth, listener.has_synced()), (0, true));
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_ended_at_once_receives_nothing_more_when_closed() {
        let config =
            ListenerConfig { id: 1, name: "x".into(), resync_every: None, buffer_len: 8, hops: Hops::Skip };
        let listener = Listener::new(config, None, true);
        let notes = vec![note("a", |entry| Owed::add(entry, false))];
        listener.push(&Applied { notes, ..Applied::default() });
        listener.end(false);
        listener.end(true);
        assert!(listener.next().await.is_none());
    }
}
