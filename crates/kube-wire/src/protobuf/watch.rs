//! Watch events, one a frame.

use bytes::{Buf, Bytes, BytesMut};

use super::envelope::Envelope;
use super::wire::{Reader, put_bytes, put_message};
use crate::WireError;
use crate::json::{EventType, MAX_ITEM_BYTES};

/// One event: its type, and its object as the bytes it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent<'a> {
    /// What happened.
    pub kind: EventType,
    /// The object, undecoded, with the kind it says it is: a `Status` if the watch has failed.
    pub object: Envelope<'a>,
}

impl<'a> WatchEvent<'a> {
    /// Reads the envelopes of an event and leaves the object alone.
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        let (mut kind, mut object) = (None, None);
        let mut reader = Reader::new(frame);
        while let Some(field) = reader.next_field()? {
            match field.number {
                1 => kind = Some(String::from_utf8_lossy(field.value.bytes()?)),
                2 => object = raw_extension(field.value.bytes()?)?,
                _ => {}
            }
        }
        match (kind, object) {
            (Some(kind), Some(object)) => {
                Ok(Self { kind: EventType::from(kind), object: Envelope::parse(object)? })
            }
            _ => Err(WireError::Protobuf { at: frame.len(), expected: "an event with type and object" }),
        }
    }
}

/// Writes an event as one frame, length included, byte for byte as Go does.
pub fn write_event(out: &mut Vec<u8>, kind: &EventType, object: &Envelope<'_>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put_bytes(out, 1, kind.to_string().as_bytes());
    let _ = put_message(out, 2, |out| {
        put_message(out, 1, |out| {
            object.write(out);
            Ok::<_, std::convert::Infallible>(())
        })
    });
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Splits a stream into frames: chunks in as they come, complete frames out.
///
/// It is used as [`json::LineSplitter`](crate::json::LineSplitter) is.
///
/// ```
/// use kube_wire::json::EventType;
/// use kube_wire::protobuf::{Envelope, FrameSplitter, WatchEvent, write_event};
/// let pod = Envelope { api_version: "v1", kind: "Pod", raw: b"\x0a\x00" };
/// let mut stream = Vec::new();
/// write_event(&mut stream, &EventType::Added, &pod);
///
/// let mut frames = FrameSplitter::default();
/// frames.push(&stream[..9]);
/// assert_eq!(frames.next_frame().unwrap(), None);
/// frames.push(&stream[9..]);
/// let frame = frames.next_frame().unwrap().unwrap();
/// let event = WatchEvent::parse(&frame).unwrap();
/// assert_eq!((event.kind, event.object), (EventType::Added, pod));
/// // The object's bytes can be kept without copying them.
/// assert_eq!(frame.slice_ref(event.object.raw), &b"\x0a\x00"[..]);
/// ```
pub struct FrameSplitter {
    buffer: BytesMut,
    limit: usize,
}

/// How much waits, not what: it may be a secret.
impl std::fmt::Debug for FrameSplitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameSplitter").field("buffered", &self.buffered()).finish_non_exhaustive()
    }
}

impl Default for FrameSplitter {
    fn default() -> Self {
        Self::with_limit(MAX_ITEM_BYTES)
    }
}

impl FrameSplitter {
    /// A splitter that refuses frames longer than this.
    pub fn with_limit(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// How many bytes wait for the rest of their frame.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// The next complete frame without its length; empty frames are passed over.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, WireError> {
        while let Some(length) = self.buffer.first_chunk() {
            let length = u32::from_be_bytes(*length) as usize;
            if length > self.limit {
                return Err(WireError::TooLarge { limit: self.limit });
            }
            if self.buffer.len() < 4 + length {
                return Ok(None);
            }
            self.buffer.advance(4);
            if length > 0 {
                return Ok(Some(self.buffer.split_to(length).freeze()));
            }
        }
        Ok(None)
    }

    /// Ends the stream: an error if it ended inside a frame.
    pub fn finish(self) -> Result<(), WireError> {
        if self.buffer.is_empty() { Ok(()) } else { Err(WireError::Truncated { inside: "a watch event" }) }
    }
}

/// What a `runtime.RawExtension` holds.
fn raw_extension(message: &[u8]) -> Result<Option<&[u8]>, WireError> {
    let mut raw = None;
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next_field()? {
        if field.number == 1 {
            raw = Some(field.value.bytes()?);
        }
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: Envelope<'_> = Envelope { api_version: "v1", kind: "Pod", raw: b"\x0a\x03\x0a\x01a" };

    #[test]
    fn a_frame_has_the_bytes_that_go_writes() {
        let mut stream = Vec::new();
        write_event(&mut stream, &EventType::Added, &POD);
        let mut object = Vec::new();
        POD.write(&mut object);
        assert_eq!(stream, [b"\0\0\0\x25\x0a\x05ADDED\x12\x1c\x0a\x1a", &object[..]].concat());
    }

    #[test]
    fn events_are_written_and_read_again() {
        let mut stream = Vec::new();
        write_event(&mut stream, &EventType::Added, &POD);
        stream.extend_from_slice(&[0; 4]);
        let large = Envelope { raw: &[7; 500], ..POD };
        write_event(&mut stream, &EventType::Other("STRANGE".into()), &large);
        for size in 1..stream.len() {
            let mut frames = FrameSplitter::default();
            let mut events = Vec::new();
            for chunk in stream.chunks(size) {
                frames.push(chunk);
                while let Some(frame) = frames.next_frame().unwrap() {
                    let event = WatchEvent::parse(&frame).unwrap();
                    events.push((event.kind, event.object.raw.to_vec()));
                }
            }
            frames.finish().unwrap();
            assert_eq!(events[0], (EventType::Added, POD.raw.to_vec()));
            assert_eq!(events[1], (EventType::Other("STRANGE".into()), vec![7; 500]));
        }
    }

    #[test]
    fn a_frame_that_is_no_event_is_an_error() {
        let frames: [&[u8]; 7] = [
            b"",
            b"\x0a\x05ADDED",
            b"\x0a\x05ADDED\x12\x00",
            b"\x0a\x05ADDED\x12\x03\x0a\x01x",
            b"\x12\x06\x0a\x04k8s\0",
            b"\x08\x05\x12\x06\x0a\x04k8s\0",
            b"{\"type\":\"ADDED\",\"object\":{}}",
        ];
        for frame in frames {
            assert!(WatchEvent::parse(frame).is_err(), "{frame:?}");
        }
    }

    #[test]
    fn a_stream_that_ends_inside_a_frame_says_so() {
        let mut frames = FrameSplitter::with_limit(8);
        frames.push(b"\0\0\0\x02ab\0\0");
        assert_eq!(frames.next_frame().unwrap().unwrap(), "ab");
        assert_eq!(frames.next_frame().unwrap(), None);
        frames.push(b"\0\x09");
        assert_eq!(frames.next_frame(), Err(WireError::TooLarge { limit: 8 }));
        assert!(frames.finish().is_err());
        assert!(FrameSplitter::default().finish().is_ok());
    }
}
