//! Keys that wait for a moment: a min-heap of deadlines in which a key stands once.
//!
//! Knows slots (see [`entries`](super::entries)) and nanoseconds, neither keys nor clocks.

use crate::planted::{Bug, planted};

/// A binary heap of (deadline, order of arrival, slot), and for each slot its place in the heap.
///
/// The place makes moving and removing a slot O(log n), so nothing stale is ever left behind: the heap is as large as
/// the number of waiting keys, however often each is added.
#[derive(Debug, Default)]
pub(super) struct Delays {
    heap: Vec<Delay>,
    /// Place in `heap` by slot; `NOWHERE` where the slot does not wait.
    places: Vec<u32>,
    arrivals: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Delay {
    deadline: u64,
    arrival: u64,
    slot: u32,
}

const NOWHERE: u32 = u32::MAX;

impl Delays {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The earliest deadline.
    #[inline]
    pub(super) fn earliest(&self) -> Option<u64> {
        self.heap.first().map(|delay| delay.deadline)
    }

    #[inline]
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.places.get(slot as usize).is_some_and(|&place| place != NOWHERE)
    }

    /// Lets a slot wait until `deadline`, or until its earlier deadline if it has one.
    pub(super) fn insert(&mut self, slot: u32, deadline: u64) {
        let index = slot as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, NOWHERE);
        }
        let place = self.places[index] as usize;
        if place != NOWHERE as usize {
            if deadline < self.heap[place].deadline {
                self.heap[place].deadline = deadline;
                self.sift_up(place);
            }
            return;
        }
        self.arrivals += 1;
        self.places[index] = self.heap.len() as u32;
        self.heap.push(Delay { deadline, arrival: self.arrivals, slot });
        self.sift_up(self.heap.len() - 1);
    }

    /// Stops waiting for a slot; says whether it waited.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) -> bool {
        if !self.contains(slot) {
            return false;
        }
        self.remove_at(self.places[slot as usize] as usize);
        true
    }

    /// Takes the earliest slot out if its deadline has come.
    #[inline]
    pub(super) fn pop_due(&mut self, now: u64) -> Option<(u32, u64)> {
        let first = *self.heap.first()?;
        if first.deadline > now {
            return None;
        }
        self.remove_at(0);
        Some((first.slot, first.deadline))
    }

    /// Stops waiting for everything, and names what waited.
    pub(super) fn clear(&mut self) -> Vec<u32> {
        self.places = Vec::new();
        std::mem::take(&mut self.heap).into_iter().map(|delay| delay.slot).collect()
    }

    fn remove_at(&mut self, place: usize) {
        let last = self.heap.len() - 1;
        self.swap(place, last);
        let removed = self.heap.pop().expect("a place lies in the heap");
        self.places[removed.slot as usize] = NOWHERE;
        if place < last {
            // What came from the end may belong above or below this place.
            self.sift_down(place);
            if !planted(Bug::HeapOnlySiftsDown) {
                self.sift_up(place);
            }
        }
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent] <= self.heap[place] {
                break;
            }
            self.swap(place, parent);
            place = parent;
        }
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let Some(mut child) = (left < self.heap.len()).then_some(left) else { break };
            if left + 1 < self.heap.len() && self.heap[left + 1] < self.heap[left] {
                child = left + 1;
            }
            if self.heap[place] <= self.heap[child] {
                break;
            }
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.places[self.heap[a].slot as usize] = a as u32;
        self.places[self.heap[b].slot as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_earlier_of_two_deadlines_wins() {
        let mut delays = Delays::default();
        delays.insert(7, 50);
        delays.insert(7, 80);
        assert_eq!(delays.earliest(), Some(50));
        delays.insert(7, 30);
        assert_eq!((delays.earliest(), delays.len()), (Some(30), 1));
        assert_eq!(delays.pop_due(29), None);
        assert_eq!(delays.pop_due(30), Some((7, 30)));
        assert!(!delays.contains(7) && !delays.remove(7));
    }

    #[test]
    fn equal_deadlines_come_out_as_they_went_in() {
        let mut delays = Delays::default();
        for slot in [3, 1, 2, 0] {
            delays.insert(slot, 10);
        }
        let order: Vec<u32> = std::iter::from_fn(|| delays.pop_due(10)).map(|(slot, _)| slot).collect();
        assert_eq!(order, [3, 1, 2, 0]);
    }

    proptest! {
        /// Against a list that is searched from end to end.
        #[test]
        fn behaves_as_a_sorted_list(steps in prop::collection::vec((0..4_u8, 0..12_u32, 0..40_u64), 0..200)) {
            let mut delays = Delays::default();
            let mut model: Vec<(u64, u32)> = Vec::new();
            for (step, slot, time) in steps {
                match step {
                    0 | 1 => {
                        delays.insert(slot, time);
                        match model.iter_mut().find(|(_, other)| *other == slot) {
                            Some(old) => old.0 = old.0.min(time),
                            None => model.push((time, slot)),
                        }
                    }
                    2 => {
                        let waited = model.iter().any(|&(_, other)| other == slot);
                        model.retain(|&(_, other)| other != slot);
                        prop_assert_eq!(delays.remove(slot), waited);
                    }
                    _ => {
                        let due = model.iter().map(|&(deadline, _)| deadline).min().filter(|&first| first <= time);
                        let popped = delays.pop_due(time);
                        prop_assert_eq!(popped.map(|(_, deadline)| deadline), due);
                        if let Some((slot, deadline)) = popped {
                            let before = model.len();
                            model.retain(|&entry| entry != (deadline, slot));
                            prop_assert_eq!(model.len(), before - 1);
                        }
                    }
                }
                prop_assert_eq!(delays.len(), model.len());
                prop_assert_eq!(delays.earliest(), model.iter().map(|&(deadline, _)| deadline).min());
            }
        }
    }
}
