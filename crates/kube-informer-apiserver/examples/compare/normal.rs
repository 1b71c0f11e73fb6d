//! Takes out of an answer what differs between any two servers, and keeps what it means: which versions are the same, how long
//! a generated name is, that there is a uid and not which.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// What was seen in the answers of one server so far.
pub(crate) struct Normal {
    namespace: String,
    /// The versions of objects, numbered as they came up.
    versions: HashMap<String, usize>,
}

/// `h` stands for a hexadecimal digit, `d` for a decimal one, everything else for itself.
const SHAPES: &[(&str, &str)] = &[
    ("hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh", "UID"),
    ("dddd-dd-ddTdd:dd:dd.ddddddZ", "TIME"),
    ("dddd-dd-ddTdd:dd:ddZ", "TIME"),
];

impl Normal {
    pub(crate) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), versions: HashMap::new() }
    }

    pub(crate) fn normalise(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(list) => list.into_iter().map(|value| self.normalise(value)).collect(),
            Value::Object(map) => self.map(map),
            other => other,
        }
    }

    fn map(&mut self, mut map: Map<String, Value>) -> Value {
        let bookmark = map.get("type").is_some_and(|event| event == "BOOKMARK");
        let fluid = bookmark || map.contains_key("items");
        for (name, value) in &mut map {
            let part = if name == "object" && bookmark { value.get_mut("metadata") } else { Some(value) };
            if let Some(Value::Object(metadata)) =
                part.filter(|_| name == "metadata" || (name == "object" && bookmark))
            {
                self.metadata(metadata, fluid);
            }
        }
        Value::Object(map.into_iter().map(|(name, value)| (name, self.normalise(value))).collect())
    }

    fn metadata(&mut self, metadata: &mut Map<String, Value>, fluid: bool) {
        metadata.remove("managedFields");
        if let Some(Value::String(version)) = metadata.get_mut("resourceVersion")
            && version.starts_with(|c: char| c.is_ascii_digit())
        {
            // Other writers move the version of a list, not that of an object.
            let next = self.versions.len() + 1;
            *version = if fluid {
                "VERSION".to_owned()
            } else {
                format!("VERSION {}", self.versions.entry(version.clone()).or_insert(next))
            };
        }
        if let Some(Value::String(token)) = metadata.get_mut("continue").filter(|token| *token != "") {
            "TOKEN".clone_into(token);
        }
        if let (Some(Value::String(prefix)), Some(Value::String(name))) =
            (metadata.get("generateName").cloned(), metadata.get_mut("name"))
            && let Some(rest) = name.strip_prefix(&prefix)
        {
            *name = format!("{prefix}{}", "?".repeat(rest.len()));
        }
    }

    fn text(&self, text: &str) -> String {
        let mut text = text.replace(&self.namespace, "$ns");
        for (shape, name) in SHAPES {
            text = replace_shape(&text, shape.as_bytes(), name);
        }
        if text.contains("esource version") || text.contains("esourceVersion") {
            return versions_in(&text);
        }
        text
    }
}

/// Texts about versions end in numbers: one that was asked for and stays, one that is the server's own and goes.
fn versions_in(text: &str) -> String {
    for mark in ["current: ", " (", "in record ("] {
        if let Some((before, after)) = text.split_once(mark) {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            if rest.len() < after.len() {
                return format!("{before}{mark}VERSION{rest}");
            }
        }
    }
    text.to_owned()
}

fn replace_shape(text: &str, shape: &[u8], name: &str) -> String {
    let fits = |bytes: &[u8]| {
        bytes.len() == shape.len()
            && bytes.iter().zip(shape).all(|(byte, kind)| match kind {
                b'h' => byte.is_ascii_hexdigit(),
                b'd' => byte.is_ascii_digit(),
                _ => byte == kind,
            })
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = shape.len();
        if rest.as_bytes().get(..len).is_some_and(fits) {
            out.push_str(name);
            rest = &rest[len..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}
