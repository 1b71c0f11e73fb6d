//! What all controllers of a plan come to together: violations, and what was made, taken away and cleaned up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

/// A run is ended after this many violations.
const MAX_VIOLATIONS: usize = 20;

#[derive(Default)]
pub struct Judge {
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    violations: BTreeSet<String>,
    /// For each owner's uid and child's name: how often it was made.
    made: BTreeMap<(String, String), u64>,
    /// For each owner's uid, or none, and child's name: how often people took it away, or the ground for it.
    taken: BTreeMap<(Option<String>, String), u64>,
    /// The uids of objects that something was made for, and of those that were cleaned up after.
    applied: BTreeSet<String>,
    cleaned: BTreeSet<String>,
    longest_streak: f64,
    most_requests: f64,
}

impl Judge {
    pub fn violation(&self, text: String) {
        let mut books = self.books();
        if books.violations.len() < MAX_VIOLATIONS {
            books.violations.insert(text);
        }
    }

    pub fn made(&self, owner: String, child: &str) {
        *self.books().made.entry((owner, child.to_owned())).or_default() += 1;
    }

    /// `owner`: a uid, or `None` if any owner of the child may have lost it.
    pub fn taken(&self, owner: Option<&str>, child: String) {
        *self.books().taken.entry((owner.map(str::to_owned), child)).or_default() += 1;
    }

    pub fn applied(&self, uid: &str) {
        self.books().applied.insert(uid.to_owned());
    }

    pub fn cleaned(&self, uid: &str) {
        self.books().cleaned.insert(uid.to_owned());
    }

    /// An object is gone.
    pub fn gone(&self, name: &str, uid: &str) {
        let books = self.books();
        let left = books.applied.contains(uid) && !books.cleaned.contains(uid);
        drop(books);
        if left {
            self.violation(format!("{name} went without a cleanup"));
        }
    }

    /// How near a key that fails came to what its backoff allows; 1 is the limit.
    pub fn streak(&self, share: f64) {
        let mut books = self.books();
        books.longest_streak = books.longest_streak.max(share);
    }

    /// How near a controller came to its budget of requests; 1 is the limit.
    pub fn spent(&self, share: f64) {
        let mut books = self.books();
        books.most_requests = books.most_requests.max(share);
    }

    pub fn longest_streak(&self) -> f64 {
        self.books().longest_streak
    }

    pub fn most_requests(&self) -> f64 {
        self.books().most_requests
    }

    /// How many children were made.
    pub fn children(&self) -> u64 {
        self.books().made.values().sum()
    }

    /// All violations, with children that were made again though nobody took them away.
    pub fn violations(&self) -> Vec<String> {
        let books = self.books();
        let mut violations: Vec<String> = books.violations.iter().cloned().collect();
        for ((owner, child), times) in &books.made {
            let count = |owner: Option<&String>| {
                books.taken.get(&(owner.cloned(), child.clone())).copied().unwrap_or(0)
            };
            let taken = count(Some(owner)) + count(None);
            if *times > 1 + taken {
                violations.push(format!("{child} was made {times} times and taken away {taken} times"));
            }
        }
        violations
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("no user code runs with it")
    }
}
