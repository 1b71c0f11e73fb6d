//! The members of an object, as serde asks for them.

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, MapAccess};

use super::super::fields::{Body, Fields};
use super::super::leaf;
use super::super::schema::{Field, Kind, Message, Repeat, Shape, Type, message_at};
use super::super::wire::Value;
use super::repeated::Repeated;
use super::{Node, What};
use crate::WireError;

/// The members of an object, in the order of the schema.
pub(super) struct ObjectAccess<'de> {
    level: Level<'de>,
    /// The messages that the current one stands in, if it is written inline.
    outer: Vec<Level<'de>>,
    head: Head,
    member: Option<Member<'de>>,
    depth: u8,
}

struct Level<'de> {
    schema: std::slice::Iter<'static, Field>,
    fields: Fields<'de>,
}

/// What comes before the first field: `apiVersion` and `kind`, which only the outermost object has.
#[derive(Clone, Copy)]
enum Head {
    ApiVersion(Kind),
    Kind(Kind),
    Done,
}

/// What the last key stands for.
enum Member<'de> {
    Head(&'static str),
    Nothing(&'static Field),
    Leaf(&'static Field, Option<Value<'de>>),
    Message(&'static Field, u16, Body<'de>),
    Repeated(&'static Field, Value<'de>),
}

impl<'de> ObjectAccess<'de> {
    pub(super) fn new(message: &'static Message, fields: Fields<'de>, kind: Option<Kind>, depth: u8) -> Self {
        let level = Level { schema: message.fields.iter(), fields };
        let head = kind.map_or(Head::Done, Head::ApiVersion);
        Self { level, outer: Vec::new(), head, member: None, depth }
    }

    /// Moves to the next member that JSON would have.
    fn advance(&mut self) -> Result<Option<&'static str>, WireError> {
        match self.head {
            Head::ApiVersion(kind) => {
                (self.head, self.member) = (Head::Kind(kind), Some(Member::Head(kind.api_version())));
                return Ok(Some("apiVersion"));
            }
            Head::Kind(kind) => {
                (self.head, self.member) = (Head::Done, Some(Member::Head(kind.name())));
                return Ok(Some("kind"));
            }
            Head::Done => {}
        }
        loop {
            let Some(field) = self.level.schema.next() else {
                let Some(outer) = self.outer.pop() else { return Ok(None) };
                self.level = outer;
                continue;
            };
            let fields = &mut self.level.fields;
            // Most fields of most messages are not there.
            if field.omit && fields.is_missing(field.number) {
                continue;
            }
            fields.seek();
            let member = match (field.repeat, field.kind) {
                (Repeat::Many | Repeat::Map, _) => {
                    fields.next(field.number)?.map(|first| Member::Repeated(field, first))
                }
                (Repeat::Inline, Type::Message(index)) => {
                    let body = fields.merged(field.number)?.unwrap_or_default();
                    let schema = message_at(index).fields.iter();
                    let level = Level { schema, fields: Fields::new(body)? };
                    self.outer.push(std::mem::replace(&mut self.level, level));
                    continue;
                }
                (Repeat::One, Type::Message(index)) if message_at(index).shape != Shape::List => {
                    let body = fields.merged(field.number)?.unwrap_or_default();
                    Some(Member::Message(field, index, body))
                }
                (_, Type::Message(index)) => {
                    fields.merged(field.number)?.map(|body| Member::Message(field, index, body))
                }
                (Repeat::Optional, _) => {
                    fields.last(field.number)?.map(|value| Member::Leaf(field, Some(value)))
                }
                (_, kind) => {
                    let value = fields.last(field.number)?;
                    let empty = field.omit && leaf::is_empty(kind, value).map_err(|e| e.within(field.key))?;
                    (!empty).then_some(Member::Leaf(field, value))
                }
            };
            if member.is_none() && field.omit {
                continue;
            }
            self.member = Some(member.unwrap_or(Member::Nothing(field)));
            return Ok(Some(field.key));
        }
    }
}

impl<'de> MapAccess<'de> for ObjectAccess<'de> {
    type Error = WireError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, WireError> {
        let Some(key) = self.advance()? else { return Ok(None) };
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, WireError> {
        let (what, field) = match self.member.take() {
            Some(Member::Head(text)) => return seed.deserialize(BorrowedStrDeserializer::new(text)),
            Some(Member::Nothing(field)) => (What::Nothing, field),
            Some(Member::Leaf(field, value)) => (What::Leaf(field.kind, value), field),
            Some(Member::Message(field, index, body)) => {
                (What::Message(message_at(index), body, None), field)
            }
            Some(Member::Repeated(field, first)) => {
                let repeated = Repeated::new(&mut self.level.fields, field, first);
                let is_map = field.repeat == Repeat::Map;
                (if is_map { What::Map(repeated) } else { What::List(repeated) }, field)
            }
            None => return Err(WireError::Decode("a value was asked for before its key".into())),
        };
        seed.deserialize(Node { what, depth: self.depth }).map_err(|error| error.within(field.key))
    }
}
