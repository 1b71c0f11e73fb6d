//! Watch events, one a line.

use std::borrow::Cow;
use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

use super::{Cursor, MAX_ITEM_BYTES};
use crate::WireError;

/// What a watch event says happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object is new, or new to this selection.
    Added,
    /// The object has changed.
    Modified,
    /// The object is gone, or has left this selection.
    Deleted,
    /// Nothing happened up to this version.
    Bookmark,
    /// The watch has failed; the object is a `Status`.
    Error,
    /// Something this code does not know.
    Other(String),
}

/// One event: its type, and its object as the bytes it was.
#[derive(Clone, PartialEq, Eq)]
pub struct WatchEvent<'a> {
    /// What happened.
    pub kind: EventType,
    /// The object, undecoded.
    pub object: &'a [u8],
}

/// The size of the object, not its content: it may be a secret.
impl fmt::Debug for WatchEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchEvent({:?}, {} bytes)", self.kind, self.object.len())
    }
}

impl<'a> WatchEvent<'a> {
    /// Reads the envelope of an event and leaves the object alone.
    pub fn parse(line: &'a [u8]) -> Result<Self, WireError> {
        let mut cursor = Cursor::new(line);
        let (mut kind, mut object) = (None, None);
        cursor.expect(b'{', "'{'")?;
        let mut first = true;
        while let Some(key) = cursor.next_member(&mut first)? {
            match &*key {
                "type" => kind = Some(cursor.string()?),
                "object" => object = Some(&line[cursor.skip_value()?]),
                _ => {
                    cursor.skip_value()?;
                }
            }
        }
        if cursor.peek().is_some() {
            return Err(cursor.error("the end of the event"));
        }
        match (kind, object) {
            (Some(kind), Some(object)) => Ok(Self { kind: EventType::from(kind), object }),
            _ => Err(cursor.error("an event with type and object")),
        }
    }
}

impl From<Cow<'_, str>> for EventType {
    fn from(text: Cow<'_, str>) -> Self {
        match &*text {
            "ADDED" => Self::Added,
            "MODIFIED" => Self::Modified,
            "DELETED" => Self::Deleted,
            "BOOKMARK" => Self::Bookmark,
            "ERROR" => Self::Error,
            _ => Self::Other(text.into_owned()),
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
            Self::Other(other) => other,
        })
    }
}

/// Writes an event as one line, newline included. The object must be JSON without raw newlines.
pub fn write_event(out: &mut Vec<u8>, kind: &EventType, object: &[u8]) {
    out.reserve(object.len() + 40);
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(kind.to_string().as_bytes());
    out.extend_from_slice(br#"","object":"#);
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
}

/// Splits a stream into lines: chunks in as they come, complete lines out.
pub struct LineSplitter {
    buffer: BytesMut,
    scanned: usize,
    limit: usize,
}

/// How much waits, not what: it may be a secret.
impl fmt::Debug for LineSplitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineSplitter").field("buffered", &self.buffer.len()).finish_non_exhaustive()
    }
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::with_limit(MAX_ITEM_BYTES)
    }
}

impl LineSplitter {
    /// A splitter that refuses lines longer than this.
    pub fn with_limit(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), scanned: 0, limit }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete line without its newline; blank lines are passed over.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, WireError> {
        while let Some(found) = memchr::memchr(b'\n', &self.buffer[self.scanned..]) {
            let mut line = self.buffer.split_to(self.scanned + found);
            self.buffer.advance(1);
            self.scanned = 0;
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            if line.len() > self.limit {
                return Err(WireError::TooLarge { limit: self.limit });
            }
            if !line.is_empty() {
                return Ok(Some(line.freeze()));
            }
        }
        self.scanned = self.buffer.len();
        if self.scanned > self.limit {
            return Err(WireError::TooLarge { limit: self.limit });
        }
        Ok(None)
    }

    /// Ends the stream: an error if it ended inside a line.
    pub fn finish(self) -> Result<(), WireError> {
        if self.buffer.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        Err(WireError::Truncated { inside: "a watch event" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_written_and_read_again() {
        let mut stream = Vec::new();
        write_event(&mut stream, &EventType::Added, br#"{"metadata":{"name":"a"}}"#);
        write_event(&mut stream, &EventType::Other("STRANGE".into()), b"{}");
        for size in 1..stream.len() {
            let mut lines = LineSplitter::default();
            let mut events = Vec::new();
            for chunk in stream.chunks(size) {
                lines.push(chunk);
                while let Some(line) = lines.next_line().unwrap() {
                    let event = WatchEvent::parse(&line).unwrap();
                    events.push(format!("{} {}", event.kind, std::str::from_utf8(event.object).unwrap()));
                }
            }
            lines.finish().unwrap();
            assert_eq!(events, [r#"ADDED {"metadata":{"name":"a"}}"#, "STRANGE {}"]);
        }
    }

    #[test]
    fn members_may_come_in_any_order_and_unknown_ones_are_passed_over() {
        let event = WatchEvent::parse(br#" {"x":[{}], "object" : {"a":"}"} , "type":"BOOKMARK"} "#).unwrap();
        assert_eq!(event, WatchEvent { kind: EventType::Bookmark, object: br#"{"a":"}"}"# });
    }

    #[test]
    fn a_line_that_is_no_event_is_an_error() {
        for line in [
            "",
            "{}",
            "[]",
            "7",
            r#"{"type":"ADDED"}"#,
            r#"{"type":7,"object":{}}"#,
            r#"{"type":"ADDED","object":{}"#,
        ] {
            assert!(WatchEvent::parse(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn a_stream_that_ends_inside_a_line_says_so() {
        let mut lines = LineSplitter::with_limit(8);
        lines.push(b"\n\r\nabc\r\nde");
        assert_eq!(lines.next_line().unwrap().unwrap(), "abc");
        assert_eq!(lines.next_line().unwrap(), None);
        lines.push(b"fghijklm");
        assert!(matches!(lines.next_line(), Err(WireError::TooLarge { limit: 8 })));
        assert!(lines.finish().is_err());
    }
}
