//! Walks over the objects of a store one by one, so that a list is never queued for a handler.

use std::ops::Bound;
use std::sync::Arc;

use tokio::time::Instant;

use crate::ObjectKey;
use crate::delta_fifo::Scope;
use crate::event::Owed;
use crate::planted::{Bug, planted};
use crate::store::{Listed, State};

/// The objects of one scope that a handler has yet to be given as adds.
pub(super) struct Walk {
    state: Arc<State>,
    scope: Scope,
    /// Whether the objects were there before the handler.
    pub(super) initial: bool,
    after: Option<ObjectKey>,
    total: usize,
    pub(super) left: usize,
    pub(super) since: Instant,
}

impl Walk {
    /// Everything in a store that a handler finds when it joins.
    pub(super) fn joining(state: Arc<State>) -> Self {
        let first = state.objects.first_key_value().map(|(key, _)| key.clone());
        let after = first.filter(|_| planted(Bug::LateHandlerGap));
        Self { after, ..Self::over(&Listed { state, scope: Scope::CLUSTER, initial: true }) }
    }

    /// A list that has just been stored.
    pub(super) fn over(listed: &Listed) -> Self {
        let Listed { state, scope, initial } = listed.clone();
        let total = match scope.as_namespace() {
            None => state.objects.len(),
            namespace => state.range(namespace).count(),
        };
        Self { state, scope, initial, after: None, total, left: total, since: Instant::now() }
    }

    pub(super) fn contains(&self, key: &ObjectKey) -> bool {
        self.scope.contains(key)
    }

    pub(super) fn next(&mut self) -> Option<(ObjectKey, Owed)> {
        let first = self.scope.as_namespace().map(|namespace| format!("{namespace}/"));
        let from = match (&self.after, &first) {
            (Some(after), _) => Bound::Excluded(after.as_str()),
            (None, Some(first)) => Bound::Included(first.as_str()),
            (None, None) => Bound::Unbounded,
        };
        let (key, slot) = self.state.objects.range(from, Bound::Unbounded).next()?;
        if !self.scope.contains(key) {
            return None;
        }
        let again = planted(Bug::DuplicateInitialAdd) && self.left == self.total;
        self.left -= 1;
        self.after = Some(key.clone()).filter(|_| !again);
        Some((key.clone(), Owed::add(Arc::clone(&slot.entry), self.initial)))
    }
}
