//! Which requests, answers and events a fault befalls.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use kube_wire::json::EventType;

use super::fault::{Fault, Stage};
use super::script::{ScriptError, Words, read_duration, write_duration};
use crate::{RequestInfo, Verb};

/// A fault, and what it befalls: everything that it can, until something is said about it.
///
/// The textual form is one line: verbs and resource, a colon, the fault, then what else is said.
///
/// | in Rust | in a script | befalls only |
/// | --- | --- | --- |
/// | `.verb(Verb::Watch)` | `watch:` | this verb; called again, one more (`watch\|list:`) |
/// | `.resource("pods")` | `pods:` | this resource, in any group; `deployments.apps` names the group |
/// | `.namespace("a")` | `namespace a` | requests for objects of this namespace |
/// | `.requests(5..=9)` | `requests 5..9` | these requests, counted from 1 over all connections |
/// | `.connections(2..=2)` | `connections 2..2` | these connections (each client in the process is one), counted from 1 |
/// | `.from(secs(60))` | `from 60s` | what happens no earlier than that after the server was built |
/// | `.until(secs(90))` | `until 90s` | what happens before that |
/// | `.after(secs(10))` | `after 10s` | the answer when it has lasted so long; before an answer: holds the fault back |
/// | `.after_events(3)` | `after 3 events` | the answer when so many events or items have passed |
/// | `.event(EventType::Deleted)` | `event DELETED` | events of this type |
/// | `.every(3)` | `every 3` | the third, sixth, … of those |
/// | `.probability(0.2)` | `probability 0.2` | that share of those, drawn from the seed |
/// | `.times(2)` | `2 times` | the first two of those |
///
/// ```
/// use kube_informer_apiserver::Verb;
/// use kube_informer_apiserver::faults::{Fault, Rule};
///
/// let rule = Rule::on(Fault::CutFrame).verb(Verb::Watch).resource("pods").after_events(3).times(2);
/// assert_eq!(rule.to_string(), "watch pods: cut-frame after 3 events, 2 times");
/// assert_eq!(rule.to_string().parse(), Ok(rule));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub(crate) fault: Fault,
    pub(crate) verbs: Vec<Verb>,
    pub(crate) resource: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) requests: Option<RangeInclusive<u64>>,
    pub(crate) connections: Option<RangeInclusive<u64>>,
    pub(crate) from: Duration,
    pub(crate) until: Option<Duration>,
    pub(crate) after: Duration,
    pub(crate) after_events: u64,
    pub(crate) event: Option<EventType>,
    pub(crate) every: u64,
    pub(crate) probability: f64,
    pub(crate) times: Option<u64>,
}

impl Rule {
    /// This fault, wherever it can happen.
    pub fn on(fault: Fault) -> Self {
        Self {
            fault,
            verbs: Vec::new(),
            resource: None,
            namespace: None,
            requests: None,
            connections: None,
            from: Duration::ZERO,
            until: None,
            after: Duration::ZERO,
            after_events: 0,
            event: None,
            every: 1,
            probability: 1.0,
            times: None,
        }
    }

