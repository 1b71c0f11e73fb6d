//! Earlier states that readers still hold, kept so that the writer is the one who frees them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::State;

/// How many are kept at most. Beyond it the last reader of the oldest frees it.
const MAX_LEN: usize = 16;

/// States that were replaced while somebody was reading them.
///
/// Memory is best freed by the thread that allocated it: common allocators lock a heap of that thread for others. A writer
/// beside ten readers would wait for that lock most of the time, for one of them is often suspended while it holds it.
///
/// A state is freed with the first write after its last reader has let it go.
#[derive(Default)]
pub(super) struct Retired(VecDeque<Arc<State>>);

impl Retired {
    /// Adds what was just replaced, and frees what nobody reads any more.
    pub(super) fn add(&mut self, state: Arc<State>) {
        self.0.push_back(state);
        // A count of one cannot grow again: what is replaced is found nowhere else.
        self.0.retain(|state| Arc::strong_count(state) > 1);
        if self.0.len() > MAX_LEN {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_reads_is_freed_at_once() {
        let (mut retired, state) = (Retired::default(), Arc::new(State::default()));
        let alive = Arc::downgrade(&state);
        retired.add(state);
        assert!(alive.upgrade().is_none());
    }

    #[test]
    fn what_is_read_is_freed_by_the_next_write_after_its_last_reader() {
        let (mut retired, reader) = (Retired::default(), Arc::new(State::default()));
        let alive = Arc::downgrade(&reader);
        retired.add(Arc::clone(&reader));
        retired.add(Arc::default());
        drop(reader);
        assert!(alive.upgrade().is_some(), "not by the reader");
        retired.add(Arc::default());
        assert!(alive.upgrade().is_none());
    }

    #[test]
    fn the_oldest_of_many_is_left_to_its_readers() {
        let mut retired = Retired::default();
        let readers: Vec<_> = (0..=MAX_LEN).map(|_| Arc::new(State::default())).collect();
        for state in &readers {
            retired.add(Arc::clone(state));
        }
        let held: Vec<_> = readers.iter().map(|state| Arc::strong_count(state) == 2).collect();
        assert_eq!(held, [vec![false], vec![true; MAX_LEN]].concat());
    }
}
