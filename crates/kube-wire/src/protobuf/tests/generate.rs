//! Makes random objects of any kind, as Go would write them in JSON, and paths into them.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::super::Kind;
use super::super::schema::{Message, Repeat, Shape, Type, message_at};
use super::super::time::Time;
use crate::FieldPath;

/// An object with fields of every sort: present, missing, empty and extreme.
pub(super) fn any_object(rng: &mut Rng, kind: Kind) -> Value {
    let mut object = Map::new();
    object.insert("apiVersion".into(), kind.api_version().into());
    object.insert("kind".into(), kind.name().into());
    any_fields(rng, kind.message, 0, &mut object);
    Value::Object(object)
}

/// A path that leads somewhere more often than not.
pub(super) fn any_path(rng: &mut Rng, object: &Value) -> FieldPath {
    let mut path = String::new();
    let mut at = object;
    while path.is_empty() || rng.u8(..) < 200 {
        let (step, below) = match at {
            Value::Object(map) if !map.is_empty() => {
                let (key, below) = map.iter().nth(rng.usize(..map.len())).unwrap();
                let quoted = key.replace('\\', "\\\\").replace('\'', "\\'");
                (if rng.u8(..) < 20 { "[*]".into() } else { format!("['{quoted}']") }, below)
            }
            Value::Array(list) if !list.is_empty() => {
                let position = rng.usize(..list.len());
                (if rng.bool() { "[*]".into() } else { format!("[{position}]") }, &list[position])
            }
            _ if path.is_empty() => (".nowhere".into(), at),
            _ => break,
        };
        path += &step;
        at = below;
    }
    if rng.u8(..) < 10 {
        path += ".nowhere";
    }
    path.parse().unwrap()
}

fn any_fields(rng: &mut Rng, message: &'static Message, depth: u8, object: &mut Map<String, Value>) {
    for field in &message.fields {
        let there = rng.u8(..) < 120_u8.saturating_sub(depth * 14);
        let key = field.key.to_owned();
        let none = if field.omit { None } else { Some(Value::Null) };
        let value = match field.repeat {
            Repeat::Inline => {
                let Type::Message(inline) = field.kind else { unreachable!() };
                any_fields(rng, message_at(inline), depth, object);
                continue;
            }
            // A pointer to null is no pointer.
            Repeat::Optional if there => {
                Some(any_value(rng, field.kind, depth)).filter(|v| !v.is_null()).or(none)
            }
            Repeat::Many if there => {
                Some((0..rng.usize(1..4)).map(|_| any_value(rng, field.kind, depth)).collect())
            }
            Repeat::Map if there => {
                let values = (0..rng.usize(1..4)).map(|_| (any_text(rng), any_entry(rng, field.kind, depth)));
                Some(Value::Object(values.collect()))
            }
            Repeat::Optional | Repeat::Many | Repeat::Map => none,
            Repeat::One if field.kind == Type::Bytes && !there => none,
            Repeat::One => {
                let value = any_value(rng, field.kind, depth);
                let empty = [json!(null), json!(false), json!(0), json!(0.0), json!("")].contains(&value);
                Some(value).filter(|_| !field.omit || !empty)
            }
        };
        if let Some(value) = value {
            object.insert(key, value);
        }
    }
}

/// A value of a map: Go makes an empty list there, never null.
fn any_entry(rng: &mut Rng, kind: Type, depth: u8) -> Value {
    match (any_value(rng, kind, depth), kind) {
        (Value::Null, Type::Message(index)) if message_at(index).shape == Shape::List => json!([]),
        (value, _) => value,
    }
}

fn any_value(rng: &mut Rng, kind: Type, depth: u8) -> Value {
    match kind {
        Type::Text => any_text(rng).into(),
        Type::Bool => rng.bool().into(),
        Type::Int32 => any_integer(rng, i32::MAX.into()).into(),
        Type::Int64 => any_integer(rng, i64::MAX).into(),
        Type::Double => rng
            .choice([
                json!(0),
                json!(1),
                json!(-7),
                json!(1.5),
                json!(-0.25),
                json!(1e20),
                json!(1e300),
                json!(5e-324),
            ])
            .unwrap(),
        Type::Bytes => rng.choice(["", "AA==", "aGVsbG8=", "/+8="]).unwrap().into(),
        Type::Time | Type::MicroTime => {
            let any = rng.i64(-2_208_988_800..16_725_225_600);
            let seconds = rng.choice([0, 1, any, any]).unwrap();
            let micro = kind == Type::MicroTime;
            let nanos = if micro { rng.i32(0..1_000_000) * 1000 } else { 0 };
            if rng.u8(..) < 50 { Value::Null } else { Time { seconds, nanos }.to_text(micro).into() }
        }
        Type::Quantity => {
            rng.choice(["0", "1", "250m", "2Gi", "1500Mi", "7k", "3e9", "-1", "5n"]).unwrap().into()
        }
        Type::IntOrString => {
            let kind = rng.choice([Type::Text, Type::Int32]).unwrap();
            any_value(rng, kind, depth)
        }
        Type::Raw => rng
            .choice([
                json!(null),
                json!({}),
                json!({"f:a":{"k:{}":{}},"b":[1,2.5]}),
                json!("x"),
                json!([[], null]),
                json!(7),
            ])
            .unwrap(),
        Type::Message(index) => {
            let message = message_at(index);
            let deep = depth > 7;
            match message.shape {
                Shape::Object => {
                    let mut object = Map::new();
                    any_fields(rng, message, depth + 1, &mut object);
                    Value::Object(object)
                }
                Shape::List | Shape::SchemaOrList if deep => Value::Null,
                Shape::List => any_list(rng, message, 0, depth),
                Shape::SchemaOrList if rng.bool() => any_list(rng, message, 1, depth),
                Shape::SchemaOrBool if deep || rng.bool() => rng.bool().into(),
                Shape::SchemaOrList => any_value(rng, message.fields[0].kind, depth + 1),
                Shape::SchemaOrBool => any_value(rng, message.fields[1].kind, depth + 1),
            }
        }
    }
}

fn any_list(rng: &mut Rng, message: &'static Message, field: usize, depth: u8) -> Value {
    (0..rng.usize(1..3)).map(|_| any_value(rng, message.fields[field].kind, depth + 1)).collect()
}

fn any_integer(rng: &mut Rng, most: i64) -> i64 {
    let any = rng.i64(-most..most);
    rng.choice([0, 1, -1, 80, 127, 128, most, -most - 1, any]).unwrap()
}

fn any_text(rng: &mut Rng) -> String {
    let short = ["", "a", "web-0", "Grüße", "ключ 🚀", "\"\\/\n\u{0}\u{7f}", "]}'*.[", "null"];
    match rng.u8(..10) {
        0 => (0..rng.usize(..9)).map(|_| rng.char(..)).collect(),
        1 => "x".repeat(rng.usize(100..300)),
        _ => rng.choice(short).unwrap().into(),
    }
}
