//! What a reconcile says when it ends.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::source::MAX_CAUSES;

/// What is to happen with a key that was reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Action(pub(super) Next);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    AwaitChange,
    RequeueAfter(Duration),
    /// A finalizer's cleanup goes on; otherwise as `RequeueAfter`.
    CleanupRunning(Duration),
}

impl Action {
    /// Nothing until something changes.
    pub fn done() -> Self {
        Self(Next::AwaitChange)
    }

    /// Once more after this time, or earlier if something changes.
    pub fn requeue_after(delay: Duration) -> Self {
        Self(Next::RequeueAfter(delay))
    }

    /// The cleanup of a [`finalizer`](super::finalizer) has begun but not ended: the finalizer stays, and the cleanup is called
    /// again after this time, or earlier if something changes.
    ///
    /// Elsewhere it is the same as [`requeue_after`](Self::requeue_after).
    pub fn cleanup_running(delay: Duration) -> Self {
        Self(Next::CleanupRunning(delay))
    }

    pub(super) fn is_cleanup_running(self) -> bool {
        matches!(self.0, Next::CleanupRunning(_))
    }
}

/// Why a reconcile failed. Any error becomes one by `?` and is tried again, later and later.
///
/// It is no `Error` itself, so that every error can become one; ask it for its [`error`](Self::error).
pub struct Failure {
    error: Box<dyn Error + Send + Sync>,
    terminal: bool,
}

impl Failure {
    /// A failure that no second try will mend: the key rests until something changes.
    pub fn terminal(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { error: error.into(), terminal: true }
    }

    /// A failure that is tried again; for texts, which are no errors by themselves.
    pub fn retry(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { error: error.into(), terminal: false }
    }

    /// Whether no second try will mend it.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The error itself.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut next: Option<&(dyn Error + 'static)> = Some(&*self.error);
        // An error that is its own cause must not keep this from ending.
        for _ in 0..MAX_CAUSES {
            let Some(error) = next else { break };
            next = error.source();
            let said = match error.downcast_ref() {
                // Its own text has the answer twice, once as a dump.
                Some(kube_client::Error::Api(status)) => {
                    next = None;
                    format!("the server answered {} {}: {}", status.code, status.reason, status.message)
                }
                _ => error.to_string(),
            };
            // Many errors quote their cause.
            if !text.contains(&said) {
                text.push_str(if text.is_empty() { "" } else { ": " });
                text.push_str(&said);
            }
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", if self.terminal { "Terminal" } else { "Retry" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot save: {0}")]
    struct Quoting(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("cannot save")]
    struct Plain(#[source] kube_client::Error);

    #[derive(Debug)]
    struct Circular;

    impl fmt::Display for Circular {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("round and round")
        }
    }

    impl Error for Circular {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }

    #[test]
    fn an_error_that_is_its_own_cause_is_shown_once() {
        assert_eq!(Failure::from(Circular).to_string(), "round and round");
    }

    #[test]
    fn a_text_says_each_cause_once() {
        let quoting = Failure::from(Quoting(std::io::Error::other("the disk is full")));
        assert_eq!(quoting.to_string(), "cannot save: the disk is full");
        let status = kube_core::Status::failure("configmaps \"a\" is forbidden", "Forbidden").with_code(403);
        let refused = Failure::from(Plain(kube_client::Error::Api(Box::new(status))));
        assert_eq!(
            refused.to_string(),
            "cannot save: the server answered 403 Forbidden: configmaps \"a\" is forbidden"
        );
    }
}
