//! The queue between reflector and process loop: first in, first out by key, with all changes of a key handed out at once.
//!
//! Fed by the [`reflector`](crate::reflector), drained by the [`shared_informer`](crate::shared_informer)'s loop; usable on
//! its own with [`pop`](DeltaFifo::pop).

mod delta;
mod segment;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use futures_core::future::BoxFuture;
use kube_wire::ResourceVersion;
use tokio::sync::Notify;

use crate::ObjectKey;
use crate::interleave::lock;
use crate::object::Entry;
use crate::planted::{Bug, planted};
use crate::reflector::{Change, Replacement, Sink};

pub(crate) use delta::Element;
pub use delta::{Delta, DeltaType, Scope};
pub(crate) use segment::Batch;
use segment::{Deltas, Segment};

/// The bound unless told otherwise.
pub const DEFAULT_LIMIT_BYTES: usize = 16 << 20;

/// What a consumer of a [`DeltaFifo`] has already, so that a relist can tell what vanished.
pub trait KnownObjects: Send + Sync + 'static {
    /// All objects within a scope.
    fn known(&self, scope: &Scope) -> Vec<Arc<Entry>>;

    /// Whether there is an object with this key.
    fn has(&self, key: &ObjectKey) -> bool;
}

/// A queue of changes by key.
///
/// `items` maps a key to its changes in order, `queue` holds the keys in order of arrival; a key stands in line once, where
/// its first change put it. Two deletes of a key in a row are one.
///
/// # Ordering
/// Changes of a key come out in the order they went in. A relist is worked out when everything put before it has been
/// taken: only then is it known what vanished.
///
/// # Bound
/// [`put`](Self::put) waits while the objects in the queue take more than the limit. A relist stands outside of it.
pub struct DeltaFifo {
    inner: Mutex<Inner>,
    ready: Notify,
    room: Notify,
    known: Option<Arc<dyn KnownObjects>>,
    limit: usize,
}

#[derive(Default)]
struct Inner {
    segments: VecDeque<Segment>,
    bytes: usize,
    closed: bool,
    /// Whether anything has ever been put.
    populated: bool,
    /// How many keys of the first list have not been popped.
    initial: usize,
    /// The scopes whose first list has come.
    listed: Vec<Scope>,
}

/// The queue was closed and is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is closed")]
pub struct Closed;

/// Why [`DeltaFifo::pop`] gave nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PopError<E> {
    /// The queue was closed and is empty.
    #[error("the queue is closed")]
    Closed,
    /// The process function failed; the item is still at the head.
    #[error("processing failed")]
    Process(#[source] E),
}

impl Default for DeltaFifo {
    fn default() -> Self {
        Self::new(None)
    }
}

impl DeltaFifo {
    /// A queue for a consumer that has these objects; `None` for one that cannot say.
    pub fn new(known: Option<Arc<dyn KnownObjects>>) -> Self {
        Self::with_limit(known, DEFAULT_LIMIT_BYTES)
    }

    /// A queue with a bound of its own.
    pub fn with_limit(known: Option<Arc<dyn KnownObjects>>, limit_bytes: usize) -> Self {
        // With no room at all, no change would ever be taken.
        let limit = limit_bytes.max(1);
        Self { inner: Mutex::default(), ready: Notify::new(), room: Notify::new(), known, limit }
    }

    /// Adds a change, in one locked action, once there is room.
    ///
    /// # Cancel safety
    /// Dropped while it waits for room, it has added nothing.
    pub async fn put(&self, scope: &Scope, delta: Delta) {
        let version = delta.object.version().clone();
        self.put_at(scope, delta, Some(version)).await;
    }

    async fn put_at(&self, scope: &Scope, delta: Delta, version: Option<ResourceVersion>) {
        self.wait_for_room().await;
        let mut inner = self.lock();
        if inner.closed {
            return;
        }
        inner.populated = true;
        inner.bytes += delta.size();
        let deltas = inner.last_deltas();
        let key = delta.object.key().clone();
        let dropped = deltas.push(key, Element::Delta(delta));
        deltas.advance(scope, version);
        inner.bytes -= dropped;
        drop(inner);
        self.ready.notify_one();
    }

    /// Replaces everything within a scope by a list. Never waits, and is never split.
    pub fn replace(&self, scope: &Scope, replacement: Replacement) {
        let mut inner = self.lock();
        if inner.closed {
            return;
        }
        let first = !inner.listed.contains(scope);
        if first {
            inner.listed.push(scope.clone());
        }
        inner.populated = true;
        // A consumer that cannot say what it has: what it is about to get is all that is known to vanish.
        let queued = if self.known.is_none() { inner.queued(scope) } else { Vec::new() };
        let scope = scope.clone();
        inner.segments.push_back(Segment::Replace { scope, replacement, first, gone: false, queued });
        drop(inner);
        self.ready.notify_one();
    }

