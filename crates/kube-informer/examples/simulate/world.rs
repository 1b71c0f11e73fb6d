//! Runs a schedule: a server with faults, informers over it, handlers on them, and checks all the way.

// By its path, because a test includes this file by a path as well.
#[path = "world/ending.rs"]
mod ending;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_informer::object::View;
use kube_informer::reflector::{ReflectorConfig, ReflectorStatus};
use kube_informer::stats::HandlerStats;
use kube_informer::{
    FieldPath, HandlerOptions, InformerOptions, Registration, SharedInformer, SharedInformerFactory,
    Snapshot, Storage, Transform,
};
use kube_informer_apiserver::ApiServer;
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::checker::{self, INDEXES};
use super::ledger::{Gate, Ledger, Rules, States};
use super::log::Log;
use super::observer::{First, Observer, observe};
use super::report::{Numbers, Report};
use super::resource::Resource;
use super::schedule::{
    Action, Crowd, FIELD_NAMESPACE, Filter, HandlerPlan, InformerKind, LONG, NAMESPACES, OBJECTS, RESYNC,
    Schedule, Speed,
};
use super::trace::Trace;
use super::truth::Truth;

const VERIFY_EVERY: Duration = Duration::from_mins(2);
const TINY_QUEUE: usize = 2_000;
/// How many requests an informer may make at once, beyond one a second.
const BURST: f64 = 30.0;
/// How many lists it may make at once, beyond one in this many seconds: about one a second in the first minute of an outage, and
/// then fewer and fewer.
const LISTS: f64 = 150.0;
const LIST_EVERY: f64 = 5.0;
/// More keys than the schedule has, those that a fault makes up included.
const KEYS: usize = 64;

/// Runs a schedule on a clock and a thread of its own.
pub fn run(schedule: &Schedule, keep_lines: bool) -> Report {
    on_its_own_clock(async { World::new(schedule, Trace::new(keep_lines)).run().await })
}

/// The same, with the library's log between the lines.
pub fn replay(schedule: &Schedule) -> Report {
    on_its_own_clock(async {
        let trace = Trace::new(true);
        let _log = tracing::subscriber::set_default(Log(trace.clone()));
        World::new(schedule, trace).run().await
    })
}

fn on_its_own_clock(world: impl Future<Output = Report>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O").block_on(world)
}

struct World<'a> {
    schedule: &'a Schedule,
    trace: Trace,
    server: ApiServer,
    faults: Faults,
    truth: Truth,
    factory: SharedInformerFactory,
    transform: Transform,
    informers: Vec<Subject>,
    handlers: Vec<Handler>,
    kept: Vec<(Snapshot<Value>, Vec<String>)>,
    gate: Gate,
    numbers: Numbers,
    added: usize,
    /// Until when the server cannot be reached, because its data is replaced.
    away_until: Duration,
    outages: Vec<Rule>,
}

/// An informer, and who looks at every state of its store.
struct Subject {
    kind: InformerKind,
    informer: SharedInformer<Value>,
    /// What its first lists brought.
    first: Arc<Mutex<First>>,
    /// How many states were looked at, and by whom.
    observed: Option<(Arc<Mutex<u64>>, JoinHandle<()>)>,
    requests: Allowance,
    lists: Allowance,
}

/// How often something was done, and how often beyond what is allowed.
#[derive(Default)]
struct Allowance {
    done: u64,
    excess: f64,
}

impl Allowance {
    /// It was done this often in all, and this often was allowed since the last look.
    fn look(&mut self, done: u64, allowed: f64) {
        let new = done.saturating_sub(self.done) as f64;
        self.excess = (self.excess + new - allowed).max(0.0);
        self.done = done;
    }
}

impl Subject {
    /// How often everything was read.
    fn lists(&self) -> u64 {
        self.informer.status().iter().map(|status| status.counts.lists + status.counts.streams).sum()
    }

    /// How often the server's history was found to be another one.
    fn restores(&self) -> u64 {
        self.informer.status().iter().map(|status| status.counts.restores).sum()
    }

    /// How often the store was compared with the server.
    fn verifications(&self) -> u64 {
        self.informer.status().iter().map(|status| status.counts.verifications).sum()
    }
}

struct Handler {
    ledger: Ledger,
    informer: usize,
    place: Place,
    /// The store when the handler came, if the informer had synced.
    first: Option<Snapshot<Value>>,
}

