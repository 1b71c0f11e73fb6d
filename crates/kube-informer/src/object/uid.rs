//! The uid of an object: sixteen bytes where it is a UUID, which it nearly always is.

use std::fmt;
use std::sync::Arc;

/// Tells an object from an earlier or later one of the same name.
///
/// Kept in sixteen bytes where it is a UUID in the usual form; any other text is kept as it is.
///
/// ```
/// use kube_informer::Uid;
/// let uid = Uid::from("0f6d3c7e-8f5b-4f6e-9f0a-3d1c2b4a5968");
/// assert_eq!(uid, *"0f6d3c7e-8f5b-4f6e-9f0a-3d1c2b4a5968");
/// assert_eq!(Uid::from("any text").to_string(), "any text");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(Repr);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Repr {
    Uuid([u8; 16]),
    Text(Arc<str>),
}

/// Where the dashes of a UUID stand.
const DASHES: [usize; 4] = [8, 13, 18, 23];

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self(parse(text.as_bytes()).map_or_else(|| Repr::Text(text.into()), Repr::Uuid))
    }
}

/// The bytes of a UUID that is written as Kubernetes writes them: with dashes, in lower case.
fn parse(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != 36 || DASHES.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 16];
    let mut at = 0;
    for byte in &mut bytes {
        at += usize::from(DASHES.contains(&at));
        *byte = digit(text[at])? << 4 | digit(text[at + 1])?;
        at += 2;
    }
    Some(bytes)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match &self.0 {
            Repr::Uuid(bytes) => bytes,
            Repr::Text(text) => return f.pad(text),
        };
        let mut text = [b'-'; 36];
        let mut at = 0;
        for byte in bytes {
            at += usize::from(DASHES.contains(&at));
            text[at] = b"0123456789abcdef"[usize::from(byte >> 4)];
            text[at + 1] = b"0123456789abcdef"[usize::from(byte & 15)];
            at += 2;
        }
        f.pad(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, other: &str) -> bool {
        match &self.0 {
            Repr::Uuid(bytes) => parse(other.as_bytes()).is_some_and(|other| other == *bytes),
            Repr::Text(text) => **text == *other,
        }
    }
}

impl serde::Serialize for Uid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_printed_as_it_was() {
        let uuid = "0f6d3c7e-8f5b-4f6e-9f0a-3d1c2b4a5968";
        let upper = uuid.to_uppercase();
        let short = &uuid[1..];
        let strange = uuid.replace('-', "0");
        for text in [uuid, &upper, short, &strange, "", "a", "0f6d3c7e-8f5b-4f6e-9f0a-3d1c2b4a596g"] {
            let uid = Uid::from(text);
            assert_eq!(uid.to_string(), text);
            assert_eq!(uid, *text);
            assert_eq!(matches!(uid.0, Repr::Uuid(_)), text == uuid);
        }
        assert_ne!(Uid::from(uuid), Uid::from(&*upper));
        assert_eq!(format!("{:.8}", Uid::from(uuid)), "0f6d3c7e");
    }
}
