//! What is there in the end, a line for each object, and what should be.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::Client;
use kube_client::api::{Api, ListParams};

use super::operator::TEXT;
use super::people::name;
use super::plan::Plan;
use super::ticket;

/// The end that the plan asks for, as [`state`] would say it.
pub fn wanted(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, children) in plan.wanted().into_iter().enumerate() {
        let (Some(children), name) = (children, name(number)) else { continue };
        lines.push(format!("deployment {name}: {children} wanted, {children} there, up to date"));
        lines.push(format!("secret {name}"));
        lines.extend((0..children).map(|slot| format!("config map {name}-{slot} of {name}: {TEXT}")));
        let held = plan.holders().into_iter().enumerate().filter(|(_, holder)| *holder == Some(number));
        let held = held.map(|(number, _)| ticket::child(&name, &ticket::name(number)));
        lines.extend(held.map(|child| format!("config map {child} of {name}: {TEXT}")));
    }
    lines.sort();
    lines
}

/// What is there, a line for each object.
pub async fn state(client: &Client) -> Vec<String> {
    let all = ListParams::default();
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let deployments = deployments.list(&all).await.expect("no fault affects people").items;
    let secrets = secrets.list(&all).await.expect("no fault affects people").items;
    let maps = maps.list(&all).await.expect("no fault affects people").items;

    let mut lines = Vec::new();
    for deployment in &deployments {
        let status = deployment.status.clone().unwrap_or_default();
        let current = status.observed_generation == deployment.metadata.generation;
        lines.push(format!(
            "deployment {}: {} wanted, {} there, {}{}",
            deployment.metadata.name.as_deref().unwrap_or_default(),
            deployment.spec.replicas.unwrap_or(1),
            status.replicas.unwrap_or(-1),
            if current { "up to date" } else { "not up to date" },
            if deployment.metadata.deletion_timestamp.is_some() { ", being deleted" } else { "" },
        ));
    }
    lines.extend(
        secrets
            .iter()
            .map(|secret| format!("secret {}", secret.metadata.name.as_deref().unwrap_or_default())),
    );
    for map in &maps {
        let owner = map.metadata.owner_references.iter().flatten().next();
        let alive = deployments
            .iter()
            .find(|deployment| deployment.metadata.uid.as_deref() == owner.map(|owner| owner.uid.as_str()));
        lines.push(format!(
            "config map {} of {}: {}",
            map.metadata.name.as_deref().unwrap_or_default(),
            alive.and_then(|owner| owner.metadata.name.as_deref()).unwrap_or("nobody"),
            map.data.as_ref().and_then(|data| data.get("text")).map_or("empty", String::as_str),
        ));
    }
    lines.sort();
    lines
}
