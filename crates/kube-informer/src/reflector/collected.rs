//! What a list has brought so far, packed as it comes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::delta_fifo::{Delta, DeltaType};
use crate::intake::{Intake, Taken};
use crate::object::{BATCH_BYTES, Entry};
use crate::store::IndexValues;
use crate::{ObjectKey, SetAside};

/// A list in progress: objects by key, for one may change or go before the end of a streaming list.
pub(super) struct Collected {
    intake: Arc<Intake>,
    objects: BTreeMap<ObjectKey, Delta>,
    set_aside: BTreeMap<ObjectKey, SetAside>,
    nameless: Vec<SetAside>,
    /// Objects that wait to be packed together, and the bytes they take until then.
    waiting: Vec<Arc<Entry>>,
    values: Vec<IndexValues>,
    waiting_bytes: usize,
}

impl Collected {
    pub(super) fn new(intake: &Arc<Intake>) -> Self {
        if let Some(packer) = &intake.packer {
            packer.begin_list();
        }
        Self {
            intake: Arc::clone(intake),
            objects: BTreeMap::new(),
            set_aside: BTreeMap::new(),
            nameless: Vec::new(),
            waiting: Vec::new(),
            values: Vec::new(),
            waiting_bytes: 0,
        }
    }

    pub(super) async fn add(&mut self, taken: Taken) {
        self.set_aside.remove(taken.entry.key());
        self.waiting_bytes += taken.entry.size();
        self.waiting.push(taken.entry);
        self.values.push(taken.values);
        if self.intake.packer.is_none() {
            self.take_over();
        } else if self.waiting_bytes >= BATCH_BYTES {
            self.pack().await;
        }
    }

    pub(super) async fn remove(&mut self, key: &ObjectKey) {
        if self.waiting.iter().any(|entry| entry.key() == key) {
            self.pack().await;
        }
        self.set_aside.remove(key);
        self.objects.remove(key);
    }

    pub(super) async fn set_aside(&mut self, aside: SetAside) {
        match aside.key.clone() {
            Some(key) => {
                self.remove(&key).await;
                self.set_aside.insert(key, aside);
            }
            None => self.nameless.push(aside),
        }
    }

    /// All objects in key order, and what could not be read.
    pub(super) async fn finish(mut self) -> (Vec<Delta>, Vec<SetAside>) {
        self.pack().await;
        self.nameless.extend(self.set_aside.into_values());
        (self.objects.into_values().collect(), self.nameless)
    }

    async fn pack(&mut self) {
        if !self.waiting.is_empty() {
            let (intake, mut batch) = (Arc::clone(&self.intake), std::mem::take(&mut self.waiting));
            self.waiting = off_the_workers(move || {
                if let Some(packer) = &intake.packer {
                    packer.pack_batch(&mut batch);
                }
                batch
            })
            .await;
            self.take_over();
        }
    }

    fn take_over(&mut self) {
        for (object, values) in self.waiting.drain(..).zip(self.values.drain(..)) {
            let delta = Delta { values, ..Delta::new(DeltaType::Replaced, object) };
            self.objects.insert(delta.object.key().clone(), delta);
        }
        self.waiting_bytes = 0;
    }
}

/// Does what takes milliseconds where it holds up nothing else, if there are other threads. Where there is one, as in
/// simulations, it is simply done, so that a run can be repeated.
async fn off_the_workers<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// The same for what nobody waits for.
pub(super) fn beside_the_workers(work: impl FnOnce() + Send + 'static) {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        work();
    } else {
        tokio::task::spawn_blocking(work);
    }
}
