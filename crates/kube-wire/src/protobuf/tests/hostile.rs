//! Bytes that nobody sane would send: an answer or an error, never a panic, never more memory than they are worth.

use fastrand::Rng;
use serde_json::Value;

use super::super::wire::{put_bytes, put_message};
use super::super::{
    Envelope, FrameSplitter, Kind, ListSplitter, WatchEvent, cut, from_json, from_slice, from_value,
    write_event, write_list,
};
use super::generate::{any_object, any_path};
use crate::json::{EventType, ListMeta};
use crate::{FieldPath, Metadata, WireError};

/// The same bytes with something wrong in them.
fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..4) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.usize(..bytes.len());
        match rng.u8(..6) {
            0 => bytes[at] = rng.u8(..),
            1 => bytes[at] ^= 1 << rng.u8(..8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, rng.u8(..)),
            4 => drop(bytes.splice(at..at, [0xff; 9].into_iter().chain([rng.u8(..2)]))),
            _ => {
                let end = rng.usize(at..bytes.len()).min(at + 40);
                let copy = bytes[at..end].to_vec();
                let to = rng.usize(..bytes.len());
                drop(bytes.splice(to..to, copy));
            }
        }
    }
}

#[test]
fn damaged_objects_give_an_answer_or_an_error() {
    let kinds = [
        ("v1", "Pod"),
        ("v1", "Node"),
        ("v1", "Secret"),
        ("v1", "List"),
        ("apps/v1", "StatefulSet"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("authorization.k8s.io/v1", "SubjectAccessReview"),
        ("coordination.k8s.io/v1", "Lease"),
    ];
    let (mut fine, mut wrong) = (0, 0);
    for seed in 0..4000_u64 {
        let mut rng = Rng::with_seed(seed);
        let (api_version, name) = rng.choice(kinds).unwrap();
        let kind = Kind::find(api_version, name).unwrap();
        let object = any_object(&mut rng, kind);
        let mut bytes = from_value(kind, &object).unwrap();
        damage(&mut rng, &mut bytes);
        match from_slice::<Value>(kind, &bytes) {
            Ok(_) => fine += 1,
            Err(_) => wrong += 1,
        }
        let _ = from_slice::<k8s_openapi::api::core::v1::Pod>(kind, &bytes);
        let _ = Metadata::from_protobuf(kind, &bytes);
        let path = any_path(&mut rng, &object);
        let _ = path.texts_in_protobuf(kind, &bytes);
        if let Ok(Some(rest)) = cut(kind, &bytes, &[path, ".metadata.managedFields".parse().unwrap()]) {
            assert!(rest.len() < bytes.len(), "seed {seed}");
        }
    }
    assert!(fine > 200 && wrong > 200, "{fine} fine, {wrong} wrong: the damage is not what it should be");
}

#[test]
fn damaged_json_gives_an_answer_or_an_error() {
    let kind = Kind::find("v1", "Pod").unwrap();
    for seed in 0..2000 {
        let mut rng = Rng::with_seed(seed);
        let mut json = any_object(&mut rng, kind).to_string().into_bytes();
        damage(&mut rng, &mut json);
        if let Ok(bytes) = from_json(kind, &json) {
            let _: Value = from_slice(kind, &bytes).unwrap_or_else(|error| panic!("{error}, seed {seed}"));
        }
    }
}

#[test]
fn damaged_streams_give_items_or_an_error_and_keep_no_more_than_they_got() {
    for seed in 0..3000 {
        let mut rng = Rng::with_seed(seed);
        let items: Vec<Vec<u8>> = (0..rng.usize(..5)).map(|_| vec![rng.u8(..); rng.usize(..300)]).collect();
        let meta = ListMeta { kind: Some("PodList".into()), ..ListMeta::default() };
        let (mut list, mut stream) = (Vec::new(), Vec::new());
        write_list(&mut list, &meta, &items);
        for item in &items {
            let object = Envelope { api_version: "v1", kind: "Pod", raw: item };
            write_event(&mut stream, &EventType::Modified, &object);
        }
        damage(&mut rng, &mut list);
        damage(&mut rng, &mut stream);
        let size = rng.usize(1..100);

        let mut splitter = ListSplitter::with_limit(1000);
        let outcome = list.chunks(size).try_for_each(|chunk| {
            splitter.push(chunk);
            while splitter.next_item()?.is_some() {}
            assert!(splitter.buffered() < 1000 + size + 30, "seed {seed}");
            Ok::<_, WireError>(())
        });
        let _ = outcome.and_then(|()| splitter.finish());

        let mut splitter = FrameSplitter::with_limit(1000);
        let outcome = stream.chunks(size).try_for_each(|chunk| {
            splitter.push(chunk);
            while let Some(frame) = splitter.next_frame()? {
                let _ = WatchEvent::parse(&frame);
            }
            assert!(splitter.buffered() < 1000 + size + 30, "seed {seed}");
            Ok::<_, WireError>(())
        });
        let _ = outcome.and_then(|()| splitter.finish());
    }
}

#[test]
fn nesting_without_end_is_an_error() {
    let kind = Kind::find("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
    // Each schema holds another in `not`, field 31 (counted from inside to outside).
    let not = schema_field("not");
    let mut schema = Vec::new();
    for _ in 0..20_000 {
        let inner = std::mem::take(&mut schema);
        // Only the head is new, but a copy of the rest each time would be slow: build from small to large up to a bound.
        put_bytes(&mut schema, not, &inner);
        if schema.len() > 50_000 {
            break;
        }
    }
    let path = |numbers: &[u32]| {
        numbers.iter().rev().fold(schema.clone(), |inner, number| {
            let mut out = Vec::new();
            put_bytes(&mut out, *number, &inner);
            out
        })
    };
    // spec.versions[].schema.openAPIV3Schema
    let object = path(&[2, 7, 4, 1]);
    let error = from_slice::<Value>(kind, &object).unwrap_err();
    assert!(error.to_string().contains("levels deep"), "{error}");
    let deep: FieldPath =
        format!(".spec.versions[0].schema.openAPIV3Schema{}", ".not".repeat(300)).parse().unwrap();
    assert!(deep.texts_in_protobuf(kind, &object).is_err());
    assert!(cut(kind, &object, &[deep]).unwrap().is_some());

    let json = format!(
        r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{}{}}}}}]}}}}"#,
        r#"{"not":"#.repeat(10_000),
        "{}".to_owned() + &"}".repeat(10_000)
    );
    assert!(from_json(kind, json.as_bytes()).is_err());
}

