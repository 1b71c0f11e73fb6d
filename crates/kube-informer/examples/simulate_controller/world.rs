//! Plays a plan on a server in the process and a clock of its own, and judges what comes of it.
//!
//! Whatever happens, the end is the one that the plan asks for and that a perfect world comes to; then the controller rests; no
//! child was made again that nobody took away; no key was in work twice at once.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_client::{Client, Error};
use kube_informer::reflector::ReflectorConfig;
use kube_informer::workqueue::RateLimit;
use kube_informer::{Controller, Event, InformerOptions, SharedInformerFactory};
use kube_informer_apiserver::ApiServer;
use kube_informer_apiserver::faults::Faults;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::operator::{Mishaps, Operator, TEXT, reconcile};
use super::plan::{End, Life, Plan, Step, TROUBLE_ENDS};

/// How long the end may take after the last fault: a watch that has fallen silent is given up after ten minutes.
const CONVERGES_WITHIN: Duration = Duration::from_mins(30);
/// Longer than a resync.
const QUIET: Duration = Duration::from_mins(3);

/// What came of a plan.
#[derive(Debug, Default)]
pub struct Report {
    pub violations: Vec<String>,
    /// What is there in the end, a line for each object.
    pub end: Vec<String>,
    pub numbers: Numbers,
}

#[derive(Debug, Default, Clone)]
pub struct Numbers {
    pub simulated: Duration,
    pub faults: u64,
    pub restarts: u64,
    pub reconciles: u64,
    pub panics: u64,
    pub conflicts: u64,
    pub children: u64,
    /// Polls of controllers and reconciles: each is an await at which one can end.
    pub polls: u64,
}

impl Numbers {
    pub fn add(&mut self, other: &Self) {
        self.simulated += other.simulated;
        self.faults += other.faults;
        self.restarts += other.restarts;
        self.reconciles += other.reconciles;
        self.panics += other.panics;
        self.conflicts += other.conflicts;
        self.children += other.children;
        self.polls += other.polls;
    }
}

/// Plays a plan, and the same in a perfect world: both must come to the same end.
pub fn simulate(plan: &Plan) -> Report {
    let calm = play(&plan.calm());
    let mut report = play(plan);
    report.violations.extend(calm.violations.iter().map(|violation| format!("without faults, {violation}")));
    if report.end != calm.end {
        report.violations.push(format!("ended with {:?}, without faults with {:?}", report.end, calm.end));
    }
    report
}

/// Plays a plan on a thread and a clock of its own.
pub fn play(plan: &Plan) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O").block_on(async { World::new(plan).play().await })
}

struct World {
    plan: Plan,
    server: ApiServer,
    faults: Faults,
    /// Of the people, whom nothing befalls.
    client: Client,
    tally: Arc<Tally>,
    mishaps: Arc<Mishaps>,
    polls: Arc<AtomicU64>,
    restarts: Arc<AtomicU64>,
}

/// For each owner's uid and child's name: how often it was made, and how often somebody took it away or asked for fewer.
#[derive(Default)]
struct Tally {
    made: Mutex<BTreeMap<(String, String), u64>>,
    taken: Mutex<BTreeMap<(String, String), u64>>,
}

impl World {
    fn new(plan: &Plan) -> Self {
        let faults = plan.rules.iter().cloned().fold(Faults::seeded(plan.seed), Faults::rule);
        let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
        let server = ApiServer::builder().seed(plan.seed).epoch(epoch).faults(faults.clone()).build();
        let mishaps = Mishaps {
            random: Mutex::new(fastrand::Rng::with_seed(plan.seed ^ 1)),
            panics: plan.panics,
            until: Instant::now() + TROUBLE_ENDS,
            reconciles: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            twice_at_once: AtomicU64::new(0),
        };
        Self {
            plan: plan.clone(),
            client: server.client(),
            server,
            faults,
            tally: Arc::default(),
            mishaps: Arc::new(mishaps),
            polls: Arc::default(),
            restarts: Arc::default(),
        }
    }

