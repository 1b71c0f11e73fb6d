//! The part of an object's metadata that is read without decoding, as small as it can be kept.

use std::borrow::Cow;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashSet, HashTable};
use kube_wire::meta::Owner;
use kube_wire::{Metadata, ResourceVersion, WireError};

use super::Uid;
use crate::ObjectKey;

/// Metadata beside the body.
#[derive(Debug, Clone)]
pub(crate) struct Meta {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Uid,
    pub(crate) version: ResourceVersion,
    pub(crate) generation: i64,
    pub(crate) family: Arc<Family>,
    pub(crate) deletion_timestamp: Option<Box<str>>,
    pub(crate) annotations_hash: u64,
}

/// What siblings have in common, and keep once for all of them: labels and owners.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) labels: Box<[(Arc<str>, Arc<str>)]>,
    pub(crate) owners: Box<[OwnerReference]>,
}

/// One of the owners of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerReference {
    /// The owner's `apiVersion`.
    pub api_version: Arc<str>,
    /// The owner's kind.
    pub kind: Arc<str>,
    /// The owner's name.
    pub name: Arc<str>,
    /// The owner's uid.
    pub uid: Uid,
    /// Whether this owner manages the object.
    pub controller: bool,
}

/// The families and texts that the objects of one cache share.
#[derive(Default)]
pub(crate) struct Interner {
    hasher: DefaultHashBuilder,
    families: HashTable<Arc<Family>>,
    texts: HashSet<Arc<str>>,
    /// After so many objects, families and texts that nobody has any more are forgotten.
    sweep_in: usize,
}

impl Meta {
    pub(crate) fn new(metadata: &Metadata<'_>, interner: &mut Interner) -> Result<Self, WireError> {
        if metadata.name.is_empty() {
            return Err(WireError::Decode("the object has no metadata.name".into()));
        }
        Ok(Self {
            key: ObjectKey::new(&metadata.namespace, &metadata.name),
            uid: (&*metadata.uid).into(),
            version: (&*metadata.resource_version).into(),
            generation: metadata.generation,
            family: interner.family(metadata),
            deletion_timestamp: metadata.deletion_timestamp.as_deref().map(Into::into),
            annotations_hash: hash(&metadata.annotations),
        })
    }

    /// Whether the server gave the object a version.
    pub(crate) fn has_version(&self) -> bool {
        self.version != ResourceVersion::from("")
    }

    /// Equal for objects that were probably made from one template: of one controller, else with the same labels, else
    /// of one namespace.
    pub(crate) fn template(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match self.family.owners.iter().find(|owner| owner.controller) {
            Some(owner) => owner.uid.hash(&mut hasher),
            None if self.family.labels.is_empty() => self.key.namespace().hash(&mut hasher),
            None => self.family.labels.hash(&mut hasher),
        }
        hasher.finish()
    }
}

impl Interner {
    /// The family with these labels and owners: the one that siblings have, or a new one.
    fn family(&mut self, metadata: &Metadata<'_>) -> Arc<Family> {
        if self.sweep_in == 0 {
            self.sweep();
        }
        self.sweep_in -= 1;
        let hash = self.hash(
            metadata.labels.iter().map(|(key, value)| (&**key, &**value)),
            metadata.owners.iter().map(|owner| &*owner.uid),
        );
        if let Some(family) = self.families.find(hash, |family| family.is_of(metadata)) {
            return Arc::clone(family);
        }
        let labels = metadata.labels.iter().map(|(key, value)| (self.text(key), self.text(value))).collect();
        let owners = metadata
            .owners
            .iter()
            .map(|owner| OwnerReference {
                api_version: self.text(&owner.api_version),
                kind: self.text(&owner.kind),
                name: self.text(&owner.name),
                uid: (&*owner.uid).into(),
                controller: owner.controller,
            })
            .collect();
        let family = Arc::new(Family { labels, owners });
        let hasher = self.hasher.clone();
        self.families.insert_unique(hash, Arc::clone(&family), |family| family.hash(&hasher));
        family
    }

