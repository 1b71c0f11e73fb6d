//! An answer in the pieces that a fault can befall: the lines of a watch, the items of a list.
//!
//! Other answers, and formats that are not JSON, are pieces as they come from the server.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube_wire::json::{EventType, WatchEvent};
use kube_wire::meta::Metadata;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Body, BoxError};

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    pub(crate) part: Part,
}

/// What a piece is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// A line of a watch, nobody has looked into it yet.
    Line,
    /// A line of a watch: its type, and whether it ends a streaming list.
    Event { kind: EventType, is_end: bool },
    /// All of a list before its first item, and where in it the list's metadata is.
    ListHead { metadata: Range<usize> },
    /// An item of a list, with the comma before it if there is one.
    Item,
    /// Anything else.
    Opaque,
}

/// Where the pieces of one answer come from.
pub(crate) enum Source {
    /// A watch: one JSON object a line.
    Lines { inner: Body, buffer: BytesMut },
    /// A list, which is collected first and then taken apart.
    List { inner: Body, buffer: BytesMut, pieces: VecDeque<Piece> },
    /// An answer in one piece.
    Whole { inner: Body, buffer: BytesMut },
    /// An answer as it comes.
    Frames { inner: Body },
}

/// A line longer than this is passed on in parts, unread: the server takes no object of that size.
const MAX_LINE: usize = 16 << 20;

impl Source {
    pub(crate) fn lines(inner: Body) -> Self {
        Self::Lines { inner, buffer: BytesMut::new() }
    }

    pub(crate) fn list(inner: Body) -> Self {
        Self::List { inner, buffer: BytesMut::new(), pieces: VecDeque::new() }
    }

    pub(crate) fn whole(inner: Body) -> Self {
        Self::Whole { inner, buffer: BytesMut::new() }
    }

    /// The next piece; none at the end.
    ///
    /// *Cancel safety*: what was read so far is kept.
    pub(crate) async fn next(&mut self) -> Option<Result<Piece, BoxError>> {
        match self {
            Self::Lines { inner, buffer } => loop {
                if let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
                    return Some(Ok(Piece { bytes: buffer.split_to(end + 1).freeze(), part: Part::Line }));
                }
                if buffer.len() > MAX_LINE {
                    return Some(Ok(Piece { bytes: buffer.split().freeze(), part: Part::Opaque }));
                }
                match read(inner).await {
                    Some(Ok(bytes)) => buffer.extend_from_slice(&bytes),
                    Some(Err(error)) => return Some(Err(error)),
                    None if buffer.is_empty() => return None,
                    None => return Some(Ok(Piece { bytes: buffer.split().freeze(), part: Part::Opaque })),
                }
            },
            Self::List { inner, buffer, pieces } => loop {
                if let Some(piece) = pieces.pop_front() {
                    return Some(Ok(piece));
                }
                match read(inner).await {
                    Some(Ok(bytes)) => buffer.extend_from_slice(&bytes),
                    Some(Err(error)) => return Some(Err(error)),
                    None if buffer.is_empty() => return None,
                    None => pieces.extend(split_list(&buffer.split().freeze())),
                }
            },
            Self::Whole { inner, buffer } => loop {
                match read(inner).await {
                    Some(Ok(bytes)) => buffer.extend_from_slice(&bytes),
                    Some(Err(error)) => return Some(Err(error)),
                    None if buffer.is_empty() => return None,
                    None => return Some(Ok(Piece { bytes: buffer.split().freeze(), part: Part::Opaque })),
                }
            },
            Self::Frames { inner } => {
                Some(read(inner).await?.map(|bytes| Piece { bytes, part: Part::Opaque }))
            }
        }
    }
}

impl Piece {
    /// Looks into a line, if it is one.
    pub(crate) fn classify(mut self) -> Self {
        if self.part == Part::Line {
            self.part = read_event(&self.bytes).unwrap_or(Part::Opaque);
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

fn read_event(line: &[u8]) -> Option<Part> {
    let WatchEvent { kind, object } = WatchEvent::parse(line).ok()?;
    let is_end = kind == EventType::Bookmark
        && Metadata::from_json(object)
            .is_ok_and(|metadata| metadata.annotation("k8s.io/initial-events-end") == Some("true"));
    Some(Part::Event { kind, is_end })
}

/// The head, each item, and the tail; in one piece if it is not a list with metadata before its items.
fn split_list(body: &Bytes) -> Vec<Piece> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    let in_one = || vec![Piece { bytes: body.clone(), part: Part::Opaque }];
    let Ok(list) = serde_json::from_slice::<List<'_>>(body) else { return in_one() };
    // The values borrow from the body, so their places in it are known.
    let place = |value: &RawValue| {
        let start = value.get().as_ptr() as usize - body.as_ptr() as usize;
        start..start + value.get().len()
    };
    let metadata = place(list.metadata);
    let head_end = list.items.first().map_or(body.len(), |item| place(item).start);
    if metadata.end > head_end {
        return in_one();
    }
    let mut pieces = vec![Piece { bytes: body.slice(..head_end), part: Part::ListHead { metadata } }];
    let mut end = head_end;
    for item in list.items {
        let item = place(item);
        pieces.push(Piece { bytes: body.slice(end..item.end), part: Part::Item });
        end = item.end;
    }
    if end < body.len() {
        pieces.push(Piece { bytes: body.slice(end..), part: Part::Opaque });
    }
    pieces
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
        let whole = texts(Source::lines(body(&[stream]))).await;
        let bytes: Vec<&str> = stream.split("").collect();
        assert_eq!(texts(Source::lines(body(&bytes))).await, whole);
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
        let pieces = texts(Source::list(body(&[&list[..20], &list[20..]]))).await;
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
            let pieces = texts(Source::list(body(&[odd]))).await;
            assert_eq!(pieces.iter().map(|(text, _)| text.as_str()).collect::<String>(), odd);
        }
    }
}
