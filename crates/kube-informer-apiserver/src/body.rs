//! Response bodies: one boxed type for answers that are ready, streamed lists and watches alike.

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};

/// Any error, as tower and hyper pass it on.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of every answer of the server.
pub type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

/// A body that is ready, sent as one frame.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body whose frames are made while it is read. Dropping the body drops the stream.
pub fn stream(frames: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    // Fused: who asks an ended body for more gets nothing, not a panic.
    StreamBody::new(frames.map(|bytes| Ok(Frame::data(bytes))).fuse()).boxed_unsync()
}
