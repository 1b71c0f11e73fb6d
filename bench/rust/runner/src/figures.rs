//! Collects figures over rounds, and shows them: a table for people, a line of JSON for programs.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;

use serde_json::{Map, Value, json};

use crate::settings::Settings;

/// The value of a time that was not reached within the limit of the case; `null` in JSON.
pub(crate) const UNREACHED: f64 = f64::INFINITY;

/// What a case has measured.
pub(crate) struct Report {
    case: &'static str,
    /// What the reader must know: how it was measured, with which settings.
    notes: Vec<String>,
    rounds: usize,
    participants: Vec<String>,
    figures: Vec<String>,
    /// Whether figures are the rows of the table, because there are more of them than of participants.
    by_figure: bool,
    /// How a value that was not reached in time is shown.
    unreached: String,
    values: BTreeMap<(String, String), Vec<f64>>,
    goals: Vec<Goal>,
}

/// What a figure of ours should be at most.
struct Goal {
    figure: String,
    /// The limit in words.
    limit: String,
    most: f64,
}

/// Results of cases that ran before: in this run, or noted in the file.
pub(crate) struct Earlier(Vec<Value>);

impl Earlier {
    pub(crate) fn of(settings: &Settings) -> anyhow::Result<Self> {
        let text = match &settings.json {
            Some(path) if path.exists() => fs::read_to_string(path)?,
            _ => String::new(),
        };
        Ok(Self(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()))
    }

    pub(crate) fn push(&mut self, result: Value) {
        self.0.push(result);
    }

    /// The last result of a case.
    pub(crate) fn last(&self, case: &str) -> Option<&Value> {
        self.0.iter().rfind(|result| result["case"] == case)
    }
}

impl Report {
    pub(crate) fn new(case: &'static str, rounds: usize) -> Self {
        Self {
            case,
            notes: vec![],
            rounds,
            participants: vec![],
            figures: vec![],
            by_figure: false,
            unreached: "not reached".into(),
            values: BTreeMap::new(),
            goals: vec![],
        }
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Names participants in the order of the table, whoever comes first in a round.
    pub(crate) fn order<'a>(&mut self, participants: impl IntoIterator<Item = &'a str>) {
        self.participants.extend(participants.into_iter().map(str::to_owned));
    }

    /// Lets the table have a row for each figure instead of one for each participant.
    pub(crate) fn by_figure(&mut self) {
        self.by_figure = true;
    }

    /// Says how a value of [`UNREACHED`] is shown.
    pub(crate) fn show_unreached_as(&mut self, text: impl Into<String>) {
        self.unreached = text.into();
    }

    /// States a goal: a figure of ours is at most so much. `limit` says where that number comes from, if it is not fixed.
    pub(crate) fn goal(&mut self, figure: &str, most: f64, limit: &str) {
        let number = self.short(most);
        let limit = if limit.is_empty() { number } else { format!("{limit} ({number})") };
        self.goals.push(Goal { figure: figure.to_owned(), limit, most });
    }

    /// Adds a round's figure of a participant; figures are named with their unit.
    pub(crate) fn add(&mut self, participant: &str, figure: &str, value: f64) {
        for (names, name) in [(&mut self.participants, participant), (&mut self.figures, figure)] {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        self.values.entry((participant.to_owned(), figure.to_owned())).or_default().push(value);
    }

    /// What a participant's figure is, over the rounds so far.
    pub(crate) fn median(&self, participant: &str, figure: &str) -> Option<f64> {
        self.summary(participant, figure).map(|(median, ..)| median)
    }

    /// Prints the table and the line of JSON, which is appended to a file as well if one was named, and given back.
    pub(crate) fn print(&self, settings: &Settings) -> anyhow::Result<Value> {
        println!("\n## {}{}\n", self.case, if settings.quick { " (quick)" } else { "" });
        for note in &self.notes {
            println!("- {note}");
        }
        let (rows, columns) = match self.by_figure {
            false => (&self.participants, &self.figures),
            true => (&self.figures, &self.participants),
        };
        println!("\n| | {} |", columns.join(" | "));
        println!("|---|{}", "---:|".repeat(columns.len()));
        for row in rows {
            let cell = |column: &String| match self.by_figure {
                false => self.cell(row, column),
                true => self.cell(column, row),
            };
            println!("| {row} | {} |", columns.iter().map(cell).collect::<Vec<_>>().join(" | "));
        }
        if !self.goals.is_empty() {
            println!("\n| goal | ours | |\n|---|---:|---|");
        }
        for goal in &self.goals {
            let ours = self.cell("ours", &goal.figure);
            println!("| {} at most {} | {ours} | {} |", goal.figure, goal.limit, self.verdict(goal));
        }
        let result = self.json(settings);
        let line = result.to_string();
        println!("\n{line}");
        if let Some(path) = &settings.json {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            writeln!(file, "{line}")?;
        }
        Ok(result)
    }

    fn cell(&self, participant: &str, figure: &str) -> String {
        let Some((median, low, high)) = self.summary(participant, figure) else { return "–".into() };
        if low == high {
            self.short(median)
        } else {
            format!("{} ({}–{})", self.short(median), self.short(low), self.short(high))
        }
    }

    fn verdict(&self, goal: &Goal) -> &'static str {
        match self.median("ours", &goal.figure) {
            Some(ours) if ours <= goal.most && ours.is_finite() => "reached",
            Some(_) => "missed",
            None => "not measured",
        }
    }

