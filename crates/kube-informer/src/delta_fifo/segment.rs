//! Stretches of the queue between relists.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use kube_wire::ResourceVersion;

use super::{Delta, DeltaType, Element, Scope};
use crate::object::Entry;
use crate::planted::{Bug, planted};
use crate::reflector::Replacement;
use crate::{ObjectKey, SetAside};

pub(super) enum Segment {
    Deltas(Deltas),
    Replace {
        scope: Scope,
        replacement: Replacement,
        first: bool,
        gone: bool,
        /// What stood in line before it, where the consumer cannot say what it has.
        queued: Vec<Arc<Entry>>,
    },
}

/// Changes by key, and where they bring each scope.
#[derive(Default)]
pub(super) struct Deltas {
    pub(super) items: HashMap<ObjectKey, Vec<Element>>,
    pub(super) queue: VecDeque<ObjectKey>,
    /// Objects that could not be read so far as to know their key.
    pub(super) nameless: Vec<(Scope, SetAside)>,
    /// How many keys here belong to a first list.
    pub(super) initial: usize,
    initial_keys: HashSet<ObjectKey>,
    versions: Vec<(Scope, ResourceVersion)>,
    replaced: Option<Replaced>,
}

/// That a batch is a relist.
#[derive(Debug, Clone)]
pub(crate) struct Replaced {
    pub(crate) scope: Scope,
    /// The scope is no longer watched: what was in it leaves, and so does its version.
    pub(crate) gone: bool,
    pub(crate) trusted: bool,
    /// For a comparison with the server: up to where the cache should have been right, and where the list is.
    pub(crate) verifies: Option<(ResourceVersion, ResourceVersion)>,
}

/// All that is taken from the queue at once and becomes visible at once.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) items: Vec<(ObjectKey, Vec<Element>)>,
    pub(crate) nameless: Vec<(Scope, SetAside)>,
    pub(crate) versions: Vec<(Scope, ResourceVersion)>,
    pub(crate) replaced: Option<Replaced>,
}

impl Segment {
    /// Whether a resync of a key is superfluous, because something of it waits here.
    ///
    /// Handlers that are due, `round`, get nothing of an unchanged object in a relist; who pops by hand gets all of it.
    pub(super) fn covers(&self, key: &ObjectKey, round: Option<&[u64]>) -> bool {
        match self {
            Self::Deltas(deltas) => deltas.items.contains_key(key),
            Self::Replace { scope, .. } => round.is_none() && scope.contains(key),
        }
    }

    /// Lets a resync of a key that waits be for these handlers, too.
    pub(super) fn join_round(&mut self, key: &ObjectKey, more: Option<&[u64]>) {
        if planted(Bug::SyncRoundNotJoined) {
            return;
        }
        let Self::Deltas(deltas) = self else { return };
        if let Some([Element::Delta(waiting)]) = deltas.items.get_mut(key).map(Vec::as_mut_slice)
            && waiting.kind == DeltaType::Sync
            && let (Some(round), Some(more)) = (&waiting.round, more)
        {
            let mut all: Vec<u64> = round.iter().chain(more).copied().collect();
            all.sort_unstable();
            all.dedup();
            waiting.round = Some(all.into());
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Deltas(deltas) => deltas.queue.len(),
            Self::Replace { replacement, .. } => replacement.objects.len(),
        }
    }
}

