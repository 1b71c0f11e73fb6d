//! Hands out informers, the same one to everybody who asks for the same thing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kube_client::Client;
use kube_core::dynamic::DynamicObject;
use kube_core::metadata::PartialObjectMeta;
use kube_core::{ApiResource, Resource};
use tokio_util::sync::CancellationToken;

use crate::Kind;
use crate::delta_fifo::Scope;
use crate::object::View;
use crate::planted::{Bug, planted};
use crate::shared_informer::{
    CacheKey, Core, InformerOptions, Keeper, NotSynced, Several, Shape, SharedInformer, SourceOf, Tasks,
    Unfinished, Unhealthy,
};
use crate::source::{Histories, KubeSource, ListWatch};
use crate::stats::InformerStats;

/// How long [`SharedInformerFactory::shutdown`] waits for handlers.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(30);

/// How often a wait looks whether an optional kind is absent.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Makes informers and shares them: one list, one watch and one copy for each kind and choice of objects, however many ask.
///
/// Holds its informers weakly: one that nobody uses any more stops by itself.
///
/// Cheap to clone; all clones are the same factory.
#[derive(Clone)]
pub struct SharedInformerFactory {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    defaults: InformerOptions,
    informers: Mutex<Informers>,
    histories: Histories,
    cancel: CancellationToken,
    tasks: Arc<Tasks>,
}

#[derive(Default)]
struct Informers {
    started: bool,
    /// In the order in which they were made, which is the order in which they start.
    shared: Vec<(CacheKey, Weak<Keeper>)>,
    /// Those whose namespaces may change.
    unshared: Vec<Weak<Keeper>>,
}

/// The same objects are cached with another setting: by somebody who asked before, or by whoever asks for
/// [`informer`](SharedInformerFactory::informer), which has the factory's settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{kind} is cached with another {option}; ask for the same, set it for the whole factory, or choose other objects"
)]
pub struct Conflict {
    /// The kind, as `apiVersion kind`.
    pub kind: String,
    /// The setting in which the two differ.
    pub option: &'static str,
}

impl SharedInformerFactory {
    /// A factory with the usual defaults, over all namespaces.
    pub fn new(client: Client) -> Self {
        Self::with_defaults(client, InformerOptions::default())
    }

