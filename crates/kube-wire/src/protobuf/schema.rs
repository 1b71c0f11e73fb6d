//! What the protobuf form of every built-in kind looks like, and how it relates to JSON.
//!
//! The table in `schema.txt` is made from the published Go types by `testing/schema/generate`. A line that starts with `=`
//! opens a message: its name, its shape in JSON, and the API versions under which it is a kind. The lines below it are
//! its fields: number, key in JSON (`~` for a message whose fields stand among its parent's), and type. In front of the
//! type stand `?` if JSON leaves out the empty value, `?0` if it leaves out a zero struct too, `*` for a pointer, `[]` for
//! a list and `{}` for a map by text.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

/// A built-in kind whose protobuf form is known: what an object's bytes alone do not say.
///
/// ```
/// use kube_wire::protobuf::Kind;
/// let deployment = Kind::find("apps/v1", "Deployment").unwrap();
/// assert_eq!(deployment.to_string(), "apps/v1 Deployment");
/// assert!(Kind::find("example.com/v1", "Custom").is_none());
/// ```
#[derive(Clone, Copy)]
pub struct Kind {
    pub(crate) message: &'static Message,
    api_version: &'static str,
}

impl Kind {
    /// The kind of this name; `None` for custom resources, which have no protobuf form.
    pub fn find(api_version: &str, kind: &str) -> Option<Self> {
        let (api_version, message) =
            SCHEMA.kinds.get(kind)?.iter().find(|(known, _)| *known == api_version)?;
        Some(Self { message: message_at(*message), api_version })
    }

    /// All kinds there are, lists and options included, in no particular order.
    pub fn all() -> impl Iterator<Item = Self> {
        SCHEMA
            .kinds
            .values()
            .flatten()
            .map(|(api_version, message)| Self { message: message_at(*message), api_version })
    }

    /// The kind's `apiVersion`, such as `apps/v1`.
    pub fn api_version(self) -> &'static str {
        self.api_version
    }

    /// The kind's name, such as `Deployment`.
    pub fn name(self) -> &'static str {
        self.message.kind_name()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version(), self.name())
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({self})")
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        (self.api_version, self.name()) == (other.api_version, other.name())
    }
}

impl Eq for Kind {}

/// One message and its fields, in the order of their numbers.
#[derive(Debug)]
pub(crate) struct Message {
    name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) fields: Vec<Field>,
}

impl Message {
    /// Whether this is the metadata that every object has.
    pub(crate) fn is_object_meta(&self) -> bool {
        self.name == "meta/v1.ObjectMeta"
    }

    fn kind_name(&self) -> &'static str {
        self.name.rsplit_once('.').map_or(self.name, |(_, name)| name)
    }
}

/// What a message is in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An object with a member for each field.
    Object,
    /// The list in field 1.
    List,
    /// The list in field 2 if it has elements, else the message in field 1.
    SchemaOrList,
    /// The message in field 2, else the truth of field 1.
    SchemaOrBool,
}

/// One field of a message.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// The key in JSON.
    pub(crate) key: &'static str,
    pub(crate) repeat: Repeat,
    pub(crate) kind: Type,
    /// Whether JSON leaves out the empty value.
    pub(crate) omit: bool,
}

/// How often a field can be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Once; missing means zero.
    One,
    /// Once or not at all, and zero is something else than missing.
    Optional,
    /// A list.
    Many,
    /// A map by text, whose entries are messages of a key in field 1 and a value in field 2.
    Map,
    /// Once, and the fields of the message stand among those of its parent.
    Inline,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Text,
    Bool,
    Int32,
    Int64,
    Double,
    /// Bytes, in JSON as base64.
    Bytes,
    /// A message of seconds and nanoseconds, in JSON as text to the second.
    Time,
    /// The same to the microsecond.
    MicroTime,
    /// A message of one text.
    Quantity,
    /// A message of a choice, a number and a text.
    IntOrString,
    /// A message of bytes that are JSON.
    Raw,
    /// A message of the table.
    Message(u16),
}

/// The message that a [`Type::Message`] names.
#[inline]
pub(crate) fn message_at(index: u16) -> &'static Message {
    &SCHEMA.messages[usize::from(index)]
}

