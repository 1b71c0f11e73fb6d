//! What one handler has heard, checked event by event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kube_informer::delta_fifo::Scope;
use kube_informer::object::Entry;
use kube_informer::{Event, Object, ObjectKey, ResourceVersion, SharedInformer, Snapshot};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bodies::Bodies;
use super::schedule::{HandlerPlan, InformerKind, Speed};
use super::trace::Trace;

/// What one handler has heard.
#[derive(Clone)]
pub struct Ledger(Arc<Shared>);

struct Shared {
    name: String,
    plan: HandlerPlan,
    rules: Rules,
    states: Option<States>,
    trace: Trace,
    informer: SharedInformer<Value>,
    heard: Mutex<Heard>,
    gate: Gate,
}

/// Where blocked handlers stand until they are let go, in the order in which they came.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Notify, AtomicBool)>);

impl Gate {
    /// Lets those go that wait now.
    pub fn release(&self) {
        self.0.0.notify_waiters();
    }

    /// Lets everybody go from now on.
    pub fn open(&self) {
        self.0.1.store(true, Ordering::Relaxed);
        self.release();
    }

    async fn wait(&self) {
        let released = self.0.0.notified();
        if !self.0.1.load(Ordering::Relaxed) {
            released.await;
        }
    }
}

/// Which promises hold for a handler.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each promise holds or does not hold by itself")]
pub struct Rules {
    /// Versions only go forward: the server was never restored.
    pub ordered: bool,
    /// An object that is gone for the handler never comes back: nothing but the server's deletes makes it go.
    pub once: bool,
    /// An update without a resync is of another version.
    pub changes: bool,
    /// Objects come and go only as the server's do, not with a namespace.
    pub fixed: bool,
}

/// The states that an informer's objects may be in.
#[derive(Clone)]
pub struct States {
    pub bodies: Bodies,
    pub kind: InformerKind,
}

#[derive(Default)]
struct Heard {
    present: BTreeMap<ObjectKey, Told>,
    ended: BTreeSet<(ObjectKey, String)>,
    /// What came as initial.
    initial: BTreeMap<ObjectKey, Told>,
    /// Keys for which a callback has returned.
    returned: BTreeSet<ObjectKey>,
    synced: bool,
    removed: bool,
    events: u64,
}

#[derive(Clone)]
struct Told {
    uid: String,
    version: ResourceVersion,
    at: Instant,
}

impl Told {
    fn is(&self, object: &Entry) -> bool {
        *object.uid() == *self.uid && *object.version() == self.version
    }
}

impl Ledger {
    pub fn new(
        name: String,
        plan: HandlerPlan,
        rules: Rules,
        states: Option<States>,
        trace: Trace,
        informer: &SharedInformer<Value>,
        gate: Gate,
    ) -> Self {
        let informer = informer.clone();
        Self(Arc::new(Shared { name, plan, rules, states, trace, informer, heard: Mutex::default(), gate }))
    }