    /// Only requests with this verb; called again, with one of these verbs.
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verbs.push(verb);
        self
    }

    /// Only this resource: its plural name, in any group, or `deployments.apps`.
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Only requests for objects of this namespace; not those for objects of all.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only these requests, counted from 1 over all connections.
    pub fn requests(mut self, numbers: RangeInclusive<u64>) -> Self {
        self.requests = Some(numbers);
        self
    }

    /// Only these connections, counted from 1; each client in the process is one.
    pub fn connections(mut self, numbers: RangeInclusive<u64>) -> Self {
        self.connections = Some(numbers);
        self
    }

    /// Nothing earlier than this after the server was built, on tokio's clock.
    pub fn from(mut self, time: Duration) -> Self {
        self.from = time;
        self
    }

    /// Nothing as late as this after the server was built, on tokio's clock.
    pub fn until(mut self, time: Duration) -> Self {
        self.until = Some(time);
        self
    }

    /// When the answer has lasted so long. A fault before the answer is held back that long.
    pub fn after(mut self, time: Duration) -> Self {
        self.after = time;
        self
    }

    /// When so many events of a watch (bookmarks are some) or items of a list have passed.
    ///
    /// It changes nothing for a fault before the answer, where no event can have passed; in a script it is an error there.
    pub fn after_events(mut self, events: u64) -> Self {
        if self.fault.stage() != Stage::Request {
            self.after_events = events;
        }
        self
    }

    /// Only events of this type.
    pub fn event(mut self, event: EventType) -> Self {
        self.event = Some(event);
        self
    }

    /// Only every `n`-th of what it could befall; 0 is 1.
    pub fn every(mut self, n: u64) -> Self {
        self.every = n.max(1);
        self
    }

    /// Only this share of what it could befall, from 0 to 1.
    pub fn probability(mut self, share: f64) -> Self {
        self.probability = share.clamp(0.0, 1.0);
        self
    }

    /// At most so often.
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// What it does.
    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// Whether it may befall the request or its answer, at some time.
    pub(crate) fn selects(&self, request: u64, connection: u64, info: &RequestInfo) -> bool {
        let named = |resource: &String| {
            let (plural, group) = resource.split_once('.').unwrap_or((resource, &info.group));
            plural == info.resource && group == info.group
        };
        (self.verbs.is_empty() || info.verb.is_some_and(|verb| self.verbs.contains(&verb)))
            && self.resource.as_ref().is_none_or(named)
            && (self.namespace.is_none() || self.namespace == info.namespace)
            && self.requests.as_ref().is_none_or(|numbers| numbers.contains(&request))
            && self.connections.as_ref().is_none_or(|numbers| numbers.contains(&connection))
    }

    /// Whether `time` after the server was built is a time for it.
    pub(crate) fn is_open(&self, time: Duration) -> bool {
        time >= self.from && !self.is_past(time)
    }

    /// Whether its time is over.
    pub(crate) fn is_past(&self, time: Duration) -> bool {
        self.until.is_some_and(|until| time >= until)
    }
}

/// One line, as in a script.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut head: Vec<String> = Vec::new();
        if !self.verbs.is_empty() {
            let verbs: Vec<_> = self.verbs.iter().map(Verb::to_string).collect();
            head.push(verbs.join("|"));
        }
        head.extend(self.resource.clone());
        if head.is_empty() {
            head.push("any".into());
        }
        write!(f, "{}: {}", head.join(" "), self.fault)?;

        let mut said: Vec<String> = Vec::new();
        let mut time = |word: &str, time: Duration| {
            let mut text = format!("{word} ");
            write_duration(&mut text, time)?;
            said.push(text);
            Ok(())
        };
        if !self.from.is_zero() {
            time("from", self.from)?;
        }
        if let Some(until) = self.until {
            time("until", until)?;
        }
        if !self.after.is_zero() {
            time("after", self.after)?;
        }
        if self.after_events > 0 {
            said.push(format!("after {} events", self.after_events));
        }
        if let Some(event) = &self.event {
            said.push(format!("event {event}"));
        }
        if let Some(namespace) = &self.namespace {
            said.push(format!("namespace {namespace}"));
        }
        for (word, numbers) in [("requests", &self.requests), ("connections", &self.connections)] {
            if let Some(numbers) = numbers {
                said.push(format!("{word} {}..{}", numbers.start(), numbers.end()));
            }
        }
        if self.every > 1 {
            said.push(format!("every {}", self.every));
        }
        if self.probability < 1.0 {
            said.push(format!("probability {}", self.probability));
        }
        if let Some(times) = self.times {
            said.push(format!("{times} times"));
        }
        if said.is_empty() { Ok(()) } else { write!(f, " {}", said.join(", ")) }
    }
}

