//! Every short story of an object, merged at every point, against what a handler may hear.

use std::fmt::Write;

use super::*;
use crate::Kind;

/// What can happen to one object. A recreate is a delete and an add that were both missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happens {
    Add,
    Update,
    Delete,
    MissedDelete,
    Recreate,
    Resync,
}

const ALL: [Happens; 6] = [
    Happens::Add,
    Happens::Update,
    Happens::Delete,
    Happens::MissedDelete,
    Happens::Recreate,
    Happens::Resync,
];

/// What a handler heard last, and what the world is like.
#[derive(Default)]
struct World {
    now: Option<Arc<Entry>>,
    uid: u64,
    version: u64,
}

impl World {
    /// Lets something happen; `None` if it cannot.
    fn step(&mut self, happens: Happens) -> Option<Owed> {
        let before = self.now.clone();
        self.version += 1;
        match (happens, before) {
            (Happens::Add, None) => {
                self.uid += 1;
                let new = self.change();
                Some(Owed::add(new, false))
            }
            (Happens::Update, Some(old)) => {
                let new = self.change();
                Some(Owed::update(old, new))
            }
            (Happens::Delete, Some(old)) => {
                let last = self.change();
                self.now = None;
                Some(Owed::delete(old, last, false))
            }
            (Happens::MissedDelete, Some(old)) => {
                self.now = None;
                Some(Owed::delete(Arc::clone(&old), old, true))
            }
            (Happens::Recreate, Some(old)) => {
                self.uid += 1;
                let new = self.change();
                Some(Owed::recreate(old, new))
            }
            (Happens::Resync, Some(old)) => Some(Owed::update(Arc::clone(&old), old)),
            _ => None,
        }
    }

    fn change(&mut self) -> Arc<Entry> {
        let new = entry("a", self.uid, self.version);
        self.now = Some(Arc::clone(&new));
        new
    }
}

fn entry(name: &str, uid: u64, version: u64) -> Arc<Entry> {
    let kind = Arc::new(Kind::new("v1", "Pod", "pods", true));
    let text = format!(r#"{{"metadata":{{"name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#);
    Arc::new(Entry::from_json(&kind, text.as_bytes()).unwrap())
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::cluster(name)
}

/// Checks one thing that is heard against the story so far: add, updates, delete for each uid, nothing from the past.
fn hear(told: &mut Option<Arc<Entry>>, owed: &Owed) -> Result<(), String> {
    if owed.is_nothing() {
        return Err("heard nothing at all".into());
    }
    let same = |a: &Option<Arc<Entry>>, b: &Option<Arc<Entry>>| match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    };
    if !same(told, &owed.told) {
        return Err(format!("told {told:?}, but it goes on from {:?}", owed.told));
    }
    if let Some((last, _)) = &owed.died {
        let told = told.as_ref().ok_or("a delete of what was never added")?;
        if last.uid() != told.uid() || *last.version() < *told.version() {
            return Err(format!("the delete of {told:?} shows {last:?}"));
        }
    } else if let (Some(old), Some(new)) = (&told, &owed.now)
        && (old.uid() != new.uid() || *new.version() < *old.version())
    {
        return Err(format!("an update from {old:?} to {new:?}"));
    } else if told.is_some() && owed.now.is_none() {
        return Err("it is gone without a delete".into());
    }
    told.clone_from(&owed.now);
    Ok(())
}

fn all_stories(length: usize) -> Vec<Vec<Happens>> {
    let mut stories = vec![Vec::new()];
    for _ in 0..length {
        stories = stories
            .into_iter()
            .flat_map(|story| ALL.map(|next| [story.as_slice(), &[next]].concat()))
            .filter(|story| {
                let mut world = World::default();
                story.iter().all(|happens| world.step(*happens).is_some())
            })
            .collect();
    }
    stories
}

#[test]
fn merged_stories_are_valid_and_end_in_the_right_state() {
    let mut told_stories = 0;
    for length in 1..=6 {
        for story in all_stories(length) {
            // Before which steps the handler hears what is owed: every way to split the story.
            for splits in 0..1_u32 << length {
                let mut world = World::default();
                let mut told = None;
                let mut waiting = Owed::default();
                let mut log = String::new();
                for (i, happens) in story.iter().enumerate() {
                    if splits & (1 << i) != 0 && !waiting.is_nothing() {
                        let owed = std::mem::take(&mut waiting);
                        write!(log, "{owed:?} ").unwrap();
                        hear(&mut told, &owed).unwrap_or_else(|why| panic!("{story:?} at {splits:b}: {why}"));
                    }
                    let owed = world.step(*happens).expect("a possible story");
                    waiting = if waiting.is_nothing() { owed } else { waiting.then(owed) };
                }
                if !waiting.is_nothing() {
                    hear(&mut told, &waiting)
                        .unwrap_or_else(|why| panic!("{story:?} at {splits:b}: {why}\n{log}"));
                }
                let right = match (&told, &world.now) {
                    (None, None) => true,
                    (Some(told), Some(now)) => Arc::ptr_eq(told, now),
                    _ => false,
                };
                assert!(right, "{story:?} at {splits:b}: told {told:?}, is {:?}", world.now);
                told_stories += 1;
            }
        }
    }
    assert!(told_stories > 10_000, "only {told_stories}");
}

