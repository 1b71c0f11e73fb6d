//! Packs the objects of one cache, and decides which dictionary pays.
//!
//! Objects of a list are packed in batches: a list comes sorted by namespace and name, so a batch holds siblings, and one of
//! each family is all that the others need to become small. A dictionary is taken into use only if it saves more than it
//! takes, as a try on some of the objects shows; so kinds that are small or cannot be compressed stay as they are.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use hashbrown::{HashMap, HashSet};
use zstd_safe::CCtx;

use super::dictionary::{Dictionary, Encoder};
use super::{Body, Entry};

/// So many bytes of a list are packed together.
pub(crate) const BATCH_BYTES: usize = 4 << 20;

/// A dictionary is no larger than this part of what it is to pack.
const SHARE: usize = 16;

/// And no larger than this: packing becomes slower, and finds little more.
const MAX_DICTIONARY_BYTES: usize = 1 << 20;

/// Less than this is not worth a dictionary.
const MIN_BATCH_BYTES: usize = 64 << 10;

/// Objects smaller than this are not worth packing.
const MIN_OBJECT_BYTES: usize = 256;

/// So many objects are tried to see what a dictionary does, and of each no more than so many bytes.
const TRIED: usize = 32;
const TRIED_BYTES: usize = 8 << 10;

/// So many batches are left alone when a try has failed, then twice as many.
const FIRST_PAUSE: usize = 4;

/// So many templates are remembered by an example.
const MAX_TEMPLATES: usize = 4096;

/// After this many bytes of single changes it is looked whether another dictionary would do better; if not, after twice as many.
const FIRST_REVIEW_BYTES: u64 = 1 << 20;
const MAX_REVIEW_BYTES: u64 = 1 << 30;

/// Packs the objects of one cache.
pub(crate) struct Packer {
    press: Press,
    encoder: Option<Encoder>,
    /// The templates that objects were made from, as far as owners and labels show them.
    templates: HashMap<u64, Template>,
    /// The templates that the encoder knows by an example.
    known: HashSet<u64>,
    /// The last few objects that came by themselves, to try a dictionary on.
    recent: VecDeque<Weak<Entry>>,
    live: Vec<Weak<Dictionary>>,
    /// What the list in progress has brought so far.
    listed: usize,
    listed_bytes: usize,
    /// When the dictionary is looked at again: at so many bytes of the list, and after so many bytes of single changes.
    review_list_at: usize,
    review_in: u64,
    review_every: u64,
    /// How many came by themselves since it was last looked at.
    came: usize,
    /// Batches to leave alone, and how many it will be the next time that a try fails.
    pause: usize,
    next_pause: usize,
}

/// What it takes to pack, with any encoder.
struct Press {
    /// Packs whatever becomes shorter, whether it pays or not.
    eager: bool,
    context: CCtx<'static>,
    out: Vec<u8>,
}

struct Template {
    count: usize,
    example: Weak<Entry>,
}

impl Packer {
    /// `eager` packs even what does not pay: so that simulations, whose objects are few and small, have packed ones.
    pub(crate) fn new(eager: bool) -> Self {
        let first_review = if eager { 1 } else { FIRST_REVIEW_BYTES };
        Self {
            press: Press { eager, context: CCtx::create(), out: Vec::new() },
            encoder: None,
            templates: HashMap::new(),
            known: HashSet::new(),
            recent: VecDeque::new(),
            live: Vec::new(),
            listed: 0,
            listed_bytes: 0,
            review_list_at: MIN_BATCH_BYTES,
            review_in: first_review,
            review_every: first_review,
            came: 0,
            pause: 0,
            next_pause: FIRST_PAUSE,
        }
    }

    /// A list begins.
    pub(crate) fn begin_list(&mut self) {
        (self.listed, self.listed_bytes, self.review_list_at) = (0, 0, MIN_BATCH_BYTES);
    }

    /// Packs a batch of a list. Objects that somebody else holds, as the store does those of a list before, are left alone.
    pub(crate) fn pack_batch(&mut self, batch: &mut [Arc<Entry>]) {
        let fresh: Vec<&Arc<Entry>> = batch.iter().filter(|entry| Arc::strong_count(entry) == 1).collect();
        let raw: usize = fresh.iter().map(|entry| entry.size()).sum();
        self.listed_bytes += raw;
        self.listed += fresh.len();
        // The rest of a list is too little to judge by.
        if raw >= MIN_BATCH_BYTES || (self.press.eager && !fresh.is_empty()) {
            if self.pause > 0 {
                self.pause -= 1;
                return;
            }
            self.choose_for(&fresh, raw);
        }
        if self.encoder.is_none() {
            return;
        }
        for entry in batch.iter_mut() {
            if self.pack(entry) {
                self.remember(entry);
            }
        }
    }

