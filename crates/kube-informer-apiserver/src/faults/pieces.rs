//! An answer in the pieces that a fault can befall: the events of a watch, the items of a list.
//!
//! Other answers are pieces as they come from the server.

mod json;
mod protobuf;

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube_wire::json::{EventType, ListMeta};
use kube_wire::meta::Metadata;

use crate::negotiate::Coding;
use crate::{Body, BoxError};

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    pub(crate) part: Part,
    pub(crate) coding: Coding,
}

/// What a piece is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// An event of a watch, a line or a frame: nobody has looked into it yet.
    Unread,
    /// An event of a watch: its type, and whether it ends a streaming list.
    Event { kind: EventType, is_end: bool },
    /// All of a list before its first item, and where in it the list's metadata is.
    ListHead { metadata: Range<usize> },
    /// The same in protobuf: what it says of the list, and how long its items are.
    ProtobufHead { meta: ListMeta, lengths: Vec<usize> },
    /// An item of a list: with the comma before it if there is one, or with its tag and length.
    Item,
    /// Anything else.
    Opaque,
}

/// Where the pieces of one answer come from.
pub(crate) struct Source {
    kind: Kind,
    coding: Coding,
    inner: Body,
    buffer: BytesMut,
    /// The pieces of a list that is complete.
    pieces: VecDeque<Piece>,
}

/// What kind of answer it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A watch: event after event.
    Events,
    /// A list, which is collected first and then taken apart.
    List,
    /// An answer in one piece.
    Whole,
    /// An answer as it comes.
    Frames,
}

/// An event longer than this is passed on in parts, unread: the server takes no object of that size.
const MAX_EVENT: usize = 16 << 20;

impl Source {
    pub(crate) fn events(inner: Body, coding: Coding) -> Self {
        Self::new(Kind::Events, inner, coding)
    }

    pub(crate) fn list(inner: Body, coding: Coding) -> Self {
        Self::new(Kind::List, inner, coding)
    }

    pub(crate) fn whole(inner: Body) -> Self {
        Self::new(Kind::Whole, inner, Coding::Json)
    }

    pub(crate) fn frames(inner: Body) -> Self {
        Self::new(Kind::Frames, inner, Coding::Json)
    }

    /// How a watch writes its events; none if this is no watch.
    pub(crate) fn event_coding(&self) -> Option<Coding> {
        (self.kind == Kind::Events).then_some(self.coding)
    }

    /// The next piece; none at the end.
    ///
    /// *Cancel safety*: what was read so far is kept.
    pub(crate) async fn next(&mut self) -> Option<Result<Piece, BoxError>> {
        loop {
            if let Some(piece) = self.pieces.pop_front().or_else(|| self.event()) {
                return Some(Ok(piece));
            }
            match read(&mut self.inner).await {
                Some(Ok(bytes)) if self.kind == Kind::Frames => {
                    return Some(Ok(self.piece(bytes, Part::Opaque)));
                }
                Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                Some(Err(error)) => return Some(Err(error)),
                None if self.buffer.is_empty() => return None,
                None => {
                    let rest = self.buffer.split().freeze();
                    match (self.kind, self.coding) {
                        (Kind::List, Coding::Json) => self.pieces.extend(json::split_list(&rest)),
                        (Kind::List, Coding::Protobuf) => self.pieces.extend(protobuf::split_list(&rest)),
                        _ => return Some(Ok(self.piece(rest, Part::Opaque))),
                    }
                }
            }
        }
    }

    fn new(kind: Kind, inner: Body, coding: Coding) -> Self {
        Self { kind, coding, inner, buffer: BytesMut::new(), pieces: VecDeque::new() }
    }

    /// The first event of the buffer, if it is complete.
    fn event(&mut self) -> Option<Piece> {
        if self.kind != Kind::Events {
            return None;
        }
        let end = match self.coding {
            Coding::Json => json::event_end(&self.buffer),
            Coding::Protobuf => protobuf::event_end(&self.buffer),
        };
        let (bytes, part) = match end {
            Some(end) if end <= self.buffer.len() => (self.buffer.split_to(end), Part::Unread),
            _ if self.buffer.len() > MAX_EVENT => (self.buffer.split(), Part::Opaque),
            _ => return None,
        };
        Some(self.piece(bytes.freeze(), part))
    }