/// The same stories through a buffer, popped at every split, with a second key in between.
#[tokio::test(start_paused = true)]
async fn a_buffer_of_any_length_tells_valid_stories_in_order() {
    for limit in 1..=3 {
        for story in (1..=5).flat_map(all_stories) {
            for pops in 0..1_u32 << story.len() {
                let mut buffer = Buffer::new(limit, Hops::Skip, None);
                let (mut world, mut told) = (World::default(), None);
                for (i, happens) in story.iter().enumerate() {
                    let owed = world.step(*happens).expect("a possible story");
                    buffer.push(key("a"), owed);
                    if pops & (1 << i) != 0
                        && let Some(owed) = buffer.pop()
                    {
                        hear(&mut told, &owed).unwrap_or_else(|why| panic!("{story:?} {pops:b}: {why}"));
                    }
                }
                while let Some(owed) = buffer.pop() {
                    hear(&mut told, &owed).unwrap_or_else(|why| panic!("{story:?} {pops:b}: {why}"));
                }
                assert_eq!(told.is_some(), world.now.is_some(), "{story:?} {pops:b}");
                assert_eq!(told.map(|e| e.version().clone()), world.now.map(|e| e.version().clone()));
                assert_eq!((buffer.len(), buffer.oldest()), (0, None));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_and_goes_unheard_leaves_nothing_behind() {
    let mut buffer = Buffer::new(1, Hops::Skip, None);
    buffer.push(key("first"), Owed::add(entry("first", 1, 1), false));
    for i in 0..1000_u64 {
        let name = format!("churn-{}", i % 7);
        let object = entry(&name, i, 2 * i + 2);
        buffer.push(key(&name), Owed::add(Arc::clone(&object), false));
        buffer.push(key(&name), Owed::delete(Arc::clone(&object), object, false));
    }
    assert_eq!(buffer.len(), 1);
    assert_eq!((buffer.merged.len(), buffer.merged_order.len()), (0, 0), "memory is bounded by what lives");
    assert_eq!(buffer.merges, 1000);
}

#[tokio::test(start_paused = true)]
async fn initial_adds_are_counted_through_every_merge() {
    let mut buffer = Buffer::new(1, Hops::Skip, None);
    let (old, new) = (entry("a", 1, 1), entry("a", 2, 3));
    buffer.push(key("x"), Owed::add(entry("x", 1, 1), true));
    // Initial, and gone before it was heard.
    buffer.push(key("gone"), Owed::add(entry("gone", 1, 1), true));
    buffer.push(key("gone"), Owed::delete(entry("gone", 1, 1), entry("gone", 1, 2), false));
    // A delete that an initial add of another scope's list joins.
    buffer.push(key("a"), Owed::delete(Arc::clone(&old), old, false));
    buffer.push(key("a"), Owed::add(new, true));
    // Initial, and changed before it was heard.
    buffer.push(key("b"), Owed::add(entry("b", 1, 1), true));
    buffer.push(key("b"), Owed::update(entry("b", 1, 1), entry("b", 1, 4)));
    assert!(!buffer.initial_done());
    let mut heard = 0;
    while let Some(owed) = buffer.pop() {
        if owed.initial {
            buffer.heard_initial();
        }
        heard += 1;
    }
    assert_eq!(heard, 3);
    assert!(buffer.initial_done());
}

#[tokio::test(start_paused = true)]
async fn events_past_the_bound_are_merged_and_keys_keep_their_place() {
    let mut buffer = Buffer::new(2, Hops::Skip, None);
    for (name, version) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        buffer.push(key(name), Owed::add(entry(name, 1, version), false));
    }
    buffer.push(key("c"), Owed::update(entry("c", 1, 3), entry("c", 1, 5)));
    buffer.push(key("a"), Owed::update(entry("a", 1, 1), entry("a", 1, 6)));
    assert_eq!((buffer.len(), buffer.merges), (5, 1));
    let heard: Vec<String> =
        std::iter::from_fn(|| buffer.pop()).map(|owed| format!("{:?}", owed.now.unwrap())).collect();
    assert_eq!(heard, ["a@1", "b@2", "c@5", "d@4", "a@6"]);
}

#[tokio::test(start_paused = true)]
async fn states_between_are_kept_within_the_bound_again_once_they_were_taken() {
    let mut buffer = Buffer::new(4, Hops::Keep, None);
    let mut world = World::default();
    buffer.push(key("a"), world.step(Happens::Add).unwrap());
    for round in 0..10 {
        // The queue is full after three more; the rest is merged, and leaves out some states.
        for _ in 0..8 {
            buffer.push(key("a"), world.step(Happens::Update).unwrap());
        }
        let taken: Vec<Owed> = std::iter::from_fn(|| buffer.pop()).collect();
        let merged = taken.last().and_then(|owed| owed.merged.as_ref()).expect("some were merged");
        assert!(!merged.lost && !merged.between.is_empty(), "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_note_stands_for_all_that_came_and_went_past_the_bound() {
    let mut buffer = Buffer::new(1, Hops::Keep, None);
    let come_and_go = |buffer: &mut Buffer, name: &str| {
        let state = entry(name, 1, 1);
        buffer.push(key(name), Owed::add(Arc::clone(&state), false));
        buffer.push(key(name), Owed::delete(Arc::clone(&state), state, true));
    };
    buffer.push(key("a"), Owed::add(entry("a", 1, 1), false));
    // The only state that can be kept.
    come_and_go(&mut buffer, "b");
    for name in ["c", "d", "e"] {
        come_and_go(&mut buffer, name);
    }
    assert_eq!(buffer.buffered(), 2);
    let lost = |owed: Owed| owed.merged.map(|merged| (merged.between.len(), merged.lost));
    let notes: Vec<_> = std::iter::from_fn(|| buffer.pop()).map(lost).collect();
    assert_eq!(notes, [None, Some((1, false)), Some((0, true))]);
}
