//! Metadata read in place: what a cache must know of an object before anybody decodes it.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::WireError;

/// The metadata of one object, borrowed from its bytes where that is possible.
///
/// ```
/// use kube_wire::Metadata;
/// let json = br#"{"kind":"Pod","metadata":{"name":"web-0","namespace":"default","labels":{"app":"web"}},"spec":{}}"#;
/// let meta = Metadata::from_json(json).unwrap();
/// assert_eq!(meta.name, "web-0");
/// assert_eq!(meta.labels[0], ("app".into(), "web".into()));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// `apiVersion`, which items of a typed list lack.
    pub api_version: Option<Cow<'a, str>>,
    /// `kind`, which items of a typed list lack.
    pub kind: Option<Cow<'a, str>>,
    /// `metadata.name`.
    pub name: Cow<'a, str>,
    /// `metadata.namespace`, empty for cluster-scoped objects.
    pub namespace: Cow<'a, str>,
    /// `metadata.uid`.
    pub uid: Cow<'a, str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Cow<'a, str>,
    /// `metadata.generation`, 0 where the kind has none.
    pub generation: i64,
    /// `metadata.deletionTimestamp`.
    pub deletion_timestamp: Option<Cow<'a, str>>,
    /// `metadata.labels`, in the order they stand in.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// `metadata.annotations`, in the order they stand in.
    pub annotations: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// `metadata.ownerReferences`.
    pub owners: Vec<Owner<'a>>,
}

/// One of an object's owners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The owner's `apiVersion`.
    pub api_version: Cow<'a, str>,
    /// The owner's kind.
    pub kind: Cow<'a, str>,
    /// The owner's name, in the object's own namespace unless the kind has none.
    pub name: Cow<'a, str>,
    /// The owner's uid.
    pub uid: Cow<'a, str>,
    /// Whether this owner manages the object.
    pub controller: bool,
}

impl<'a> Metadata<'a> {
    /// Reads the metadata of a JSON object and passes over the rest, which must be JSON all the same.
    pub fn from_json(json: &'a [u8]) -> Result<Self, WireError> {
        let document: Document<'a> = serde_json::from_slice(json)?;
        let raw = document.metadata.unwrap_or_default();
        Ok(Self {
            api_version: document.api_version.map(|text| text.0),
            kind: document.kind.map(|text| text.0),
            name: text(raw.name),
            namespace: text(raw.namespace),
            uid: text(raw.uid),
            resource_version: text(raw.resource_version),
            generation: raw.generation.unwrap_or_default(),
            deletion_timestamp: raw.deletion_timestamp.map(|text| text.0),
            labels: raw.labels.map(|pairs| pairs.0).unwrap_or_default(),
            annotations: raw.annotations.map(|pairs| pairs.0).unwrap_or_default(),
            owners: raw.owner_references.unwrap_or_default().into_iter().map(Owner::from).collect(),
        })
    }

    /// The annotation with this key.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.iter().find(|(k, _)| k == key).map(|(_, value)| &**value)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    metadata: Option<Raw<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Raw<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    namespace: Option<Text<'a>>,
    uid: Option<Text<'a>>,
    resource_version: Option<Text<'a>>,
    generation: Option<i64>,
    deletion_timestamp: Option<Text<'a>>,
    labels: Option<Pairs<'a>>,
    annotations: Option<Pairs<'a>>,
    owner_references: Option<Vec<RawOwner<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawOwner<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    name: Option<Text<'a>>,
    uid: Option<Text<'a>>,
    controller: Option<bool>,
}

impl<'a> From<RawOwner<'a>> for Owner<'a> {
    fn from(raw: RawOwner<'a>) -> Self {
        Self {
            api_version: text(raw.api_version),
            kind: text(raw.kind),
            name: text(raw.name),
            uid: text(raw.uid),
            controller: raw.controller.unwrap_or_default(),
        }
    }
}

fn text(text: Option<Text<'_>>) -> Cow<'_, str> {
    text.map(|text| text.0).unwrap_or_default()
}

/// A string, borrowed where it has no escapes (serde borrows inside `Cow` only when asked like this).
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A map of strings in the order it stands in; null values count as empty, as Go reads them.
struct Pairs<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Vec<(Cow<'de, str>, Cow<'de, str>)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut pairs = Vec::new();
                while let Some((key, value)) = map.next_entry::<Text<'de>, Option<Text<'de>>>()? {
                    pairs.push((key.0, text(value)));
                }
                Ok(pairs)
            }
        }
        deserializer.deserialize_map(PairsVisitor).map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_metadata_is_read() {
        let json = br#"{"apiVersion":"v1","kind":"Pod","spec":{"x":[1,2]},"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7",
            "generation":3,"deletionTimestamp":"2026-01-01T00:00:00Z","labels":{"b":"2","a\n":"1"},"annotations":{"k":"v","n":null},
            "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"o","controller":true},{}],"managedFields":[{}]}}"#;
        let meta = Metadata::from_json(json).unwrap();
        assert_eq!(
            (&*meta.name, &*meta.namespace, &*meta.uid, &*meta.resource_version),
            ("a", "n", "u", "7")
        );
        assert_eq!(meta.generation, 3);
        assert_eq!(meta.deletion_timestamp.as_deref(), Some("2026-01-01T00:00:00Z"));
        assert_eq!(meta.labels, [("b".into(), "2".into()), ("a\n".into(), "1".into())]);
        assert_eq!(meta.annotation("k"), Some("v"));
        assert_eq!(meta.annotation("n"), Some(""));
        assert_eq!(meta.owners[0].name, "r");
        assert!(meta.owners[0].controller && !meta.owners[1].controller);
        assert!(matches!(meta.name, Cow::Borrowed(_)));
    }

    #[test]
    fn missing_and_null_are_the_same() {
        let meta = Metadata::from_json(
            br#"{"metadata":{"name":"a","labels":null,"ownerReferences":null,"uid":null}}"#,
        )
        .unwrap();
        assert_eq!(meta, Metadata { name: "a".into(), ..Metadata::default() });
        assert_eq!(Metadata::from_json(b"{}").unwrap(), Metadata::default());
    }

    #[test]
    fn metadata_of_the_wrong_type_is_an_error() {
        for json in [
            "",
            "[]",
            "7",
            r#"{"metadata":7}"#,
            r#"{"metadata":{"name":7}}"#,
            r#"{"metadata":{"labels":[]}}"#,
            r#"{"metadata":{}"#,
        ] {
            assert!(Metadata::from_json(json.as_bytes()).is_err(), "{json}");
        }
    }
}
