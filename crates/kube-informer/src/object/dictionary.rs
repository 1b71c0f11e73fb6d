//! Dictionaries for zstd: what the objects of a kind have in common, kept once.
//!
//! A dictionary is made of examples laid end to end behind statistics. The examples bring the text. The statistics are what
//! every packed object would otherwise have to carry itself: they are much the same for all kinds, and were made once.

use std::cell::Cell;
use std::sync::Arc;

use zstd_safe::{CCtx, CDict, DCtx, DDict};

/// Of the levels, 3 is the last that takes about as long to pack an object as TLS takes to receive it.
const LEVEL: i32 = 3;

/// How often what occurs in objects of many kinds, in the form that zstd expects in front of the text of a dictionary.
/// `bench/rust/statistics` made it.
#[rustfmt::skip]
const STATISTICS: [u8; 161] = [
    55, 164, 48, 236, 0, 0, 0, 0, 67, 16, 160, 51, 163, 54, 195, 48, 12, 195, 48, 12,
    195, 48, 12, 195, 48, 12, 115, 213, 136, 56, 216, 119, 161, 255, 237, 127, 135, 236, 238, 53,
    92, 59, 34, 36, 26, 244, 39, 26, 206, 79, 247, 22, 175, 227, 94, 217, 221, 189, 185, 162,
    155, 203, 107, 103, 15, 252, 186, 80, 71, 89, 58, 194, 195, 204, 99, 4, 163, 1, 0, 8,
    8, 10, 71, 101, 178, 25, 153, 218, 45, 0, 4, 0, 204, 139, 10, 11, 204, 136, 196, 225,
    136, 68, 22, 6, 227, 72, 10, 197, 72, 144, 162, 24, 67, 128, 49, 0, 41, 131, 12, 66,
    132, 108, 102, 0, 0, 0, 116, 142, 102, 67, 163, 129, 84, 34, 15, 115, 24, 134, 81, 16,
    67, 200, 40, 228, 144, 33, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0,
    0,
];

/// Unpacks objects. Every packed object holds the one that it was packed with.
pub(crate) struct Dictionary {
    decoder: DDict<'static>,
    size: usize,
}

/// Packs objects.
pub(super) struct Encoder {
    tables: CDict<'static>,
    pub(super) dictionary: Arc<Dictionary>,
}

impl Encoder {
    /// A dictionary of examples.
    pub(super) fn new<'a>(examples: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut content = STATISTICS.to_vec();
        examples.into_iter().for_each(|example| content.extend_from_slice(example));
        let decoder = DDict::create(&content);
        Self {
            tables: CDict::create(&content, LEVEL),
            dictionary: Arc::new(Dictionary { size: decoder.sizeof(), decoder }),
        }
    }

    /// Packs one object into `out`, and says how long it became. `None` if it does not become shorter.
    pub(super) fn pack(&self, context: &mut CCtx<'_>, bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        out.clear();
        out.reserve(bytes.len());
        context.compress_using_cdict(out, bytes, &self.tables).ok().filter(|length| *length < bytes.len())
    }

    /// What it takes beside the dictionary for as long as objects are packed with it.
    pub(super) fn size(&self) -> usize {
        self.tables.sizeof()
    }
}

impl Dictionary {
    /// What it takes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Unpacks an object of this length and lets it be read.
    ///
    /// # Errors
    /// If the bytes were not packed with this dictionary. That cannot happen unless memory is corrupt.
    pub(super) fn unpack<R>(
        &self,
        packed: &[u8],
        length: usize,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, &'static str> {
        // Taken out, not borrowed: whoever reads may read another object meanwhile.
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let context = scratch.context.get_or_insert_with(DCtx::create);
        scratch.bytes.clear();
        scratch.bytes.reserve(length);
        let unpacked = context
            .decompress_using_ddict(&mut scratch.bytes, packed, &self.decoder)
            .map_err(zstd_safe::get_error_name)
            .map(|_| read(&scratch.bytes));
        if scratch.bytes.capacity() > KEPT_BYTES {
            scratch.bytes = Vec::new();
        }
        SCRATCH.set(Some(scratch));
        unpacked
    }
}

/// What is needed to unpack, kept by each thread that does.
#[derive(Default)]
struct Scratch {
    context: Option<DCtx<'static>>,
    bytes: Vec<u8>,
}

/// A buffer that had to be larger than this for one object is not kept for the next.
const KEPT_BYTES: usize = 256 << 10;

thread_local! {
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: usize) -> Vec<u8> {
        let words = ["image", "container", "volume", "status", "node", "ready"];
        let text: Vec<String> =
            (0..60).map(|i| format!("{}-{}", words[(i * number) % 6], i * 7 % 13)).collect();
        format!("{{\"name\":\"pod-{number}\",\"uid\":\"{:08x}\",{}}}", number * 7919, text.join(","))
            .into_bytes()
    }

    #[test]
    fn what_is_packed_is_unpacked_as_it_was() {
        let examples: Vec<Vec<u8>> = (0..40).map(object).collect();
        let encoder = Encoder::new(examples.iter().map(|example| &example[..]));
        let mut context = CCtx::create();
        let mut packed = Vec::new();
        for number in 0..100 {
            let bytes = object(number);
            let length = encoder.pack(&mut context, &bytes, &mut packed).unwrap();
            assert!(length < bytes.len() / 3, "{length} of {}", bytes.len());
            let same = encoder.dictionary.unpack(&packed, bytes.len(), |read| read == bytes);
            assert_eq!(same, Ok(true));
        }
    }

    #[test]
    fn what_does_not_become_shorter_is_not_packed() {
        let mut random = fastrand::Rng::with_seed(1);
        let bytes: Vec<u8> = (0..500).map(|_| random.u8(..)).collect();
        let encoder = Encoder::new([&b"nothing in common"[..]]);
        assert_eq!(encoder.pack(&mut CCtx::create(), &bytes, &mut Vec::new()), None);
    }

    #[test]
    fn an_object_is_read_while_another_is_read() {
        let encoder = Encoder::new([&[7; 100][..]]);
        let mut packed = Vec::new();
        encoder.pack(&mut CCtx::create(), &[7; 200], &mut packed).unwrap();
        let unpack = || encoder.dictionary.unpack(&packed, 200, |read| read.to_vec());
        let both = encoder.dictionary.unpack(&packed, 200, |outer| (outer.to_vec(), unpack()));
        assert_eq!(both, Ok((vec![7; 200], Ok(vec![7; 200]))));
    }
}