    /// A factory whose informers have these options unless they say otherwise: namespaces, resync period, selectors, cuts.
    pub fn with_defaults(client: Client, defaults: InformerOptions) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                defaults,
                informers: Mutex::default(),
                histories: Histories::default(),
                cancel: CancellationToken::new(),
                tasks: Arc::default(),
            }),
        }
    }

    /// The options that informers have unless they say otherwise; a place to start from for
    /// [`informer_with`](Self::informer_with).
    pub fn defaults(&self) -> InformerOptions {
        self.inner.defaults.clone()
    }

    /// The informer of a kind that the type knows. Whoever asks again gets the same one.
    pub fn informer<K>(&self) -> SharedInformer<K>
    where
        K: Resource<DynamicType = ()> + View,
        K::Scope: 'static,
    {
        // A cache made with the factory's own options differs in nothing from another one made so.
        self.share(Kind::of::<K>(), self.defaults()).unwrap_or_else(|conflict| unreachable!("{conflict}"))
    }

    /// The informer of a kind with options of its own.
    ///
    /// # Errors
    /// If the same objects are already cached with another setting.
    pub fn informer_with<K>(&self, options: InformerOptions) -> Result<SharedInformer<K>, Conflict>
    where
        K: Resource<DynamicType = ()> + View,
        K::Scope: 'static,
    {
        self.share(Kind::of::<K>(), options)
    }

    /// The informer of a kind that is known at run time only.
    ///
    /// # Errors
    /// If the same objects are already cached with another setting.
    pub fn dynamic(
        &self,
        resource: &ApiResource,
        namespaced: bool,
        options: InformerOptions,
    ) -> Result<SharedInformer<DynamicObject>, Conflict> {
        self.share(Kind::from_resource(resource, namespaced), options)
    }

    /// The informer of a kind by its description, read as any type.
    ///
    /// # Errors
    /// If the same objects are already cached with another setting.
    pub fn informer_of<K: View>(
        &self,
        kind: Kind,
        options: InformerOptions,
    ) -> Result<SharedInformer<K>, Conflict> {
        self.share(kind, options)
    }

    /// The informer of a kind's metadata: nothing else is asked of the server. To read a full cache as metadata, use
    /// [`read_as`](SharedInformer::read_as) instead.
    pub fn metadata<K>(&self) -> SharedInformer<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
        K::Scope: 'static,
    {
        let options = self.defaults().metadata_only();
        self.share(Kind::of::<K>(), options).unwrap_or_else(|conflict| unreachable!("{conflict}"))
    }

    /// Starts every informer that does not run; what is asked for from now on starts at once. Does nothing after a shutdown.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&self) {
        self.lock().started = true;
        for keeper in self.keepers() {
            keeper.start();
        }
    }

    /// Waits until the stores of all informers have had their first list. A kind that a controller declared
    /// [optional](crate::controller::WatchOptions::optional) is not waited for while the server does not have it.
    ///
    /// # Errors
    /// If one of them does not run.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn wait_for_sync(&self) -> Result<(), NotSynced> {
        for keeper in self.keepers() {
            loop {
                tokio::select! {
                    synced = keeper.wait_for_sync() => break synced?,
                    () = tokio::time::sleep(LOOK_EVERY) => if keeper.core().is_absent() { break },
                }
            }
        }
        Ok(())
    }

    /// As [`wait_for_sync`](Self::wait_for_sync), for so long and no longer.
    ///
    /// # Errors
    /// For each informer that has not synced by then, what it waits for and what last went wrong.
    pub async fn wait_for_sync_within(&self, limit: Duration) -> Result<(), Several<NotSynced>> {
        match tokio::time::timeout(limit, self.wait_for_sync()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Several(vec![error])),
            Err(_) => {
                let late = self.keepers();
                let late = late.iter().map(|keeper| keeper.core());
                let late = late.filter(|core| !core.has_synced() && !core.is_absent());
                Err(Several(late.map(|core| core.not_synced()).collect()))
            }
        }
    }

    /// Ends everything: lists, watches, handlers. Callbacks that run may return, for 30 seconds. Nothing is left behind.
    ///
    /// # Errors
    /// If handlers did not return in time: their names. Their tasks were ended where they stood.
    ///
    /// # Cancel safety
    /// Dropped, everything has been told to end all the same; another call waits for the rest.
    pub async fn shutdown(&self) -> Result<(), Unfinished> {
        self.shutdown_within(SHUTDOWN_LIMIT).await
    }

    /// As [`shutdown`](Self::shutdown), with another limit.
    ///
    /// # Errors
    /// If handlers did not return in time: their names. Their tasks were ended where they stood.
    pub async fn shutdown_within(&self, limit: Duration) -> Result<(), Unfinished> {
        self.inner.cancel.cancel();
        self.inner.tasks.join(limit).await
    }

    /// Tells whether all copies can be relied on: see [`SharedInformer::health`].
    ///
    /// # Errors
    /// For each informer that is stale for longer than `limit`, why.
    pub fn health(&self, limit: Duration) -> Result<(), Several<Unhealthy>> {
        let informers = self.keepers().into_iter().map(SharedInformer::<()>::new);
        let stale: Vec<Unhealthy> = informers.filter_map(|informer| informer.health(limit).err()).collect();
        if stale.is_empty() { Ok(()) } else { Err(Several(stale)) }
    }

    /// Ends the waits before the next attempts of all informers: see [`SharedInformer::retry_now`].
    pub fn retry_now(&self) {
        for keeper in self.keepers() {
            keeper.core().retry_now();
        }
    }

    /// How many tasks of this factory have not ended; none after a shutdown, except callbacks that block their thread.
    pub fn running_tasks(&self) -> usize {
        self.inner.tasks.running()
    }

    /// Numbers about every informer that somebody uses.
    pub fn stats(&self) -> Vec<InformerStats> {
        self.keepers().iter().map(|keeper| keeper.stats()).collect()
    }

    fn share<K: View>(
        &self,
        kind: Kind,
        mut options: InformerOptions,
    ) -> Result<SharedInformer<K>, Conflict> {
        if !kind.is_namespaced() {
            // A default namespace is no reason to fail on nodes.
            options.forget_namespaces();
        }
        let shape = Shape::of::<K>();
        let key = CacheKey::new(&kind, &options, &shape);
        // Whoever comes first: what `informer` and `metadata` give has the factory's settings.
        if !options.changing_namespaces && self.is_default(&kind, &key, &options, &shape) {
            let difference = self.inner.defaults.difference(&options);
            if let Some(option) = difference {
                return Err(Conflict { kind: kind.to_string(), option });
            }
        }
        let mut informers = self.lock();
        if !options.changing_namespaces
            && let Some((_, keeper)) = informers.shared.iter().find(|(known, _)| *known == key)
            && let Some(keeper) =
                keeper.upgrade().filter(|keeper| !keeper.is_over() || planted(Bug::OverInformerShared))
        {
            return match keeper.core().options.difference(&options) {
                Some(option) => Err(Conflict { kind: kind.to_string(), option }),
                None => Ok(SharedInformer::new(keeper)),
            };
        }
        informers.shared.retain(|(_, keeper)| keeper.upgrade().is_some_and(|keeper| !keeper.is_over()));
        informers.unshared.retain(|keeper| keeper.strong_count() > 0);
        let changing = options.changing_namespaces;
        let source = self.source(&kind, &options);
        let core = Core::new(Arc::new(kind), source, options, shape);
        let keeper = Keeper::within(core, &self.inner.cancel, &self.inner.tasks);
        if changing {
            informers.unshared.push(Arc::downgrade(&keeper));
        } else {
            informers.shared.push((key, Arc::downgrade(&keeper)));
        }
        if informers.started {
            keeper.start();
        }
        Ok(SharedInformer::new(keeper))
    }

    /// Whether a key is that of the cache with the factory's own options, or of its metadata.
    fn is_default(&self, kind: &Kind, key: &CacheKey, options: &InformerOptions, shape: &Shape) -> bool {
        let mut defaults = self.defaults();
        if !kind.is_namespaced() {
            defaults.forget_namespaces();
        }
        defaults.metadata_only |= options.metadata_only;
        CacheKey::new(kind, &defaults, shape) == *key
    }

    fn source(&self, kind: &Kind, options: &InformerOptions) -> SourceOf {
        let mut source = KubeSource::new(self.inner.client.clone(), kind.clone())
            .histories(self.inner.histories.clone())
            .labels(options.labels.clone())
            .fields(options.fields.clone());
        if options.metadata_only {
            source = source.metadata_only();
        }
        if options.json {
            source = source.json();
        }
        if options.gzip {
            source = source.gzip();
        }
        Arc::new(move |scope: &Scope| -> Arc<dyn ListWatch> {
            let source = source.clone();
            Arc::new(match scope.as_namespace() {
                Some(namespace) => source.namespace(namespace),
                None => source,
            })
        })
    }

    fn keepers(&self) -> Vec<Arc<Keeper>> {
        let informers = self.lock();
        let shared = informers.shared.iter().map(|(_, keeper)| keeper);
        let unshared = informers.unshared.iter().filter(|_| !planted(Bug::UnsharedForgotten));
        shared.chain(unshared).filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Informers> {
        self.inner.informers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedInformerFactory")
            .field("informers", &self.keepers().len())
            .finish_non_exhaustive()
    }
}
