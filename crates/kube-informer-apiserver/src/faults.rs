//! Faults on purpose: a layer around the server that breaks what a script says, drawn from a seed.
//!
//! - [`fault`]: what can go wrong, and what the client sees of it
//! - [`rule`]: which requests, answers and events it befalls
//! - [`script`]: rules as text
//!
//! Every request passes the layer, in the process and over a socket alike. It asks the rules in order, once before the
//! answer, once for the answer as a whole and once for each event or item: each time the first rule that matches wins.
//!
//! ```
//! use std::time::Duration;
//! use kube_informer_apiserver::Verb;
//! use kube_informer_apiserver::faults::{Fault, Faults, Rule};
//!
//! let second = Duration::from_secs(1);
//! let faults = Faults::seeded(7)
//!     .rule(Rule::on(Fault::TooManyRequests { retry_after: Some(second) }).verb(Verb::Watch).resource("pods").times(3))
//!     .rule(Rule::on(Fault::CutFrame).verb(Verb::Watch).after(10 * second).probability(0.2));
//!
//! // The same as text, which is also what a failed run prints:
//! assert_eq!(
//!     faults.script().to_string(),
//!     "seed 7\n\
//!      watch pods: too-many-requests retry-after 1s 3 times\n\
//!      watch: cut-frame after 10s, probability 0.2\n"
//! );
//! ```
//!
//! The same seed, rules and requests give the same faults, so a run that failed fails again: print
//! [`Faults::script`] when it does, or [`Faults::replay`] for exactly what happened, one line for each fault, to be cut
//! down until only the culprit is left.

mod answer;
mod backups;
mod book;
mod call;
mod connection;
pub mod fault;
mod mangle;
mod pieces;
mod raw;
pub mod rule;
pub mod script;
mod stream;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::{ApiServer, Backup};
use backups::Backups;
use book::Book;

pub use book::Injected;
pub use connection::Connection;
pub use fault::Fault;
pub use rule::Rule;
pub use script::{Script, ScriptError};

/// A seed and rules, and what came of them, for one server. Clones share everything: keep one to inject and to count.
#[derive(Clone, Debug)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    book: Mutex<Book>,
    changed: Notify,
    backups: Mutex<Backups<Backup>>,
    /// When the server was built: the zero of all times.
    epoch: OnceLock<Instant>,
}

impl Faults {
    /// No rules yet; the seed is 0.
    pub fn none() -> Self {
        Self::seeded(0)
    }

    /// No rules yet; draws come from this seed.
    pub fn seeded(seed: u64) -> Self {
        let shared = Shared {
            book: Mutex::new(Book::new(seed)),
            changed: Notify::new(),
            backups: Mutex::default(),
            epoch: OnceLock::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// With one more rule, asked after those before it.
    pub fn rule(self, rule: Rule) -> Self {
        self.book().add(rule);
        self
    }

    /// Adds a rule at run time, to be asked after those before it.
    ///
    /// Watches that are open meet it too, at once if it needs no event; but nobody looks for events in one that was
    /// compressed from the start. In the script it holds from now on.
    pub fn inject(&self, rule: Rule) {
        let from = rule.from.max(self.now());
        self.book().add(rule.from(from));
        self.shared.changed.notify_waiters();
    }

    /// Ends all rules. What has befallen an answer stays with it: a silent one stays silent.
    pub fn clear(&self) {
        let now = self.now();
        self.book().end_all(now);
        self.shared.changed.notify_waiters();
    }

    /// How many faults of this kind were injected, whatever their arguments.
    pub fn count(&self, kind: Fault) -> u64 {
        self.book().count(&kind)
    }

    /// What was injected, oldest first: the last 10,000.
    pub fn log(&self) -> Vec<Injected> {
        self.book().log().cloned().collect()
    }

    /// The seed and every rule so far, with the times at which they were injected and cleared.
    ///
    /// A new `Faults` from it does the same again to the same requests.
    pub fn script(&self) -> Script {
        self.book().script()
    }

    /// What was injected as rules without chance, one for each fault in the [`log`](Self::log).
    ///
    /// As long as the requests come in the same order, it does what was done, and leaving a rule out leaves that fault
    /// out: this is the script to make smaller.
    pub fn replay(&self) -> Script {
        let book = self.book();
        Script { seed: book.script().seed, rules: book.log().map(Injected::to_rule).collect() }
    }

    /// Starts the clock of the rules, unless it runs already.
    pub(crate) fn start(&self) {
        self.shared.epoch.get_or_init(Instant::now);
    }

    /// The time since the server was built.
    pub(crate) fn now(&self) -> Duration {
        self.shared.epoch.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// A time since the server was built, on tokio's clock.
    pub(crate) fn instant(&self, time: Duration) -> Instant {
        later(*self.shared.epoch.get_or_init(Instant::now), time)
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.shared.book.lock().expect("no one panics while holding the book of faults")
    }

    /// Backs the server up, if some rule may restore it one day.
    pub(crate) fn keep_backup(&self, server: &ApiServer) {
        let Some(behind) = self.book().restores() else { return };
        self.backups().keep(server.revision(), behind, || server.backup());
    }

    /// Restores the server from a backup that is old enough, or else the oldest.
    pub(crate) fn restore(&self, server: &ApiServer, behind: u64) {
        if let Some(backup) = self.backups().restore(server.revision(), behind) {
            server.restore(&backup);
        }
    }

    fn backups(&self) -> MutexGuard<'_, Backups<Backup>> {
        self.shared.backups.lock().expect("no one panics while holding the backups")
    }

    /// Ends when rules are added or ended after this call, not only after the first poll.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + '_ {
        // A `Notified` hears of `notify_waiters` from its creation on.
        self.shared.changed.notified()
    }
}

/// A time so far away that it is out of the clock's range is some time after everybody has left.
pub(crate) fn later(start: Instant, time: Duration) -> Instant {
    const DECADES: Duration = Duration::from_hours(30 * 365 * 24);
    start + time.min(DECADES)
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

impl From<Script> for Faults {
    fn from(script: Script) -> Self {
        script.rules.into_iter().fold(Self::seeded(script.seed), Self::rule)
    }
}
