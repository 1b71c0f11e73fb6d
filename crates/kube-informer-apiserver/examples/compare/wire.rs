//! What an answer says, whichever wire it came over; and bodies for the protobuf one, written as JSON.

use kube_wire::protobuf::{
    Envelope, FrameSplitter, Kind, MEDIA_TYPE, WATCH_MEDIA_TYPE, WatchEvent, from_json, from_slice,
};
use serde_json::{Value, json};

/// The body of an answer: watches are lists of events; what cannot be read is a string.
pub(crate) fn read(content_type: &str, body: &[u8]) -> Value {
    let events = match content_type {
        MEDIA_TYPE => return envelope(body).unwrap_or_else(|| format!("{body:?}").into()),
        WATCH_MEDIA_TYPE => frames(body),
        _ => lines(body),
    };
    let Some(events) = events.filter(|events| events.iter().all(|event| event.get("object").is_some()))
    else {
        let text = String::from_utf8_lossy(body);
        return serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text));
    };
    // When the bookmarks come that only move the version is a matter of time.
    events.into_iter().filter(|event| event["type"] != "BOOKMARK" || ends_state(event)).collect()
}

/// A body in protobuf, from JSON that says what it is; what does not is sent as it stands.
pub(crate) fn write(content_type: Option<&str>, body: &str) -> Vec<u8> {
    let written = || {
        let object: Value = serde_json::from_str(body).ok()?;
        let kind = Kind::find(object["apiVersion"].as_str()?, object["kind"].as_str()?)?;
        let raw = from_json(kind, body.as_bytes()).ok()?;
        let mut out = Vec::new();
        Envelope { api_version: kind.api_version(), kind: kind.name(), raw: &raw }.write(&mut out);
        Some(out)
    };
    let protobuf = (content_type == Some(MEDIA_TYPE)).then(written).flatten();
    protobuf.unwrap_or_else(|| body.as_bytes().to_vec())
}

fn lines(body: &[u8]) -> Option<Vec<Value>> {
    let text = std::str::from_utf8(body).ok()?;
    text.lines().map(|line| serde_json::from_str(line).ok()).collect()
}

fn frames(body: &[u8]) -> Option<Vec<Value>> {
    let mut splitter = FrameSplitter::default();
    splitter.push(body);
    let mut events = Vec::new();
    while let Some(frame) = splitter.next_frame().ok()? {
        let event = WatchEvent::parse(&frame).ok()?;
        events.push(json!({ "type": event.kind.to_string(), "object": object(&event.object)? }));
    }
    Some(events)
}

fn envelope(body: &[u8]) -> Option<Value> {
    object(&Envelope::parse(body).ok()?)
}

fn object(envelope: &Envelope<'_>) -> Option<Value> {
    from_slice(Kind::find(envelope.api_version, envelope.kind)?, envelope.raw).ok()
}

fn ends_state(event: &Value) -> bool {
    event["object"]["metadata"].get("annotations").is_some()
}
