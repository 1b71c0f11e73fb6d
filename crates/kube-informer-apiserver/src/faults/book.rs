//! The book of faults: which rules there are, whose turn it is, and what was done.
//!
//! No clock and no I/O here: times come in, decisions go out, and the same questions get the same answers.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::call::Call;
use super::fault::{Fault, Stage};
use super::rule::Rule;
use super::script::{Script, write_duration};
use crate::Verb;

/// A fault that was injected.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Injected {
    /// When, on tokio's clock since the server was built.
    pub at: Duration,
    /// Into which request, counted from 1 over all connections.
    pub request: u64,
    /// On which connection, counted from 1.
    pub connection: u64,
    /// What the request asked for; none for paths that name no resource.
    pub verb: Option<Verb>,
    /// Of which resource, plural.
    pub resource: String,
    /// How many events or items of the answer had passed.
    pub events: u64,
    /// How long the answer had lasted; before an answer: how long the fault was held back.
    pub age: Duration,
    /// What was injected.
    pub fault: Fault,
    /// By which rule, counted from 1 in the order in which they were given.
    pub rule: u64,
}

/// Rules, counters and the log.
#[derive(Debug, Default)]
pub(crate) struct Book {
    seed: u64,
    active: Vec<Entry>,
    /// Rules that can never match again, for the script alone.
    past: VecDeque<Entry>,
    rules_given: u64,
    pub(crate) requests: u64,
    pub(crate) connections: u64,
    counts: BTreeMap<&'static str, u64>,
    log: VecDeque<Injected>,
}

/// Where in an answer a question is asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    /// Since the server was built.
    pub(crate) now: Duration,
    /// When the answer began, since the server was built.
    pub(crate) began: Duration,
    /// How many events or items have passed.
    pub(crate) events: u64,
}

/// What an answer should do about the faults that are drawn once for each answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Due {
    /// This, now.
    Now(Fault),
    /// Ask again then, or when the rules change, or when an event has passed.
    At(Option<Duration>),
}

#[derive(Debug)]
struct Entry {
    id: u64,
    rule: Rule,
    /// What it could have befallen so far.
    seen: u64,
    /// What it did befall.
    fired: u64,
}

/// How many of the newest entries the log keeps; the counts are of all.
const LOG_LEN: usize = 10_000;
/// How many rules that are over are kept for the script.
const PAST_LEN: usize = 10_000;

impl Book {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub(crate) fn add(&mut self, rule: Rule) {
        self.rules_given += 1;
        self.active.push(Entry { id: self.rules_given, rule, seen: 0, fired: 0 });
    }

    /// Ends all rules now. They stay in the script, with the time at which they ended.
    pub(crate) fn end_all(&mut self, now: Duration) {
        for entry in &mut self.active {
            entry.rule.until = Some(entry.rule.until.map_or(now, |until| until.min(now)));
        }
        self.retire(now);
    }

    /// The rules that were given, as far as they are remembered.
    pub(crate) fn script(&self) -> Script {
        let mut entries: Vec<&Entry> = self.past.iter().chain(&self.active).collect();
        entries.sort_by_key(|entry| entry.id);
        Script { seed: self.seed, rules: entries.into_iter().map(|entry| entry.rule.clone()).collect() }
    }

    pub(crate) fn count(&self, kind: &Fault) -> u64 {
        self.counts.get(kind.name()).copied().unwrap_or(0)
    }

    pub(crate) fn log(&self) -> impl Iterator<Item = &Injected> {
        self.log.iter()
    }

    /// Whether some rule of this stage may befall the call, now or later.
    pub(crate) fn concerns(&self, call: &Call, stage: Stage) -> bool {
        self.candidates(call, stage).next().is_some()
    }

    /// How far back some rule may restore the server one day; none if none may.
    pub(crate) fn restores(&self) -> Option<u64> {
        let behind = |entry: &Entry| match entry.rule.fault {
            Fault::Restore { behind } => Some(behind),
            _ => None,
        };
        self.active.iter().filter_map(behind).max()
    }

    /// The first rule that befalls a request or an event, at this position; its fault is written into the log.
    pub(crate) fn draw(
        &mut self,
        call: &Call,
        stage: Stage,
        position: Position,
        can: impl Fn(&Rule) -> bool,
    ) -> Option<Rule> {
        let age = position.now.saturating_sub(position.began);
        let reached = |rule: &Rule| {
            // Before the answer, `after` holds the fault back: it does not decide whether there is one.
            let old_enough = stage == Stage::Request || age >= rule.after;
            old_enough && position.events >= rule.after_events && rule.is_open(position.now)
        };
        let ids: Vec<u64> = self
            .candidates(call, stage)
            .filter(|entry| reached(&entry.rule) && can(&entry.rule))
            .map(|entry| entry.id)
            .collect();
        ids.into_iter().find_map(|id| self.fire(id, call, position))
    }