    async fn play(self) -> Report {
        let begun = Instant::now();
        let mut violations = Vec::new();
        let observers = SharedInformerFactory::with_defaults(self.client.clone(), options(self.plan.seed));
        let tally = Arc::clone(&self.tally);
        let observer = observers.informer::<ConfigMap>().add_handler(move |event: Event<ConfigMap>| {
            if let Event::Added { object, .. } = event {
                let owner = object.controller().map(|owner| owner.uid.to_string()).unwrap_or_default();
                *tally.made.lock().unwrap().entry((owner, object.name().to_owned())).or_default() += 1;
            }
            async {}
        });
        observers.start();
        observer.wait_for_sync().await;

        let mut controllers = JoinSet::new();
        controllers.spawn(self.controllers());
        let mut people = JoinSet::new();
        for (number, story) in self.plan.stories.iter().enumerate() {
            people.spawn(tell(self.client.clone(), name(number), story.clone(), Arc::clone(&self.tally)));
        }
        let told = async { while people.join_next().await.is_some_and(|told| told.is_ok()) {} };
        if tokio::time::timeout(CONVERGES_WITHIN, told).await.is_err() || !people.is_empty() {
            violations.push("the stories did not end: an object that was to go stays".to_owned());
        }
        tokio::time::sleep_until(begun + TROUBLE_ENDS).await;

        let wanted = wanted(&self.plan);
        let mut end = state(&self.client).await;
        let limit = Instant::now() + CONVERGES_WITHIN;
        while end != wanted && Instant::now() < limit {
            tokio::time::sleep(Duration::from_secs(5)).await;
            end = state(&self.client).await;
        }
        if end != wanted {
            violations.push(format!("ended with {end:?}, wanted {wanted:?}"));
        }
        let revision = self.server.revision();
        tokio::time::sleep(QUIET).await;
        if self.server.revision() != revision {
            violations.push("something is written though all is as it should be".to_owned());
        }
        if controllers.try_join_next().is_some() {
            violations.push("the controller ended by itself".to_owned());
        }
        drop(controllers);

        let (made, taken) = (self.tally.made.lock().unwrap(), self.tally.taken.lock().unwrap());
        for (child, times) in made.iter() {
            let taken = taken.get(child).copied().unwrap_or(0);
            if *times > 1 + taken {
                violations.push(format!("{} was made {times} times and taken away {taken} times", child.1));
            }
        }
        if self.mishaps.twice_at_once.load(Ordering::Relaxed) > 0 {
            violations.push("a key was in work twice at once".to_owned());
        }
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let numbers = Numbers {
            simulated: begun.elapsed(),
            faults: self.faults.log().len() as u64,
            restarts: count(&self.restarts),
            reconciles: count(&self.mishaps.reconciles),
            panics: count(&self.mishaps.panicked),
            conflicts: count(&self.mishaps.conflicts),
            children: made.values().sum(),
            polls: count(&self.polls),
        };
        Report { violations, end, numbers }
    }

    /// One controller after the other, each as a new process would be: with nothing but what the server says.
    fn controllers(&self) -> impl Future<Output = ()> + Send + 'static {
        let (server, mishaps) = (self.server.clone(), Arc::clone(&self.mishaps));
        let (polls, restarts) = (Arc::clone(&self.polls), Arc::clone(&self.restarts));
        let (seed, lives) = (self.plan.seed, self.plan.lives.clone());
        async move {
            let for_ever = Life { end: End::AfterPolls(u64::MAX), pause: Duration::ZERO };
            for (number, life) in lives.into_iter().chain([for_ever]).enumerate() {
                live(server.client(), &life, seed ^ number as u64, &mishaps, &polls).await;
                restarts.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(life.pause).await;
            }
        }
    }
}

