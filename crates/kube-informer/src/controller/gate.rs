//! Pauses the queue, for the user and for the controller itself.

use std::sync::{Mutex, PoisonError};

use crate::ObjectKey;
use crate::planted::{Bug, planted};
use crate::workqueue::WorkQueue;

/// The queue hands out keys unless one of the two wants a pause.
#[derive(Debug)]
pub(super) struct Gate {
    queue: WorkQueue<ObjectKey>,
    wanted: Mutex<Wanted>,
}

#[derive(Debug, Default)]
struct Wanted {
    by_user: bool,
    by_controller: bool,
}

impl Gate {
    pub(super) fn new(queue: WorkQueue<ObjectKey>) -> Self {
        Self { queue, wanted: Mutex::default() }
    }

    /// Pauses or resumes as the user asks.
    pub(super) fn pause(&self, pause: bool) {
        self.change(|wanted| {
            wanted.by_user = pause;
            wanted.by_controller &= pause || !planted(Bug::HoldOverruled);
        });
    }

    /// Pauses or resumes because a source has or has not a part that was not read yet.
    pub(super) fn hold(&self, hold: bool) {
        self.change(|wanted| wanted.by_controller = hold);
    }

    fn change(&self, change: impl FnOnce(&mut Wanted)) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut wanted);
        // Under the lock, so that the last change decides.
        if wanted.by_user || wanted.by_controller { self.queue.pause() } else { self.queue.resume() }
    }
}