    /// Lets everything within a scope vanish, for it is no longer watched.
    pub(crate) fn drop_scope(&self, scope: &Scope) {
        let mut inner = self.lock();
        inner.listed.retain(|listed| listed != scope);
        let replacement = Replacement::new(Vec::new(), ResourceVersion::ANY);
        inner.segments.push_back(Segment::Replace {
            scope: scope.clone(),
            replacement,
            first: false,
            gone: true,
            queued: Vec::new(),
        });
        drop(inner);
        self.ready.notify_one();
    }

    /// Moves the version without a change: a bookmark. It passes through in order.
    pub fn advance(&self, scope: &Scope, version: ResourceVersion) {
        let mut inner = self.lock();
        if !inner.closed {
            inner.last_deltas().advance(scope, Some(version));
            drop(inner);
            self.ready.notify_one();
        }
    }

    /// Notes in order that an object could not be read.
    pub(crate) fn set_aside(&self, scope: &Scope, aside: crate::SetAside) {
        let mut inner = self.lock();
        if inner.closed {
            return;
        }
        let version = aside.version.clone();
        let deltas = inner.last_deltas();
        match aside.key.clone() {
            Some(key) => {
                deltas.push(key, Element::Aside(aside));
            }
            None => deltas.nameless.push((scope.clone(), aside)),
        }
        deltas.advance(scope, version);
        drop(inner);
        self.ready.notify_one();
    }

    /// Adds objects of the store again, as [`DeltaType::Sync`]. Keys with changes in the queue are passed over: what waits
    /// for them is newer. What waits only to come round again comes round to more handlers.
    ///
    /// # Cancel safety
    /// Dropped while it waits for room, it has added nothing.
    pub async fn resync(&self, objects: impl IntoIterator<Item = Delta>) {
        self.wait_for_room().await;
        let mut inner = self.lock();
        if inner.closed {
            return;
        }
        for delta in objects {
            let key = delta.object.key().clone();
            let round = delta.round.as_deref();
            if let Some(waiting) = inner.segments.iter_mut().find(|segment| segment.covers(&key, round)) {
                waiting.join_round(&key, round);
            } else {
                inner.bytes += delta.size();
                inner.last_deltas().push(key, Element::Delta(delta));
            }
        }
        drop(inner);
        self.ready.notify_one();
    }

    /// Waits for an item and lets `process` work on all changes of its key at once. If it fails, the item stays at the head.
    ///
    /// Meant for one consumer.
    ///
    /// # Cancel safety
    /// Dropped while it waits, it has taken nothing.
    pub async fn pop<R, E>(
        &self,
        process: impl FnOnce(&ObjectKey, &[Delta]) -> Result<R, E>,
    ) -> Result<R, PopError<E>> {
        let (key, deltas) = loop {
            let ready = self.ready.notified();
            if let Some(head) = self.head().map_err(|Closed| PopError::Closed)? {
                break head;
            }
            ready.await;
        };
        let result = process(&key, &deltas).map_err(PopError::Process)?;
        let mut inner = self.lock();
        let freed = inner.remove_head(&key, deltas.len());
        inner.bytes -= freed;
        drop(inner);
        self.room.notify_waiters();
        Ok(result)
    }

    /// The first key in line with its changes, once relists before it are worked out.
    fn head(&self) -> Result<Option<(ObjectKey, Vec<Delta>)>, Closed> {
        let mut inner = self.lock();
        loop {
            inner.expand_head(self.known.as_deref());
            let Some(Segment::Deltas(head)) = inner.segments.front_mut() else {
                return if inner.closed { Err(Closed) } else { Ok(None) };
            };
            let Some(key) = head.queue.front().cloned() else {
                inner.segments.pop_front();
                continue;
            };
            let deltas: Vec<Delta> = head.items[&key].iter().filter_map(Element::delta).cloned().collect();
            // Only unreadable objects; or a delete of something that nobody has, and nobody will hear of.
            let unheard = deltas.is_empty()
                || deltas.iter().all(|delta| delta.kind == DeltaType::Deleted)
                    && self.known.as_ref().is_some_and(|known| !known.has(&key));
            if !unheard {
                return Ok(Some((key, deltas)));
            }
            let freed = inner.remove_head(&key, deltas.len());
            inner.bytes -= freed;
            self.room.notify_waiters();
        }
    }

    /// Takes all that stands in the queue up to the next relist, or one relist.
    pub(crate) async fn drain(&self) -> Result<Batch, Closed> {
        loop {
            let ready = self.ready.notified();
            {
                let mut inner = self.lock();
                inner.expand_head(self.known.as_deref());
                match inner.segments.pop_front() {
                    Some(Segment::Deltas(deltas)) => {
                        let freed = deltas.bytes();
                        inner.bytes -= freed;
                        inner.initial = inner.initial.saturating_sub(deltas.initial);
                        drop(inner);
                        if !planted(Bug::RoomWakeMissing) {
                            self.room.notify_waiters();
                        }
                        return Ok(deltas.into_batch());
                    }
                    Some(Segment::Replace { .. }) => unreachable!("relists at the head are worked out"),
                    None if inner.closed => return Err(Closed),
                    None => {}
                }
            }
            ready.await;
        }
    }