impl FromStr for Rule {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let (head, body) = text.split_once(':').ok_or_else(|| {
            ScriptError::new(format!("a rule looks like \"watch pods: cut-frame\", not {text:?}"))
        })?;
        let mut words = Words::new(body);
        let mut rule = Self::on(Fault::read(&mut words)?);
        rule.read_head(head)?;
        while let Some(word) = words.next() {
            rule.read_clause(word, &mut words)?;
        }
        if rule.after_events > 0 && rule.fault.stage() == Stage::Request {
            return Err(ScriptError::new(format!(
                "{} comes before the answer, so no event can come first",
                rule.fault
            )));
        }
        Ok(rule)
    }
}

impl Rule {
    fn read_head(&mut self, head: &str) -> Result<(), ScriptError> {
        for word in head.split_whitespace().filter(|word| *word != "any") {
            let verbs: Option<Vec<Verb>> = word.split('|').map(read_verb).collect();
            match verbs {
                Some(verbs) if self.verbs.is_empty() && self.resource.is_none() => self.verbs = verbs,
                None if self.resource.is_none() => self.resource = Some(word.to_owned()),
                _ => return Err(ScriptError::new(format!("{head:?} is more than verbs and one resource"))),
            }
        }
        Ok(())
    }

    fn read_clause(&mut self, word: &str, words: &mut Words<'_>) -> Result<(), ScriptError> {
        match word {
            "from" => self.from = words.duration(word)?,
            "until" => self.until = Some(words.duration(word)?),
            "after" => {
                let next = words.next().unwrap_or_default();
                if let Some(time) = read_duration(next) {
                    self.after = time;
                } else if let Ok(events) = next.parse() {
                    words.expect("events", &format!("after {events}"))?;
                    self.after_events = events;
                } else {
                    let message = format!("a time or a number of events must follow \"after\", not {next:?}");
                    return Err(ScriptError::new(message));
                }
            }
            "event" => {
                let name = words.next().unwrap_or_default();
                match EventType::from(Cow::from(name)) {
                    EventType::Other(_) => {
                        return Err(ScriptError::new(format!("no event type is called {name:?}")));
                    }
                    event => self.event = Some(event),
                }
            }
            "namespace" => match words.next() {
                Some(name) => self.namespace = Some(name.to_owned()),
                None => return Err(ScriptError::new("a name must follow \"namespace\"")),
            },
            "requests" => self.requests = Some(read_range(word, words)?),
            "connections" => self.connections = Some(read_range(word, words)?),
            "every" => self.every = words.number::<u64>(word)?.max(1),
            "probability" => {
                self.probability = words.number(word)?;
                if !(0.0..=1.0).contains(&self.probability) {
                    return Err(ScriptError::new("a probability is between 0 and 1"));
                }
            }
            "once" => self.times = Some(1),
            times => match times.parse() {
                Ok(times) => {
                    words.expect("times", &format!("{times}"))?;
                    self.times = Some(times);
                }
                Err(_) => return Err(ScriptError::new(format!("{times:?} says nothing about a rule"))),
            },
        }
        Ok(())
    }
}

fn read_verb(word: &str) -> Option<Verb> {
    Verb::ALL.into_iter().find(|verb| verb.as_str() == word)
}

