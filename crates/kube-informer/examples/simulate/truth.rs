//! The server's own truth: writes that no fault befalls, and what every version of the server was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use kube_informer::ObjectKey;
use kube_informer_apiserver::{ApiServer, Backup};
use serde_json::{Value, json};

use super::bodies::Bodies;
use super::resource::Resource;
use super::schedule::{NAMESPACES, OBJECTS, object_key};

/// One object as the server has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    pub uid: String,
    pub version: u64,
    pub web: bool,
}

/// How many states are kept of those that making a crowd goes through. A stale replica is at most this old.
const REMEMBERED: u64 = 20;

/// Each state from its version on, as far as somebody wrote it down.
type States = Vec<(u64, Option<Arc<Facts>>)>;

pub type Facts = BTreeMap<ObjectKey, Fact>;

/// Every state of the objects of a kind, by the server's version.
#[derive(Clone)]
pub struct History(Arc<Mutex<States>>);

impl Default for History {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(vec![(0, Some(Arc::default()))])))
    }
}

impl History {
    /// What the server had at a version; `None` for versions that nobody wrote down.
    pub fn at(&self, version: u64) -> Option<Arc<Facts>> {
        let states = self.0.lock().expect("nobody panics here");
        let after = states.partition_point(|(revision, _)| *revision <= version);
        states.get(after.checked_sub(1)?).and_then(|(_, facts)| facts.clone())
    }

    fn now(&self) -> Arc<Facts> {
        self.at(u64::MAX).expect("there is a first state")
    }

    fn push(&self, revision: u64, facts: Facts) {
        self.0.lock().expect("nobody panics here").push((revision, Some(Arc::new(facts))));
    }

    /// Marks the states from this revision on as unknown, until the next one is pushed.
    fn skip(&self, revision: u64) {
        self.0.lock().expect("nobody panics here").push((revision, None));
    }

    fn restart(&self, revision: u64, facts: Facts) {
        *self.0.lock().expect("nobody panics here") = vec![(revision, Some(Arc::new(facts)))];
    }
}

/// Writes to the server past its faults, and remembers each state by its version.
pub struct Truth {
    server: ApiServer,
    config_maps: History,
    leases: History,
    pub bodies: Bodies,
    backup: Option<Backup>,
    writes: u64,
    /// How many writes the server took.
    pub changes: u64,
}

impl Truth {
    pub fn new(server: ApiServer) -> Self {
        Self {
            server,
            config_maps: History::default(),
            leases: History::default(),
            bodies: Bodies::default(),
            backup: None,
            writes: 0,
            changes: 0,
        }
    }

    /// Every state of the objects of a kind.
    pub fn history(&self, resource: Resource) -> &History {
        match resource {
            Resource::ConfigMaps => &self.config_maps,
            Resource::Leases => &self.leases,
        }
    }

    pub async fn create_namespace(&mut self, name: &str) {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.request(Method::POST, "/api/v1/namespaces", Some(body)).await.expect("a new namespace");
    }

    /// Makes an object; false if there is one.
    pub async fn create(&mut self, object: u64, web: bool) -> bool {
        let (resource, key) = (Resource::of(object), object_key(object));
        let body = self.body(resource, key.name(), web);
        self.send(Method::POST, resource, &key, Some(body)).await
    }

    /// Creates or changes the first `objects` objects of the crowd.
    pub async fn crowd(&mut self, objects: u64, bytes: usize) {
        let mut facts = Facts::clone(&self.config_maps.now());
        if objects > REMEMBERED {
            self.config_maps.skip(self.server.revision() + 1);
        }
        for number in 0..objects {
            let namespace = NAMESPACES[(number % NAMESPACES.len() as u64) as usize];
            let name = format!("crowd-{number}");
            let mut body = self.body(Resource::ConfigMaps, &name, number % 2 == 0);
            body["data"]["fill"] = "x".repeat(bytes).into();
            let path = Resource::ConfigMaps.path(Some(namespace));
            let is_new = !facts.contains_key(&ObjectKey::new(namespace, &name));
            let (method, path) =
                if is_new { (Method::POST, path) } else { (Method::PUT, format!("{path}/{name}")) };
            let Some(answer) = self.request(method, &path, Some(body)).await else { continue };
            self.bodies.note(&answer);
            facts.insert(key_of(&answer), fact(&answer));
            self.changes += 1;
            if objects - number <= REMEMBERED {
                self.config_maps.push(self.server.revision(), facts.clone());
            }
        }
    }

