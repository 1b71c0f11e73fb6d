//! The command line of a simulation: which seeds to run.

/// The seeds that were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seeds {
    /// One seed, with everything that happens.
    One(u64),
    /// Many seeds in a row.
    Many { first: u64, count: u64, stop_at_first: bool },
}

impl Seeds {
    /// Reads `--seed SEED`, or `--seeds COUNT [--first SEED] [--stop-at-first]`; `None` for anything else.
    ///
    /// Without `--first` the first seed is drawn: the same seeds again would be a fixed test, not a search.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Option<Self> {
        let (mut one, mut count, mut first, mut stop_at_first) = (None, None, None, false);
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut number = || arguments.next()?.parse::<u64>().ok();
            match argument.as_str() {
                "--seed" => one = Some(number()?),
                "--seeds" => count = Some(number()?),
                "--first" => first = Some(number()?),
                "--stop-at-first" => stop_at_first = true,
                _ => return None,
            }
        }
        match (one, count) {
            (Some(seed), None) if first.is_none() => Some(Self::One(seed)),
            (None, Some(count)) => {
                let first = first.unwrap_or_else(|| fastrand::u64(..1 << 40));
                Some(Self::Many { first, count, stop_at_first })
            }
            _ => None,
        }
    }
}

/// Says now and then how far a long run is: called before each seed.
pub fn progress(first: u64, seed: u64, count: u64) {
    let begun = seed - first;
    if begun > 0 && begun.is_multiple_of(10_000) {
        eprintln!("{begun} of {count} seeds");
    }
}
