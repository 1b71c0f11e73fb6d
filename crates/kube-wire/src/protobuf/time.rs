//! Points in time, between the seconds of protobuf and the text of JSON.

/// The zero time of Go, the start of year 1, which stands for none.
const ZERO: i64 = -62_135_596_800;

/// A point in time; to Kubernetes, whole seconds or microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) seconds: i64,
    pub(super) nanos: i32,
}

impl Time {
    /// Whether this is the time that JSON writes as null.
    pub(super) fn is_zero(self) -> bool {
        self.seconds == ZERO && self.nanos == 0
    }

    /// `2026-01-31T12:00:00Z`, with microseconds or without.
    pub(super) fn to_text(self, micros: bool) -> String {
        let micros_more = i64::from(self.nanos).div_euclid(1_000_000_000);
        let seconds = self.seconds.saturating_add(if micros { micros_more } else { 0 });
        let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = date_of_day(day);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        if micros {
            let micros = i64::from(self.nanos).rem_euclid(1_000_000_000) / 1000;
            return format!("{text}.{micros:06}Z");
        }
        text + "Z"
    }

    /// Reads RFC 3339, with any offset and any fraction.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |at: usize, length: usize| -> Option<i64> {
            let digits = bytes.get(at..at + length)?;
            digits.iter().all(u8::is_ascii_digit).then_some(())?;
            Some(digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
        };
        let sign = |at: usize, sign: u8| (bytes.get(at) == Some(&sign)).then_some(());
        let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
        let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
        for (at, byte) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
            sign(at, byte)?;
        }
        let days = day_of_date(year, month, day)?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut at = 19;
        let mut nanos = 0;
        if matches!(bytes.get(at), Some(b'.' | b',')) {
            let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return None;
            }
            // What is finer than a nanosecond is cut off.
            nanos = number(at + 1, digits.min(9))? * 10_i64.pow(9 - digits.min(9) as u32);
            at += 1 + digits;
        }
        let offset = match bytes.get(at)? {
            b'Z' => {
                at += 1;
                0
            }
            direction @ (b'+' | b'-') => {
                let (hours, minutes) = (number(at + 1, 2)?, number(at + 4, 2)?);
                sign(at + 3, b':')?;
                if hours > 24 || minutes > 60 {
                    return None;
                }
                at += 6;
                (hours * 3600 + minutes * 60) * if *direction == b'-' { -1 } else { 1 }
            }
            _ => return None,
        };
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset;
        (at == bytes.len()).then_some(Self { seconds, nanos: nanos as i32 })
    }
}

/// Days in the 400 years after which the calendar repeats, counted from the first of March: then the leap day is the last.
const CYCLE: i64 = 146_097;

/// From the first of March of year 0 to the first of January 1970.
const EPOCH: i64 = 719_468;

fn date_of_day(day: i64) -> (i64, i64, i64) {
    let day = day.saturating_add(EPOCH);
    let (cycle, day) = (day.div_euclid(CYCLE), day.rem_euclid(CYCLE));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + next_year, month, day_of_month)
}

/// The day of a date, if there is such a date.
fn day_of_date(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (from_march, start) = if month > 2 { (month - 3, year) } else { (month + 9, year - 1) };
    let (cycle, of_cycle) = (start.div_euclid(400), start.rem_euclid(400));
    let days = of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + (153 * from_march + 2) / 5 + day - 1;
    let found = cycle * CYCLE + days - EPOCH;
    // The thirtieth of February is the first or second of March.
    (date_of_day(found) == (year, month, day)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_and_parsed_again() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (ZERO, "0001-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            let time = Time { seconds, nanos: 0 };
            assert_eq!(time.to_text(false), text);
            assert_eq!(Time::parse(text), Some(time));
        }
        for day in (-900_000..3_000_000).step_by(17) {
            let (year, month, date) = date_of_day(day);
            assert_eq!(day_of_date(year, month, date), Some(day));
        }
    }

    #[test]
    fn fractions_and_offsets_are_read() {
        let time = Time { seconds: 1_767_225_600, nanos: 123_456_789 };
        assert_eq!(time.to_text(true), "2026-01-01T00:00:00.123456Z");
        assert_eq!(Time::parse("2026-01-01T01:30:00.1234567891+01:30"), Some(time));
        assert_eq!(Time::parse("2025-12-31T23:00:00.123456789-01:00"), Some(time));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00Zx",
            "2026-01-01T00:00:00+0100",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:00é",
        ] {
            assert_eq!(Time::parse(text), None, "{text}");
        }
    }

    #[test]
    fn any_number_of_seconds_has_a_text() {
        for seconds in [i64::MIN, i64::MIN + 1, -1, 1 << 40, i64::MAX] {
            assert!(Time { seconds, nanos: i32::MIN }.to_text(true).ends_with('Z'));
        }
    }
}