    async fn wait_for_room(&self) {
        loop {
            let room = self.room.notified();
            if self.has_room() {
                return;
            }
            room.await;
        }
    }

    fn has_room(&self) -> bool {
        let inner = self.lock();
        inner.closed || inner.bytes < self.limit
    }

    /// Whether the first list has been taken out again, all of it. An object put before any list counts as a list of none.
    pub fn has_synced(&self) -> bool {
        let inner = self.lock();
        let listing = inner.segments.iter().any(|segment| match segment {
            Segment::Replace { scope, replacement, first: true, .. } => {
                // An empty list with nothing to vanish is taken as soon as it is there.
                !replacement.objects.is_empty()
                    || !replacement.set_aside.is_empty()
                    || self.known.as_ref().is_some_and(|known| !known.known(scope).is_empty())
            }
            _ => false,
        });
        inner.populated && inner.initial == 0 && !listing
    }

    /// How many keys stand in line. A relist counts as its items.
    pub fn len(&self) -> usize {
        self.lock().segments.iter().map(Segment::len).sum()
    }

    /// Whether nothing stands in line.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes the objects in the queue take, relists aside.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Refuses what comes from now on. What stands in line can still be taken; after that, waiters are told.
    pub fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_waiters();
        self.ready.notify_one();
        self.room.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl Sink for DeltaFifo {
    fn send<'a>(&'a self, scope: &'a Scope, change: Change) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match change {
                Change::Put { delta, version } => self.put_at(scope, delta, version).await,
                Change::Replace(replacement) => self.replace(scope, replacement),
                Change::Advance(version) => self.advance(scope, version),
                Change::SetAside(aside) => self.set_aside(scope, aside),
            }
        })
    }
}

impl Inner {
    /// The changes that a new one joins: those after the last relist.
    fn last_deltas(&mut self) -> &mut Deltas {
        if !matches!(self.segments.back(), Some(Segment::Deltas(_))) {
            self.segments.push_back(Segment::Deltas(Deltas::default()));
        }
        match self.segments.back_mut() {
            Some(Segment::Deltas(deltas)) => deltas,
            _ => unreachable!("just pushed"),
        }
    }

    /// The objects of a scope that will be there once all that stands in line has been taken.
    fn queued(&self, scope: &Scope) -> Vec<Arc<Entry>> {
        let mut there: BTreeMap<&ObjectKey, &Arc<Entry>> = BTreeMap::new();
        for segment in &self.segments {
            match segment {
                Segment::Deltas(deltas) => {
                    let last = deltas
                        .items
                        .values()
                        .filter_map(|of_key| of_key.iter().rev().find_map(Element::delta));
                    for delta in last {
                        if delta.kind == DeltaType::Deleted {
                            there.remove(delta.object.key());
                        } else {
                            there.insert(delta.object.key(), &delta.object);
                        }
                    }
                }
                Segment::Replace { scope, replacement, .. } => {
                    there.retain(|key, _| !scope.contains(key));
                    there.extend(replacement.objects.iter().map(|delta| (delta.object.key(), &delta.object)));
                }
            }
        }
        there.into_values().filter(|entry| scope.contains(entry.key())).cloned().collect()
    }

    /// Works out a relist that has come to the head: what vanished, then what is there.
    fn expand_head(&mut self, known: Option<&dyn KnownObjects>) {
        // Emptied by hand, and nothing joins what stands before a relist.
        while self.segments.len() > 1
            && matches!(self.segments.front(), Some(Segment::Deltas(d)) if d.is_spent())
        {
            self.segments.pop_front();
        }
        if let Some(Segment::Replace { .. }) = self.segments.front()
            && let Some(Segment::Replace { scope, replacement, first, gone, queued }) =
                self.segments.pop_front()
        {
            let within = if planted(Bug::ReplaceBeyondItsScope) { &Scope::CLUSTER } else { &scope };
            let vanishable = known.map_or(queued, |known| known.known(within));
            let deltas = Deltas::from_replacement(&scope, replacement, first, gone, &vanishable);
            self.bytes += deltas.bytes();
            if first {
                self.initial += deltas.initial;
            }
            self.segments.push_front(Segment::Deltas(deltas));
        }
    }

    /// Takes the first `count` changes of the key at the head; if more have come meanwhile, it goes to the end of the line.
    fn remove_head(&mut self, key: &ObjectKey, count: usize) -> usize {
        let Some(Segment::Deltas(head)) = self.segments.front_mut() else { return 0 };
        let (freed, initial) = head.remove(key, count);
        self.initial -= initial;
        freed
    }
}

impl std::fmt::Debug for DeltaFifo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeltaFifo")
            .field("len", &self.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
