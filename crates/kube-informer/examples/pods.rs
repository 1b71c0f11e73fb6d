//! Watches pods and logs what happens to them: `added`, `updated old → new`, `deleted`.
//!
//! ```text
//! cargo run -p kube-informer --example pods                      # a scripted minute in the life of an embedded server
//! cargo run -p kube-informer --example pods -- --cluster         # the cluster kubectl talks to, until Ctrl-C
//! cargo run -p kube-informer --example pods -- --kubeconfig PATH
//! ```

mod common;

use common::{Cluster, Error};
use k8s_openapi::api::core::v1::Pod;
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube_informer::{Deleted, EventHandler, Object, SharedInformer, SharedInformerFactory};
use kube_informer_apiserver::ApiServer;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let cluster = Cluster::from_arguments(&mut arguments)?;
    if !arguments.is_empty() {
        return Err(format!("what is {arguments:?}? Try --cluster or --kubeconfig PATH, or nothing").into());
    }
    match cluster.client().await? {
        Some(client) => {
            let factory = SharedInformerFactory::new(client);
            // The handler goes on until the factory shuts down, so nobody need hold its registration.
            factory.informer::<Pod>().add_handler(Log).detach();
            factory.start();
            tokio::signal::ctrl_c().await?;
            factory.shutdown().await?;
        }
        None => scripted().await?,
    }
    Ok(())
}

/// The same with a server of our own, and somebody who changes things: ends by itself.
async fn scripted() -> Result<(), Error> {
    let server = ApiServer::new();
    let api: Api<Pod> = Api::default_namespaced(server.client());
    api.create(&PostParams::default(), &pod("before")?).await?;

    let factory = SharedInformerFactory::new(server.client());
    let pods = factory.informer::<Pod>();
    let log = pods.add_handler(Log);
    factory.start();
    factory.wait_for_sync().await?;

    api.create(&PostParams::default(), &pod("web-0")?).await?;
    wait_until(&pods, |pod| pod.is_some()).await;
    let image = json!({"spec": {"containers": [{"name": "main", "image": "web:2"}]}});
    api.patch("web-0", &PatchParams::default(), &Patch::Merge(&image)).await?;
    wait_until(&pods, |pod| pod.is_some_and(|pod| phase_and_image(&pod).ends_with("web:2"))).await;
    api.delete("web-0", &DeleteParams::default()).await?;
    wait_until(&pods, |pod| pod.is_none()).await;

    // The store has it all; so does the log, once what waits for it is delivered.
    log.close().await;
    factory.shutdown().await?;
    Ok(())
}

/// Prints a line for every change.
struct Log;

impl EventHandler<Pod> for Log {
    async fn on_add(&mut self, pod: Object<Pod>, initial: bool) {
        let found = if initial { " (was there)" } else { "" };
        println!("added    {} {}{found}", pod.key(), phase_and_image(&pod));
    }

    async fn on_update(&mut self, old: Object<Pod>, new: Object<Pod>) {
        let (from, to) = (phase_and_image(&old), phase_and_image(&new));
        println!("updated  {} {} {from} → {} {to}", new.key(), old.version(), new.version());
    }

    async fn on_delete(&mut self, deleted: Deleted<Pod>) {
        let missed = if deleted.final_state_unknown { " (its end was missed)" } else { "" };
        println!("deleted  {}{missed}", deleted.object.key());
    }
}

/// What a pod does and runs. Only this decodes the pod: its key and version are there without.
fn phase_and_image(pod: &Object<Pod>) -> String {
    let pod = match pod.get() {
        Ok(pod) => pod,
        Err(error) => return format!("({error})"),
    };
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("-");
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let images: Vec<&str> = containers.filter_map(|container| container.image.as_deref()).collect();
    format!("{phase} {}", images.join(","))
}

/// Waits until the informer's copy of the pod is as wanted.
async fn wait_until(pods: &SharedInformer<Pod>, wanted: impl Fn(Option<Object<Pod>>) -> bool) {
    pods.wait_for(|snapshot| wanted(snapshot.get("default/web-0"))).await;
}

fn pod(name: &str) -> Result<Pod, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "web:1"}]},
    }))
}
