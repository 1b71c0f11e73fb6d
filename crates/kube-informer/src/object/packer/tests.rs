//! What is packed, what is not, and which dictionaries stay.

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

fn siblings(random: &mut fastrand::Rng, template: u64, count: usize) -> Vec<Arc<Entry>> {
    (0..count).map(|number| entry(random, template, number)).collect()
}

/// Lets an object come by itself.
fn change(packer: &mut Packer, mut object: Arc<Entry>, stored: usize) -> Arc<Entry> {
    if packer.pack_one(&mut object) {
        packer.review(stored);
    }
    object
}

fn is_packed(entry: &Arc<Entry>) -> bool {
    matches!(entry.body(), Body::Packed { .. })
}

#[test]
fn siblings_become_small_and_stay_what_they_were() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut batch: Vec<_> = (0..1000).map(|number| entry(&mut random, number as u64 / 100, number)).collect();
    let before: Vec<_> = batch.iter().map(|entry| (entry.size(), entry.bytes())).collect();
    let mut packer = Packer::new(false);
    packer.pack_batch(&mut batch);
    for (entry, (size, bytes)) in batch.iter().zip(before) {
        assert!(is_packed(entry) && entry.size() < size / 4, "{} of {size}", entry.size());
        assert_eq!(entry.bytes(), bytes);
        assert_eq!(Object::<Value>::new(Arc::clone(entry)).get().unwrap()["kind"], "Pod");
    }
    let (dictionaries, bytes) = packer.dictionaries();
    assert!(dictionaries == 1 && bytes < 600 << 10, "{dictionaries} dictionaries of {bytes} bytes");
}

#[test]
fn one_change_is_packed_with_what_the_list_taught() {
    let mut random = fastrand::Rng::with_seed(2);
    let mut packer = Packer::new(false);
    let mut batch = siblings(&mut random, 7, 400);
    packer.pack_batch(&mut batch);
    // Nothing, or the few at the end of a list, say nothing about the rest.
    packer.pack_batch(&mut []);
    packer.pack_batch(&mut [make(&json!({"metadata": {"name": "a", "resourceVersion": "1"}}))]);
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
        kept.push(change(&mut packer, entry(&mut random, 7, number), number));
    }
    assert!(!is_packed(&kept[0]) && is_packed(&kept[999]));
}

#[test]
fn objects_of_new_templates_get_a_dictionary_when_they_have_become_many() {
    let mut random = fastrand::Rng::with_seed(4);
    let mut packer = Packer::new(false);
    let mut list = siblings(&mut random, 7, 400);
    packer.pack_batch(&mut list);
    let mut kept = Vec::new();
    for number in 0..2000 {
        kept.push(change(&mut packer, entry(&mut random, 8, number), 400 + number));
    }
    let (first, last) = (kept[0].size(), kept[1999].size());
    assert!(last < first / 2, "{first} bytes at first, {last} in the end");
    assert_eq!(packer.dictionaries().0, 2);
    drop((list, kept));
    assert!(packer.dictionaries().0 <= 1, "what nobody is packed with is gone, but for the one in use");
}

#[test]
fn few_objects_that_change_often_are_not_worth_a_dictionary() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut packer = Packer::new(false);
    let mut stored = siblings(&mut random, 7, 10);
    for round in 0..3000 {
        let object = change(&mut packer, entry(&mut random, 7, round), 10);
        stored[round % 10] = object;
    }
    assert_eq!(packer.dictionaries(), (0, 0));
}

#[test]
fn changes_that_cannot_be_compressed_are_not_worth_a_dictionary() {
    let mut random = fastrand::Rng::with_seed(10);
    let mut packer = Packer::new(false);
    let mut kept = Vec::new();
    for number in 0..3000 {
        let noise: String = (0..2000).map(|_| random.alphanumeric()).collect();
        let object =
            make(&json!({"metadata": {"name": format!("{number}"), "resourceVersion": "1"}, "data": noise}));
        kept.push(change(&mut packer, object, number));
    }
    assert_eq!(packer.dictionaries(), (0, 0));
}

#[test]
fn templates_come_and_go_without_end() {
    let mut random = fastrand::Rng::with_seed(8);
    let mut packer = Packer::new(false);
    let mut last = None;
    for template in 0..3 * MAX_TEMPLATES as u64 {
        let labels = json!({"app": format!("{template}")});
        let object = make(&json!({"metadata": {"name": "a", "resourceVersion": "1", "labels": labels}}));
        last = Some(change(&mut packer, object, 1));
    }
    assert!(packer.templates.len() <= MAX_TEMPLATES);
    assert!(packer.templates.contains_key(&last.unwrap().template()), "the newest is remembered");
    let mut batch = siblings(&mut random, 7, 400);
    packer.pack_batch(&mut batch);
    assert!(is_packed(&batch[0]));
}

#[test]
fn a_list_of_what_the_store_has_teaches_nothing() {
    let mut random = fastrand::Rng::with_seed(9);
    let mut packer = Packer::new(false);
    let store = siblings(&mut random, 7, 400);
    for _ in 0..10 {
        packer.begin_list();
        packer.pack_batch(&mut store.clone());
    }
    assert_eq!((packer.dictionaries(), packer.templates.len()), ((0, 0), 0));
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
    let mut batch = siblings(&mut random, 7, 400);
    let held = Arc::clone(&batch[0]);
    Packer::new(false).pack_batch(&mut batch);
    assert!(Arc::ptr_eq(&held, &batch[0]) && !is_packed(&held));
}