/// `5..9`, both ends included, or `5`.
fn read_range(after: &str, words: &mut Words<'_>) -> Result<RangeInclusive<u64>, ScriptError> {
    let word = words.next().unwrap_or_default();
    let (first, last) = word.split_once("..").unwrap_or((word, word));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) => Ok(first..=last),
        _ => Err(ScriptError::new(format!("numbers such as 5 or 5..9 must follow {after:?}, not {word:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(text: &str, rule: &Rule) {
        assert_eq!(text.parse().as_ref(), Ok(rule));
        assert_eq!(rule.to_string().parse().as_ref(), Ok(rule), "{rule}");
    }

    #[test]
    fn everything_that_can_be_said_is_read_and_written() {
        let secs = Duration::from_secs;
        reads("any: refuse", &Rule::on(Fault::Refuse));
        reads(": refuse once", &Rule::on(Fault::Refuse).times(1));
        reads("watch|list: drip 3 bytes per 2s", &{
            Rule::on(Fault::Drip { bytes: 3, every: secs(2) }).verb(Verb::Watch).verb(Verb::List)
        });
        reads(
            "deletecollection deployments.apps: delay 3s from 1s until 9s after 2s requests 5..9 connections 2 every 4 7 times",
            &Rule::on(Fault::Delay(secs(3)))
                .verb(Verb::DeleteCollection)
                .resource("deployments.apps")
                .from(secs(1))
                .until(secs(9))
                .after(secs(2))
                .requests(5..=9)
                .connections(2..=2)
                .every(4)
                .times(7),
        );
        reads(
            "pods: bad-body event MODIFIED, namespace kube-system, after 3 events, probability 0.125",
            &Rule::on(Fault::BadBody)
                .resource("pods")
                .event(EventType::Modified)
                .namespace("kube-system")
                .after_events(3)
                .probability(0.125),
        );
    }

    /// Any rule at all comes back from its text, whatever the seed of this test drew.
    #[test]
    fn any_rule_is_read_as_it_was_written() {
        for seed in 0..2_000 {
            let rule = random_rule(seed);
            assert_eq!(rule.to_string().parse().as_ref(), Ok(&rule), "seed {seed}: {rule}");
        }
    }

    #[test]
    fn a_rule_that_makes_no_sense_is_an_error() {
        for text in [
            "watch pods",
            "watch pods:",
            "watch pods nodes: refuse",
            "watch list: refuse",
            "any: cut-frame 3",
            "any: cut-frame after",
            "any: cut-frame after 3",
            "any: cut-frame probability 2",
            "any: cut-frame sometimes",
            "any: cut-frame event CHANGED",
            "any: cut-frame requests x",
            "any: cut-frame namespace",
            "any: refuse after 3 events",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_resource_is_named_with_or_without_its_group() {
        let uri = "/apis/apps/v1/deployments".parse().unwrap();
        let info = RequestInfo::parse(&http::Method::GET, &uri);
        for (name, expected) in
            [("deployments", true), ("deployments.apps", true), ("deployments.x", false), ("pods", false)]
        {
            assert_eq!(Rule::on(Fault::Refuse).resource(name).selects(1, 1, &info), expected, "{name}");
        }
    }

    #[test]
    fn a_namespace_is_that_of_the_path() {
        for (path, expected) in [
            ("/api/v1/namespaces/a/pods", true),
            ("/api/v1/namespaces/b/pods", false),
            ("/api/v1/pods", false),
        ] {
            let info = RequestInfo::parse(&http::Method::GET, &path.parse().unwrap());
            assert_eq!(Rule::on(Fault::Refuse).namespace("a").selects(1, 1, &info), expected, "{path}");
        }
    }

    fn random_rule(seed: u64) -> Rule {
        let mut random = fastrand::Rng::with_seed(seed);
        let fault = Fault::ALL_KINDS[random.usize(..Fault::ALL_KINDS.len())];
        let mut rule = Rule::on(fault);
        let mut number = |limit: u64| random.bool().then(|| random.u64(1..limit));
        rule.from = Duration::from_nanos(number(u64::MAX).unwrap_or(0));
        rule.until = number(u64::MAX).map(Duration::from_micros);
        rule.after = Duration::from_millis(number(100_000).unwrap_or(0));
        rule.after_events = number(100).filter(|_| fault.stage() != Stage::Request).unwrap_or(0);
        rule.requests = number(50).map(|first| first..=first + 3);
        rule.connections = number(50).map(|first| first..=first);
        rule.every = number(9).unwrap_or(1);
        rule.times = number(9);
        rule.probability = number(1000).map_or(1.0, |share| share as f64 / 1000.0);
        rule.resource = number(2).map(|_| "nodes".to_owned());
        rule.namespace = number(2).map(|_| "default".to_owned());
        rule.event = number(2).map(|_| EventType::Bookmark);
        rule.verbs = number(2).map_or(Vec::new(), |_| vec![Verb::Get, Verb::Patch]);
        rule
    }
}
