//! Cuts fields out of protobuf without decoding the rest.

use std::ops::Range;

use super::envelope::MAGIC;
use super::schema::{Field, Kind, Message, Repeat, Shape, Type, message_at};
use super::wire::{Reader, Value, put_varint, varint_length};
use crate::WireError;
use crate::path::{self, FieldPath, Step};

/// The bare object without what the paths lead to, or `None` if they lead nowhere.
///
/// What stays is byte for byte what it was, but for the lengths of messages that have become shorter. A field that Go
/// writes even if it is empty reads as empty once it is cut: `.spec` of a pod, say, becomes a spec without containers.
///
/// ```
/// use kube_wire::protobuf::{Kind, cut, from_json, from_slice};
/// let pod = Kind::find("v1", "Pod").unwrap();
/// let bytes = from_json(pod, br#"{"metadata":{"name":"a","managedFields":[{"manager":"kubectl"}]}}"#).unwrap();
/// let rest = cut(pod, &bytes, &[".metadata.managedFields".parse().unwrap()]).unwrap().unwrap();
/// assert_eq!(rest, from_json(pod, br#"{"metadata":{"name":"a"}}"#).unwrap());
/// assert_eq!(cut(pod, &rest, &[".metadata.managedFields".parse().unwrap()]).unwrap(), None);
/// ```
pub fn cut(kind: Kind, object: &[u8], paths: &[FieldPath]) -> Result<Option<Vec<u8>>, WireError> {
    let steps: Vec<&[Step]> = paths.iter().map(FieldPath::steps).filter(|steps| !steps.is_empty()).collect();
    let mut scissors = Scissors { object, edits: Vec::new(), trail: Vec::new(), positions: Vec::new() };
    let removed = scissors.message(kind.message, 0..object.len(), &steps)?;
    if removed == 0 {
        return Ok(None);
    }
    let mut rest = Vec::with_capacity(object.len() - removed);
    let mut from = 0;
    for edit in scissors.edits {
        rest.extend_from_slice(&object[from..edit.range.start]);
        if let Some(length) = edit.length {
            put_varint(&mut rest, length);
        }
        from = edit.range.end;
    }
    rest.extend_from_slice(&object[from..]);
    Ok(Some(rest))
}

/// Bytes to leave out, or a length to write in their place.
struct Edit {
    range: Range<usize>,
    length: Option<u64>,
}

/// Goes over the object and notes what to change, in the order in which it stands.
struct Scissors<'a> {
    object: &'a [u8],
    edits: Vec<Edit>,
    /// The way to the current message: the numbers of fields, and for elements and entries where they stand.
    trail: Vec<usize>,
    /// How many elements have been seen of each list that a path leads into. A message may come in several pieces with
    /// a part of the list each, so this is by the way to the list.
    positions: Vec<(Vec<usize>, usize)>,
}

/// One field on the wire: all of it, and its value if that has a length.
struct Record {
    whole: Range<usize>,
    value: Range<usize>,
}

impl<'a> Scissors<'a> {
    /// Cuts inside a message and says by how much it has become shorter.
    fn message(
        &mut self,
        message: &'static Message,
        range: Range<usize>,
        paths: &[&[Step]],
    ) -> Result<usize, WireError> {
        let mut removed = 0;
        self.records(range, |scissors, number, value, record| {
            let Ok(index) = message.fields.binary_search_by_key(&number, |field| field.number) else {
                return Ok(());
            };
            let field = &message.fields[index];
            removed += match (message.shape, field.repeat) {
                (Shape::Object, Repeat::Inline) => scissors.field(field, value, record, paths)?,
                (Shape::Object, _) => {
                    if !paths.iter().any(|steps| steps[0].takes_member(field.key)) {
                        return Ok(());
                    }
                    let below: Vec<&[Step]> = below(paths, |step| step.takes_member(field.key));
                    if below.iter().any(|rest| rest.is_empty()) {
                        scissors.cut(record.whole)
                    } else {
                        scissors.field(field, value, record, &below)?
                    }
                }
                // The list or schema stands in for the message it is in.
                _ => scissors.field(field, value, record, paths)?,
            };
            Ok(())
        })?;
        Ok(removed)
    }

    /// Cuts inside one field, or the field itself if it is an element or entry that a path ends at.
    fn field(
        &mut self,
        field: &'static Field,
        value: Value<'a>,
        record: Record,
        paths: &[&[Step]],
    ) -> Result<usize, WireError> {
        self.trail.push(field.number as usize);
        let removed = self.field_at_trail(field, value, record, paths);
        self.trail.pop();
        removed
    }