    /// Takes one event in, as slowly as the plan says, and panics if it says so.
    pub async fn hear<K>(self, event: Event<K>) {
        let number = {
            let mut heard = self.lock();
            heard.events += 1;
            if heard.removed {
                self.fail(format_args!("hears of {} after it was removed", show(event.object())));
            }
            heard.events
        };
        self.check(&event);
        let _returns = Returns(self.clone(), event.object().key().clone());
        match self.0.plan.speed {
            Speed::Fast => {}
            Speed::Slow(time) => tokio::time::sleep(time).await,
            Speed::Blocked => self.0.gate.wait().await,
        }
        if self.0.plan.panics_every.is_some_and(|every| number % every == 0) && !self.0.plan.stream {
            // Not `panic!`: the hook that prints it would run.
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }

    fn check<K>(&self, event: &Event<K>) {
        let name = &self.0.name;
        match event {
            Event::Added { object, initial } => {
                self.0.trace.line(format_args!(
                    "{name} add {}{}",
                    show(object),
                    if *initial { " (initial)" } else { "" }
                ));
                self.added(object, *initial);
            }
            Event::Updated { old, new } => {
                self.0.trace.line(format_args!("{name} update {} → {}", show(old), show(new)));
                self.updated(old, new);
            }
            Event::Deleted(deleted) => {
                let missed = deleted.final_state_unknown;
                let text = if missed { " (missed)" } else { "" };
                self.0.trace.line(format_args!("{name} delete {}{text}", show(&deleted.object)));
                self.deleted(&deleted.object, missed);
            }
        }
        match event {
            Event::Added { object, .. } => self.body(object, false),
            Event::Updated { old, new } => {
                self.body(old, false);
                self.body(new, false);
            }
            Event::Deleted(deleted) => {
                self.body(&deleted.old, false);
                self.body(&deleted.object, true);
            }
        }
        self.store_first(event);
    }

    fn body<K>(&self, object: &Object<K>, gone: bool) {
        if let Some(States { bodies, kind }) = &self.0.states
            && let Err(wrong) = bodies.check(&object.read_as(), *kind, gone)
        {
            self.fail(format_args!("receives a wrong object: {wrong}"));
        }
    }

    fn added(&self, object: &Entry, initial: bool) {
        let mut heard = self.lock();
        if heard.present.contains_key(object.key()) {
            self.fail(format_args!("hears of {} as new, though it knows it", show(object)));
        }
        if self.0.rules.once && heard.ended.contains(&(object.key().clone(), object.uid().to_string())) {
            self.fail(format_args!("hears of {} as new after its end", show(object)));
        }
        if initial && heard.synced {
            self.fail(format_args!("has synced, and then hears of {} as initial", show(object)));
        }
        self.filtered(object);
        if initial {
            heard.initial.insert(object.key().clone(), told(object));
        }
        heard.present.insert(object.key().clone(), told(object));
    }

    fn updated(&self, old: &Entry, new: &Entry) {
        let mut heard = self.lock();
        match heard.present.get(new.key()) {
            None => self.fail(format_args!("hears of a change of {}, which it does not know", show(new))),
            Some(told) if *old.uid() != *told.uid || told.version != *old.version() => {
                self.fail(format_args!(
                    "hears of a change from {}, but last heard of version {} of {}",
                    show(old),
                    told.version,
                    told.uid
                ));
            }
            Some(_) => {}
        }
        if old.uid() != new.uid() {
            self.fail(format_args!("hears of {} as a change of another object, {}", show(new), old.uid()));
        }
        if self.0.rules.ordered && new.version() < old.version() {
            self.fail(format_args!("hears of {} after {}", show(new), show(old)));
        }
        if old.version() == new.version() && self.0.plan.resync.is_none() && self.0.rules.changes {
            self.fail(format_args!("hears of {} again, which did not change", show(new)));
        }
        self.filtered(new);
        heard.present.insert(new.key().clone(), told(new));
    }

    fn deleted(&self, object: &Entry, missed: bool) {
        let mut heard = self.lock();
        match heard.present.remove(object.key()) {
            None => self.fail(format_args!("hears of the end of {}, which it does not know", show(object))),
            Some(told) if *object.uid() != *told.uid => {
                self.fail(format_args!("hears of the end of {}, but knows {}", show(object), told.uid));
            }
            Some(told) if self.0.rules.ordered && !missed && *object.version() < told.version => {
                self.fail(format_args!(
                    "hears of the end of {} after version {}",
                    show(object),
                    told.version
                ));
            }
            Some(_) => {}
        }
        heard.ended.insert((object.key().clone(), object.uid().to_string()));
    }

    fn filtered(&self, object: &Entry) {
        if !self.0.plan.passes(object) {
            self.fail(format_args!("hears of {}, which its filter does not let pass", show(object)));
        }
    }

    /// When a handler hears of a change, the store has it, or something newer.
    fn store_first<K>(&self, event: &Event<K>) {
        if !self.0.rules.ordered {
            return;
        }
        let snapshot = self.0.informer.snapshot();
        let object = event.object();
        let mut scopes = [Scope::CLUSTER].into_iter().chain(object.namespace().map(Scope::namespace));
        let Some(reached) = scopes.find_map(|scope| snapshot.version_of(&scope).cloned()) else {
            return;
        };
        let stored = snapshot.get(object.key());
        let gone = matches!(event, Event::Deleted(_));
        // Versions of different form have no order: then only the object's presence can be judged.
        let not_older = |stored: &ResourceVersion| {
            stored.partial_cmp(object.version()).is_none_or(std::cmp::Ordering::is_ge)
        };
        let right = match &stored {
            Some(stored) if stored.uid() == object.uid() && !gone => not_older(stored.version()),
            // Where only the server's deletes make it go, it is gone from the store as well.
            Some(stored) if stored.uid() == object.uid() => {
                !self.0.rules.once || (not_older(stored.version()) && stored.version() != object.version())
            }
            Some(_) => true,
            None => not_older(&reached),
        };
        if !right {
            let stored = stored.map_or_else(|| "nothing".to_owned(), |stored| show(&stored));
            self.fail(format_args!(
                "hears of {} (gone: {gone}) when the store has {stored}, at {reached}",
                show(object)
            ));
        }
    }

    /// The registration says that it has synced: everything that was there must have been heard, unless it is gone, and nothing
    /// else as initial. If the handler was there before the informer synced, `reached` is the version that it synced at; else `first`
    /// is the very state that the handler began with.
    pub fn synced<'a>(&self, first: impl IntoIterator<Item = &'a Arc<Entry>>, reached: Option<u64>) {
        let now = self.0.informer.snapshot();
        let mut heard = self.lock();
        heard.synced = true;
        self.0.trace.line(format_args!("{} has synced", self.0.name));
        let first: BTreeMap<&ObjectKey, &Arc<Entry>> =
            first.into_iter().map(|object| (object.key(), object)).collect();
        for object in first.values().filter(|object| self.0.plan.passes(object)) {
            // One that has changed may have been merged with its change, and then be filtered out.
            let same = now.get(object.key()).is_some_and(|now| now.version() == object.version());
            if same && self.0.rules.ordered && !heard.returned.contains(object.key()) {
                self.fail(format_args!("has synced without having heard of {}", show(object)));
            }
            let told = heard.present.get(object.key());
            let unchanged = told.is_some_and(|told| told.is(object)) && self.0.rules.fixed;
            if reached.is_none() && unchanged && !heard.initial.contains_key(object.key()) {
                self.fail(format_args!("received {} without the mark of an initial object", show(object)));
            }
        }
        for (key, told) in heard.initial.iter().filter(|(key, _)| !first.contains_key(key)) {
            // Until all scopes have been listed, what a second list of one brings is initial as well.
            let late =
                reached.is_none_or(|reached| told.version.as_u64().is_some_and(|version| version > reached));
            if self.0.rules.fixed && late {
                self.fail(format_args!(
                    "received {key}@{} as initial, although it was added later",
                    told.version
                ));
            }
        }
    }

