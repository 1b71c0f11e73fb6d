//! An ordered map whose clone is a snapshot: one pointer copied, nothing shared ever changed.
//!
//! Under every store and index. A B+-tree of `Arc` nodes: a write copies the nodes on its path that a snapshot still
//! shares, and changes the others in place. So a writer that publishes once in a batch pays for copies once in a batch.

mod build;
mod iter;
mod node;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

pub(crate) use iter::{Iter, Range};
use node::{Inserted, Node};

/// An ordered map with snapshots in O(1).
///
/// Look-ups, inserts and removals take O(log n). Dropping the last handle to a large tree takes O(n).
pub struct Tree<K, V> {
    root: Arc<Node<K, V>>,
    len: usize,
}

impl<K, V> Tree<K, V> {
    /// An empty map.
    pub fn new() -> Self {
        Self { root: Arc::new(Node::Leaf(Vec::new())), len: 0 }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry with the smallest key.
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Inner(children) => node = &children.first()?.1,
                Node::Leaf(entries) => return entries.first().map(|(key, value)| (key, value)),
            }
        }
    }

    /// All entries in key order.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter::new(&self.root, self.len)
    }

    /// All keys in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// All values in the order of their keys.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Ord, V> Tree<K, V> {
    /// The value of a key.
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// The value of a key, with the key as the map holds it.
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Inner(children) => node = &children[node::child_of(children, key)].1,
                Node::Leaf(entries) => {
                    let (key, value) = &entries[node::find(entries, key).ok()?];
                    return Some((key, value));
                }
            }
        }
    }

    /// Whether the map has an entry for a key.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.get_key_value(key).is_some()
    }

    /// The entries between two bounds in key order; none where the bounds are the wrong way round.
    pub fn range<Q>(&self, from: Bound<&Q>, to: Bound<&Q>) -> Range<'_, K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        Range::new(&self.root, from, to)
    }
}

impl<K: Ord + Clone, V: Clone> Tree<K, V> {
    /// Sets the value of a key and returns the one it had. A key that is already there is kept, not replaced.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match node::insert(&mut self.root, key, value) {
            Inserted::Replaced(old) => return Some(old),
            Inserted::Fitted => {}
            Inserted::Split(bound, right) => {
                let left = Arc::clone(&self.root);
                self.root = Arc::new(Node::Inner(vec![(left.first_key().clone(), left), (bound, right)]));
            }
        }
        self.len += 1;
        None
    }

    /// Removes a key and returns the value it had.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        // Looked up first, because the way down copies what is shared, and a miss must change nothing.
        if !self.contains_key(key) {
            return None;
        }
        let removed = node::remove(&mut self.root, key);
        self.len -= 1;
        if let Node::Inner(children) = &*self.root
            && let [(_, only)] = children.as_slice()
        {
            self.root = Arc::clone(only);
        }
        removed
    }
}

impl<K, V> Clone for Tree<K, V> {
    fn clone(&self) -> Self {
        Self { root: Arc::clone(&self.root), len: self.len }
    }
}

impl<K, V> Default for Tree<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Tree<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<'a, K, V> IntoIterator for &'a Tree<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}
