//! Resource versions: what they are equal to, and which of two is newer.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The `resourceVersion` of an object, a list or a cache.
///
/// Since Kubernetes 1.35 a version is a decimal number of any length without leading zeros, and two versions of the
/// same resource can be compared: the longer is newer, and of two equally long ones the greater.
/// Some servers answer with something else. Such a version equals itself and has no order: [`PartialOrd`] says `None`.
///
/// ```
/// use kube_wire::ResourceVersion;
/// let old = ResourceVersion::from("99");
/// let new = ResourceVersion::from("100");
/// assert!(old < new);
/// assert!(!(old < ResourceVersion::from("v2-abc")));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Repr);

/// Nearly every version in the world fits into 64 bits and then costs no allocation.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Number(u64),
    Text(Arc<str>),
}

impl ResourceVersion {
    /// The version `"0"`: "whatever you have" in a request.
    pub const ANY: Self = Self(Repr::Number(0));

    /// The version as a number, if it is one that fits.
    pub fn as_u64(&self) -> Option<u64> {
        match self.0 {
            Repr::Number(number) => Some(number),
            Repr::Text(_) => None,
        }
    }

    /// Whether this is the version `"0"`, which asks for any state and is older than all others.
    pub fn is_any(&self) -> bool {
        *self == Self::ANY
    }

    /// Whether this version can be compared with another that can.
    pub fn is_comparable(&self) -> bool {
        match &self.0 {
            Repr::Number(_) => true,
            Repr::Text(text) => is_decimal(text),
        }
    }
}

impl From<u64> for ResourceVersion {
    fn from(number: u64) -> Self {
        Self(Repr::Number(number))
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        match text.parse() {
            // `parse` also takes "+7" and "007", which are other texts and so other versions.
            Ok(number) if is_decimal(text) => Self(Repr::Number(number)),
            _ => Self(Repr::Text(text.into())),
        }
    }
}

impl From<String> for ResourceVersion {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl PartialOrd for ResourceVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Repr::Number(a), Repr::Number(b)) => Some(a.cmp(b)),
            (Repr::Text(a), Repr::Text(b)) if a == b => Some(Ordering::Equal),
            _ if self.is_comparable() && other.is_comparable() => {
                let (a, b) = (self.to_string(), other.to_string());
                Some(a.len().cmp(&b.len()).then_with(|| a.cmp(&b)))
            }
            _ => None,
        }
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Number(number) => number.fmt(f),
            Repr::Text(text) => text.fmt(f),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{self}")
    }
}

fn is_decimal(text: &str) -> bool {
    text == "0" || (!text.is_empty() && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(a: &str, b: &str) -> Option<Ordering> {
        ResourceVersion::from(a).partial_cmp(&ResourceVersion::from(b))
    }

    #[test]
    fn numbers_of_any_length_are_ordered() {
        assert_eq!(order("9", "10"), Some(Ordering::Less));
        assert_eq!(order("10", "10"), Some(Ordering::Equal));
        assert_eq!(order("99999999999999999999999", "100000000000000000000000"), Some(Ordering::Less));
        assert_eq!(order("18446744073709551616", "18446744073709551615"), Some(Ordering::Greater));
    }

    #[test]
    fn odd_versions_equal_themselves_and_nothing_else() {
        assert_eq!(order("abc", "abc"), Some(Ordering::Equal));
        assert_eq!(order("abc", "abd"), None);
        assert_eq!(order("007", "7"), None);
        assert_eq!(order("+7", "7"), None);
        assert_ne!(ResourceVersion::from("007"), ResourceVersion::from("7"));
    }

    #[test]
    fn the_text_comes_back_as_it_was() {
        for text in ["0", "7", "007", "+7", "", "x", "340282366920938463463374607431768211456"] {
            assert_eq!(ResourceVersion::from(text).to_string(), text);
        }
    }
}
