//! Backups of the server, taken now and then so that there is an old one when a fault restores it.

use std::collections::VecDeque;

/// Backups by revision, oldest first.
#[derive(Debug)]
pub(crate) struct Backups<T> {
    kept: VecDeque<(u64, T)>,
}

/// How many are kept. They share the server's objects, so each costs what has changed since.
const KEPT: usize = 32;

impl<T> Default for Backups<T> {
    fn default() -> Self {
        Self { kept: VecDeque::new() }
    }
}

impl<T: Clone> Backups<T> {
    /// Takes one of this revision, unless a newer one than `behind` needs is there already.
    ///
    /// They are spaced so that the oldest is at least twice as far `behind` as asked, once enough has happened.
    pub(crate) fn keep(&mut self, revision: u64, behind: u64, take: impl FnOnce() -> T) {
        let step = (behind / (KEPT as u64 / 2)).max(1);
        if self.kept.back().is_some_and(|(newest, _)| revision < newest.saturating_add(step)) {
            return;
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((revision, take()));
    }

    /// The newest that is at least so far behind, else the oldest. Those after it are forgotten: they never happened.
    pub(crate) fn restore(&mut self, revision: u64, behind: u64) -> Option<T> {
        let newest = revision.saturating_sub(behind);
        let old_enough = self.kept.iter().take_while(|(kept, _)| *kept <= newest).count();
        self.kept.truncate(old_enough.max(1));
        self.kept.back().map(|(_, backup)| backup.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backups(revisions: u64, behind: u64) -> Backups<u64> {
        let mut backups = Backups::default();
        (1..=revisions).for_each(|revision| backups.keep(revision, behind, || revision));
        backups
    }

    #[test]
    fn the_one_that_is_old_enough_is_found() {
        assert_eq!(backups(20, 3).restore(20, 3), Some(17));
        assert_eq!(backups(20, 3).restore(21, 30), Some(1), "as old as there is");
        assert_eq!(backups(0, 3).restore(5, 3), None);
    }

    #[test]
    fn they_are_few_and_reach_far_enough_back() {
        for behind in [0, 1, 10, 100, 1_000] {
            let mut backups = backups(5_000, behind);
            assert!(backups.kept.len() <= KEPT);
            let found = backups.restore(5_000, behind).unwrap();
            assert!(5_000 - found >= behind && 5_000 - found <= behind + behind / 8 + 1, "{behind}: {found}");
        }
    }

    #[test]
    fn what_came_after_is_forgotten() {
        let mut backups = backups(20, 3);
        assert_eq!(backups.restore(20, 10), Some(10));
        assert_eq!(backups.restore(10, 0), Some(10));
    }
}
