//! One cached object, untyped: metadata ready to read beside a body that is decoded on demand.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kube_wire::{FieldPath, LabelSelector, Metadata, ResourceVersion, WireError, path};

use super::{DecodeError, Kind, View};
use crate::ObjectKey;

pub(crate) type Shared = Arc<dyn Any + Send + Sync>;

/// What is decoded now, by type. A box behind an option: an entry nobody reads pays one pointer.
type Live = Option<Box<Vec<(TypeId, Weak<dyn Any + Send + Sync>)>>>;

/// One object as it was at one version: untyped, immutable, its metadata ready to read.
///
/// [`Object`](super::Object) is a typed handle to one.
pub struct Entry {
    kind: Arc<Kind>,
    meta: Meta,
    body: Body,
    live: Mutex<Live>,
}

/// The part of an object's metadata that is read without decoding.
#[derive(Debug, Clone)]
pub struct Meta {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Arc<str>,
    pub(crate) version: ResourceVersion,
    pub(crate) generation: i64,
    pub(crate) labels: Arc<[(Arc<str>, Arc<str>)]>,
    pub(crate) owners: Arc<[OwnerReference]>,
    pub(crate) deletion_timestamp: Option<Arc<str>>,
    pub(crate) annotations_hash: u64,
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
    pub uid: Arc<str>,
    /// Whether this owner manages the object.
    pub controller: bool,
}

/// How objects come over the wire and are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// JSON text.
    Json,
}

/// In which form a cache keeps the bodies of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Storage {
    /// The server's own bytes, trimmed; decoded on read.
    #[default]
    Raw,
    /// Decoded on arrival and kept so, for those who read everything all the time. Such a cache can be read as one type only.
    Decoded,
}

pub(crate) enum Body {
    Raw {
        wire: Wire,
        typed: bool,
        bytes: Box<[u8]>,
    },
    /// `hash` is of the bytes that the value was made from.
    Decoded {
        value: Shared,
        size: usize,
        hash: u64,
    },
}

/// Decodes on arrival, for [`Storage::Decoded`].
#[derive(Clone)]
pub(crate) struct Decoder {
    pub(crate) target: TypeId,
    pub(crate) run: fn(&Kind, Wire, bool, &[u8]) -> Result<Shared, DecodeError>,
}

impl Entry {
    pub(crate) fn new(kind: &Arc<Kind>, meta: Meta, body: Body) -> Self {
        Self { kind: Arc::clone(kind), meta, body, live: Mutex::default() }
    }

    /// An entry of an object's JSON text, for sources and tests that have objects at hand.
    ///
    /// # Errors
    /// If the text has no readable metadata, or no name.
    pub fn from_json(kind: &Arc<Kind>, json: &[u8]) -> Result<Self, WireError> {
        let metadata = Metadata::from_json(json)?;
        let typed = metadata.kind.is_some() && metadata.api_version.is_some();
        let meta = Meta::new(&metadata)?;
        Ok(Self::new(kind, meta, Body::Raw { wire: Wire::Json, typed, bytes: json.into() }))
    }

    /// The object's kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// `namespace/name`, or `name`.
    pub fn key(&self) -> &ObjectKey {
        &self.meta.key
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.meta.key.name()
    }

    /// The object's namespace, `None` for cluster-scoped kinds.
    pub fn namespace(&self) -> Option<&str> {
        self.meta.key.namespace()
    }

    /// Tells this object from an earlier or later one of the same name.
    pub fn uid(&self) -> &str {
        &self.meta.uid
    }

    /// The `resourceVersion` that this is the state of.
    pub fn version(&self) -> &ResourceVersion {
        &self.meta.version
    }

    /// Counts changes of the desired state; 0 for kinds that do not count them.
    pub fn generation(&self) -> i64 {
        self.meta.generation
    }

