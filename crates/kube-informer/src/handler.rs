//! What a user writes to hear of changes: three callbacks, a closure, or a stream.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::event::{Deleted, Event};
use crate::object::Object;

/// Hears of every change of a kind.
///
/// # Ordering
/// The callbacks of one handler run one after the other. For each object they come in order: add, updates, delete. When a
/// callback runs, the store has the change already, or something newer.
///
/// # Slowness
/// A handler has a buffer and a task of its own: it slows nobody but itself. Up to the bound of its buffer it hears every
/// event; past it, events of the same object are merged, so that it hears of the newest state but not of every one between.
///
/// Any closure `FnMut(Event<K>) -> Future` is a handler too; for code that blocks, see [`blocking`].
pub trait EventHandler<K>: Send + 'static {
    /// An object is there. `initial`: it was there before this handler was.
    fn on_add(&mut self, object: Object<K>, initial: bool) -> impl Future<Output = ()> + Send {
        let _ = (object, initial);
        async {}
    }

    /// An object has changed; in a resync, both are the same.
    fn on_update(&mut self, old: Object<K>, new: Object<K>) -> impl Future<Output = ()> + Send {
        let _ = (old, new);
        async {}
    }

    /// An object is gone.
    fn on_delete(&mut self, deleted: Deleted<K>) -> impl Future<Output = ()> + Send {
        let _ = deleted;
        async {}
    }
}

impl<K, F, Fut> EventHandler<K> for F
where
    F: FnMut(Event<K>) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    fn on_add(&mut self, object: Object<K>, initial: bool) -> impl Future<Output = ()> + Send {
        self(Event::Added { object, initial })
    }

    fn on_update(&mut self, old: Object<K>, new: Object<K>) -> impl Future<Output = ()> + Send {
        self(Event::Updated { old, new })
    }

    fn on_delete(&mut self, deleted: Deleted<K>) -> impl Future<Output = ()> + Send {
        self(Event::Deleted(deleted))
    }
}

/// A handler that may block: each call runs on one of tokio's blocking threads, and the next waits for it.
pub fn blocking<K, F>(handle: F) -> Blocking<F>
where
    F: FnMut(Event<K>) + Send + 'static,
{
    Blocking(Arc::new(Mutex::new(handle)))
}

/// See [`blocking`].
pub struct Blocking<F>(Arc<Mutex<F>>);

impl<F> Blocking<F> {
    async fn call<K>(&self, event: Event<K>)
    where
        K: Send + Sync + 'static,
        F: FnMut(Event<K>) + Send + 'static,
    {
        let handle = Arc::clone(&self.0);
        let call = tokio::task::spawn_blocking(move || {
            // A call that panicked before this one does not make the closure unusable.
            let mut handle = handle.lock().unwrap_or_else(PoisonError::into_inner);
            handle(event);
        });
        if let Err(error) = call.await
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl<K, F> EventHandler<K> for Blocking<F>
where
    K: Send + Sync + 'static,
    F: FnMut(Event<K>) + Send + 'static,
{
    async fn on_add(&mut self, object: Object<K>, initial: bool) {
        self.call(Event::Added { object, initial }).await;
    }

    async fn on_update(&mut self, old: Object<K>, new: Object<K>) {
        self.call(Event::Updated { old, new }).await;
    }

    async fn on_delete(&mut self, deleted: Deleted<K>) {
        self.call(Event::Deleted(deleted)).await;
    }
}

impl<F> std::fmt::Debug for Blocking<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Blocking")
    }
}

/// Decides which objects a handler hears of.
pub(crate) type Filter<K> = Arc<dyn Fn(&Object<K>) -> bool + Send + Sync>;

/// Whose period of resync counts for a handler.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Resync {
    AsInformer,
    Every(Duration),
    Never,
}

/// How a handler is to be served.
pub struct HandlerOptions<K> {
    pub(crate) name: Option<String>,
    pub(crate) resync: Resync,
    pub(crate) buffer_len: usize,
    pub(crate) filters: Vec<Filter<K>>,
}

impl<K> Default for HandlerOptions<K> {
    fn default() -> Self {
        Self { name: None, resync: Resync::AsInformer, buffer_len: 1024, filters: Vec::new() }
    }
}

impl<K> HandlerOptions<K> {
    /// A name for stats and for the report of a shutdown.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Hears of every object again every so often, from memory. Less than a second is taken as a second.
    ///
    /// Without this, the informer's own period counts.
    pub fn resync_every(mut self, period: Duration) -> Self {
        self.resync = Resync::Every(period.max(Duration::from_secs(1)));
        self
    }

    /// Hears of no object again, whatever the informer's own period is.
    pub fn no_resync(mut self) -> Self {
        self.resync = Resync::Never;
        self
    }

    /// How many events the buffer holds before events of the same object are merged. 1024 by default.
    pub fn buffer_len(mut self, events: usize) -> Self {
        self.buffer_len = events.max(1);
        self
    }

    /// Hears only of objects that pass. An update that enters the choice is an add, one that leaves it a delete.
    ///
    /// Must give the same answer for the same object, whenever it is asked. Called several times, an object must pass
    /// every filter. An object passes a filter that panics for it; the panic is counted and logged.
    pub fn filter(mut self, passes: impl Fn(&Object<K>) -> bool + Send + Sync + 'static) -> Self
    where
        K: 'static,
    {
        self.filters.push(Arc::new(passes));
        self
    }
}

impl<K> std::fmt::Debug for HandlerOptions<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandlerOptions")
            .field("name", &self.name)
            .field("resync", &self.resync)
            .field("buffer_len", &self.buffer_len)
            .finish_non_exhaustive()
    }
}
