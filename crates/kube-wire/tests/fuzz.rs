//! Fuzzing: the corpora in `fuzz/`, and what chance makes of them, against everything that reads bytes from the wire.
//!
//! Each target says what must hold whatever the bytes are, which is more than that nothing panics. A bounded number of inputs
//! is tried in every run of the tests; more of them, or others:
//!
//! ```text
//! KUBE_WIRE_FUZZ_RUNS=1000000 KUBE_WIRE_FUZZ_SEED=7 cargo test --release -p kube-wire --test fuzz
//! ```
//!
//! An input that broke something belongs into the corpus of its target: a line with a name (for objects, the kind) and its bytes.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use kube_wire::json::ListMeta;
use kube_wire::protobuf::{
    Envelope, FrameSplitter, Kind, ListSplitter, WatchEvent, cut, from_slice, from_value, write_list,
};
use kube_wire::{FieldPath, Metadata, WireError};
use serde_json::Value;

/// How many inputs are tried for each target, unless the environment says otherwise.
const RUNS: u64 = 3000;

#[test]
fn envelope() {
    fuzz(include_str!("fuzz/envelope.txt"), |_, bytes, _| {
        let Ok(envelope) = Envelope::parse(bytes) else { return false };
        let mut written = Vec::new();
        envelope.write(&mut written);
        assert_eq!(
            Envelope::parse(&written).as_ref(),
            Ok(&envelope),
            "what was read can be written and read again"
        );
        true
    });
}

#[test]
fn frames() {
    /// The frames, and how it ended.
    fn split(chunks: &[&[u8]]) -> (Vec<Vec<u8>>, Result<(), WireError>) {
        let mut frames = FrameSplitter::default();
        let (mut found, mut pushed) = (Vec::new(), 0);
        for chunk in chunks {
            frames.push(chunk);
            pushed += chunk.len();
            assert!(frames.buffered() <= pushed);
            loop {
                match frames.next_frame() {
                    Ok(Some(frame)) => found.push(frame.to_vec()),
                    Ok(None) => break,
                    Err(error) => return (found, Err(error)),
                }
            }
        }
        (found, frames.finish())
    }
    fuzz(include_str!("fuzz/frames.txt"), |_, bytes, rng| {
        let (found, end) = split(&[bytes]);
        assert_eq!(split(&chunks(bytes, rng)), (found.clone(), end), "however the stream is cut");
        // As a list, so that all of them are read.
        let read: Vec<bool> = found.iter().map(|frame| WatchEvent::parse(frame).is_ok()).collect();
        read.contains(&true)
    });
}

#[test]
fn list() {
    fn split(chunks: &[&[u8]]) -> Result<(Vec<Vec<u8>>, ListMeta), WireError> {
        let mut list = ListSplitter::default();
        let (mut items, mut pushed) = (Vec::new(), 0);
        for chunk in chunks {
            list.push(chunk);
            pushed += chunk.len();
            assert!(list.buffered() <= pushed);
            while let Some(item) = list.next_item()? {
                items.push(item.to_vec());
            }
        }
        Ok((items, list.finish()?))
    }
    fuzz(include_str!("fuzz/list.txt"), |_, bytes, rng| {
        let whole = split(&[bytes]);
        assert_eq!(split(&chunks(bytes, rng)).is_ok(), whole.is_ok(), "however the list is cut");
        let Ok((items, meta)) = whole else { return false };
        assert_eq!(split(&chunks(bytes, rng)).unwrap(), (items.clone(), meta.clone()));
        let mut written = Vec::new();
        write_list(&mut written, &meta, &items);
        assert_eq!(split(&[&written]), Ok((items, meta)), "what was read can be written and read again");
        true
    });
}

#[test]
fn object() {
    fuzz(include_str!("fuzz/object.txt"), |name, bytes, _| {
        let kind = kind(name);
        // May differ in what they refuse, never in what they say.
        let metadata = Metadata::from_protobuf(kind, bytes);
        let Ok(value) = from_slice::<Value>(kind, bytes) else { return false };
        if let (Ok(metadata), Some(name)) = (&metadata, value["metadata"]["name"].as_str()) {
            assert_eq!(metadata.name, name);
        }
        // Written again, some values take their usual form (a quantity) or cannot be (a time before the year 0); after that they
        // stay as they are.
        let again = |value: &Value| {
            let written = from_value(kind, value).ok()?;
            Some(from_slice::<Value>(kind, &written).expect("what was written can be read"))
        };
        if let Some(usual) = again(&value) {
            assert_eq!(again(&usual), Some(usual));
        }
        true
    });
}

