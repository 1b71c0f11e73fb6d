//! The elements of lists and the entries of maps, as serde asks for them.

use std::borrow::Cow;

use serde::de::value::{BorrowedStrDeserializer, CowStrDeserializer};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess};

use super::super::fields::Fields;
use super::super::leaf::text;
use super::super::schema::{Field, Type};
use super::super::wire::{self, Value};
use super::Node;
use crate::WireError;

/// The fields of one number, of which the first has been taken.
pub(super) struct Repeated<'a, 'de> {
    fields: &'a mut Fields<'de>,
    number: u32,
    kind: Type,
    first: Option<Value<'de>>,
}

impl<'a, 'de> Repeated<'a, 'de> {
    #[inline]
    pub(super) fn new(fields: &'a mut Fields<'de>, field: &Field, first: Value<'de>) -> Self {
        Self { fields, number: field.number, kind: field.kind, first: Some(first) }
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Value<'de>>, WireError> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.fields.next(self.number),
        }
    }
}

/// The elements of a list.
pub(super) struct ListAccess<'a, 'de> {
    list: Repeated<'a, 'de>,
    /// What is left of numbers that were written without a tag each.
    packed: &'de [u8],
    depth: u8,
}

impl<'a, 'de> ListAccess<'a, 'de> {
    #[inline]
    pub(super) fn new(list: Repeated<'a, 'de>, depth: u8) -> Self {
        Self { list, packed: &[], depth }
    }

    fn next_value(&mut self) -> Result<Option<Value<'de>>, WireError> {
        loop {
            if !self.packed.is_empty() {
                let (value, length) = wire::varint(self.packed)
                    .map_err(|_| WireError::Protobuf { at: 0, expected: "a varint of at most ten bytes" })?
                    .ok_or(WireError::Truncated { inside: "a protobuf varint" })?;
                self.packed = &self.packed[length..];
                return Ok(Some(Value::Varint(value)));
            }
            let Some(value) = self.list.next()? else { return Ok(None) };
            match (value, self.list.kind) {
                (Value::Bytes(packed), Type::Bool | Type::Int32 | Type::Int64) => self.packed = packed,
                _ => return Ok(Some(value)),
            }
        }
    }
}

impl<'de> SeqAccess<'de> for ListAccess<'_, 'de> {
    type Error = WireError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, WireError> {
        let Some(value) = self.next_value()? else { return Ok(None) };
        seed.deserialize(Node::element(self.list.kind, Some(value), self.depth)?).map(Some)
    }
}

/// The entries of a map.
pub(super) struct EntryAccess<'a, 'de> {
    map: Repeated<'a, 'de>,
    /// The value of the entry whose key was taken.
    value: Option<Value<'de>>,
    depth: u8,
}

impl<'a, 'de> EntryAccess<'a, 'de> {
    #[inline]
    pub(super) fn new(map: Repeated<'a, 'de>, depth: u8) -> Self {
        Self { map, value: None, depth }
    }
}

impl<'de> MapAccess<'de> for EntryAccess<'_, 'de> {
    type Error = WireError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, WireError> {
        let Some(entry) = self.map.next()? else { return Ok(None) };
        let (mut key, mut reader) = (&[][..], wire::Reader::new(entry.bytes()?));
        self.value = None;
        while let Some(field) = reader.next_field()? {
            match field.number {
                1 => key = field.value.bytes()?,
                2 => self.value = Some(field.value),
                _ => {}
            }
        }
        match text(key) {
            Cow::Borrowed(key) => seed.deserialize(BorrowedStrDeserializer::new(key)),
            key @ Cow::Owned(_) => seed.deserialize(CowStrDeserializer::new(key)),
        }
        .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, WireError> {
        seed.deserialize(Node::element(self.map.kind, self.value.take(), self.depth)?)
    }
}
