//! The tree beside `std::collections::BTreeMap`, which is obviously right.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;

use super::Tree;
use super::node::{MAX_LEN, MIN_LEN, Node};

type Model = BTreeMap<u32, u32>;

/// Keys are below this: with runs of hundreds, trees of three levels come and go.
const KEYS: u32 = 8_000;

#[derive(Debug, Clone)]
enum Step {
    Insert(u32, u32),
    Remove(u32),
    InsertRun { from: u32, step: u32, count: u32, value: u32 },
    RemoveRun { from: u32, step: u32, count: u32 },
    Snapshot,
    Rebuild,
    Range(Bound<u32>, Bound<u32>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..KEYS, any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        3 => (0..KEYS).prop_map(Step::Remove),
        4 => (0..KEYS, 1..KEYS, 1..3_000_u32, any::<u32>())
            .prop_map(|(from, step, count, value)| Step::InsertRun { from, step, count, value }),
        4 => (0..KEYS, 1..KEYS, 1..3_000_u32).prop_map(|(from, step, count)| Step::RemoveRun { from, step, count }),
        2 => Just(Step::Snapshot),
        1 => Just(Step::Rebuild),
        4 => (bound(), bound()).prop_map(|(from, to)| Step::Range(from, to)),
    ];
    proptest::collection::vec(step, 1..24)
}

fn bound() -> impl Strategy<Value = Bound<u32>> {
    prop_oneof![
        Just(Bound::Unbounded),
        (0..KEYS).prop_map(Bound::Included),
        (0..KEYS).prop_map(Bound::Excluded),
    ]
}

/// `count` keys, `step` apart, going round at the end of the key space.
fn run(from: u32, step: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |i| (from + i * step) % KEYS)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn does_what_the_model_does_and_leaves_snapshots_alone(steps in steps()) {
        let mut tree = Tree::new();
        let mut model = Model::new();
        let mut snapshots: Vec<(Tree<u32, u32>, Model)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(key, value) => prop_assert_eq!(tree.insert(key, value), model.insert(key, value)),
                Step::Remove(key) => prop_assert_eq!(tree.remove(&key), model.remove(&key)),
                Step::InsertRun { from, step, count, value } => {
                    for key in run(from, step, count) {
                        prop_assert_eq!(tree.insert(key, value), model.insert(key, value));
                    }
                }
                Step::RemoveRun { from, step, count } => {
                    for key in run(from, step, count) {
                        prop_assert_eq!(tree.remove(&key), model.remove(&key));
                    }
                }
                Step::Snapshot => snapshots.push((tree.clone(), model.clone())),
                Step::Rebuild => tree = model.clone().into_iter().collect(),
                Step::Range(from, to) => check_range(&tree, &model, from, to),
            }
            check(&tree, &model);
            for (tree, model) in &snapshots {
                check(tree, model);
            }
        }
    }

    #[test]
    fn builds_from_any_order(keys in proptest::collection::vec(0..KEYS, 0..600), sorted in 0..600_usize) {
        let mut keys = keys;
        let sorted = sorted.min(keys.len());
        keys[..sorted].sort_unstable();
        let entries = || keys.iter().copied().zip(0..);
        check(&entries().collect(), &entries().collect());
    }
}

#[test]
fn builds_full_leaves_of_every_length() {
    let edges = [1, 2, 3, 64, 65].map(|nodes| nodes * MAX_LEN as u32);
    for len in (0..300).chain(edges.iter().flat_map(|edge| edge - 1..edge + 2)) {
        let tree: Tree<u32, u32> = (0..len).map(|key| (key, key)).collect();
        check(&tree, &(0..len).map(|key| (key, key)).collect());
        let fewest = (len as usize).div_ceil(MAX_LEN).max(1);
        assert_eq!(leaf_lens(&tree).len(), fewest, "leaves of {len} entries");
    }
}

#[test]
fn a_hundred_thousand_come_and_go_in_random_order() {
    let seed = 7;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut keys: Vec<u32> = (0..100_000).collect();
    random.shuffle(&mut keys);
    let mut tree = Tree::new();
    let mut model = Model::new();
    for (at, &key) in keys.iter().enumerate() {
        assert_eq!(tree.insert(key, key), model.insert(key, key), "seed {seed}");
        if at % 20_000 == 0 {
            check(&tree, &model);
        }
    }
    check(&tree, &model);
    let full = tree.clone();
    random.shuffle(&mut keys);
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(tree.remove(key), model.remove(key), "seed {seed}");
        if at % 20_000 == 0 {
            check(&tree, &model);
        }
    }
    check(&tree, &model);
    assert!(tree.is_empty());
    check(&full, &(0..100_000).map(|key| (key, key)).collect());
}

#[test]
fn a_writer_copies_only_the_path_that_a_snapshot_shares() {
    let mut tree: Tree<u32, u32> = (0..10_000).map(|key| (key, 0)).collect();
    let snapshot = tree.clone();
    assert_eq!(tree.remove(&10_000), None);
    assert_eq!(nodes(&tree), nodes(&snapshot), "a miss is no write");

    tree.insert(5_000, 1);
    let depth = check_node(&tree.root, None, None, true);
    assert_eq!(nodes(&tree).iter().filter(|node| !nodes(&snapshot).contains(node)).count(), depth);

    let before = nodes(&tree);
    tree.insert(5_001, 1);
    assert_eq!(nodes(&tree), before, "what nobody shares is changed in place");
    assert_eq!((snapshot.get(&5_000), tree.get(&5_000)), (Some(&0), Some(&1)));
}

