//! The envelope around every object: magic bytes, then the kind and the object's own bytes.

use super::MEDIA_TYPE;
use super::wire::{Reader, put_bytes, put_head, put_message};
use crate::WireError;

/// What every enveloped object starts with.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// An object or list in its envelope (`runtime.Unknown` in Go).
///
/// ```
/// use kube_wire::protobuf::Envelope;
/// let mut bytes = Vec::new();
/// Envelope { api_version: "v1", kind: "Pod", raw: b"\x0a\x00" }.write(&mut bytes);
/// let pod = Envelope::parse(&bytes).unwrap();
/// assert_eq!((pod.api_version, pod.kind, pod.raw), ("v1", "Pod", &b"\x0a\x00"[..]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Envelope<'a> {
    /// The object's `apiVersion`.
    pub api_version: &'a str,
    /// The object's `kind`.
    pub kind: &'a str,
    /// The bare object: its message and nothing else.
    pub raw: &'a [u8],
}

/// The size of the object, not its content: it may be a secret.
impl std::fmt::Debug for Envelope<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Envelope({} {}, {} bytes)", self.api_version, self.kind, self.raw.len())
    }
}

impl<'a> Envelope<'a> {
    /// Opens the envelope and leaves the object alone.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let message = bytes
            .strip_prefix(&MAGIC)
            .ok_or(WireError::Protobuf { at: 0, expected: "the four bytes \"k8s\\0\"" })?;
        let mut envelope = Self::default();
        let mut reader = Reader::new(message);
        while let Some(field) = reader.next_field()? {
            match field.number {
                1 => (envelope.api_version, envelope.kind) = type_meta(field.value.bytes()?)?,
                2 => envelope.raw = field.value.bytes()?,
                3 | 4 => check_content(field.number, field.value.bytes()?)?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    /// Writes magic and envelope, byte for byte as Go does.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.raw.len() + self.api_version.len() + self.kind.len() + 24);
        write_head(out, self.api_version, self.kind, self.raw.len());
        out.extend_from_slice(self.raw);
        write_tail(out);
    }
}

/// Everything in front of the object's bytes, which are this long.
pub(super) fn write_head(out: &mut Vec<u8>, api_version: &str, kind: &str, raw_length: usize) {
    out.extend_from_slice(&MAGIC);
    let _ = put_message(out, 1, |out| {
        put_bytes(out, 1, api_version.as_bytes());
        put_bytes(out, 2, kind.as_bytes());
        Ok::<_, std::convert::Infallible>(())
    });
    put_head(out, 2, raw_length);
}

/// Everything behind the object's bytes: an empty content encoding and content type.
pub(super) fn write_tail(out: &mut Vec<u8>) {
    put_bytes(out, 3, b"");
    put_bytes(out, 4, b"");
}

/// `apiVersion` and `kind` of a `runtime.TypeMeta`.
pub(super) fn type_meta(message: &[u8]) -> Result<(&str, &str), WireError> {
    let (mut api_version, mut kind) = ("", "");
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next_field()? {
        match field.number {
            1 => api_version = text(field.value.bytes()?)?,
            2 => kind = text(field.value.bytes()?)?,
            _ => {}
        }
    }
    Ok((api_version, kind))
}

/// Refuses an envelope whose content is packed in a way nobody has defined yet.
pub(super) fn check_content(number: u32, value: &[u8]) -> Result<(), WireError> {
    let fine = value.is_empty() || (number == 4 && value == MEDIA_TYPE.as_bytes());
    if fine {
        Ok(())
    } else {
        Err(WireError::Protobuf { at: 0, expected: "an envelope around plain protobuf" })
    }
}

fn text(bytes: &[u8]) -> Result<&str, WireError> {
    std::str::from_utf8(bytes).map_err(|_| WireError::Protobuf { at: 0, expected: "UTF-8" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_has_the_bytes_that_go_writes() {
        let mut bytes = Vec::new();
        Envelope { api_version: "v1", kind: "Pod", raw: b"abc" }.write(&mut bytes);
        assert_eq!(bytes, b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x03abc\x1a\0\x22\0");
    }

    #[test]
    fn what_is_no_envelope_is_an_error() {
        let mut whole = Vec::new();
        Envelope { api_version: "apps/v1", kind: "Deployment", raw: &[0x0a; 300] }.write(&mut whole);
        // Cut between two fields it is a shorter envelope, cut anywhere else an error.
        let fields = [4, 27, 330, 332];
        for end in 0..whole.len() {
            assert_eq!(Envelope::parse(&whole[..end]).is_ok(), fields.contains(&end), "cut at {end}");
        }
        assert!(Envelope::parse(b"{\"kind\":\"Pod\"}").is_err());
        assert!(Envelope::parse(b"k8s\0\x1a\x04gzip").is_err());
        assert!(Envelope::parse(b"k8s\0\x22\x10application/json").is_err());
        assert!(Envelope::parse(b"k8s\0\x10\x01").is_err());
        assert!(Envelope::parse(b"k8s\0\x0a\x03\x0a\x01\xff").is_err());
    }
}
