//! A Kubernetes API server in the process: a tower service first, a socket second.
//!
//! - [`request`]: what a request asks for
//! - [`body`]: what an answer is made of

pub mod body;
pub mod request;

pub use body::{Body, BoxError};
pub use request::{RequestInfo, Verb};