#[test]
fn cutting() {
    let paths: Vec<FieldPath> = [
        ".metadata.managedFields",
        ".metadata.annotations['a']",
        ".metadata.labels",
        ".spec.containers[*].image",
        ".spec.template.spec.containers[*].env",
        ".status",
        ".data[*]",
    ]
    .map(|path| path.parse().unwrap())
    .to_vec();
    fuzz(include_str!("fuzz/cut.txt"), |name, bytes, rng| {
        let kind = kind(name);
        let some: Vec<FieldPath> = paths.iter().filter(|_| rng.bool()).cloned().collect();
        let Ok(rest) = cut(kind, bytes, &some) else { return false };
        let Some(rest) = rest else { return true };
        assert!(rest.len() < bytes.len(), "something is cut out");
        assert_eq!(cut(kind, &rest, &some), Ok(None), "all of it");
        for path in &some {
            if let (Ok(_), Ok(texts)) =
                (path.texts_in_protobuf(kind, bytes), path.texts_in_protobuf(kind, &rest))
            {
                assert!(texts.is_empty(), "{path} leads to {texts:?}");
            }
        }
        true
    });
}

/// Tries every line of a corpus, and what chance makes of it. The target says whether the bytes made sense to it.
fn fuzz(corpus: &str, target: impl Fn(&str, &[u8], &mut Rng) -> bool) {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (runs, first) = (number("KUBE_WIRE_FUZZ_RUNS", RUNS), number("KUBE_WIRE_FUZZ_SEED", 0));
    let corpus: Vec<(&str, Vec<u8>)> = corpus
        .lines()
        .map(|line| line.split_once(' ').map_or((line, Vec::new()), |(name, hex)| (name, unhex(hex))))
        .collect();
    let mut outcomes = BTreeSet::new();
    let mut attempt = |name: &str, bytes: &[u8], seed: u64| {
        let run = || target(name, bytes, &mut Rng::with_seed(seed));
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(sense) => drop(outcomes.insert(sense)),
            Err(panic) => {
                let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                    write!(hex, "{byte:02x}").unwrap();
                    hex
                });
                eprintln!("seed {seed}, input for the corpus:\n{name} {hex}");
                std::panic::resume_unwind(panic);
            }
        }
    };
    for (name, bytes) in &corpus {
        attempt(name, bytes, first);
    }
    for seed in first..first + runs {
        let mut rng = Rng::with_seed(seed);
        let (name, bytes) = rng.choice(&corpus).unwrap();
        let mut bytes = bytes.clone();
        let other = &rng.choice(&corpus).unwrap().1;
        for _ in 0..rng.usize(1..6) {
            mutate(&mut rng, &mut bytes, other);
        }
        attempt(name, &bytes, seed);
    }
    assert_eq!(outcomes.len(), 2, "some inputs made sense and some did not");
}

/// One small change.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    const INTERESTING: [u8; 9] = [0, 1, 2, 0x0a, 0x12, 0x7f, 0x80, 0xfe, 0xff];
    let at = rng.usize(..=bytes.len());
    let part = |rng: &mut Rng, from: &[u8]| {
        let start = rng.usize(..=from.len());
        from[start..(start + rng.usize(..40)).min(from.len())].to_vec()
    };
    match rng.u8(..8) {
        0 if at < bytes.len() => bytes[at] = rng.choice(INTERESTING).unwrap(),
        1 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
        2 if at < bytes.len() => drop(bytes.remove(at)),
        3 => bytes.truncate(at),
        4 => bytes.insert(at, rng.choice(INTERESTING).unwrap()),
        5 => drop(bytes.splice(at..at, [0xff; 9].into_iter().chain([rng.u8(..2)]))),
        6 => {
            let copy = part(rng, bytes);
            drop(bytes.splice(at..at, copy));
        }
        _ => {
            let copy = part(rng, other);
            drop(bytes.splice(at..at, copy));
        }
    }
}

/// The bytes in pieces of any size.
fn chunks<'a>(mut bytes: &'a [u8], rng: &mut Rng) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    while !bytes.is_empty() {
        let (head, tail) = bytes.split_at(rng.usize(1..=bytes.len().min(60)));
        chunks.push(head);
        bytes = tail;
    }
    chunks
}

/// `v1.Pod`, `apps/v1.Deployment`.
fn kind(name: &str) -> Kind {
    let (api_version, name) = name.rsplit_once('.').expect("a kind");
    Kind::find(api_version, name).expect("a kind that is known")
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        text.chars().map(|digit| digit.to_digit(16).expect("a hexadecimal digit")).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}
