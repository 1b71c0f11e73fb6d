//! One packer for all reflectors of a cache. Lists wait for each other, changes for nobody.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::Entry;
use super::packer::Packer;

/// Smaller objects are packed about as fast as compared.
const MIN_PATCHED_BYTES: usize = 2 << 10;

/// The packer of a cache.
pub(crate) struct SharedPacker {
    /// Packs even what does not pay, for simulations.
    eager: bool,
    packer: Mutex<Packer>,
    /// What was last known of its dictionaries.
    dictionaries: Mutex<(usize, usize)>,
}

impl SharedPacker {
    pub(crate) fn new(eager: bool) -> Self {
        Self { eager, packer: Mutex::new(Packer::new(eager)), dictionaries: Mutex::default() }
    }

    /// A list begins.
    pub(crate) fn begin_list(&self) {
        lock(&self.packer).begin_list();
    }

    /// Packs what came together, in a list. Takes milliseconds.
    pub(crate) fn pack_batch(&self, batch: &mut [Arc<Entry>]) {
        lock(&self.packer).pack_batch(batch);
    }

    /// Packs what came by itself, in a watch, after the state in the store; says whether it is time for a
    /// [`review`](Self::review). While the packer is busy with one, or with a list, what is no small change stays as it is.
    pub(crate) fn pack_one(&self, entry: &mut Arc<Entry>, earlier: Option<&Arc<Entry>>) -> bool {
        !self.keep_difference(entry, earlier)
            && try_lock(&self.packer).is_some_and(|mut packer| packer.pack_one(entry))
    }

    /// Packs the last state of an object, unless the packer is busy.
    pub(crate) fn pack_last(&self, entry: &mut Arc<Entry>, earlier: Option<&Arc<Entry>>) {
        if !self.keep_difference(entry, earlier)
            && let Some(mut packer) = try_lock(&self.packer)
        {
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
        if let Some(packer) = try_lock(&self.packer) {
            *last = packer.dictionaries();
        }
        *last
    }

    /// Keeps what differs from an earlier state, if that is little, and says whether it is. To unpack that state and to compare
    /// takes less time than packing.
    fn keep_difference(&self, entry: &mut Arc<Entry>, earlier: Option<&Arc<Entry>>) -> bool {
        let (Some(entry), Some(earlier)) = (Arc::get_mut(entry), earlier) else { return false };
        (self.eager || entry.size() >= MIN_PATCHED_BYTES) && entry.become_patch_of(earlier)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic leaves behind is at worst a packer without an encoder.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::{Body, Kind, Object};
    use super::*;

    /// An object of so many words of 16 characters, most of which is the same at all versions.
    fn object(words: u64, version: usize, typed: bool) -> Arc<Entry> {
        let text: Vec<_> =
            (0..words).map(|word| format!("{:016x}", word.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        let mut value = json!({
            "metadata": {"name": "web", "namespace": "default", "resourceVersion": version.to_string()},
            "spec": {"text": text}, "status": {"seen": version * 7},
        });
        if typed {
            (value["apiVersion"], value["kind"]) = ("v1".into(), "Pod".into());
        }
        let kind = Arc::new(Kind::new("v1", "Pod", "pods", true));
        Arc::new(Entry::from_json(&kind, value.to_string().as_bytes()).unwrap())
    }

    /// As they came in a list: packed, and without their kind.
    fn listed(words: u64, count: usize) -> Vec<Arc<Entry>> {
        // Eager, so that a few objects make a dictionary.
        let mut list: Vec<_> = (0..count).map(|_| object(words, 1, false)).collect();
        SharedPacker::new(true).pack_batch(&mut list);
        assert!(list.iter().all(|entry| matches!(entry.body(), Body::Packed { .. })));
        list
    }

    fn base(entry: &Entry) -> Option<&Arc<Entry>> {
        if let Body::Patched { base, .. } = entry.body() { Some(base) } else { None }
    }

    #[test]
    fn a_change_is_kept_as_what_differs() {
        let (list, packer) = (listed(300, 40), SharedPacker::new(false));
        let listed = &list[7];
        let mut earlier = Arc::clone(listed);
        for version in 2..5 {
            let whole = object(300, version, true);
            let mut change = object(300, version, true);
            assert!(!packer.pack_one(&mut change, Some(&earlier)));
            assert!(change.size() - listed.size() < 60, "{} more than {}", change.size(), listed.size());
            assert!(base(&change).is_some_and(|base| Arc::ptr_eq(base, listed)), "no patch of a patch");
            assert_eq!(change.bytes(), whole.bytes());
            assert!(change.is_same_content(&whole) && !change.is_same_content(&earlier));
            let read = Object::<Value>::new(Arc::clone(&change));
            assert_eq!(read.get().unwrap()["status"]["seen"], version * 7);
            assert_eq!(read.get().unwrap()["kind"], "Pod");
            earlier = change;
        }
        let mut last = object(300, 5, true);
        packer.pack_last(&mut last, Some(&earlier));
        assert!(base(&last).is_some());
    }

    #[test]
    fn what_differs_much_or_from_nothing_packed_is_kept_by_itself() {
        let packer = SharedPacker::new(false);
        let (small, large) = (listed(90, 40), listed(300, 40));
        let raw = object(300, 1, false);
        for (why, mut change, earlier) in [
            ("small", object(90, 2, true), Some(&small[7])),
            ("half of it is new", object(600, 2, true), Some(&large[7])),
            ("the earlier one is not packed", object(300, 2, true), Some(&raw)),
            ("there is none", object(300, 2, true), None),
        ] {
            packer.pack_one(&mut change, earlier);
            assert!(base(&change).is_none(), "{why}");
        }
    }

    #[test]
    fn a_change_does_not_keep_a_dictionary_that_hardly_anybody_needs() {
        let mut list = listed(300, 40);
        for (left, patched) in [(40, true), (1, false)] {
            list.truncate(left);
            let mut change = object(300, 2, true);
            SharedPacker::new(false).pack_one(&mut change, list.first());
            assert_eq!(base(&change).is_some(), patched, "{left} left");
        }
    }

    #[test]
    fn a_panic_while_packing_is_forgotten() {
        let packer = SharedPacker::new(true);
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = packer.packer.lock();
            panic!("on purpose");
        }));
        assert!(panic.is_err());
        packer.pack_batch(&mut [object(300, 1, false)]);
        let mut change = object(300, 2, true);
        packer.pack_one(&mut change, None);
        assert!(matches!(change.body(), Body::Packed { .. }));
        assert_eq!(packer.dictionaries().0, 1);
    }
}