    fn sweep(&mut self) {
        self.families.retain(|family| Arc::strong_count(family) > 1);
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        let hasher = self.hasher.clone();
        self.families.shrink_to(self.families.len() * 2, |family| family.hash(&hasher));
        self.texts.shrink_to(self.texts.len() * 2);
        self.sweep_in = (self.families.len() * 2).max(1024);
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        Arc::clone(self.texts.get_or_insert_with(text, |text| text.into()))
    }

    fn hash<'a>(
        &self,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        owners: impl Iterator<Item = &'a str>,
    ) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        labels.for_each(|label| label.hash(&mut hasher));
        owners.for_each(|uid| Uid::from(uid).hash(&mut hasher));
        hasher.finish()
    }
}

impl Family {
    fn is_of(&self, metadata: &Metadata<'_>) -> bool {
        let same_owner = |ours: &OwnerReference, theirs: &Owner<'_>| {
            ours.uid == *theirs.uid
                && *ours.name == *theirs.name
                && *ours.kind == *theirs.kind
                && *ours.api_version == *theirs.api_version
                && ours.controller == theirs.controller
        };
        self.labels.len() == metadata.labels.len()
            && self.owners.len() == metadata.owners.len()
            && self
                .labels
                .iter()
                .zip(&metadata.labels)
                .all(|(ours, theirs)| *ours.0 == *theirs.0 && *ours.1 == *theirs.1)
            && self.owners.iter().zip(&metadata.owners).all(|(ours, theirs)| same_owner(ours, theirs))
    }

    fn hash(&self, hasher: &DefaultHashBuilder) -> u64 {
        let mut hasher = hasher.build_hasher();
        self.labels.iter().for_each(|(key, value)| (&**key, &**value).hash(&mut hasher));
        self.owners.iter().for_each(|owner| owner.uid.hash(&mut hasher));
        hasher.finish()
    }
}

/// A hash that is the same for the same annotations in any order. No seed, so any two objects can be compared.
fn hash(annotations: &[(Cow<'_, str>, Cow<'_, str>)]) -> u64 {
    let of = |(key, value): &(Cow<'_, str>, Cow<'_, str>)| {
        let mut hasher = DefaultHasher::new();
        (key, value).hash(&mut hasher);
        hasher.finish()
    };
    annotations.iter().map(of).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(interner: &mut Interner, labels: &str, owner: &str) -> Meta {
        let json = format!(
            r#"{{"metadata":{{"name":"a","resourceVersion":"1","labels":{labels},"ownerReferences":[{{"uid":"{owner}","controller":true}}]}}}}"#
        );
        Meta::new(&Metadata::from_json(json.as_bytes()).unwrap(), interner).unwrap()
    }

    #[test]
    fn siblings_share_their_family_and_others_their_texts() {
        let mut interner = Interner::default();
        let one = meta(&mut interner, r#"{"app":"web","tier":"front"}"#, "o");
        let two = meta(&mut interner, r#"{"app":"web","tier":"front"}"#, "o");
        let other = meta(&mut interner, r#"{"app":"web","tier":"back"}"#, "o");
        assert!(Arc::ptr_eq(&one.family, &two.family));
        assert!(!Arc::ptr_eq(&one.family, &other.family));
        assert!(Arc::ptr_eq(&one.family.labels[0].1, &other.family.labels[0].1));
        assert_eq!(one.template(), other.template(), "of one controller");
        assert_ne!(one.template(), meta(&mut interner, r#"{"app":"web","tier":"front"}"#, "p").template());
    }

    #[test]
    fn families_that_nobody_has_any_more_are_forgotten() {
        let mut interner = Interner::default();
        let kept = meta(&mut interner, r#"{"app":"kept"}"#, "o");
        for number in 0..10_000 {
            meta(&mut interner, &format!(r#"{{"app":"{number}"}}"#), "o");
        }
        assert!(interner.families.len() <= 1100, "{}", interner.families.len());
        assert!(interner.texts.len() <= 1100, "{}", interner.texts.len());
        assert!(Arc::ptr_eq(&kept.family, &meta(&mut interner, r#"{"app":"kept"}"#, "o").family));
    }
}
