//! One cached object, untyped: metadata ready to read beside a body that is decoded on demand.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kube_wire::{FieldPath, LabelSelector, Metadata, ResourceVersion, WireError};

use super::dictionary::Dictionary;
use super::meta::{Interner, Meta, OwnerReference};
use super::{DecodeError, Kind, Uid, View, Wire, patch};
use crate::ObjectKey;
use crate::planted::{Bug, planted};

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

/// In which form a cache keeps the bodies of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Storage {
    /// The server's own bytes, trimmed and compressed with what the objects of the kind have in common; unpacked and decoded
    /// on read. Kinds that are small or cannot be compressed are kept as with [`Raw`](Self::Raw).
    #[default]
    Packed,
    /// The server's own bytes, trimmed; decoded on read.
    Raw,
    /// Decoded on arrival and kept so, for those who read everything all the time. Such a cache can be read as one type only.
    /// Comparisons with the server know of such an object only whether its bytes were the same: if a server answers with the fields
    /// in another order, or on another wire, handlers are notified of an update in which nothing differs.
    Decoded,
}

pub(crate) enum Body {
    Raw {
        wire: Wire,
        typed: bool,
        bytes: Box<[u8]>,
    },
    /// `length` is that of the unpacked bytes.
    Packed {
        wire: Wire,
        typed: bool,
        length: u32,
        bytes: Box<[u8]>,
        dictionary: Arc<Dictionary>,
    },
    /// What differs from an earlier state of the object, which is packed.
    Patched {
        typed: bool,
        length: u32,
        patch: Box<[u8]>,
        base: Arc<Entry>,
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
        let meta = Meta::new(&metadata, &mut Interner::default())?;
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
    pub fn uid(&self) -> &Uid {
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
        self.meta.family.labels.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.meta.family.labels.iter().find(|(k, _)| **k == *key).map(|(_, value)| &**value)
    }

    /// Whether the labels satisfy a selector.
    pub fn matches(&self, selector: &LabelSelector) -> bool {
        selector.matches(|key| self.label(key))
    }

    /// The object's owners.
    pub fn owners(&self) -> &[OwnerReference] {
        &self.meta.family.owners
    }

    /// The owner that manages the object, if one does.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.meta.family.owners.iter().find(|owner| owner.controller)
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
        let texts = self.read(|wire, _, bytes| {
            let texts = wire.texts(&self.kind, bytes, path).unwrap_or_default();
            texts.into_iter().map(Cow::into_owned).collect()
        });
        texts.unwrap_or_default()
    }

    /// The object's bytes, if the cache keeps bytes: what the server sent, trimmed.
    pub fn bytes(&self) -> Option<(Wire, Vec<u8>)> {
        self.read(|wire, _, bytes| (wire, bytes.to_vec()))
    }

    /// The first bytes of the object, at most so many, if the cache keeps bytes.
    pub(super) fn first_bytes(&self, limit: usize) -> Option<Vec<u8>> {
        self.read(|_, _, bytes| bytes[..bytes.len().min(limit)].to_vec())
    }

    /// How many bytes the body takes in the cache; for decoded values, what it took on the wire.
    pub fn size(&self) -> usize {
        match &self.body {
            Body::Raw { bytes, .. } | Body::Packed { bytes, .. } => bytes.len(),
            Body::Patched { patch, base, .. } => patch.len() + base.size(),
            Body::Decoded { size, .. } => *size,
        }
    }

    /// Whether both are the same object at the same version. Objects without versions, as some APIs have, are compared by
    /// their content.
    pub(crate) fn is_same_version(&self, other: &Entry) -> bool {
        let same = self.meta.uid == other.meta.uid && self.meta.version == other.meta.version;
        same && (self.meta.has_version() || self.is_same_content(other))
    }

    /// Whether both have the same content, but for the kind, which items of a list do not name.
    pub(crate) fn is_same_content(&self, other: &Entry) -> bool {
        if let (Body::Decoded { hash, .. }, Body::Decoded { hash: others, .. }) = (&self.body, &other.body) {
            return hash == others;
        }
        match (self.bytes(), other.bytes()) {
            (Some((wire, bytes)), Some((of, others))) => {
                (wire == of && wire.untyped(&bytes) == wire.untyped(&others)) || self.is_same_value(other)
            }
            _ => false,
        }
    }

