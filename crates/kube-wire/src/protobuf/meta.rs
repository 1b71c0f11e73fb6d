//! Metadata read in place from protobuf.

use std::borrow::Cow;

use super::leaf::{read_time, text};
use super::schema::{Kind, Type, message_at};
use super::wire::Reader;
use crate::meta::Owner;
use crate::{Metadata, WireError};

impl<'a> Metadata<'a> {
    /// Reads the metadata of a bare protobuf object and passes over the rest.
    ///
    /// `kind` and `apiVersion` are those of `kind`, since the bytes do not hold them.
    ///
    /// ```
    /// use kube_wire::Metadata;
    /// use kube_wire::protobuf::{Kind, from_json};
    /// let pod = Kind::find("v1", "Pod").unwrap();
    /// let bytes = from_json(pod, br#"{"metadata":{"name":"web-0","labels":{"app":"web"}}}"#).unwrap();
    /// let meta = Metadata::from_protobuf(pod, &bytes).unwrap();
    /// assert_eq!((&*meta.name, meta.kind.as_deref()), ("web-0", Some("Pod")));
    /// assert_eq!(meta.labels[0], ("app".into(), "web".into()));
    /// ```
    pub fn from_protobuf(kind: Kind, object: &'a [u8]) -> Result<Self, WireError> {
        let mut meta = Self {
            api_version: Some(Cow::Borrowed(kind.api_version())),
            kind: Some(Cow::Borrowed(kind.name())),
            ..Self::default()
        };
        let number = kind.message.fields.iter().find_map(|field| match field.kind {
            Type::Message(index) if message_at(index).is_object_meta() => Some(field.number),
            _ => None,
        });
        let mut reader = Reader::new(object);
        while let Some(field) = reader.next_field()? {
            if Some(field.number) == number {
                read_object_meta(&mut meta, field.value.bytes()?)
                    .map_err(|error| error.within("metadata"))?;
            }
        }
        Ok(meta)
    }
}

fn read_object_meta<'a>(meta: &mut Metadata<'a>, message: &'a [u8]) -> Result<(), WireError> {
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next_field()? {
        match field.number {
            1 => meta.name = text(field.value.bytes()?),
            3 => meta.namespace = text(field.value.bytes()?),
            5 => meta.uid = text(field.value.bytes()?),
            6 => meta.resource_version = text(field.value.bytes()?),
            7 => meta.generation = field.value.varint()?.cast_signed(),
            9 => {
                let time = read_time(field.value.bytes()?)?;
                meta.deletion_timestamp = time.map(|time| time.to_text(false).into());
            }
            11 => meta.labels.push(read_entry(field.value.bytes()?)?),
            12 => meta.annotations.push(read_entry(field.value.bytes()?)?),
            13 => meta.owners.push(read_owner(field.value.bytes()?)?),
            _ => {}
        }
    }
    Ok(())
}

fn read_entry(message: &[u8]) -> Result<(Cow<'_, str>, Cow<'_, str>), WireError> {
    let (mut key, mut value) = (Cow::default(), Cow::default());
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next_field()? {
        match field.number {
            1 => key = text(field.value.bytes()?),
            2 => value = text(field.value.bytes()?),
            _ => {}
        }
    }
    Ok((key, value))
}

fn read_owner(message: &[u8]) -> Result<Owner<'_>, WireError> {
    let mut owner = Owner::default();
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next_field()? {
        match field.number {
            1 => owner.kind = text(field.value.bytes()?),
            3 => owner.name = text(field.value.bytes()?),
            4 => owner.uid = text(field.value.bytes()?),
            5 => owner.api_version = text(field.value.bytes()?),
            6 => owner.controller = field.value.varint()? != 0,
            _ => {}
        }
    }
    Ok(owner)
}

#[cfg(test)]
mod tests {
    use super::super::from_json;
    use super::*;

    #[test]
    fn protobuf_and_json_have_the_same_metadata() {
        let json = br#"{"apiVersion":"v1","kind":"Pod","spec":{},"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7",
            "generation":3,"deletionTimestamp":"2026-01-01T00:00:00Z","labels":{"a\n":"1","b":"2"},"annotations":{"k":"v","n":null},
            "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"o","controller":true},{}],"managedFields":[{}]}}"#;
        let pod = Kind::find("v1", "Pod").unwrap();
        let bytes = from_json(pod, json).unwrap();
        let meta = Metadata::from_protobuf(pod, &bytes).unwrap();
        assert_eq!(meta, Metadata::from_json(json).unwrap());
        assert!(matches!(meta.name, Cow::Borrowed(_)));
    }

    #[test]
    fn a_kind_without_metadata_has_none() {
        let status = Kind::find("v1", "Status").unwrap();
        let bytes = from_json(status, br#"{"metadata":{"selfLink":"x","resourceVersion":"7"}}"#).unwrap();
        let meta = Metadata::from_protobuf(status, &bytes).unwrap();
        assert_eq!((&*meta.name, &*meta.resource_version), ("", ""));
    }

    #[test]
    fn metadata_of_the_wrong_type_is_an_error() {
        let pod = Kind::find("v1", "Pod").unwrap();
        let cases: [&[u8]; 5] = [
            b"\x08\x01",
            b"\x0a\x02\x08\x01",
            b"\x0a\x02\x3a\x00",
            b"\x0a\x04\x5a\x02\x08\x01",
            b"\x0a\x05\x0a",
        ];
        for bytes in cases {
            assert!(Metadata::from_protobuf(pod, bytes).is_err(), "{bytes:?}");
        }
    }
}
