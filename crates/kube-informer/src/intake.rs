//! Turns the bytes of one object into an entry: checked, trimmed, transformed, indexed, in the form the store keeps.
//!
//! Runs in the [`reflector`](crate::reflector)'s task on arrival, under no lock, once for each object. What cannot be taken
//! in is set aside with its key and the reason, and harms nothing else.

use std::any::TypeId;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use kube_wire::{FieldPath, Metadata, ResourceVersion};
use serde_json::Value;

use crate::ObjectKey;
use crate::object::{
    Arrival, Body, Decoder, Entry, Interner, Kind, Meta, Shared, SharedPacker, Storage, View, Wire,
};
use crate::store::{IndexSet, IndexValues, StateCell};

/// An object that could not be taken in: shown in the stats, and tried again when it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Which object it is, where that much could be read.
    pub key: Option<ObjectKey>,
    /// The version of the object that could not be read, where that much could be.
    pub version: Option<ResourceVersion>,
    /// What is wrong with it.
    pub problem: String,
    /// Whether it is of another kind than was asked for.
    pub wrong_kind: bool,
}

/// Changes every object before anything else sees it, such as to drop what nobody reads.
///
/// Two informers share a cache only if they share the transform: clones of one are the same.
#[derive(Clone)]
pub struct Transform {
    run: Arc<TransformFn>,
    target: Option<TypeId>,
}

type TransformFn = dyn Fn(&Kind, Wire, bool, &[u8]) -> Result<Transformed, String> + Send + Sync;

enum Transformed {
    Json(Vec<u8>),
    Value(Shared),
}

impl Transform {
    /// Whether the cache keeps what it makes, instead of bytes.
    pub(crate) fn makes_values(&self) -> bool {
        self.target.is_some()
    }

    /// Changes the object as a JSON value; the cache keeps what comes out as JSON text.
    ///
    /// What is read without decoding (key, uid, version, labels, owners) is what the server sent, whatever the function
    /// does to it.
    pub fn json(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        let run = move |kind: &Kind, wire: Wire, typed: bool, bytes: &[u8]| {
            let mut value = Value::decode(kind, wire, typed, bytes).map_err(|error| error.to_string())?;
            change(&mut value);
            serde_json::to_vec(&value).map(Transformed::Json).map_err(|error| error.to_string())
        };
        Self { run: Arc::new(run), target: None }
    }

    /// Changes the object as a `K` and writes it as JSON text again.
    pub fn serialized<K: View + serde::Serialize>(change: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        let run = move |kind: &Kind, wire: Wire, typed: bool, bytes: &[u8]| {
            let mut value = K::decode(kind, wire, typed, bytes).map_err(|error| error.to_string())?;
            change(&mut value);
            serde_json::to_vec(&value).map(Transformed::Json).map_err(|error| error.to_string())
        };
        Self { run: Arc::new(run), target: None }
    }

    /// Makes a `T` of the object as a `K`; the cache keeps the `T` itself, as with [`Storage::Decoded`].
    pub fn decoded<K: View, T: Send + Sync + 'static>(
        change: impl Fn(K) -> T + Send + Sync + 'static,
    ) -> Self {
        let run = move |kind: &Kind, wire: Wire, typed: bool, bytes: &[u8]| {
            let value = K::decode(kind, wire, typed, bytes).map_err(|error| error.to_string())?;
            Ok(Transformed::Value(Arc::new(Box::new(change(value)))))
        };
        Self { run: Arc::new(run), target: Some(TypeId::of::<T>()) }
    }

    /// Tells transforms apart: a cache is shared only between users of the same one.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.run).cast::<()>() as usize
    }

    pub(crate) fn target(&self) -> Option<TypeId> {
        self.target
    }
}

impl std::fmt::Debug for Transform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Transform")
    }
}

/// What one cache does with the bytes that arrive.
pub(crate) struct Intake {
    pub(crate) kind: Arc<Kind>,
    pub(crate) cuts: Vec<FieldPath>,
    pub(crate) transform: Option<Transform>,
    pub(crate) storage: Storage,
    pub(crate) decoder: Option<Decoder>,
    pub(crate) indexes: Arc<ArcSwap<IndexSet>>,
    pub(crate) state: Arc<StateCell>,
    pub(crate) interner: Mutex<Interner>,
    /// `None` where bodies are not packed.
    pub(crate) packer: Option<SharedPacker>,
}

/// What was made of an object's bytes.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) entry: Arc<Entry>,
    pub(crate) values: IndexValues,
}

