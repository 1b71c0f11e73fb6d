//! What can be wrong with bytes from the wire.

use crate::problem;

/// Bytes that are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The text is not JSON, or not of the expected shape.
    #[error("malformed JSON at byte {at}: expected {expected}")]
    Json {
        /// Where.
        at: usize,
        /// What should stand there.
        expected: &'static str,
    },
    /// The bytes are not protobuf, or not of the expected shape.
    #[error("malformed protobuf at byte {at}: expected {expected}")]
    Protobuf {
        /// Where, counted from the start of the message in progress.
        at: usize,
        /// What should stand there.
        expected: &'static str,
    },
    /// The bytes are well formed, but do not fit the type. The text names places and types, never a value of the data.
    #[error("unexpected value: {0}")]
    Decode(String),
    /// The bytes ended in the middle of something.
    #[error("the answer ended inside {inside}")]
    Truncated {
        /// What was being read.
        inside: &'static str,
    },
    /// One item or event is larger than the limit.
    #[error("an item of more than {limit} bytes; the limit protects memory and can be raised")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The compressed bytes are corrupt.
    #[error("corrupt gzip: {0}")]
    Gzip(String),
}

impl From<serde_json::Error> for WireError {
    fn from(error: serde_json::Error) -> Self {
        let text = error.to_string();
        Self::Decode(if error.is_data() { problem::without_values(&text) } else { text })
    }
}

impl WireError {
    /// Why JSON text does not fit a type: the path to the value and what was expected, without the value.
    pub fn in_json(json: &[u8], error: &serde_json::Error) -> Self {
        Self::Decode(problem::in_json(json, error))
    }
}