#[test]
fn memory_follows_the_entries() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut keys: Vec<u32> = (0..50_000).collect();
    let in_order: Tree<u32, u32> = keys.iter().fold(Tree::new(), |mut tree, &key| {
        tree.insert(key, key);
        tree
    });
    random.shuffle(&mut keys);
    let mut at_random = Tree::new();
    at_random.extend(keys.iter().map(|&key| (key, key)));
    let mut thinned = at_random.clone();
    for key in &keys[..40_000] {
        thinned.remove(key);
    }
    for (tree, name) in [(in_order, "in order"), (at_random, "at random"), (thinned, "thinned")] {
        let slots: usize = leaf_lens(&tree).iter().map(|(_, capacity)| capacity).sum();
        let spare = slots as f64 / tree.len() as f64;
        assert!(spare < 1.25, "{name}: {spare:.2} slots an entry");
    }
}

#[test]
fn keys_are_kept_and_looked_up_by_what_they_borrow_as() {
    let mut tree: Tree<Arc<str>, u32> = Tree::default();
    let first: Arc<str> = "a/x".into();
    assert_eq!(tree.insert(Arc::clone(&first), 1), None);
    assert_eq!(tree.insert("a/x".into(), 2), Some(1));
    let (key, value) = tree.get_key_value("a/x").unwrap();
    assert!(Arc::ptr_eq(key, &first));
    assert_eq!(*value, 2);
    assert!(tree.contains_key("a/x") && !tree.contains_key("a/y"));
    assert_eq!(format!("{tree:?}"), r#"{"a/x": 2}"#);
    assert_eq!(tree.remove("a/x"), Some(2));
    assert!(tree.is_empty());
}

/// The same contents, told in every way, in a sound tree.
fn check(tree: &Tree<u32, u32>, model: &Model) {
    check_node(&tree.root, None, None, true);
    assert_eq!(tree.len(), model.len());
    assert_eq!(tree.iter().len(), model.len());
    assert!(tree.iter().eq(model.iter()), "{tree:?} is not {model:?}");
    assert!(tree.keys().eq(model.keys()) && tree.values().eq(model.values()));
    assert_eq!(tree.first_key_value(), model.first_key_value());
    for key in (0..KEYS).step_by(97) {
        assert_eq!(tree.get(&key), model.get(&key));
    }
    for key in model.keys().step_by(97) {
        check_range(tree, model, Bound::Included(*key), Bound::Included(*key));
    }
}

fn check_range(tree: &Tree<u32, u32>, model: &Model, from: Bound<u32>, to: Bound<u32>) {
    // `BTreeMap::range` panics where bounds are the wrong way round, so the model filters.
    let above = |key: &u32| match from {
        Bound::Unbounded => true,
        Bound::Included(first) => *key >= first,
        Bound::Excluded(before) => *key > before,
    };
    let below = |key: &u32| match to {
        Bound::Unbounded => true,
        Bound::Included(last) => *key <= last,
        Bound::Excluded(end) => *key < end,
    };
    let expected = model.iter().filter(|(key, _)| above(key) && below(key));
    assert!(tree.range(from.as_ref(), to.as_ref()).eq(expected), "{from:?} to {to:?}");
}

/// Keys in order and between the bounds, no node too full or too empty, all leaves at one depth, which is returned.
fn check_node(node: &Node<u32, u32>, from: Option<u32>, to: Option<u32>, root: bool) -> usize {
    assert!(node.len() <= MAX_LEN && (root || node.len() >= MIN_LEN), "{} entries", node.len());
    match node {
        Node::Leaf(entries) => {
            assert!(entries.is_sorted_by(|(a, _), (b, _)| a < b));
            assert!(entries.first().is_none_or(|(key, _)| from.is_none_or(|from| *key >= from)));
            assert!(entries.last().is_none_or(|(key, _)| to.is_none_or(|to| *key < to)));
            1
        }
        Node::Inner(children) => {
            assert!(children.len() > 1);
            assert!(
                from.is_none_or(|from| children[0].0 == from),
                "a first bound that the parent does not have"
            );
            let depths: Vec<usize> = (0..children.len())
                .map(|at| {
                    let from = if at == 0 { from } else { Some(children[at].0) };
                    let to = children.get(at + 1).map_or(to, |(bound, _)| Some(*bound));
                    check_node(&children[at].1, from, to, false)
                })
                .collect();
            assert!(depths.iter().all(|depth| *depth == depths[0]), "{depths:?}");
            depths[0] + 1
        }
    }
}

/// The length and capacity of every leaf.
fn leaf_lens(tree: &Tree<u32, u32>) -> Vec<(usize, usize)> {
    let mut lens = Vec::new();
    visit(&tree.root, &mut |node| {
        if let Node::Leaf(entries) = &**node {
            lens.push((entries.len(), entries.capacity()));
        }
    });
    lens
}

/// Where the nodes are.
fn nodes(tree: &Tree<u32, u32>) -> Vec<*const Node<u32, u32>> {
    let mut found = Vec::new();
    visit(&tree.root, &mut |node| found.push(Arc::as_ptr(node)));
    found
}

fn visit(node: &Arc<Node<u32, u32>>, see: &mut impl FnMut(&Arc<Node<u32, u32>>)) {
    see(node);
    if let Node::Inner(children) = &**node {
        for (_, child) in children {
            visit(child, see);
        }
    }
}
