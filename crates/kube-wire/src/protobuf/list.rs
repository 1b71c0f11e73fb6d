//! Takes a protobuf list apart while it arrives.

use bytes::{Buf, Bytes, BytesMut};

use super::envelope::{self, MAGIC, type_meta};
use super::wire::{self, Reader, WireType, put_bytes, put_head, put_integer, split_tag};
use crate::WireError;
use crate::json::{ListMeta, MAX_ITEM_BYTES};

/// Splits an enveloped list into its items: chunks in as they come, bare items out as the bytes they were.
///
/// It is used as [`json::ListSplitter`](crate::json::ListSplitter) is. Every built-in list has its metadata in field 1 and
/// its items in field 2, so no schema is needed; nothing is kept but the item in progress.
///
/// ```
/// use kube_wire::json::ListMeta;
/// use kube_wire::protobuf::{ListSplitter, write_list};
/// let meta = ListMeta {
///     api_version: Some("v1".into()),
///     kind: Some("PodList".into()),
///     resource_version: Some("7".to_owned().into()),
///     ..ListMeta::default()
/// };
/// let mut answer = Vec::new();
/// write_list(&mut answer, &meta, &["one", "two"]);
///
/// let mut list = ListSplitter::default();
/// let mut items = Vec::new();
/// for chunk in answer.chunks(10) {
///     list.push(chunk);
///     while let Some(item) = list.next_item().unwrap() {
///         items.push(item);
///     }
/// }
/// assert_eq!(items, ["one", "two"]);
/// assert_eq!(list.finish().unwrap(), meta);
/// ```
pub struct ListSplitter {
    buffer: BytesMut,
    state: State,
    /// Bytes of a field nobody wants that are still to come.
    skip: u64,
    /// The list's own `TypeMeta` and `ListMeta`.
    type_meta: Vec<u8>,
    metadata: Vec<u8>,
    limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the magic bytes.
    Start,
    /// Between fields of the envelope in front of the list.
    Head,
    /// Between fields of the list, of which this many bytes are left.
    List { left: u64 },
    /// Between fields of the envelope behind the list.
    Tail,
}

/// How much waits, not what: it may be a secret.
impl std::fmt::Debug for ListSplitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListSplitter").field("buffered", &self.buffered()).finish_non_exhaustive()
    }
}

impl Default for ListSplitter {
    fn default() -> Self {
        Self::with_limit(MAX_ITEM_BYTES)
    }
}

