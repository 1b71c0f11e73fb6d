//! What a cluster's controllers would do: garbage collection by owner, and the end of namespaces and definitions.
//!
//! Writes leave behind which objects to look at. One task works that off, one object at a time, and ends when there is
//! nothing left: on a paused clock it runs at the same place every time, and it holds the server only weakly.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::core::Core;
use crate::crd;
use crate::delete::{DeleteOptions, FOREGROUND, ORPHAN, delete_object};
use crate::kinds::Kind;
use crate::list::select;
use crate::object::{Object, Stored, finalizers, meta, meta_mut, uid_of};
use crate::selection::Selection;
use crate::storage::Store;
use crate::update;

/// The task, while there is one.
#[derive(Debug, Default)]
pub(crate) struct Background {
    task: Mutex<Option<AbortHandle>>,
}

impl Background {
    /// Starts the work that a write left behind, unless it is under way.
    pub(crate) fn kick(&self, core: &Arc<Core>) {
        if !core.store().has_pending() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // Without a runtime there is no later: do it now.
            while step(core) {}
            return;
        };
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let weak = Arc::downgrade(core);
        let handle = runtime.spawn(async move {
            loop {
                tokio::task::yield_now().await;
                let Some(core) = weak.upgrade() else { return };
                if !step(&core) {
                    // Under the lock, so that whoever leaves work behind after this starts a new task.
                    let mut task = core.background.task.lock().unwrap_or_else(PoisonError::into_inner);
                    if !core.store().has_pending() {
                        *task = None;
                        return;
                    }
                }
            }
        });
        *task = Some(handle.abort_handle());
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// Looks at one object; false if there was none to look at.
fn step(core: &Core) -> bool {
    let mut store = core.store();
    let Some((id, key)) = store.next_pending() else { return false };
    let Some(kind) = store.kind_by_id(&id) else { return true };
    let Some(stored) = store.get(&kind, &key).cloned() else { return true };
    if stored.deleting && kind.is("", "namespaces") {
        end_namespace(core, &mut store, &kind, &stored);
    } else if stored.deleting && crd::is_definition(&kind) {
        end_definition(core, &mut store, &kind, &stored);
    }
    if core.config.garbage_collection {
        collect(core, &mut store, &kind, &stored);
    }
    true
}

/// Deletes what is in a namespace, and the namespace once it is empty.
fn end_namespace(core: &Core, store: &mut Store, kind: &Kind, namespace: &Arc<Stored>) {
    let selection = Selection::namespace(&namespace.key);
    let ids: BTreeSet<_> = store.tables().map(|(id, _)| id.clone()).collect();
    let mut empty = true;
    for id in ids {
        let Some(kind) = store.kind_by_id(&id).filter(|kind| kind.namespaced) else { continue };
        let objects = store.objects(&kind);
        for stored in select(&objects, &selection, None) {
            // No kubelet will ever say that a pod has ended, so nothing waits for one.
            let deleted = delete_object(core, store, &kind, &stored.key, &DeleteOptions::now());
            empty &= deleted.is_ok_and(|deleted| deleted.gone);
        }
    }
    if empty {
        edit(store, kind, &namespace.key, |object| {
            object.insert("spec".to_owned(), json!({}));
        });
    }
}

/// Deletes the objects of a custom kind, and its definition once there are none.
fn end_definition(core: &Core, store: &mut Store, kind: &Kind, definition: &Arc<Stored>) {
    let object = definition.parse();
    let (group, resource) = crd::names(&object);
    let mut empty = true;
    if let Some(custom) = store.kind(group, resource).filter(|kind| kind.custom.is_some()) {
        let objects = store.objects(&custom);
        for stored in select(&objects, &Selection::default(), None) {
            let deleted = delete_object(core, store, &custom, &stored.key, &DeleteOptions::now());
            empty &= deleted.is_ok_and(|deleted| deleted.gone);
        }
    }
    if empty {
        store.undefine(group, resource);
        remove_finalizer(store, kind, &definition.key, crd::FINALIZER);
    }
}

/// Deletes what has lost all its owners, and does what a deletion's propagation policy asks for.
fn collect(core: &Core, store: &mut Store, kind: &Kind, stored: &Arc<Stored>) {
    if !stored.deleting {
        let orphaned = !stored.owners.is_empty() && !stored.owners.iter().any(|&uid| store.uid_exists(uid));
        if orphaned {
            // Only a precondition can refuse this, and there is none.
            let _ = delete_object(core, store, kind, &stored.key, &DeleteOptions::with_policy("Background"));
        }
        return;
    }
    let object = stored.parse();
    let waiting = meta(&object).map(finalizers).unwrap_or_default();
    let dependents = store.dependents(stored.uid);
    if waiting.contains(&FOREGROUND) {
        for (id, key) in &dependents {
            let Some(kind) = store.kind_by_id(id) else { continue };
            if store.get(&kind, key).is_some_and(|dependent| !dependent.deleting) {
                let policy = DeleteOptions::with_policy("Foreground");
                let _ = delete_object(core, store, &kind, key, &policy);
            }
        }
        if store.dependents(stored.uid).is_empty() {
            remove_finalizer(store, kind, &stored.key, FOREGROUND);
        }
    } else if waiting.contains(&ORPHAN) {
        for (id, key) in &dependents {
            let Some(kind) = store.kind_by_id(id) else { continue };
            edit(store, &kind, key, |object| disown(object, stored.uid));
        }
        remove_finalizer(store, kind, &stored.key, ORPHAN);
    }
}

fn disown(object: &mut Object, owner: u128) {
    let metadata = meta_mut(object);
    let references = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
    let Some(references) = references else { return };
    references.retain(|reference| uid_of(reference.get("uid")) != Some(owner));
    if references.is_empty() {
        metadata.remove("ownerReferences");
    }
}

fn remove_finalizer(store: &mut Store, kind: &Kind, key: &Arc<str>, finalizer: &str) {
    edit(store, kind, key, |object| {
        let metadata = meta_mut(object);
        if let Some(list) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
            list.retain(|name| name != finalizer);
            if list.is_empty() {
                metadata.remove("finalizers");
            }
        }
    });
}

/// Changes an object, and removes it if that was all it waited for.
fn edit(store: &mut Store, kind: &Kind, key: &Arc<str>, change: impl FnOnce(&mut Object)) {
    let Some(stored) = store.get(kind, key).cloned() else { return };
    let mut object = stored.parse();
    change(&mut object);
    if update::is_finished(&object) {
        update::remove(store, kind, key, &object);
    } else {
        store.put(kind, key, &object);
    }
}
