//! Locks, and where the threads that share them can come between one another.
//!
//! Nothing in the library depends on it: in a test that runs under shuttle, which decides who goes on at each such point,
//! it makes every order of locked sections and wake-ups possible. See `workqueue/tests/interleavings.rs` and
//! `shared_informer/interleavings.rs`.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic: the only user code that runs with these locks is the `Drop` of a value.
#[cfg(not(test))]
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A moment at which another thread may go first.
#[cfg(not(test))]
#[inline]
pub(crate) const fn scheduling_point() {}

/// Locks a mutex. Under shuttle all threads are one, so a lock that another holds must not be waited for.
#[cfg(test)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    use std::sync::TryLockError;
    scheduling_point();
    if !is_explored() {
        return mutex.lock().unwrap_or_else(PoisonError::into_inner);
    }
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => shuttle::thread::yield_now(),
        }
    }
}

/// A moment at which another thread may go first.
#[cfg(test)]
pub(crate) fn scheduling_point() {
    use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
    // Any operation on anything of shuttle's gives its scheduler a choice.
    if is_explored() {
        AtomicBool::new(false).store(true, SeqCst);
    }
}

/// Whether this test runs under shuttle; most do not.
#[cfg(test)]
fn is_explored() -> bool {
    shuttle::current::try_get_current_task().is_some()
}