impl ListSplitter {
    /// A splitter that refuses items larger than this.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            state: State::Start,
            skip: 0,
            type_meta: Vec::new(),
            metadata: Vec::new(),
            limit,
        }
    }

    /// Takes the next bytes of the answer.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// How many bytes wait for the rest of their item.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// The next complete item; `None` means that more bytes are needed, or that the list is at its end.
    pub fn next_item(&mut self) -> Result<Option<Bytes>, WireError> {
        loop {
            if self.skip > 0 {
                let here = self.skip.min(self.buffer.len() as u64);
                self.buffer.advance(here as usize);
                self.skip -= here;
                if self.skip > 0 {
                    return Ok(None);
                }
            }
            match self.state {
                State::Start => {
                    let known = self.buffer.len().min(MAGIC.len());
                    if self.buffer[..known] != MAGIC[..known] {
                        return Err(malformed("the four bytes \"k8s\\0\""));
                    }
                    if known < MAGIC.len() {
                        return Ok(None);
                    }
                    self.buffer.advance(known);
                    self.state = State::Head;
                }
                State::List { left: 0 } => self.state = State::Tail,
                State::List { left } => {
                    let Some(head) = self.head()? else { return Ok(None) };
                    let whole = head.before as u64 + head.length;
                    if whole > left {
                        return Err(malformed("a field that ends inside the list"));
                    }
                    match head.number {
                        1 | 2 if head.wire_type != WireType::Bytes => {
                            return Err(malformed("metadata and items as messages"));
                        }
                        1 | 2 => {
                            let Some(bytes) = self.take(head)? else { return Ok(None) };
                            self.state = State::List { left: left - whole };
                            if head.number == 2 {
                                return Ok(Some(bytes));
                            }
                            // Said twice, the two are read as one: that is what protobuf asks for.
                            self.keep(&bytes)?;
                        }
                        _ => {
                            self.skip = whole;
                            self.state = State::List { left: left - whole };
                        }
                    }
                }
                State::Head | State::Tail => {
                    let Some(head) = self.head()? else { return Ok(None) };
                    if (1..=4).contains(&head.number) && head.wire_type != WireType::Bytes {
                        return Err(malformed("an envelope around plain protobuf"));
                    }
                    match head.number {
                        2 if self.state == State::Tail => return Err(malformed("one list in the envelope")),
                        2 => {
                            self.buffer.advance(head.before);
                            self.state = State::List { left: head.length };
                        }
                        1 | 3 | 4 => {
                            let Some(bytes) = self.take(head)? else { return Ok(None) };
                            if head.number == 1 {
                                self.type_meta = bytes.to_vec();
                            } else {
                                envelope::check_content(head.number, &bytes)?;
                            }
                        }
                        _ => self.skip = head.before as u64 + head.length,
                    }
                }
            }
        }
    }

    /// Ends the list and gives what it said of itself, wherever in the bytes that stood.
    pub fn finish(self) -> Result<ListMeta, WireError> {
        if self.state != State::Tail || self.skip > 0 || !self.buffer.is_empty() {
            return Err(WireError::Truncated { inside: "a list" });
        }
        let (api_version, kind) = type_meta(&self.type_meta)?;
        let mut meta = read_list_meta(&self.metadata)?;
        meta.api_version = Some(api_version.to_owned()).filter(|text| !text.is_empty());
        meta.kind = Some(kind.to_owned()).filter(|text| !text.is_empty());
        Ok(meta)
    }

    /// The head of the field that the buffer starts with.
    fn head(&self) -> Result<Option<Head>, WireError> {
        let overlong = |_| malformed("a varint of at most ten bytes");
        let Some((tag, mut before)) = wire::varint(&self.buffer).map_err(overlong)? else { return Ok(None) };
        let (number, wire_type) = split_tag(tag).ok_or_else(|| malformed("a field's tag"))?;
        let length = match wire_type {
            WireType::Fixed64 => 8,
            WireType::Fixed32 => 4,
            WireType::Varint | WireType::Bytes => {
                let Some((value, size)) = wire::varint(&self.buffer[before..]).map_err(overlong)? else {
                    return Ok(None);
                };
                before += size;
                if wire_type == WireType::Bytes { value } else { 0 }
            }
        };
        // No sum of lengths below comes near the end of a u64.
        if length > u64::MAX >> 1 {
            return Err(malformed("a length that can be true"));
        }
        Ok(Some(Head { number, wire_type, before, length }))
    }

    /// The whole value of a field, once it is there.
    fn take(&mut self, head: Head) -> Result<Option<Bytes>, WireError> {
        if head.length > self.limit as u64 {
            return Err(WireError::TooLarge { limit: self.limit });
        }
        let length = head.length as usize;
        if self.buffer.len() < head.before + length {
            return Ok(None);
        }
        self.buffer.advance(head.before);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    fn keep(&mut self, metadata: &[u8]) -> Result<(), WireError> {
        if self.metadata.len() + metadata.len() > self.limit {
            return Err(WireError::TooLarge { limit: self.limit });
        }
        self.metadata.extend_from_slice(metadata);
        Ok(())
    }
}

/// The tag and length of a field: `before` bytes, then `length` bytes of value.
#[derive(Debug, Clone, Copy)]
struct Head {
    number: u32,
    wire_type: WireType,
    before: usize,
    length: u64,
}

/// Writes a list of bare items in its envelope, byte for byte as Go does.
pub fn write_list(out: &mut Vec<u8>, meta: &ListMeta, items: &[impl AsRef<[u8]>]) {
    begin_list(out, meta, items.iter().map(|item| item.as_ref().len()));
    for item in items {
        write_item(out, item.as_ref());
    }
    end_list(out);
}

