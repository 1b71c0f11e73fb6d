//! Sentences that are made from counters, so that they cannot claim what did not happen.

/// `1 request`, `2 requests`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// How the connection fared after the first list: how often it broke, and the lists and watches that followed.
pub(super) fn connection(breaks: u64, lists: u64, watches: u64) -> String {
    let times = match breaks {
        0 => "the connection never broke".to_owned(),
        1 => "the connection broke once".to_owned(),
        more => format!("the connection broke {more} times"),
    };
    let then = match (breaks, lists, watches) {
        (0, 0, _) => String::new(),
        (0, lists, _) => format!(", but {} followed", counted(lists, "new LIST")),
        (_, 0, 0) => ", and was not resumed".to_owned(),
        (_, 0, _) => ", and was resumed without a new LIST".to_owned(),
        (_, lists, _) => format!(", and {} followed", counted(lists, "new LIST")),
    };
    times + &then
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_say_what_the_counters_say() {
        for (counters, expected) in [
            ((0, 0, 0), "the connection never broke"),
            ((0, 2, 1), "the connection never broke, but 2 new LISTs followed"),
            ((1, 0, 1), "the connection broke once, and was resumed without a new LIST"),
            ((1, 0, 0), "the connection broke once, and was not resumed"),
            ((1, 1, 0), "the connection broke once, and 1 new LIST followed"),
            ((3, 2, 2), "the connection broke 3 times, and 2 new LISTs followed"),
        ] {
            let (breaks, lists, watches) = counters;
            assert_eq!(connection(breaks, lists, watches), expected, "{counters:?}");
        }
        assert_eq!((counted(1, "request"), counted(2, "request")), ("1 request".into(), "2 requests".into()));
    }
}
