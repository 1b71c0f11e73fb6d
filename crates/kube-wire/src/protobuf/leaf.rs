//! Values that JSON writes in its own way, read from the wire.

use std::borrow::Cow;

use super::schema::Type;
use super::time::Time;
use super::wire::{Reader, Value};
use crate::WireError;

/// A value without members, as JSON would have it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Leaf<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    Double(f64),
    Text(Cow<'a, str>),
    /// JSON text.
    Raw(&'a [u8]),
}

impl<'a> Leaf<'a> {
    /// What a field of this type means with this value, or without one.
    #[inline]
    pub(super) fn read(kind: Type, value: Option<Value<'a>>) -> Result<Self, WireError> {
        let message = || value.map(Value::bytes).transpose().map(Option::unwrap_or_default);
        Ok(match kind {
            Type::Bool => Self::Bool(varint(value)? != 0),
            // Go reads a number of 32 bits by dropping the others.
            Type::Int32 => Self::Integer(i64::from(varint(value)? as i32)),
            Type::Int64 => Self::Integer(varint(value)?.cast_signed()),
            Type::Double => Self::Double(match value {
                None => 0.0,
                Some(Value::Fixed64(bits)) => f64::from_bits(bits),
                Some(_) => return Err(WireError::Protobuf { at: 0, expected: "eight bytes" }),
            }),
            Type::Text => Self::Text(text(message()?)),
            Type::Bytes => match value {
                None => Self::Null,
                Some(value) => {
                    use base64::Engine as _;
                    Self::Text(base64::engine::general_purpose::STANDARD.encode(value.bytes()?).into())
                }
            },
            Type::Time | Type::MicroTime => match read_time(message()?)? {
                Some(time) => Self::Text(time.to_text(kind == Type::MicroTime).into()),
                None => Self::Null,
            },
            Type::Quantity => match first_bytes(message()?)? {
                Some(quantity) => Self::Text(text(quantity)),
                None => Self::Text("0".into()),
            },
            Type::IntOrString => read_int_or_string(message()?)?,
            Type::Raw => match first_bytes(message()?)? {
                Some(raw) if !raw.is_empty() => Self::Raw(raw),
                _ => Self::Null,
            },
            Type::Message(_) => {
                return Err(WireError::Protobuf { at: 0, expected: "a value without members" });
            }
        })
    }
}

/// Whether Go takes the value for empty, found out without making anything of it.
#[inline]
pub(super) fn is_empty(kind: Type, value: Option<Value<'_>>) -> Result<bool, WireError> {
    let Some(value) = value else { return Ok(true) };
    Ok(match kind {
        Type::Bool | Type::Int64 => value.varint()? == 0,
        Type::Int32 => value.varint()? as i32 == 0,
        Type::Text | Type::Bytes => value.bytes()?.is_empty(),
        Type::Double => Leaf::read(kind, Some(value))? == Leaf::Double(0.0),
        _ => is_null(kind, Some(value))?,
    })
}

/// Whether JSON would have null.
#[inline]
pub(super) fn is_null(kind: Type, value: Option<Value<'_>>) -> Result<bool, WireError> {
    let message = || value.map(Value::bytes).transpose().map(Option::unwrap_or_default);
    Ok(match kind {
        Type::Bytes => value.is_none(),
        Type::Time | Type::MicroTime => read_time(message()?)?.is_none(),
        Type::Raw => first_bytes(message()?)?.is_none_or(|raw| raw.is_empty() || raw.trim_ascii() == b"null"),
        _ => false,
    })
}

/// Text as JSON would show it: bytes that are no UTF-8 are replaced.
#[inline]
pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    // Checking first is much faster than looking for what to replace.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// The time in a message; an empty message is none.
pub(super) fn read_time(message: &[u8]) -> Result<Option<Time>, WireError> {
    let mut time = Time { seconds: 0, nanos: 0 };
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next_field()? {
        match field.number {
            1 => time.seconds = field.value.varint()?.cast_signed(),
            2 => time.nanos = field.value.varint()? as i32,
            _ => {}
        }
    }
    Ok(Some(time).filter(|time| !message.is_empty() && !time.is_zero()))
}

/// Field 1 of a message that has only this one.
pub(super) fn first_bytes(message: &[u8]) -> Result<Option<&[u8]>, WireError> {
    let mut found = None;
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next_field()? {
        if field.number == 1 {
            found = Some(field.value.bytes()?);
        }
    }
    Ok(found)
}

fn read_int_or_string(message: &[u8]) -> Result<Leaf<'_>, WireError> {
    let (mut choice, mut number, mut string) = (0, 0, &[][..]);
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next_field()? {
        match field.number {
            1 => choice = field.value.varint()?,
            2 => number = field.value.varint()? as i32,
            3 => string = field.value.bytes()?,
            _ => {}
        }
    }
    match choice {
        0 => Ok(Leaf::Integer(i64::from(number))),
        1 => Ok(Leaf::Text(text(string))),
        _ => Err(WireError::Protobuf { at: 0, expected: "a number or a text" }),
    }
}

fn varint(value: Option<Value<'_>>) -> Result<u64, WireError> {
    value.map_or(Ok(0), Value::varint)
}