fn schema_field(key: &str) -> u32 {
    let text = include_str!("../schema.txt");
    let schema = text.split("= ").find(|text| text.starts_with("apiextensions/v1.JSONSchemaProps ")).unwrap();
    let line = schema.lines().find(|line| line.split(' ').nth(1) == Some(key)).unwrap();
    line.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn lists_in_lists_without_end_are_an_error() {
    let kind = Kind::find("v1", "List").unwrap();
    let mut list = Vec::new();
    for _ in 0..300 {
        let mut enveloped = Vec::new();
        Envelope { api_version: "v1", kind: "List", raw: &list }.write(&mut enveloped);
        let mut outer = Vec::new();
        put_message(&mut outer, 2, |out| {
            put_bytes(out, 1, &enveloped);
            Ok::<_, WireError>(())
        })
        .unwrap();
        list = outer;
    }
    let error = from_slice::<Value>(kind, &list).unwrap_err();
    assert!(error.to_string().contains("levels deep"), "{error}");
}

#[test]
fn a_list_of_any_kind_is_read_with_the_kinds_of_its_items() {
    let pod = Kind::find("v1", "Pod").unwrap();
    let bytes = from_json(pod, br#"{"metadata":{"name":"a"}}"#).unwrap();
    let mut enveloped = Vec::new();
    Envelope { api_version: "v1", kind: "Pod", raw: &bytes }.write(&mut enveloped);
    let mut list = Vec::new();
    put_message(&mut list, 2, |out| {
        put_bytes(out, 1, &enveloped);
        Ok::<_, WireError>(())
    })
    .unwrap();
    let found: Value = from_slice(Kind::find("v1", "List").unwrap(), &list).unwrap();
    assert_eq!(found["items"][0]["kind"], "Pod");
    assert_eq!(found["items"][0]["metadata"]["name"], "a");
}
