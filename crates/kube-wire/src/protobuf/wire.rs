//! The protobuf wire itself: varints, and fields one after another.

use crate::WireError;

/// One field of a message as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) value: Value<'a>,
}

/// What a field carries: the wire knows four shapes and no types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

impl<'a> Value<'a> {
    #[inline]
    pub(crate) fn bytes(self) -> Result<&'a [u8], WireError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(WireError::Protobuf { at: 0, expected: "a field with a length" }),
        }
    }

    #[inline]
    pub(crate) fn varint(self) -> Result<u64, WireError> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(WireError::Protobuf { at: 0, expected: "an integer field" }),
        }
    }
}

/// Reads the fields of one message in the order they stand in.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { bytes: message, at: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The next field; `None` at the end of the message.
    #[inline]
    pub(crate) fn next_field(&mut self) -> Result<Option<Field<'a>>, WireError> {
        // Nearly every tag is one byte and most lengths are: short text and small messages, without a detour.
        if let [tag @ 0x0a..0x80, length @ 0..0x80, rest @ ..] = &self.bytes[self.at..]
            && tag & 7 == 2
            && let Some(value) = rest.get(..usize::from(*length))
        {
            self.at += 2 + value.len();
            return Ok(Some(Field { number: u32::from(tag >> 3), value: Value::Bytes(value) }));
        }
        self.next_field_of_any_shape()
    }

    fn next_field_of_any_shape(&mut self) -> Result<Option<Field<'a>>, WireError> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let (number, wire_type) = split_tag(self.varint()?).ok_or_else(|| self.error("a field's tag"))?;
        let value = match wire_type {
            WireType::Varint => Value::Varint(self.varint()?),
            WireType::Bytes => {
                let length = self.varint()?;
                let rest = (self.bytes.len() - self.at) as u64;
                if length > rest {
                    return Err(WireError::Truncated { inside: "a protobuf field" });
                }
                Value::Bytes(self.take(length as usize))
            }
            WireType::Fixed64 => Value::Fixed64(u64::from_le_bytes(self.fixed()?)),
            WireType::Fixed32 => Value::Fixed32(u32::from_le_bytes(self.fixed()?)),
        };
        Ok(Some(Field { number, value }))
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, WireError> {
        let rest = &self.bytes[self.at..];
        // Nearly every tag and most lengths are one byte.
        if let Some(&byte) = rest.first()
            && byte < 0x80
        {
            self.at += 1;
            return Ok(u64::from(byte));
        }
        let (value, length) = varint(rest)
            .map_err(|_| self.error("a varint of at most ten bytes"))?
            .ok_or(WireError::Truncated { inside: "a protobuf varint" })?;
        self.at += length;
        Ok(value)
    }

    #[inline]
    fn take(&mut self, length: usize) -> &'a [u8] {
        let taken = &self.bytes[self.at..self.at + length];
        self.at += length;
        taken
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let found = self.bytes[self.at..].first_chunk().copied();
        let found = found.ok_or(WireError::Truncated { inside: "a protobuf field" })?;
        self.at += N;
        Ok(found)
    }

    fn error(&self, expected: &'static str) -> WireError {
        WireError::Protobuf { at: self.at, expected }
    }
}

/// How a field's value is written. Groups, long gone from the format, are no field to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireType {
    Varint,
    Fixed64,
    Bytes,
    Fixed32,
}

/// The number and wire type of a tag, if it is one.
#[inline]
pub(crate) fn split_tag(tag: u64) -> Option<(u32, WireType)> {
    let number = u32::try_from(tag >> 3).ok().filter(|number| (1..1 << 29).contains(number))?;
    let wire_type = match tag & 7 {
        0 => WireType::Varint,
        1 => WireType::Fixed64,
        2 => WireType::Bytes,
        5 => WireType::Fixed32,
        _ => return None,
    };
    Some((number, wire_type))
}

/// A varint longer than any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overlong;

