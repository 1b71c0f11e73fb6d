//! Quantities in their canonical form, as Go writes them.

use std::borrow::Cow;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `1500m`, `2k`.
    Decimal,
    /// `12e6`.
    Exponent,
    /// `2Gi`.
    Binary,
}

const DECIMAL: [(&str, i64); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

const BINARY: [(&str, i64); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// The canonical form of a quantity, or `None` if it is none.
///
/// Go takes a few texts as they are that are not quite canonical (`007`, `1.500`), and so does this.
pub(super) fn canonical(text: &str) -> Option<Cow<'_, str>> {
    if text == "0" {
        return Some(Cow::Borrowed(text));
    }
    let parts = split(text)?;
    let (exponent, format) = interpret(parts.suffix)?;
    let digits: String = [parts.whole, parts.fraction].concat();
    // Most quantities fit into 64 bits and are exact; only these are looked at for being canonical already.
    let room = match format {
        Format::Decimal | Format::Exponent => 18 - length(&digits),
        Format::Binary if parts.fraction.is_empty() => 14 - length(&digits) - exponent * 3 / 10,
        Format::Binary => -1,
    };
    let scale = if format == Format::Binary { 0 } else { exponent - length(parts.fraction) };
    if room >= 0 && scale >= -9 {
        let value: i64 = digits.parse().ok()?;
        let as_is = match format {
            Format::Binary => value & 7 != 0,
            _ => scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0'),
        };
        if as_is {
            return Some(Cow::Borrowed(text));
        }
        let factor = if format == Format::Binary { 1_i64 << exponent } else { 1 };
        let number = Number { digits: (value * factor).to_string(), scale };
        return Some(Cow::Owned(number.print(parts.negative, format)));
    }
    // Anything else must at least have a digit.
    if !text.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut number = Number { digits, scale: -length(parts.fraction) };
    match format {
        Format::Binary => number.double(exponent),
        _ => number.scale += exponent,
    }
    number.round_up_to_nano();
    if format == Format::Binary && number.exceeds_i64() {
        number = Number { digits: i64::MAX.to_string(), scale: 0 };
    }
    Some(Cow::Owned(number.print(parts.negative, format)))
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

struct Parts<'a> {
    negative: bool,
    /// Digits in front of the point, without leading zeros, but at least one.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Option<Parts<'_>> {
    if text.is_empty() {
        return None;
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = unsigned.split_at(digits(unsigned));
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    Some(Parts { negative: text.starts_with('-'), whole, fraction, suffix })
}

/// The power of ten, or of two for a binary suffix, that a suffix stands for.
fn interpret(suffix: &str) -> Option<(i64, Format)> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some((*exponent, Format::Decimal));
    }
    if let Some((_, exponent)) = BINARY.iter().find(|(known, _)| *known == suffix) {
        return Some((*exponent, Format::Binary));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((exponent.into(), Format::Exponent))
}

/// `digits` times ten to the power of `scale`.
struct Number {
    digits: String,
    scale: i64,
}

impl Number {
    /// Multiplies by two to the power of at most 60.
    fn double(&mut self, power: i64) {
        let mut carry = 0_u128;
        let mut digits: Vec<u8> = Vec::with_capacity(self.digits.len() + 20);
        for digit in self.digits.bytes().rev() {
            carry += u128::from(digit - b'0') << power;
            digits.push(b'0' + (carry % 10) as u8);
            carry /= 10;
        }
        while carry > 0 {
            digits.push(b'0' + (carry % 10) as u8);
            carry /= 10;
        }
        self.digits = digits.iter().rev().map(|digit| char::from(*digit)).collect();
    }

    /// Nothing is finer than a billionth; what is asks for at least that much.
    fn round_up_to_nano(&mut self) {
        if self.scale >= -9 {
            return;
        }
        let surplus = usize::try_from(-9 - self.scale).unwrap_or(usize::MAX);
        let kept = self.digits.len().saturating_sub(surplus);
        let up = self.digits[kept..].bytes().any(|digit| digit != b'0');
        self.digits.truncate(kept);
        self.scale = -9;
        if up {
            // Adding one: the nines at the end become zeros, the digit in front of them one more.
            let nines = self.digits.bytes().rev().take_while(|digit| *digit == b'9').count();
            self.digits.truncate(kept - nines);
            let digit = self.digits.pop().map_or('1', |digit| char::from(digit as u8 + 1));
            self.digits.push(digit);
            self.digits.extend(std::iter::repeat_n('0', nines));
        }
    }

    fn exceeds_i64(&self) -> bool {
        let (whole, fraction) = self.digits.split_at(self.digits.len().saturating_sub(-self.scale as usize));
        let whole = whole.trim_start_matches('0');
        if whole.len() > 19 {
            return true;
        }
        let whole: i128 = whole.parse().unwrap_or_default();
        let rest = fraction.bytes().any(|digit| digit != b'0');
        whole > i128::from(i64::MAX) || (whole == i128::from(i64::MAX) && rest)
    }

    fn print(mut self, negative: bool, mut format: Format) -> String {
        let stripped = self.digits.trim_start_matches('0').trim_end_matches('0');
        if stripped.is_empty() {
            return "0".into();
        }
        self.scale += length(&self.digits) - length(self.digits.trim_end_matches('0'));
        self.digits = stripped.to_owned();
        let sign = if negative { "-" } else { "" };
        if format == Format::Binary {
            match self.as_integer() {
                Some(mut value) if value >= 1024 => {
                    let mut power = 0;
                    while value % 1024 == 0 {
                        (value, power) = (value / 1024, power + 10);
                    }
                    let suffix = BINARY.iter().find(|(_, known)| *known == power).map_or("", |known| known.0);
                    return format!("{sign}{value}{suffix}");
                }
                // Small numbers and fractions are no powers of two: shown as decimals, nothing is lost.
                _ => format = Format::Decimal,
            }
        }
        // The exponent is a multiple of three.
        let zeros = self.scale.rem_euclid(3);
        self.digits.extend(std::iter::repeat_n('0', zeros as usize));
        let exponent = self.scale - zeros;
        let suffix = match format {
            Format::Exponent if exponent == 0 => String::new(),
            Format::Exponent => format!("e{exponent}"),
            // Go has no suffix beyond these either, and leaves it out.
            _ => DECIMAL.iter().find(|(_, known)| *known == exponent).map_or("", |known| known.0).into(),
        };
        format!("{sign}{}{suffix}", self.digits)
    }

    fn as_integer(&self) -> Option<u128> {
        let zeros = u32::try_from(self.scale).ok()?;
        self.digits.parse::<u128>().ok()?.checked_mul(10_u128.checked_pow(zeros)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_become_canonical() {
        // Many more, with what Go makes of them, are in the corpus.
        for (text, expected) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1024Ki", "1Mi"),
            ("12e4", "120e3"),
            ("0.9999999999", "1"),
            ("1.500", "1.500"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in
            ["", "x", "1x", "1 ", "1.2.3", "1e", "1e99999999999", "1KiKi", "--1", "1ee3", "é", "1\u{660}"]
        {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
