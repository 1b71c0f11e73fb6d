//! An object as it is stored: encoded, with what selectors need beside it.
//!
//! It is kept as the line that tells a watcher of it. The object is a slice of that line, its metadata and its resource
//! version stand at known places, so that gets, lists, watches, metadata-only forms and the other versions of a custom
//! kind are all cut from one encoding. The same goes for protobuf, made when it is first asked for.

use std::io::Write as _;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use kube_wire::{WireError, protobuf as wire};
use serde_json::{Map, Value};

use super::form::{EventType, Form};
use super::{Object, meta, opening, uid_of};
use crate::fields;
use crate::kinds::Kind;
use crate::protobuf::{self, Frame};

const CLOSING: &[u8] = b"}\n";
const METADATA_OPENING: &[u8] = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#;

/// An object as it is stored: immutable, encoded once.
pub(crate) struct Stored {
    /// `namespace/name`, or `name`.
    pub(crate) key: Arc<str>,
    pub(crate) revision: u64,
    pub(crate) uid: u128,
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    /// The values of the kind's selectable fields, in the order of [`fields::known`].
    pub(crate) fields: Box<[Box<str>]>,
    /// The uids of the owners.
    pub(crate) owners: Box<[u128]>,
    pub(crate) deleting: bool,
    event: EventType,
    line: Bytes,
    /// Offsets into the object: behind kind and apiVersion, of the version's digits, behind the metadata.
    header: u32,
    version: u32,
    metadata_end: u32,
    /// The kind of the protobuf form; of custom kinds only the metadata has one.
    wire: Option<wire::Kind>,
    /// The protobuf form, made for the first reader who wants it and shared by all.
    frame: OnceLock<Frame>,
}

/// Which object it is, not what it holds: it can be a secret. Everything that stores objects prints them through this.
impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.key, self.revision)
    }
}

impl Stored {
    /// Encodes an object. `object` must have a `metadata` map; its resource version is set to `revision`.
    pub(crate) fn encode(
        kind: &Kind,
        event: EventType,
        key: Arc<str>,
        revision: u64,
        object: &Object,
    ) -> Self {
        let mut line = Vec::with_capacity(1024);
        line.extend_from_slice(event.opening());
        let start = line.len();
        line.extend_from_slice(&opening(&kind.kind, &kind.api_version(&kind.version)));
        let header = line.len() - start;
        let empty = Map::new();
        let metadata = meta(object).unwrap_or(&empty);
        line.extend_from_slice(b"\"metadata\":{");
        let version = write_metadata(&mut line, metadata, revision) - start;
        let metadata_end = line.len() - start;
        for (name, value) in object {
            if !matches!(name.as_str(), "kind" | "apiVersion" | "metadata") {
                line.push(b',');
                write_json(&mut line, name);
                line.push(b':');
                write_json(&mut line, value);
            }
        }
        line.push(b'}');
        line.extend_from_slice(CLOSING);
        line.shrink_to_fit();
        Self {
            key,
            revision,
            uid: uid_of(metadata.get("uid")).unwrap_or(0),
            labels: strings(metadata.get("labels")),
            fields: fields::extract(kind, object),
            owners: owners(metadata),
            deleting: metadata.contains_key("deletionTimestamp"),
            event,
            line: line.into(),
            header: header as u32,
            version: version as u32,
            metadata_end: metadata_end as u32,
            wire: kind.wire,
            frame: OnceLock::new(),
        }
    }

    /// The same object at another revision, told by another event.
    pub(crate) fn at_revision(&self, event: EventType, revision: u64) -> Self {
        let json = self.json_slice();
        let version = self.version as usize;
        let digits = decimal_len(self.revision);
        let mut line = Vec::with_capacity(self.line.len() + 8);
        line.extend_from_slice(event.opening());
        line.extend_from_slice(&json[..version]);
        write!(line, "{revision}").expect("writing to memory");
        line.extend_from_slice(&json[version + digits..]);
        line.extend_from_slice(CLOSING);
        Self {
            key: self.key.clone(),
            revision,
            uid: self.uid,
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            owners: self.owners.clone(),
            deleting: self.deleting,
            event,
            line: line.into(),
            header: self.header,
            version: self.version,
            metadata_end: (self.metadata_end as usize - digits + decimal_len(revision)) as u32,
            wire: self.wire,
            frame: OnceLock::new(),
        }
    }

