//! One packer for all reflectors of a cache, so that none of them waits for another's list.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Entry;
use super::packed::Packer;

/// The packer of a cache.
pub(crate) struct Packing {
    packer: Mutex<Packer>,
    /// What was last known of its dictionaries.
    dictionaries: Mutex<(usize, usize)>,
}

impl Packing {
    /// `eager` packs even what does not pay, for simulations.
    pub(crate) fn new(eager: bool) -> Self {
        Self { packer: Mutex::new(Packer::new(eager)), dictionaries: Mutex::default() }
    }

    /// A list begins.
    pub(crate) fn begin_list(&self) {
        lock(&self.packer).begin_list();
    }

    /// Packs what came together, in a list. Takes milliseconds.
    pub(crate) fn pack_batch(&self, batch: &mut [Arc<Entry>]) {
        lock(&self.packer).pack_batch(batch);
    }

    /// Packs what came by itself, in a watch; says whether it is time for a [`review`](Self::review). While the packer is
    /// busy with one, or with a list, changes stay as they are and do not wait.
    pub(crate) fn pack_one(&self, entry: &mut Arc<Entry>) -> bool {
        self.packer.try_lock().is_ok_and(|mut packer| packer.pack_one(entry))
    }

    /// Packs the last state of an object, unless the packer is busy.
    pub(crate) fn pack_last(&self, entry: &mut Arc<Entry>) {
        if let Ok(mut packer) = self.packer.try_lock() {
            packer.pack_last(entry);
        }
    }

    /// Looks whether another dictionary would do better for changes, of so many objects in the store. Takes milliseconds.
    pub(crate) fn review(&self, objects: usize) {
        lock(&self.packer).review(objects);
    }

    /// How many dictionaries are in use, and what they take. While the packer is busy, what it was before.
    pub(crate) fn dictionaries(&self) -> (usize, usize) {
        let mut last = lock(&self.dictionaries);
        if let Ok(packer) = self.packer.try_lock() {
            *last = packer.dictionaries();
        }
        *last
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic leaves behind is at worst a packer without an encoder.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
