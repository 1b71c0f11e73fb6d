//! A handler's place in an informer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_core::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};

use super::Keeper;
use crate::event::{Event, Owed};
use crate::handler::{EventHandler, HandlerOptions, Resync};
use crate::interleave::scheduling_point;
use crate::planted::{Bug, planted};
use crate::processor::{Hops, Listener, ListenerConfig, deliver, feed, stream};
use crate::stats::HandlerStats;

/// A handler's place in an informer.
///
/// # Dropping
/// Dropped, it removes the handler: the callback that runs may end, what waits is not delivered. [`close`](Self::close)
/// delivers what waits first; [`detach`](Self::detach) lets the handler go on for as long as the factory does.
#[must_use = "dropping the registration removes the handler; detach() it to let it go on"]
pub struct Registration {
    keeper: Arc<Keeper>,
    listener: Arc<Listener>,
    detached: bool,
}

impl Registration {
    pub(super) fn with_handler<K, H>(keeper: &Arc<Keeper>, options: HandlerOptions<K>, handler: H) -> Self
    where
        K: Send + Sync + 'static,
        H: EventHandler<K>,
    {
        let HandlerOptions { name, resync, buffer_len, filters } = options;
        let name = name.unwrap_or_else(|| short_name(std::any::type_name::<H>()));
        let registration = Self::add(keeper, name, resync, buffer_len, Hops::Skip);
        registration.serve(|listener| deliver(listener, handler, filters));
        registration
    }

    /// A place for a trigger of a controller, which gets what is owed as it is.
    pub(super) fn with_trigger(
        keeper: &Arc<Keeper>,
        name: String,
        buffer_len: usize,
        hops: Hops,
        take: impl FnMut(Owed) + Send + 'static,
    ) -> Self {
        let registration = Self::add(keeper, name, Resync::AsInformer, buffer_len, hops);
        registration.serve(|listener| feed(listener, take));
        registration
    }

    /// Runs the task that delivers.
    fn serve<Fut: Future<Output = ()> + Send + 'static>(&self, work: impl FnOnce(Arc<Listener>) -> Fut) {
        let (listener, ending) = (Arc::clone(&self.listener), Arc::clone(&self.listener));
        let finish = Finish(Arc::clone(&self.listener));
        let work = work(listener);
        let work = async move {
            work.await;
            drop(finish);
        };
        self.keeper.spawn_handler(self.listener.name(), move || ending.end(false), work);
    }

    /// Takes a place. From here on nothing is missed: what is in the store now is heard first, then every change.
    fn add(keeper: &Arc<Keeper>, name: String, resync: Resync, buffer_len: usize, hops: Hops) -> Self {
        let core = keeper.core();
        let too_early = planted(Bug::SnapshotBeforeLock).then(|| core.indexer.cell.load_full());
        let mut processor = core.processor();
        let config = ListenerConfig {
            id: processor.next_id(),
            name,
            resync_every: match resync {
                Resync::AsInformer => core.options.resync_every,
                Resync::Every(period) => Some(period),
                Resync::Never => None,
            },
            buffer_len,
            hops,
        };
        let found = too_early.unwrap_or_else(|| core.indexer.cell.load_full());
        scheduling_point();
        let listener = Listener::new(config, Some(found), core.has_synced());
        processor.add(Arc::clone(&listener));
        drop(processor);
        if !planted(Bug::NewHandlerNotNoticed) {
            core.handlers_changed.notify_one();
        }
        Self { keeper: Arc::clone(keeper), listener, detached: false }
    }

    /// Whether the callbacks for everything that was there before this handler have returned.
    pub fn has_synced(&self) -> bool {
        self.listener.has_synced()
    }

    /// Waits until the callbacks for everything that was there before this handler have returned; or until the handler has
    /// ended without, because the factory was shut down. [`has_synced`](Self::has_synced) tells.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn wait_for_sync(&self) {
        let (mut synced, mut finished) = (self.listener.synced(), self.listener.finished());
        tokio::select! {
            biased;
            _ = synced.wait_for(|synced| *synced) => {}
            _ = finished.wait_for(|finished| *finished) => {}
        }
    }

    /// Waits until the handler's task has ended.
    pub(crate) async fn ended(&self) {
        let _ = self.listener.finished().wait_for(|finished| *finished).await;
    }

    /// The handler's name.
    pub fn name(&self) -> &str {
        self.listener.name()
    }

    /// How many events wait for the handler.
    pub fn depth(&self) -> usize {
        self.stats().depth
    }

    /// How long the oldest of them has waited.
    pub fn lag(&self) -> Duration {
        self.stats().lag
    }

    /// All numbers about the handler.
    pub fn stats(&self) -> HandlerStats {
        self.listener.stats()
    }

    /// Removes the handler once it has heard what waits for it.
    ///
    /// # Cancel safety
    /// Dropped, the handler is removed as if the registration had been dropped.
    pub async fn close(self) {
        self.leave();
        self.listener.end(true);
        let mut finished = self.listener.finished();
        let _ = finished.wait_for(|finished| *finished).await;
    }

    /// Lets the handler go on, and keeps its informer, until the factory shuts down or the informer does: see
    /// [`SharedInformer::shutdown_within`](crate::SharedInformer::shutdown_within).
    pub fn detach(mut self) {
        self.detached = true;
        let mut finished = self.listener.finished();
        self.keeper.keep_until(async move {
            let _ = finished.wait_for(|finished| *finished).await;
        });
    }

    fn leave(&self) {
        self.keeper.core().processor().remove(self.listener.id());
        self.keeper.core().handlers_changed.notify_one();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.detached {
            self.leave();
            self.listener.end(false);
        }
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("stats", &self.stats()).finish()
    }
}

