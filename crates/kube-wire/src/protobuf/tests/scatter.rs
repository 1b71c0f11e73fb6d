//! Writes the same message in another way that protobuf allows.

use fastrand::Rng;

use super::super::Kind;
use super::super::schema::{Message, Repeat, Shape, Type, message_at};
use super::super::wire::{Field, Reader, Value, put_bytes, put_head, put_integer, put_varint};

/// The same object with its fields in another order, messages in two pieces, values said twice, numbers packed, and
/// fields in between that nobody knows.
pub(super) fn scatter(rng: &mut Rng, kind: Kind, bytes: &[u8]) -> Vec<u8> {
    scatter_message(rng, kind.message, bytes)
}

fn scatter_message(rng: &mut Rng, message: &'static Message, bytes: &[u8]) -> Vec<u8> {
    let mut groups: Vec<Vec<Vec<u8>>> = Vec::new();
    for field in &message.fields {
        let values: Vec<Value<'_>> =
            fields(bytes).into_iter().filter(|found| found.number == field.number).map(|f| f.value).collect();
        let numbers: Option<Vec<u64>> = values.iter().map(|value| value.varint().ok()).collect();
        match numbers {
            Some(numbers) if field.repeat == Repeat::Many && numbers.len() > 1 && rng.bool() => {
                // One number alone, the others packed.
                let mut packed = Vec::new();
                numbers[1..].iter().for_each(|number| put_varint(&mut packed, *number));
                let mut alone = Vec::new();
                put_integer(&mut alone, field.number, numbers[0]);
                groups.push(vec![alone, record(field.number, &packed)]);
            }
            _ => groups
                .push(values.iter().flat_map(|value| pieces(rng, message, field.number, *value)).collect()),
        }
    }
    let mut unknown = Vec::new();
    put_bytes(&mut unknown, 1000 + rng.u32(..9), b"unknown");
    groups.push(vec![unknown]);
    // Whatever belongs together stays in its order; what does not is dealt out at random.
    let mut out = Vec::new();
    let mut queues: Vec<std::vec::IntoIter<Vec<u8>>> = groups.into_iter().map(Vec::into_iter).collect();
    while !queues.is_empty() {
        let at = rng.usize(..queues.len());
        match queues[at].next() {
            Some(record) => out.extend_from_slice(&record),
            None => drop(queues.swap_remove(at)),
        }
    }
    out
}

/// One field in one piece or several.
fn pieces(rng: &mut Rng, message: &'static Message, number: u32, value: Value<'_>) -> Vec<Vec<u8>> {
    let field = message.fields.iter().find(|field| field.number == number).unwrap();
    let single = !matches!(field.repeat, Repeat::Many | Repeat::Map);
    match (value, field.kind) {
        (Value::Bytes(bytes), Type::Message(below)) if field.repeat != Repeat::Map => {
            let below = message_at(below);
            let inner = scatter_message(rng, below, bytes);
            // Split between two fields, it is the same message in two pieces.
            let cuts: Vec<usize> = boundaries(&inner);
            let at = rng.choice(cuts).filter(|_| single && below.shape != Shape::List).unwrap_or(0);
            if at == 0 {
                vec![record(number, &inner)]
            } else {
                vec![record(number, &inner[..at]), record(number, &inner[at..])]
            }
        }
        (Value::Bytes(bytes), _) => {
            let mut records = vec![record(number, bytes)];
            // Of a value that is said twice the last one counts.
            if single && field.kind == Type::Text && rng.bool() {
                records.insert(0, record(number, b"wrong"));
            }
            records
        }
        (Value::Varint(value), _) => {
            let mut out = Vec::new();
            put_integer(&mut out, number, value);
            let mut wrong = Vec::new();
            put_integer(&mut wrong, number, 12345);
            if single && rng.bool() { vec![wrong, out] } else { vec![out] }
        }
        (Value::Fixed64(bits), _) => {
            let mut out = Vec::new();
            super::super::wire::put_double(&mut out, number, f64::from_bits(bits));
            vec![out]
        }
        (Value::Fixed32(_), _) => unreachable!("no field is written like this"),
    }
}

fn record(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_head(&mut out, number, bytes.len());
    out.extend_from_slice(bytes);
    out
}

fn fields(bytes: &[u8]) -> Vec<Field<'_>> {
    let mut reader = Reader::new(bytes);
    std::iter::from_fn(|| reader.next_field().unwrap()).collect()
}

fn boundaries(bytes: &[u8]) -> Vec<usize> {
    let mut reader = Reader::new(bytes);
    std::iter::from_fn(|| reader.next_field().unwrap().map(|_| reader.position())).collect()
}
