//! Every state of every object that the server had. An informer must not show any other state.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use kube_informer::Object;
use serde_json::Value;

use super::schedule::{InformerKind, NAMESPACES};

/// The states of each object, by its uid.
#[derive(Clone, Default)]
pub struct Bodies(Arc<Mutex<HashMap<String, Vec<Value>>>>);

impl Bodies {
    /// The server has, or had, this object.
    pub fn note(&self, object: &Value) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let mut bodies = self.0.lock().expect("nobody panics here");
        let states = bodies.entry(uid.to_owned()).or_default();
        if !states.contains(object) {
            states.push(object.clone());
        }
    }

    /// What is wrong with an object, as an informer of this kind shows it; `gone` says that it is the last state of a deleted one.
    pub fn check(&self, object: &Object<Value>, kind: InformerKind, gone: bool) -> Result<(), String> {
        if !object.namespace().is_some_and(|namespace| NAMESPACES.contains(&namespace)) {
            return Ok(());
        }
        let shown = object.get().map_err(|error| format!("{object:?} cannot be read: {error}"))?;
        let bodies = self.0.lock().expect("nobody panics here");
        let states = bodies.get(&*object.uid().to_string()).map(Vec::as_slice).unwrap_or_default();
        let version = object.version().to_string();
        let at = |state: &Value| state["metadata"]["resourceVersion"] == *version;
        // A delete has a version of its own. A version that was garbled on the way is one that the object never had.
        let versioned = !gone && states.iter().any(at);
        let mut candidates = states.iter().filter(|state| !versioned || at(state));
        if candidates.any(|state| difference(shown, state, kind, versioned).is_none()) {
            return Ok(());
        }
        Err(format!("the server never had {object:?} as it is shown: {shown}"))
    }
}

/// The first field in which an object differs from what an informer of this kind makes of the server's.
pub fn difference(
    shown: &Value,
    server: &Value,
    kind: InformerKind,
    versioned: bool,
) -> Option<&'static str> {
    let server = kind.shows(server);
    // A body that was garbled on the way has a field that no config map has.
    ["metadata", "data", "spec"]
        .into_iter()
        .find(|field| !fields(&shown[*field], versioned).eq(fields(&server[*field], versioned)))
}

/// The fields that count, in the order of their names.
fn fields(value: &Value, versioned: bool) -> impl Iterator<Item = (&String, &Value)> {
    let fields = value.as_object().into_iter().flatten();
    fields.filter(move |(name, _)| *name != "managedFields" && (versioned || *name != "resourceVersion"))
}
