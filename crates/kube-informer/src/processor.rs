//! The fan-out: every handler with a buffer and a task of its own, so that none holds up another, nor the store.
//!
//! Fed by the [`shared_informer`](crate::shared_informer)'s loop, calls [handlers](crate::handler).

mod buffer;
mod deliver;
mod listener;
mod walk;

use std::sync::Arc;

use crate::store::Applied;

pub(crate) use buffer::Hops;
pub(crate) use deliver::{deliver, feed, stream};
pub use listener::HandlerStats;
pub(crate) use listener::{Listener, ListenerConfig};

/// All handlers of one cache.
#[derive(Default)]
pub(crate) struct Processor {
    listeners: Vec<Arc<Listener>>,
    next_id: u64,
}

impl Processor {
    pub(crate) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn add(&mut self, listener: Arc<Listener>) {
        self.listeners.push(listener);
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.listeners.retain(|listener| listener.id() != id);
    }

    pub(crate) fn listeners(&self) -> &[Arc<Listener>] {
        &self.listeners
    }

    /// Hands a batch to everybody. Nothing here waits, and no user code runs.
    pub(crate) fn distribute(&self, applied: &Applied) {
        for listener in &self.listeners {
            listener.push(applied);
        }
    }

    /// The store has the first list.
    pub(crate) fn first_list_complete(&self) {
        for listener in &self.listeners {
            listener.first_list_complete();
        }
    }
}
