//! What handlers hear, typed and untyped.

use std::sync::Arc;

use crate::ObjectKey;
use crate::object::{Entry, Object};
use crate::planted::{Bug, planted};

/// One change, as a handler hears of it.
#[derive(Debug, Clone)]
pub enum Event<K> {
    /// The object is new to this handler.
    Added {
        /// The object.
        object: Object<K>,
        /// Whether it was there before this handler started to listen.
        initial: bool,
    },
    /// The object has changed, or comes round again in a resync: then both are the same.
    Updated {
        /// What the handler last heard of.
        old: Object<K>,
        /// What it is now.
        new: Object<K>,
    },
    /// The object is gone.
    Deleted(Deleted<K>),
}

/// An object that is gone.
#[derive(Debug, Clone)]
pub struct Deleted<K> {
    /// What the handler last heard of.
    pub old: Object<K>,
    /// Its final state; or, if that was missed, the last state that was seen.
    pub object: Object<K>,
    /// Whether the delete was missed, so that `object` may be older than the object's end.
    pub final_state_unknown: bool,
}

impl<K> Event<K> {
    /// The object the event is about, in its newest state.
    pub fn object(&self) -> &Object<K> {
        match self {
            Self::Added { object, .. } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted(deleted) => &deleted.object,
        }
    }
}

/// What one key owes one handler: at most a delete and an add, whatever happened in between.
///
/// Add is `{now}`, update `{told, now}`, delete `{told, died}`, and a recreated object `{told, died, now}`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owed {
    /// What the handler last heard of.
    pub(crate) told: Option<Arc<Entry>>,
    /// The final state of what it last heard of, and whether that is only the last state seen.
    pub(crate) died: Option<(Arc<Entry>, bool)>,
    /// What there is now.
    pub(crate) now: Option<Arc<Entry>>,
    /// Whether the add belongs to what was there before the handler.
    pub(crate) initial: bool,
}

impl Owed {
    pub(crate) fn add(now: Arc<Entry>, initial: bool) -> Self {
        Self { now: Some(now), initial, ..Self::default() }
    }

    pub(crate) fn update(told: Arc<Entry>, now: Arc<Entry>) -> Self {
        Self { told: Some(told), now: Some(now), ..Self::default() }
    }

    pub(crate) fn delete(told: Arc<Entry>, last: Arc<Entry>, unknown: bool) -> Self {
        Self { told: Some(told), died: Some((last, unknown)), ..Self::default() }
    }

    pub(crate) fn recreate(told: Arc<Entry>, now: Arc<Entry>) -> Self {
        let died = Some((Arc::clone(&told), true));
        Self { told: Some(told), died, now: Some(now), initial: false }
    }

    /// One after the other, as the handler needs to hear it when it hears both at once.
    pub(crate) fn then(self, next: Self) -> Self {
        // Only what the handler was told of can die for it; and the first death is the one of what it was told.
        let died = self.told.as_ref().and(self.died.or(next.died));
        let told = if planted(Bug::MergeKeepsWrongOld) { next.told.or(self.told) } else { self.told };
        Self { told, died, now: next.now, initial: self.initial }
    }

    /// The key of the object it is about.
    pub(crate) fn key(&self) -> Option<&ObjectKey> {
        self.told.as_ref().or(self.now.as_ref()).map(|entry| entry.key())
    }

    /// Whether nothing is owed any more: it came and went unheard.
    pub(crate) fn is_nothing(&self) -> bool {
        self.told.is_none() && self.now.is_none()
    }
}