    /// What is due in an answer at this position. Each rule is offered to each answer once.
    pub(crate) fn due(
        &mut self,
        call: &Call,
        position: Position,
        offered: &mut Vec<u64>,
        can: impl Fn(&Fault) -> bool,
    ) -> Due {
        let mut wake: Option<Duration> = None;
        let mut now = Vec::new();
        for entry in self.candidates(call, Stage::Answer) {
            let rule = &entry.rule;
            let at = position.began.saturating_add(rule.after).max(rule.from);
            if offered.contains(&entry.id)
                || position.events < rule.after_events
                || rule.is_past(at.max(position.now))
            {
                continue;
            }
            if !can(&rule.fault) {
                continue;
            }
            if at <= position.now {
                now.push(entry.id);
            } else {
                wake = Some(wake.map_or(at, |wake| wake.min(at)));
            }
        }
        for id in now {
            offered.push(id);
            if let Some(rule) = self.fire(id, call, position) {
                return Due::Now(rule.fault);
            }
        }
        Due::At(wake)
    }

    fn candidates(&self, call: &Call, stage: Stage) -> impl Iterator<Item = &Entry> {
        self.active.iter().filter(move |entry| {
            let rule = &entry.rule;
            rule.fault.stage() == stage
                && rule.selects(call.number, call.connection, &call.info)
                && call.can_meet(&rule.fault)
        })
    }

    /// Asks a rule whether it is this one's turn, and writes it down if so.
    fn fire(&mut self, id: u64, call: &Call, position: Position) -> Option<Rule> {
        let seed = self.seed;
        let entry = self.active.iter_mut().find(|entry| entry.id == id)?;
        if !entry.is_turn(seed) {
            return None;
        }
        let rule = entry.rule.clone();
        let age = match rule.fault.stage() {
            Stage::Request => rule.after,
            Stage::Answer | Stage::Event => position.now.saturating_sub(position.began),
        };
        *self.counts.entry(rule.fault.name()).or_default() += 1;
        if self.log.len() == LOG_LEN {
            self.log.pop_front();
        }
        self.log.push_back(Injected {
            at: position.now,
            request: call.number,
            connection: call.connection,
            verb: call.info.verb,
            resource: call.info.resource.clone(),
            events: position.events,
            age,
            fault: rule.fault,
            rule: id,
        });
        self.retire(position.now);
        Some(rule)
    }

    /// Puts away what can never match again, so that a long run does not ask it for ever.
    fn retire(&mut self, now: Duration) {
        let is_over = |entry: &mut Entry| {
            entry.rule.is_past(now) || entry.rule.times.is_some_and(|times| entry.fired >= times)
        };
        self.past.extend(self.active.extract_if(.., is_over));
        let excess = self.past.len().saturating_sub(PAST_LEN);
        self.past.drain(..excess);
    }
}

impl Entry {
    /// Counts one more that it could befall, and says whether it does.
    ///
    /// Each draw comes from the seed, the rule and the count alone, so other rules do not disturb it.
    fn is_turn(&mut self, seed: u64) -> bool {
        if self.rule.times.is_some_and(|times| self.fired >= times) {
            return false;
        }
        self.seen += 1;
        let spread =
            self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ self.seen.wrapping_mul(0xD1B5_4A32_D192_ED03);
        let is_turn = self.seen.is_multiple_of(self.rule.every)
            && fastrand::Rng::with_seed(seed ^ spread).f64() < self.rule.probability;
        self.fired += u64::from(is_turn);
        is_turn
    }
}

impl Injected {
    /// A rule that does exactly this again, in the same request and at the same place.
    pub fn to_rule(&self) -> Rule {
        let rule = Rule::on(self.fault).requests(self.request..=self.request).times(1);
        match self.fault.stage() {
            Stage::Request => rule.after(self.age),
            Stage::Answer => rule.after_events(self.events).after(self.age),
            Stage::Event => rule.after_events(self.events),
        }
    }
}

