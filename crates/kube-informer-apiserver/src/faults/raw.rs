//! A JSON object taken apart one level deep: its fields in order, each as the bytes that it came as.
//!
//! Mangling one field leaves all others byte for byte as the server wrote them.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// The fields of a JSON object.
#[derive(Debug)]
pub(crate) struct RawObject(Vec<(String, Box<RawValue>)>);

impl RawObject {
    /// None if it is no JSON object.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }

    /// The field as an object.
    pub(crate) fn object(&self, name: &str) -> Option<Self> {
        Self::parse(self.get(name)?.get().as_bytes())
    }

    /// The field as a string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(field, _)| field.as_str())
    }

    /// Sets a field: in its place if it is there, else at the end.
    pub(crate) fn set(&mut self, name: &str, value: &impl Serialize) {
        let value = to_raw_value(value).expect("JSON values and raw objects serialise");
        match self.0.iter_mut().find(|(field, _)| field == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("raw objects serialise")
    }
}

impl Serialize for RawObject {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(field, value)| (field, value)))
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = RawObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(RawObject(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_touched_stays_as_it_was() {
        let text = r#"{"b":1e3,"a":{"x": [1,  2]},"c":"é"}"#;
        let mut object = RawObject::parse(text.as_bytes()).unwrap();
        assert_eq!(object.to_json(), text);
        object.set("a", &7);
        object.set("d", &"new");
        assert_eq!(object.to_json(), r#"{"b":1e3,"a":7,"c":"é","d":"new"}"#);
        assert!(RawObject::parse(b"[1]").is_none());
    }
}