/// The varint that these bytes start with, and its length; `None` if it goes on behind them.
pub(crate) fn varint(bytes: &[u8]) -> Result<Option<(u64, usize)>, Overlong> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().enumerate().take(10) {
        // The tenth byte has room for one bit.
        if at == 9 && byte > 1 {
            return Err(Overlong);
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Ok(Some((value, at + 1)));
        }
    }
    if bytes.len() < 10 { Ok(None) } else { Err(Overlong) }
}

/// The length of the varint that these bytes start with.
pub(crate) fn varint_length(bytes: &[u8]) -> Result<usize, WireError> {
    match varint(bytes) {
        Ok(Some((_, length))) => Ok(length),
        Ok(None) => Err(WireError::Truncated { inside: "a protobuf varint" }),
        Err(Overlong) => Err(WireError::Protobuf { at: 0, expected: "a varint of at most ten bytes" }),
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_integer(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

pub(crate) fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_head(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// The tag and length of a field whose bytes follow.
pub(crate) fn put_head(out: &mut Vec<u8>, number: u32, length: usize) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, length as u64);
}

/// Writes a message as a field: `body` writes what is inside, the length is put in front of it afterwards.
pub(crate) fn put_message<E>(
    out: &mut Vec<u8>,
    number: u32,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    put_varint(out, u64::from(number) << 3 | 2);
    let start = out.len();
    body(out)?;
    put_length(out, start);
    Ok(())
}

/// Puts the length of everything behind `start` in front of it.
pub(crate) fn put_length(out: &mut Vec<u8>, start: usize) {
    let end = out.len();
    put_varint(out, (end - start) as u64);
    let prefix = out.len() - end;
    out[start..].rotate_right(prefix);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<Field<'_>>, WireError> {
        let mut reader = Reader::new(bytes);
        let mut fields = Vec::new();
        while let Some(field) = reader.next_field()? {
            fields.push(field);
        }
        Ok(fields)
    }

    #[test]
    fn varints_are_read_as_they_are_written() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), i64::MAX as u64, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(varint(&bytes), Ok(Some((value, bytes.len()))));
            for end in 0..bytes.len() {
                assert_eq!(varint(&bytes[..end]), Ok(None), "{value} cut at {end}");
            }
        }
        assert_eq!(varint(&[0xff; 10]), Err(Overlong));
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), Err(Overlong));
    }

    #[test]
    fn fields_of_every_shape_are_read() {
        let mut bytes = Vec::new();
        put_integer(&mut bytes, 1, 300);
        put_bytes(&mut bytes, 2, b"text");
        bytes.extend_from_slice(&[0x19, 1, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&[0x25, 1, 0, 0, 0]);
        put_message(&mut bytes, 500, |out| {
            put_bytes(out, 1, &[7; 200]);
            Ok::<_, WireError>(())
        })
        .unwrap();
        let found = fields(&bytes).unwrap();
        assert_eq!(found[0], Field { number: 1, value: Value::Varint(300) });
        assert_eq!(found[1], Field { number: 2, value: Value::Bytes(b"text") });
        assert_eq!(found[2], Field { number: 3, value: Value::Fixed64(1) });
        assert_eq!(found[3], Field { number: 4, value: Value::Fixed32(1) });
        assert_eq!(found[4].number, 500);
        assert_eq!(fields(found[4].value.bytes().unwrap()).unwrap()[0].value, Value::Bytes(&[7; 200]));
    }

    #[test]
    fn what_is_no_field_is_an_error() {
        let cases: [&[u8]; 9] = [
            &[0x08],                                                                   // no value
            &[0x0a, 5, 1],                                                             // shorter than it says
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],          // as long as a u64
            &[0x00, 1],                                                                // field number 0
            &[0x0b, 0x0c],                                                             // a group
            &[0x0f],                                                                   // wire type 7
            &[0x09, 1, 2, 3],                                                          // half a fixed64
            &[0x0d, 1],                                                                // half a fixed32
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], // overlong
        ];
        for bytes in cases {
            assert!(fields(bytes).is_err(), "{bytes:?}");
        }
    }
}
