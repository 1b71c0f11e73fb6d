//! Reads protobuf into any type, as if it had come as JSON.

mod object;
mod repeated;

use std::borrow::Cow;

use serde::de::value::{MapAccessDeserializer, SeqDeserializer};
use serde::de::{self, Deserialize, DeserializeSeed, IntoDeserializer, SeqAccess, Visitor};

use self::object::ObjectAccess;
use self::repeated::{EntryAccess, ListAccess, Repeated};

use super::envelope::{Envelope, MAGIC};
use super::fields::{Body, Fields};
use super::leaf::{self, Leaf};
use super::schema::{Kind, Message, Shape, Type, message_at};
use super::wire::Value;
use crate::{WireError, problem};

/// How deep lists, maps and messages may stand in one another: as deep as in JSON text.
const MAX_DEPTH: u8 = 128;

/// Reads a bare object of this kind into any type that could read it from JSON.
///
/// That is every type of k8s-openapi, [`serde_json::Value`], and any smaller type that names a few fields of the kind: what
/// it does not name is passed over by its length. `kind` and `apiVersion` are those of `kind`, which the bytes do not hold.
///
/// ```
/// use kube_wire::protobuf::{Kind, from_json, from_slice};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct MyPod { kind: String, spec: MySpec }
/// #[derive(Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// struct MySpec { node_name: Option<String> }
///
/// let pod = Kind::find("v1", "Pod").unwrap();
/// let bytes = from_json(pod, br#"{"spec":{"nodeName":"n1","containers":[{"name":"web"}]}}"#).unwrap();
/// let mine: MyPod = from_slice(pod, &bytes).unwrap();
/// assert_eq!((mine.kind.as_str(), mine.spec.node_name.as_deref()), ("Pod", Some("n1")));
/// ```
pub fn from_slice<'de, T: Deserialize<'de>>(kind: Kind, object: &'de [u8]) -> Result<T, WireError> {
    T::deserialize(Node::object(kind, object, 0))
}

/// The same for a seed.
pub(super) fn seed_from_slice<'de, S: DeserializeSeed<'de>>(
    seed: S,
    kind: Kind,
    object: &'de [u8],
) -> Result<S::Value, WireError> {
    seed.deserialize(Node::object(kind, object, 0))
}

/// One value of the tree that JSON would have.
struct Node<'a, 'de> {
    what: What<'a, 'de>,
    depth: u8,
}

enum What<'a, 'de> {
    /// A value without members: its type and what the wire has of it, read when it is asked for.
    Leaf(Type, Option<Value<'de>>),
    /// A list or map without elements, which Go writes as null.
    Nothing,
    Message(&'static Message, Body<'de>, Option<Kind>),
    List(Repeated<'a, 'de>),
    Map(Repeated<'a, 'de>),
}

impl<'de> Node<'_, 'de> {
    /// An object of a kind of its own.
    #[inline]
    fn object(kind: Kind, bytes: &'de [u8], depth: u8) -> Self {
        Self { what: What::Message(kind.message, Body::new(bytes), Some(kind)), depth }
    }

    /// An element of a list or a value of a map: missing, it is empty.
    #[inline]
    fn element(kind: Type, value: Option<Value<'de>>, depth: u8) -> Result<Self, WireError> {
        let what = match kind {
            Type::Message(index) => {
                let bytes = value.map(Value::bytes).transpose()?.unwrap_or_default();
                What::Message(message_at(index), Body::new(bytes), None)
            }
            Type::Bytes => What::Leaf(kind, value.or(Some(Value::Bytes(&[])))),
            _ => What::Leaf(kind, value),
        };
        Ok(Self { what, depth })
    }

    /// Goes one level deeper.
    #[inline]
    fn deeper(&self) -> Result<u8, WireError> {
        if self.depth >= MAX_DEPTH {
            return Err(WireError::Decode(format!("nested more than {MAX_DEPTH} levels deep")));
        }
        Ok(self.depth + 1)
    }

