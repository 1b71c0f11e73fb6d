//! Gzip of many members, packed and unpacked.
//!
//! Kubernetes 1.37 ends a gzip member at every flush of a compressed stream, so one answer is many members laid end to
//! end. Decoders that stop after the first lose the rest.

use std::io::Write;

use bytes::{Buf, Bytes};
use flate2::Compression;
use flate2::write::{GzEncoder, MultiGzDecoder};

use crate::WireError;

/// How many compressed bytes are taken at a time. Deflate makes at most 1,032 bytes of one, so a step gives at most
/// [`MAX_STEP`] bytes, however the stream was made.
const STEP: usize = 256;

/// The most plain bytes that one [`Gunzip::push`] gives: what the compressed bytes of a step can become, and what the decoder
/// held back before.
pub const MAX_STEP: usize = (STEP + 64) * 1032;

/// One complete gzip member that holds these bytes.
pub fn member(bytes: &[u8]) -> Vec<u8> {
    // Level 1, as the real server: it answers many clients.
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4 + 32), Compression::new(1));
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("writing to memory does not fail")
}

/// Unpacks a stream of gzip members in steps of bounded size: compressed chunks in as they come, plain bytes out.
///
/// ```
/// use kube_wire::gzip::{Gunzip, member};
/// let stream = [member(b"one "), member(b"two")].concat();
/// let mut gunzip = Gunzip::default();
/// let mut plain = Vec::new();
/// for mut chunk in stream.chunks(9) {
///     while !chunk.is_empty() {
///         plain.extend_from_slice(&gunzip.push(&mut chunk).unwrap());
///     }
/// }
/// gunzip.finish().unwrap();
/// assert_eq!(plain, b"one two");
/// ```
pub struct Gunzip {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// Whether any byte has come: no byte at all is an empty stream, not a truncated one.
    begun: bool,
}

impl Default for Gunzip {
    fn default() -> Self {
        Self { decoder: MultiGzDecoder::new(Vec::new()), begun: false }
    }
}

impl Gunzip {
    /// Takes a few of the compressed bytes and gives the plain bytes that are complete so far, at most [`MAX_STEP`].
    ///
    /// Call it until `compressed` is empty: a small chunk can hold a thousand times as much.
    pub fn push(&mut self, compressed: &mut impl Buf) -> Result<Bytes, WireError> {
        let chunk = compressed.chunk();
        let step = &chunk[..chunk.len().min(STEP)];
        self.begun |= !step.is_empty();
        self.decoder.write_all(step).and_then(|()| self.decoder.flush()).map_err(corrupt)?;
        let taken = step.len();
        compressed.advance(taken);
        Ok(Bytes::from(std::mem::take(self.decoder.get_mut())))
    }

    /// Says whether the stream ended at the end of a member.
    pub fn finish(mut self) -> Result<(), WireError> {
        if !self.begun {
            return Ok(());
        }
        self.decoder.try_finish().map_err(|_| WireError::Truncated { inside: "a gzip member" })
    }
}

impl std::fmt::Debug for Gunzip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gunzip").field("begun", &self.begun).finish_non_exhaustive()
    }
}

#[allow(clippy::needless_pass_by_value, reason = "used as a function in map_err")]
fn corrupt(error: std::io::Error) -> WireError {
    WireError::Gzip(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(chunks: impl Iterator<Item = Vec<u8>>) -> Result<Vec<u8>, WireError> {
        let mut gunzip = Gunzip::default();
        let mut plain = Vec::new();
        for chunk in chunks {
            let mut chunk = &chunk[..];
            while !chunk.is_empty() {
                plain.extend_from_slice(&gunzip.push(&mut chunk)?);
            }
        }
        gunzip.finish()?;
        Ok(plain)
    }

    #[test]
    fn many_members_split_at_every_byte() {
        let parts: Vec<Vec<u8>> =
            (0..5).map(|i| format!("part {i} {}", "x".repeat(i * 100)).into_bytes()).collect();
        let stream: Vec<u8> = parts.iter().flat_map(|part| member(part)).collect();
        let plain = parts.concat();
        for at in 0..=stream.len() {
            let halves = [stream[..at].to_vec(), stream[at..].to_vec()];
            assert_eq!(unpack(halves.into_iter()).unwrap(), plain, "split at {at}");
        }
        assert_eq!(unpack(stream.iter().map(|byte| vec![*byte])).unwrap(), plain);
    }

    #[test]
    fn a_flushed_member_is_readable_before_the_next_one_comes() {
        let mut gunzip = Gunzip::default();
        assert_eq!(gunzip.push(&mut &member(b"first")[..]).unwrap(), "first");
        assert_eq!(gunzip.push(&mut &member(b"second")[..]).unwrap(), "second");
    }

    #[test]
    fn a_bomb_is_unpacked_in_bounded_steps() {
        let bomb = member(&vec![b' '; 8 << 20]);
        assert!(bomb.len() < 64 << 10, "a thousandth: {}", bomb.len());
        let mut packed = &bomb[..];
        let (mut gunzip, mut total) = (Gunzip::default(), 0);
        while !packed.is_empty() {
            let plain = gunzip.push(&mut packed).unwrap();
            assert!(plain.len() <= MAX_STEP, "{}", plain.len());
            total += plain.len();
        }
        gunzip.finish().unwrap();
        assert_eq!(total, 8 << 20);
    }

    #[test]
    fn truncated_and_corrupt_streams_are_errors() {
        let packed = member(&b"hello ".repeat(100));
        for end in 1..packed.len() {
            assert!(unpack(std::iter::once(packed[..end].to_vec())).is_err(), "cut at {end}");
        }
        assert!(unpack(std::iter::once(b"no gzip at all".to_vec())).is_err());
        assert_eq!(unpack(std::iter::empty()).unwrap(), b"");
    }
}
