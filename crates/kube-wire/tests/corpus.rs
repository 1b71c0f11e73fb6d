//! Protobuf and JSON against what Go makes of the same objects: `testing/schema/generate` makes the corpus.

use base64::Engine as _;
use kube_wire::json::{EventType, ListMeta};
use kube_wire::protobuf::{
    Envelope, FrameSplitter, Kind, ListSplitter, WatchEvent, from_json, from_slice, write_event, write_list,
};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

const OBJECTS: &str = include_str!("corpus/objects.jsonl");
const FRAMES: &str = include_str!("corpus/frames.json");

/// One object in all its forms, as Go has them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    api_version: String,
    kind: String,
    /// What Go was given, if that is not what it writes.
    input: Option<String>,
    protobuf: String,
    /// What Go writes after reading the protobuf.
    #[serde(borrow)]
    json: &'a RawValue,
    /// What Go writes after reading that JSON, if it is something else.
    #[serde(rename = "fromJSON")]
    from_json: Option<String>,
}

fn entries() -> impl Iterator<Item = (Kind, Vec<u8>, Entry<'static>)> {
    OBJECTS.lines().map(|line| {
        let entry: Entry<'static> = serde_json::from_str(line).unwrap();
        let kind = Kind::find(&entry.api_version, &entry.kind).expect(&entry.kind);
        (kind, unbase64(&entry.protobuf), entry)
    })
}

fn unbase64(text: &str) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

#[test]
fn every_kind_is_in_the_corpus() {
    let mut seen: Vec<String> = entries().map(|(kind, ..)| kind.to_string()).collect();
    seen.sort();
    seen.dedup();
    let mut all: Vec<String> = Kind::all().map(|kind| kind.to_string()).collect();
    all.sort();
    assert_eq!(seen, all);
}

#[test]
fn json_becomes_the_bytes_that_go_writes() {
    for (kind, bytes, entry) in entries() {
        if let Some(input) = entry.input {
            check_from_json(kind, &input, &bytes);
        }
        let bytes = entry.from_json.map_or(bytes, |text| unbase64(&text));
        check_from_json(kind, entry.json.get(), &bytes);
    }
}

fn check_from_json(kind: Kind, json: &str, expected: &[u8]) {
    let bytes = from_json(kind, json.as_bytes()).unwrap_or_else(|error| panic!("{kind}: {error}\n{json}"));
    if bytes != expected {
        // Where the two differ is easier to see in JSON, if it can be seen there.
        let [go, ours] = [expected, &bytes].map(|bytes| from_slice::<Value>(kind, bytes).unwrap());
        assert_eq!(ours, go, "{kind}: {json}");
        panic!("{kind}: {json}\n  go   {expected:?}\n  ours {bytes:?}");
    }
}

#[test]
fn protobuf_reads_as_the_json_that_go_writes() {
    for (kind, bytes, entry) in entries() {
        let expected: Value = serde_json::from_str(entry.json.get()).unwrap();
        let found: Value = from_slice(kind, &bytes).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(found, expected, "{kind}\n  go   {expected}\n  ours {found}");
    }
}

#[derive(Deserialize)]
struct Frames {
    list: String,
    event: String,
}

#[test]
fn lists_and_events_have_the_bytes_that_go_writes() {
    let frames: Frames = serde_json::from_str(FRAMES).unwrap();
    let (list, event) = (unbase64(&frames.list), unbase64(&frames.event));
    let pod = Kind::find("v1", "Pod").unwrap();
    let items: Vec<Vec<u8>> = ["a", "b"]
        .map(|name| from_json(pod, format!(r#"{{"metadata":{{"name":"{name}"}}}}"#).as_bytes()).unwrap())
        .to_vec();
    let meta = ListMeta {
        api_version: Some("v1".into()),
        kind: Some("PodList".into()),
        resource_version: Some("42".to_owned().into()),
        continue_token: Some("more".into()),
        remaining_item_count: Some(300),
    };
    let mut written = Vec::new();
    write_list(&mut written, &meta, &items);
    assert_eq!(written, list);
    let mut splitter = ListSplitter::default();
    splitter.push(&list);
    for item in &items {
        assert_eq!(splitter.next_item().unwrap().unwrap(), item);
    }
    assert_eq!(splitter.next_item().unwrap(), None);
    assert_eq!(splitter.finish().unwrap(), meta);

    let object = Envelope { api_version: "v1", kind: "Pod", raw: &items[0] };
    let mut written = Vec::new();
    write_event(&mut written, &EventType::Added, &object);
    assert_eq!(written, event);
    let mut splitter = FrameSplitter::default();
    splitter.push(&event);
    let frame = splitter.next_frame().unwrap().unwrap();
    assert_eq!(WatchEvent::parse(&frame).unwrap(), WatchEvent { kind: EventType::Added, object });
}
