//! Walks over JSON text without building anything.

use std::borrow::Cow;
use std::ops::Range;

use crate::WireError;

/// A position in JSON text, and the ways to move on from it.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The next byte that is not white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// Steps over `byte` if it comes next.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), WireError> {
        if self.take(byte) { Ok(()) } else { Err(self.error(expected)) }
    }

    /// The next member of an object whose `{` was taken: its key, with the cursor before the value; `None` after the `}`.
    pub(crate) fn next_member(&mut self, first: &mut bool) -> Result<Option<Cow<'a, str>>, WireError> {
        if self.take(b'}') {
            return Ok(None);
        }
        if !std::mem::take(first) {
            self.expect(b',', "',' or '}'")?;
        }
        let key = self.string()?;
        self.expect(b':', "':'")?;
        Ok(Some(key))
    }

    /// Moves to the next element of an array whose `[` was taken; `false` after the `]`.
    pub(crate) fn next_element(&mut self, first: &mut bool) -> Result<bool, WireError> {
        if self.take(b']') {
            return Ok(false);
        }
        if !std::mem::take(first) {
            self.expect(b',', "',' or ']'")?;
        }
        Ok(true)
    }

    /// A string, borrowed unless it has escapes.
    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>, WireError> {
        self.peek();
        let range = self.skip_string()?;
        let quoted = &self.text[range];
        let inner = &quoted[1..quoted.len() - 1];
        if memchr::memchr(b'\\', inner).is_none() {
            return std::str::from_utf8(inner).map(Cow::Borrowed).map_err(|_| self.error("UTF-8"));
        }
        Ok(Cow::Owned(serde_json::from_slice(quoted)?))
    }

    /// Steps over one value of any kind and says where it stood.
    pub(crate) fn skip_value(&mut self) -> Result<Range<usize>, WireError> {
        let first = self.peek().ok_or_else(|| self.error("a value"))?;
        let start = self.at;
        match first {
            b'"' => {
                self.skip_string()?;
            }
            b'{' | b'[' => self.skip_nested()?,
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                let rest = &self.text[start..];
                let end = rest.iter().position(|b| b",]} \t\r\n".contains(b)).unwrap_or(rest.len());
                self.at += end;
            }
            _ => return Err(self.error("a value")),
        }
        Ok(start..self.at)
    }

    /// Steps over an object or array; a counter, not recursion, so depth costs nothing.
    fn skip_nested(&mut self) -> Result<(), WireError> {
        let mut depth = 0_usize;
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
        Err(WireError::Truncated { inside: "a JSON value" })
    }

    fn skip_string(&mut self) -> Result<Range<usize>, WireError> {
        let start = self.at;
        if self.text.get(start) != Some(&b'"') {
            return Err(self.error("a string"));
        }
        let mut at = start + 1;
        while let Some(found) = self.text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
            at += found;
            if self.text[at] == b'"' {
                self.at = at + 1;
                return Ok(start..self.at);
            }
            at += 2;
        }
        Err(WireError::Truncated { inside: "a JSON string" })
    }

    pub(crate) fn error(&self, expected: &'static str) -> WireError {
        WireError::Json { at: self.at, expected }
    }
}
