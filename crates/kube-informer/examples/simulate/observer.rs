//! Looks at every state of a store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use kube_informer::delta_fifo::Scope;
use kube_informer::object::Entry;
use kube_informer::reflector::ReflectorStatus;
use kube_informer::{Object, ObjectKey, SharedInformer, Snapshot};
use serde_json::Value;

use super::bodies::Bodies;
use super::checker;
use super::schedule::InformerKind;
use super::trace::Trace;
use super::truth::History;

/// Who looks at one store.
pub struct Observer {
    pub kind: InformerKind,
    pub informer: SharedInformer<Value>,
    pub history: Option<History>,
    pub bodies: Option<Bodies>,
    /// Whether a version may be accepted that was garbled on the way.
    pub garbled: bool,
    /// Every how many states one is checked as a whole.
    pub one_in: u64,
    pub first: Arc<Mutex<First>>,
    pub observed: Arc<Mutex<u64>>,
    pub trace: Trace,
    pub number: u64,
}

/// The first list of every scope, as the store had it.
#[derive(Default)]
pub struct First {
    pub objects: Vec<Arc<Entry>>,
    listed: Vec<Scope>,
    pub synced: bool,
    /// The newest version of any scope when all of them had been listed.
    pub reached: u64,
}

impl First {
    /// Takes the objects of the scopes that were not listed before. What a watch adds to them before the other scopes are listed
    /// is not part of a first list.
    fn look(&mut self, snapshot: &Snapshot<Value>) {
        for scope in checker::scopes() {
            if snapshot.version_of(&scope).is_some() && !self.listed.contains(&scope) {
                let listed = snapshot.iter().filter(|entry| scope.contains(entry.key()));
                self.objects.extend(listed.cloned());
                self.listed.push(scope);
            }
        }
    }
}

/// Whether the server had the objects that were not there in the state that was looked at before.
fn check_new(
    snapshot: &Snapshot<Value>,
    seen: &mut HashMap<ObjectKey, Arc<Entry>>,
    bodies: &Bodies,
    kind: InformerKind,
) -> Result<(), String> {
    for entry in snapshot.iter() {
        let known = seen.get(entry.key()).is_some_and(|known| Arc::ptr_eq(known, entry));
        if !known {
            bodies.check(&Object::from(Arc::clone(entry)), kind, false)?;
            seen.insert(entry.key().clone(), Arc::clone(entry));
        }
    }
    Ok(())
}

/// Looks at every state that the store is in.
pub async fn observe(observer: Observer) {
    let Observer { kind, informer, history, bodies, garbled, one_in, first, observed, trace, number } =
        observer;
    let mut seen: HashMap<ObjectKey, Arc<Entry>> = HashMap::new();
    let look = |snapshot: &Snapshot<Value>| {
        let looked = {
            let mut observed = observed.lock().expect("no panic");
            *observed += 1;
            *observed
        };
        let versions: Vec<String> = checker::scopes()
            .filter_map(|scope| snapshot.version_of(&scope).map(|version| format!("{version}")))
            .collect();
        trace.line(format_args!("store {number} has {} objects at {}", snapshot.len(), versions.join(" ")));
        let mut checked = Ok(());
        if looked % one_in == 0 {
            checked = checker::check_indexes(snapshot);
            if let (Ok(()), Some(history)) = (&checked, &history) {
                checked = checker::check_version(snapshot, kind, history, garbled);
            }
            if let (Ok(()), Some(bodies)) = (&checked, &bodies) {
                checked = check_new(snapshot, &mut seen, bodies, kind);
            }
        }
        if let Err(wrong) = checked {
            trace.violation(format_args!("store {number} ({kind:?}): {wrong}"));
        }
        let mut first = first.lock().expect("no panic");
        if first.synced {
            return false;
        }
        first.look(snapshot);
        if informer.has_synced() {
            let listed = |status: &ReflectorStatus| snapshot.version_of(&status.scope).is_some();
            let fixed = kind != InformerKind::Changing;
            if fixed && !informer.status().iter().all(listed) {
                trace.violation(format_args!("informer {number} has synced before all its lists have come"));
            }
            let versions = checker::scopes().filter_map(|scope| snapshot.version_of(&scope)?.as_u64());
            first.reached = versions.max().unwrap_or(u64::MAX);
            first.synced = true;
        }
        false
    };
    informer.wait_for(look).await;
}
