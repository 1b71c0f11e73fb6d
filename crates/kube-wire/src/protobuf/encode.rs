//! Writes protobuf from JSON, byte for byte as Go does.

use std::borrow::Cow;

use base64::Engine as _;
use serde::de::IgnoredAny;

use super::quantity;
use super::schema::{Field, Kind, Message, Repeat, Shape, Type, message_at};
use super::time::Time;
use super::wire::{put_bytes, put_double, put_integer, put_message};
use crate::WireError;
use crate::json::Cursor;

/// How deep messages may stand in one another.
const MAX_DEPTH: u8 = 128;

/// The bare protobuf form of a JSON object of this kind.
///
/// The bytes are those that Go writes after reading the same JSON: unknown members are left out, missing ones are zero,
/// quantities and times become canonical. A member that does not fit its type is an error that says where.
///
/// ```
/// use kube_wire::protobuf::{Kind, from_json};
/// let lease = Kind::find("coordination.k8s.io/v1", "Lease").unwrap();
/// let bytes = from_json(lease, br#"{"metadata":{"name":"a"},"spec":{"holderIdentity":"me"}}"#).unwrap();
/// assert!(bytes.ends_with(b"\x12\x04\x0a\x02me"));
/// let error = from_json(lease, br#"{"spec":{"holderIdentity":7}}"#).unwrap_err();
/// assert_eq!(error.to_string(), "unexpected value: spec: holderIdentity: expected a string, found 7");
/// ```
pub fn from_json(kind: Kind, json: &[u8]) -> Result<Vec<u8>, WireError> {
    // From here on the text is known to be JSON.
    serde_json::from_slice::<IgnoredAny>(json)?;
    let members = members(Some(json.trim_ascii()))?;
    for (key, expected) in [("apiVersion", kind.api_version()), ("kind", kind.name())] {
        let found = read_text(find(&members, key)).map_err(|error| error.within(key))?;
        if !found.is_empty() && found != expected {
            return Err(WireError::Decode(format!("{key}: expected {expected}, found {found}")));
        }
    }
    let mut out = Vec::with_capacity(json.len());
    write_fields(&mut out, kind.message, &members, 0)?;
    Ok(out)
}

/// The same from a tree.
pub fn from_value(kind: Kind, value: &serde_json::Value) -> Result<Vec<u8>, WireError> {
    from_json(kind, &serde_json::to_vec(value)?)
}

/// The members of an object, each with the text of its value.
type Members<'a> = Vec<(Cow<'a, str>, &'a [u8])>;

fn write_fields(
    out: &mut Vec<u8>,
    message: &'static Message,
    members: &Members<'_>,
    depth: u8,
) -> Result<(), WireError> {
    for field in &message.fields {
        let value = find(members, field.key);
        match (field.repeat, field.kind) {
            (Repeat::Inline, Type::Message(inline)) => {
                put_message(out, field.number, |out| write_fields(out, message_at(inline), members, depth))?;
            }
            _ => write_field(out, field, value, depth).map_err(|error| error.within(field.key))?,
        }
    }
    Ok(())
}

fn write_field(
    out: &mut Vec<u8>,
    field: &'static Field,
    value: Option<&[u8]>,
    depth: u8,
) -> Result<(), WireError> {
    match field.repeat {
        // A list with a message of its own may be missing, as a pointer may.
        Repeat::One if is_list(field.kind) && value.is_none() => Ok(()),
        Repeat::Optional => match value {
            Some(_) => write_value(out, field.number, field.kind, value, depth),
            None => Ok(()),
        },
        Repeat::One | Repeat::Inline => write_value(out, field.number, field.kind, value, depth),
        Repeat::Many => {
            for element in elements(value)? {
                write_value(out, field.number, field.kind, element, depth)?;
            }
            Ok(())
        }
        Repeat::Map => {
            let mut entries = members(value)?;
            // Sorting keeps the order of equal keys, of which the last one counts.
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            for (at, (key, value)) in entries.iter().enumerate() {
                if entries.get(at + 1).is_some_and(|(next, _)| next == key) {
                    continue;
                }
                put_message(out, field.number, |out| {
                    put_bytes(out, 1, key.as_bytes());
                    write_value(out, 2, field.kind, not_null(value), depth).map_err(|error| error.within(key))
                })?;
            }
            Ok(())
        }
    }
}

fn is_list(kind: Type) -> bool {
    matches!(kind, Type::Message(index) if message_at(index).shape == Shape::List)
}

/// Writes one value; `None` is null or missing, which is zero.
fn write_value(
    out: &mut Vec<u8>,
    number: u32,
    kind: Type,
    value: Option<&[u8]>,
    depth: u8,
) -> Result<(), WireError> {
    match kind {
        Type::Text => put_bytes(out, number, read_text(value)?.as_bytes()),
        Type::Bool => put_integer(out, number, read_bool(value)?.into()),
        // A negative number is as long as a number gets: ten bytes.
        Type::Int32 => put_integer(out, number, i64::from(read_number::<i32>(value)?).cast_unsigned()),
        Type::Int64 => put_integer(out, number, read_number::<i64>(value)?.cast_unsigned()),
        Type::Double => put_double(out, number, read_number(value)?),
        Type::Bytes => {
            if value.is_some() {
                let bytes = base64::engine::general_purpose::STANDARD
                    .decode(&*read_text(value)?)
                    .map_err(|_| unexpected("base64", value))?;
                put_bytes(out, number, &bytes);
            }
        }
        Type::Message(index) => {
            put_message(out, number, |out| write_message(out, message_at(index), value, depth))?;
        }
        Type::Time | Type::MicroTime | Type::Quantity | Type::IntOrString | Type::Raw => {
            put_message(out, number, |out| write_leaf(out, kind, value))?;
        }
    }
    Ok(())
}

