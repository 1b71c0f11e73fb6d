//! Takes a list apart while it arrives.

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;

use super::MAX_ITEM_BYTES;
use crate::{ResourceVersion, WireError};

/// What a list says of itself beside its items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// The list's own kind, such as `PodList`.
    pub kind: Option<String>,
    /// The list's `apiVersion`, which is its items' too.
    pub api_version: Option<String>,
    /// The version of the collection that the items show.
    pub resource_version: Option<ResourceVersion>,
    /// The token that brings the next page, if there is one.
    pub continue_token: Option<String>,
    /// How many items follow this page, where the server says so.
    pub remaining_item_count: Option<u64>,
}

/// Splits a JSON list into its items: chunks in as they come, items out as the bytes they were.
///
/// Nothing is kept but the item in progress. What an item holds is not looked at: only strings and brackets count.
///
/// ```
/// use kube_wire::json::ListSplitter;
/// let mut list = ListSplitter::default();
/// list.push(br#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b"#);
/// assert_eq!(list.next_item().unwrap().unwrap(), r#"{"a":1}"#);
/// assert_eq!(list.next_item().unwrap(), None);
/// list.push(br#"":2}]}"#);
/// assert_eq!(list.next_item().unwrap().unwrap(), r#"{"b":2}"#);
/// assert_eq!(list.next_item().unwrap(), None);
/// assert_eq!(list.finish().unwrap().resource_version.unwrap().to_string(), "7");
/// ```
pub struct ListSplitter {
    buffer: BytesMut,
    state: State,
    value: ValueEnd,
    /// What the list says of itself: `kind`, `apiVersion` and `metadata`, each once.
    head: Vec<(String, Bytes)>,
    /// Whether there were items, if only none of them. A table or a status has no such field.
    is_list: bool,
    limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Before the `{`.
    Start,
    /// Before a key, or the comma in front of it, or the closing brace.
    Key,
    /// Before the colon behind this key.
    Colon(String),
    /// Before the value of this key.
    Value(String),
    /// Inside the array of items.
    Items,
    /// After the last brace.
    End,
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
            value: ValueEnd::default(),
            head: Vec::new(),
            is_list: false,
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
            let Some(byte) = self.peek() else { return Ok(None) };
            match &self.state {
                State::Start => {
                    self.step(byte == b'{', "'{'")?;
                    self.state = State::Key;
                }
                State::Key => match byte {
                    b'}' => {
                        self.buffer.advance(1);
                        self.state = State::End;
                    }
                    b',' => self.buffer.advance(1),
                    b'"' => {
                        let Some(key) = self.take_value()? else { return Ok(None) };
                        let key = serde_json::from_slice(&key)?;
                        self.state = State::Colon(key);
                    }
                    _ => return Err(WireError::Json { at: 0, expected: "a key of the list" }),
                },
                State::Colon(key) => {
                    let key = key.clone();
                    self.step(byte == b':', "':'")?;
                    self.state = State::Value(key);
                }
                State::Value(key) if key == "items" && byte == b'[' => {
                    self.buffer.advance(1);
                    self.is_list = true;
                    self.state = State::Items;
                }
                State::Value(key) => {
                    let key = key.clone();
                    let Some(value) = self.take_value()? else { return Ok(None) };
                    self.is_list |= key == "items" && *value == *b"null";
                    // Other members are not kept, or a list of nothing but members would fill the memory.
                    if matches!(&*key, "kind" | "apiVersion" | "metadata") {
                        self.head.retain(|(known, _)| *known != key);
                        self.head.push((key, value));
                    }
                    self.state = State::Key;
                }
                State::Items => match byte {
                    b']' => {
                        self.buffer.advance(1);
                        self.state = State::Key;
                    }
                    b',' => self.buffer.advance(1),
                    _ => return self.take_value(),
                },
                State::End => return Err(WireError::Json { at: 0, expected: "the end of the list" }),
            }
        }
    }

    /// Ends the list and gives what it said of itself, wherever in the text that stood.
    ///
    /// # Errors
    /// If the text is not at its end, or is no list: something else is not to be taken for a list of nothing.
    pub fn finish(self) -> Result<ListMeta, WireError> {
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Metadata {
            resource_version: Option<String>,
            r#continue: Option<String>,
            remaining_item_count: Option<u64>,
        }
        if self.state != State::End {
            return Err(WireError::Truncated { inside: "a list" });
        }
        if !self.is_list {
            return Err(WireError::Json { at: 0, expected: "a list, which has items" });
        }
        let mut meta = ListMeta::default();
        for (key, value) in self.head {
            match key.as_str() {
                "kind" => meta.kind = Some(serde_json::from_slice(&value)?),
                "apiVersion" => meta.api_version = Some(serde_json::from_slice(&value)?),
                "metadata" => {
                    let metadata: Metadata = serde_json::from_slice::<Option<_>>(&value)?.unwrap_or_default();
                    meta.resource_version =
                        metadata.resource_version.filter(|version| !version.is_empty()).map(Into::into);
                    meta.continue_token = metadata.r#continue.filter(|token| !token.is_empty());
                    meta.remaining_item_count = metadata.remaining_item_count;
                }
                _ => {}
            }
        }
        Ok(meta)
    }

    fn peek(&mut self) -> Option<u8> {
        // Only between values: white space inside one belongs to it.
        if !self.value.begun() {
            let blank = self.buffer.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')).count();
            self.buffer.advance(blank);
        }
        self.buffer.first().copied()
    }

    fn step(&mut self, fine: bool, expected: &'static str) -> Result<(), WireError> {
        if !fine {
            return Err(WireError::Json { at: 0, expected });
        }
        self.buffer.advance(1);
        Ok(())
    }

    fn take_value(&mut self) -> Result<Option<Bytes>, WireError> {
        let Some(end) = self.value.find(&self.buffer) else {
            if self.buffer.len() > self.limit {
                return Err(WireError::TooLarge { limit: self.limit });
            }
            return Ok(None);
        };
        self.value = ValueEnd::default();
        if end == 0 {
            return Err(WireError::Json { at: 0, expected: "a value" });
        }
        // However it arrived: whether an item is too large must not depend on the chunks.
        if end > self.limit {
            return Err(WireError::TooLarge { limit: self.limit });
        }
        Ok(Some(self.buffer.split_to(end).freeze()))
    }
}

