//! Cached objects: an untyped, immutable [`Entry`], and [`Object`], the typed handle that everybody gets.
//!
//! Made by the intake of a [`reflector`](crate::reflector), kept by the [`store`](crate::store), handed to
//! [handlers](crate::handler) and [listers](crate::lister).

mod dictionary;
mod entry;
mod kind;
mod meta;
mod packer;
mod patch;
mod shared_packer;
mod uid;
mod view;
mod wire;

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

pub(crate) use entry::{Body, Decoder, Shared};
pub use entry::{Entry, Storage};
pub use kind::Kind;
pub use meta::OwnerReference;
pub(crate) use meta::{Interner, Meta};
pub(crate) use packer::BATCH_BYTES;
pub(crate) use shared_packer::SharedPacker;
pub use uid::Uid;
pub use view::{DecodeError, View};
pub(crate) use wire::Arrival;
pub use wire::Wire;

/// A decoded value that several may hold. A box inside the Arc: the entry's weak reference pins the memory of the Arc itself,
/// and that must not be the size of a Pod.
#[allow(clippy::redundant_allocation, reason = "see above")]
type Decoded<K> = Arc<Box<K>>;

/// A handle to one cached object, read as a `K`.
///
/// Cheap to clone and immutable. Everything in its metadata is there at once through [`Entry`], to which a handle
/// dereferences; [`get`](Self::get) decodes the object on first use. The decoded value is shared by all handles to the
/// same object that exist at the time, whoever holds them.
///
/// # Dropping
/// The decoded value is freed with the last handle that asked for it. Neither the cache nor a handler's buffer ever keeps
/// one alive. A handle keeps the object's bytes, not the informer.
pub struct Object<K> {
    entry: Arc<Entry>,
    value: OnceLock<Result<Decoded<K>, DecodeError>>,
}

impl<K: View> Object<K> {
    /// The object as a `K`, decoded now if nobody else holds it decoded.
    ///
    /// # Errors
    /// If the object does not fit `K`. It is in the cache all the same, its metadata can be read, and another type may fit.
    pub fn get(&self) -> Result<&K, DecodeError> {
        // The error is a copy, so that `?` can hand it on from where the handle ends.
        self.value.get_or_init(|| self.entry.decode()).as_ref().map(|value| &***value).map_err(Clone::clone)
    }
}

impl<K> Object<K> {
    pub(crate) fn new(entry: Arc<Entry>) -> Self {
        Self { entry, value: OnceLock::new() }
    }

    /// Why the object could not be decoded, if somebody tried through this handle.
    pub(crate) fn failure(&self) -> Option<&DecodeError> {
        self.value.get().and_then(|value| value.as_ref().err())
    }

    /// The same object, read as another type.
    pub fn read_as<T>(&self) -> Object<T> {
        Object::new(Arc::clone(&self.entry))
    }

    /// Whether both are handles to the very same version of the same object in the same cache.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
    }
}

impl<K> Deref for Object<K> {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self { entry: Arc::clone(&self.entry), value: self.value.clone() }
    }
}

impl<K> Drop for Object<K> {
    fn drop(&mut self) {
        if matches!(self.value.take(), Some(Ok(_))) {
            self.entry.forget_dead_values();
        }
    }
}

impl<K> From<Arc<Entry>> for Object<K> {
    fn from(entry: Arc<Entry>) -> Self {
        Self::new(entry)
    }
}

impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.version())
    }
}

/// Turns any decoded value into what an entry can hold without knowing `K`.
pub(crate) fn erase<K: Any + Send + Sync>(value: Decoded<K>) -> Shared {
    value
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    static DECODED: AtomicUsize = AtomicUsize::new(0);

    #[derive(Debug)]
    struct Counted(Value);

    impl<'de> Deserialize<'de> for Counted {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            DECODED.fetch_add(1, Ordering::SeqCst);
            Value::deserialize(deserializer).map(Counted)
        }
    }

    fn entry(value: &Value) -> Arc<Entry> {
        let kind = Arc::new(Kind::new("v1", "Pod", "pods", true));
        Entry::from_json(&kind, &serde_json::to_vec(value).unwrap()).map(Arc::new).unwrap()
    }

    #[test]
    fn a_value_is_decoded_once_shared_and_freed_with_the_last_handle() {
        let entry = entry(&json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"x": 1}}));
        let (one, two) = (Object::<Counted>::new(entry.clone()), Object::<Counted>::new(entry.clone()));
        assert_eq!(one.get().unwrap().0["spec"]["x"], 1);
        assert!(std::ptr::eq(one.get().unwrap(), two.get().unwrap()));
        assert_eq!(DECODED.load(Ordering::SeqCst), 1);
        assert_eq!(entry.live_values(), 1);
        drop(one);
        assert_eq!(entry.live_values(), 1);
        drop(two);
        assert_eq!(entry.live_values(), 0, "the entry takes no more memory than before");
        assert!(Object::<Counted>::new(entry).get().is_ok());
        assert_eq!(DECODED.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn list_items_get_their_kind_when_decoded() {
        let object = Object::<Value>::new(entry(&json!({"metadata": {"name": "a", "resourceVersion": "1"}})));
        assert_eq!(object.get().unwrap()["kind"], "Pod");
        assert_eq!(object.get().unwrap()["apiVersion"], "v1");
    }

    #[test]
    fn an_object_that_does_not_fit_a_type_may_fit_another() {
        #[derive(Deserialize)]
        struct Typed {
            #[allow(dead_code, reason = "only its type matters")]
            spec: u32,
        }
        let object = Object::<Typed>::new(entry(
            &json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {}}),
        ));
        let error = object.get().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("v1 Pod a"), "{error}");
        assert!(object.read_as::<Value>().get().is_ok());
        assert_eq!(object.name(), "a");
    }
}
