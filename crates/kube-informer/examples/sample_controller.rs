//! A controller for a custom resource, as Kubernetes' own sample does it: a `Foo` asks for a `Deployment` of a name and a
//! number of replicas, and its status says how many there are.
//!
//! `cargo run -p kube-informer --example sample_controller` plays a short story on a server inside the process and ends by
//! itself. `-- --kubeconfig PATH` runs it against a cluster until Ctrl-C, where `kubectl` tells the story; it installs the
//! definition of `Foo` there.
#![allow(clippy::disallowed_names, reason = "the resource is called so")]

use std::error::Error;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_client::config::KubeConfigOptions;
use kube_client::{Client, Config};
use kube_informer::controller::{Action, Context, Failure, Request};
use kube_informer::object::DecodeError;
use kube_informer::{Controller, Object, SharedInformerFactory};
use kube_informer_apiserver::ApiServer;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The custom resource, typed by hand; `kube-derive` would write the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Foo {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: FooSpec,
    status: Option<FooStatus>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FooSpec {
    deployment_name: String,
    replicas: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FooStatus {
    available_replicas: i32,
    message: String,
}

impl k8s_openapi::Resource for Foo {
    const API_VERSION: &'static str = "samplecontroller.example.com/v1";
    const GROUP: &'static str = "samplecontroller.example.com";
    const KIND: &'static str = "Foo";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "foos";
    type Scope = k8s_openapi::NamespaceResourceScope;
}

impl k8s_openapi::Metadata for Foo {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--kubeconfig") {
        let path = arguments.get(at + 1).ok_or("--kubeconfig needs a path")?;
        let kubeconfig = kube_client::config::Kubeconfig::read_from(path)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = kube_informer::source::client_for_informers(config)?;
        println!("Watching for Foos. Create one with kubectl; Ctrl-C ends.");
        println!(
            "Where no controller manager runs, a Deployment stays when its Foo goes: nobody collects it."
        );
        return run(client, async { drop(tokio::signal::ctrl_c().await) }).await;
    }
    play().await
}

/// The controller and a story for it, on a server of their own.
pub async fn play() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::builder().seed(1).build();
    let (ended, end) = tokio::sync::oneshot::channel();
    let story = tokio::spawn(story(server.client(), ended));
    run(server.client(), async { drop(end.await) }).await?;
    story.await?.map_err(|error| error as Box<dyn Error>)
}

/// Installs the definition and reconciles until told to stop.
async fn run(client: Client, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), Box<dyn Error>> {
    install(&client).await?;
    let factory = SharedInformerFactory::new(client.clone());
    let deployments = factory.informer::<Deployment>();
    let owned = deployments.lister();
    let controller =
        Controller::new(factory.informer::<Foo>()).owns(deployments).workers(2).shutdown_on(stop);
    controller
        .run(move |request, context| reconcile(client.clone(), owned.clone(), request, context))
        .await?;
    factory.shutdown().await?;
    Ok(())
}

