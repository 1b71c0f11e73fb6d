//! Watches that open and bring nothing, as behind a proxy that holds answers back, and answers that trickle.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::{api, change, content, create};
use futures_core::future::BoxFuture;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_informer::reflector::ReflectorConfig;
use kube_informer::source::{
    Answer, CheckRequest, History, KubeSource, ListRequest, ListWatch, SourceError, WatchRequest,
};
use kube_informer::{InformerOptions, Kind, SharedInformer};
use kube_informer_apiserver::ApiServer;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// How the proxy ends a watch.
#[derive(Clone, Copy, Debug)]
enum End {
    Clean,
    Cut,
    Error,
}

/// What stands between the informer and the server.
#[derive(Clone)]
struct Proxy {
    server: KubeSource,
    lists: Arc<AtomicUsize>,
    /// Whether it holds back what watches bring, and ends each after this time.
    holds: Arc<AtomicBool>,
    after: Duration,
    end: End,
    /// Whether lists trickle: nine seconds between two pieces.
    trickles: Arc<AtomicBool>,
}

impl Proxy {
    fn new(server: &ApiServer, after: Duration, end: End) -> Self {
        Self {
            server: KubeSource::new(server.client(), Kind::of::<ConfigMap>()).json(),
            lists: Arc::default(),
            holds: Arc::new(AtomicBool::new(true)),
            after,
            end,
            trickles: Arc::default(),
        }
    }

    /// An informer behind it, synced.
    async fn informer(&self, options: InformerOptions) -> SharedInformer<ConfigMap> {
        let config = ReflectorConfig { streaming_lists: false, ..ReflectorConfig::default() };
        let options = options.reflector(config);
        let informer = SharedInformer::over(Kind::of::<ConfigMap>(), self.clone(), options);
        informer.start();
        informer.wait_for_sync().await.unwrap();
        informer
    }

    fn lists(&self) -> usize {
        self.lists.load(Ordering::Relaxed)
    }
}

impl ListWatch for Proxy {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let mut answer = self.server.list(request).await?;
            if self.trickles.load(Ordering::Relaxed) {
                let mut all = Vec::new();
                while let Some(chunk) = answer.body.next().await {
                    all.extend_from_slice(&chunk?);
                }
                let pieces: Vec<_> =
                    all.chunks(all.len().div_ceil(100)).map(Bytes::copy_from_slice).collect();
                let trickle = futures_util::stream::iter(pieces).then(|piece| async move {
                    tokio::time::sleep(9 * SECOND).await;
                    Ok(piece)
                });
                answer.body = trickle.boxed();
            }
            Ok(answer)
        })
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        Box::pin(async move {
            let answer = self.server.watch(request).await?;
            if !self.holds.load(Ordering::Relaxed) {
                return Ok(answer);
            }
            let (after, end, held) = (self.after, self.end, answer.body);
            let body = futures_util::stream::once(async move {
                tokio::time::sleep(after).await;
                drop(held);
                match end {
                    End::Clean => None,
                    End::Cut => Some(Err(SourceError::transport("the connection broke", "reset by peer"))),
                    End::Error => {
                        let event =
                            r#"{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}"#;
                        Some(Ok(Bytes::from(format!("{event}\n"))))
                    }
                }
            });
            Ok(Answer { wire: answer.wire, body: body.filter_map(std::future::ready).boxed() })
        })
    }

    fn check(&self, request: CheckRequest) -> BoxFuture<'_, Result<History, SourceError>> {
        self.server.check(request)
    }
}

/// Changes the object, and returns after which time the informer has it.
async fn seen_after(server: &ApiServer, informer: &SharedInformer<ConfigMap>, data: &str) -> Duration {
    change(&api(server), "a", data).await;
    let changed = Instant::now();
    while !content(informer).contains(&format!("a={data}")) {
        assert!(changed.elapsed() < 60 * MINUTE, "the copy has {} for an hour", content(informer));
        tokio::time::sleep(SECOND).await;
    }
    changed.elapsed()
}

#[tokio::test(start_paused = true)]
async fn watches_that_bring_nothing_are_found_out() {
    for (after, end, limit) in [
        (SECOND, End::Clean, 3 * MINUTE),
        (30 * SECOND, End::Clean, 3 * MINUTE),
        (MINUTE, End::Cut, 4 * MINUTE),
        (11 * SECOND, End::Error, 3 * MINUTE),
        // One that is not ended is taken for dead when it should have been.
        (300 * MINUTE, End::Clean, 13 * MINUTE),
    ] {
        let case = format!("{end:?} after {after:?}");
        let server = common::server();
        create(&api(&server), "a", "1").await;
        let proxy = Proxy::new(&server, after, end);
        let informer = proxy.informer(InformerOptions::default()).await;
        let first = seen_after(&server, &informer, "2").await;
        assert!(first < limit, "{case}: {first:?}");
        let second = seen_after(&server, &informer, "3").await;
        assert!(second < limit, "{case}: {second:?}");
        tokio::time::sleep(2 * MINUTE).await;
        let status = &informer.status()[0];
        assert!(status.polling && status.failing_since.is_some(), "{case}: {status:?}");
        let third = seen_after(&server, &informer, "4").await;
        assert!(third < 3 * MINUTE, "{case}: {third:?}");
        // In the long run not much more than one list a minute.
        let before = proxy.lists();
        tokio::time::sleep(60 * MINUTE).await;
        assert!(proxy.lists() - before < 130, "{case}: {} lists an hour", proxy.lists() - before);
        assert!(informer.status()[0].polling, "{case}");
        proxy.holds.store(false, Ordering::Relaxed);
        // The watch that is held back ends within 90 seconds, the pause after it takes up to 45, and the first bookmark comes a
        // minute later.
        tokio::time::sleep(5 * MINUTE).await;
        let status = &informer.status()[0];
        assert!(!status.polling && status.failing_since.is_none(), "{case}: {status:?}");
        assert!(seen_after(&server, &informer, "5").await < 2 * SECOND, "{case}");
    }
}

/// As behind a load balancer that ends idle connections, where nothing changes for a day.
#[tokio::test(start_paused = true)]
async fn quiet_watches_that_are_cut_each_minute_cost_few_lists() {
    let server = common::server();
    create(&api(&server), "a", "1").await;
    let proxy = Proxy::new(&server, 50 * SECOND, End::Cut);
    let informer = proxy.informer(InformerOptions::default()).await;
    tokio::time::sleep(24 * 60 * MINUTE).await;
    assert!(proxy.lists() <= 30, "{} lists", proxy.lists());
    let status = &informer.status()[0];
    assert!(!status.polling && status.failing_since.is_none(), "{status:?}");
}

/// A comparison has no watch beside it, so it is given up.
#[tokio::test(start_paused = true)]
async fn comparison_that_trickles_does_not_keep_the_watch_closed() {
    let server = common::server();
    create(&api(&server), "a", "1").await;
    let proxy = Proxy::new(&server, SECOND, End::Clean);
    proxy.holds.store(false, Ordering::Relaxed);
    let informer = proxy.informer(InformerOptions::default().verify_every(10 * MINUTE)).await;
    proxy.trickles.store(true, Ordering::Relaxed);
    tokio::time::sleep(10 * MINUTE + SECOND).await;
    let seen = seen_after(&server, &informer, "2").await;
    assert!(seen < 12 * SECOND, "{seen:?}");
    assert!(informer.status()[0].doubted_since.is_some());
}
