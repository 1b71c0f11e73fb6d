//! Dictionaries for zstd: what the objects of a kind have in common, kept once.
//!
//! A dictionary is made of examples laid end to end behind a small trained one. The trained part brings the statistics that
//! every compressed object would otherwise carry itself (half of what a packed pod takes); the examples bring the text. That
//! takes a tenth of the time of training on all examples, and leaves half of the bytes.

use std::cell::Cell;
use std::sync::Arc;

use zstd_safe::{CCtx, CDict, DCtx, DDict};

/// Of the levels, 3 is the last that takes about as long to pack an object as TLS takes to receive it.
const LEVEL: i32 = 3;

/// The size of the trained part.
const TRAINED_BYTES: usize = 8 << 10;

/// At most so much is trained on: time grows with it, and the statistics hardly change.
const TRAINED_ON_BYTES: usize = 256 << 10;

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
    /// A dictionary of a trained part, which may be empty, and examples.
    pub(super) fn new<'a>(trained: &[u8], examples: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut content = trained.to_vec();
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

/// The trained part of a dictionary; `None` if the examples are too few to learn from.
pub(super) fn train(examples: &[&[u8]]) -> Option<Vec<u8>> {
    let mut samples = Vec::new();
    let mut sizes = Vec::new();
    for example in examples {
        if samples.len() + example.len() > TRAINED_ON_BYTES && !sizes.is_empty() {
            break;
        }
        samples.extend_from_slice(example);
        sizes.push(example.len());
    }
    let mut trained = Vec::with_capacity(TRAINED_BYTES.min(samples.len() / 4));
    zstd_safe::train_from_buffer(&mut trained, &samples, &sizes).ok()?;
    // The number of the dictionary: with none, packed objects need not carry it.
    trained.get_mut(4..8)?.fill(0);
    Some(trained)
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
        let trained = train(&examples.iter().map(|example| &example[..]).collect::<Vec<_>>()).unwrap();
        for trained in [&trained[..], &[]] {
            let encoder = Encoder::new(trained, examples.iter().map(|example| &example[..]));
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
    }

    #[test]
    fn what_does_not_become_shorter_is_not_packed() {
        let mut random = fastrand::Rng::with_seed(1);
        let bytes: Vec<u8> = (0..500).map(|_| random.u8(..)).collect();
        let encoder = Encoder::new(&[], [&b"nothing in common"[..]]);
        assert_eq!(encoder.pack(&mut CCtx::create(), &bytes, &mut Vec::new()), None);
    }

    #[test]
    fn an_object_is_read_while_another_is_read() {
        let encoder = Encoder::new(&[], [&[7; 100][..]]);
        let mut packed = Vec::new();
        encoder.pack(&mut CCtx::create(), &[7; 200], &mut packed).unwrap();
        let unpack = || encoder.dictionary.unpack(&packed, 200, |read| read.to_vec());
        let both = encoder.dictionary.unpack(&packed, 200, |outer| (outer.to_vec(), unpack()));
        assert_eq!(both, Ok((vec![7; 200], Ok(vec![7; 200]))));
    }
}
