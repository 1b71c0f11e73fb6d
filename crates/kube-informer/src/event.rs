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
    /// Its final state; or, if that was missed, the last state that was seen. For a handler with a filter, an object that does not
    /// pass any more is deleted, too, and this is the last state that passed: the lister tells whether the object still exists.
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
    /// Whether a list showed it that came after a restore from a backup: then versions do not tell what has changed.
    pub(crate) restored: bool,
    /// What a merge has left out, for those that need it; `None` if this is one change.
    pub(crate) merged: Option<Box<Merged>>,
}

/// The states of an object that a merge has left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Merged {
    pub(crate) between: Vec<Arc<Entry>>,
    /// Whether there were more than could be kept.
    pub(crate) lost: bool,
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
        Self { told: Some(told), died, now: Some(now), ..Self::default() }
    }

    pub(crate) fn restored(self, restored: bool) -> Self {
        Self { restored, ..self }
    }

    /// States of objects that came and went could not be kept.
    pub(crate) fn lost() -> Self {
        let merged = Some(Box::new(Merged { between: Vec::new(), lost: true }));
        Self { merged, ..Self::default() }
    }

    /// Whether it came and went unheard, and none of its states was kept.
    pub(crate) fn is_only_lost(&self) -> bool {
        let none_kept = self.merged.as_ref().is_some_and(|merged| merged.lost && merged.between.is_empty());
        self.told.is_none() && self.now.is_none() && none_kept
    }

    /// One after the other, as the handler needs to hear it when it hears both at once.
    pub(crate) fn then(self, next: Self) -> Self {
        // Only what the handler was told of can die for it; and the first death is the one of what it was told.
        let died = self.told.as_ref().and(self.died.or(next.died));
        let told = if planted(Bug::MergeKeepsWrongOld) { next.told.or(self.told) } else { self.told };
        let restored = self.restored || next.restored;
        Self { told, died, now: next.now, initial: self.initial, restored, merged: self.merged }
    }

    /// The key of the object it is about.
    pub(crate) fn key(&self) -> Option<&ObjectKey> {
        self.told.as_ref().or(self.now.as_ref()).map(|entry| entry.key())
    }

    /// As [`then`](Self::then), with the states that neither the handler was told of nor will be.
    pub(crate) fn then_without(self, next: Self) -> (Self, Vec<Arc<Entry>>) {
        let mut left_out: Vec<_> = self.states().chain(next.states()).cloned().collect();
        let merged = self.then(next);
        left_out.retain(|state| !merged.states().any(|kept| Arc::ptr_eq(kept, state)));
        left_out.dedup_by(|a, b| Arc::ptr_eq(a, b));
        (merged, left_out)
    }

    fn states(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.told.iter().chain(self.died.as_ref().map(|(last, _)| last)).chain(&self.now)
    }

    /// Whether nothing is owed any more: it came and went unheard, and nobody needs the states between.
    pub(crate) fn is_nothing(&self) -> bool {
        self.told.is_none() && self.now.is_none() && self.merged.is_none()
    }
}