    /// All labels, in the order the server sent them.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.meta.labels.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.meta.labels.iter().find(|(k, _)| **k == *key).map(|(_, value)| &**value)
    }

    /// Whether the labels satisfy a selector.
    pub fn matches(&self, selector: &LabelSelector) -> bool {
        selector.matches(|key| self.label(key))
    }

    /// The object's owners.
    pub fn owners(&self) -> &[OwnerReference] {
        &self.meta.owners
    }

    /// The owner that manages the object, if one does.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.meta.owners.iter().find(|owner| owner.controller)
    }

    /// When the object was asked to go, as the server wrote it.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        self.meta.deletion_timestamp.as_deref()
    }

    /// Equal for objects with equal annotations, within one process.
    pub fn annotations_hash(&self) -> u64 {
        self.meta.annotations_hash
    }

    /// What a path leads to, as text, read from the bytes without decoding the object. Empty if it leads nowhere, or if
    /// the cache keeps decoded values only.
    pub fn texts(&self, path: &FieldPath) -> Vec<String> {
        match &self.body {
            Body::Raw { wire: Wire::Json, bytes, .. } => path
                .texts(bytes)
                .map(|texts| texts.into_iter().map(Cow::into_owned).collect())
                .unwrap_or_default(),
            Body::Decoded { .. } => Vec::new(),
        }
    }

    /// The bytes that the cache keeps, if it keeps bytes.
    pub fn bytes(&self) -> Option<(Wire, Cow<'_, [u8]>)> {
        match &self.body {
            Body::Raw { wire, bytes, .. } => Some((*wire, Cow::Borrowed(bytes))),
            Body::Decoded { .. } => None,
        }
    }

    /// How many bytes the body takes in the cache; for decoded values, what it took on the wire.
    pub fn size(&self) -> usize {
        match &self.body {
            Body::Raw { bytes, .. } => bytes.len(),
            Body::Decoded { size, .. } => *size,
        }
    }

    /// Whether both are the same object at the same version.
    pub(crate) fn is_same_version(&self, other: &Entry) -> bool {
        self.meta.uid == other.meta.uid && self.meta.version == other.meta.version
    }

    /// Whether both are the same, byte for byte, but for the kind, which items of a list do not name.
    pub(crate) fn is_same_content(&self, other: &Entry) -> bool {
        match (&self.body, &other.body) {
            (Body::Raw { bytes, .. }, Body::Raw { bytes: others, .. }) => untyped(bytes) == untyped(others),
            (Body::Decoded { hash, .. }, Body::Decoded { hash: others, .. }) => hash == others,
            _ => false,
        }
    }

    /// The value of type `K`: the one that others hold, or a new one.
    pub(super) fn decode<K: View>(&self) -> Result<super::Decoded<K>, DecodeError> {
        let downcast = |value: Shared| value.downcast::<Box<K>>().ok();
        let (wire, typed, bytes) = match &self.body {
            Body::Raw { wire, typed, bytes } => (*wire, *typed, bytes),
            Body::Decoded { value, .. } => {
                return downcast(Arc::clone(value)).ok_or_else(|| DecodeError {
                    object: self.to_string(),
                    target: std::any::type_name::<K>(),
                    problem: "this cache keeps its objects decoded, as another type".into(),
                });
            }
        };
        // The lock is held while decoding, so that two readers at once decode once.
        let mut live = self.live();
        let target = TypeId::of::<K>();
        let held = live.iter().flat_map(|live| live.iter()).find(|(of, _)| *of == target);
        if let Some(value) = held.and_then(|(_, value)| value.upgrade()).and_then(downcast) {
            return Ok(value);
        }
        let value = K::decode(&self.kind, wire, typed, bytes)
            .map_err(|error| DecodeError { object: self.to_string(), ..error })?;
        let value = Arc::new(Box::new(value));
        let live = live.get_or_insert_default();
        live.retain(|(_, value)| value.strong_count() > 0);
        live.push((target, Arc::downgrade(&super::erase(Arc::clone(&value)))));
        Ok(value)
    }

    pub(super) fn forget_dead_values(&self) {
        let mut live = self.live();
        if live.as_ref().is_some_and(|live| live.iter().all(|(_, value)| value.strong_count() == 0)) {
            *live = None;
        }
    }

    #[cfg(test)]
    pub(super) fn live_values(&self) -> usize {
        self.live().as_ref().map_or(0, |live| live.len())
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        // A panic while decoding leaves the list as it was.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body {
    pub(crate) fn decoded(value: Shared, bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(&untyped(bytes));
        Self::Decoded { value, size: bytes.len(), hash: hasher.finish() }
    }
}

impl Meta {
    pub(crate) fn new(metadata: &Metadata<'_>) -> Result<Self, WireError> {
        if metadata.name.is_empty() {
            return Err(WireError::Decode("the object has no metadata.name".into()));
        }
        if metadata.resource_version.is_empty() {
            return Err(WireError::Decode("the object has no metadata.resourceVersion".into()));
        }
        Ok(Self {
            key: ObjectKey::new(&metadata.namespace, &metadata.name),
            uid: (&*metadata.uid).into(),
            version: (&*metadata.resource_version).into(),
            generation: metadata.generation,
            labels: metadata.labels.iter().map(|(key, value)| ((&**key).into(), (&**value).into())).collect(),
            owners: metadata
                .owners
                .iter()
                .map(|owner| OwnerReference {
                    api_version: (&*owner.api_version).into(),
                    kind: (&*owner.kind).into(),
                    name: (&*owner.name).into(),
                    uid: (&*owner.uid).into(),
                    controller: owner.controller,
                })
                .collect(),
            deletion_timestamp: metadata.deletion_timestamp.as_deref().map(Into::into),
            annotations_hash: hash(&metadata.annotations),
        })
    }
}

/// The object's text without its kind.
fn untyped(json: &[u8]) -> Cow<'_, [u8]> {
    let paths = [FieldPath::of_fields(["apiVersion"]), FieldPath::of_fields(["kind"])];
    path::cut(json, &paths).ok().flatten().map_or(Cow::Borrowed(json), Cow::Owned)
}

/// A hash that is the same for the same annotations in any order. FNV-1a: no seed, so any two objects can be compared.
fn hash(annotations: &[(Cow<'_, str>, Cow<'_, str>)]) -> u64 {
    let fnv = |text: &str, start: u64| {
        text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    annotations
        .iter()
        .map(|(key, value)| fnv(value, fnv(key, 0xcbf2_9ce4_8422_2325).wrapping_add(1)))
        .fold(0, u64::wrapping_add)
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.meta.key)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.meta.key, self.meta.version)
    }
}