    fn piece(&self, bytes: Bytes, part: Part) -> Piece {
        Piece { bytes, part, coding: self.coding }
    }
}

impl Piece {
    /// Looks into an event, if it is one.
    pub(crate) fn classify(mut self) -> Self {
        if self.part == Part::Unread {
            let event = match self.coding {
                Coding::Json => json::read_event(&self.bytes),
                Coding::Protobuf => protobuf::read_event(&self.bytes),
            };
            self.part = event.unwrap_or(Part::Opaque);
        }
        self
    }
}

/// The data of the next frame that has any: the server sends no trailers, and nobody here would miss them.
async fn read(inner: &mut Body) -> Option<Result<Bytes, BoxError>> {
    loop {
        match inner.frame().await? {
            Err(error) => return Some(Err(error)),
            Ok(frame) => {
                if let Ok(bytes) = frame.into_data() {
                    return Some(Ok(bytes));
                }
            }
        }
    }
}

/// An event whose object has this metadata, if it can be read.
fn event<E>(kind: EventType, metadata: Result<Metadata<'_>, E>) -> Part {
    let is_end = kind == EventType::Bookmark
        && metadata.is_ok_and(|metadata| metadata.annotation("k8s.io/initial-events-end") == Some("true"));
    Part::Event { kind, is_end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    fn body(frames: &[&str]) -> Body {
        let frames: Vec<_> =
            frames.iter().map(|text| Ok(Frame::data(Bytes::from((*text).to_owned())))).collect();
        StreamBody::new(stream::iter(frames)).boxed_unsync()
    }

    async fn texts(mut source: Source) -> Vec<(String, Part)> {
        let mut texts = Vec::new();
        while let Some(piece) = source.next().await {
            let piece = piece.unwrap().classify();
            texts.push((String::from_utf8(piece.bytes.to_vec()).unwrap(), piece.part));
        }
        texts
    }

    #[tokio::test]
    async fn lines_are_found_however_they_are_framed() {
        let stream = "{\"type\":\"ADDED\",\"object\":{}}\n{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"annotations\":\
            {\"k8s.io/initial-events-end\":\"true\"}}}}\nhalf";
        let whole = texts(Source::events(body(&[stream]), Coding::Json)).await;
        let bytes: Vec<&str> = stream.split("").collect();
        assert_eq!(texts(Source::events(body(&bytes), Coding::Json)).await, whole);
        let parts: Vec<_> = whole.iter().map(|(_, part)| part.clone()).collect();
        assert_eq!(
            parts,
            [
                Part::Event { kind: EventType::Added, is_end: false },
                Part::Event { kind: EventType::Bookmark, is_end: true },
                Part::Opaque
            ]
        );
        assert_eq!(whole.iter().map(|(text, _)| text.as_str()).collect::<String>(), stream);
    }

    #[tokio::test]
    async fn a_list_comes_apart_and_together_again() {
        let list =
            r#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":1}, {"b":[2,3]},{}]}"#;
        let pieces = texts(Source::list(body(&[&list[..20], &list[20..]]), Coding::Json)).await;
        assert_eq!(pieces.iter().map(|(text, _)| text.as_str()).collect::<String>(), list);
        assert_eq!(pieces[2], (r#", {"b":[2,3]}"#.to_owned(), Part::Item));
        let Part::ListHead { metadata } = pieces[0].1.clone() else { panic!("{pieces:?}") };
        assert_eq!(&list[metadata], r#"{"resourceVersion":"7"}"#);

        for odd in [
            r#"{"metadata":{},"items":[]}"#,
            r#"{"metadata":{},"items":null}"#,
            r#"{"items":[1],"metadata":{}}"#,
            "x",
        ] {
            let pieces = texts(Source::list(body(&[odd]), Coding::Json)).await;
            assert_eq!(pieces.iter().map(|(text, _)| text.as_str()).collect::<String>(), odd);
        }
    }
}
