//! What an informer is asked to be, and which of two requests can share one.

use std::any::TypeId;
use std::time::Duration;

use kube_wire::FieldPath;

use crate::Transform;
use crate::delta_fifo::{DEFAULT_LIMIT_BYTES, Scope};
use crate::object::{Decoder, Kind, Storage, View, erase};
use crate::reflector::{ErrorHook, ReflectorConfig};
use crate::source::narrow;

/// What an informer holds and how it goes about it.
///
/// What it holds (namespaces, selectors, cut fields, transform, metadata only) decides with whom it is shared; the rest must be
/// the same for all who share it.
#[derive(Debug, Clone, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a method of the builder; there are no invalid combinations"
)]
pub struct InformerOptions {
    pub(crate) namespaces: Vec<String>,
    pub(crate) changing_namespaces: bool,
    pub(crate) labels: String,
    pub(crate) fields: String,
    pub(crate) cut: Vec<FieldPath>,
    pub(crate) keep_managed_fields: bool,
    pub(crate) transform: Option<Transform>,
    pub(crate) metadata_only: bool,
    pub(crate) json: bool,
    pub(crate) gzip: bool,
    pub(crate) storage: Storage,
    pub(crate) pack_eagerly: bool,
    pub(crate) resync_every: Option<Duration>,
    pub(crate) queue_limit_bytes: Option<usize>,
    pub(crate) reflector: ReflectorConfig,
}

impl InformerOptions {
    /// Only this namespace. May be called several times for several namespaces. An empty name means all namespaces.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespaces.push(namespace.into());
        self
    }

    /// Lets namespaces change while the informer runs. Such an informer is never shared.
    pub fn changing_namespaces(mut self) -> Self {
        self.changing_namespaces = true;
        self
    }

    /// Only objects that the server selects by labels. Called several times, an object must satisfy every selector.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        narrow(&mut self.labels, &selector.into());
        self
    }

    /// Only objects that the server selects by fields. Called several times, an object must satisfy every selector.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        narrow(&mut self.fields, &selector.into());
        self
    }

    /// Drops a field of every object on arrival, such as `.metadata.annotations['big']`.
    pub fn cut(mut self, path: FieldPath) -> Self {
        self.cut.push(path);
        self
    }

    /// Keeps `.metadata.managedFields`, which are dropped otherwise: few read them, and they are half of a pod.
    pub fn keep_managed_fields(mut self) -> Self {
        self.keep_managed_fields = true;
        self
    }

    /// Changes every object on arrival, before anything else sees it. Replaces a transform that was set before.
    pub fn transform(mut self, transform: Transform) -> Self {
        self.transform = Some(transform);
        self
    }

    /// Asks the server for metadata alone.
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Asks for JSON even of kinds that the server has protobuf for: dearer for both sides, but it brings fields that are newer
    /// than Kubernetes 1.37, which are not read from protobuf.
    pub fn json(mut self) -> Self {
        self.json = true;
        self
    }

    /// Asks for compressed answers: fewer bytes for more CPU on both sides. It pays on slow links only.
    pub fn gzip(mut self) -> Self {
        self.gzip = true;
        self
    }

    /// In which form bodies are kept.
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Packs even what does not pay, for simulations with few and small objects.
    #[doc(hidden)]
    pub fn pack_eagerly(mut self) -> Self {
        self.pack_eagerly = true;
        self
    }

    /// How often handlers hear of every object again, unless they say otherwise. Never by default. Costs no request.
    pub fn resync_every(mut self, period: Duration) -> Self {
        self.resync_every = Some(period.max(Duration::from_secs(1)));
        self
    }

    /// How many bytes of changes may wait for the store before the reflector stops reading.
    pub fn queue_limit_bytes(mut self, bytes: usize) -> Self {
        self.queue_limit_bytes = Some(bytes);
        self
    }

    /// How lists and watches are made.
    pub fn reflector(mut self, config: ReflectorConfig) -> Self {
        let verify_every = config.verify_every.or(self.reflector.verify_every);
        self.reflector = ReflectorConfig { verify_every, ..config }.bounded();
        self
    }

    /// Compares with the server every so often, by a list. Zero switches it off; the shortest period is one second.
    ///
    /// A restore from a backup is found without this, by a check after every lost connection. This finds what the server itself
    /// lost: events that it never sent.
    pub fn verify_every(mut self, period: Duration) -> Self {
        self.reflector.verify_every = Some(period);
        self.reflector = self.reflector.bounded();
        self
    }

    /// All of the source, where it has no namespaces or does not know of them.
    pub(crate) fn forget_namespaces(&mut self) {
        self.namespaces.clear();
        self.changing_namespaces = false;
    }

    /// Whether the cache keeps decoded values instead of bytes.
    pub(crate) fn keeps_values(&self) -> bool {
        self.storage == Storage::Decoded || self.transform.as_ref().is_some_and(Transform::makes_values)
    }

    pub(crate) fn queue_limit(&self) -> usize {
        self.queue_limit_bytes.unwrap_or(DEFAULT_LIMIT_BYTES)
    }

    pub(crate) fn scopes(&self) -> Vec<Scope> {
        if self.namespaces.is_empty() && !self.changing_namespaces {
            return vec![Scope::CLUSTER];
        }
        Scope::distinct(self.namespaces.iter().map(|namespace| Scope::namespace(namespace)))
    }

    /// All paths that are cut, in order.
    pub(crate) fn cuts(&self) -> Vec<FieldPath> {
        let managed_fields = FieldPath::of_fields(["metadata", "managedFields"]);
        let mut cuts: Vec<FieldPath> = self.reflector.cuts.iter().chain(&self.cut).cloned().collect();
        cuts.retain(|path| !(self.keep_managed_fields && *path == managed_fields));
        cuts.sort();
        cuts.dedup();
        cuts
    }

    /// What else must be equal for two to share a cache; named, for the error that says so.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        let (ours, theirs) = (&self.reflector, &other.reflector);
        let checks = [
            ("json", self.json == other.json),
            ("gzip", self.gzip == other.gzip),
            ("pack_eagerly", self.pack_eagerly == other.pack_eagerly),
            ("resync_every", self.resync_every == other.resync_every),
            ("queue_limit_bytes", self.queue_limit() == other.queue_limit()),
            ("reflector.streaming_lists", ours.streaming_lists == theirs.streaming_lists),
            ("reflector.page_size", ours.page_size == theirs.page_size),
            ("reflector.stale_first_list", ours.stale_first_list == theirs.stale_first_list),
            ("verify_every", ours.verify_every == theirs.verify_every),
            ("reflector.silence_limit", ours.silence_limit == theirs.silence_limit),
            ("reflector.backoff", ours.backoff == theirs.backoff),
            ("reflector.watch_timeout", ours.watch_timeout == theirs.watch_timeout),
            ("reflector.request_deadline", ours.request_deadline == theirs.request_deadline),
            ("reflector.stream_silence", ours.stream_silence == theirs.stream_silence),
            ("reflector.stream_deadline", ours.stream_deadline == theirs.stream_deadline),
            ("reflector.on_error", same_hook(ours.on_error.as_ref(), theirs.on_error.as_ref())),
        ];
        checks.into_iter().find(|(_, same)| !same).map(|(name, _)| name)
    }
}