    fn visit_message<V: Visitor<'de>>(
        message: &'static Message,
        body: Body<'de>,
        kind: Option<Kind>,
        depth: u8,
        visitor: V,
    ) -> Result<V::Value, WireError> {
        let mut fields = Fields::new(body)?;
        let field = |index: usize| &message.fields[index];
        match message.shape {
            Shape::Object => visitor.visit_map(ObjectAccess::new(message, fields, kind, depth)),
            Shape::List => match fields.next(1)? {
                // The message is there, so the list is, if empty.
                None => visitor.visit_seq(no_elements()),
                Some(first) => {
                    let what = What::List(Repeated::new(&mut fields, field(0), first));
                    Node { what, depth }.visit(visitor)
                }
            },
            Shape::SchemaOrList => {
                let schema = fields.merged(1)?;
                fields.seek();
                match (fields.next(2)?, schema) {
                    (Some(first), _) => {
                        let what = What::List(Repeated::new(&mut fields, field(1), first));
                        Node { what, depth }.visit(visitor)
                    }
                    (None, Some(schema)) => Self::visit_schema(field(0).kind, schema, depth, visitor),
                    (None, None) => visitor.visit_unit(),
                }
            }
            Shape::SchemaOrBool => {
                let allows = fields.last(1)?;
                fields.seek();
                match fields.merged(2)? {
                    Some(schema) => Self::visit_schema(field(1).kind, schema, depth, visitor),
                    None => Node { what: What::Leaf(Type::Bool, allows), depth }.visit(visitor),
                }
            }
        }
    }

    fn visit_schema<V: Visitor<'de>>(
        kind: Type,
        body: Body<'de>,
        depth: u8,
        visitor: V,
    ) -> Result<V::Value, WireError> {
        let Type::Message(index) = kind else { return visitor.visit_unit() };
        Node { what: What::Message(message_at(index), body, None), depth }.visit(visitor)
    }

    #[inline]
    fn visit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        // Most values are text, and nearly all text is as it should be.
        if let What::Leaf(Type::Text, Some(Value::Bytes(bytes))) = self.what
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            return visitor.visit_borrowed_str(text);
        }
        self.visit_any(visitor)
    }

    fn visit_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        let depth = self.deeper();
        match self.what {
            What::Nothing => visitor.visit_unit(),
            What::Message(message, body, kind) => Self::visit_message(message, body, kind, depth?, visitor),
            What::List(list) => visitor.visit_seq(ListAccess::new(list, depth?)),
            What::Map(map) => visitor.visit_map(EntryAccess::new(map, depth?)),
            What::Leaf(kind, value) => match Leaf::read(kind, value)? {
                Leaf::Null => visitor.visit_unit(),
                Leaf::Bool(value) => visitor.visit_bool(value),
                Leaf::Integer(value) => match u64::try_from(value) {
                    Ok(value) => visitor.visit_u64(value),
                    Err(_) => visitor.visit_i64(value),
                },
                Leaf::Double(value) => visit_double(value, visitor),
                Leaf::Text(text) => visit_text(text, visitor),
                Leaf::Raw(raw) if raw.starts_with(&MAGIC) => embedded(raw, self.depth)?.visit(visitor),
                Leaf::Raw(raw) => {
                    let mut json = serde_json::Deserializer::from_slice(raw);
                    let value = de::Deserializer::deserialize_any(&mut json, visitor)?;
                    json.end()?;
                    Ok(value)
                }
            },
        }
    }

    /// The text of a value that is JSON on the wire as well.
    #[inline]
    fn json_text(&self) -> Result<Option<&'de [u8]>, WireError> {
        match self.what {
            What::Leaf(Type::Raw, value) => match Leaf::read(Type::Raw, value)? {
                Leaf::Raw(text) if !text.starts_with(&MAGIC) => Ok(Some(text)),
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    #[inline]
    fn is_null(&self) -> Result<bool, WireError> {
        Ok(match &self.what {
            What::Nothing => true,
            What::Leaf(kind, value) => leaf::is_null(*kind, *value)?,
            What::Message(message, body, _) => match message.shape {
                Shape::Object | Shape::List | Shape::SchemaOrBool => false,
                Shape::SchemaOrList => {
                    let mut fields = Fields::new(body.clone())?;
                    let no_schema = fields.next(1)?.is_none();
                    fields.seek();
                    no_schema && fields.next(2)?.is_none()
                }
            },
            _ => false,
        })
    }
}

impl<'de> de::Deserializer<'de> for Node<'_, 'de> {
    type Error = WireError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        self.visit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        if self.is_null()? { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, WireError> {
        match self.json_text()? {
            // So that a `RawValue` of serde_json gets the text as it stands.
            Some(text) => {
                let mut json = serde_json::Deserializer::from_slice(text);
                Ok(de::Deserializer::deserialize_newtype_struct(&mut json, name, visitor)?)
            }
            None => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WireError> {
        let depth = self.deeper()?;
        if let Some(text) = self.json_text()? {
            let mut json = serde_json::Deserializer::from_slice(text);
            return Ok(de::Deserializer::deserialize_enum(&mut json, name, variants, visitor)?);
        }
        match self.what {
            What::Leaf(kind, value) => match Leaf::read(kind, value)? {
                Leaf::Text(text) => visitor.visit_enum(text.into_deserializer()),
                _ => self.visit(visitor),
            },
            What::Message(message, body, kind) if message.shape == Shape::Object => {
                let access = ObjectAccess::new(message, Fields::new(body)?, kind, depth);
                MapAccessDeserializer::new(access).deserialize_enum(name, variants, visitor)
            }
            _ => self.visit(visitor),
        }
    }

    /// A list without elements reads as an empty one, even by a type that would not take null.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        if matches!(self.what, What::Nothing) {
            return visitor.visit_seq(no_elements());
        }
        self.visit(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        if matches!(self.what, What::Nothing) {
            let none = std::iter::empty::<((), ())>();
            return visitor.visit_map(de::value::MapDeserializer::<_, WireError>::new(none));
        }
        self.visit(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct struct identifier
    }
}

fn no_elements<'de>() -> impl SeqAccess<'de, Error = WireError> {
    SeqDeserializer::new(std::iter::empty::<()>())
}

/// An object of any kind inside another, as in a `v1.List`.
fn embedded(raw: &[u8], depth: u8) -> Result<Node<'_, '_>, WireError> {
    let envelope = Envelope::parse(raw)?;
    let kind = Kind::find(envelope.api_version, envelope.kind).ok_or_else(|| {
        WireError::Decode(format!("{} {} is no built-in kind", envelope.api_version, envelope.kind))
    })?;
    Ok(Node::object(kind, envelope.raw, depth + 1))
}

/// A number without a fraction is an integer in Go's JSON.
fn visit_double<'de, V: Visitor<'de>>(value: f64, visitor: V) -> Result<V::Value, WireError> {
    let negative_zero = value == 0.0 && value.is_sign_negative();
    if value.fract() != 0.0 || negative_zero {
        visitor.visit_f64(value)
    } else if (0.0..18_446_744_073_709_551_616.0).contains(&value) {
        visitor.visit_u64(value as u64)
    } else if (-9_223_372_036_854_775_808.0..0.0).contains(&value) {
        visitor.visit_i64(value as i64)
    } else {
        visitor.visit_f64(value)
    }
}

fn visit_text<'de, V: Visitor<'de>>(text: Cow<'de, str>, visitor: V) -> Result<V::Value, WireError> {
    match text {
        Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
        Cow::Owned(text) => visitor.visit_string(text),
    }
}

impl de::Error for WireError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Decode(problem::without_values(&message.to_string()))
    }
}

impl WireError {
    /// Says in which member of an object it went wrong.
    pub(super) fn within(self, key: &str) -> Self {
        match self {
            Self::Decode(problem) => Self::Decode(format!("{key}: {problem}")),
            other => Self::Decode(format!("{key}: {other}")),
        }
    }
}
