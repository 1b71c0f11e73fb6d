//! What a seed stands for: informers, handlers, writes and faults, all decided before the run, so that a run can be
//! repeated and made smaller.

use std::borrow::Cow;
use std::time::Duration;

use kube_informer::ObjectKey;
use kube_informer::object::Entry;
use kube_informer_apiserver::Verb;
use kube_informer_apiserver::faults::{Fault, Rule};
use serde_json::{Value, json};

use super::resource::Resource;

pub const NAMESPACES: [&str; 3] = ["a", "a-b", "b"];
const NAMES: u64 = 7;
/// How many objects there can be.
pub const OBJECTS: u64 = NAMESPACES.len() as u64 * NAMES;

/// An outage as long as this is lived through.
pub const LONG: Duration = Duration::from_mins(5);

/// Everything that happens in one run.
#[derive(Clone)]
pub struct Schedule {
    pub seed: u64,
    /// Whether faults are among it that only a comparison with the server can heal, so that every informer has `verify_every`.
    pub healing: bool,
    /// Whether the client accepts gzip.
    pub gzip: bool,
    /// How many objects there are beside those that the steps are about, and how many bytes each has.
    pub crowd: Crowd,
    pub informers: Vec<InformerKind>,
    pub steps: Vec<Step>,
}

/// Objects that are there before anything else: enough for more than a batch, a resync's chunk and a handler's buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crowd {
    pub objects: u64,
    pub bytes: usize,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub wait: Duration,
    pub action: Action,
}

