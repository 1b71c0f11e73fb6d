//! A cluster's worth of pods that come and go, made from a seed.

use std::collections::VecDeque;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube_client::Client;
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::Instant;

/// Applications, each at home in one namespace.
pub(super) const APPLICATIONS: [(&str, &str); 12] = [
    ("shop", "cart"),
    ("shop", "catalog"),
    ("shop", "checkout"),
    ("shop", "search"),
    ("media", "encoder"),
    ("media", "thumbnails"),
    ("media", "uploads"),
    ("data", "ingest"),
    ("data", "reports"),
    ("data", "warehouse"),
    ("edge", "gateway"),
    ("edge", "dns"),
];

pub(super) const NODES: u32 = 50;

/// Changes a second, about as many as a cluster of some thousand nodes has.
const CHANGES_PER_SECOND: u64 = 250;

/// Names of pods and of namespaces.
type Names = VecDeque<(&'static str, String)>;

pub(super) struct Workload {
    client: Client,
    random: fastrand::Rng,
    pending: Names,
    running: Names,
}

impl Workload {
    pub(super) fn new(client: Client, seed: u64) -> Self {
        Self { client, random: fastrand::Rng::with_seed(seed), pending: Names::new(), running: Names::new() }
    }

    /// Makes the namespaces and so many pods that run.
    pub(super) async fn fill(&mut self, pods: u32) -> anyhow::Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        for name in namespaces() {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            api.create(&PostParams::default(), &namespace).await?;
        }
        for _ in 0..pods {
            let (namespace, name) = self.create().await?;
            self.report(namespace, &name, "Running").await?;
            self.running.push_back((namespace, name));
        }
        Ok(())
    }

    /// Lets pods come, start, move on and go until the time is over.
    pub(super) async fn churn(&mut self, until: Instant) -> anyhow::Result<()> {
        let mut beat = tokio::time::interval(Duration::from_millis(1000 / CHANGES_PER_SECOND));
        while Instant::now() < until {
            beat.tick().await;
            match self.random.u8(0..10) {
                0..3 => {
                    let created = self.create().await?;
                    self.pending.push_back(created);
                }
                3..6 => {
                    if let Some((namespace, name)) = self.pending.pop_front() {
                        self.report(namespace, &name, "Running").await?;
                        self.running.push_back((namespace, name));
                    }
                }
                6..8 if !self.running.is_empty() => {
                    let (namespace, name) = self.running[self.random.usize(..self.running.len())].clone();
                    self.report(namespace, &name, "Running").await?;
                }
                _ => {
                    let at = self.random.usize(..self.running.len().max(1));
                    if let Some((namespace, name)) = self.running.swap_remove_back(at) {
                        self.delete(namespace, &name).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn create(&mut self) -> anyhow::Result<(&'static str, String)> {
        let (namespace, app) = APPLICATIONS[self.random.usize(..APPLICATIONS.len())];
        let name = format!("{app}-{:08x}-{}", self.random.u32(..), suffix(&mut self.random));
        let pod = pod(&mut self.random, namespace, app, &name)?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), &pod).await?;
        Ok((namespace, name))
    }

    async fn report(&mut self, namespace: &str, name: &str, phase: &str) -> anyhow::Result<()> {
        let restarts = self.random.u32(..3);
        let status = json!({"status": {
            "phase": phase,
            "podIP": format!("10.{}.{}.{}", self.random.u8(..), self.random.u8(..), self.random.u8(..)),
            "containerStatuses": [{"name": "main", "ready": true, "restartCount": restarts, "image": "main:1", "imageID": "main"}],
        }});
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }

    /// At once, as a kubelet does when the containers have ended.
    async fn delete(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        match api.delete(name, &DeleteParams::default().grace_period(0)).await {
            Ok(_) => Ok(()),
            Err(kube_client::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

pub(super) fn namespaces() -> Vec<&'static str> {
    let mut names: Vec<&str> = APPLICATIONS.iter().map(|(namespace, _)| *namespace).collect();
    names.dedup();
    names
}

fn suffix(random: &mut fastrand::Rng) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|_| char::from(LETTERS[random.usize(..LETTERS.len())])).collect()
}

fn pod(random: &mut fastrand::Rng, namespace: &str, app: &str, name: &str) -> serde_json::Result<Pod> {
    let container = |name: &str, port: u16| {
        json!({
            "name": name,
            "image": format!("registry.example/{namespace}/{name}:1.{}", port % 17),
            "args": ["--listen", format!("0.0.0.0:{port}"), "--log-format=json", "--shutdown-grace=20s"],
            "env": [
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "APPLICATION", "value": app},
                {"name": "REGION", "value": "eu-central"},
            ],
            "ports": [{"containerPort": port, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": port}, "periodSeconds": 10, "failureThreshold": 3},
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": port}, "periodSeconds": 5, "failureThreshold": 3},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/config", "readOnly": true}],
        })
    };
    let port = random.u16(8000..9000);
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": app, "tier": if port.is_multiple_of(2) { "front" } else { "back" }, "pod-template-hash": format!("{:08x}", random.u32(..))},
            "annotations": {"checksum/config": format!("{:032x}", random.u128(..))},
        },
        "spec": {
            "nodeName": format!("node-{}", random.u32(..NODES)),
            "containers": [container("main", port), container("proxy", 15000)],
            "volumes": [{"name": "config", "configMap": {"name": format!("{app}-config")}}],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
        },
        "status": {"phase": "Pending"},
    }))
}