    /// Packs one object that came by itself, and says whether it is time for a [`review`](Self::review).
    pub(crate) fn pack_one(&mut self, entry: &mut Arc<Entry>) -> bool {
        let raw = entry.size() as u64;
        self.came += 1;
        self.pack(entry);
        self.remember(entry);
        self.recent.push_back(Arc::downgrade(entry));
        if self.recent.len() > TRIED {
            self.recent.pop_front();
        }
        self.review_in = self.review_in.saturating_sub(raw);
        let due = self.review_in == 0;
        if due {
            // One at a time: it says itself when the next one is.
            self.review_in = u64::MAX;
        }
        due
    }

    /// Packs the last state of an object, which nobody keeps for long.
    pub(crate) fn pack_last(&mut self, entry: &mut Arc<Entry>) {
        self.pack(entry);
    }

    /// How many dictionaries are in use, and what they take.
    pub(crate) fn dictionaries(&self) -> (usize, usize) {
        let live: Vec<_> = self.live.iter().filter_map(Weak::upgrade).collect();
        let tables = self.encoder.as_ref().map_or(0, Encoder::size);
        (live.len(), live.iter().map(|dictionary| dictionary.size()).sum::<usize>() + tables)
    }

    /// Whether it was packed.
    fn pack(&mut self, entry: &mut Arc<Entry>) -> bool {
        let (Some(encoder), Some(entry)) = (&self.encoder, Arc::get_mut(entry)) else { return false };
        let Body::Raw { wire, typed, bytes } = entry.body() else { return false };
        let Some(packed) = self.press.pack(encoder, bytes) else { return false };
        let body = Body::Packed {
            wire: *wire,
            typed: *typed,
            length: bytes.len() as u32,
            bytes: packed.into(),
            dictionary: Arc::clone(&encoder.dictionary),
        };
        entry.set_body(body);
        true
    }

    /// Takes a dictionary of this batch's templates into use, or one of all that were seen, if it pays.
    fn choose_for(&mut self, batch: &[&Arc<Entry>], raw: usize) {
        let sample = sample(batch.iter().copied().step_by((batch.len() / TRIED).max(1)));
        let plain = average(sample.iter().map(Vec::len));
        let mut packed = self.try_current(&sample);
        let mut counts: HashMap<u64, (usize, &Arc<Entry>)> = HashMap::new();
        for entry in batch {
            counts.entry(entry.template()).or_insert((0, entry)).0 += 1;
        }
        if counts.keys().any(|template| !self.known.contains(template)) {
            let examples = most_frequent(
                counts.iter().map(|(template, (count, entry))| (*template, *count, Arc::clone(entry))),
                self.share(raw),
            );
            packed = self.try_examples(&sample, packed, batch.len(), &examples);
        }
        if self.listed_bytes >= self.review_list_at {
            self.review_list_at = self.listed_bytes * 2;
            // With the first batch the two are the same.
            if self.listed > batch.len() {
                let examples = self.examples(self.share(self.listed_bytes));
                packed = self.try_examples(&sample, packed, self.listed, &examples);
            }
        }
        let gain = plain.saturating_sub(packed);
        if (gain < plain / 2 || gain < MIN_OBJECT_BYTES) && !self.press.eager {
            self.encoder = None;
            self.press.forget();
            self.known.clear();
            self.pause = self.next_pause;
            self.next_pause = (self.next_pause * 2).min(64);
        } else {
            self.next_pause = FIRST_PAUSE;
        }
    }

    /// Looks whether another dictionary would do better for objects that come by themselves, of so many in the store.
    pub(crate) fn review(&mut self, objects: usize) {
        let examples = self.templates.values().map(|template| &template.example);
        let examples: Vec<_> = examples.filter_map(Weak::upgrade).collect();
        let recent: Vec<_> = self.recent.iter().filter_map(Weak::upgrade).collect();
        // An example would be found in the dictionary whole.
        let others =
            recent.iter().filter(|entry| examples.iter().all(|example| !Arc::ptr_eq(entry, example)));
        let sample = sample(others);
        drop(examples);
        let plain = average(sample.iter().map(Vec::len));
        let now = self.try_current(&sample);
        let (_, used) = self.dictionaries();
        let budget = self.share(objects * plain).saturating_sub(if self.press.eager { 0 } else { used });
        let examples = self.examples(budget);
        // As many as came since the last time will come again.
        let came = std::mem::take(&mut self.came).min(objects);
        let better = self.try_examples(&sample, now, came, &examples) < now;
        self.review_every =
            if better { FIRST_REVIEW_BYTES * 16 } else { (self.review_every * 2).min(MAX_REVIEW_BYTES) };
        self.review_in = self.review_every;
    }

    /// How large a dictionary for so many bytes may be.
    fn share(&self, bytes: usize) -> usize {
        if self.press.eager { bytes } else { bytes / SHARE }
    }

