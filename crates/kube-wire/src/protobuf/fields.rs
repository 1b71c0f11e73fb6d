//! The fields of one message in the order of their numbers, whatever order they stand in.

use super::wire::{Field, Reader, Value};
use crate::WireError;

/// The bytes of one message: in one piece, or in several that protobuf wants read as one.
#[derive(Debug, Clone, Default)]
pub(super) struct Body<'a> {
    first: &'a [u8],
    more: Vec<&'a [u8]>,
}

impl<'a> Body<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { first: bytes, more: Vec::new() }
    }

    fn push(&mut self, bytes: &'a [u8]) {
        self.more.push(bytes);
    }
}

/// Walks over a message, field number by field number.
///
/// Encoders write fields in the order of their numbers, and then this is one pass over the bytes. A message in any other
/// order is read as well, with a pass for each number: slower, but without memory.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    body: Body<'a>,
    ordered: bool,
    reader: Reader<'a>,
    /// How many of the body's further pieces have been begun.
    pieces: usize,
    /// In an ordered message the next field, with a number above all others behind the last.
    ahead: Field<'a>,
}

const END: Field<'static> = Field { number: u32::MAX, value: Value::Varint(0) };

impl<'a> Fields<'a> {
    /// Looks over the message once: what comes after this finds no malformed field at this level.
    pub(super) fn new(body: Body<'a>) -> Result<Self, WireError> {
        let mut ordered = body.more.is_empty();
        for piece in std::iter::once(&body.first).chain(&body.more) {
            let (mut reader, mut last) = (Reader::new(piece), 0);
            while let Some(field) = reader.next_field()? {
                ordered &= field.number >= last;
                last = field.number;
            }
        }
        let mut reader = Reader::new(body.first);
        let ahead = if ordered { reader.next_field()?.unwrap_or(END) } else { END };
        Ok(Self { body, ordered, reader, pieces: 0, ahead })
    }

    /// Whether there is certainly no field of this number, which is higher than all that were asked for.
    #[inline]
    pub(super) fn is_missing(&self, number: u32) -> bool {
        self.ordered && self.ahead.number > number
    }

    /// Turns to the fields of another number, which is higher than the last.
    #[inline]
    pub(super) fn seek(&mut self) {
        if !self.ordered {
            (self.reader, self.pieces) = (Reader::new(self.body.first), 0);
        }
    }

    /// The next field of this number.
    #[inline]
    pub(super) fn next(&mut self, number: u32) -> Result<Option<Value<'a>>, WireError> {
        if !self.ordered {
            return self.next_scattered(number);
        }
        while self.ahead.number <= number {
            let field = self.ahead;
            self.ahead = self.reader.next_field()?.unwrap_or(END);
            if field.number == number {
                return Ok(Some(field.value));
            }
        }
        Ok(None)
    }

    fn next_scattered(&mut self, number: u32) -> Result<Option<Value<'a>>, WireError> {
        loop {
            match self.reader.next_field()? {
                Some(field) if field.number == number => return Ok(Some(field.value)),
                Some(_) => {}
                None if self.pieces < self.body.more.len() => {
                    self.reader = Reader::new(self.body.more[self.pieces]);
                    self.pieces += 1;
                }
                None => return Ok(None),
            }
        }
    }

    /// The last field of this number: for values, the last one counts.
    #[inline]
    pub(super) fn last(&mut self, number: u32) -> Result<Option<Value<'a>>, WireError> {
        let mut last = self.next(number)?;
        while last.is_some() && !self.is_missing(number) {
            let Some(value) = self.next(number)? else { break };
            last = Some(value);
        }
        Ok(last)
    }

    /// All fields of this number as one message: said twice, the two are read as one.
    pub(super) fn merged(&mut self, number: u32) -> Result<Option<Body<'a>>, WireError> {
        let Some(first) = self.next(number)? else { return Ok(None) };
        let mut body = Body::new(first.bytes()?);
        while let Some(more) = self.next(number)? {
            body.push(more.bytes()?);
        }
        Ok(Some(body))
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{put_bytes, put_integer};
    use super::*;

    #[test]
    fn fields_in_any_order_are_found_by_number() {
        let mut tail = Vec::new();
        put_integer(&mut tail, 1, 12);
        put_bytes(&mut tail, 3, b"c");
        let mut ordered = Vec::new();
        put_integer(&mut ordered, 1, 11);
        ordered.extend_from_slice(&tail);
        let mut scattered = Vec::new();
        put_bytes(&mut scattered, 3, b"c");
        put_integer(&mut scattered, 1, 11);
        put_bytes(&mut scattered, 2, b"");
        put_integer(&mut scattered, 1, 12);
        let mut pieces = Body::new(&ordered[..2]);
        pieces.push(&tail);
        for body in [Body::new(&ordered), Body::new(&scattered), pieces] {
            let mut fields = Fields::new(body).unwrap();
            fields.seek();
            assert_eq!(fields.next(1).unwrap(), Some(Value::Varint(11)));
            assert_eq!(fields.next(1).unwrap(), Some(Value::Varint(12)));
            assert_eq!(fields.next(1).unwrap(), None);
            fields.seek();
            assert_eq!(fields.last(3).unwrap(), Some(Value::Bytes(b"c")));
            fields.seek();
            assert_eq!(fields.last(4).unwrap(), None);
        }
    }
}