    /// The same object at the same revision, for a kind whose definition has changed.
    pub(crate) fn reencode(&self, kind: &Kind) -> Self {
        Self::encode(kind, self.event, self.key.clone(), self.revision, &self.parse())
    }

    /// The object's own bytes.
    pub(crate) fn json(&self) -> Bytes {
        self.line.slice(self.event.opening().len()..self.line.len() - CLOSING.len())
    }

    /// The object, parsed.
    pub(crate) fn parse(&self) -> Object {
        serde_json::from_slice(self.json_slice()).expect("what the server encoded is JSON")
    }

    /// The object in a form, without copying where it can be helped.
    pub(crate) fn object(&self, form: &Form) -> Bytes {
        match form {
            Form::Whole => self.json(),
            Form::Protobuf => self.frame().envelope(),
            Form::ProtobufMetadata => protobuf::envelope(protobuf::metadata_kind(), self.bare(form)),
            Form::Reversioned(_) | Form::Metadata => {
                let mut out = Vec::with_capacity(self.line.len() + 64);
                self.write(form, true, &mut out);
                out.into()
            }
        }
    }

    /// The object's protobuf message alone, in one of the protobuf forms.
    pub(crate) fn bare(&self, form: &Form) -> &[u8] {
        if form.is_metadata() { self.frame().metadata() } else { self.frame().bare() }
    }

    /// Why the object has no protobuf form: what the real server says about it when it reads it as JSON.
    pub(crate) fn check_types(&self) -> Result<(), WireError> {
        self.convert().map(drop)
    }

    /// Appends the object as JSON; `typed` says whether kind and apiVersion are shown, as they are not in lists of built-in kinds.
    pub(crate) fn write(&self, form: &Form, typed: bool, out: &mut Vec<u8>) {
        let json = self.json_slice();
        let (header, metadata_end) = (self.header as usize, self.metadata_end as usize);
        match form {
            Form::Metadata => {
                out.extend_from_slice(METADATA_OPENING);
                out.extend_from_slice(&json[header..metadata_end]);
                out.push(b'}');
            }
            _ if !typed => {
                out.push(b'{');
                out.extend_from_slice(&json[header..]);
            }
            Form::Reversioned(opening) => {
                out.extend_from_slice(opening);
                out.extend_from_slice(&json[header..]);
            }
            _ => out.extend_from_slice(json),
        }
    }

    /// The line or frame that tells a watcher of this object; shared by all watchers if it is the event that stored it.
    pub(crate) fn line(&self, event: EventType, form: &Form) -> Bytes {
        match form {
            Form::Whole if event == self.event => self.line.clone(),
            Form::Protobuf if event == self.event => self.frame().bytes(),
            Form::Protobuf => protobuf::frame(self.wire_kind(), &event.on_the_wire(), self.bare(form)),
            Form::ProtobufMetadata => {
                protobuf::frame(protobuf::metadata_kind(), &event.on_the_wire(), self.bare(form))
            }
            Form::Whole | Form::Reversioned(_) | Form::Metadata => {
                let mut out = Vec::with_capacity(self.line.len() + 64);
                out.extend_from_slice(event.opening());
                self.write(form, true, &mut out);
                out.extend_from_slice(CLOSING);
                out.into()
            }
        }
    }

    /// Whether another object has the same content, whatever its version.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        let cut = |stored: &Self| {
            let version = stored.version as usize;
            (version, version + decimal_len(stored.revision))
        };
        let ((a, a_end), (b, b_end)) = (cut(self), cut(other));
        let (left, right) = (self.json_slice(), other.json_slice());
        left[..a] == right[..b] && left[a_end..] == right[b_end..]
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(k, _)| &**k == key).map(|(_, value)| &**value)
    }

    pub(crate) fn name(&self) -> &str {
        self.key.rsplit_once('/').map_or(&*self.key, |(_, name)| name)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.key.rsplit_once('/').map_or("", |(namespace, _)| namespace)
    }

    fn frame(&self) -> &Frame {
        self.frame.get_or_init(|| {
            let bare = self.convert().unwrap_or_else(|error| {
                // What clients write is checked, so only the server itself can have made it.
                tracing::error!(kind = %self.wire_kind(), key = %self.key, %error, "an object has no protobuf form");
                Vec::new()
            });
            Frame::new(self.wire_kind(), &self.event.on_the_wire(), &bare)
        })
    }

    /// The object as a bare protobuf message: all of it, or the metadata of a custom kind.
    fn convert(&self) -> Result<Vec<u8>, WireError> {
        match self.wire {
            Some(kind) => wire::from_json(kind, self.json_slice()),
            None => wire::from_json(protobuf::metadata_kind(), &self.object(&Form::Metadata)),
        }
    }

    /// The kind that the protobuf form is of.
    pub(crate) fn wire_kind(&self) -> wire::Kind {
        self.wire.unwrap_or_else(protobuf::metadata_kind)
    }

    fn json_slice(&self) -> &[u8] {
        &self.line[self.event.opening().len()..self.line.len() - CLOSING.len()]
    }
}

