//! The controllers of a plan, one after the other, each as a new process would be: it knows only what the server says.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_informer::controller::{ControllerHandle, Predicate, WatchOptions};
use kube_informer::object::{Entry, View};
use kube_informer::reflector::ReflectorConfig;
use kube_informer::workqueue::RateLimit;
use kube_informer::{
    Controller, Event, InformerOptions, ObjectKey, Registration, SharedInformer, SharedInformerFactory,
};
use kube_informer_apiserver::ApiServer;
use serde_json::Value;
use tokio::sync::Notify;

use super::judge::Judge;
use super::ledger::{KINDS, Ledger, Seen};
use super::operator::{Mishaps, Operator, reconcile};
use super::plan::{End, Life, Plan, Retry};
use super::ticket;
use super::traffic::Traffic;

/// The controllers of a plan.
#[derive(Clone)]
pub struct Lives {
    pub plan: Plan,
    pub server: ApiServer,
    pub mishaps: Arc<Mishaps>,
    pub judge: Arc<Judge>,
    pub polls: Arc<AtomicU64>,
    pub restarts: Arc<AtomicU64>,
    pub merges: Arc<AtomicU64>,
    /// The book about the controller that runs now.
    pub ledger: Arc<Mutex<Option<Arc<Ledger>>>>,
}

impl Lives {
    pub async fn run(self) {
        let for_ever = Life { end: End::AfterPolls(u64::MAX), pause: Duration::ZERO };
        for (number, life) in self.plan.lives.iter().chain([&for_ever]).enumerate() {
            self.live(life, self.plan.seed ^ number as u64).await;
            self.restarts.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(life.pause).await;
        }
    }