/// One line: `12s request 7 connection 1: watch pods: cut-frame after 3 events (rule 2)`.
impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_duration(f, self.at)?;
        write!(f, " request {} connection {}: ", self.request, self.connection)?;
        match self.verb {
            Some(verb) => write!(f, "{verb} {}: ", self.resource)?,
            None => f.write_str("any: ")?,
        }
        write!(f, "{}", self.fault)?;
        if self.fault.stage() != Stage::Request {
            write!(f, " after {} events", self.events)?;
        }
        write!(f, " (rule {})", self.rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn call(number: u64) -> Call {
        Call::new(number, 1, &Request::get("/api/v1/pods?watch=true").body(()).unwrap())
    }

    fn book(script: &str) -> Book {
        let script: Script = script.parse().unwrap();
        let mut book = Book::new(script.seed);
        script.rules.into_iter().for_each(|rule| book.add(rule));
        book
    }

    fn at(now: u64, events: u64) -> Position {
        Position { now: Duration::from_secs(now), began: Duration::ZERO, events }
    }

    fn draw(book: &mut Book, number: u64, now: u64) -> Option<Fault> {
        book.draw(&call(number), Stage::Request, at(now, 0), |_| true).map(|rule| rule.fault)
    }

    #[test]
    fn the_first_rule_that_matches_wins() {
        let mut book = book("pods: gone, 1 times\nwatch: unavailable\nany: refuse");
        assert_eq!(draw(&mut book, 1, 0), Some(Fault::Gone));
        assert_eq!(draw(&mut book, 2, 0), Some(Fault::Unavailable));
        assert_eq!(book.count(&Fault::Refuse), 0);
    }

    #[test]
    fn every_third_and_at_most_twice() {
        let mut book = book("any: gone every 3, 2 times");
        let hits: Vec<u64> = (1..20).filter(|number| draw(&mut book, *number, 0).is_some()).collect();
        assert_eq!(hits, [3, 6]);
    }

    #[test]
    fn a_window_opens_and_closes() {
        let mut book = book("any: gone from 10s until 20s");
        let hits: Vec<u64> = (0..30).step_by(5).filter(|now| draw(&mut book, 1, *now).is_some()).collect();
        assert_eq!(hits, [10, 15]);
    }

    #[test]
    fn request_and_connection_numbers_select() {
        let mut book = book("any: gone requests 2..3\nany: refuse connections 2");
        let hits: Vec<u64> = (1..6).filter(|number| draw(&mut book, *number, 0).is_some()).collect();
        assert_eq!(hits, [2, 3]);
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let draws = |seed: u64| -> Vec<u64> {
            let mut book = book(&format!("seed {seed}\nany: gone probability 0.3"));
            (1..200).filter(|number| draw(&mut book, *number, 0).is_some()).collect()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        assert!((30..90).contains(&draws(7).len()), "about three in ten: {}", draws(7).len());
    }

    #[test]
    fn another_rule_does_not_disturb_the_draws() {
        let mut alone = book("any: gone probability 0.3");
        let mut beside = book("any: gone probability 0.3\nany: refuse probability 0.5");
        for number in 1..200 {
            let expected = draw(&mut alone, number, 0);
            let found = draw(&mut beside, number, 0).filter(|fault| *fault == Fault::Gone);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn an_answer_is_offered_each_rule_once_and_told_when_to_ask_again() {
        let mut book = book("any: cut-stream after 10s\nany: stall-stream after 2 events");
        let mut offered = Vec::new();
        let mut due = |now, events| book.due(&call(1), at(now, events), &mut offered, |_| true);
        assert_eq!(due(0, 0), Due::At(Some(Duration::from_secs(10))));
        assert_eq!(due(3, 2), Due::Now(Fault::StallStream));
        assert_eq!(due(4, 9), Due::At(Some(Duration::from_secs(10))));
        assert_eq!(due(10, 9), Due::Now(Fault::CutStream));
        assert_eq!(due(11, 9), Due::At(None));
    }

    #[test]
    fn what_is_over_stays_in_the_script() {
        let mut book = book("seed 3\nany: gone 1 times\nany: refuse");
        draw(&mut book, 1, 4);
        book.end_all(Duration::from_secs(5));
        assert_eq!(draw(&mut book, 2, 5), None);
        assert_eq!(book.script().to_string(), "seed 3\nany: gone 1 times\nany: refuse until 5s\n");
        assert!(book.active.is_empty());
    }

    #[test]
    fn the_log_is_bounded_and_the_counts_are_of_all() {
        let mut book = book("any: gone");
        for number in 0..LOG_LEN as u64 + 5 {
            draw(&mut book, number, 0);
        }
        assert_eq!(book.log().count(), LOG_LEN);
        assert_eq!(book.count(&Fault::Gone), LOG_LEN as u64 + 5);
    }
}
