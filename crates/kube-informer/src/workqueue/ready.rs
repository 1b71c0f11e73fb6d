//! Keys that can be worked on now: first in, first out within a priority, and no priority starves another.
//!
//! Knows slots (see [`entries`](super::entries)) and priorities, neither keys nor clocks. Inline, here and in the files
//! around it: a queue is compiled where it is used, and each of these takes no longer than a call.

/// A list threaded through [`Links`]: joining and leaving it anywhere takes constant time and no allocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

/// Neighbours of each slot in the one list it is in.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<Link>);

#[derive(Debug, Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
    /// When it joined its list, counted in arrivals.
    arrival: u64,
}

/// The ready slots: a list for each priority in use, highest first.
#[derive(Debug)]
pub(super) struct Ready {
    levels: Vec<Level>,
    len: usize,
    arrivals: u64,
    /// Every so many hand-outs the longest-waiting slot has its turn, whatever its priority.
    oldest_every: u32,
    /// Hand-outs by priority since the last turn of the longest-waiting.
    by_priority: u32,
}

#[derive(Debug)]
struct Level {
    priority: i8,
    list: List,
}

const NONE: u32 = u32::MAX;

impl Ready {
    pub(super) fn new(oldest_every: u32) -> Self {
        Self { levels: Vec::new(), len: 0, arrivals: 0, oldest_every: oldest_every.max(1), by_priority: 0 }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The first of each priority, which is the one of that priority that has waited longest.
    pub(super) fn heads(&self) -> impl Iterator<Item = u32> {
        self.levels.iter().filter_map(|level| level.list.head())
    }

    /// Puts a slot behind all others of its priority.
    #[inline]
    pub(super) fn push(&mut self, links: &mut Links, slot: u32, priority: i8) {
        self.arrivals += 1;
        self.len += 1;
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
        self.levels[place].list.push(links, slot, self.arrivals);
    }

    /// Takes a slot out before its turn.
    #[inline]
    pub(super) fn remove(&mut self, links: &mut Links, slot: u32, priority: i8) {
        let place = self.levels.iter().position(|level| level.priority == priority);
        self.remove_from(links, slot, place.expect("a ready slot is in the list of its priority"));
    }

    /// Takes out the slot whose turn it is: the first of the highest priority, or the longest-waiting one of all.
    ///
    /// So whatever arrives meanwhile, a slot behind n older ones is handed out within `oldest_every × (n + 1)` turns.
    #[inline]
    pub(super) fn pop(&mut self, links: &mut Links) -> Option<u32> {
        let mut place = 0;
        if self.levels.len() > 1 {
            self.by_priority += 1;
            if self.by_priority >= self.oldest_every {
                self.by_priority = 0;
                place = self.oldest(links);
            }
        }
        let slot = self.levels.get(place)?.list.head()?;
        self.remove_from(links, slot, place);
        Some(slot)
    }

    fn oldest(&self, links: &Links) -> usize {
        let arrival = |level: &Level| level.list.head().map(|slot| links.0[slot as usize].arrival);
        (0..self.levels.len()).min_by_key(|&place| arrival(&self.levels[place])).unwrap_or(0)
    }

    #[inline]
    fn remove_from(&mut self, links: &mut Links, slot: u32, place: usize) {
        self.len -= 1;
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
    pub(super) fn push(&mut self, links: &mut Links, slot: u32, arrival: u64) {
        let link = Link { previous: self.tail, next: NONE, arrival };
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
        let Link { previous, next, .. } = links.0[slot as usize];
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

    fn all(mut ready: Ready, mut links: Links) -> Vec<u32> {
        std::iter::from_fn(|| ready.pop(&mut links)).collect()
    }

    #[test]
    fn higher_priorities_come_first_and_equals_in_order() {
        let (ready, links) = ready(100, &[(0, 0), (1, -5), (2, 9), (3, 0), (4, 9), (5, -5)]);
        assert_eq!(ready.heads().collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(all(ready, links), [2, 4, 0, 3, 1, 5]);
    }

    #[test]
    fn priorities_come_and_go() {
        let (mut ready, mut links) = ready(100, &[(0, 0)]);
        assert_eq!(ready.pop(&mut links), Some(0));
        ready.push(&mut links, 1, -1);
        assert_eq!((ready.pop(&mut links), ready.pop(&mut links), ready.len()), (Some(1), None, 0));
    }

    #[test]
    fn every_so_often_the_oldest_has_its_turn() {
        let (ready, links) = ready(3, &[(0, 0), (1, 0), (2, 9), (3, 9), (4, 9), (5, 9), (6, 9)]);
        assert_eq!(all(ready, links), [2, 3, 0, 4, 5, 1, 6]);
    }

    #[test]
    fn anything_can_leave_before_its_turn() {
        for leaver in 0..3 {
            let (mut ready, mut links) = ready(3, &[(0, 1), (1, 1), (2, 1)]);
            ready.remove(&mut links, leaver, 1);
            assert_eq!(ready.len(), 2);
            let expected: Vec<u32> = (0..3).filter(|&slot| slot != leaver).collect();
            assert_eq!(all(ready, links), expected);
        }
    }
}