fn write_message(
    out: &mut Vec<u8>,
    message: &'static Message,
    value: Option<&[u8]>,
    depth: u8,
) -> Result<(), WireError> {
    if depth >= MAX_DEPTH {
        return Err(WireError::Decode(format!("nested more than {MAX_DEPTH} levels deep")));
    }
    let depth = depth + 1;
    let first = value.and_then(|text| text.first());
    let mut write = |field: usize, value| write_field(out, &message.fields[field], value, depth);
    match message.shape {
        Shape::Object => write_fields(out, message, &members(value)?, depth),
        Shape::List => write(0, value),
        Shape::SchemaOrList => match first {
            Some(b'{') => write(0, value),
            Some(b'[') => write(1, value),
            _ => Ok(()),
        },
        Shape::SchemaOrBool => match first {
            Some(b'{') => {
                write(0, Some(b"true"))?;
                write(1, value)
            }
            _ => write(0, value),
        },
    }
}

/// The inside of a message that is a single value in JSON.
fn write_leaf(out: &mut Vec<u8>, kind: Type, value: Option<&[u8]>) -> Result<(), WireError> {
    match (kind, value) {
        (Type::Quantity, _) => {
            // A number will do as well as a text.
            let text = match value {
                None => Cow::Borrowed("0"),
                Some([b'"', ..]) => read_text(value)?,
                Some(number) => String::from_utf8_lossy(number),
            };
            let canonical = quantity::canonical(text.trim());
            put_bytes(out, 1, canonical.ok_or_else(|| unexpected("a quantity", value))?.as_bytes());
        }
        (Type::IntOrString, _) => {
            let is_text = matches!(value, Some([b'"', ..]));
            let number = if is_text { 0 } else { read_number::<i32>(value)? };
            let text = if is_text { read_text(value)? } else { Cow::Borrowed("") };
            put_integer(out, 1, is_text.into());
            put_integer(out, 2, i64::from(number).cast_unsigned());
            put_bytes(out, 3, text.as_bytes());
        }
        (Type::Raw, Some(text)) => put_bytes(out, 1, text),
        (Type::Time | Type::MicroTime, Some(_)) => {
            let text = read_text(value)?;
            let time = Time::parse(&text).ok_or_else(|| unexpected("a time", value))?;
            // Go asks for six digits where it writes six digits.
            let digits = text.split_once('.').map_or(0, |(_, rest)| digits(rest));
            if kind == Type::MicroTime && digits != 6 {
                return Err(unexpected("a time with microseconds", value));
            }
            if !time.is_zero() {
                let nanos = if kind == Type::MicroTime { time.nanos } else { 0 };
                put_integer(out, 1, time.seconds.cast_unsigned());
                put_integer(out, 2, i64::from(nanos).cast_unsigned());
            }
        }
        _ => {}
    }
    Ok(())
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// The member with this key; the last one counts, and null is none.
fn find<'a>(members: &Members<'a>, key: &str) -> Option<&'a [u8]> {
    members.iter().rev().find(|(known, _)| known == key).and_then(|(_, value)| not_null(value))
}

fn not_null(value: &[u8]) -> Option<&[u8]> {
    Some(value).filter(|value| *value != b"null")
}

fn members(value: Option<&[u8]>) -> Result<Members<'_>, WireError> {
    let Some(text) = value else { return Ok(Vec::new()) };
    let mut cursor = Cursor::new(text);
    if !cursor.take(b'{') {
        return Err(unexpected("an object", value));
    }
    let (mut members, mut first) = (Vec::new(), true);
    while let Some(key) = cursor.next_member(&mut first)? {
        members.push((key, &text[cursor.skip_value()?]));
    }
    Ok(members)
}

fn elements(value: Option<&[u8]>) -> Result<Vec<Option<&[u8]>>, WireError> {
    let Some(text) = value else { return Ok(Vec::new()) };
    let mut cursor = Cursor::new(text);
    if !cursor.take(b'[') {
        return Err(unexpected("a list", value));
    }
    let (mut elements, mut first) = (Vec::new(), true);
    while cursor.next_element(&mut first)? {
        elements.push(not_null(&text[cursor.skip_value()?]));
    }
    Ok(elements)
}

fn read_text(value: Option<&[u8]>) -> Result<Cow<'_, str>, WireError> {
    match value {
        None => Ok(Cow::Borrowed("")),
        Some(text @ [b'"', ..]) => Cursor::new(text).string(),
        Some(_) => Err(unexpected("a string", value)),
    }
}

fn read_bool(value: Option<&[u8]>) -> Result<bool, WireError> {
    match value {
        None | Some(b"false") => Ok(false),
        Some(b"true") => Ok(true),
        Some(_) => Err(unexpected("true or false", value)),
    }
}

fn read_number<T: std::str::FromStr + Default>(value: Option<&[u8]>) -> Result<T, WireError> {
    let Some(text) = value else { return Ok(T::default()) };
    // Only what JSON calls a number gets here without a quote or bracket in front.
    let digits = text.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'-');
    let text = std::str::from_utf8(text).ok().filter(|_| digits);
    text.and_then(|text| text.parse().ok()).ok_or_else(|| unexpected("a number that fits", value))
}

fn unexpected(expected: &str, value: Option<&[u8]>) -> WireError {
    let text = String::from_utf8_lossy(value.unwrap_or(b"null"));
    let shown: String = text.chars().take(40).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    WireError::Decode(format!("expected {expected}, found {shown}{more}"))
}