impl Handler {
    /// What its informer says of it; nothing once it has ended.
    fn stats(&self, subject: &Subject) -> Option<HandlerStats> {
        match &self.place {
            Place::Called(registration) => Some(registration.stats()),
            Place::Streamed(_) => {
                let handlers = subject.informer.stats().handlers;
                handlers.into_iter().find(|stats| stats.name == self.ledger.name())
            }
        }
    }
}

enum Place {
    Called(Registration),
    Streamed(JoinHandle<()>),
}

impl<'a> World<'a> {
    fn new(schedule: &'a Schedule, trace: Trace) -> Self {
        let faults = Faults::seeded(schedule.seed);
        let server = ApiServer::builder()
            .seed(schedule.seed)
            .epoch("2026-01-01T00:00:00Z".parse().expect("a time"))
            .bookmark_every(Duration::from_secs(20))
            .faults(faults.clone())
            .build();
        // Those that share it share a cache.
        let transform = Transform::json(|object| InformerKind::Transformed.change(object));
        let defaults = options(schedule, &transform, InformerKind::All, 0);
        let factory = SharedInformerFactory::with_defaults(server.client(), defaults);
        let truth = Truth::new(server.clone());
        let mut world = Self {
            schedule,
            trace,
            server,
            faults,
            truth,
            factory,
            transform,
            informers: Vec::new(),
            handlers: Vec::new(),
            kept: Vec::new(),
            gate: Gate::default(),
            numbers: Numbers::default(),
            added: 0,
            away_until: Duration::ZERO,
            outages: Vec::new(),
        };
        for (number, kind) in schedule.informers.iter().enumerate() {
            let subject = world.subject(*kind, number as u64);
            world.informers.push(subject);
        }
        world
    }

    async fn run(mut self) -> Report {
        for namespace in NAMESPACES {
            self.truth.create_namespace(namespace).await;
        }
        let Crowd { objects, bytes } = self.schedule.crowd;
        self.truth.crowd(objects, bytes).await;
        for step in &self.schedule.steps {
            self.pass(step.wait).await;
            if step.wait >= LONG {
                self.check_status().await;
            }
            self.trace.line(format_args!("· {:?}", step.action));
            self.act(&step.action).await;
            self.check(step.wait);
            if self.trace.first_violation().is_some() {
                return self.report();
            }
        }
        self.heal().await;
        if self.trace.first_violation().is_none() {
            self.quiet().await;
        }
        if self.trace.first_violation().is_none() {
            self.changes().await;
        }
        if self.trace.first_violation().is_none() {
            self.end().await;
        }
        self.report()
    }

    fn subject(&self, kind: InformerKind, number: u64) -> Subject {
        let options = options(self.schedule, &self.transform, kind, number);
        let kind_of = kind.resource().kind();
        let informer =
            self.factory.informer_of::<Value>(kind_of, options).expect("no two differ in the rest");
        // Two that share a cache have one observer: who of two waiters is woken first is chance.
        let shared = self.informers.iter().find(|other| other.kind == kind && kind != InformerKind::Changing);
        if let Some(other) = shared {
            return Subject {
                kind,
                informer,
                first: Arc::clone(&other.first),
                observed: None,
                requests: Allowance::default(),
                lists: Allowance::default(),
            };
        }
        let first = Arc::new(Mutex::new(First::default()));
        let observed = Arc::new(Mutex::new(0));
        let observer = tokio::spawn(observe(Observer {
            kind,
            informer: informer.clone(),
            history: (!self.schedule.healing && !self.schedule.restores())
                .then(|| self.truth.history(kind.resource()).clone()),
            bodies: (!self.schedule.garbles()).then(|| self.truth.bodies.clone()),
            garbled: self.schedule.insists_on_odd_versions(),
            one_in: if self.schedule.crowd.objects > 0 { 20 } else { 1 },
            first: Arc::clone(&first),
            observed: Arc::clone(&observed),
            trace: self.trace.clone(),
            number,
        }));
        let (requests, lists) = (Allowance::default(), Allowance::default());
        Subject { kind, informer, first, observed: Some((observed, observer)), requests, lists }
    }

    /// Lets time pass, and everything that can happen without time passing.
    async fn pass(&self, time: Duration) {
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
    }