impl Intake {
    /// Takes one object in. `trusted` says that a known uid and version mean a known object, which is then used again.
    pub(crate) fn take(&self, arrival: Arrival<'_>, trusted: bool) -> Result<Taken, SetAside> {
        let Arrival { wire, bytes, named } = arrival;
        let mut metadata = wire
            .metadata(&self.kind, bytes)
            .map_err(|error| self.aside_unread(wire, bytes, &error.to_string()))?;
        if let Some((api_version, kind)) = named {
            (metadata.api_version, metadata.kind) = (Some(api_version.into()), Some(kind.into()));
        }
        let aside = |problem: String| SetAside {
            key: (!metadata.name.is_empty()).then(|| ObjectKey::new(&metadata.namespace, &metadata.name)),
            version: (!metadata.resource_version.is_empty()).then(|| (&*metadata.resource_version).into()),
            problem,
            wrong_kind: false,
        };
        if !self.is_expected(&metadata) {
            let (api_version, kind) = (metadata.api_version.as_deref(), metadata.kind.as_deref());
            let found = format!("{} {}", api_version.unwrap_or_default(), kind.unwrap_or_default());
            let problem = format!("expected {}, got {found}", self.kind);
            return Err(SetAside { wrong_kind: true, key: None, version: None, ..aside(problem) });
        }
        let meta = Meta::new(&metadata, &mut self.interner.lock().unwrap_or_else(PoisonError::into_inner))
            .map_err(|error| aside(error.to_string()))?;
        if trusted && let Some(known) = self.known(&meta) {
            return Ok(known);
        }
        let typed = metadata.kind.is_some() && metadata.api_version.is_some();
        // User code runs inside: a panic in it sets this object aside and nothing more.
        let made = catch_unwind(AssertUnwindSafe(|| {
            let body = self.body(wire, typed, bytes)?;
            Ok(Arc::new(Entry::new(&self.kind, meta, body)))
        }));
        let made = made.unwrap_or_else(|panic| Err(format!("a transform panicked: {}", panic_text(panic))));
        let entry = made.map_err(aside)?;
        let values = self.indexes.load().values(&entry);
        Ok(Taken { entry, values })
    }

    /// Looks whether another dictionary would do better for changes. Takes milliseconds.
    pub(crate) fn review(&self) {
        if let Some(packer) = &self.packer {
            packer.review(self.state.load().objects.len());
        }
    }

    fn body(&self, wire: Wire, typed: bool, bytes: &[u8]) -> Result<Body, String> {
        let trimmed = wire.cut(&self.kind, bytes, &self.cuts).map_err(|error| error.to_string())?;
        let bytes = trimmed.map_or(Cow::Borrowed(bytes), Cow::Owned);
        let (wire, typed, bytes) = match &self.transform {
            None => (wire, typed, bytes),
            Some(transform) => match (transform.run)(&self.kind, wire, typed, &bytes)? {
                Transformed::Value(value) => return Ok(Body::decoded(value, wire, &bytes)),
                Transformed::Json(json) => (Wire::Json, true, Cow::Owned(json)),
            },
        };
        match (self.storage, &self.decoder) {
            (Storage::Decoded, Some(decoder)) => {
                let value =
                    (decoder.run)(&self.kind, wire, typed, &bytes).map_err(|error| error.to_string())?;
                Ok(Body::decoded(value, wire, &bytes))
            }
            _ => Ok(Body::Raw { wire, typed, bytes: bytes.into() }),
        }
    }

    /// The entry in the store that is this very object at this very version, so that a relist packs nothing again.
    fn known(&self, meta: &Meta) -> Option<Taken> {
        if !meta.has_version() {
            return None;
        }
        let state = self.state.load();
        let slot = state.objects.get(meta.key.as_str())?;
        let same = *slot.entry.uid() == meta.uid && *slot.entry.version() == meta.version && !slot.stale;
        same.then(|| Taken { entry: Arc::clone(&slot.entry), values: slot.values.clone() })
    }

    fn is_expected(&self, metadata: &Metadata<'_>) -> bool {
        let partial = metadata.kind.as_deref() == Some("PartialObjectMetadata");
        let kind = metadata.kind.as_deref().is_none_or(|kind| kind == self.kind.kind());
        let api_version =
            metadata.api_version.as_deref().is_none_or(|version| version == self.kind.api_version());
        partial || (kind && api_version)
    }

    /// For an object whose metadata cannot be read: what can be read of its key all the same.
    fn aside_unread(&self, wire: Wire, bytes: &[u8], problem: &str) -> SetAside {
        let text = |field: &str| {
            let path = FieldPath::of_fields(["metadata", field]);
            let texts = wire.texts(&self.kind, bytes, &path).ok()?;
            texts.into_iter().next().map(|text| text.into_owned())
        };
        let namespace = text("namespace").unwrap_or_default();
        SetAside {
            key: text("name").filter(|name| !name.is_empty()).map(|name| ObjectKey::new(&namespace, &name)),
            version: text("resourceVersion").map(Into::into),
            problem: problem.to_owned(),
            wrong_kind: false,
        }
    }
}

/// The message of a panic that was caught. Drops the payload, which is the user's and may panic again.
pub(crate) fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Its payload could do the same, without end. A leak is the lesser harm.
        std::mem::forget(second);
    }
    text.unwrap_or_else(|| "(no message)".into())
}