    /// Runs a controller to the end of its life.
    async fn live(&self, life: &Life, seed: u64) {
        let settings = &self.plan.settings;
        let ledger = Ledger::new(Arc::clone(&self.judge), settings.optional);
        *self.ledger.lock().unwrap() = Some(Arc::clone(&ledger));
        let traffic = Traffic { connection: self.server.connect(), ledger: Arc::clone(&ledger) };
        let client = Client::new(traffic, "default");
        let factory = SharedInformerFactory::with_defaults(client.clone(), options(seed));
        let parents = factory.informer::<Deployment>();
        let children = factory.informer::<ConfigMap>();
        let tickets = ticket::informer(&factory, options(seed));
        let operator = Arc::new(Operator {
            client,
            children: children.lister(),
            tickets: tickets.lister(),
            mishaps: Arc::clone(&self.mishaps),
            judge: Arc::clone(&self.judge),
            ledger: Arc::clone(&ledger),
            in_work: Mutex::default(),
            cleanup_rounds: settings.cleanup_rounds,
            rounds: Mutex::default(),
        });
        let filtered = settings.filtered;
        let _observers = [
            observe(&parents, KINDS[0], &ledger, own_key, move |old, new| {
                !filtered || old.generation() != new.generation() || labels(old) != labels(new)
            }),
            observe(&children, KINDS[1], &ledger, owner_keys, |_, _| true),
            observe(&tickets, KINDS[2], &ledger, ticket_keys, move |old, new| {
                !filtered || labels(old) != labels(new)
            }),
        ];
        let controller = self.controller(parents, children.clone(), tickets.clone());
        ledger.watch(controller.handle());
        let pauses = pauses(controller.handle(), Arc::clone(&ledger), &settings.pauses);
        let (left, after) = match life.end {
            End::AfterPolls(polls) => (polls, None),
            End::After(time) => (u64::MAX, Some(time)),
        };
        let mortal = Arc::new(Mortal {
            left: AtomicU64::new(left),
            polls: Arc::clone(&self.polls),
            over: Notify::new(),
        });
        let soul = Arc::clone(&mortal);
        let run = controller.run(move |request, context| {
            Arc::clone(&soul).poll_until_over(reconcile(Arc::clone(&operator), request, context))
        });
        let mut run = pin!(Arc::clone(&mortal).poll_until_over(run));
        let time_is_up = async {
            match after {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        // Dropped before the controller, whose triggers know the count.
        let _count = CountMerges { informers: (children, tickets), merges: &self.merges };
        tokio::select! {
            biased;
            () = mortal.over.notified() => {}
            () = time_is_up => {}
            () = pauses => {}
            _ = &mut run => {}
        }
    }

    fn controller(
        &self,
        parents: SharedInformer<Deployment>,
        children: SharedInformer<ConfigMap>,
        tickets: SharedInformer<Value>,
    ) -> Controller<Deployment> {
        let settings = &self.plan.settings;
        let mut watch = WatchOptions::default();
        let mut controller = Controller::new(parents);
        if settings.filtered {
            controller = controller.filter(Predicate::generation().or(Predicate::labels()));
            watch = watch.filter(Predicate::labels());
        }
        if settings.optional {
            watch = watch.optional();
        }
        if let Some(len) = settings.buffer_len {
            controller = controller.buffer_len(len);
        }
        controller
            .owns(children)
            .watches_with(tickets, watch, |held| [ticket::concerns(held)])
            .workers(settings.workers)
            .reconcile_limit(Duration::from_secs(20))
            .retry(retry(settings.retry))
    }
}

/// Pauses the controller now and then. It does not end.
async fn pauses(handle: ControllerHandle, ledger: Arc<Ledger>, pauses: &[(Duration, Duration)]) {
    for (after, lasts) in pauses {
        tokio::time::sleep(*after).await;
        handle.pause();
        ledger.paused(true);
        tokio::time::sleep(*lasts).await;
        ledger.paused(false);
        handle.resume();
    }
    std::future::pending::<()>().await;
}

fn retry(retry: Retry) -> RateLimit {
    let alone = RateLimit::exponential(Duration::from_millis(5), Duration::from_secs(10));
    match retry {
        Retry::Alone => alone,
        Retry::Together => RateLimit::max_of([alone, RateLimit::bucket(2.0, 10)]),
        Retry::FastThenSlow => RateLimit::fast_slow(Duration::from_millis(20), 5, Duration::from_secs(10)),
    }
}

/// Tells the ledger of every state that the cache shows, and of the keys that it concerns.
fn observe<K: View>(
    informer: &SharedInformer<K>,
    kind: &'static str,
    ledger: &Arc<Ledger>,
    keys: fn(&Entry) -> Vec<ObjectKey>,
    matters: impl Fn(&Entry, &Entry) -> bool + Send + 'static,
) -> Registration {
    let ledger = Arc::clone(ledger);
    informer.add_handler(move |event: Event<K>| {
        let (what, states) = match &event {
            Event::Added { object, .. } => ("created", vec![object]),
            Event::Updated { old, new } if matters(old, new) => ("changed", vec![old, new]),
            Event::Updated { .. } => ("", Vec::new()),
            Event::Deleted(deleted) => ("deleted", vec![&deleted.old, &deleted.object]),
        };
        let concerned: BTreeSet<ObjectKey> = states.iter().flat_map(|state| keys(state)).collect();
        if let Some(newest) = states.last() {
            let version = newest.version().as_u64().unwrap_or_default();
            ledger.changed(&Seen { kind, object: newest.key(), version, what }, concerned);
        }
        async {}
    })
}

fn own_key(deployment: &Entry) -> Vec<ObjectKey> {
    vec![deployment.key().clone()]
}

fn owner_keys(child: &Entry) -> Vec<ObjectKey> {
    let owner = child.controller().filter(|owner| *owner.kind == *"Deployment");
    owner.map(|owner| ObjectKey::namespaced("default", &owner.name)).into_iter().collect()
}

fn ticket_keys(held: &Entry) -> Vec<ObjectKey> {
    vec![ticket::concerns(held)]
}

fn labels(entry: &Entry) -> BTreeSet<(&str, &str)> {
    entry.labels().collect()
}

pub fn options(seed: u64) -> InformerOptions {
    let reflector = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
    InformerOptions::default().reflector(reflector)
}

/// Counts the changes that were merged on their way to the controller, when that ends.
struct CountMerges<'a> {
    informers: (SharedInformer<ConfigMap>, SharedInformer<Value>),
    merges: &'a AtomicU64,
}

impl Drop for CountMerges<'_> {
    fn drop(&mut self) {
        let (children, tickets) = &self.informers;
        let handlers = [children.stats().handlers, tickets.stats().handlers];
        let merged = handlers.iter().flatten().map(|handler| handler.merged).sum::<u64>();
        self.merges.fetch_add(merged, Ordering::Relaxed);
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