async fn reconcile(
    client: Client,
    deployments: kube_informer::Lister<Deployment>,
    request: Request,
    context: Context<Foo>,
) -> Result<Action, Failure> {
    let Some(foo) = context.get(&request) else {
        println!("{}: gone; its deployment is left to the garbage collector", request.key);
        return Ok(Action::done());
    };
    let namespace = request.key.namespace().unwrap_or_default();
    let spec = &foo.get().map_err(unreadable)?.spec;
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let Some(deployment) = deployments.namespace(namespace).get(&spec.deployment_name) else {
        println!("{}: creates deployment {}", request.key, spec.deployment_name);
        match api.create(&PostParams::default(), &deployment_for(&foo, spec)?).await {
            Ok(_) => return Ok(Action::done()),
            // Our copy is behind: the deployment is on its way to us.
            Err(kube_client::Error::Api(status)) if status.reason == "AlreadyExists" => {
                return Ok(Action::requeue_after(Duration::from_secs(1)));
            }
            Err(error) => return Err(error.into()),
        }
    };
    if deployment.controller().is_none_or(|owner| owner.uid != *foo.uid()) {
        println!(
            "{}: will not adopt deployment {}, which it does not own",
            request.key, spec.deployment_name
        );
        let message = format!("deployment {} exists and is not managed by this Foo", spec.deployment_name);
        return report(&client, &foo, FooStatus { available_replicas: 0, message }).await;
    }
    let current = deployment.get().map_err(unreadable)?;
    let replicas = current.spec.replicas.unwrap_or(1);
    if replicas != spec.replicas {
        println!(
            "{}: scales deployment {} from {replicas} to {}",
            request.key, spec.deployment_name, spec.replicas
        );
        let patch = json!({"spec": {"replicas": spec.replicas}});
        api.patch(&spec.deployment_name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    let available = current.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
    report(&client, &foo, FooStatus { available_replicas: available, message: "synced".into() }).await
}

/// An object that cannot be read is not read any better by trying again; it will be when it changes.
fn unreadable(error: DecodeError) -> Failure {
    Failure::terminal(error)
}

/// Writes the status, if it is not what it should be.
async fn report(client: &Client, foo: &Object<Foo>, status: FooStatus) -> Result<Action, Failure> {
    let written = foo.get().map_err(unreadable)?.status.as_ref() == Some(&status);
    if !written {
        let api: Api<Foo> = Api::namespaced(client.clone(), foo.namespace().unwrap_or_default());
        let patch = json!({"status": status});
        api.patch_status(foo.name(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    Ok(Action::done())
}

fn deployment_for(foo: &Object<Foo>, spec: &FooSpec) -> serde_json::Result<Deployment> {
    let labels = json!({"app": "nginx", "controller": foo.name()});
    serde_json::from_value(json!({
        "metadata": {
            "name": spec.deployment_name,
            "namespace": foo.namespace(),
            "ownerReferences": [{
                "apiVersion": "samplecontroller.example.com/v1", "kind": "Foo", "name": foo.name(), "uid": foo.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "replicas": spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]}},
        },
    }))
}

async fn install(client: &Client) -> Result<(), Box<dyn Error>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = serde_json::from_value(json!({
        "metadata": {"name": "foos.samplecontroller.example.com"},
        "spec": {
            "group": "samplecontroller.example.com",
            "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "deploymentName": {"type": "string"},
                        "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
                    }},
                    "status": {"type": "object", "properties": {
                        "availableReplicas": {"type": "integer"}, "message": {"type": "string"},
                    }},
                }}},
            }],
        },
    }))?;
    match api.create(&PostParams::default(), &definition).await {
        Err(kube_client::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        result => result.map(drop).map_err(Into::into),
    }
}

/// What a person with kubectl might do, and what must come of it.
async fn story(
    client: Client,
    ended: tokio::sync::oneshot::Sender<()>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let foos: Api<Foo> = Api::default_namespaced(client.clone());
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let foo = |name: &str, deployment: &str, replicas: i32| Foo {
        api_version: "samplecontroller.example.com/v1".into(),
        kind: "Foo".into(),
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        spec: FooSpec { deployment_name: deployment.into(), replicas },
        status: None,
    };
    until("the definition is there", || async { foos.list(&ListParams::default()).await.is_ok() }).await?;

    println!("-- a Foo is created");
    foos.create(&PostParams::default(), &foo("web", "web", 1)).await?;
    until("it has its deployment", || async { replicas(&deployments, "web").await == Some(1) }).await?;
    until("its status says so", || async { message(&foos, "web").await == "synced" }).await?;

    println!("-- it is scaled");
    foos.patch("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 3}}))).await?;
    until("the deployment follows", || async { replicas(&deployments, "web").await == Some(3) }).await?;

    println!("-- somebody scales the deployment by hand");
    deployments
        .patch("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 9}})))
        .await?;
    until("it is put right", || async { replicas(&deployments, "web").await == Some(3) }).await?;

    println!("-- a Foo asks for a deployment that is somebody else's");
    let mut foreign = deployments.get("web").await?;
    foreign.metadata = ObjectMeta {
        name: Some("foreign".into()),
        namespace: Some("default".into()),
        ..ObjectMeta::default()
    };
    deployments.create(&PostParams::default(), &foreign).await?;
    foos.create(&PostParams::default(), &foo("greedy", "foreign", 5)).await?;
    until("it is told that it cannot", || async { message(&foos, "greedy").await.contains("not managed") })
        .await?;
    assert_eq!(replicas(&deployments, "foreign").await, Some(3), "what it does not own stays as it was");

    println!("-- the Foo goes");
    foos.delete("web", &DeleteParams::default()).await?;
    until("its deployment goes with it", || async { replicas(&deployments, "web").await.is_none() }).await?;
    println!("-- done: everything went as it should");
    let _ = ended.send(());
    Ok(())
}

async fn replicas(deployments: &Api<Deployment>, name: &str) -> Option<i32> {
    deployments.get_opt(name).await.ok()??.spec.replicas
}

async fn message(foos: &Api<Foo>, name: &str) -> String {
    let foo = foos.get_opt(name).await.ok().flatten();
    foo.and_then(|foo| foo.status).map(|status| status.message).unwrap_or_default()
}

/// Waits for a condition, ten seconds at most.
async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) -> Result<(), String> {
    for _ in 0..1000 {
        if condition().await {
            println!("   {what}");
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(format!("waited in vain until {what}"))
}
