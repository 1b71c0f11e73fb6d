//! Faults as text: one rule a line, so that what a simulation met can be printed, kept and met again.
//!
//! ```
//! use kube_informer_apiserver::faults::{Faults, Script};
//!
//! let script: Script = "
//!     seed 7
//!     watch pods: too-many-requests retry-after 1s, 3 times   # refusals first
//!     watch: cut-frame after 10s, probability 0.2             # then broken events
//!     list|watch deployments.apps: delay 250ms every 3
//!     any: unavailable from 60s until 90s, connections 1..1
//!     watch: bad-body after 3 events, event MODIFIED, once
//! "
//! .parse()?;
//! assert_eq!(script.rules.len(), 5);
//! let faults = Faults::from(script);
//! # Ok::<(), kube_informer_apiserver::faults::ScriptError>(())
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Rule;

/// Why a script, a rule or a fault cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", .line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct ScriptError {
    /// The line of the script, from 1, if it was one of several.
    line: Option<usize>,
    message: String,
}

/// A seed and rules: what [`Faults::script`](super::Faults::script) gives and `Faults::from(script)` takes.
///
/// Reads and writes the textual form; `#` starts a comment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// What the draws of rules with a probability come from.
    pub seed: u64,
    /// The rules, in the order in which they are asked.
    pub rules: Vec<Rule>,
}

/// One rule a line, after a line with the seed.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        self.rules.iter().try_for_each(|rule| writeln!(f, "{rule}"))
    }
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let at_line = |error: ScriptError| ScriptError { line: Some(index + 1), ..error };
            if let Some(seed) = line.strip_prefix("seed ") {
                script.seed = Words::new(seed).number("seed").map_err(at_line)?;
            } else if !line.is_empty() {
                script.rules.push(line.parse().map_err(at_line)?);
            }
        }
        Ok(script)
    }
}

impl ScriptError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { line: None, message: message.into() }
    }
}

/// The words of a rule. A comma is as good as a blank.
pub(crate) struct Words<'a> {
    rest: std::iter::Peekable<std::vec::IntoIter<&'a str>>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let words: Vec<_> = text.split([' ', '\t', ',']).filter(|word| !word.is_empty()).collect();
        Self { rest: words.into_iter().peekable() }
    }

    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.rest.next()
    }

    /// Takes the next word if it is this one.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        self.rest.next_if_eq(&word).is_some()
    }

    pub(crate) fn expect(&mut self, word: &str, after: &str) -> Result<(), ScriptError> {
        if self.take(word) {
            Ok(())
        } else {
            Err(ScriptError::new(format!("{word:?} must follow {after:?}")))
        }
    }

    pub(crate) fn number<T: FromStr>(&mut self, after: &str) -> Result<T, ScriptError> {
        let word = self.next().unwrap_or_default();
        word.parse().map_err(|_| ScriptError::new(format!("a number must follow {after:?}, not {word:?}")))
    }

    pub(crate) fn duration(&mut self, after: &str) -> Result<Duration, ScriptError> {
        let word = self.next().unwrap_or_default();
        read_duration(word).ok_or_else(|| {
            ScriptError::new(format!("a time such as 10s or 250ms must follow {after:?}, not {word:?}"))
        })
    }
}

/// `10s`, `250ms`, `40us`, `7ns`, `2m`: whole numbers of one unit, so that nothing is rounded.
pub(crate) fn read_duration(word: &str) -> Option<Duration> {
    let digits = word.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = word.split_at(digits);
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "m" => Duration::from_secs(number.checked_mul(60)?),
        "s" => Duration::from_secs(number),
        "ms" => Duration::from_millis(number),
        "us" => Duration::from_micros(number),
        "ns" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The largest unit that says it exactly; what [`read_duration`] reads.
pub(crate) fn write_duration(f: &mut impl fmt::Write, time: Duration) -> fmt::Result {
    match time.subsec_nanos() {
        0 => write!(f, "{}s", time.as_secs()),
        nanos if nanos % 1_000_000 == 0 => write!(f, "{}ms", time.as_millis()),
        nanos if nanos % 1_000 == 0 => write!(f, "{}us", time.as_micros()),
        _ => write!(f, "{}ns", time.as_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verb;
    use crate::faults::Fault;

    #[test]
    fn a_script_is_read_and_written() {
        let text = "\
            seed 7\n\
            watch pods: too-many-requests retry-after 1s 3 times\n\
            watch: cut-frame after 10s, probability 0.2\n";
        let script: Script = text.parse().unwrap();
        assert_eq!(script.seed, 7);
        assert_eq!(
            script.rules[1],
            Rule::on(Fault::CutFrame).verb(Verb::Watch).after(Duration::from_secs(10)).probability(0.2)
        );
        assert_eq!(script.to_string(), text);
    }

    #[test]
    fn comments_and_blank_lines_mean_nothing() {
        assert_eq!("\n# seed 9\n  \nseed 4 # for ever".parse(), Ok(Script { seed: 4, rules: Vec::new() }));
    }

    #[test]
    fn an_error_names_its_line() {
        let error = "seed 1\nwatch pods: cut-frame\nwatch pods cut-frame".parse::<Script>().unwrap_err();
        assert!(error.to_string().starts_with("line 3: "), "{error}");
    }

    #[test]
    fn durations_lose_nothing() {
        for nanos in [0, 1, 999, 1_000, 1_500_000, 250_000_000, 1_000_000_000, 61_000_000_001] {
            let time = Duration::from_nanos(nanos);
            let mut text = String::new();
            write_duration(&mut text, time).unwrap();
            assert_eq!(read_duration(&text), Some(time), "{text}");
        }
        for wrong in ["", "s", "10", "1.5s", "-1s", "10h", "99999999999999999999s", "9999999999999999999m"] {
            assert_eq!(read_duration(wrong), None, "{wrong}");
        }
    }
}
