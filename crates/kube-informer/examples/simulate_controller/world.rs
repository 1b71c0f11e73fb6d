//! Plays a plan on a server in the process and a clock of its own, and judges what comes of it.
//!
//! Whatever happens, the end is the one that the plan asks for and that a perfect world comes to. Then the controller writes
//! nothing more. No child was made again that nobody took away, and no object went without its cleanup. The [`ledger`](super::ledger)
//! has the rules for every moment before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_informer::{Event, ObjectKey, Registration, SharedInformerFactory};
use kube_informer_apiserver::ApiServer;
use kube_informer_apiserver::faults::Faults;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::end::{state, wanted};
use super::judge::Judge;
use super::lives::{Lives, options};
use super::operator::Mishaps;
use super::people::{name, pass_on, tell};
use super::plan::{Plan, TROUBLE_ENDS};
use super::ticket;

/// How long the end may take after the last fault: a watch that has fallen silent is given up after ten minutes.
const CONVERGES_WITHIN: Duration = Duration::from_mins(30);
/// Longer than the library puts off a reconcile of all keys.
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
    /// Changes that were merged on their way to a controller.
    pub merges: u64,
    /// How near a key that fails came to what its backoff allows, and a controller to its budget of requests.
    pub longest_streak: f64,
    pub most_requests: f64,
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
        self.merges += other.merges;
        self.longest_streak = self.longest_streak.max(other.longest_streak);
        self.most_requests = self.most_requests.max(other.most_requests);
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
    server: ApiServer,
    faults: Faults,
    /// Of the people, which no fault affects.
    client: Client,
    lives: Lives,
    begun: Instant,
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
        };
        let client = server.client();
        let lives = Lives {
            plan: plan.clone(),
            server: server.clone(),
            mishaps: Arc::new(mishaps),
            judge: Arc::default(),
            polls: Arc::default(),
            restarts: Arc::default(),
            merges: Arc::default(),
            ledger: Arc::default(),
        };
        Self { server, faults, client, lives, begun: Instant::now() }
    }

    async fn play(self) -> Report {
        let (plan, judge) = (&self.lives.plan, &self.lives.judge);
        let observers = SharedInformerFactory::with_defaults(self.client.clone(), options(plan.seed));
        let registrations = observe(&observers, judge);
        observers.start();
        for registration in &registrations {
            registration.wait_for_sync().await;
        }

        let mut controllers = JoinSet::new();
        controllers.spawn(self.lives.clone().run());
        let mut people = self.people();
        let told = async { while people.join_next().await.is_some_and(|told| told.is_ok()) {} };
        let all_told = plan.trouble_ends + CONVERGES_WITHIN;
        if tokio::time::timeout(all_told, told).await.is_err() || !people.is_empty() {
            judge.violation("the stories did not end: an object that was to go stays".to_owned());
        }
        tokio::time::sleep_until(self.begun + plan.trouble_ends).await;

        let end = self.settle().await;
        if controllers.try_join_next().is_some() {
            judge.violation("the controller ended by itself".to_owned());
        }
        self.close();
        controllers.shutdown().await;
        Report { violations: judge.violations(), end, numbers: self.numbers() }
    }

    /// Waits until the world is as the plan asks for, and nothing is written any more. Caches that lag behind may show
    /// tickets with an earlier holder for a while, so a write that is undone is a violation only after the limit.
    async fn settle(&self) -> Vec<String> {
        let (wanted, judge) = (wanted(&self.lives.plan), &self.lives.judge);
        let limit = Instant::now() + CONVERGES_WITHIN;
        loop {
            let (end, revision) = (state(&self.client).await, self.server.revision());
            if end == wanted {
                tokio::time::sleep(QUIET).await;
                if self.server.revision() == revision {
                    return end;
                }
            }
            if Instant::now() >= limit {
                judge.violation(if end == wanted {
                    "something is written though all is as it should be".to_owned()
                } else {
                    format!("ended with {end:?}, wanted {wanted:?}")
                });
                return end;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }

    /// Starts all stories. Those of the tickets begin when their kind is installed.
    fn people(&self) -> JoinSet<()> {
        let mut people = JoinSet::new();
        let plan = &self.lives.plan;
        for (number, story) in plan.stories.iter().enumerate() {
            let judge = Arc::clone(&self.lives.judge);
            people.spawn(tell(self.client.clone(), name(number), story.clone(), judge));
        }
        let (lives, client, at) = (self.lives.clone(), self.client.clone(), self.begun + plan.installed);
        people.spawn(async move {
            tokio::time::sleep_until(at).await;
            check_start_without_tickets(&lives, &client).await;
            ticket::install(&client).await;
            let mut stories = JoinSet::new();
            for (number, turns) in lives.plan.tickets.into_iter().enumerate() {
                let judge = Arc::clone(&lives.judge);
                stories.spawn(pass_on(client.clone(), ticket::name(number), turns, judge));
            }
            while let Some(told) = stories.join_next().await {
                told.expect("no fault affects people");
            }
        });
        people
    }

    /// Closes the book about the last controller.
    fn close(&self) {
        let alive = self.lives.plan.wanted();
        let exists = |key: &ObjectKey| {
            alive.iter().enumerate().any(|(number, there)| there.is_some() && name(number) == key.name())
        };
        // Past the bound of kept states, only keys of objects that exist are enqueued.
        let bounded = self.lives.plan.settings.buffer_len.is_some();
        let ledger = self.lives.ledger.lock().unwrap().clone();
        if let Some(ledger) = ledger {
            ledger.close(|key, object| bounded && object.starts_with(ticket::RESOURCE) && !exists(key));
        }
    }

    fn numbers(&self) -> Numbers {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Lives { mishaps, judge, .. } = &self.lives;
        Numbers {
            simulated: self.begun.elapsed(),
            faults: self.faults.log().len() as u64,
            restarts: count(&self.lives.restarts),
            reconciles: count(&mishaps.reconciles),
            panics: count(&mishaps.panicked),
            conflicts: count(&mishaps.conflicts),
            children: judge.children(),
            merges: count(&self.lives.merges),
            longest_streak: judge.longest_streak(),
            most_requests: judge.most_requests(),
            polls: count(&self.lives.polls),
        }
    }
}

/// A controller starts without an optional kind that the server does not have.
async fn check_start_without_tickets(lives: &Lives, client: &Client) {
    let plan = &lives.plan;
    let calm_for_long = plan.installed > TROUBLE_ENDS * 6 && plan.trouble_ends <= TROUBLE_ENDS;
    let ledger = lives.ledger.lock().unwrap().clone();
    let idle = ledger.is_some_and(|ledger| ledger.is_idle_for(Duration::from_mins(1)));
    if plan.settings.optional && calm_for_long && idle && !state(client).await.is_empty() {
        lives.judge.violation("the controller does not start without an optional kind".to_owned());
    }
}

/// Tells the judge which children are made, and which objects go.
fn observe(observers: &SharedInformerFactory, judge: &Arc<Judge>) -> [Registration; 2] {
    let (makes, goes) = (Arc::clone(judge), Arc::clone(judge));
    let children = observers.informer::<ConfigMap>().add_handler(move |event: Event<ConfigMap>| {
        if let Event::Added { object, .. } = event {
            let owner = object.controller().map(|owner| owner.uid.to_string()).unwrap_or_default();
            makes.made(owner, object.name());
        }
        async {}
    });
    let parents = observers.informer::<Deployment>().add_handler(move |event: Event<Deployment>| {
        if let Event::Deleted(deleted) = event {
            goes.gone(deleted.object.name(), &deleted.object.uid().to_string());
        }
        async {}
    });
    [children, parents]
}
