//! Keys that can be worked on now: first in, first out within a priority, and no priority starves another.
//!
//! Knows slots (see [`entries`](super::entries)) and priorities, neither keys nor clocks. Inline, here and in the files
//! around it: a queue is compiled where it is used, and each of these takes no longer than a call.

use crate::planted::{Bug, planted};

/// A list threaded through [`Links`]: joining and leaving it anywhere takes constant time and no allocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

/// Neighbours of each slot in the one list it is in. A slot that is ready is in two lists, each with links of its own.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<Link>);

#[derive(Debug, Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

/// The ready slots: a list for each priority in use, highest first, and one list of all of them by age.
#[derive(Debug)]
pub(super) struct Ready {
    levels: Vec<Level>,
    /// All ready slots in the order in which they became ready. A raised priority does not change it.
    by_age: List,
    ages: Links,
    len: usize,
    /// Every so many hand-outs the longest-waiting slot has its turn, whatever its priority.
    oldest_every: u32,
    /// Hand-outs since the last turn of the longest-waiting.
    turns: u32,
}

#[derive(Debug)]
struct Level {
    priority: i8,
    list: List,
}

const NONE: u32 = u32::MAX;

impl Ready {
    pub(super) fn new(oldest_every: u32) -> Self {
        Self {
            levels: Vec::new(),
            by_age: List::EMPTY,
            ages: Links::default(),
            len: 0,
            oldest_every: oldest_every.max(1),
            turns: 0,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The slot that has been ready longest.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.by_age.head()
    }

    /// Puts a slot behind all others of its priority.
    #[inline]
    pub(super) fn push(&mut self, links: &mut Links, slot: u32, priority: i8) {
        self.len += 1;
        self.by_age.push(&mut self.ages, slot);
        self.join(links, slot, priority);
    }

    /// Moves a slot behind those of a higher priority. Its age stays, so it never has its turn later than without the move.
    #[inline]
    pub(super) fn raise(&mut self, links: &mut Links, slot: u32, old: i8, new: i8) {
        if planted(Bug::RaisedKeyLosesAge) {
            self.by_age.remove(&mut self.ages, slot);
            self.by_age.push(&mut self.ages, slot);
        }
        self.leave(links, slot, old);
        self.join(links, slot, new);
    }

    /// Takes out the slot whose turn it is: the first of the highest priority, or the longest-waiting one of all.
    ///
    /// So whatever arrives meanwhile, a slot behind n older ones is handed out within `oldest_every × (n + 1)` turns.
    /// Every turn counts, whichever priorities there are: otherwise a raised priority could put off the turn of the oldest.
    #[inline]
    pub(super) fn pop(&mut self, links: &mut Links, priority_of: impl FnOnce(u32) -> i8) -> Option<u32> {
        let first = self.levels.first()?.list.head()?;
        self.turns += 1;
        let slot = if self.turns >= self.oldest_every {
            self.turns = 0;
            self.by_age.head()?
        } else {
            first
        };
        let priority = if slot == first { self.levels[0].priority } else { priority_of(slot) };
        self.len -= 1;
        self.by_age.remove(&mut self.ages, slot);
        self.leave(links, slot, priority);
        Some(slot)
    }

    /// Gives memory back. Nothing may be ready.
    pub(super) fn shrink(&mut self) {
        self.ages = Links::default();
    }

    #[inline]
    fn join(&mut self, links: &mut Links, slot: u32, priority: i8) {
        if let [only] = &mut self.levels[..]
            && only.list.head().is_none()
        {
            only.priority = priority;
        }
        let place = match self.levels.iter().position(|level| level.priority <= priority) {
            Some(place) if self.levels[place].priority == priority => place,
            place => {
                let place = place.unwrap_or(self.levels.len());
                self.levels.insert(place, Level { priority, list: List::EMPTY });
                place
            }
        };
        self.levels[place].list.push(links, slot);
    }

    #[inline]
    fn leave(&mut self, links: &mut Links, slot: u32, priority: i8) {
        let place = self.levels.iter().position(|level| level.priority == priority);
        let place = place.expect("a ready slot is in the list of its priority");
        let list = &mut self.levels[place].list;
        list.remove(links, slot);
        // The last level stays, empty: most queues have one priority, and come and go between no key and one.
        if list.head().is_none() && self.levels.len() > 1 {
            self.levels.remove(place);
        }
    }
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(super) fn head(self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// The slots from head to tail.
    pub(super) fn iter(self, links: &Links) -> impl Iterator<Item = u32> {
        let next = |&slot: &u32| Some(links.0[slot as usize].next).filter(|&next| next != NONE);
        std::iter::successors(self.head(), next)
    }

    #[inline]
    pub(super) fn push(&mut self, links: &mut Links, slot: u32) {
        let link = Link { previous: self.tail, next: NONE };
        if let Some(place) = links.0.get_mut(slot as usize) {
            *place = link;
        } else {
            links.0.resize(slot as usize + 1, link);
        }
        match self.tail {
            NONE => self.head = slot,
            tail => links.0[tail as usize].next = slot,
        }
        self.tail = slot;
    }

    #[inline]
    pub(super) fn remove(&mut self, links: &mut Links, slot: u32) {
        let Link { previous, next } = links.0[slot as usize];
        match previous {
            NONE => self.head = next,
            previous => links.0[previous as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => links.0[next as usize].previous = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(oldest_every: u32, slots: &[(u32, i8)]) -> (Ready, Links) {
        let (mut ready, mut links) = (Ready::new(oldest_every), Links::default());
        for &(slot, priority) in slots {
            ready.push(&mut links, slot, priority);
        }
        (ready, links)
    }

    fn all(mut ready: Ready, mut links: Links, slots: &[(u32, i8)]) -> Vec<u32> {
        let priority = |slot| slots.iter().rev().find(|known| known.0 == slot).unwrap().1;
        std::iter::from_fn(|| ready.pop(&mut links, priority)).collect()
    }

    #[test]
    fn higher_priorities_come_first_and_equals_in_order() {
        let slots = [(0, 0), (1, -5), (2, 9), (3, 0), (4, 9), (5, -5)];
        let (ready, links) = ready(100, &slots);
        assert_eq!(all(ready, links, &slots), [2, 4, 0, 3, 1, 5]);
    }

    #[test]
    fn priorities_come_and_go() {
        let (mut ready, mut links) = ready(100, &[(0, 0)]);
        assert_eq!(ready.pop(&mut links, |_| 0), Some(0));
        ready.push(&mut links, 1, -1);
        let mut pop = || ready.pop(&mut links, |_| -1);
        assert_eq!((pop(), pop(), ready.len()), (Some(1), None, 0));
    }

    #[test]
    fn every_so_often_the_oldest_has_its_turn() {
        let slots = [(0, 0), (1, 0), (2, 9), (3, 9), (4, 9), (5, 9), (6, 9)];
        let (ready, links) = ready(3, &slots);
        assert_eq!(all(ready, links, &slots), [2, 3, 0, 4, 5, 1, 6]);
    }

    #[test]
    fn a_raised_slot_keeps_its_age() {
        let slots = [(0, -5), (1, 0), (2, 0), (3, 0)];
        let (mut ready, mut links) = ready(3, &slots);
        ready.raise(&mut links, 0, -5, 0);
        assert_eq!(ready.oldest(), Some(0));
        assert_eq!(all(ready, links, &[(0, 0), (1, 0), (2, 0), (3, 0)]), [1, 2, 0, 3]);
    }
}