/// Writes all of a list before its first item: for those who do not want the whole of it in memory.
///
/// The list says in front how long it is, so the lengths of all items must be known. The items follow with
/// [`write_item`], as many and as long as was said, then [`end_list`].
pub fn begin_list(out: &mut Vec<u8>, meta: &ListMeta, item_lengths: impl IntoIterator<Item = usize>) {
    let metadata = list_meta(meta);
    let field = |length: usize| {
        let mut head = Vec::with_capacity(11);
        put_head(&mut head, 1, length);
        head.len() + length
    };
    let length = field(metadata.len()) + item_lengths.into_iter().map(field).sum::<usize>();
    envelope::write_head(
        out,
        meta.api_version.as_deref().unwrap_or_default(),
        meta.kind.as_deref().unwrap_or_default(),
        length,
    );
    put_bytes(out, 1, &metadata);
}

/// Writes one bare item of a list that [`begin_list`] has begun.
pub fn write_item(out: &mut Vec<u8>, item: &[u8]) {
    put_bytes(out, 2, item);
}

/// Writes what stands behind the last item of a list that [`begin_list`] has begun.
pub fn end_list(out: &mut Vec<u8>) {
    envelope::write_tail(out);
}

/// A `meta.v1.ListMeta`.
fn list_meta(meta: &ListMeta) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, b"");
    let version = meta.resource_version.as_ref().map(ToString::to_string).unwrap_or_default();
    put_bytes(&mut out, 2, version.as_bytes());
    put_bytes(&mut out, 3, meta.continue_token.as_deref().unwrap_or_default().as_bytes());
    if let Some(count) = meta.remaining_item_count {
        put_integer(&mut out, 4, count);
    }
    out
}

fn read_list_meta(message: &[u8]) -> Result<ListMeta, WireError> {
    let mut meta = ListMeta::default();
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next_field()? {
        match field.number {
            2 => meta.resource_version = text(field.value.bytes()?)?.map(Into::into),
            3 => meta.continue_token = text(field.value.bytes()?)?,
            4 => meta.remaining_item_count = Some(field.value.varint()?),
            _ => {}
        }
    }
    Ok(meta)
}

