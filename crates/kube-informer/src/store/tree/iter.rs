//! Walks over a [`Tree`](super::Tree) in key order.

use std::borrow::Borrow;
use std::iter::FusedIterator;
use std::ops::Bound;
use std::slice;

use super::node::{Child, Node, child_of};

/// All entries of a tree in key order.
pub struct Iter<'a, K, V> {
    entries: Range<'a, K, V>,
    left: usize,
}

/// The entries of a tree between two bounds, in key order.
pub struct Range<'a, K, V> {
    /// The rest of the leaf that the walk is in.
    leaf: slice::Iter<'a, (K, V)>,
    /// The children still to come, of the root first and of the leaf's parent last.
    above: Vec<slice::Iter<'a, Child<K, V>>>,
    /// The leaf in which the walk ends and how many of its entries still belong to it; `None` to go on to the end.
    stop: Option<(&'a Node<K, V>, usize)>,
}

impl<'a, K, V> Iter<'a, K, V> {
    pub(super) fn new(root: &'a Node<K, V>, len: usize) -> Self {
        let mut entries = Range { leaf: [].iter(), above: Vec::new(), stop: None };
        entries.descend(root, |_| 0, |_| 0);
        Self { entries, left: len }
    }
}

impl<'a, K, V> Range<'a, K, V> {
    pub(super) fn new<Q>(root: &'a Node<K, V>, from: Bound<&Q>, to: Bound<&Q>) -> Self
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut range = Self { leaf: [].iter(), above: Vec::new(), stop: None };
        // Past this, bounds in the wrong order are in one leaf, where slicing finds out.
        if let (Some(first), Some(last)) = (key_of(from), key_of(to))
            && first > last
        {
            return range;
        }
        range.stop = stop_at(root, to);
        range.descend(root, |children| start_child(children, from), |entries| start_entry(entries, from));
        range
    }

    /// Goes down from a node to the leaf where the walk starts or goes on.
    fn descend(
        &mut self,
        mut node: &'a Node<K, V>,
        child: impl Fn(&[Child<K, V>]) -> usize,
        entry: impl Fn(&[(K, V)]) -> usize,
    ) {
        loop {
            match node {
                Node::Inner(children) => {
                    let at = child(children);
                    self.above.push(children[at + 1..].iter());
                    node = &children[at].1;
                }
                Node::Leaf(entries) => {
                    let mut end = entries.len();
                    if let Some((last, len)) = self.stop
                        && std::ptr::eq(last, node)
                    {
                        end = len;
                        self.above.clear();
                    }
                    self.leaf = entries.get(entry(entries)..end).unwrap_or_default().iter();
                    return;
                }
            }
        }
    }

    /// Goes on to the next leaf. Kept out of line, so that the step inside a leaf stays small.
    #[inline(never)]
    fn next_leaf(&mut self) -> Option<&'a (K, V)> {
        loop {
            match self.above.last_mut()?.next() {
                None => {
                    self.above.pop();
                }
                Some((_, child)) => {
                    self.descend(child, |_| 0, |_| 0);
                    // Empty only where the upper bound cuts off the whole leaf, and then nothing is left above.
                    if let Some(entry) = self.leaf.next() {
                        return Some(entry);
                    }
                }
            }
        }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.entries.next()?;
        self.left -= 1;
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V> ExactSizeIterator for Iter<'_, K, V> {}
impl<K, V> FusedIterator for Iter<'_, K, V> {}

impl<'a, K, V> Iterator for Range<'a, K, V> {
    type Item = (&'a K, &'a V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let entry = match self.leaf.next() {
            Some(entry) => entry,
            None => self.next_leaf()?,
        };
        Some((&entry.0, &entry.1))
    }
}

impl<K, V> FusedIterator for Range<'_, K, V> {}

fn key_of<Q: ?Sized>(bound: Bound<&Q>) -> Option<&Q> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// The position of the child where a walk from a lower bound starts.
fn start_child<K, T, Q>(children: &[(K, T)], from: Bound<&Q>) -> usize
where
    K: Borrow<Q>,
    Q: Ord + ?Sized,
{
    key_of(from).map_or(0, |key| child_of(children, key))
}

/// The position of the first entry of a leaf that a lower bound lets in.
fn start_entry<K, V, Q>(entries: &[(K, V)], from: Bound<&Q>) -> usize
where
    K: Borrow<Q>,
    Q: Ord + ?Sized,
{
    match from {
        Bound::Unbounded => 0,
        Bound::Included(first) => entries.partition_point(|(key, _)| key.borrow() < first),
        Bound::Excluded(before) => entries.partition_point(|(key, _)| key.borrow() <= before),
    }
}

/// The leaf in which an upper bound falls, and how many of its entries it lets in.
fn stop_at<'a, K, V, Q>(root: &'a Node<K, V>, to: Bound<&Q>) -> Option<(&'a Node<K, V>, usize)>
where
    K: Borrow<Q>,
    Q: Ord + ?Sized,
{
    let end = key_of(to)?;
    let mut node = root;
    loop {
        match node {
            Node::Inner(children) => node = &children[child_of(children, end)].1,
            Node::Leaf(entries) => {
                let inclusive = matches!(to, Bound::Included(_));
                let len = entries.partition_point(|(key, _)| match key.borrow().cmp(end) {
                    std::cmp::Ordering::Less => true,
                    std::cmp::Ordering::Equal => inclusive,
                    std::cmp::Ordering::Greater => false,
                });
                return Some((node, len));
            }
        }
    }
}