fn same_hook(ours: Option<&ErrorHook>, theirs: Option<&ErrorHook>) -> bool {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => std::sync::Arc::ptr_eq(ours, theirs),
        (ours, theirs) => ours.is_none() && theirs.is_none(),
    }
}

/// What a type has to do with a cache that keeps decoded values.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) decoder: Decoder,
}

impl Shape {
    pub(crate) fn of<K: View>() -> Self {
        let target = TypeId::of::<K>();
        let run = |kind: &Kind, wire, typed, bytes: &[u8]| {
            K::decode(kind, wire, typed, bytes).map(|value| erase(std::sync::Arc::new(Box::new(value))))
        };
        Self { decoder: Decoder { target, run } }
    }
}

/// What makes two requests mean the same cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    kind: Kind,
    scopes: Vec<Scope>,
    labels: String,
    fields: String,
    cuts: Vec<FieldPath>,
    transform: Option<usize>,
    metadata_only: bool,
    storage: Storage,
    decoded_as: Option<TypeId>,
}

impl CacheKey {
    pub(crate) fn new(kind: &Kind, options: &InformerOptions, shape: &Shape) -> Self {
        let decoded = options.storage == Storage::Decoded;
        let made = options.transform.as_ref().and_then(Transform::target);
        Self {
            kind: kind.clone(),
            scopes: options.scopes(),
            labels: options.labels.clone(),
            fields: options.fields.clone(),
            cuts: options.cuts(),
            transform: options.transform.as_ref().map(Transform::id),
            metadata_only: options.metadata_only,
            storage: options.storage,
            decoded_as: made.or(decoded.then_some(shape.decoder.target)),
        }
    }
}
