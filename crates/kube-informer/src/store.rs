//! Keeps objects in key order, so that a reader's frozen snapshot costs one pointer and never blocks the writer.

pub(crate) mod tree;