    async fn act(&mut self, action: &Action) {
        let informers = self.informers.len();
        match action {
            Action::Create { object, web } => {
                self.truth.create(*object, *web).await;
            }
            Action::Update { object, web } => {
                self.truth.update(*object, *web).await;
            }
            Action::Delete { object } => {
                self.truth.delete(*object).await;
            }
            Action::Recreate { object, web } => {
                if self.truth.delete(*object).await {
                    self.truth.create(*object, *web).await;
                }
            }
            Action::Churn { objects } => self.truth.crowd(*objects, self.schedule.crowd.bytes).await,
            Action::Fault(rule) => self.faults.inject(rule.clone()),
            Action::Outage(rule, time) => {
                let outage = rule.clone().until(self.trace.elapsed() + *time);
                self.outages.push(outage.clone());
                self.faults.inject(outage);
            }
            Action::ClearFaults => {
                self.outages.clear();
                self.clear_faults();
            }
            Action::Restart => self.server.restart(),
            Action::Compact => self.server.compact_now(),
            Action::Backup => self.truth.backup(),
            Action::Restore { writes, away } => {
                self.away_until = self.trace.elapsed() + *away;
                // The rule that is asked first wins: a server that is away has no other fault.
                self.clear_faults();
                for outage in &self.outages {
                    self.faults.inject(outage.clone());
                }
                self.truth.restore(*writes).await;
            }
            Action::AddHandler { informer, plan } => self.add_handler(informer % informers, plan),
            Action::RemoveHandler { handler, close } => self.remove_handler(*handler, *close).await,
            Action::ReleaseHandlers => self.gate.release(),
            Action::AddIndex { informer, index } => {
                let informer = &self.informers[informer % informers].informer;
                let _ = informer.add_index_by(INDEXES[*index], checker::index_by(*index));
            }
            Action::RemoveIndex { informer, index } => {
                let _ = self.informers[informer % informers].informer.remove_index(INDEXES[*index]);
            }
            Action::KeepSnapshot { informer } => {
                let snapshot = self.informers[informer % informers].informer.snapshot();
                let digest = checker::digest(&snapshot);
                self.kept.push((snapshot, digest));
            }
            Action::Stop { informer } => self.informers[informer % informers].informer.stop().await,
            Action::Start { informer } => self.informers[informer % informers].informer.start(),
            Action::SetNamespaces { informer, set } => {
                let chosen = NAMESPACES.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
                let chosen: Vec<&str> = chosen.map(|(_, namespace)| *namespace).collect();
                let _ = self.informers[informer % informers].informer.set_namespaces(chosen).await;
            }
            Action::Nothing => {}
        }
    }

    /// Ends all faults, but nobody reaches a server while its data is replaced.
    fn clear_faults(&self) {
        self.faults.clear();
        if self.trace.elapsed() < self.away_until {
            self.faults.inject(Rule::on(Fault::Refuse).until(self.away_until));
        }
    }

    fn add_handler(&mut self, informer: usize, plan: &HandlerPlan) {
        let subject = &self.informers[informer];
        let restores = self.schedule.restores();
        let fixed = !matches!(subject.kind, InformerKind::Selected | InformerKind::Changing);
        let rules = Rules {
            ordered: !restores,
            once: fixed && plan.filter == Filter::None && !self.schedule.healing && !restores,
            changes: !self.schedule.healing && !restores,
            fixed: subject.kind != InformerKind::Changing && !restores,
        };
        let mut plan = plan.clone();
        // As the informer does, except for those who asked for something else.
        let as_informer = subject.kind == InformerKind::Resyncing && plan.typed && plan.speed == Speed::Fast;
        if as_informer {
            plan.resync = Some(RESYNC);
        }
        let states = (!self.schedule.garbles())
            .then(|| States { bodies: self.truth.bodies.clone(), kind: subject.kind });
        let name = format!("handler-{}-of-{informer}", self.added);
        self.added += 1;
        let ledger = Ledger::new(
            name.clone(),
            plan.clone(),
            rules,
            states,
            self.trace.clone(),
            &subject.informer,
            self.gate.clone(),
        );
        let first = subject.informer.has_synced().then(|| subject.informer.snapshot());
        let place = match subject.kind.resource() {
            _ if !plan.typed => attach(&subject.informer, name, &ledger, as_informer),
            Resource::ConfigMaps => {
                attach(&subject.informer.read_as::<ConfigMap>(), name, &ledger, as_informer)
            }
            Resource::Leases => attach(&subject.informer.read_as::<Lease>(), name, &ledger, as_informer),
        };
        self.handlers.push(Handler { ledger, informer, place, first });
    }