struct Schema {
    messages: Vec<Message>,
    /// By name: the API versions that have a kind of this name, each with its message.
    kinds: HashMap<&'static str, Vec<(&'static str, u16)>>,
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| parse(include_str!("schema.txt")));

/// Reads the table. It is part of the program, so a mistake in it is a mistake in the program.
fn parse(table: &'static str) -> Schema {
    let opening = |line: &'static str| line.strip_prefix("= ").map(|line| line.split(' '));
    let names: HashMap<&str, u16> = table
        .lines()
        .filter_map(opening)
        .enumerate()
        .map(|(index, mut words)| (words.next().expect("a message has a name"), index as u16))
        .collect();
    let mut schema = Schema { messages: Vec::with_capacity(names.len()), kinds: HashMap::new() };
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        if let Some(mut words) = opening(line) {
            let name = words.next().expect("a message has a name");
            let shape = match words.next() {
                Some("object") => Shape::Object,
                Some("list") => Shape::List,
                Some("schema-or-list") => Shape::SchemaOrList,
                Some("schema-or-bool") => Shape::SchemaOrBool,
                other => panic!("{name} has the shape {other:?}"),
            };
            let message = Message { name, shape, fields: Vec::new() };
            for api_version in words {
                let of_name = schema.kinds.entry(message.kind_name()).or_default();
                of_name.push((api_version, names[name]));
            }
            schema.messages.push(message);
        } else {
            let message = schema.messages.last_mut().expect("a field belongs to a message");
            let field = parse_field(line, message.name, &names);
            message.fields.push(field);
        }
    }
    schema
}

fn parse_field(line: &'static str, message: &str, names: &HashMap<&str, u16>) -> Field {
    let mut words = line.split(' ');
    let mut word = || words.next().expect("a field has a number, a key and a type");
    let (number, key, text) = (word(), word(), word());
    let (omit, text) = text.strip_prefix('?').map_or((false, text), |text| (true, text));
    let (omit_zero_struct, text) = text.strip_prefix('0').map_or((false, text), |text| (true, text));
    let (repeat, text) = [("*", Repeat::Optional), ("[]", Repeat::Many), ("{}", Repeat::Map)]
        .into_iter()
        .find_map(|(prefix, repeat)| Some((repeat, text.strip_prefix(prefix)?)))
        .unwrap_or((if key == "~" { Repeat::Inline } else { Repeat::One }, text));
    let kind = match text {
        "string" => Type::Text,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "double" => Type::Double,
        "bytes" => Type::Bytes,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "quantity" => Type::Quantity,
        "intorstring" => Type::IntOrString,
        "raw" => Type::Raw,
        // A message of the same package goes by its last name.
        name if name.contains('.') => Type::Message(names[name]),
        name => {
            let package = message.rsplit_once('.').map_or("", |(package, _)| package);
            Type::Message(names[format!("{package}.{name}").as_str()])
        }
    };
    let is_struct =
        !matches!(kind, Type::Text | Type::Bool | Type::Int32 | Type::Int64 | Type::Double | Type::Bytes);
    // Go leaves out empty values, but a struct is never empty to it.
    let omit = omit && (repeat != Repeat::One || !is_struct || omit_zero_struct);
    Field { number: number.parse().expect("a field's number"), key, repeat, kind, omit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_knows_the_kinds() {
        assert!(Kind::all().count() > 350);
        let pod = Kind::find("v1", "Pod").unwrap();
        let spec = pod.message.fields.iter().find(|field| field.key == "spec").unwrap();
        let Type::Message(spec) = spec.kind else { panic!("{spec:?}") };
        let containers = message_at(spec).fields.iter().find(|field| field.key == "containers").unwrap();
        assert_eq!((containers.number, containers.repeat, containers.omit), (2, Repeat::Many, false));
        assert_ne!(Kind::find("events.k8s.io/v1", "Event"), Kind::find("v1", "Event"));
        assert!(Kind::find("v1", "Deployment").is_none());
    }

    #[test]
    fn every_message_is_well_formed() {
        for message in &SCHEMA.messages {
            let numbers: Vec<u32> = message.fields.iter().map(|field| field.number).collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "{}", message.name);
            for field in &message.fields {
                if field.repeat == Repeat::Inline {
                    let Type::Message(inline) = field.kind else { panic!("{field:?}") };
                    assert_eq!(message_at(inline).shape, Shape::Object);
                }
            }
        }
    }
}
