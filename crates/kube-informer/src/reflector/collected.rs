//! What a list has brought so far, packed as it comes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::delta_fifo::{Delta, DeltaType};
use crate::intake::{Intake, Taken};
use crate::object::{BATCH_BYTES, Entry};
use crate::store::IndexValues;
use crate::{ObjectKey, SetAside};

/// A list in progress: objects by key, for one may change or go before the end of a streaming list.
pub(super) struct Collected<'a> {
    intake: &'a Intake,
    objects: BTreeMap<ObjectKey, Delta>,
    set_aside: BTreeMap<ObjectKey, SetAside>,
    nameless: Vec<SetAside>,
    /// Objects that wait to be packed together, and the bytes they take until then.
    waiting: Vec<Arc<Entry>>,
    values: Vec<IndexValues>,
    waiting_bytes: usize,
}

impl<'a> Collected<'a> {
    pub(super) fn new(intake: &'a Intake) -> Self {
        Self {
            intake,
            objects: BTreeMap::new(),
            set_aside: BTreeMap::new(),
            nameless: Vec::new(),
            waiting: Vec::new(),
            values: Vec::new(),
            waiting_bytes: 0,
        }
    }

    pub(super) fn add(&mut self, taken: Taken) {
        self.set_aside.remove(taken.entry.key());
        self.waiting_bytes += taken.entry.size();
        self.waiting.push(taken.entry);
        self.values.push(taken.values);
        if self.waiting_bytes >= BATCH_BYTES || !self.intake.packs() {
            self.pack();
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.pack();
        self.set_aside.remove(key);
        self.objects.remove(key);
    }

    pub(super) fn set_aside(&mut self, aside: SetAside) {
        match aside.key.clone() {
            Some(key) => {
                self.remove(&key);
                self.set_aside.insert(key, aside);
            }
            None => self.nameless.push(aside),
        }
    }

    /// All objects in key order, and what could not be read.
    pub(super) fn finish(mut self) -> (Vec<Delta>, Vec<SetAside>) {
        self.pack();
        self.nameless.extend(self.set_aside.into_values());
        (self.objects.into_values().collect(), self.nameless)
    }

    fn pack(&mut self) {
        // What is not packed takes no time worth a move to another thread, object by object.
        if self.intake.packs() {
            off_the_workers(|| self.intake.pack_batch(&mut self.waiting));
        }
        for (object, values) in self.waiting.drain(..).zip(self.values.drain(..)) {
            let delta = Delta { values, ..Delta::new(DeltaType::Replaced, object) };
            self.objects.insert(delta.object.key().clone(), delta);
        }
        self.waiting_bytes = 0;
    }
}

/// Does what takes milliseconds without holding up what else runs on this thread, where there are other threads. Where there
/// is one, as in simulations, it is simply done.
fn off_the_workers<R>(work: impl FnOnce() -> R) -> R {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