    async fn remove_handler(&mut self, number: usize, close: bool) {
        if self.handlers.is_empty() {
            return;
        }
        let handler = self.handlers.swap_remove(number % self.handlers.len());
        match handler.place {
            Place::Called(registration) if close => {
                // One that does not return is not waited for; it may then end what it has begun.
                let _ = tokio::time::timeout(Duration::from_secs(5), registration.close()).await;
            }
            Place::Called(registration) => drop(registration),
            Place::Streamed(task) => {
                task.abort();
                let _ = task.await;
            }
        }
        handler.ledger.removed();
        self.numbers.events += handler.ledger.events();
    }

    /// What must hold after every step.
    fn check(&mut self, waited: Duration) {
        let keys = KEYS + self.schedule.crowd.objects as usize;
        for (number, subject) in self.informers.iter_mut().enumerate() {
            let stats = subject.informer.stats();
            let limit = if subject.kind == InformerKind::TinyQueue { TINY_QUEUE } else { 16 << 20 };
            // One object may go over the limit; a resync brings its objects at once.
            if stats.queue.bytes > limit + (2_000 + self.schedule.crowd.bytes) * (keys + 1) {
                self.trace.violation(format_args!("informer {number} queues {} bytes", stats.queue.bytes));
            }
            // With no namespace there is nothing to wait for: then it has synced without a list.
            let fixed = subject.kind != InformerKind::Changing;
            if fixed && stats.has_synced && !subject.first.lock().expect("no panic").synced {
                let versions = &stats.store.versions;
                let scopes = subject.informer.namespaces();
                if versions.is_empty() && !scopes.is_empty() {
                    self.trace.violation(format_args!(
                        "informer {number} has synced, but its store has no version"
                    ));
                }
            }
            let requests: u64 = stats
                .reflectors
                .iter()
                .map(|status| status.counts)
                .map(|c| c.lists + c.streams + c.watches + c.checks)
                .sum();
            // One a second in the long run, and a few at once.
            let reflectors = stats.reflectors.len().max(1) as f64;
            let seconds = waited.as_secs_f64() * reflectors;
            // Those whose namespace has left may have made some of them.
            let all = NAMESPACES.len() as f64;
            let most = if subject.kind == InformerKind::Changing { all } else { reflectors };
            subject.requests.look(requests, seconds);
            let excess = subject.requests.excess;
            if excess > BURST * most {
                self.trace.violation(format_args!("informer {number} spins: {excess:.0} requests too many"));
            }
            // Lists cost more, so that they are rarer in the long run.
            let lists = subject.lists();
            subject.lists.look(lists, seconds / LIST_EVERY);
            let excess = subject.lists.excess;
            if excess > LISTS * most {
                self.trace.violation(format_args!("informer {number} lists {excess:.0} times too often"));
            }
        }
        for handler in &mut self.handlers {
            let subject = &self.informers[handler.informer];
            let Some(stats) = handler.stats(subject) else { continue };
            let plan = handler.ledger.plan();
            // A list is read from the store object by object, so it counts in the depth only.
            if stats.buffered > plan.buffer + keys || stats.depth > plan.buffer + 2 * keys {
                let HandlerStats { buffered, depth, .. } = stats;
                let buffer = plan.buffer;
                handler.ledger.fail(format_args!("has {depth} events, {buffered} in its buffer of {buffer}"));
            }
            if stats.has_synced && !handler.ledger.has_synced() {
                if !subject.informer.has_synced() {
                    handler.ledger.fail(format_args!("has synced before its informer"));
                }
                if let Some(first) = &handler.first {
                    handler.ledger.synced(first.iter(), None);
                } else {
                    let first = subject.first.lock().expect("no panic");
                    handler.ledger.synced(&first.objects, Some(first.reached));
                }
            }
        }
    }

    /// Nothing was written for a long time: a store is right, or its status says since when it fails.
    async fn check_status(&self) {
        if self.schedule.healing {
            return;
        }
        for (number, subject) in self.informers.iter().enumerate() {
            let server = self.truth.list(subject.kind.resource()).await;
            let (informer, status) = (&subject.informer, subject.informer.status());
            let (snapshot, namespaces) = (informer.snapshot(), informer.namespaces());
            let wrong = checker::difference(&snapshot, subject.kind, &namespaces, &server, false);
            let speaks = |status: &ReflectorStatus| status.failing_since.is_some();
            if let Some(wrong) = wrong
                && informer.stats().running
                && !status.iter().any(speaks)
            {
                self.trace.violation(format_args!("informer {number} does not say that {wrong}; {status:?}"));
            }
        }
    }

