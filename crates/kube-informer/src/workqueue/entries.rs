//! Everything the queue knows of each key, found by key or by slot.
//!
//! One table instead of a set of dirty and a set of processing keys: adding a key costs one look-up, handing it out
//! none, and finishing it one that compares numbers instead of keys.

use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};

use hashbrown::hash_table::Entry as Spot;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::failing::Failing;
use super::reason::Reasons;
use crate::intake::panic_text;

/// The keys in the queue. An entry keeps its slot, a small number, for as long as it lives.
#[derive(Debug)]
pub(super) struct Entries<T> {
    slots: Vec<Option<Entry<T>>>,
    free: Vec<u32>,
    by_key: HashTable<Place>,
}

/// Where a key is. The hash stands beside the slot, so that neither growing nor passing by a place reads an entry.
#[derive(Debug, Clone, Copy)]
struct Place {
    hash: KeyHash,
    slot: u32,
}

/// What the table knows a key by: half of its hash, which is enough to tell any number of keys apart that fit in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyHash(u32);

impl KeyHash {
    /// The table looks at the lowest bits and at the highest.
    fn spread(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

/// What is known of one key. Times are in nanoseconds since the queue was made.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) key: T,
    hash: KeyHash,
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

/// Below this many slots, memory is kept when the queue runs empty; above it, given back.
const KEPT_SLOTS: usize = 4096;

impl<T: Eq + Hash> Entries<T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_key: HashTable::new() }
    }

    /// The slot of a key, if the queue has it.
    pub(super) fn find(&self, hash: KeyHash, key: &T) -> Option<u32> {
        let same = |place: &Place| place.hash == hash && self.get(place.slot).key == *key;
        self.by_key.find(hash.spread(), same).map(|place| place.slot)
    }

    /// The slot of a key, which is taken in if it is not there yet; otherwise it is handed back, because code of the key
    /// does not run here where that can be avoided.
    pub(super) fn find_or_insert(&mut self, hash: KeyHash, key: T) -> (u32, Option<T>) {
        let same = |place: &Place| place.hash == hash && entry_at(&self.slots, place.slot).key == key;
        let vacant = match self.by_key.entry(hash.spread(), same, |place| place.hash.spread()) {
            Spot::Occupied(known) => return (known.get().slot, Some(key)),
            Spot::Vacant(vacant) => vacant,
        };
        let entry = Entry {
            key,
            hash,
            phase: Phase::Waiting,
            priority: i8::MIN,
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
        vacant.insert(Place { hash, slot });
        (slot, None)
    }

    pub(super) fn remove(&mut self, slot: u32) {
        let hash = self.get(slot).hash;
        if let Ok(found) = self.by_key.find_entry(hash.spread(), |place| place.slot == slot) {
            found.remove();
        }
        self.free.push(slot);
        // Dropped where it stands: to move it out first would take longer than all the rest. A key whose drop panics must
        // not keep the queue from what it has to do after this.
        let place = &mut self.slots[slot as usize];
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| *place = None)) {
            let panic = panic_text(panic);
            tracing::error!(panic, "the drop of a key panicked");
        }
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
    pub(super) fn hash<T: Hash>(&self, key: &T) -> KeyHash {
        KeyHash(self.0.hash_one(key) as u32)
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
        let (a, b) = (entries.find_or_insert(KeyHash(5), "a").0, entries.find_or_insert(KeyHash(5), "b").0);
        assert_eq!(
            (entries.find(KeyHash(5), &"a"), entries.find(KeyHash(5), &"b"), entries.find(KeyHash(5), &"c")),
            (Some(a), Some(b), None)
        );
        entries.remove(a);
        assert_eq!((entries.find(KeyHash(5), &"a"), entries.find(KeyHash(5), &"b")), (None, Some(b)));
    }
}