    /// What is wrong with what the handler knows, compared with the store.
    pub fn difference(&self, store: &Snapshot<Value>) -> Option<String> {
        let heard = self.lock();
        let objects = store.iter().filter(|object| self.0.plan.passes(object));
        let stored: BTreeMap<&ObjectKey, &Arc<Entry>> =
            objects.map(|object| (object.key(), object)).collect();
        for (key, told) in &heard.present {
            match stored.get(key) {
                None => return Some(format!("{} knows {key}@{}, which is gone", self.0.name, told.version)),
                Some(object) if *object.uid() != *told.uid || *object.version() != told.version => {
                    return Some(format!(
                        "{} knows {key}@{}, but there is {}",
                        self.0.name,
                        told.version,
                        show(object)
                    ));
                }
                Some(_) => {}
            }
        }
        let missing = stored.keys().find(|key| !heard.present.contains_key(**key));
        missing.map(|key| format!("{} never heard of {key}", self.0.name))
    }

    /// After a time without changes: who asked for resyncs has heard of everything, and nobody else of anything.
    pub fn check_quiet(&self, events_before: u64, since: Instant) {
        let heard = self.lock();
        match self.0.plan.resync {
            Some(_) => {
                for (key, told) in heard.present.iter().filter(|(_, told)| told.at < since) {
                    self.fail(format_args!(
                        "asked for resyncs and did not hear of {key}@{} again",
                        told.version
                    ));
                }
            }
            None if heard.events != events_before => {
                self.fail(format_args!("heard {} events when nothing changed", heard.events - events_before));
            }
            None => {}
        }
    }

    /// Nothing may come from now on.
    pub fn removed(&self) {
        self.lock().removed = true;
    }

    pub fn has_synced(&self) -> bool {
        self.lock().synced
    }

    pub fn events(&self) -> u64 {
        self.lock().events
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn resync_period(&self) -> Option<Duration> {
        self.0.plan.resync
    }

    pub fn plan(&self) -> &HandlerPlan {
        &self.0.plan
    }

    pub fn fail(&self, text: std::fmt::Arguments<'_>) {
        self.0.trace.violation(format_args!("{} {text}", self.0.name));
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.heard.lock().expect("panics on purpose come after the lock is released")
    }
}

/// Notes that the callback has returned, or panicked.
struct Returns(Ledger, ObjectKey);

impl Drop for Returns {
    fn drop(&mut self) {
        self.0.lock().returned.insert(self.1.clone());
    }
}

fn told(object: &Entry) -> Told {
    Told { uid: object.uid().to_string(), version: object.version().clone(), at: Instant::now() }
}

fn show(object: &Entry) -> String {
    format!("{}@{} {:.8}", object.key(), object.version(), object.uid())
}
