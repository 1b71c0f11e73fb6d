//! What the tests share: a server in the process, and config maps to put into it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod checked;
pub mod client;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube_informer::{Event, InformerOptions, SharedInformer, SharedInformerFactory};
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::{ApiServer, Verb};
use serde_json::json;

/// A server that does the same in every run.
pub fn server() -> ApiServer {
    ApiServer::builder().seed(1).epoch("2026-01-01T00:00:00Z".parse().unwrap()).build()
}

/// A server with faults, its faults, and a factory with a synced informer of the server's config maps.
pub type Weather = (ApiServer, Faults, SharedInformerFactory, SharedInformer<ConfigMap>);

/// A server that has one config map.
pub async fn weather() -> Weather {
    weather_of(1, InformerOptions::default()).await
}

/// A server that has this many config maps, and an informer with these options.
pub async fn weather_of(objects: usize, options: InformerOptions) -> Weather {
    let faults = Faults::none();
    let server = ApiServer::builder().seed(1).faults(faults.clone()).build();
    create(&api(&server), "a", "1").await;
    for number in 1..objects {
        create(&api(&server), &format!("more-{number:03}"), "1").await;
    }
    let factory = SharedInformerFactory::with_defaults(server.client(), options);
    let informer = factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    (server, faults, factory, informer)
}

/// Cuts the open watches, and refuses new ones and lists until the faults are cleared.
pub async fn cut_off(faults: &Faults) {
    for verb in [Verb::Watch, Verb::List] {
        faults.inject(Rule::on(Fault::Refuse).verb(verb));
    }
    faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch));
    settle().await;
}

pub fn api(server: &ApiServer) -> Api<ConfigMap> {
    Api::default_namespaced(server.client())
}

pub fn config_map(name: &str, labels: &[(&str, &str)], data: &[(&str, &str)]) -> ConfigMap {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.labels = (!labels.is_empty()).then(|| map(labels));
    object.data = Some(map(data));
    object
}

pub async fn create(api: &Api<ConfigMap>, name: &str, data: &str) -> ConfigMap {
    api.create(&PostParams::default(), &config_map(name, &[("app", data)], &[("v", data)])).await.unwrap()
}

pub async fn change(api: &Api<ConfigMap>, name: &str, data: &str) {
    let patch = json!({"metadata": {"labels": {"app": data}}, "data": {"v": data}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

pub async fn delete(api: &Api<ConfigMap>, name: &str) {
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Writes down what a handler hears, one line each.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// A handler that writes into this log.
    pub fn handler(&self) -> impl FnMut(Event<ConfigMap>) -> std::future::Ready<()> + Send + 'static {
        let lines = Arc::clone(&self.0);
        move |event| {
            lines.lock().unwrap().push(line(&event));
            std::future::ready(())
        }
    }

    pub fn take(&self) -> String {
        let lines = std::mem::take(&mut *self.0.lock().unwrap());
        lines.into_iter().map(|line| line + "\n").collect()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// An event as text; the label `app` stands for the content.
pub fn line<K>(event: &Event<K>) -> String {
    let text = |object: &kube_informer::object::Entry| {
        format!("{}={}", object.name(), object.label("app").unwrap_or("-"))
    };
    match event {
        Event::Added { object, initial } => {
            format!("add {}{}", text(object), if *initial { " (initial)" } else { "" })
        }
        Event::Updated { old, new } => format!("update {} → {}", text(old), text(new)),
        Event::Deleted(gone) => {
            format!(
                "delete {}{}",
                text(&gone.object),
                if gone.final_state_unknown { " (missed)" } else { "" }
            )
        }
    }
}

/// Lets everything that can happen without time passing happen.
pub async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// What the store has, as `name=app` in key order.
pub fn content<K>(informer: &SharedInformer<K>) -> String {
    let snapshot = informer.snapshot();
    snapshot.check().unwrap();
    let entries =
        snapshot.iter().map(|entry| format!("{}={}", entry.name(), entry.label("app").unwrap_or("-")));
    entries.collect::<Vec<_>>().join(" ")
}
