//! Dictionaries for zstd: what the objects of a kind have in common, kept once.
//!
//! A dictionary is made of examples laid end to end behind statistics. The examples bring the text. The statistics are what
//! every packed object would otherwise have to carry itself: they are much the same for all kinds, and were made once.

use std::cell::Cell;
use std::sync::Arc;

use zstd_safe::{CCtx, CDict, DCtx, DDict};

/// Of the levels, 3 is the last that takes about as long to pack an object as TLS takes to receive it.
const LEVEL: i32 = 3;

/// How often bytes, lengths and distances occur in objects of many kinds, in the form that zstd expects in front of the text of
/// a dictionary, and the least text that there can be. `bench/rust/statistics` made it.
#[rustfmt::skip]
const STATISTICS: [u8; 164] = [
    55, 164, 48, 236, 0, 0, 0, 0, 61, 16, 184, 219, 164, 3, 252, 255, 255, 255, 255, 255,
    255, 255, 143, 167, 100, 45, 180, 186, 74, 173, 169, 27, 146, 82, 74, 178, 1, 110, 37, 148,
    160, 101, 178, 234, 134, 70, 9, 102, 204, 136, 148, 82, 166, 148, 82, 74, 244, 163, 62, 112,
    124, 11, 83, 85, 141, 58, 95, 85, 255, 15, 83, 1, 0, 0, 4, 133, 195, 66, 209, 104,
    72, 32, 152, 142, 105, 55, 4, 96, 143, 202, 8, 6, 17, 201, 164, 145, 88, 52, 24, 135,
    113, 28, 133, 81, 28, 70, 97, 16, 195, 16, 67, 136, 81, 200, 24, 165, 140, 98, 52, 5,
    0, 0, 0, 20, 50, 166, 99, 177, 56, 145, 162, 28, 166, 20, 66, 70, 33, 51, 52, 36,
    0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 50, 45, 112, 114,
    111, 120, 121, 58,
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
    fn the_statistics_need_not_be_carried_by_each_object() {
        let example = object(1);
        let encoder = Encoder::new([&example[..]]);
        let without = Encoder { tables: CDict::create(&example, LEVEL), ..Encoder::new([]) };
        let pack = |encoder: &Encoder, number| {
            encoder.pack(&mut CCtx::create(), &object(number), &mut Vec::new()).unwrap()
        };
        let (with, without): (Vec<_>, Vec<_>) =
            (2..50).map(|number| (pack(&encoder, number), pack(&without, number))).unzip();
        let (with, without) = (with.iter().sum::<usize>(), without.iter().sum::<usize>());
        assert!(with * 10 < without * 9, "{with} bytes with statistics, {without} without");
    }

    #[test]
    fn a_dictionary_needs_no_text() {
        for examples in [&[][..], &[&b""[..]], &[b"{}"]] {
            let encoder = Encoder::new(examples.iter().copied());
            let mut packed = Vec::new();
            encoder.pack(&mut CCtx::create(), &[7; 200], &mut packed).unwrap();
            assert_eq!(encoder.dictionary.unpack(&packed, 200, <[u8]>::to_vec), Ok(vec![7; 200]));
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