impl Step {
    /// Whether answers come a few bytes at a time from now on.
    fn drips(&self) -> bool {
        matches!(&self.action, Action::Fault(rule) if matches!(rule.fault(), Fault::Drip { .. }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InformerKind {
    /// Everything, as it comes.
    All,
    /// Two namespaces with a reflector each.
    TwoNamespaces,
    /// What the server selects by a label.
    Selected,
    /// Namespaces that come and go.
    Changing,
    MetadataOnly,
    /// Bodies kept decoded.
    Decoded,
    /// Lists in small pages, the first of which may be old.
    PagedStale,
    /// A queue that is nearly always full.
    TinyQueue,
    /// What the server selects by a field.
    Fields,
    /// Without the data.
    Cut,
    /// With another field in the data.
    Transformed,
    /// Everything again after a while.
    Resyncing,
    /// Another kind of objects.
    Leases,
}

impl InformerKind {
    /// The objects that informers of this kind are about.
    pub fn resource(self) -> Resource {
        if self == Self::Leases { Resource::Leases } else { Resource::ConfigMaps }
    }

    /// What informers of this kind show of the server's object.
    pub fn shows(self, object: &Value) -> Cow<'_, Value> {
        let mut shown = Cow::Borrowed(object);
        if matches!(self, Self::MetadataOnly | Self::Cut | Self::Transformed) {
            self.change(shown.to_mut());
        }
        shown
    }

    /// Makes of the server's object what informers of this kind show.
    pub fn change(self, object: &mut Value) {
        match self {
            Self::MetadataOnly => *object = json!({"metadata": object["metadata"]}),
            Self::Cut => drop(object.as_object_mut().map(|fields| fields.remove("data"))),
            // A body that was garbled on the way may have anything there.
            Self::Transformed if object["data"].is_object() => object["data"]["shown"] = "yes".into(),
            _ => {}
        }
    }

    /// Whether informers of this kind ask for an object with or without the label.
    pub fn selects(self, key: &ObjectKey, web: bool) -> bool {
        match self {
            Self::Selected => web,
            Self::Fields => key.namespace() == Some(FIELD_NAMESPACE),
            _ => true,
        }
    }
}

/// The namespace that a field selector asks for.
pub const FIELD_NAMESPACE: &str = "a-b";

/// How often informers that resync do so.
pub const RESYNC: Duration = Duration::from_secs(40);

#[derive(Clone, Debug)]
pub struct HandlerPlan {
    pub speed: Speed,
    /// Panics at every such event.
    pub panics_every: Option<u64>,
    pub filter: Filter,
    pub resync: Option<Duration>,
    pub buffer: usize,
    /// Reads a stream instead of being called.
    pub stream: bool,
    /// Reads the objects as another type.
    pub typed: bool,
}

impl HandlerPlan {
    /// Makes a slow handler fast enough to process this number of objects within the limits of the simulation.
    fn hurry(&mut self, objects: u64) {
        if let Speed::Slow(time) = &mut self.speed {
            *time /= 100;
            let round = *time * u32::try_from(2 * objects).expect("few objects");
            self.resync = self.resync.map(|period| period + round);
        }
    }

    /// Whether the handler is notified of an object.
    pub fn passes(&self, object: &Entry) -> bool {
        let web = object.label("app") == Some("web");
        match self.filter {
            Filter::None => true,
            Filter::Web => web,
            Filter::WebOrPanic => web || object.label("turn") == Some("3"),
        }
    }

    /// The filter itself, if there is one.
    pub fn filter(&self, object: &Entry) -> bool {
        if self.filter == Filter::WebOrPanic && object.label("turn") == Some("3") {
            // Not `panic!`: the hook that prints it would run.
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        self.passes(object)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    None,
    Web,
    /// Panics for some objects, which then pass.
    WebOrPanic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    Fast,
    Slow(Duration),
    /// Does not return until it is let go.
    Blocked,
}

/// Numbers are taken modulo what there is, so that any step can be left out.
#[derive(Clone, Debug)]
pub enum Action {
    Create {
        object: u64,
        web: bool,
    },
    Update {
        object: u64,
        web: bool,
    },
    Delete {
        object: u64,
    },
    Recreate {
        object: u64,
        web: bool,
    },
    /// Changes many objects of the crowd at once.
    Churn {
        objects: u64,
    },
    Fault(Rule),
    /// A fault without exception, for a time.
    Outage(Rule, Duration),
    ClearFaults,
    Restart,
    Compact,
    Backup,
    /// Brings the backup back, while the server cannot be reached. Writes after it let revisions overtake those that informers
    /// have seen.
    Restore {
        writes: u64,
        away: Duration,
    },
    AddHandler {
        informer: usize,
        plan: HandlerPlan,
    },
    RemoveHandler {
        handler: usize,
        close: bool,
    },
    ReleaseHandlers,
    AddIndex {
        informer: usize,
        index: usize,
    },
    RemoveIndex {
        informer: usize,
        index: usize,
    },
    KeepSnapshot {
        informer: usize,
    },
    Stop {
        informer: usize,
    },
    Start {
        informer: usize,
    },
    SetNamespaces {
        informer: usize,
        set: u64,
    },
    Nothing,
}

/// The faults that leave a wrong object behind that looks right: nothing but a look at all objects can find it.
pub fn needs_verification(fault: &Fault) -> bool {
    matches!(fault, Fault::LostEvent | Fault::UnknownObject | Fault::BadBody | Fault::Restore { .. })
}

/// Namespace and name of an object by its number.
pub fn object_key(object: u64) -> ObjectKey {
    let namespace = NAMESPACES[(object % NAMESPACES.len() as u64) as usize];
    ObjectKey::new(namespace, &format!("o{}", object / NAMESPACES.len() as u64 % NAMES))
}

impl Schedule {
    pub fn from_seed(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x51ed_270b);
        let healing = random.u8(..3) == 0;
        let informers = (0..random.usize(2..=4)).map(|_| informer_kind(&mut random)).collect();
        let mut steps = Vec::new();
        for _ in 0..random.usize(4..14) {
            let object = random.u64(..);
            steps.push(Step { wait: Duration::ZERO, action: Action::Create { object, web: random.bool() } });
        }
        for _ in 0..random.usize(2..5) {
            steps.push(Step { wait: Duration::ZERO, action: add_handler(&mut random) });
        }
        // Permissions that come late, or another outage from the start.
        if random.u8(..6) == 0 {
            let late = Rule::on(if random.bool() { Fault::Forbidden } else { Fault::Unauthorized });
            let action = Action::Outage(late, outage_time(&mut random));
            steps.push(Step { wait: Duration::ZERO, action });
        }
        // Faults of the first list are there before it.
        for _ in 0..random.usize(0..5) {
            steps.push(Step { wait: Duration::ZERO, action: fault(&mut random, healing) });
        }
        for informer in 0..4 {
            steps.push(Step { wait: Duration::ZERO, action: Action::Start { informer } });
        }
        let first_steps = steps.len();
        for _ in 0..random.usize(20..70) {
            let wait = match random.u8(..10) {
                0..=3 => Duration::ZERO,
                4..=7 => Duration::from_millis(random.u64(1..2_000)),
                8 => Duration::from_secs(random.u64(2..20)),
                _ => Duration::from_secs(random.u64(20..150)),
            };
            let action = action(&mut random, healing);
            // A long outage is lived through.
            let lasts = if let Action::Outage(_, time) = &action { *time } else { Duration::ZERO };
            steps.push(Step { wait, action });
            if lasts >= LONG {
                steps.push(Step { wait: lasts.mul_f64(random.f64()), action: Action::Nothing });
            }
        }
        let mut crowd = Crowd::default();
        if random.u8(..=255) == 0 {
            crowd = Crowd { objects: random.u64(600..2_500), bytes: random.usize(10..4_000) };
            for _ in 0..random.usize(1..4) {
                let place = random.usize(first_steps..=steps.len());
                let action = Action::Churn { objects: random.u64(1..crowd.objects) };
                steps.insert(place, Step { wait: Duration::ZERO, action });
            }
            // A list of thousands of objects would take hours at a few bytes a second.
            steps.retain(|step| !step.drips());
            for step in &mut steps {
                if let Action::AddHandler { plan, .. } = &mut step.action {
                    plan.hurry(crowd.objects);
                }
            }
        }
        if random.u8(..8) == 0 {
            let restored = random.usize(first_steps..=steps.len());
            let backed_up = random.usize(first_steps..=restored);
            let wait = Duration::from_millis(random.u64(..60_000));
            steps.insert(restored, Step { wait, action: restore(&mut random) });
            steps.insert(backed_up, Step { wait: Duration::ZERO, action: Action::Backup });
        }
        if crowd.objects > 0 && !healing {
            // Among more than 500 objects, a restore that leaves their number and the last change as they were is found by
            // `verify_every` only.
            steps.retain(|step| !matches!(step.action, Action::Restore { .. }));
        }
        let mut schedule = Self { seed, healing, gzip: random.u8(..4) == 0, crowd, informers, steps };
        if schedule.restores() {
            // A restore ends every connection, which an answer that drips for a minute would outlive.
            schedule.steps.retain(|step| !step.drips());
        }
        schedule
    }

    /// Whether versions may be garbled more often in a row than an informer refuses them.
    pub fn insists_on_odd_versions(&self) -> bool {
        let garbles =
            |step: &&Step| matches!(&step.action, Action::Fault(rule) if rule.fault() == Fault::BadVersion);
        self.steps.iter().filter(garbles).count() > 1
    }

    /// Whether an object may come with a body that the server never had.
    pub fn garbles(&self) -> bool {
        let garbles =
            |fault: Fault| matches!(fault, Fault::BadBody | Fault::UnknownObject | Fault::Restore { .. });
        self.steps.iter().any(|step| matches!(&step.action, Action::Fault(rule) if garbles(rule.fault())))
    }

    /// A restore makes versions go backwards: then what depends on their order does not hold.
    pub fn restores(&self) -> bool {
        let restores = |step: &Step| match &step.action {
            Action::Restore { .. } => true,
            Action::Fault(rule) => matches!(rule.fault(), Fault::Restore { .. }),
            _ => false,
        };
        self.steps.iter().any(restores)
    }
}

fn informer_kind(random: &mut fastrand::Rng) -> InformerKind {
    use InformerKind as Kind;
    const KINDS: [InformerKind; 16] = [
        Kind::All,
        Kind::All,
        Kind::Fields,
        Kind::Cut,
        Kind::Transformed,
        Kind::Resyncing,
        Kind::TwoNamespaces,
        Kind::Selected,
        Kind::Changing,
        Kind::MetadataOnly,
        Kind::Decoded,
        Kind::PagedStale,
        Kind::PagedStale,
        Kind::TinyQueue,
        Kind::Leases,
        Kind::Leases,
    ];
    KINDS[random.usize(..KINDS.len())]
}

fn action(random: &mut fastrand::Rng, healing: bool) -> Action {
    let object = random.u64(..);
    let web = random.bool();
    let number = random.usize(..64);
    match random.u8(..100) {
        0..=11 => Action::Create { object, web },
        12..=35 => Action::Update { object, web },
        36..=43 => Action::Delete { object },
        44..=49 => Action::Recreate { object, web },
        50..=69 => fault(random, healing),
        70 => Action::ClearFaults,
        98 | 99 => outage(random),
        71 => Action::Restart,
        72 => Action::Compact,
        73 => Action::Backup,
        74 if healing => restore(random),
        74..=79 => add_handler(random),
        80..=82 => Action::RemoveHandler { handler: number, close: random.bool() },
        83 => Action::ReleaseHandlers,
        84..=86 => Action::AddIndex { informer: number, index: random.usize(..3) },
        87 => Action::RemoveIndex { informer: number, index: random.usize(..3) },
        88..=89 => Action::KeepSnapshot { informer: number },
        90..=91 => Action::Stop { informer: number },
        92..=94 => Action::Start { informer: number },
        95..=97 => Action::SetNamespaces { informer: number, set: random.u64(..8) },
        _ => Action::Nothing,
    }
}

fn add_handler(random: &mut fastrand::Rng) -> Action {
    let speed = match random.u8(..6) {
        0 => Speed::Slow(Duration::from_millis(random.u64(1..3_000))),
        1 => Speed::Blocked,
        _ => Speed::Fast,
    };
    // A handler that needs longer for a round than the period never catches up, and real changes wait behind its resyncs.
    let slowest = if let Speed::Slow(time) = speed { time.as_secs() * OBJECTS * 2 } else { 0 };
    let plan = HandlerPlan {
        speed,
        panics_every: (random.u8(..6) == 0).then(|| random.u64(1..4)),
        filter: match random.u8(..9) {
            0..=5 => Filter::None,
            6 | 7 => Filter::Web,
            _ => Filter::WebOrPanic,
        },
        resync: (random.u8(..4) == 0).then(|| Duration::from_secs(slowest + random.u64(10..60))),
        buffer: if random.bool() { 1024 } else { random.usize(1..4) },
        stream: random.u8(..4) == 0,
        typed: random.u8(..4) == 0,
    };
    Action::AddHandler { informer: random.usize(..64), plan }
}

fn restore(random: &mut fastrand::Rng) -> Action {
    let writes = if random.bool() { 0 } else { random.u64(1..40) };
    Action::Restore { writes, away: Duration::from_millis(random.u64(3_000..30_000)) }
}

/// Something that goes on for a while: of all requests, or of watches while lists work.
fn outage(random: &mut fastrand::Rng) -> Action {
    const ALL: [Fault; 10] = [
        Fault::Refuse,
        Fault::NotFound,
        Fault::Cut,
        Fault::Stall,
        Fault::Forbidden,
        Fault::InternalError,
        Fault::Unavailable,
        Fault::TooManyRequests { retry_after: None },
        Fault::EndStream,
        Fault::CutStream,
    ];
    const WATCHES: [Fault; 7] = [
        Fault::Forbidden,
        Fault::MethodNotAllowed,
        Fault::InternalError,
        Fault::Stall,
        Fault::ErrorEvent,
        Fault::EndStream,
        Fault::CutStream,
    ];
    let rule = match random.u8(..7) {
        0..=2 => Rule::on(ALL[random.usize(..ALL.len())]),
        3 => Rule::on(Fault::StaleReplica { behind: random.u64(1..10) }),
        _ => {
            let rule = Rule::on(WATCHES[random.usize(..WATCHES.len())]).verb(Verb::Watch);
            // Accepted, and closed after some milliseconds.
            let after = if random.bool() { random.u64(1..1_200) } else { 0 };
            if is_in_answer(&rule.fault()) { rule.after(Duration::from_millis(after)) } else { rule }
        }
    };
    Action::Outage(rule, outage_time(random))
}

fn outage_time(random: &mut fastrand::Rng) -> Duration {
    let longest = if random.u8(..6) == 0 { 2 * 3600 } else { 120 };
    Duration::from_secs(random.u64(10..longest))
}

fn fault(random: &mut fastrand::Rng, healing: bool) -> Action {
    let kind = loop {
        // Only one kind of informer ever meets a stale replica: more often, so that it is met often enough.
        let kind = match random.usize(..Fault::ALL_KINDS.len() + 4) {
            number if number < Fault::ALL_KINDS.len() => Fault::ALL_KINDS[number],
            _ => Fault::StaleReplica { behind: random.u64(1..10) },
        };
        // In a healing run, half of the faults are those that need it.
        if needs_verification(&kind) == (healing && random.bool()) {
            break kind;
        }
    };
    let kind = match kind {
        Fault::TooManyRequests { .. } if random.bool() => {
            Fault::TooManyRequests { retry_after: Some(Duration::from_secs(random.u64(1..10))) }
        }
        Fault::Delay(_) => Fault::Delay(Duration::from_millis(random.u64(1..70_000))),
        Fault::Drip { .. } => {
            Fault::Drip { bytes: random.usize(1..64), every: Duration::from_millis(random.u64(1..200)) }
        }
        kind => kind,
    };
    let mut rule = Rule::on(kind).times(random.u64(1..4));
    rule = match random.u8(..6) {
        _ if matches!(kind, Fault::StaleReplica { .. }) => rule,
        0 => rule.verb(Verb::List),
        1 => rule.verb(Verb::Watch),
        _ => rule,
    };
    if random.u8(..4) == 0 {
        rule = rule.probability(0.5);
    }
    if random.u8(..4) == 0 && is_in_answer(&kind) {
        rule = rule.after_events(random.u64(1..6));
    }
    Action::Fault(rule)
}

/// Whether some of an answer can pass before it happens.
fn is_in_answer(fault: &Fault) -> bool {
    let first = Fault::ALL_KINDS.iter().position(|kind| matches!(kind, Fault::CutStream));
    let place = Fault::ALL_KINDS.iter().position(|kind| kind.is_kind(fault));
    place >= first
}
