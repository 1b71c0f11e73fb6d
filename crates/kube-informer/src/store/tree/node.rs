//! The nodes of a [`Tree`](super::Tree): how they are searched, split when they overflow and joined when they run low.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

/// A node splits when it would hold more than this.
///
/// A write that is published by itself copies the nodes on its way, and so touches the count of every key and value in them:
/// in a large tree each is a trip to memory. With 64, an event on a million objects cost three times one on a thousand;
/// with 16, twice, for a few bytes more an entry (`cargo bench -p kube-informer --bench pipeline -- update`).
pub(super) const MAX_LEN: usize = 16;

/// A node other than the root that holds fewer is joined with a neighbour.
pub(super) const MIN_LEN: usize = MAX_LEN / 4;

/// Neighbours that hold more than this together stay two nodes: one that is nearly full would soon split again.
const JOINED_LEN: usize = MAX_LEN / 4 * 3;

/// Spare room is added in this many entries at most. Doubling would waste a third of a randomly filled tree.
const SPARE_LEN: usize = 2;

#[derive(Clone)]
pub(super) enum Node<K, V> {
    /// Entries in key order.
    Leaf(Vec<(K, V)>),
    /// Children in key order, each with a lower bound of its keys that is above all keys of the child before.
    ///
    /// A node's first bound is the one its parent has for it. Only down the left edge of the tree, where smaller
    /// keys may come in later, first bounds can be too high; but no look-up reads a first bound.
    Inner(Vec<Child<K, V>>),
}

/// A node with a lower bound of its keys.
pub(super) type Child<K, V> = (K, Arc<Node<K, V>>);

/// What became of an entry that was inserted below a node.
pub(super) enum Inserted<K, V> {
    /// The key was there, with this value.
    Replaced(V),
    /// There was room for it.
    Fitted,
    /// The node gave its upper half away, which has this lower bound.
    Split(K, Arc<Node<K, V>>),
}

impl<K, V> Node<K, V> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    /// The first key of a leaf or the first bound of an inner node, neither of which may be empty.
    pub(super) fn first_key(&self) -> &K {
        match self {
            Self::Leaf(entries) => &entries[0].0,
            Self::Inner(children) => &children[0].0,
        }
    }
}

impl<K: Clone, V> Node<K, V> {
    /// Gives the upper half away, with its lower bound.
    fn split(&mut self) -> (K, Arc<Self>) {
        let right = match self {
            Self::Leaf(entries) => Self::Leaf(upper_half(entries)),
            Self::Inner(children) => Self::Inner(upper_half(children)),
        };
        (right.first_key().clone(), Arc::new(right))
    }

    /// Takes in the neighbour on the right, whose first bound is right because it is not on the left edge.
    fn join(&mut self, right: Self) {
        match (self, right) {
            (Self::Leaf(entries), Self::Leaf(more)) => {
                entries.reserve_exact(more.len());
                entries.extend(more);
            }
            (Self::Inner(children), Self::Inner(more)) => {
                children.reserve_exact(more.len());
                children.extend(more);
            }
            _ => unreachable!("all leaves are at one depth"),
        }
    }
}

/// The position of the child under which a key belongs.
pub(super) fn child_of<K, T, Q>(children: &[(K, T)], key: &Q) -> usize
where
    K: Borrow<Q>,
    Q: Ord + ?Sized,
{
    match find(&children[1..], key) {
        Ok(at) => at + 1,
        Err(at) => at,
    }
}

/// The position of a key in a node, or the one where it belongs.
///
/// The search of the standard library picks each half without a branch, and so waits for every key in turn. Keys are
/// texts elsewhere in memory: a branch, guessed right half of the time, has the next one loaded while this one is
/// compared.
pub(super) fn find<K, V, Q>(entries: &[(K, V)], key: &Q) -> Result<usize, usize>
where
    K: Borrow<Q>,
    Q: Ord + ?Sized,
{
    let (mut from, mut to) = (0, entries.len());
    while from < to {
        let middle = usize::midpoint(from, to);
        match entries[middle].0.borrow().cmp(key) {
            Ordering::Less => from = middle + 1,
            Ordering::Equal => return Ok(middle),
            Ordering::Greater => to = middle,
        }
    }
    Err(from)
}

/// Inserts an entry below a node.
pub(super) fn insert<K, V>(node: &mut Arc<Node<K, V>>, key: K, value: V) -> Inserted<K, V>
where
    K: Ord + Clone,
    V: Clone,
{
    let node = Arc::make_mut(node);
    match node {
        Node::Leaf(entries) => match find(entries, &key) {
            Ok(at) => return Inserted::Replaced(std::mem::replace(&mut entries[at].1, value)),
            Err(at) => insert_at(entries, at, (key, value)),
        },
        Node::Inner(children) => {
            let at = child_of(children, &key);
            match insert(&mut children[at].1, key, value) {
                Inserted::Split(bound, right) => insert_at(children, at + 1, (bound, right)),
                done => return done,
            }
        }
    }
    if node.len() <= MAX_LEN {
        return Inserted::Fitted;
    }
    let (bound, right) = node.split();
    Inserted::Split(bound, right)
}

/// Removes a key below a node, which may then hold fewer than [`MIN_LEN`]: its parent sees to that.
pub(super) fn remove<K, V, Q>(node: &mut Arc<Node<K, V>>, key: &Q) -> Option<V>
where
    K: Borrow<Q> + Clone,
    V: Clone,
    Q: Ord + ?Sized,
{
    match Arc::make_mut(node) {
        Node::Leaf(entries) => {
            let at = find(entries, key).ok()?;
            Some(remove_at(entries, at).1)
        }
        Node::Inner(children) => {
            let at = child_of(children, key);
            let removed = remove(&mut children[at].1, key);
            if children[at].1.len() < MIN_LEN {
                refill(children, at);
            }
            removed
        }
    }
}

/// Joins a child that runs low with a neighbour, or shares out evenly what the two have.
fn refill<K: Clone, V: Clone>(children: &mut Vec<Child<K, V>>, at: usize) {
    let left_at = at.saturating_sub(1);
    let (_, right) = remove_at(children, left_at + 1);
    let left = Arc::make_mut(&mut children[left_at].1);
    left.join(Arc::unwrap_or_clone(right));
    if left.len() > JOINED_LEN {
        let right = left.split();
        insert_at(children, left_at + 1, right);
    }
}

fn upper_half<T>(items: &mut Vec<T>) -> Vec<T> {
    let upper = items.split_off(items.len() / 2);
    items.shrink_to_fit();
    upper
}

fn insert_at<T>(items: &mut Vec<T>, at: usize, item: T) {
    if items.len() == items.capacity() {
        items.reserve_exact(items.len().clamp(1, SPARE_LEN));
    }
    items.insert(at, item);
}

fn remove_at<T>(items: &mut Vec<T>, at: usize) -> T {
    let item = items.remove(at);
    if items.capacity() - items.len() > SPARE_LEN {
        // Half stays, so that an insert does not at once ask for it again.
        items.shrink_to(items.len() + SPARE_LEN / 2);
    }
    item
}