    fn short(&self, value: f64) -> String {
        if value.is_finite() { short(value) } else { self.unreached.clone() }
    }

    fn json(&self, settings: &Settings) -> Value {
        let (mut results, mut spread, mut ratio) = (Map::new(), Map::new(), Map::new());
        for participant in &self.participants {
            let (mut medians, mut ranges) = (Map::new(), Map::new());
            for figure in &self.figures {
                if let Some((median, low, high)) = self.summary(participant, figure) {
                    medians.insert(figure.clone(), rounded(median));
                    ranges.insert(figure.clone(), json!([rounded(low), rounded(high)]));
                }
            }
            results.insert(participant.clone(), medians.into());
            spread.insert(participant.clone(), ranges.into());
        }
        for figure in &self.figures {
            let median = |name| self.median(name, figure);
            if let (Some(ours), Some(theirs)) = (median("ours"), median("client_go"))
                && ours > 0.0
                && theirs > 0.0
                && (ours + theirs).is_finite()
            {
                ratio.insert(figure.clone(), rounded(ours / theirs));
            }
        }
        let versions: Map<String, Value> =
            settings.versions.iter().map(|(name, version)| (name.clone(), version.clone().into())).collect();
        let mut result = json!({
            "case": self.case, "quick": settings.quick, "pods": settings.pods, "versions": versions,
            "rounds": self.rounds, "results": results, "ratio": ratio, "spread": spread,
        });
        if !self.goals.is_empty() {
            let goals = self.goals.iter().map(|goal| {
                json!({ "figure": goal.figure, "most": rounded(goal.most), "verdict": self.verdict(goal) })
            });
            result["goals"] = goals.collect();
        }
        result
    }

    fn summary(&self, participant: &str, figure: &str) -> Option<(f64, f64, f64)> {
        let mut values = self.values.get(&(participant.to_owned(), figure.to_owned()))?.clone();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some((median, low, high))
    }
}

/// Three digits that count.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn rounded(value: f64) -> Value {
    json!((value * 10_000.0).round() / 10_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let mut report = Report::new("x", 4);
        for value in [4.0, 1.0, 3.0, 2.0] {
            report.add("ours", "sync_s", value);
        }
        assert_eq!(report.summary("ours", "sync_s"), Some((2.5, 1.0, 4.0)));
        assert_eq!(report.summary("ours", "cpu_s"), None);
    }

    #[test]
    fn a_goal_is_reached_by_the_median_and_missed_by_a_time_that_was_not_reached() {
        let mut report = Report::new("x", 1);
        report.show_unreached_as("not within 120 s");
        report.add("ours", "fresh_s", 2.0);
        report.add("ours", "late_s", UNREACHED);
        report.goal("fresh_s", 3.0, "");
        report.goal("late_s", UNREACHED, "client_go's + 25");
        report.goal("other_s", 3.0, "");
        let verdicts: Vec<_> = report.goals.iter().map(|goal| report.verdict(goal)).collect();
        assert_eq!(verdicts, ["reached", "missed", "not measured"]);
        assert_eq!(report.cell("ours", "late_s"), "not within 120 s");
        assert_eq!(report.goals[1].limit, "client_go's + 25 (not within 120 s)");
        assert_eq!(rounded(UNREACHED), Value::Null);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(0.0, "0"), (12345.6, "12346"), (12.34, "12.3"), (1.234, "1.23"), (0.1234, "0.123")]
        {
            assert_eq!(short(value), text);
        }
    }
}
