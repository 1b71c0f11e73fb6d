//! What differs between two states of one object: which parts of the earlier one are copied, and what is put between them.
//!
//! A patch is: how much to put, that, where to copy from, how much; again and again, until it ends behind what is put.

/// Larger objects are not compared: they have more blocks than can be numbered.
const MAX_BYTES: usize = 1 << 19;

/// Every block of the earlier state is found by its first bytes.
const BLOCK: usize = 16;
const PROBE: usize = 8;

/// Copying less than this takes about as much as putting it.
const MIN_COPY: usize = 12;

const TABLE_BITS: u32 = 12;

/// The patch that makes `new` of `old`; `None` if it takes more than `limit` bytes, as far as can be seen on the way.
pub(super) fn make(old: &[u8], new: &[u8], limit: usize) -> Option<Vec<u8>> {
    if old.len() >= MAX_BYTES {
        return None;
    }
    // Of equal blocks the first counts; 0 is none.
    let mut table = [0_u16; 1 << TABLE_BITS];
    for (number, block) in old.chunks_exact(BLOCK).enumerate().rev() {
        table[slot(block)] = number as u16 + 1;
    }
    let mut patch = Vec::new();
    // What came since the last copy is put; `copied` is where that copy ended.
    let (mut at, mut put, mut copied) = (0, 0, 0);
    while let Some(probe) = new.get(at..at + PROBE) {
        // Most often a value gave way to one of the same length, and all goes on behind it.
        let aligned = copied + (at - put);
        let from = if old.get(aligned..aligned + PROBE) == Some(probe) {
            Some(aligned)
        } else {
            (table[slot(probe)] as usize).checked_sub(1).map(|number| number * BLOCK)
        };
        let (before, behind) = from.map_or((0, 0), |from| {
            (common_end(&old[..from], &new[put..at]), common_start(&old[from..], &new[at..]))
        });
        match from {
            Some(from) if before + behind >= MIN_COPY => {
                write_put(&mut patch, &new[put..at - before]);
                write_number(&mut patch, from - before);
                write_number(&mut patch, before + behind);
                copied = from + behind;
                at += behind;
                put = at;
            }
            _ => at += 1,
        }
        // A block is found at its start: what came before it may still be copied with it.
        if patch.len() + (at - put).saturating_sub(BLOCK) > limit {
            return None;
        }
    }
    write_put(&mut patch, &new[put..]);
    (patch.len() <= limit).then_some(patch)
}

/// What a patch made by [`make`] makes of the state that it was made for.
pub(super) fn apply(old: &[u8], mut patch: &[u8], length: usize) -> Vec<u8> {
    let mut new = Vec::with_capacity(length);
    loop {
        let put = read_number(&mut patch);
        let (bytes, rest) = patch.split_at(put);
        new.extend_from_slice(bytes);
        patch = rest;
        if patch.is_empty() {
            return new;
        }
        let from = read_number(&mut patch);
        let to = from + read_number(&mut patch);
        new.extend_from_slice(&old[from..to]);
    }
}

fn slot(bytes: &[u8]) -> usize {
    let probe = u64::from_le_bytes(bytes[..PROBE].try_into().expect("eight bytes"));
    (probe.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - TABLE_BITS)) as usize
}

fn common_start(one: &[u8], other: &[u8]) -> usize {
    let chunks = one.chunks_exact(16).zip(other.chunks_exact(16));
    let equal = chunks.take_while(|(one, other)| one == other).count() * 16;
    let rest = one[equal..].iter().zip(&other[equal..]);
    equal + rest.take_while(|(one, other)| one == other).count()
}

fn common_end(one: &[u8], other: &[u8]) -> usize {
    one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

fn write_put(patch: &mut Vec<u8>, bytes: &[u8]) {
    write_number(patch, bytes.len());
    patch.extend_from_slice(bytes);
}

fn write_number(patch: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        patch.push(number as u8 | 0x80);
        number >>= 7;
    }
    patch.push(number as u8);
}

fn read_number(patch: &mut &[u8]) -> usize {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = patch[0];
        *patch = &patch[1..];
        number |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(random: &mut fastrand::Rng, length: usize) -> Vec<u8> {
        (0..length).map(|_| random.alphanumeric() as u8).collect()
    }

    fn patched(old: &[u8], new: &[u8]) -> usize {
        let patch = make(old, new, usize::MAX).unwrap();
        assert_eq!(apply(old, &patch, new.len()), new);
        patch.len()
    }

    #[test]
    fn little_changes_make_a_little_patch() {
        let mut random = fastrand::Rng::with_seed(1);
        let old = text(&mut random, 6000);
        assert!(patched(&old, &old) <= 5);
        let mut new = old.clone();
        new[40..48].copy_from_slice(b"12345678");
        assert!(patched(&old, &new) < 20);
        new.splice(5000..5000, *b"one more condition");
        new.splice(3000..3017, []);
        assert!(patched(&old, &new) < 60);
    }

    #[test]
    fn whatever_changes_is_made_again() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..1000 {
            let most = if random.bool() { 400 } else { 100_000 };
            let length = random.usize(..most);
            let old = match random.u8(..4) {
                0 => text(&mut random, length),
                1 => (0..length).map(|_| random.u8(..2)).collect(),
                2 => b"- name: a\n  value: b\n".iter().copied().cycle().take(length).collect(),
                _ => vec![b'a'; length],
            };
            let mut new = old.clone();
            for _ in 0..random.usize(..6) {
                let from = random.usize(..=new.len());
                let to = random.usize(from..=(from + 40).min(new.len()));
                let piece = if random.bool() {
                    let length = random.usize(..40);
                    text(&mut random, length)
                } else {
                    // Moved or repeated.
                    let start = random.usize(..=old.len());
                    old[start..(start + random.usize(..2000)).min(old.len())].to_vec()
                };
                new.splice(from..to, piece);
            }
            let length = patched(&old, &new);
            let limit = random.usize(..2 * length);
            if let Some(patch) = make(&old, &new, limit) {
                assert!(patch.len() <= limit);
                assert_eq!(apply(&old, &patch, new.len()), new);
            }
        }
    }

    #[test]
    fn what_would_become_too_long_is_no_patch() {
        let mut random = fastrand::Rng::with_seed(2);
        let (old, new) = (text(&mut random, 4000), text(&mut random, 4000));
        assert_eq!(make(&old, &new, 250), None);
        assert_eq!(make(&[], &new[..5], 5), None);
        assert_eq!(make(&[], &new[..5], 6).map(|patch| patch.len()), Some(6));
        let large = vec![7; MAX_BYTES];
        assert_eq!(make(&large, &large, usize::MAX), None);
        assert!(patched(&large[1..], &large[1..]) < 10);
    }
}
