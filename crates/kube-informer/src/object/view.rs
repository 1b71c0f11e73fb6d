//! What a cache can be read as.

use kube_wire::WireError;
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
        wire.decode(kind, typed, bytes).map_err(|problem| DecodeError {
            object: kind.to_string(),
            target: std::any::type_name::<K>(),
            problem: match problem {
                WireError::Decode(problem) => problem,
                other => other.to_string(),
            },
        })
    }
}
