//! Whether the server may have been restored from a backup since the cache was read, and what a check must look at.

use std::collections::VecDeque;
use std::time::Duration;

use kube_wire::ResourceVersion;
use tokio::time::Instant;

use crate::planted::{Bug, planted};
use crate::source::Witness;

/// Checks of the version are at least this far apart.
const CHECK_EVERY: Duration = Duration::from_secs(10);
const CHECK_LAST: Duration = Duration::from_mins(5);

/// After a short gap, which is hardly a restore, a check waits until the watch has caught up: when a connection breaks, every kind
/// resumes its watch at the same moment.
const SETTLE: Duration = Duration::from_millis(300);

/// Comparisons that follow from checks are at least this far apart, and twice as far each time.
const COMPARE_EVERY: Duration = Duration::from_secs(20);
const COMPARE_LAST: Duration = Duration::from_mins(10);

/// After this many checks without an answer, only a list helps.
const TRIES: u32 = 3;

/// How many lost connections may wait for a check. With more of them, only a list helps.
const MOST: usize = 8;

/// A watch that was resumed sooner was not lost to a restore, which takes seconds.
const LONG_GAP: Duration = Duration::from_secs(2);

/// The state of the cache when a watch was lost.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reached {
    pub(super) version: ResourceVersion,
    pub(super) witness: Option<Witness>,
    /// How many objects the cache has, if the store has caught up with the version and everything has a readable key.
    pub(super) count: Option<usize>,
    pub(super) lost_at: Instant,
    pub(super) resumed_at: Instant,
    /// How long the cache was without a watch.
    gap: Duration,
}

impl Reached {
    /// Whether there was time for a restore before the next watch.
    pub(super) fn is_long_ago(&self) -> bool {
        self.gap >= LONG_GAP
    }
}

/// The end of the last watch. The cache has been without a watch since then.
#[derive(Debug, Clone, Copy)]
struct Closed {
    at: Instant,
    /// Whether its connection was lost; else the server ended it as it was asked to.
    lost: bool,
    /// For how long it had been dead before that was noticed.
    dead: Duration,
}

impl Closed {
    fn gap(&self, now: Instant) -> Duration {
        let dead = if planted(Bug::DeadTimeNotCounted) { Duration::ZERO } else { self.dead };
        now.saturating_duration_since(self.at).max(dead)
    }
}

/// How far the present doubt was looked into.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Look {
    #[default]
    NotYet,
    /// The check under way looks at the last change only.
    LastChange,
    /// The check under way may lead to a comparison.
    Thorough,
    /// The last change is as it was, and the rest waits for a comparison.
    WaitsForComparison,
}

/// The doubts about the server since a watch was lost.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// Whether a known uid and version may stand for another object.
    untrusted: bool,
    closed: Option<Closed>,
    /// The state of the cache before the watch that is being opened.
    noted: Option<(ResourceVersion, Option<Witness>, Option<usize>)>,
    /// How many comparisons in a row each followed a long time without a watch.
    comparisons: u32,
    /// Each state that a check must find in the server's history: the first, the last, and each that a long gap followed.
    /// Events after a lost connection may be of another history, so a later state does not stand for an earlier one.
    reached: VecDeque<Reached>,
    /// Whether there were too many of them.
    overflowed: bool,
    next_check: Option<Instant>,
    /// When a check may lead to a comparison again. Until then it looks at the last change only.
    next_comparison: Option<Instant>,
    look: Look,
    /// How many checks in a row had no answer.
    unanswered: u32,
    /// Whether a check said that the server was restored, and how many in a row said so although it was not.
    accused: bool,
    false_alarms: u32,
    /// The last change that was seen.
    witness: Option<Witness>,
}

impl Doubt {
    /// Doubts everything that an earlier run has read.
    pub(super) fn of_earlier_run() -> Self {
        Self { untrusted: true, ..Self::default() }
    }

    pub(super) fn is_trusted(&self) -> bool {
        !self.untrusted
    }

    /// The watch has ended, if one was open.
    pub(super) fn closed(&mut self, now: Instant) {
        self.closed.get_or_insert(Closed { at: now, lost: false, dead: Duration::ZERO });
    }

    /// The connection is lost, and may have been dead for a while: the server may be another one now.
    pub(super) fn lost(&mut self, now: Instant, dead: Duration) {
        self.untrusted = true;
        let closed = self.closed.get_or_insert(Closed { at: now, lost: true, dead });
        closed.lost = true;
        closed.dead = closed.dead.max(dead);
    }

    /// A list begins. Without a watch the server may have been restored meanwhile, whatever it answered.
    pub(super) fn lists(&mut self, now: Instant) {
        self.untrusted |= self.closed.is_some_and(|closed| closed.gap(now) >= LONG_GAP);
    }