/// How much waits, not what: it may be a secret.
impl std::fmt::Debug for ListSplitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListSplitter").field("buffered", &self.buffered()).finish_non_exhaustive()
    }
}

/// Finds the end of one JSON value, going on from where it was when bytes ran out.
#[derive(Debug, Default)]
struct ValueEnd {
    scanned: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl ValueEnd {
    fn begun(&self) -> bool {
        self.scanned > 0
    }

    /// `buffer` starts with the value and is the same as last time, only longer.
    fn find(&mut self, buffer: &[u8]) -> Option<usize> {
        while let Some(&byte) = buffer.get(self.scanned) {
            if self.in_string {
                if std::mem::take(&mut self.escaped) {
                    self.scanned += 1;
                    continue;
                }
                match memchr::memchr2(b'"', b'\\', &buffer[self.scanned..]) {
                    None => self.scanned = buffer.len(),
                    Some(found) => {
                        self.scanned += found + 1;
                        if buffer[self.scanned - 1] == b'\\' {
                            self.escaped = true;
                        } else {
                            self.in_string = false;
                            if self.depth == 0 {
                                return Some(self.scanned);
                            }
                        }
                    }
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                // The end of a bare number, `true`, `false` or `null` is whatever comes after it.
                b'}' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r' if self.depth == 0 => {
                    return Some(self.scanned);
                }
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.scanned += 1;
                        return Some(self.scanned);
                    }
                }
                _ => {}
            }
            self.scanned += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#" { "kind" : "PodList" ,"apiVersion":"v1","metadata":{"resourceVersion":"42","continue":"x\"y","remainingItemCount":3},
        "items":[{"metadata":{"name":"a ]}\"\\"}}, {"b":[1,{"c":null}]} ,7,"text",null],"extra":[{"items":1}]} "#;

