//! Fields at a path, read from protobuf without decoding the rest.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::de::seed_from_slice;
use super::schema::Kind;
use crate::path::Step;
use crate::{FieldPath, WireError};

impl FieldPath {
    /// The same as [`texts`](FieldPath::texts) for a bare protobuf object: what the path leads to is what it would lead to
    /// if the object had come as JSON.
    ///
    /// ```
    /// use kube_wire::FieldPath;
    /// use kube_wire::protobuf::{Kind, from_json};
    /// let pod = Kind::find("v1", "Pod").unwrap();
    /// let bytes = from_json(pod, br#"{"spec":{"containers":[{"image":"nginx"},{"image":"envoy"}]}}"#).unwrap();
    /// let images: FieldPath = ".spec.containers[*].image".parse().unwrap();
    /// assert_eq!(images.texts_in_protobuf(pod, &bytes).unwrap(), ["nginx", "envoy"]);
    /// ```
    pub fn texts_in_protobuf<'a>(
        &self,
        kind: Kind,
        object: &'a [u8],
    ) -> Result<Vec<Cow<'a, str>>, WireError> {
        let mut found = Vec::new();
        seed_from_slice(Walk { steps: self.steps(), found: &mut found }, kind, object)?;
        Ok(found)
    }
}

/// Follows the steps and notes the texts at their end.
struct Walk<'p, 'f, 'de> {
    steps: &'p [Step],
    found: &'f mut Vec<Cow<'de, str>>,
}

impl<'de> Walk<'_, '_, 'de> {
    fn end(self, text: impl Into<Cow<'de, str>>) {
        if self.steps.is_empty() {
            self.found.push(text.into());
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let Some((step, rest)) = self.steps.split_first() else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        while let Some(taken) = map.next_key_seed(Takes(step))? {
            if taken {
                map.next_value_seed(Walk { steps: rest, found: self.found })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        let mut position = 0;
        loop {
            let there = match self.steps.split_first() {
                Some((step, rest)) if step.takes_element(position) => {
                    list.next_element_seed(Walk { steps: rest, found: self.found })?.is_some()
                }
                _ => list.next_element::<IgnoredAny>()?.is_some(),
            };
            if !there {
                return Ok(());
            }
            position += 1;
        }
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.end(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.end(value.to_string());
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.end(value.to_string());
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.end(serde_json::Value::from(value).to_string());
        Ok(())
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<(), E> {
        self.end(value);
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.end(value.to_owned());
        Ok(())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<(), E> {
        self.end(value);
        Ok(())
    }
}

/// Whether a step goes on through the member with this key.
struct Takes<'p>(&'p Step);

impl<'de> DeserializeSeed<'de> for Takes<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Takes<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        Ok(self.0.takes_member(key))
    }
}
