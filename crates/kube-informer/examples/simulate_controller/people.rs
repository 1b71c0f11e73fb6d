//! What people do to the objects: they follow their stories, and no fault affects them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube_client::{Client, Error};
use serde_json::{Value, json};

use super::judge::Judge;
use super::plan::{Step, Turn};
use super::ticket;

pub fn name(number: usize) -> String {
    format!("web{number}")
}

/// Does to an object what its story says.
pub async fn tell(client: Client, name: String, story: Vec<Step>, judge: Arc<Judge>) {
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let merge = |patch: Value| {
        let api = &api;
        let name = &name;
        async move { api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await }
    };
    let (mut uid, mut children) = (String::new(), 0);
    let take = |uid: &str, slot: usize| judge.taken(Some(uid), format!("{name}-{slot}"));
    for step in story {
        match step {
            Step::Rest(time) => tokio::time::sleep(time).await,
            Step::Create(count) => {
                uid = create(&api, &deployment(&name, count)).await;
                children = count;
            }
            Step::Scale(count) => {
                (count..children).for_each(|slot| take(&uid, slot));
                children = count;
                merge(json!({"spec": {"replicas": count}})).await.expect("it is there");
            }
            Step::Storm { changes, every } => {
                for change in 0..changes {
                    let note = json!({"metadata": {"annotations": {"storm": change.to_string()}}});
                    merge(note).await.expect("it is there");
                    tokio::time::sleep(every).await;
                }
            }
            Step::RemoveChild(slot) => {
                take(&uid, slot);
                let _ = maps.delete(&format!("{name}-{slot}"), &DeleteParams::default()).await;
            }
            Step::SpoilChild(slot) => {
                let patch = Patch::Merge(json!({"data": {"text": "spoilt"}}));
                let _ = maps.patch(&format!("{name}-{slot}"), &PatchParams::default(), &patch).await;
            }
            Step::GiveChild { slot, to, every } => {
                for owner in to {
                    take(&uid, slot);
                    give(&maps, &format!("{name}-{slot}"), &api, &self::name(owner)).await;
                    tokio::time::sleep(every).await;
                }
            }
            Step::Delete => {
                api.delete(&name, &DeleteParams::default()).await.expect("it is there");
            }
        }
    }
}

/// Creates an object as soon as the last one of its name is gone, and gives its uid.
async fn create(api: &Api<Deployment>, object: &Deployment) -> String {
    loop {
        match api.create(&PostParams::default(), object).await {
            Ok(created) => return created.metadata.uid.expect("the server gives one"),
            // The last one of this name still has its finalizer.
            Err(Error::Api(status)) if status.code == 409 => {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Err(error) => panic!("no fault affects people: {error}"),
        }
    }
}

/// Makes a child that of another owner, if both are there.
async fn give(maps: &Api<ConfigMap>, child: &str, api: &Api<Deployment>, owner: &str) {
    let Ok(Some(owner)) = api.get_opt(owner).await else { return };
    let owners = json!([{
        "apiVersion": "apps/v1", "kind": "Deployment", "name": owner.metadata.name, "uid": owner.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
    let _ = maps.patch(child, &PatchParams::default(), &patch).await;
}

/// Does to a ticket what its story says.
pub async fn pass_on(client: Client, name: String, turns: Vec<Turn>, judge: Arc<Judge>) {
    let (api, resource) = ticket::api(&client);
    let merge = |metadata: Value| {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let (api, name) = (&api, &name);
        async move { api.patch(name, &PatchParams::default(), &patch).await.expect("it is there") }
    };
    let leave = |holder: Option<usize>| {
        if let Some(holder) = holder {
            judge.taken(None, ticket::child(&self::name(holder), &name));
        }
    };
    let mut holder = None;
    for (turn_number, turn) in turns.into_iter().enumerate() {
        match turn {
            Turn::Rest(time) => tokio::time::sleep(time).await,
            Turn::Pass { to, every } => {
                for next in to {
                    leave(holder);
                    if holder.is_none() {
                        let mut created = DynamicObject::new(&name, &resource);
                        let labels = ticket::labels(&self::name(next), true);
                        created.metadata.labels = serde_json::from_value(labels).expect("labels");
                        api.create(&PostParams::default(), &created).await.expect("no fault affects people");
                    } else {
                        merge(json!({"labels": {"holder": self::name(next)}})).await;
                    }
                    holder = Some(next);
                    tokio::time::sleep(every).await;
                }
            }
            Turn::Blink { times, every } => {
                for _ in 0..times {
                    for on in ["no", "yes"] {
                        leave(holder);
                        merge(json!({"labels": {"on": on}})).await;
                        tokio::time::sleep(every).await;
                    }
                }
            }
            Turn::SwitchOff => {
                leave(holder);
                merge(json!({"labels": {"on": "no"}})).await;
            }
            Turn::Note(times) => {
                for time in 0..times {
                    merge(json!({"annotations": {"note": format!("{turn_number} {time}")}})).await;
                }
            }
            Turn::Remove => {
                leave(holder.take());
                api.delete(&name, &DeleteParams::default()).await.expect("it is there");
            }
        }
    }
}

fn deployment(name: &str, replicas: usize) -> Deployment {
    let labels = json!({"app": name});
    let object = json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}},
        },
    });
    serde_json::from_value(object).expect("a deployment")
}
