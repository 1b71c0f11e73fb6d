//! One cache of one kind, shared by everybody who asks for it: its loop, its handlers, its life.
//!
//! Takes changes from the [`delta_fifo`](crate::delta_fifo), writes them into the [`store`](crate::store) first and then tells
//! the processor, which calls the [handlers](crate::handler).

mod core;
#[cfg(test)]
mod interleavings;
mod keeper;
mod options;
mod registration;
mod resync;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use kube_wire::ResourceVersion;

use crate::delta_fifo::Scope;
use crate::event::Owed;
use crate::handler::{EventHandler, HandlerOptions};
use crate::lister::Lister;
use crate::object::{Object, View};
use crate::processor::Hops;
use crate::reflector::ReflectorStatus;
use crate::source::ListWatch;
use crate::stats::InformerStats;
use crate::store::{IndexBy, IndexError, Snapshot};
use crate::{Kind, ObjectKey};

pub(crate) use self::core::{Core, Need, SourceOf};
pub(crate) use keeper::{Keeper, Tasks};
pub use options::InformerOptions;
pub(crate) use options::{CacheKey, Shape};
pub use registration::{EventStream, Registration};

/// A live copy of one kind, read as `K`.
///
/// Cheap to clone: all clones, and all informers that a factory hands out for the same thing, are the same one.
///
/// # Dropping
/// When the last handle is gone (informers, [`Lister`]s, [`Registration`]s), the watch stops and the copy is freed. A
/// [`Snapshot`] or an [`Object`] does not keep it.
#[must_use = "when the last handle is dropped, the watch stops and the copy is freed"]
pub struct SharedInformer<K> {
    keeper: Arc<Keeper>,
    view: PhantomData<fn() -> K>,
}

/// Why an informer has not synced.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{kind} has not synced: {why}")]
pub struct NotSynced {
    /// The kind, as `apiVersion kind`.
    pub kind: String,
    /// What it waits for, and what last went wrong.
    pub why: String,
}

/// Why an informer's copy cannot be relied on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} is stale: {why}")]
pub struct Unhealthy {
    /// The kind, as `apiVersion kind`.
    pub kind: String,
    /// For each scope that is stale: for how long, and the last failure.
    pub why: String,
}

/// The errors of several informers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Several<E>(pub Vec<E>);

impl<E: std::fmt::Display> std::fmt::Display for Several<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if place == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl<E: std::fmt::Debug + std::fmt::Display> std::error::Error for Several<E> {}

/// Handlers that did not return in time when they were to stop. Their tasks were ended where they stood.
#[derive(Debug, Clone, thiserror::Error)]
#[error("these handlers did not return in time and were ended: {}", handlers.join(", "))]
pub struct Unfinished {
    /// The handlers' names.
    pub handlers: Vec<String>,
}

impl<K: View> SharedInformer<K> {
    /// An informer over a source of your own, outside of any factory. It runs once [`start`](Self::start)ed.
    ///
    /// What is asked of a server is the source's own affair, and these options mean nothing here: namespaces, labels, fields,
    /// `metadata_only`, `json`, `gzip`.
    pub fn over(kind: Kind, source: impl ListWatch, mut options: InformerOptions) -> Self {
        // The source does not know of scopes: each would list all of it.
        options.forget_namespaces();
        let source: Arc<dyn ListWatch> = Arc::new(source);
        let source: SourceOf = Arc::new(move |_: &Scope| Arc::clone(&source));
        let core = Core::new(Arc::new(kind), source, options, Shape::of::<K>());
        Self::new(Keeper::new(core))
    }

    /// Adds an index over the object: from each object to the values it is found by. Usable when this returns, at any time.
    ///
    /// # Errors
    /// If there is an index of this name.
    pub fn add_index<I>(
        &self,
        name: &str,
        values: impl Fn(&Object<K>) -> I + Send + Sync + 'static,
    ) -> Result<(), IndexError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.add_index_by(name, IndexBy::object(values))
    }

    /// Adds a handler. It hears of everything that is there, then of every change.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use = "dropping the registration removes the handler; detach() it to let it go on"]
    pub fn add_handler(&self, handler: impl EventHandler<K>) -> Registration {
        self.add_handler_with(HandlerOptions::default(), handler)
    }

    /// Adds a handler with options: a name, a filter, a resync period, a larger buffer.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use = "dropping the registration removes the handler; detach() it to let it go on"]
    pub fn add_handler_with<H: EventHandler<K>>(
        &self,
        options: HandlerOptions<K>,
        handler: H,
    ) -> Registration {
        Registration::with_handler(&self.keeper, options, handler)
    }

    /// All events as a stream, beginning with everything that is there. Dropping it ends it.
    pub fn events(&self, options: HandlerOptions<K>) -> EventStream<K> {
        EventStream::new(&self.keeper, options)
    }
}

