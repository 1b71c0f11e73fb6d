//! One packer for all reflectors of a cache, so that none of them waits for another's list.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Entry;
use super::packed::Packer;

/// Smaller objects are packed about as fast as compared.
const MIN_PATCHED_BYTES: usize = 2 << 10;

/// A patch takes no more than this part of what it makes: the object packed takes little more.
const PATCH_SHARE: usize = 16;

/// The packer of a cache.
pub(crate) struct Packing {
    /// Packs even what does not pay, for simulations.
    eager: bool,
    packer: Mutex<Packer>,
    /// What was last known of its dictionaries.
    dictionaries: Mutex<(usize, usize)>,
}

impl Packing {
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
    /// [`review`](Self::review). While the packer is busy with one, or with a list, changes stay as they are and do not wait.
    pub(crate) fn pack_one(&self, entry: &mut Arc<Entry>, earlier: Option<&Arc<Entry>>) -> bool {
        !self.rests_on(entry, earlier)
            && self.packer.try_lock().is_ok_and(|mut packer| packer.pack_one(entry))
    }

    /// Packs the last state of an object, unless the packer is busy.
    pub(crate) fn pack_last(&self, entry: &mut Arc<Entry>, earlier: Option<&Arc<Entry>>) {
        if !self.rests_on(entry, earlier)
            && let Ok(mut packer) = self.packer.try_lock()
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
        if let Ok(packer) = self.packer.try_lock() {
            *last = packer.dictionaries();
        }
        *last
    }

    /// Keeps what differs from an earlier state, and says whether that is little. Comparing takes a fifth of what packing takes.
    fn rests_on(&self, entry: &mut Arc<Entry>, earlier: Option<&Arc<Entry>>) -> bool {
        let (Some(entry), Some(earlier)) = (Arc::get_mut(entry), earlier) else { return false };
        let size = entry.size();
        let limit = if self.eager { size } else { size / PATCH_SHARE };
        (self.eager || size >= MIN_PATCHED_BYTES) && entry.rest_on(earlier, limit)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic leaves behind is at worst a packer without an encoder.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::{Body, Kind, Object};
    use super::*;

    const EAGER: bool = true;

    /// An object of some kilobytes, most of which is the same at all versions.
    fn object(uid: &str, version: usize) -> Arc<Entry> {
        let text: Vec<_> =
            (0..300).map(|word: u64| format!("{:x}", word.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        let value = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": uid, "resourceVersion": version.to_string()},
            "spec": {"text": text}, "status": {"seen": version * 7},
        });
        let kind = Arc::new(Kind::new("v1", "Pod", "pods", true));
        Arc::new(Entry::from_json(&kind, value.to_string().as_bytes()).unwrap())
    }

    fn listed(packing: &Packing) -> Arc<Entry> {
        let mut list = [object("a", 1)];
        packing.pack_batch(&mut list);
        assert!(matches!(list[0].body(), Body::Packed { .. }));
        let [listed] = list;
        listed
    }

    fn base(entry: &Entry) -> Option<&Arc<Entry>> {
        if let Body::Patched { base, .. } = entry.body() { Some(base) } else { None }
    }

    #[test]
    fn a_change_is_kept_as_what_differs() {
        // Eager, so that one object makes a dictionary; the others judge as always.
        let (listed, packing) = (listed(&Packing::new(EAGER)), Packing::new(false));
        let mut earlier = Arc::clone(&listed);
        for version in 2..5 {
            let whole = object("a", version);
            let mut change = object("a", version);
            assert!(!packing.pack_one(&mut change, Some(&earlier)));
            assert!(change.size() - listed.size() < 60, "{} more than {}", change.size(), listed.size());
            assert!(base(&change).is_some_and(|base| Arc::ptr_eq(base, &listed)), "no patch of a patch");
            assert_eq!(change.bytes(), whole.bytes());
            assert!(change.is_same_content(&whole) && !change.is_same_content(&earlier));
            let read = Object::<Value>::new(Arc::clone(&change));
            assert_eq!(read.get().unwrap()["status"]["seen"], version * 7);
            earlier = change;
        }
        let mut last = object("a", 5);
        packing.pack_last(&mut last, Some(&earlier));
        assert!(base(&last).is_some());
    }

    #[test]
    fn what_differs_much_or_from_nothing_packed_is_kept_by_itself() {
        let (listed, packing) = (listed(&Packing::new(EAGER)), Packing::new(false));
        let raw = object("a", 1);
        let kind = Arc::new(Kind::new("v1", "Pod", "pods", true));
        let metadata =
            r#""metadata": {"name": "web", "namespace": "default", "uid": "a", "resourceVersion": "2"}"#;
        let small = Entry::from_json(&kind, format!("{{{metadata}}}").as_bytes()).unwrap();
        let other =
            Entry::from_json(&kind, format!(r#"{{{metadata}, "data": "{}"}}"#, "?".repeat(4000)).as_bytes());
        for (why, mut change, earlier) in [
            ("another object of the name", object("b", 2), Some(&listed)),
            ("small", Arc::new(small), Some(&listed)),
            ("all is different", Arc::new(other.unwrap()), Some(&listed)),
            ("the earlier one is not packed", object("a", 2), Some(&raw)),
            ("there is none", object("a", 2), None),
        ] {
            packing.pack_one(&mut change, earlier);
            assert!(base(&change).is_none(), "{why}");
        }
    }
}