    pub async fn update(&mut self, object: u64, web: bool) -> bool {
        let (resource, key) = (Resource::of(object), object_key(object));
        let body = self.body(resource, key.name(), web);
        self.send(Method::PUT, resource, &key, Some(body)).await
    }

    pub async fn delete(&mut self, object: u64) -> bool {
        self.send(Method::DELETE, Resource::of(object), &object_key(object), None).await
    }

    /// Changes these objects, so that an informer that could not read them reads them again.
    pub async fn touch(&mut self, resource: Resource, keys: &BTreeSet<ObjectKey>) {
        for key in keys {
            if let Some(fact) = self.history(resource).now().get(key).cloned() {
                let body = self.body(resource, key.name(), fact.web);
                self.send(Method::PUT, resource, key, Some(body)).await;
            }
        }
    }

    pub fn backup(&mut self) {
        self.backup = Some(self.server.backup());
    }

    /// Brings the last backup back, and versions go back with it; then writes.
    pub async fn restore(&mut self, writes: u64) {
        let Some(backup) = &self.backup else { return };
        self.server.restore(backup);
        self.read_back().await;
        for write in 0..writes {
            let resource = Resource::ALL[usize::from(write % 4 == 3)];
            let (object, web) = (resource.number(write * 5 % OBJECTS), write % 2 == 0);
            if !self.update(object, web).await {
                self.create(object, web).await;
            }
        }
    }

    /// All objects of a kind now, as the server lists them to somebody without faults.
    pub async fn list(&self, resource: Resource) -> BTreeMap<ObjectKey, Value> {
        let answer = self.request(Method::GET, &resource.path(None), None).await.unwrap_or_default();
        let items = answer["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().map(|item| (key_of(&item), item)).collect()
    }

    fn body(&mut self, resource: Resource, name: &str, web: bool) -> Value {
        self.writes += 1;
        let app = if web { "web" } else { "db" };
        let labels = json!({"app": app, "turn": (self.writes % 5).to_string()});
        resource.body(name, &labels, &self.writes.to_string())
    }

    async fn send(
        &mut self,
        method: Method,
        resource: Resource,
        key: &ObjectKey,
        mut body: Option<Value>,
    ) -> bool {
        let mut facts = Facts::clone(&self.history(resource).now());
        let mut path = resource.path(key.namespace());
        if method != Method::POST {
            path = format!("{path}/{}", key.name());
        }
        // Some kinds are never overwritten by somebody who does not know them.
        if let (Some(body), Some(known)) = (&mut body, facts.get(key)) {
            body["metadata"]["resourceVersion"] = known.version.to_string().into();
        }
        let delete = method == Method::DELETE;
        let Some(answer) = self.request(method, &path, body).await else { return false };
        if delete {
            facts.remove(key);
        } else {
            self.bodies.note(&answer);
            facts.insert(key_of(&answer), fact(&answer));
        }
        self.history(resource).push(self.server.revision(), facts);
        self.changes += 1;
        true
    }

    /// Begins again with what the server has, after something else than a write of ours changed it.
    pub async fn read_back(&mut self) {
        for resource in Resource::ALL {
            let objects = self.list(resource).await;
            for object in objects.values() {
                self.bodies.note(object);
            }
            let facts = objects.iter().map(|(key, object)| (key.clone(), fact(object))).collect();
            self.history(resource).restart(self.server.revision(), facts);
        }
    }

    async fn request(&self, method: Method, path: &str, body: Option<Value>) -> Option<Value> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(Full::new(body)).expect("a plain request");
        let response = self.server.handle(request).await;
        let success = response.status().is_success();
        let bytes = response.into_body().collect().await.ok()?.to_bytes();
        success.then(|| serde_json::from_slice(&bytes).expect("the server sends JSON"))
    }
}

fn key_of(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

fn fact(object: &Value) -> Fact {
    let metadata = &object["metadata"];
    Fact {
        uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
        version: metadata["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default(),
        web: metadata["labels"]["app"] == "web",
    }
}