impl Deltas {
    /// A relist: tombstones for what vanished, then what is there. Objects that were set aside have not vanished.
    pub(super) fn from_replacement(
        scope: &Scope,
        replacement: Replacement,
        first: bool,
        gone: bool,
        known: &[Arc<Entry>],
    ) -> Self {
        let mut deltas = Self::default();
        let listed = replacement.objects.iter().map(|delta| delta.object.key());
        let aside = replacement.set_aside.iter().filter_map(|aside| aside.key.as_ref());
        let present: HashSet<&ObjectKey> = listed.chain(aside).collect();
        // A name that could not be read may be any of them: then nothing is known to have vanished.
        let complete = replacement.set_aside.iter().all(|aside| aside.key.is_some() || aside.wrong_kind);
        let vanished = known.iter().filter(|entry| complete && !present.contains(entry.key()));
        let vanished = vanished.filter(|_| !planted(Bug::LostTombstone));
        for entry in vanished {
            deltas.push(entry.key().clone(), Element::Delta(Delta::tombstone(Arc::clone(entry))));
        }
        drop(present);
        for aside in replacement.set_aside {
            match aside.key.clone() {
                Some(key) => {
                    deltas.push(key, Element::Aside(aside));
                }
                None => deltas.nameless.push((scope.clone(), aside)),
            }
        }
        for delta in replacement.objects {
            deltas.push(delta.object.key().clone(), Element::Delta(delta));
        }
        if first {
            deltas.initial = deltas.queue.len();
            deltas.initial_keys = deltas.items.keys().cloned().collect();
        }
        let verifies = replacement.verifies.map(|seen| (seen, replacement.version.clone()));
        deltas.replaced =
            Some(Replaced { scope: scope.clone(), gone, trusted: replacement.trusted, verifies });
        if !gone {
            deltas.advance(scope, Some(replacement.version));
        }
        deltas
    }

    /// Adds a change and says how many bytes it made superfluous.
    pub(super) fn push(&mut self, key: ObjectKey, element: Element) -> usize {
        if !self.items.contains_key(&key) {
            self.queue.push_back(key.clone());
        }
        // Most keys have one change: room for four, which a vector makes by itself, would be most of what a long list takes.
        let elements = self.items.entry(key).or_insert_with(|| Vec::with_capacity(1));
        let deleted =
            |element: &Element| element.delta().is_some_and(|delta| delta.kind == DeltaType::Deleted);
        if elements.last().is_some_and(deleted) && deleted(&element) {
            // Two deletes in a row are one: the one that knows the final state, else the first.
            let keep_first =
                elements.last().and_then(Element::delta).is_some_and(|first| !first.final_state_unknown);
            if keep_first && !planted(Bug::SecondDeleteWins) {
                return element.size();
            }
            return elements.pop().map_or(0, |first| {
                elements.push(element);
                first.size()
            });
        }
        elements.push(element);
        0
    }

    pub(super) fn advance(&mut self, scope: &Scope, version: Option<ResourceVersion>) {
        let Some(version) = version else { return };
        match self.versions.iter_mut().find(|(of, _)| of == scope) {
            // An event that comes twice does not turn the time back.
            Some((_, last)) if version < *last => {}
            Some((_, last)) => *last = version,
            None => self.versions.push((scope.clone(), version)),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.items.values().flatten().map(Element::size).sum()
    }

    /// Whether there is nothing left that anybody would take.
    pub(super) fn is_spent(&self) -> bool {
        self.queue.is_empty()
            && self.versions.is_empty()
            && self.nameless.is_empty()
            && self.replaced.is_none()
    }

    /// Removes the first `count` changes of a key; gives the bytes freed and whether it was one of a first list.
    pub(super) fn remove(&mut self, key: &ObjectKey, count: usize) -> (usize, usize) {
        let Some(mut elements) = self.items.remove(key) else { return (0, 0) };
        if self.queue.front() == Some(key) {
            self.queue.pop_front();
        } else {
            self.queue.retain(|queued| queued != key);
        }
        let mut left = count;
        let mut freed = 0;
        elements.retain(|element| {
            // Who pops by hand is not told of what could not be read.
            let Element::Delta(delta) = element else { return false };
            let taken = left > 0;
            if taken {
                left -= 1;
                freed += delta.size();
            }
            !taken
        });
        if !elements.is_empty() {
            self.items.insert(key.clone(), elements);
            self.queue.push_back(key.clone());
        }
        let initial = usize::from(self.initial_keys.remove(key));
        self.initial -= initial;
        (freed, initial)
    }

    pub(super) fn into_batch(mut self) -> Batch {
        self.initial_keys = HashSet::new();
        let items = self.queue.into_iter().filter_map(|key| self.items.remove_entry(&key)).collect();
        Batch { items, nameless: self.nameless, versions: self.versions, replaced: self.replaced }
    }
}
