//! An informer over a source in this process: a list of any size, and events that are fed by hand.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_util::{StreamExt, stream};
use kube_informer::delta_fifo::Scope;
use kube_informer::object::Wire;
use kube_informer::reflector::ReflectorConfig;
use kube_informer::source::{Answer, ListRequest, ListWatch, SourceError, WatchRequest};
use kube_informer::{Event, IndexBy, InformerOptions, Kind, Registration, SharedInformer};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};

/// How many events may wait between whoever feeds and the informer.
const FEED: usize = 1024;

/// An informer with a number of objects, and the means to change them.
pub(crate) struct World {
    pub(crate) informer: SharedInformer<Value>,
    feed: mpsc::Sender<Bytes>,
    objects: usize,
    version: u64,
    random: fastrand::Rng,
}

impl World {
    /// An informer that has listed this many objects.
    pub(crate) async fn with_objects(objects: usize) -> Self {
        let (feed, events) = mpsc::channel(FEED);
        let source = Source { objects, events: Mutex::new(Some(events)) };
        let reflector = ReflectorConfig { streaming_lists: false, page_size: None, ..Default::default() };
        let options = InformerOptions::default().reflector(reflector);
        let informer = SharedInformer::over(Kind::new("v1", "Pod", "pods", true), source, options);
        informer.start();
        informer.wait_for_sync().await.expect("the source never fails");
        assert_eq!(informer.snapshot().len(), objects);
        Self { informer, feed, objects, version: 1, random: fastrand::Rng::with_seed(7) }
    }

    /// Four indexes: by two labels, one of which every event changes, by owner and by a field of the body.
    pub(crate) fn add_indexes(&self) {
        let node = ".spec.nodeName".parse().expect("a path");
        let indexes = [
            ("app", IndexBy::label("app")),
            ("revision", IndexBy::label("revision")),
            ("owner", IndexBy::owner()),
            ("node", IndexBy::field(node)),
        ];
        for (name, by) in indexes {
            self.informer.add_index_by(name, by).expect("there are none yet");
        }
    }

    /// The bytes of events that change random objects.
    pub(crate) fn events(&mut self, count: usize) -> Vec<Bytes> {
        let mut next = || {
            self.version += 1;
            let mut line = String::from(r#"{"type":"MODIFIED","object":"#);
            object(&mut line, self.random.usize(..self.objects), self.version);
            line.push_str("}\n");
            Bytes::from(line)
        };
        (0..count).map(|_| next()).collect()
    }

    /// Hands an event over, once there is room.
    pub(crate) async fn feed(&self, event: Bytes) {
        self.feed.send(event).await.expect("the watch is open");
    }

    /// Hands events over as fast as they are taken, and waits until the store has them all.
    pub(crate) async fn feed_all(&self, events: Vec<Bytes>) {
        for event in events {
            self.feed(event).await;
        }
        self.informer.wait_for_version(&Scope::CLUSTER, &self.version.into()).await;
    }

    /// A handler that counts, and its count.
    pub(crate) fn count_events(&self) -> (Registration, Arc<Heard>) {
        let heard = Arc::new(Heard::default());
        let counter = Arc::clone(&heard);
        let registration = self.informer.add_handler(move |_: Event<Value>| {
            counter.count.fetch_add(1, Ordering::Relaxed);
            counter.more.notify_one();
            std::future::ready(())
        });
        (registration, heard)
    }
}

/// What a handler has heard.
#[derive(Default)]
pub(crate) struct Heard {
    count: AtomicU64,
    more: Notify,
}

impl Heard {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until it is this many.
    pub(crate) async fn wait_for(&self, count: u64) {
        while self.count() < count {
            self.more.notified().await;
        }
    }
}

/// Lists made-up objects, chunk by chunk, and lets one watch be fed.
struct Source {
    objects: usize,
    events: Mutex<Option<mpsc::Receiver<Bytes>>>,
}

impl ListWatch for Source {
    fn list(&self, _: ListRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        let objects = self.objects;
        let chunks = (0..objects).step_by(100).map(move |first| {
            let mut text = String::new();
            for number in first..objects.min(first + 100) {
                text.push_str(if number == 0 { "" } else { "," });
                object(&mut text, number, 1);
            }
            Ok(Bytes::from(text))
        });
        let head = Ok(Bytes::from_static(br#"{"metadata":{"resourceVersion":"1"},"items":["#));
        let chunks = std::iter::once(head).chain(chunks).chain([Ok(Bytes::from_static(b"]}"))]);
        Box::pin(async { Ok(Answer { wire: Wire::Json, body: stream::iter(chunks).boxed() }) })
    }

    fn watch(&self, _: WatchRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner).take();
        let body = stream::unfold(events, |events| async {
            let mut events = events?;
            let event = events.recv().await?;
            Some((Ok(event), Some(events)))
        });
        Box::pin(async { Ok(Answer { wire: Wire::Json, body: body.boxed() }) })
    }
}

/// A small pod of about 600 bytes.
fn object(text: &mut String, number: usize, version: u64) {
    let (namespace, app, node) = (number % 100, number % 1_000, number % 500);
    write!(
        text,
        r#"{{"metadata":{{"name":"app-{app:04}-{number:08}","namespace":"namespace-{namespace:03}","uid":"8c2e6d2e-0000-4000-8000-{number:012}","resourceVersion":"{version}","labels":{{"app":"app-{app:04}","revision":"{revision}","tier":"web"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"app-{app:04}","uid":"owner-{app:04}","controller":true}}]}},"spec":{{"nodeName":"node-{node:04}","containers":[{{"name":"main","image":"app-{app:04}:v1","resources":{{"requests":{{"cpu":"100m","memory":"64Mi"}}}}}}]}},"status":{{"phase":"Running","podIP":"10.0.0.1","startTime":"2026-01-01T00:00:00Z"}}}}"#,
        revision = version % 1_000,
    )
    .expect("writing to a string");
}