/// Runs a controller to the end of its life.
async fn live(client: Client, life: &Life, seed: u64, mishaps: &Arc<Mishaps>, polls: &Arc<AtomicU64>) {
    let factory = SharedInformerFactory::with_defaults(client.clone(), options(seed));
    let children = factory.informer::<ConfigMap>();
    let operator = Arc::new(Operator {
        client,
        children: children.lister(),
        mishaps: Arc::clone(mishaps),
        in_work: Mutex::default(),
    });
    let (left, after) = match life.end {
        End::AfterPolls(polls) => (polls, None),
        End::After(time) => (u64::MAX, Some(time)),
    };
    let mortal =
        Arc::new(Mortal { left: AtomicU64::new(left), polls: Arc::clone(polls), over: Notify::new() });
    let controller = Controller::new(factory.informer::<Deployment>())
        .owns(children)
        .workers(2)
        .reconcile_limit(Duration::from_secs(20))
        .retry(RateLimit::exponential(Duration::from_millis(5), Duration::from_secs(10)));
    let soul = Arc::clone(&mortal);
    let run = controller.run(move |request, context| {
        Arc::clone(&soul).poll_until_over(reconcile(Arc::clone(&operator), request, context))
    });
    let time_is_up = async {
        match after {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = mortal.over.notified() => {}
        () = time_is_up => {}
        _ = Arc::clone(&mortal).poll_until_over(run) => {}
    }
}

/// Ends at an await: from the last poll on, nothing moves any more, as if the process had died there.
struct Mortal {
    left: AtomicU64,
    polls: Arc<AtomicU64>,
    over: Notify,
}

impl Mortal {
    fn poll_until_over<F: Future>(self: Arc<Self>, future: F) -> impl Future<Output = F::Output> {
        let mut future = Box::pin(future);
        poll_fn(move |context| {
            self.polls.fetch_add(1, Ordering::Relaxed);
            let left = self.left.load(Ordering::Relaxed);
            self.left.store(left.saturating_sub(1), Ordering::Relaxed);
            if left == 0 {
                self.over.notify_one();
                return Poll::Pending;
            }
            future.as_mut().poll(context)
        })
    }
}

/// Does to an object what its story says.
async fn tell(client: Client, name: String, story: Vec<Step>, tally: Arc<Tally>) {
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let merge = |patch: serde_json::Value| {
        let api = &api;
        let name = &name;
        async move { api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await }
    };
    let (mut uid, mut children) = (String::new(), 0);
    let take = |uid: &str, slot: usize| {
        let child = (uid.to_owned(), format!("{name}-{slot}"));
        *tally.taken.lock().unwrap().entry(child).or_default() += 1;
    };
    for step in story {
        match step {
            Step::Rest(time) => tokio::time::sleep(time).await,
            Step::Create(count) => {
                let object = deployment(&name, count);
                uid = loop {
                    match api.create(&PostParams::default(), &object).await {
                        Ok(created) => break created.metadata.uid.expect("the server gives one"),
                        // The last one of this name is still on its way out.
                        Err(Error::Api(status)) if status.code == 409 => {
                            tokio::time::sleep(Duration::from_millis(500)).await;
                        }
                        Err(error) => panic!("nothing befalls people: {error}"),
                    }
                };
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
            Step::Delete => {
                api.delete(&name, &DeleteParams::default()).await.expect("it is there");
            }
        }
    }
}

fn name(number: usize) -> String {
    format!("web{number}")
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

fn options(seed: u64) -> InformerOptions {
    let reflector = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
    InformerOptions::default().reflector(reflector)
}

/// The end that the plan asks for, as [`state`] would say it.
fn wanted(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, children) in plan.wanted().into_iter().enumerate() {
        let (Some(children), name) = (children, name(number)) else { continue };
        lines.push(format!("deployment {name}: {children} wanted, {children} there, up to date"));
        lines.push(format!("secret {name}"));
        lines.extend((0..children).map(|slot| format!("config map {name}-{slot} of {name}: {TEXT}")));
    }
    lines.sort();
    lines
}

/// What is there, a line for each object.
async fn state(client: &Client) -> Vec<String> {
    let all = ListParams::default();
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let deployments = deployments.list(&all).await.expect("nothing befalls people").items;
    let secrets = secrets.list(&all).await.expect("nothing befalls people").items;
    let maps = maps.list(&all).await.expect("nothing befalls people").items;

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
            if deployment.metadata.deletion_timestamp.is_some() { ", on its way out" } else { "" },
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
