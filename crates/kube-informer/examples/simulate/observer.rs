//! Looks at every state of a store.

use std::sync::{Arc, Mutex};

use kube_informer::reflector::ReflectorStatus;
use kube_informer::{SharedInformer, Snapshot};
use serde_json::Value;

use super::checker;
use super::schedule::InformerKind;
use super::trace::Trace;
use super::truth::History;

/// Who looks at one store.
pub struct Observer {
    pub kind: InformerKind,
    pub informer: SharedInformer<Value>,
    pub history: Option<History>,
    pub first: Arc<Mutex<Option<Snapshot<Value>>>>,
    pub observed: Arc<Mutex<u64>>,
    pub trace: Trace,
    pub number: u64,
}

/// Looks at every state that the store is in.
pub async fn observe(observer: Observer) {
    let Observer { kind, informer, history, first, observed, trace, number } = observer;
    let look = |snapshot: &Snapshot<Value>| {
        *observed.lock().expect("no panic") += 1;
        let versions: Vec<String> = checker::scopes()
            .filter_map(|scope| snapshot.version_of(&scope).map(|version| format!("{version}")))
            .collect();
        trace.line(format_args!("store {number} has {} objects at {}", snapshot.len(), versions.join(" ")));
        let mut checked = checker::check_indexes(snapshot);
        if let (Ok(()), Some(history)) = (&checked, &history) {
            checked = checker::check_version(snapshot, kind, history);
        }
        if let Err(wrong) = checked {
            trace.violation(format_args!("store {number} ({kind:?}): {wrong}"));
        }
        if informer.has_synced() {
            let listed = |status: &ReflectorStatus| snapshot.version_of(&status.scope).is_some();
            let fixed = kind != InformerKind::Changing;
            if fixed && first.lock().expect("no panic").is_none() && !informer.status().iter().all(listed) {
                trace.violation(format_args!("informer {number} has synced before all its lists have come"));
            }
            first.lock().expect("no panic").get_or_insert_with(|| snapshot.clone());
        }
        false
    };
    informer.wait_for(look).await;
}
