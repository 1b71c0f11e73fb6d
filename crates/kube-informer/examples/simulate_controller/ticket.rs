//! Tickets: objects of a custom kind that the controller watches and does not own.
//!
//! Two labels say everything: the holder, which is the deployment that gets a child for the ticket, and whether it is on.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Client;
use kube_client::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube_informer::object::Entry;
use kube_informer::{InformerOptions, Kind, ObjectKey, SharedInformer, SharedInformerFactory};
use serde_json::{Value, json};

pub const RESOURCE: &str = "tickets.example.com";

pub fn name(number: usize) -> String {
    format!("t{number}")
}

/// The child that the holder of a ticket has for it.
pub fn child(holder: &str, ticket: &str) -> String {
    format!("{holder}-{ticket}")
}

pub fn holder(ticket: &Entry) -> &str {
    ticket.label("holder").unwrap_or_default()
}

pub fn is_on(ticket: &Entry) -> bool {
    ticket.label("on") == Some("yes")
}

/// The key that a ticket concerns.
pub fn concerns(ticket: &Entry) -> ObjectKey {
    ObjectKey::namespaced("default", holder(ticket))
}

pub fn labels(holder: &str, on: bool) -> Value {
    json!({"holder": holder, "on": if on { "yes" } else { "no" }})
}

pub fn informer(factory: &SharedInformerFactory, options: InformerOptions) -> SharedInformer<Value> {
    let kind = Kind::new("example.com/v1", "Ticket", "tickets", true);
    factory.informer_of(kind, options).expect("one set of options for all")
}

pub fn api(client: &Client) -> (Api<DynamicObject>, ApiResource) {
    let kind = GroupVersionKind::gvk("example.com", "v1", "Ticket");
    let resource = ApiResource::from_gvk_with_plural(&kind, "tickets");
    (Api::default_namespaced_with(client.clone(), &resource), resource)
}

/// Installs the kind.
pub async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "metadata": {"name": RESOURCE},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "tickets", "kind": "Ticket"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let definition = serde_json::from_value(definition).expect("a definition");
    definitions.create(&PostParams::default(), &definition).await.expect("no fault affects people");
}