    /// Whether both say the same in other words: on another wire, or with the fields in another order.
    fn is_same_value(&self, other: &Entry) -> bool {
        let value = |entry: &Entry| {
            let decoded = entry
                .read(|wire, typed, bytes| serde_json::Value::decode(&self.kind, wire, typed, bytes).ok());
            let mut value = decoded.flatten()?;
            if let Some(fields) = value.as_object_mut() {
                fields.retain(|name, _| name != "kind" && name != "apiVersion");
            }
            Some(value)
        };
        !planted(Bug::ContentByBytes) && value(self).is_some_and(|own| Some(own) == value(other))
    }

    /// Equal for objects that were probably made from one template.
    pub(super) fn template(&self) -> u64 {
        self.meta.template()
    }

    pub(super) fn body(&self) -> &Body {
        &self.body
    }

    /// Keeps the same content in another form.
    pub(super) fn set_body(&mut self, body: Body) {
        self.body = body;
    }

    /// Keeps no more than what differs from an earlier state, if that is packed and the patch is small.
    pub(super) fn become_patch_of(&mut self, earlier: &Arc<Entry>) -> bool {
        let base = match &earlier.body {
            Body::Packed { .. } => earlier,
            // No patches of patches: an object is never further away than one.
            Body::Patched { base, .. } => base,
            _ => return false,
        };
        let (Body::Raw { wire, typed, bytes }, Body::Packed { dictionary, .. }) = (&self.body, &base.body)
        else {
            return false;
        };
        // A base keeps its dictionary: not one that hardly anybody else needs.
        if dictionary.size() / Arc::strong_count(dictionary) > bytes.len() {
            return false;
        }
        // As much again; but objects that are examples in their dictionary take next to nothing.
        let limit = base.size() + 64;
        let patch = base.unpack(|of, _, old| if of == *wire { patch::make(old, bytes, limit) } else { None });
        let Some(patch) = patch.flatten() else { return false };
        self.body = Body::Patched {
            typed: *typed,
            length: bytes.len() as u32,
            patch: patch.into(),
            base: Arc::clone(base),
        };
        true
    }

    /// Lets the bytes be read, unpacked first if need be, with their format and whether they name their kind. `None` if the
    /// cache keeps decoded values.
    fn read<R>(&self, read: impl FnOnce(Wire, bool, &[u8]) -> R) -> Option<R> {
        match &self.body {
            Body::Patched { typed, length, patch, base } => {
                base.unpack(|wire, _, old| read(wire, *typed, &patch::apply(old, patch, *length as usize)))
            }
            _ => self.unpack(read),
        }
    }

    /// The same for what is no patch: a function of its own, for one that called itself would have no end of closures.
    fn unpack<R>(&self, read: impl FnOnce(Wire, bool, &[u8]) -> R) -> Option<R> {
        match &self.body {
            Body::Raw { wire, typed, bytes } => Some(read(*wire, *typed, bytes)),
            Body::Packed { wire, typed, length, bytes, dictionary } => dictionary
                .unpack(bytes, *length as usize, |bytes| read(*wire, *typed, bytes))
                // The bytes and the dictionary were made by this process and are never changed.
                .inspect_err(|problem| tracing::error!(object = %self, problem, "cannot be unpacked"))
                .ok(),
            Body::Patched { .. } | Body::Decoded { .. } => None,
        }
    }

    /// The value of type `K`: the one that others hold, or a new one.
    pub(super) fn decode<K: View>(&self) -> Result<super::Decoded<K>, DecodeError> {
        let downcast = |value: Shared| value.downcast::<Box<K>>().ok();
        let failed = |problem: &str| DecodeError {
            object: self.to_string(),
            target: std::any::type_name::<K>(),
            problem: problem.into(),
        };
        if let Body::Decoded { value, .. } = &self.body {
            return downcast(Arc::clone(value))
                .ok_or_else(|| failed("this cache keeps its objects decoded, as another type"));
        }
        // The lock is held while decoding, so that two readers at once decode once.
        let mut live = self.live();
        let target = TypeId::of::<K>();
        let held = live.iter().flat_map(|live| live.iter()).find(|(of, _)| *of == target);
        if let Some(value) = held.and_then(|(_, value)| value.upgrade()).and_then(downcast) {
            return Ok(value);
        }
        let value = self
            .read(|wire, typed, bytes| K::decode(&self.kind, wire, typed, bytes))
            .ok_or_else(|| failed("its packed bytes are damaged"))?
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
    pub(crate) fn decoded(value: Shared, wire: Wire, bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(&wire.untyped(bytes));
        Self::Decoded { value, size: bytes.len(), hash: hasher.finish() }
    }
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