    /// Takes a dictionary of these examples into use if, over so many objects, it saves more than it takes. Gives what an
    /// object takes then; before, it took `now`.
    fn try_examples(
        &mut self,
        sample: &[Vec<u8>],
        now: usize,
        objects: usize,
        examples: &[(u64, Vec<u8>)],
    ) -> usize {
        if examples.is_empty() || sample.is_empty() {
            return now;
        }
        let candidate = Encoder::new(examples.iter().map(|(_, example)| &example[..]));
        let then = self.press.average(&candidate, sample);
        let taken = candidate.size() + candidate.dictionary.size();
        let taken = match &self.encoder {
            // Its tables are freed.
            Some(replaced) => taken.saturating_sub(replaced.size()),
            None => taken + self.press.context.sizeof(),
        };
        if now.saturating_sub(then) * objects <= taken && !self.press.eager {
            if self.encoder.is_none() {
                self.press.forget();
            }
            return now;
        }
        self.live.retain(|dictionary| dictionary.strong_count() > 0);
        self.live.push(Arc::downgrade(&candidate.dictionary));
        self.encoder = Some(candidate);
        self.known = examples.iter().map(|(template, _)| *template).collect();
        then
    }

    /// What an object takes on average, packed as now.
    fn try_current(&mut self, sample: &[Vec<u8>]) -> usize {
        match &self.encoder {
            Some(encoder) => self.press.average(encoder, sample),
            None => average(sample.iter().map(Vec::len)),
        }
    }

    /// One object of each template that was ever seen, of the most frequent ones.
    fn examples(&self, budget: usize) -> Vec<(u64, Vec<u8>)> {
        let seen = self.templates.iter();
        most_frequent(
            seen.filter_map(|(template, seen)| Some((*template, seen.count, seen.example.upgrade()?))),
            budget,
        )
    }

    fn remember(&mut self, entry: &Arc<Entry>) {
        let template = entry.template();
        if self.templates.len() >= MAX_TEMPLATES && !self.templates.contains_key(&template) {
            // Owners come and go with every rollout: what is gone makes room, and what was long ago counts less.
            self.templates.retain(|_, seen| seen.example.strong_count() > 0);
            self.templates.values_mut().for_each(|seen| seen.count /= 2);
            if self.templates.len() >= MAX_TEMPLATES {
                self.templates.retain(|_, seen| seen.count > 0);
            }
        }
        if self.templates.len() >= MAX_TEMPLATES {
            return;
        }
        let seen =
            self.templates.entry(template).or_insert_with(|| Template { count: 0, example: Weak::new() });
        seen.count += 1;
        if seen.example.strong_count() == 0 {
            seen.example = Arc::downgrade(entry);
        }
    }
}

impl Press {
    /// One object packed, if that is worth it.
    fn pack(&mut self, encoder: &Encoder, bytes: &[u8]) -> Option<&[u8]> {
        if bytes.len() < MIN_OBJECT_BYTES && !self.eager {
            return None;
        }
        let length = encoder.pack(&mut self.context, bytes, &mut self.out)?;
        // Unpacking costs, and so does the reference to the dictionary: a little shorter is not enough.
        (length <= bytes.len() / 4 * 3 || self.eager).then_some(&self.out[..])
    }

    /// What an object takes on average, packed if that is worth it.
    fn average(&mut self, encoder: &Encoder, sample: &[Vec<u8>]) -> usize {
        average(sample.iter().map(|bytes| self.pack(encoder, bytes).map_or(bytes.len(), <[u8]>::len)))
    }

    /// Gives back what the next one may never need.
    fn forget(&mut self) {
        self.context = CCtx::create();
    }
}

/// The bytes of some objects, to try dictionaries on.
fn sample<'a>(entries: impl Iterator<Item = &'a Arc<Entry>>) -> Vec<Vec<u8>> {
    entries.filter_map(|entry| entry.first_bytes(TRIED_BYTES)).take(TRIED).collect()
}

/// Of templates with how often they were seen and an example each: the bytes of as many examples as there is room for, the
/// most frequent last, for what is near is found at less cost.
fn most_frequent(
    templates: impl Iterator<Item = (u64, usize, Arc<Entry>)>,
    budget: usize,
) -> Vec<(u64, Vec<u8>)> {
    let mut templates: Vec<_> = templates.collect();
    templates.sort_unstable_by_key(|(template, count, _)| (Reverse(*count), *template));
    let mut left = budget.min(MAX_DICTIONARY_BYTES);
    let mut examples = Vec::new();
    for (template, _, entry) in templates {
        if left < MIN_OBJECT_BYTES {
            break;
        }
        let Some((_, bytes)) = entry.bytes() else { continue };
        if bytes.len() <= left {
            left -= bytes.len();
            examples.push((template, bytes));
        }
    }
    examples.reverse();
    examples
}

fn average(sizes: impl ExactSizeIterator<Item = usize>) -> usize {
    let count = sizes.len().max(1);
    sizes.sum::<usize>() / count
}

#[cfg(test)]
mod tests;
