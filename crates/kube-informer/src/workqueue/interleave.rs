//! Where the threads that share a queue can come between one another.
//!
//! Nothing in the queue depends on it: in a test that runs under shuttle, which decides who goes on at each such point,
//! it makes every order of locked sections and wake-ups possible. See `tests/interleavings.rs`.

/// A moment at which no lock is held and another thread may go first.
#[cfg(not(test))]
#[inline]
pub(super) const fn scheduling_point() {}

/// A moment at which no lock is held and another thread may go first.
#[cfg(test)]
pub(super) fn scheduling_point() {
    use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
    // Any operation on anything of shuttle's gives its scheduler a choice; most tests run without it.
    if shuttle::current::try_get_current_task().is_some() {
        AtomicBool::new(false).store(true, SeqCst);
    }
}