fn owners(metadata: &Object) -> Box<[u128]> {
    let references = metadata.get("ownerReferences").and_then(|list| list.as_array());
    // An owner whose uid is none of ours cannot exist; 0 is the uid of nothing.
    references.into_iter().flatten().map(|owner| uid_of(owner.get("uid")).unwrap_or(0)).collect()
}

fn strings(value: Option<&Value>) -> Box<[(Box<str>, Box<str>)]> {
    let map = value.and_then(|value| value.as_object());
    map.into_iter().flatten().map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or("").into())).collect()
}

/// Writes the members of metadata in the order people know, and the closing brace; returns where the version's digits are.
fn write_metadata(line: &mut Vec<u8>, metadata: &Object, revision: u64) -> usize {
    const FIRST: [&str; 4] = ["name", "generateName", "namespace", "uid"];
    const LAST: [&str; 1] = ["managedFields"];
    let member = |line: &mut Vec<u8>, name: &str, value: &Value| {
        write_json(line, name);
        line.push(b':');
        write_json(line, value);
        line.push(b',');
    };
    for name in FIRST {
        if let Some(value) = metadata.get(name) {
            member(line, name, value);
        }
    }
    line.extend_from_slice(b"\"resourceVersion\":\"");
    let version = line.len();
    write!(line, "{revision}").expect("writing to memory");
    line.extend_from_slice(b"\",");
    for (name, value) in metadata {
        if !FIRST.contains(&name.as_str()) && !LAST.contains(&name.as_str()) && name != "resourceVersion" {
            member(line, name, value);
        }
    }
    for name in LAST {
        if let Some(value) = metadata.get(name) {
            member(line, name, value);
        }
    }
    line.pop();
    line.push(b'}');
    version
}

fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("JSON values can be written to memory");
}

fn decimal_len(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use serde_json::json;

    fn pod(revision: u64) -> Stored {
        let object = json!({
            "metadata": { "name": "a", "namespace": "n", "labels": { "x": "y" }, "uid": "u" },
            "spec": { "nodeName": "node" },
        });
        let Value::Object(object) = object else { unreachable!() };
        Stored::encode(kinds::core("pods"), EventType::Added, "n/a".into(), revision, &object)
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn every_form_is_cut_from_one_encoding() {
        let stored = pod(99);
        let whole = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"99","labels":{"x":"y"}},"spec":{"nodeName":"node"}}"#;
        assert_eq!(text(&stored.object(&Form::Whole)), whole);
        assert_eq!(
            text(&stored.line(EventType::Added, &Form::Whole)),
            format!("{{\"type\":\"ADDED\",\"object\":{whole}}}\n")
        );
        let mut item = Vec::new();
        stored.write(&Form::Whole, false, &mut item);
        assert_eq!(text(&item), whole.replacen(r#""kind":"Pod","apiVersion":"v1","#, "", 1));
        assert_eq!(
            text(&stored.object(&Form::Metadata)),
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"99","labels":{"x":"y"}}}"#
        );
        let form = Form::Reversioned(opening("Pod", "x/v2"));
        assert!(text(&stored.object(&form)).starts_with(r#"{"kind":"Pod","apiVersion":"x/v2","metadata""#));
    }

    #[test]
    fn another_revision_changes_the_version_alone() {
        let old = pod(99);
        let new = old.at_revision(EventType::Deleted, 100);
        assert!(old.same_content(&new));
        let line = new.line(EventType::Deleted, &Form::Whole);
        assert!(text(&line).contains(r#""resourceVersion":"100""#), "{line:?}");
        assert_eq!(text(&new.object(&Form::Metadata)), text(&pod(100).object(&Form::Metadata)));
    }
}