    fn split(chunks: &[&[u8]]) -> Result<(Vec<String>, ListMeta), WireError> {
        let mut splitter = ListSplitter::default();
        let mut items = Vec::new();
        for chunk in chunks {
            splitter.push(chunk);
            while let Some(item) = splitter.next_item()? {
                items.push(String::from_utf8(item.to_vec()).unwrap());
            }
        }
        Ok((items, splitter.finish()?))
    }

    #[test]
    fn a_list_split_at_every_byte_gives_the_same_items() {
        let (items, meta) = split(&[LIST.as_bytes()]).unwrap();
        assert_eq!(
            items,
            [r#"{"metadata":{"name":"a ]}\"\\"}}"#, r#"{"b":[1,{"c":null}]}"#, "7", "\"text\"", "null"]
        );
        assert_eq!(meta.kind.as_deref(), Some("PodList"));
        assert_eq!(meta.continue_token.as_deref(), Some("x\"y"));
        assert_eq!(meta.remaining_item_count, Some(3));
        assert_eq!(meta.resource_version, Some(ResourceVersion::from(42)));
        for at in 0..LIST.len() {
            let (head, tail) = LIST.as_bytes().split_at(at);
            assert_eq!(split(&[head, tail]).unwrap(), (items.clone(), meta.clone()), "split at {at}");
        }
        let bytes: Vec<&[u8]> = LIST.as_bytes().chunks(1).collect();
        assert_eq!(split(&bytes).unwrap(), (items, meta));
    }

    #[test]
    fn metadata_may_come_last_and_items_may_be_null() {
        let (items, meta) = split(&[br#"{"items":[{}],"metadata":{"resourceVersion":"1"}}"#]).unwrap();
        assert_eq!(items, ["{}"]);
        assert_eq!(meta.resource_version, Some(ResourceVersion::from(1)));
        let (items, _) = split(&[br#"{"items":null,"metadata":{}}"#]).unwrap();
        assert!(items.is_empty());
    }

    #[test]
    fn a_list_cut_anywhere_is_an_error() {
        let text = LIST.trim();
        for end in 0..text.len() {
            assert!(split(&[&text.as_bytes()[..end]]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn what_is_no_list_is_an_error_and_never_a_panic() {
        let table = r#"{"kind":"Table","metadata":{"resourceVersion":"9"},"rows":[]}"#;
        let object = r#"{"kind":"Pod","metadata":{"resourceVersion":"9"},"items":{}}"#;
        for text in [
            table,
            object,
            "{}",
            "[",
            "{]",
            "{\"a\" 1}",
            "x",
            "{}{}",
            "{\"items\":[}",
            "{\"items\"",
            "{\"metadata\":7}",
        ] {
            assert!(split(&[text.as_bytes()]).is_err(), "{text}");
        }
    }

    #[test]
    fn an_item_over_the_limit_is_refused() {
        let mut splitter = ListSplitter::with_limit(10);
        splitter.push(br#"{"items":[{"a":"0123456789"#);
        assert_eq!(splitter.next_item(), Err(WireError::TooLarge { limit: 10 }));
        let mut whole = ListSplitter::with_limit(10);
        whole.push(br#"{"items":[{"a":"0123456789"}]}"#);
        assert_eq!(whole.next_item(), Err(WireError::TooLarge { limit: 10 }));
    }

    #[test]
    fn members_without_an_end_take_no_memory() {
        let mut splitter = ListSplitter::default();
        splitter.push(b"{");
        for i in 0..10_000 {
            splitter.push(format!(r#""x{i}":{i},"metadata":{{"resourceVersion":"{i}"}},"#).as_bytes());
            assert_eq!(splitter.next_item().unwrap(), None);
        }
        assert_eq!((splitter.head.len(), splitter.buffered()), (1, 0));
    }
}
