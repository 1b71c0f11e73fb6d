//! What the store's ordered map costs, beside the persistent red-black tree of rpds.
//!
//! `cargo bench -p kube-informer --bench tree` prints a table of nanoseconds an operation and bytes an entry. Keys are
//! texts like those of objects, values are `Arc`s; both exist beforehand, so that only the map itself is measured.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use kube_informer::bench_support::Tree;
use rpds::RedBlackTreeMapSync;

type Key = Arc<str>;
type Value = Arc<u64>;
type Entry = (Key, Value);

const SIZES: [usize; 3] = [1_000, 100_000, 1_000_000];

/// Operations to average over, where a map has fewer entries.
const OPERATIONS: usize = 1_000_000;

/// Writes that each publish a snapshot are slow enough to need fewer.
const PUBLISHED: usize = 100_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Memory is measured in a process of its own, whose allocator has nothing to reuse.
    if let [flag, map, len, order] = arguments.as_slice()
        && flag == "--bytes"
    {
        let entries = entries(len.parse().expect("a length"), order == "random");
        let bytes = if map == "tree" { bytes::<Tree<Key, Value>>(&entries) } else { bytes::<Rpds>(&entries) };
        println!("{bytes:.1}");
        return;
    }
    println!(
        "{:<8} {:>9} | {:>7} {:>7} {:>7} {:>7} {:>9} {:>7} {:>7} | {:>8} {:>8}",
        "map",
        "entries",
        "get",
        "insert",
        "update",
        "remove",
        "publish",
        "iterate",
        "clone",
        "B sorted",
        "B random"
    );
    for len in SIZES {
        measure::<Tree<Key, Value>>("tree", len);
        measure::<Rpds>("rpds", len);
    }
    println!(
        "\nns an operation; publish: update one value and keep a new snapshot in place of the last one;"
    );
    println!(
        "B: bytes an entry of the map alone, filled in key order or at random; key and value are {} bytes.",
        size_of::<Entry>()
    );
}

type Rpds = RedBlackTreeMapSync<Key, Value>;

/// What is measured.
trait Map: Clone + Default {
    fn get(&self, key: &str) -> Option<&Value>;
    fn insert(&mut self, key: Key, value: Value);
    fn remove(&mut self, key: &str);
    /// Adds up the addresses of all values, so that none of them is read.
    fn walk(&self) -> usize;
}

impl Map for Tree<Key, Value> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }

    fn insert(&mut self, key: Key, value: Value) {
        self.insert(key, value);
    }

    fn remove(&mut self, key: &str) {
        self.remove(key);
    }

    fn walk(&self) -> usize {
        self.iter().fold(0, |sum, (_, value)| sum ^ Arc::as_ptr(value).addr())
    }
}

impl Map for Rpds {
    fn get(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }

    fn insert(&mut self, key: Key, value: Value) {
        self.insert_mut(key, value);
    }

    fn remove(&mut self, key: &str) {
        self.remove_mut(key);
    }

    fn walk(&self) -> usize {
        self.iter().fold(0, |sum, (_, value)| sum ^ Arc::as_ptr(value).addr())
    }
}

fn measure<M: Map>(name: &str, len: usize) {
    let entries = entries(len, true);
    let rounds = OPERATIONS.div_ceil(len);
    let mut map = M::default();
    let (mut insert, mut remove) = (0.0, 0.0);
    for round in 0..rounds {
        insert += nanos(|| entries.iter().cloned().for_each(|(key, value)| map.insert(key, value)));
        if round + 1 < rounds || rounds == 1 {
            remove += nanos(|| entries.iter().rev().for_each(|(key, _)| map.remove(key)));
        }
    }
    if rounds == 1 {
        entries.iter().cloned().for_each(|(key, value)| map.insert(key, value));
    }
    let each = |total: f64, count: usize| total / count as f64;
    let mut looked_up: Vec<&Entry> = entries.iter().collect();
    fastrand::Rng::with_seed(2).shuffle(&mut looked_up);
    let get = nanos(|| {
        for (key, _) in (0..rounds).flat_map(|_| &looked_up).copied() {
            black_box(map.get(key));
        }
    });
    let update = nanos(|| {
        for (key, value) in (0..rounds).flat_map(|_| &looked_up).copied() {
            map.insert(Arc::clone(key), Arc::clone(value));
        }
    });
    let mut snapshot = map.clone();
    let publish = nanos(|| {
        for (key, value) in looked_up.iter().cycle().take(PUBLISHED).copied() {
            map.insert(Arc::clone(key), Arc::clone(value));
            snapshot = map.clone();
        }
    });
    drop(snapshot);
    let iterate = nanos(|| {
        for _ in 0..10 * rounds {
            black_box(black_box(&map).walk());
        }
    });
    let clone = nanos(|| {
        for _ in 0..OPERATIONS {
            black_box(black_box(&map).clone());
        }
    });
    println!(
        "{name:<8} {len:>9} | {:>7.0} {:>7.0} {:>7.0} {:>7.0} {:>9.0} {:>7.2} {:>7.1} | {:>8} {:>8}",
        each(get, rounds * len),
        each(insert, rounds * len),
        each(update, rounds * len),
        each(remove, (rounds - 1).max(1) * len),
        each(publish, PUBLISHED),
        each(iterate, 10 * rounds * len),
        each(clone, OPERATIONS),
        bytes_elsewhere(name, len, "sorted"),
        bytes_elsewhere(name, len, "random"),
    );
}

fn nanos(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

fn entries(len: usize, shuffled: bool) -> Vec<Entry> {
    let mut entries: Vec<Entry> = (0..len as u64)
        .map(|number| {
            // Like pods of a deployment: a namespace, a name and a suffix without order.
            let key =
                format!("team-{:03}/web-{:016x}", number % 200, number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            (key.into(), Arc::new(number))
        })
        .collect();
    if shuffled {
        fastrand::Rng::with_seed(1).shuffle(&mut entries);
    } else {
        entries.sort();
    }
    entries
}

/// Bytes an entry by which this process grows when a map is filled; 0 where the system does not tell.
fn bytes<M: Map>(entries: &[Entry]) -> f64 {
    let before = resident_pages();
    let mut map = M::default();
    for (key, value) in entries {
        map.insert(Arc::clone(key), Arc::clone(value));
    }
    let grown = resident_pages().saturating_sub(before);
    black_box(map);
    (grown * 4096) as f64 / entries.len() as f64
}

fn resident_pages() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// Small maps fit into pages that the process has already, so nothing is told about them.
fn bytes_elsewhere(map: &str, len: usize, order: &str) -> String {
    if len < 100_000 {
        return "-".to_owned();
    }
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new(program).args(["--bytes", map, &len.to_string(), order]).output();
    String::from_utf8_lossy(&output.expect("this program starts again").stdout).trim().to_owned()
}
