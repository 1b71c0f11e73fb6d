//! Builds a [`Tree`] from many entries at once: in O(n) and with full leaves as long as they come in key order.

use std::sync::Arc;

use super::Tree;
use super::node::{MAX_LEN, MIN_LEN, Node};

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for Tree<K, V> {
    /// Entries in any order; of those with equal keys the last one's value counts.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries = entries.into_iter();
        let mut leaves = Packed::new();
        let mut len = 0;
        let mut stray = None;
        for (key, value) in entries.by_ref() {
            if leaves.last().is_some_and(|(last, _)| *last >= key) {
                stray = Some((key, value));
                break;
            }
            leaves.push((key, value));
            len += 1;
        }
        let mut tree = Self { root: stack_up(leaves), len };
        // The first entry out of order ends the fast way: what is built so far is a tree like any other.
        tree.extend(stray.into_iter().chain(entries));
        tree
    }
}

impl<K: Ord + Clone, V: Clone> Extend<(K, V)> for Tree<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

/// Items in groups that each fill a node.
struct Packed<T> {
    full: Vec<Vec<T>>,
    open: Vec<T>,
}

impl<T> Packed<T> {
    fn new() -> Self {
        Self { full: Vec::new(), open: Vec::new() }
    }

    fn last(&self) -> Option<&T> {
        // A group is closed only when the next item comes, so the open one has the last item.
        self.open.last()
    }

    fn push(&mut self, item: T) {
        if self.open.len() == MAX_LEN {
            self.full.push(std::mem::replace(&mut self.open, Vec::with_capacity(MAX_LEN)));
        }
        self.open.push(item);
    }

    /// The groups, at least one; if there are more, each holds at least [`MIN_LEN`].
    fn finish(mut self) -> Vec<Vec<T>> {
        if self.open.len() < MIN_LEN
            && let Some(before) = self.full.last_mut()
        {
            let mut moved = before.split_off(MAX_LEN.midpoint(self.open.len()));
            before.shrink_to_fit();
            moved.append(&mut self.open);
            self.open = moved;
        }
        self.open.shrink_to_fit();
        self.full.push(self.open);
        self.full
    }
}

/// Puts level upon level on top of the leaves until one node is left.
fn stack_up<K: Clone, V>(leaves: Packed<(K, V)>) -> Arc<Node<K, V>> {
    let mut level: Vec<Node<K, V>> = leaves.finish().into_iter().map(Node::Leaf).collect();
    loop {
        if level.len() == 1 {
            return Arc::new(level.remove(0));
        }
        let mut above = Packed::new();
        for node in level {
            above.push((node.first_key().clone(), Arc::new(node)));
        }
        level = above.finish().into_iter().map(Node::Inner).collect();
    }
}
