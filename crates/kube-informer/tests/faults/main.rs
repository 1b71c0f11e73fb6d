//! What the informer makes of each fault of the embedded server: one test for each kind, named after it.
//!
//! The story is always the same: `a` and `b` are there, an informer starts (meeting the rules of `before`), syncs, then
//! (meeting the rules of `after`) `a` changes, `c` comes and `b` goes. Ten minutes later it is told what was heard, what the
//! store has, what was asked of the server, and what went wrong on the way.

mod answers;
mod before;
#[path = "../common/mod.rs"]
mod common;
mod events;
mod story;