    /// A check says that the server was restored. The next list shows whether that is true.
    pub(super) fn accused(&mut self) {
        self.accused = true;
    }

    /// A list is complete; `newest` was changed last; `restored`: the server was restored from a backup.
    pub(super) fn listed(&mut self, newest: Option<Witness>, restored: bool, now: Instant) {
        // A server that takes seconds to open each watch must not cause one comparison after the other.
        let (next_check, mut next_comparison, mut comparisons) =
            (self.next_check, self.next_comparison, self.comparisons);
        if !self.reached.is_empty() {
            next_comparison = next_comparison.max(Some(now + compare_after(comparisons)));
            comparisons = comparisons.saturating_add(u32::from(!planted(Bug::ComparisonsNotSpaced)));
        }
        let alarm = self.accused && !restored && !planted(Bug::FalseAlarmsRepeated);
        let false_alarms = if alarm { self.false_alarms.saturating_add(1) } else { 0 };
        *self = Self {
            witness: newest,
            next_check,
            next_comparison,
            comparisons,
            false_alarms,
            ..Self::default()
        };
        self.answered(now);
        if false_alarms > 0 {
            // A server that cannot answer checks must not be listed after each of them.
            self.next_check = Some(now + compare_after(false_alarms));
        }
        self.closed(now);
    }

    /// A change was passed on.
    pub(super) fn moved(&mut self, witness: Option<Witness>) {
        if witness.is_some() {
            self.witness = witness;
        }
    }

    /// The last change could not be read.
    pub(super) fn forget_witness(&mut self) {
        if planted(Bug::UnreadWitnessKept) {
            return;
        }
        self.witness = None;
    }

    /// Notes what the cache has before a watch.
    pub(super) fn note(&mut self, version: &ResourceVersion, count: Option<usize>) {
        let numbered = version.as_u64().is_some_and(|number| number > 0);
        self.noted = numbered.then(|| (version.clone(), self.witness.clone(), count));
    }

    /// A watch is open again. The state of the cache before it must be checked if the connection was lost, or if there was
    /// time for a restore.
    pub(super) fn resumed(&mut self, now: Instant) {
        let (Some(closed), noted) = (self.closed.take(), self.noted.take()) else { return };
        let gap = closed.gap(now);
        if gap < LONG_GAP {
            self.comparisons = 0;
        }
        if !closed.lost && gap < LONG_GAP {
            return;
        }
        self.untrusted = true;
        self.look = Look::NotYet;
        let Some((version, witness, count)) = noted else { return };
        if let Some(last) = self.reached.back_mut().filter(|last| last.version == version) {
            // Nothing changed since; the store may have caught up meanwhile.
            last.count = last.count.or(count);
            last.gap = last.gap.max(gap);
            last.resumed_at = now;
            return;
        }
        let replaceable = |last: &Reached| !last.is_long_ago() || planted(Bug::LongGapForgotten);
        if self.reached.len() > 1 && self.reached.back().is_some_and(replaceable) {
            self.reached.pop_back();
        }
        let (lost_at, resumed_at) = (closed.at, now);
        self.reached.push_back(Reached { version, witness, count, lost_at, resumed_at, gap });
        self.overflowed |= self.reached.len() > MOST;
        self.reached.truncate(MOST);
    }

    /// When to make the next check.
    pub(super) fn check_at(&self, now: Instant) -> Option<Instant> {
        let comparison = self.next_comparison.filter(|_| self.look == Look::WaitsForComparison);
        let next = self.reached.front()?;
        let settled = (!next.is_long_ago()).then(|| next.resumed_at + SETTLE);
        Some(self.next_check.max(comparison).max(settled).unwrap_or(now))
    }

    /// What the next check looks for; `Err` if there is too much, or if the checks before had no answer. Until it has one, it
    /// counts as failed, because it ends with its watch.
    pub(super) fn begin_check(&mut self, now: Instant) -> Option<Result<Reached, ()>> {
        let reached = self.reached.front()?;
        let thorough = reached.is_long_ago() && self.next_comparison.is_none_or(|at| now >= at);
        self.look = if thorough { Look::Thorough } else { Look::LastChange };
        let given_up = self.overflowed || self.unanswered >= TRIES;
        let wait = CHECK_EVERY.saturating_mul(1 << self.unanswered.min(8)).min(CHECK_LAST);
        self.next_check = Some(now + wait);
        self.unanswered = self.unanswered.saturating_add(1);
        Some(if given_up { Err(()) } else { Ok(reached.clone()) })
    }

    /// Whether an earlier check had no answer.
    pub(super) fn was_unanswered(&self) -> bool {
        self.unanswered > 1
    }

