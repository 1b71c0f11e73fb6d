//! What a cache can be read as.

use serde::de::DeserializeOwned;

use super::{Kind, Wire};

/// What a cached object can be decoded into: any owned type that `serde` can read.
///
/// `Pod`, a smaller type of your own with only the fields you need, a dynamic object and `serde_json::Value` all read the
/// same cache. Implemented for every such type; there is nothing to implement by hand.
pub trait View: Send + Sync + Sized + 'static {
    /// Decodes one object from the bytes the server sent.
    ///
    /// Items of a list lack `kind` and `apiVersion`: `typed` says whether these bytes have them, and if not, `kind` fills
    /// them in.
    fn decode(kind: &Kind, wire: Wire, typed: bool, bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// An object that does not fit the type it is read as.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{object} cannot be read as {target}: {problem}")]
pub struct DecodeError {
    pub(super) object: String,
    pub(super) target: &'static str,
    pub(super) problem: String,
}

impl<K: DeserializeOwned + Send + Sync + 'static> View for K {
    fn decode(kind: &Kind, wire: Wire, typed: bool, bytes: &[u8]) -> Result<Self, DecodeError> {
        let failed = |problem: serde_json::Error| DecodeError {
            object: kind.to_string(),
            target: std::any::type_name::<K>(),
            problem: problem.to_string(),
        };
        match wire {
            Wire::Json if typed => serde_json::from_slice(bytes).map_err(failed),
            Wire::Json => serde_json::from_slice(&with_type(kind, bytes)).map_err(failed),
        }
    }
}

/// The JSON object with `apiVersion` and `kind` put in front of its other members.
fn with_type(kind: &Kind, json: &[u8]) -> Vec<u8> {
    let mut typed = Vec::with_capacity(json.len() + 64);
    let body = json.trim_ascii_start().strip_prefix(b"{").unwrap_or(json).trim_ascii_start();
    typed.extend_from_slice(br#"{"apiVersion":""#);
    typed.extend_from_slice(kind.api_version().as_bytes());
    typed.extend_from_slice(br#"","kind":""#);
    typed.extend_from_slice(kind.kind().as_bytes());
    typed.extend_from_slice(if body.starts_with(b"}") { br#"""# } else { br#"","# });
    typed.extend_from_slice(body);
    typed
}