    fn field_at_trail(
        &mut self,
        field: &'static Field,
        value: Value<'a>,
        record: Record,
        paths: &[&[Step]],
    ) -> Result<usize, WireError> {
        let inner = match field.repeat {
            Repeat::One | Repeat::Optional | Repeat::Inline => return self.value(field.kind, record, paths),
            Repeat::Many => {
                let list = self.list_at_trail();
                if matches!(field.kind, Type::Bool | Type::Int32 | Type::Int64)
                    && let Value::Bytes(_) = value
                {
                    return self.packed(record, paths, list);
                }
                let position = self.positions[list].1;
                self.positions[list].1 += 1;
                below(paths, |step| step.takes_element(position))
            }
            Repeat::Map => {
                let key = entry_key(value.bytes()?)?;
                below(paths, |step| step.takes_member(&key))
            }
        };
        if inner.iter().any(|rest| rest.is_empty()) {
            return Ok(self.cut(record.whole));
        }
        if inner.is_empty() {
            return Ok(0);
        }
        self.trail.push(record.whole.start);
        let removed = if field.repeat == Repeat::Many {
            self.value(field.kind, record, &inner)
        } else {
            self.shorten(record, |scissors, entry| {
                let mut removed = 0;
                scissors.records(entry, |scissors, number, _, record| {
                    if number == 2 {
                        removed += scissors.value(field.kind, record, &inner)?;
                    }
                    Ok(())
                })?;
                Ok(removed)
            })
        };
        self.trail.pop();
        removed
    }

    /// Cuts inside a value that has a length.
    fn value(&mut self, kind: Type, record: Record, paths: &[&[Step]]) -> Result<usize, WireError> {
        match kind {
            Type::Message(index) => {
                self.shorten(record, |scissors, range| scissors.message(message_at(index), range, paths))
            }
            Type::Raw => self.shorten(record, |scissors, range| {
                let mut removed = 0;
                scissors.records(range, |scissors, number, _, record| {
                    if number == 1 {
                        removed += scissors.shorten(record, |scissors, range| scissors.json(range, paths))?;
                    }
                    Ok(())
                })?;
                Ok(removed)
            }),
            _ => Ok(0),
        }
    }

    fn json(&mut self, range: Range<usize>, paths: &[&[Step]]) -> Result<usize, WireError> {
        let text = &self.object[range.clone()];
        if text.is_empty() || text.starts_with(&MAGIC) {
            return Ok(0);
        }
        let holes = path::holes(text, paths)?;
        Ok(holes.into_iter().map(|hole| self.cut(range.start + hole.start..range.start + hole.end)).sum())
    }

    /// Cuts numbers that were written without a tag each.
    fn packed(&mut self, record: Record, paths: &[&[Step]], list: usize) -> Result<usize, WireError> {
        self.shorten(record, |scissors, range| {
            let (mut at, mut removed) = (range.start, 0);
            while at < range.end {
                let length = varint_length(&scissors.object[at..range.end])?;
                let position = scissors.positions[list].1;
                if paths.iter().any(|steps| steps.len() == 1 && steps[0].takes_element(position)) {
                    removed += scissors.cut(at..at + length);
                }
                scissors.positions[list].1 += 1;
                at += length;
            }
            Ok(removed)
        })
    }

    /// Which of the lists in `positions` the current one is.
    fn list_at_trail(&mut self) -> usize {
        let known = self.positions.iter().rposition(|(trail, _)| *trail == self.trail);
        known.unwrap_or_else(|| {
            self.positions.push((self.trail.clone(), 0));
            self.positions.len() - 1
        })
    }

    fn cut(&mut self, range: Range<usize>) -> usize {
        let removed = range.len();
        self.edits.push(Edit { range, length: None });
        removed
    }

    /// Lets `inside` cut in a value and corrects its length, which may then take fewer bytes itself.
    fn shorten(
        &mut self,
        record: Record,
        inside: impl FnOnce(&mut Self, Range<usize>) -> Result<usize, WireError>,
    ) -> Result<usize, WireError> {
        let Record { whole, value } = record;
        let edit = self.edits.len();
        // The length stands in front of the value, behind the tag.
        let tag = varint_length(&self.object[whole.start..value.start])?;
        let length = whole.start + tag..value.start;
        self.edits.push(Edit { range: length.clone(), length: Some(0) });
        let removed = inside(self, value.clone())?;
        if removed == 0 {
            self.edits.truncate(edit);
            return Ok(0);
        }
        let shorter = (value.len() - removed) as u64;
        self.edits[edit].length = Some(shorter);
        let mut bytes = Vec::with_capacity(10);
        put_varint(&mut bytes, shorter);
        Ok(removed + length.len() - bytes.len())
    }

    /// Calls `each` with every field of the message at `range`.
    fn records(
        &mut self,
        range: Range<usize>,
        mut each: impl FnMut(&mut Self, u32, Value<'a>, Record) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let object = self.object;
        let mut reader = Reader::new(&object[range.clone()]);
        let mut start = range.start;
        while let Some(field) = reader.next_field()? {
            let end = range.start + reader.position();
            let length = if let Value::Bytes(bytes) = field.value { bytes.len() } else { 0 };
            each(self, field.number, field.value, Record { whole: start..end, value: end - length..end })?;
            start = end;
        }
        Ok(())
    }
}

/// What is left of the paths whose first step is taken.
fn below<'p>(paths: &[&'p [Step]], taken: impl Fn(&Step) -> bool) -> Vec<&'p [Step]> {
    paths.iter().filter(|steps| taken(&steps[0])).map(|steps| &steps[1..]).collect()
}

fn entry_key(entry: &[u8]) -> Result<std::borrow::Cow<'_, str>, WireError> {
    Ok(super::leaf::text(super::leaf::first_bytes(entry)?.unwrap_or_default()))
}