fn text(bytes: &[u8]) -> Result<Option<String>, WireError> {
    let text = String::from_utf8(bytes.to_vec()).map_err(|_| malformed("UTF-8"))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn malformed(expected: &'static str) -> WireError {
    WireError::Protobuf { at: 0, expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResourceVersion;

    fn split(chunks: &[&[u8]]) -> Result<(Vec<Bytes>, ListMeta), WireError> {
        let mut splitter = ListSplitter::default();
        let mut items = Vec::new();
        for chunk in chunks {
            splitter.push(chunk);
            while let Some(item) = splitter.next_item()? {
                items.push(item);
            }
        }
        Ok((items, splitter.finish()?))
    }

    fn meta() -> ListMeta {
        ListMeta {
            api_version: Some("v1".into()),
            kind: Some("PodList".into()),
            resource_version: Some(ResourceVersion::from(42)),
            continue_token: Some("more".into()),
            remaining_item_count: Some(300),
        }
    }

    fn list() -> Vec<u8> {
        let mut out = Vec::new();
        write_list(&mut out, &meta(), &[&b"first"[..], b"", &[9; 200], b"last"]);
        out
    }

    /// An envelope around this list, with a field that nobody knows before and behind it.
    fn enveloped(list: &[u8]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_bytes(&mut out, 9, b"unknown");
        put_bytes(&mut out, 2, list);
        put_bytes(&mut out, 1, b"\x0a\x02v1\x12\x07PodList");
        put_integer(&mut out, 7, 1 << 40);
        out
    }

    #[test]
    fn a_list_split_at_every_byte_gives_the_same_items() {
        let list = list();
        let (items, found) = split(&[&list]).unwrap();
        assert_eq!(items, [&b"first"[..], b"", &[9; 200], b"last"]);
        assert_eq!(found, meta());
        for at in 0..list.len() {
            let (head, tail) = list.split_at(at);
            assert_eq!(split(&[head, tail]).unwrap(), (items.clone(), found.clone()), "split at {at}");
        }
        let bytes: Vec<&[u8]> = list.chunks(1).collect();
        assert_eq!(split(&bytes).unwrap(), (items, found));
    }

    #[test]
    fn a_list_in_pieces_is_the_list_in_one() {
        let items: [&[u8]; 3] = [b"first", b"", &[9; 200]];
        let (mut pieces, mut whole) = (Vec::new(), Vec::new());
        begin_list(&mut pieces, &meta(), items.map(<[u8]>::len));
        for item in items {
            write_item(&mut pieces, item);
        }
        end_list(&mut pieces);
        write_list(&mut whole, &meta(), &items);
        assert_eq!(pieces, whole);
    }

    #[test]
    fn fields_may_come_in_any_order_and_unknown_ones_are_passed_over() {
        let mut list = Vec::new();
        put_bytes(&mut list, 2, b"a");
        put_bytes(&mut list, 7, &[1; 1000]);
        put_integer(&mut list, 8, u64::MAX);
        list.extend_from_slice(&[0x4d, 1, 2, 3, 4, 0x51, 1, 2, 3, 4, 5, 6, 7, 8]);
        put_bytes(&mut list, 1, b"\x12\x013");
        put_bytes(&mut list, 2, b"b");
        put_bytes(&mut list, 1, b"\x1a\x01c");
        let whole = enveloped(&list);
        for size in [1, 2, 7, whole.len()] {
            let chunks: Vec<&[u8]> = whole.chunks(size).collect();
            let (items, meta) = split(&chunks).unwrap();
            assert_eq!(items, ["a", "b"]);
            assert_eq!(meta.resource_version, Some(ResourceVersion::from(3)));
            assert_eq!(meta.continue_token.as_deref(), Some("c"));
            assert_eq!(meta.kind.as_deref(), Some("PodList"));
        }
    }

    #[test]
    fn a_list_cut_inside_its_items_is_an_error() {
        let list = list();
        // The two empty fields behind the list may be missing.
        let whole = [list.len() - 4, list.len() - 2];
        for end in 0..list.len() {
            assert_eq!(split(&[&list[..end]]).is_ok(), whole.contains(&end), "cut at {end}");
        }
    }

    #[test]
    fn what_is_no_list_is_an_error_and_never_a_panic() {
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let cases: Vec<Vec<u8>> = vec![
            b"{\"kind\":\"PodList\"}".to_vec(),
            [&MAGIC[..], b"\x12", &huge].concat(),
            [&MAGIC[..], b"\x4a", &huge].concat(),
            [&MAGIC[..], &[0xff; 11]].concat(),
            [&MAGIC[..], b"\x10\x01"].concat(),
            [&MAGIC[..], b"\x12\x00\x12\x00"].concat(),
            [&MAGIC[..], b"\x12\x00\x1a\x04gzip"].concat(),
            enveloped(b"\x10\x01"),
            enveloped(b"\x12\x05abcd"),
            enveloped(b"\x13\x14"),
            enveloped(&[&b"\x12"[..], &huge].concat()),
            enveloped(b"\x0a\x02\x12\x05"),
        ];
        for bytes in cases {
            assert!(split(&[&bytes]).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn an_item_over_the_limit_is_refused_before_it_comes() {
        let mut splitter = ListSplitter::with_limit(10);
        splitter.push(b"k8s\0\x12\x80\x80\x80\x40\x12\x0b");
        assert_eq!(splitter.next_item(), Err(WireError::TooLarge { limit: 10 }));
    }

    #[test]
    fn a_large_field_that_nobody_wants_is_not_kept() {
        let mut splitter = ListSplitter::with_limit(20);
        let mut whole = enveloped(&{
            let mut list = Vec::new();
            put_bytes(&mut list, 6, &vec![0; 100_000]);
            put_bytes(&mut list, 2, b"item");
            list
        });
        whole.truncate(whole.len() - 6);
        let mut items = Vec::new();
        for chunk in whole.chunks(512) {
            splitter.push(chunk);
            while let Some(item) = splitter.next_item().unwrap() {
                items.push(item);
            }
            assert!(splitter.buffered() < 600);
        }
        assert_eq!(items, ["item"]);
    }
}