impl<K> SharedInformer<K> {
    pub(crate) fn new(keeper: Arc<Keeper>) -> Self {
        Self { keeper, view: PhantomData }
    }

    /// The kind.
    pub fn kind(&self) -> &Kind {
        &self.core().kind
    }

    /// Lists and watches from now on. Does nothing if it runs; after a [`stop`](Self::stop) it starts again, and handlers hear
    /// of what has changed since. Does nothing after a shutdown, of the informer or of its factory.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&self) {
        self.keeper.start();
    }

    /// Ends list and watch. The copy stays readable as it is, and handlers stay registered.
    ///
    /// # Cancel safety
    /// Dropped, it has been told to stop all the same.
    pub async fn stop(&self) {
        self.keeper.stop().await;
    }

    /// Ends everything of this informer for good: list, watch and handlers, detached ones included. Callbacks that run may
    /// return within `limit`. Everybody who shares the informer is affected; the copy stays readable as it is.
    ///
    /// # Errors
    /// If handlers did not return in time: their names. Their tasks were aborted.
    ///
    /// # Cancel safety
    /// Dropped, everything has been told to end all the same; another call waits for the rest.
    pub async fn shutdown_within(&self, limit: Duration) -> Result<(), Unfinished> {
        self.keeper.shutdown(limit).await
    }

    /// Whether it lists and watches.
    pub fn is_running(&self) -> bool {
        self.keeper.is_running()
    }

    /// Whether the store has had the first list of every scope it began with. Of handlers this says nothing: see
    /// [`Registration::has_synced`]. Of namespaces that were set later neither: see [`Snapshot::version_of`].
    pub fn has_synced(&self) -> bool {
        self.core().has_synced()
    }

    /// Waits until the store has had the first list.
    ///
    /// # Errors
    /// If the informer does not run: start it first.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn wait_for_sync(&self) -> Result<(), NotSynced> {
        self.keeper.wait_for_sync().await
    }

    /// As [`wait_for_sync`](Self::wait_for_sync), for so long and no longer.
    ///
    /// # Errors
    /// If it has not synced by then: with what last went wrong.
    pub async fn wait_for_sync_within(&self, limit: Duration) -> Result<(), NotSynced> {
        match tokio::time::timeout(limit, self.wait_for_sync()).await {
            Ok(result) => result,
            Err(_) => Err(self.core().not_synced()),
        }
    }

    /// Reads the copy.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(Arc::clone(&self.keeper))
    }

    /// The copy as it is now, frozen.
    pub fn snapshot(&self) -> Snapshot<K> {
        self.core().indexer.snapshot()
    }

    /// Waits until a snapshot satisfies a condition, and gives it. For ever, if none does, whether the informer runs or not:
    /// bound it with `tokio::time::timeout`. The same goes for `wait_for_key` and `wait_for_version`.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn wait_for(&self, condition: impl FnMut(&Snapshot<K>) -> bool) -> Snapshot<K> {
        self.core().indexer.wait_for(condition).await
    }

    /// Waits until there is an object with this key, and gives it.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn wait_for_key(&self, key: &ObjectKey) -> Object<K> {
        let snapshot = self.wait_for(|snapshot| snapshot.contains(key)).await;
        snapshot.get(key).expect("what was waited for")
    }

    /// Waits until the copy is at a version or newer: to read what one has written.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn wait_for_version(&self, scope: &Scope, version: &ResourceVersion) -> Snapshot<K> {
        self.core().indexer.wait_for_version(scope, version).await
    }

    /// Adds an index by label, owner, field path or any function.
    ///
    /// # Errors
    /// If there is an index of this name, or if it reads bytes that the cache does not keep.
    pub fn add_index_by(&self, name: &str, by: IndexBy) -> Result<(), IndexError> {
        if by.needs_bytes && self.core().options.keeps_values() {
            return Err(IndexError::NoBytes(name.to_owned()));
        }
        self.core().indexer.add_index(name, by)
    }

    /// Removes an index, and frees its values. Takes time in proportion to the number of objects, and holds up nobody else.
    ///
    /// # Errors
    /// If there is no index of this name.
    pub fn remove_index(&self, name: &str) -> Result<(), IndexError> {
        self.core().indexer.remove_index(name)
    }

    /// The namespaces that are watched; empty for all.
    pub fn namespaces(&self) -> Vec<String> {
        self.core().scopes().iter().filter_map(|scope| scope.as_namespace().map(str::to_owned)).collect()
    }

    /// Watches these namespaces from now on; an empty name means all namespaces. What is in namespaces no longer watched
    /// leaves the copy, and handlers receive deletes with final state unknown. A change to or from all namespaces removes
    /// everything and lists again.
    ///
    /// # Cancel safety
    /// Dropped, the change is completed all the same.
    ///
    /// # Errors
    /// Unless the informer was made with [`InformerOptions::changing_namespaces`].
    pub async fn set_namespaces<S: AsRef<str>>(
        &self,
        namespaces: impl IntoIterator<Item = S>,
    ) -> Result<(), FixedNamespaces> {
        let scopes = namespaces.into_iter().map(|namespace| Scope::namespace(namespace.as_ref())).collect();
        self.keeper.set_scopes(scopes).await
    }

    /// The same copy, read as another type: a smaller one, a dynamic object, metadata.
    pub fn read_as<T: View>(&self) -> SharedInformer<T> {
        SharedInformer::new(Arc::clone(&self.keeper))
    }

    /// How things stand with the server, for each scope.
    pub fn status(&self) -> Vec<ReflectorStatus> {
        self.core().statuses()
    }

    /// The scopes whose first list is not in the store yet.
    pub(crate) fn unread(&self) -> Vec<ReflectorStatus> {
        self.core().unread()
    }

    /// Waits until a scope is added or removed, or its first list is in the store.
    pub(crate) fn parts_changed(&self) -> impl Future<Output = ()> + Send + 'static {
        self.core().scopes_changed()
    }

    /// Whether the first list since the start of every scope is in the store.
    pub(crate) fn is_current(&self) -> bool {
        self.core().is_current()
    }

    /// Adds a trigger of a controller, which gets what is owed as it is.
    pub(crate) fn add_trigger(
        &self,
        name: String,
        buffer_len: usize,
        hops: Hops,
        take: impl FnMut(Owed) + Send + 'static,
    ) -> Registration {
        Registration::with_trigger(&self.keeper, name, buffer_len, hops, take)
    }

    /// Somebody uses it, who can or cannot do without the kind.
    pub(crate) fn need(&self, optional: bool) -> Need {
        Need::new(Arc::clone(self.core()), optional)
    }

    /// Waits until it does not run.
    pub(crate) async fn stopped(&self) {
        self.keeper.stopped().await;
    }

    /// Tells whether the copy can be relied on now: it has synced, and is not stale for longer than `limit`.
    ///
    /// Meant for a readiness probe. While watches fail and lists work, the copy is as stale as the last list, which may be 45
    /// seconds old; a limit of two minutes tells an outage from that. A kind that a controller declared
    /// [optional](crate::controller::WatchOptions::optional), and that the server does not have, is healthy. It says nothing about
    /// reconciles that fail.
    ///
    /// # Errors
    /// For each scope, why not, and since when.
    pub fn health(&self, limit: Duration) -> Result<(), Unhealthy> {
        if self.core().is_absent() {
            return Ok(());
        }
        let stale = self.status().into_iter().filter_map(|status| status.stale_for(limit));
        let panicked = self.core().panicked().map(|panic| format!("a change of the store panicked: {panic}"));
        let why: Vec<String> = stale.chain(panicked).collect();
        if why.is_empty() {
            return Ok(());
        }
        Err(Unhealthy { kind: self.kind().to_string(), why: why.join("; ") })
    }

    /// Ends the wait before the next attempt to list or watch, if one is under way: for a program that knows that the server is
    /// back.
    pub fn retry_now(&self) {
        self.core().retry_now();
    }

    /// Numbers about every stage.
    pub fn stats(&self) -> InformerStats {
        self.keeper.stats()
    }

    fn core(&self) -> &Arc<Core> {
        self.keeper.core()
    }
}

/// The namespaces of this informer were fixed when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the namespaces of this informer are fixed, for it may be shared; make it with changing_namespaces()"
)]
pub struct FixedNamespaces;

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.keeper))
    }
}

impl<K> std::fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedInformer")
            .field("kind", self.kind())
            .field("snapshot", &self.snapshot())
            .finish()
    }
}
