//! Everything the queue knows of each key, found by key or by slot.
//!
//! One table instead of a set of dirty and a set of processing keys: adding a key costs one look-up, handing it out
//! none, and finishing it one that compares numbers instead of keys.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::reason::Reasons;

/// The keys in the queue. An entry keeps its slot, a small number, for as long as it lives.
#[derive(Debug)]
pub(super) struct Entries<T> {
    slots: Vec<Option<Entry<T>>>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
}

/// What is known of one key. Times are in nanoseconds since the queue was made.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) key: T,
    hash: u64,
    pub(super) phase: Phase,
    /// The highest priority asked for since the key was last handed out.
    pub(super) priority: i8,
    /// When the key became ready, or dirty.
    pub(super) ready_at: u64,
    /// When the key was handed out, if it is in work.
    pub(super) started_at: u64,
    /// Why the key was added since it was last handed out.
    pub(super) reasons: Option<Box<Reasons>>,
    /// Present while the key fails.
    pub(super) failing: Option<Box<Failing>>,
}

/// Where a key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Has a deadline and waits for it.
    Waiting,
    /// Stands in line.
    Ready,
    /// Is being worked on; may have a deadline as well.
    Running,
    /// Is being worked on and has to run again.
    Dirty,
}

/// How often a key has failed, and when it may be tried again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Failing {
    pub(super) times: u32,
    pub(super) retry_at: u64,
}

/// Below this many slots, memory is kept when the queue runs empty; above it, given back.
const KEPT_SLOTS: usize = 4096;

impl<T: Eq + Hash> Entries<T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_key: HashTable::new() }
    }

    /// The slot of a key, if the queue has it.
    pub(super) fn find(&self, hash: u64, key: &T) -> Option<u32> {
        self.by_key.find(hash, |&slot| self.get(slot).hash == hash && self.get(slot).key == *key).copied()
    }

    /// Takes in a key that is not there yet.
    pub(super) fn insert(&mut self, hash: u64, key: T, priority: i8) -> u32 {
        let entry = Entry {
            key,
            hash,
            phase: Phase::Waiting,
            priority,
            ready_at: 0,
            started_at: 0,
            reasons: None,
            failing: None,
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(entry);
            slot
        } else {
            let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 keys");
            self.slots.push(Some(entry));
            slot
        };
        let slots = &self.slots;
        self.by_key.insert_unique(hash, slot, |&slot| entry_at(slots, slot).hash);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Entry<T> {
        let entry = self.slots[slot as usize].take().expect(LIVES);
        if let Ok(found) = self.by_key.find_entry(entry.hash, |&other| other == slot) {
            found.remove();
        }
        self.free.push(slot);
        entry
    }

    pub(super) fn get(&self, slot: u32) -> &Entry<T> {
        entry_at(&self.slots, slot)
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Entry<T> {
        self.slots[slot as usize].as_mut().expect(LIVES)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether there is room for so many keys that it should be given back once they are gone.
    pub(super) fn is_large(&self) -> bool {
        self.slots.len() > KEPT_SLOTS
    }
}

/// Hashes keys with a seed of this process, so that nobody can choose names that collide.
#[derive(Debug, Default, Clone)]
pub(super) struct Hasher(DefaultHashBuilder);

impl Hasher {
    pub(super) fn hash<T: Hash>(&self, key: &T) -> u64 {
        self.0.hash_one(key)
    }
}

const LIVES: &str = "a slot is used only while its entry lives";

fn entry_at<T>(slots: &[Option<Entry<T>>], slot: u32) -> &Entry<T> {
    slots[slot as usize].as_ref().expect(LIVES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_entry_fits_into_a_cache_line() {
        assert!(size_of::<Option<Entry<Arc<str>>>>() <= 64);
    }

    #[test]
    fn keys_with_equal_hashes_stay_apart() {
        let mut entries = Entries::new();
        let (a, b) = (entries.insert(5, "a", 0), entries.insert(5, "b", 0));
        assert_eq!(
            (entries.find(5, &"a"), entries.find(5, &"b"), entries.find(5, &"c")),
            (Some(a), Some(b), None)
        );
        assert_eq!(entries.remove(a).key, "a");
        assert_eq!((entries.find(5, &"a"), entries.find(5, &"b")), (None, Some(b)));
    }
}