    /// Whether the check under way may lead to a comparison.
    pub(super) fn is_thorough(&self) -> bool {
        self.look == Look::Thorough
    }

    /// The server asks to wait with the next check.
    pub(super) fn wait(&mut self, until: Instant) {
        self.next_check = self.next_check.max(Some(until));
    }

    /// The server answers: the long waits after checks without an answer are over.
    fn answered(&mut self, now: Instant) {
        self.unanswered = 0;
        self.next_check = self.next_check.map(|at| at.min(now + CHECK_EVERY));
    }

    /// A check has an answer: the history is the same, or nobody can tell.
    pub(super) fn checked(&mut self, same: bool, now: Instant) {
        self.false_alarms = 0;
        if self.reached.front().is_some_and(Reached::is_long_ago) && !self.is_thorough() {
            // The last change is as it was. All the others are compared as soon as that is allowed.
            self.answered(now);
            self.look = Look::WaitsForComparison;
            return;
        }
        self.reached.pop_front();
        self.answered(now);
        if let Some(next) = self.reached.front() {
            if next.is_long_ago() {
                self.next_check = Some(now);
            }
        } else if (same || planted(Bug::UnknownHistoryTrusted)) && self.closed.is_none() {
            self.untrusted = false;
        }
    }
}

/// How long to wait after this many comparisons in a row that showed nothing.
fn compare_after(comparisons: u32) -> Duration {
    COMPARE_EVERY.saturating_mul(1 << comparisons.min(8)).min(COMPARE_LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loses a watch at this version and opens the next one `gap` seconds later.
    fn lose(doubt: &mut Doubt, version: &str, count: Option<usize>, gap: u64) {
        let now = Instant::now();
        doubt.lost(now, Duration::ZERO);
        let later = now + Duration::from_secs(gap);
        doubt.note(&version.into(), count);
        doubt.resumed(later);
    }

    #[tokio::test(start_paused = true)]
    async fn states_before_long_gaps_are_checked_one_by_one() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        doubt.closed(now);
        doubt.note(&"5".into(), Some(1));
        doubt.resumed(now + Duration::from_secs(1));
        assert_eq!(doubt.check_at(now), None, "nothing was lost");
        for (version, gap) in [("5", 0), ("5", 0), ("7", 0), ("8", 3), ("9", 0), ("11", 0)] {
            lose(&mut doubt, version, None, gap);
        }
        // The first, the last, and the one that a long gap followed.
        for version in ["5", "8", "11"] {
            assert!(doubt.check_at(now).is_some());
            assert_eq!(doubt.begin_check(now).unwrap().unwrap().version, version.into());
            assert!(!doubt.is_trusted());
            doubt.checked(true, now);
        }
        assert!(doubt.is_trusted() && doubt.check_at(now).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_time_without_a_watch_is_doubted_whatever_its_reason() {
        let now = Instant::now();
        let later = now + LONG_GAP;
        let mut doubt = Doubt::default();
        doubt.closed(now);
        doubt.note(&"5".into(), None);
        doubt.resumed(later);
        assert!(doubt.begin_check(later).unwrap().unwrap().is_long_ago());
        // A list after a list, without a watch between them.
        doubt.listed(None, false, now);
        doubt.lists(now + LONG_GAP / 2);
        assert!(doubt.is_trusted());
        doubt.lists(later);
        assert!(!doubt.is_trusted());
        // A watch that was found dead.
        doubt.listed(None, false, now);
        doubt.resumed(now);
        doubt.lost(later, LONG_GAP);
        doubt.note(&"5".into(), None);
        doubt.resumed(later);
        assert!(doubt.begin_check(later).unwrap().unwrap().is_long_ago());
    }

    #[tokio::test(start_paused = true)]
    async fn comparisons_without_a_quick_resume_between_them_are_further_and_further_apart() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        let mut wait_after = |gap| {
            lose(&mut doubt, "5", None, gap);
            doubt.next_comparison = None;
            doubt.listed(None, false, now);
            (doubt.next_comparison.unwrap() - now).as_secs()
        };
        let waits: Vec<u64> = [5, 5, 5, 5, 5, 5, 5, 0, 5].into_iter().map(&mut wait_after).collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 600, 600, 20, 40]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_that_is_not_noted_yet_keeps_the_doubt() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        lose(&mut doubt, "5", None, 0);
        doubt.lost(now, Duration::ZERO);
        doubt.checked(true, now);
        assert!(!doubt.is_trusted());
        doubt.listed(None, false, now);
        assert!(doubt.is_trusted());
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_is_noted_once_the_store_has_caught_up() {
        let mut doubt = Doubt::default();
        lose(&mut doubt, "5", None, 0);
        lose(&mut doubt, "5", Some(3), 0);
        assert_eq!(doubt.begin_check(Instant::now()).unwrap().unwrap().count, Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_losses_are_not_checked_one_by_one() {
        let mut doubt = Doubt::default();
        for version in 1..=20u64 {
            lose(&mut doubt, &version.to_string(), None, 5);
        }
        assert_eq!((doubt.reached.len(), doubt.begin_check(Instant::now())), (MOST, Some(Err(()))));
    }

    #[tokio::test(start_paused = true)]
    async fn checks_without_an_answer_are_given_up_for_a_list() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        lose(&mut doubt, "5", None, 0);
        let tries: Vec<(bool, u64)> = (0..7)
            .map(|_| {
                (doubt.begin_check(now).unwrap().is_ok(), (doubt.check_at(now).unwrap() - now).as_secs())
            })
            .collect();
        let expected =
            [(true, 10), (true, 20), (true, 40), (false, 80), (false, 160), (false, 300), (false, 300)];
        assert_eq!(tries, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_loss_at_the_same_version_keeps_the_longest_gap_and_the_last_resume() {
        let mut doubt = Doubt::default();
        lose(&mut doubt, "5", None, 5);
        tokio::time::advance(Duration::from_mins(1)).await;
        lose(&mut doubt, "5", None, 0);
        let reached = doubt.begin_check(Instant::now()).unwrap().unwrap();
        assert!(reached.is_long_ago(), "the first gap was long");
        assert_eq!(reached.resumed_at, Instant::now(), "a check of before says nothing about the second");
    }

    #[tokio::test(start_paused = true)]
    async fn while_no_comparison_is_allowed_the_last_change_is_checked() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        lose(&mut doubt, "5", None, 5);
        doubt.begin_check(now).unwrap().unwrap();
        assert!(doubt.is_thorough());
        doubt.listed(None, false, now);
        lose(&mut doubt, "7", None, 5);
        assert_eq!(doubt.check_at(now), Some(now + CHECK_EVERY), "a list keeps it");
        doubt.begin_check(now + CHECK_EVERY).unwrap().unwrap();
        assert!(!doubt.is_thorough());
        doubt.checked(true, now + CHECK_EVERY);
        assert_eq!(doubt.check_at(now), Some(now + COMPARE_EVERY), "the rest is still to be compared");
        lose(&mut doubt, "7", None, 5);
        assert_eq!(doubt.check_at(now), Some(now + 2 * CHECK_EVERY), "another gap, another check");
        assert!(!doubt.is_trusted());
        doubt.begin_check(now + COMPARE_EVERY).unwrap().unwrap();
        assert!(doubt.is_thorough());
        doubt.checked(true, now + COMPARE_EVERY);
        assert!(doubt.is_trusted() && doubt.check_at(now).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn after_short_gaps_checks_wait_for_the_watch_and_for_each_other() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        lose(&mut doubt, "5", None, 5);
        assert_eq!(doubt.check_at(now), Some(now), "there was time for a restore");
        doubt.listed(None, false, now);
        lose(&mut doubt, "6", None, 0);
        assert_eq!(doubt.check_at(now), Some(now + SETTLE));
        lose(&mut doubt, "7", None, 0);
        doubt.begin_check(now).unwrap().unwrap();
        doubt.checked(true, now);
        assert_eq!(
            doubt.check_at(now),
            Some(now + CHECK_EVERY),
            "two cuts in a row cost two checks, not at once"
        );
        lose(&mut doubt, "8", None, 5);
        doubt.begin_check(now).unwrap().unwrap();
        doubt.checked(true, now);
        assert_eq!(doubt.check_at(now), Some(now), "there was time for a restore");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_asks_to_wait_is_obeyed() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        lose(&mut doubt, "5", None, 0);
        doubt.begin_check(now).unwrap().unwrap();
        doubt.wait(now + 10 * CHECK_EVERY);
        assert_eq!(doubt.check_at(now), Some(now + 10 * CHECK_EVERY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_last_change_that_cannot_be_read_is_not_asked_for() {
        let mut doubt = Doubt::default();
        let witness = Witness { key: crate::ObjectKey::cluster("a"), state: None };
        doubt.moved(Some(witness.clone()));
        lose(&mut doubt, "5", None, 0);
        assert_eq!(doubt.begin_check(Instant::now()).unwrap().unwrap().witness, Some(witness));
        doubt.checked(true, Instant::now());
        doubt.forget_witness();
        lose(&mut doubt, "6", None, 0);
        assert_eq!(doubt.begin_check(Instant::now()).unwrap().unwrap().witness, None);
    }
}