/// Says that the task has ended, however it ended.
struct Finish(Arc<Listener>);

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// All events of an informer as a stream, beginning with everything that is there.
///
/// An event counts as heard when the next one is asked for. Dropping the stream ends it, and so does the end of the factory.
#[must_use = "a stream does nothing unless it is polled"]
pub struct EventStream<K> {
    registration: Registration,
    events: BoxStream<'static, Event<K>>,
}

impl<K: Send + Sync + 'static> EventStream<K> {
    pub(super) fn new(keeper: &Arc<Keeper>, options: HandlerOptions<K>) -> Self {
        let HandlerOptions { name, resync, buffer_len, filters } = options;
        let name = name.unwrap_or_else(|| "stream".into());
        let registration = Registration::add(keeper, name, resync, buffer_len, Hops::Skip);
        let events = stream(Arc::clone(&registration.listener), filters);
        let events = events.take_until(keeper.ended().boxed()).boxed();
        Self { registration, events }
    }
}

impl<K> EventStream<K> {
    /// Whether everything that was there before has been heard.
    pub fn has_synced(&self) -> bool {
        self.registration.has_synced()
    }

    /// All numbers about the stream.
    pub fn stats(&self) -> HandlerStats {
        self.registration.stats()
    }
}

impl<K> Stream for EventStream<K> {
    type Item = Event<K>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        self.events.as_mut().poll_next(context)
    }
}

impl<K> std::fmt::Debug for EventStream<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream").field("stats", &self.stats()).finish()
    }
}

/// A type's name without the modules it stands in.
fn short_name(full: &str) -> String {
    let end = full.find('<').unwrap_or(full.len());
    full[..end].rsplit("::").find(|part| *part != "{{closure}}").unwrap_or(full).to_owned()
}

#[cfg(test)]
mod tests {
    use super::short_name;

    #[test]
    fn handlers_are_named_after_their_type() {
        for (full, short) in [
            ("my_app::handlers::Pods", "Pods"),
            ("my_app::main::{{closure}}", "main"),
            ("my_app::run::{{closure}}::{{closure}}", "run"),
            ("kube_informer::handler::Blocking<my_app::main::{{closure}}>", "Blocking"),
            ("Plain", "Plain"),
        ] {
            assert_eq!(short_name(full), short);
        }
    }
}