    fn report(mut self) -> Report {
        let stats = self.server.stats().total();
        self.numbers.simulated = self.trace.elapsed();
        self.numbers.writes = self.truth.changes;
        let crowd = self.schedule.crowd.objects;
        (self.numbers.crowds, self.numbers.most_objects) = (u64::from(crowd > 0), crowd + 2 * OBJECTS);
        for kind in &self.schedule.informers {
            *self.numbers.informers.entry(format!("{kind:?}")).or_default() += 1;
        }
        self.numbers.lists = stats.lists;
        self.numbers.watches = stats.watches;
        self.numbers.streaming_lists = stats.streaming_lists;
        self.numbers.events += self.handlers.iter().map(|handler| handler.ledger.events()).sum::<u64>();
        for kind in Fault::ALL_KINDS {
            self.numbers.faults.insert(kind.name(), self.faults.count(kind));
        }
        Report {
            violation: self.trace.first_violation(),
            lines: self.trace.lines(),
            hash: self.trace.hash(),
            numbers: self.numbers,
        }
    }
}

/// What an informer of a kind is asked to be.
fn options(schedule: &Schedule, transform: &Transform, kind: InformerKind, number: u64) -> InformerOptions {
    let reflector = ReflectorConfig {
        seed: Some(schedule.seed ^ number),
        watch_timeout: Duration::from_mins(1),
        request_deadline: Duration::from_secs(30),
        stream_silence: Duration::from_secs(10),
        stream_deadline: Duration::from_mins(1),
        verify_every: schedule.healing.then_some(VERIFY_EVERY),
        streaming_lists: kind != InformerKind::PagedStale,
        stale_first_list: kind == InformerKind::PagedStale,
        page_size: Some(if kind == InformerKind::PagedStale { 3 } else { 500 }),
        ..ReflectorConfig::default()
    };
    let options = InformerOptions::default().reflector(reflector);
    let options = if schedule.gzip { options.gzip() } else { options };
    // Every way to come and to be kept, in turn.
    let options = match schedule.seed % 4 {
        0 => options,
        1 => options.pack_eagerly(),
        2 => options.pack_eagerly().json(),
        _ => options.storage(Storage::Raw),
    };
    // A field that nobody has makes it a cache of its own.
    let own = |options: InformerOptions, name: &str| options.cut(FieldPath::of_fields(["metadata", name]));
    match kind {
        InformerKind::All | InformerKind::Leases => options,
        InformerKind::TwoNamespaces => options.namespace("a").namespace("b"),
        InformerKind::Selected => options.labels("app=web"),
        InformerKind::Changing => options.namespace("a").changing_namespaces(),
        InformerKind::MetadataOnly => options.metadata_only(),
        InformerKind::Decoded => options.storage(Storage::Decoded),
        InformerKind::PagedStale => own(options, "paged"),
        InformerKind::TinyQueue => own(options.queue_limit_bytes(TINY_QUEUE), "tiny"),
        InformerKind::Fields => options.fields(format!("metadata.namespace={FIELD_NAMESPACE}")),
        InformerKind::Cut => options.cut(FieldPath::of_fields(["data"])),
        InformerKind::Transformed => options.transform(transform.clone()),
        InformerKind::Resyncing => own(options.resync_every(RESYNC), "resyncing"),
    }
}

/// Registers a handler as its plan says.
fn attach<K: View>(informer: &SharedInformer<K>, name: String, ledger: &Ledger, as_informer: bool) -> Place {
    let plan = ledger.plan().clone();
    let mut options = HandlerOptions::default().name(name).buffer_len(plan.buffer);
    options = match plan.resync {
        _ if as_informer => options,
        Some(period) => options.resync_every(period),
        None => options.no_resync(),
    };
    if plan.filter != Filter::None {
        let plan = plan.clone();
        options = options.filter(move |object| plan.filter(object));
    }
    let ledger = ledger.clone();
    if plan.stream {
        let mut events = informer.events(options);
        return Place::Streamed(tokio::spawn(async move {
            while let Some(event) = events.next().await {
                ledger.clone().hear(event).await;
            }
        }));
    }
    Place::Called(informer.add_handler_with(options, move |event| ledger.clone().hear(event)))
}
