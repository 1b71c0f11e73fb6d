//! Turns what a handler is owed into calls, or into a stream.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_core::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};

use super::Listener;
use crate::event::{Deleted, Event, Owed};
use crate::handler::{EventHandler, Filter};
use crate::intake::panic_text;
use crate::object::Object;
use crate::planted::{Bug, planted};

/// Calls a handler until its listener ends.
pub(crate) async fn deliver<K, H>(listener: Arc<Listener>, mut handler: H, filters: Vec<Filter<K>>)
where
    K: Send + Sync + 'static,
    H: EventHandler<K>,
{
    while let Some(owed) = listener.next().await {
        let initial = owed.initial;
        let mut panicked = false;
        for (number, event) in events(&listener, owed, &filters).into_iter().flatten().enumerate() {
            // The handler may have been removed while its first callback ran.
            if number > 0 && listener.is_over() && !planted(Bug::CalledAfterRemoval) {
                break;
            }
            let call = async {
                match event {
                    Event::Added { object, initial } => handler.on_add(object, initial).await,
                    Event::Updated { old, new } => handler.on_update(old, new).await,
                    Event::Deleted(deleted) => handler.on_delete(deleted).await,
                }
            };
            if let Err(panic) = AssertUnwindSafe(call).catch_unwind().await {
                report(&listener, "handler", panic);
                panicked = true;
            }
        }
        if panicked && planted(Bug::PanicNeverSyncs) {
            continue;
        }
        listener.heard(initial);
        // A handler that never waits must not starve what else runs on this thread.
        tokio::task::consume_budget().await;
    }
}

/// Gives a function what is owed as it is, until the listener ends.
pub(crate) async fn feed(listener: Arc<Listener>, mut take: impl FnMut(Owed) + Send + 'static) {
    while let Some(owed) = listener.next().await {
        let initial = owed.initial;
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| take(owed))) {
            report(&listener, "trigger", panic);
        }
        listener.heard(initial);
        tokio::task::consume_budget().await;
    }
}

/// The same as a stream. An event counts as heard when the next one is asked for.
pub(crate) fn stream<K>(listener: Arc<Listener>, filters: Vec<Filter<K>>) -> BoxStream<'static, Event<K>>
where
    K: Send + Sync + 'static,
{
    struct Reader<K> {
        listener: Arc<Listener>,
        filters: Vec<Filter<K>>,
        ready: VecDeque<Event<K>>,
        /// Whether something was taken that has not been reported as heard, and whether it was initial.
        taken: Option<bool>,
    }
    let reader = Reader { listener, filters, ready: VecDeque::new(), taken: None };
    futures_util::stream::unfold(reader, |mut reader| async move {
        loop {
            if let Some(event) = reader.ready.pop_front() {
                return Some((event, reader));
            }
            if let Some(initial) = reader.taken.take() {
                reader.listener.heard(initial);
            }
            let owed = reader.listener.next().await?;
            reader.taken = Some(owed.initial);
            if let Some(initial) = reader.taken.take_if(|_| planted(Bug::StreamHeardTooEarly)) {
                reader.listener.heard(initial);
            }
            reader.ready.extend(events(&reader.listener, owed, &reader.filters).into_iter().flatten());
            // Many objects may not pass the filters, and others on this thread need their turns.
            tokio::task::consume_budget().await;
        }
    })
    .boxed()
}

/// The events that tell what is owed, at most a delete and an add. An object passes a filter that panics:
/// an object too many does less harm than one that seems to be deleted.
fn events<K>(listener: &Listener, owed: Owed, filters: &[Filter<K>]) -> [Option<Event<K>>; 2] {
    let Owed { told, died, now, initial, .. } = owed;
    let passes = |object: &Object<K>| {
        filters.iter().all(|filter| {
            std::panic::catch_unwind(AssertUnwindSafe(|| filter(object))).unwrap_or_else(|panic| {
                report(listener, "filter", panic);
                !planted(Bug::FilterPanicHides)
            })
        })
    };
    // What the handler was not told of because it did not pass, it need not hear the end of.
    let told = told.map(Object::new).filter(passes);
    let now = now.map(Object::new).filter(passes);
    match (told, died, now) {
        (Some(old), Some((last, final_state_unknown)), now) => [
            Some(Event::Deleted(Deleted { old, object: Object::new(last), final_state_unknown })),
            now.map(|object| Event::Added { object, initial: false }),
        ],
        (Some(old), None, Some(new)) => [Some(Event::Updated { old, new }), None],
        (Some(_), None, None) if planted(Bug::FilterLeavesNoDelete) => [None, None],
        (Some(old), None, None) => {
            let object = old.clone();
            [Some(Event::Deleted(Deleted { old, object, final_state_unknown: false })), None]
        }
        (None, _, Some(object)) => [Some(Event::Added { object, initial }), None],
        (None, _, None) => [None, None],
    }
}

fn report(listener: &Listener, what: &str, panic: Box<dyn std::any::Any + Send>) {
    listener.panicked();
    // Not within the macro: nothing in there is evaluated unless somebody listens, and the payload has to go safely.
    let panic = panic_text(panic);
    tracing::error!(handler = listener.name(), panic, "a {what} panicked");
}
