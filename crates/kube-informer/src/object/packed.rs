//! Packs the objects of one cache, and decides which dictionary pays.
//!
//! Objects of a list are packed in batches: a list comes sorted by namespace and name, so a batch holds siblings, and one of
//! each family is all that the others need to become small. A dictionary is taken into use only if it saves more than it
//! takes, as a try on some of the objects shows; so kinds that are small or cannot be compressed stay as they are.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use zstd_safe::CCtx;

use super::dictionary::{Dictionary, Encoder, train};
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
const TRIED_BYTES: usize = 16 << 10;

/// So many templates are remembered by an example.
const MAX_TEMPLATES: usize = 4096;

/// After this many bytes of single changes it is looked whether another dictionary would do better; if not, after twice as many.
const FIRST_REVIEW_BYTES: u64 = 1 << 20;
const MAX_REVIEW_BYTES: u64 = 1 << 30;

/// Packs the objects of one cache.
pub(crate) struct Packer {
    /// Packs whatever becomes shorter, whether it pays or not.
    eager: bool,
    context: CCtx<'static>,
    encoder: Option<Encoder>,
    /// The trained part of every dictionary.
    trained: Option<Vec<u8>>,
    /// The templates that objects were made from, as far as owners and labels show them.
    templates: HashMap<u64, Template>,
    /// The last few objects that came by themselves, to try a dictionary on.
    recent: Vec<Weak<Entry>>,
    /// The templates that the encoder knows by an example.
    known: Vec<u64>,
    live: Vec<Weak<Dictionary>>,
    scratch: Vec<u8>,
    /// Bytes and objects that came in lists, and bytes that came by themselves.
    listed_bytes: usize,
    listed: usize,
    changed_bytes: u64,
    /// When the dictionary is looked at again.
    review_list_at: usize,
    review_at: u64,
    review_every: u64,
    /// Batches to leave alone, and how many it will be the next time that a try fails.
    pause: usize,
    next_pause: usize,
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
            eager,
            context: CCtx::create(),
            encoder: None,
            trained: None,
            templates: HashMap::new(),
            recent: Vec::new(),
            known: Vec::new(),
            live: Vec::new(),
            scratch: Vec::new(),
            listed_bytes: 0,
            listed: 0,
            changed_bytes: 0,
            review_list_at: MIN_BATCH_BYTES,
            review_at: first_review,
            review_every: first_review,
            pause: 0,
            next_pause: 1,
        }
    }

    /// Packs a batch of a list. Objects that somebody else holds already are left alone.
    pub(crate) fn pack_batch(&mut self, batch: &mut [Arc<Entry>]) {
        let raw: usize = batch.iter().map(|entry| entry.size()).sum();
        self.listed_bytes += raw;
        self.listed += batch.len();
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        if raw < MIN_BATCH_BYTES && self.encoder.is_none() && !self.eager {
            return;
        }
        self.choose_for(batch, raw);
        if self.encoder.is_some() {
            for entry in batch.iter_mut() {
                self.pack(entry);
            }
        }
        for entry in batch.iter() {
            self.remember(entry);
        }
    }

    /// Packs one object that came by itself.
    pub(crate) fn pack_one(&mut self, entry: &mut Arc<Entry>) {
        self.changed_bytes += entry.size() as u64;
        self.pack(entry);
        self.remember(entry);
        if self.recent.len() == TRIED {
            self.recent.remove(0);
        }
        self.recent.push(Arc::downgrade(entry));
        if self.changed_bytes >= self.review_at {
            self.review();
        }
    }

    /// How many dictionaries are in use, and what they take.
    pub(crate) fn dictionaries(&self) -> (usize, usize) {
        let live: Vec<_> = self.live.iter().filter_map(Weak::upgrade).collect();
        (live.len(), live.iter().map(|dictionary| dictionary.size()).sum())
    }

    fn pack(&mut self, entry: &mut Arc<Entry>) {
        let (Some(encoder), Some(entry)) = (&self.encoder, Arc::get_mut(entry)) else { return };
        let Body::Raw { wire, typed, bytes } = entry.body() else { return };
        if bytes.len() < MIN_OBJECT_BYTES && !self.eager {
            return;
        }
        let packed = encoder.pack(&mut self.context, bytes, &mut self.scratch);
        // Unpacking costs, and so does the reference to the dictionary: a little shorter is not enough.
        if packed.is_some_and(|packed| packed < bytes.len() / 4 * 3 || self.eager) {
            let body = Body::Packed {
                wire: *wire,
                typed: *typed,
                length: bytes.len() as u32,
                bytes: self.scratch[..].into(),
                dictionary: Arc::clone(&encoder.dictionary),
            };
            entry.set_body(body);
        }
    }

    /// Takes a dictionary of this batch's templates into use, or one of all that were seen, if it pays.
    fn choose_for(&mut self, batch: &[Arc<Entry>], raw: usize) {
        let tried = tried(batch.iter().step_by((batch.len() / TRIED).max(1)));
        let plain = average(tried.iter().map(Vec::len));
        let mut now = self.try_current(&tried).unwrap_or(plain);
        let mut counts: HashMap<u64, (usize, &Arc<Entry>)> = HashMap::new();
        for entry in batch {
            counts.entry(entry.template()).or_insert((0, entry)).0 += 1;
        }
        let new = counts.keys().any(|template| !self.known.contains(template));
        if new && let Some(examples) = local_examples(&counts, if self.eager { raw } else { raw / SHARE }) {
            now = self.try_examples(&tried, now, plain, batch.len(), &examples);
        }
        if self.listed_bytes >= self.review_list_at {
            self.review_list_at = self.listed_bytes * 2;
            // With the first batch the two are the same.
            if self.listed > batch.len() {
                let examples = self.examples(self.listed_bytes / SHARE);
                now = self.try_examples(&tried, now, plain, self.listed, &examples);
            }
        }
        let gain = plain.saturating_sub(now);
        if (gain < plain / 2 || gain < MIN_OBJECT_BYTES) && !self.eager {
            self.encoder = None;
            self.known.clear();
            self.pause = self.next_pause;
            self.next_pause = (self.next_pause * 2).min(64);
        } else {
            self.next_pause = 1;
        }
    }

    /// Looks whether another dictionary would do better for objects that come by themselves.
    fn review(&mut self) {
        let recent: Vec<Arc<Entry>> = self.recent.iter().filter_map(Weak::upgrade).collect();
        let tried = tried(recent.iter());
        let plain = average(tried.iter().map(Vec::len));
        let now = self.try_current(&tried).unwrap_or(plain);
        let objects: usize = self.templates.values().map(|template| template.count).sum();
        let share = if self.eager { 1 } else { SHARE };
        let budget = (self.listed_bytes + self.changed_bytes as usize) / share;
        let examples = self.examples(budget);
        let after = self.try_examples(&tried, now, plain, objects, &examples);
        let better = after < now;
        self.review_every =
            if better { FIRST_REVIEW_BYTES * 16 } else { (self.review_every * 2).min(MAX_REVIEW_BYTES) };
        self.review_at = self.changed_bytes + self.review_every;
    }

    /// Takes a dictionary of these examples into use if, over so many objects, it saves more than it takes. Gives what an
    /// object takes then.
    fn try_examples(
        &mut self,
        tried: &[Vec<u8>],
        now: usize,
        plain: usize,
        objects: usize,
        examples: &[(u64, Vec<u8>)],
    ) -> usize {
        let content: usize = examples.iter().map(|(_, example)| example.len()).sum();
        if content == 0 || tried.is_empty() {
            return now;
        }
        let bytes = || examples.iter().map(|(_, example)| &example[..]);
        if self.trained.is_none() && !self.eager {
            // Training takes long: only if it is plain without it that there is something to gain.
            let untrained = Encoder::new(&[], bytes());
            if self.try_encoder(&untrained, tried) > plain / 4 * 3 {
                return now;
            }
            let all: Vec<Vec<u8>> =
                examples.iter().map(|(_, example)| example.clone()).chain(tried.iter().cloned()).collect();
            self.trained = train(&all);
        }
        let trained = self.trained.as_deref().unwrap_or_default();
        let candidate = Encoder::new(trained, bytes());
        let then = self.try_encoder(&candidate, tried);
        let saved = now.saturating_sub(then) * objects;
        if saved <= Dictionary::size_of(content) && !self.eager {
            return now;
        }
        self.live.retain(|dictionary| dictionary.strong_count() > 0);
        self.live.push(Arc::downgrade(&candidate.dictionary));
        self.encoder = Some(candidate);
        self.known = examples.iter().map(|(template, _)| *template).collect();
        then
    }

    fn try_current(&mut self, tried: &[Vec<u8>]) -> Option<usize> {
        let encoder = self.encoder.take()?;
        let size = self.try_encoder(&encoder, tried);
        self.encoder = Some(encoder);
        Some(size)
    }

    /// What an object takes on average, packed with this.
    fn try_encoder(&mut self, encoder: &Encoder, tried: &[Vec<u8>]) -> usize {
        average(
            tried.iter().map(|bytes| {
                encoder.pack(&mut self.context, bytes, &mut self.scratch).unwrap_or(bytes.len())
            }),
        )
    }

    /// One object of each template that was ever seen, of the most frequent ones.
    fn examples(&self, budget: usize) -> Vec<(u64, Vec<u8>)> {
        let mut templates: Vec<_> = self.templates.iter().collect();
        templates.sort_unstable_by_key(|(template, seen)| (std::cmp::Reverse(seen.count), **template));
        let examples =
            templates.into_iter().filter_map(|(template, seen)| Some((*template, seen.example.upgrade()?)));
        within(examples, budget)
    }

    fn remember(&mut self, entry: &Arc<Entry>) {
        let template = entry.template();
        if self.templates.len() >= MAX_TEMPLATES && !self.templates.contains_key(&template) {
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

/// The bytes of some objects, to try dictionaries on.
fn tried<'a>(entries: impl Iterator<Item = &'a Arc<Entry>>) -> Vec<Vec<u8>> {
    let bytes = entries.filter_map(|entry| entry.bytes()).map(|(_, mut bytes)| {
        bytes.truncate(TRIED_BYTES);
        bytes
    });
    bytes.take(TRIED).collect()
}

/// One object of each template in a batch, of the most frequent ones; `None` if there is no room for any.
fn local_examples(counts: &HashMap<u64, (usize, &Arc<Entry>)>, budget: usize) -> Option<Vec<(u64, Vec<u8>)>> {
    let mut templates: Vec<_> = counts.iter().collect();
    templates.sort_unstable_by_key(|(template, (count, _))| (std::cmp::Reverse(*count), **template));
    let examples = templates.into_iter().map(|(template, (_, entry))| (*template, Arc::clone(entry)));
    Some(within(examples, budget)).filter(|examples| !examples.is_empty())
}

/// The bytes of as many examples as there is room for, the first ones last: what is near is found at less cost.
fn within(examples: impl Iterator<Item = (u64, Arc<Entry>)>, budget: usize) -> Vec<(u64, Vec<u8>)> {
    let mut left = budget.min(MAX_DICTIONARY_BYTES);
    let mut taken = Vec::new();
    for (template, entry) in examples {
        let Some((_, bytes)) = entry.bytes() else { continue };
        if bytes.len() <= left {
            left -= bytes.len();
            taken.push((template, bytes));
        } else if left < MIN_OBJECT_BYTES {
            break;
        }
    }
    taken.reverse();
    taken
}

fn average(sizes: impl ExactSizeIterator<Item = usize>) -> usize {
    let count = sizes.len().max(1);
    sizes.sum::<usize>() / count
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Kind, Object};
    use super::*;

    /// An object of a template: most of it is the template's, a part is its own.
    fn entry(random: &mut fastrand::Rng, template: u64, number: usize) -> Arc<Entry> {
        let mut words = fastrand::Rng::with_seed(template);
        let text: Vec<String> = (0..300).map(|_| format!("{:x}", words.u32(..))).collect();
        let own: String = (0..64).map(|_| random.alphanumeric()).collect();
        make(&json!({
            "metadata": {"name": format!("pod-{template}-{number}"), "namespace": "default", "resourceVersion": "1", "uid": own,
                "ownerReferences": [{"uid": format!("owner-{template}"), "controller": true}]},
            "spec": {"text": text}, "status": {"id": own},
        }))
    }

    fn make(value: &Value) -> Arc<Entry> {
        let kind = Arc::new(Kind::new("v1", "Pod", "pods", true));
        Arc::new(Entry::from_json(&kind, value.to_string().as_bytes()).unwrap())
    }

    fn is_packed(entry: &Arc<Entry>) -> bool {
        matches!(entry.body(), Body::Packed { .. })
    }

    #[test]
    fn siblings_become_small_and_stay_what_they_were() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut batch: Vec<_> =
            (0..1000).map(|number| entry(&mut random, number as u64 / 100, number)).collect();
        let before: Vec<_> = batch.iter().map(|entry| (entry.size(), entry.bytes())).collect();
        let mut packer = Packer::new(false);
        packer.pack_batch(&mut batch);
        for (entry, (size, bytes)) in batch.iter().zip(before) {
            assert!(is_packed(entry) && entry.size() < size / 4, "{} of {size}", entry.size());
            assert_eq!(entry.bytes(), bytes);
            assert_eq!(Object::<Value>::new(Arc::clone(entry)).get().unwrap()["kind"], "Pod");
        }
        let (dictionaries, bytes) = packer.dictionaries();
        assert!(dictionaries == 1 && bytes < 100 << 10, "{dictionaries} dictionaries of {bytes} bytes");
    }

    #[test]
    fn one_change_is_packed_with_what_the_list_taught() {
        let mut random = fastrand::Rng::with_seed(2);
        let mut packer = Packer::new(false);
        let mut batch: Vec<_> = (0..200).map(|number| entry(&mut random, 7, number)).collect();
        packer.pack_batch(&mut batch);
        let mut change = entry(&mut random, 7, 1000);
        let bytes = change.bytes();
        packer.pack_one(&mut change);
        assert!(is_packed(&change));
        assert_eq!(change.bytes(), bytes);
    }

    #[test]
    fn a_kind_that_grows_by_single_changes_is_packed_in_time() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut packer = Packer::new(false);
        let mut kept = Vec::new();
        for number in 0..1000 {
            let mut change = entry(&mut random, 7, number);
            packer.pack_one(&mut change);
            kept.push(change);
        }
        assert!(!is_packed(&kept[0]) && is_packed(&kept[999]));
    }

    #[test]
    fn objects_of_new_templates_get_a_dictionary_when_they_have_become_many() {
        let mut random = fastrand::Rng::with_seed(4);
        let mut packer = Packer::new(false);
        let mut list: Vec<_> = (0..300).map(|number| entry(&mut random, 7, number)).collect();
        packer.pack_batch(&mut list);
        let mut kept = Vec::new();
        for number in 0..2000 {
            let mut change = entry(&mut random, 8, number);
            packer.pack_one(&mut change);
            kept.push(change);
        }
        let (first, last) = (kept[0].size(), kept[1999].size());
        assert!(last < first / 2, "{first} bytes at first, {last} in the end");
        assert_eq!(packer.dictionaries().0, 2);
        drop((list, kept));
        assert!(packer.dictionaries().0 <= 1, "what nobody is packed with is gone, but for the one in use");
    }

    #[test]
    fn what_is_small_or_cannot_be_compressed_stays_as_it_is() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut text = |length: usize| -> String { (0..length).map(|_| random.alphanumeric()).collect() };
        let mut few: Vec<_> =
            (0..10).map(|_| make(&json!({"metadata": {"name": "a", "resourceVersion": "1"}}))).collect();
        let mut noise: Vec<_> = (0..1000)
            .map(|number| {
                make(&json!({"metadata": {"name": format!("{number}"), "resourceVersion": "1"}, "data": {"noise": text(2000)}}))
            })
            .collect();
        let mut packer = Packer::new(false);
        packer.pack_batch(&mut few);
        packer.pack_batch(&mut noise);
        assert!(few.iter().chain(&noise).all(|entry| !is_packed(entry)));
        assert_eq!(packer.dictionaries(), (0, 0));
        assert!(packer.pause > 0, "the next batches are not even tried");
    }

    #[test]
    fn what_somebody_holds_is_left_alone() {
        let mut random = fastrand::Rng::with_seed(6);
        let mut batch: Vec<_> = (0..200).map(|number| entry(&mut random, 7, number)).collect();
        let held = Arc::clone(&batch[0]);
        Packer::new(false).pack_batch(&mut batch);
        assert!(Arc::ptr_eq(&held, &batch[0]) && !is_packed(&held));
    }
}
