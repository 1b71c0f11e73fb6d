//! Watches: a cursor in the history of one kind, woken by changes, ended by time, by falling behind or by being dropped.
//!
//! Watchers have no buffers of their own: they share the kind's history, and the lines in it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, header};
use kube_wire::json;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::body::{self, Body};
use crate::core::{Call, Core};
use crate::kinds::Kind;
use crate::list::select;
use crate::negotiate::{self, Coding, Shape};
use crate::object::{EventType, Form, Stored};
use crate::options::WatchOptions;
use crate::protobuf;
use crate::read;
use crate::selection::Selection;
use crate::status::{Answer, Status};
use crate::storage::Change;

/// How many changes a watcher takes from the history at a time.
const BATCH: usize = 128;
/// How long before its end a watch gets its last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

pub(crate) async fn watch(core: &Arc<Core>, call: Call) -> Answer {
    let form = negotiate::form(&call, Shape::One)?;
    let selection = Selection::of(&call.kind, &call.info)?;
    let options = WatchOptions::of(&call.info)?;
    let streaming = options.initial_events == Some(true);
    let gzip = streaming && negotiate::accepts_gzip(&call.headers);
    let coding = form.coding();
    let reached = match options.version {
        Some(version) if streaming => read::wait_for(core, version, call.at_most).await,
        _ => Ok(()),
    };
    let body = match reached.and_then(|()| Watch::begin(core, &call, selection, form, &options)) {
        Ok(watch) => body::stream(stream::unfold(watch, move |mut watch| async move {
            let line = watch.next().await?;
            let line = if gzip { kube_wire::gzip::member(&line).into() } else { line };
            Some((line, watch))
        })),
        Err(status) => body::full(error_line(&status, coding)),
    };
    Ok(respond(body, coding, gzip))
}

/// One open watch. Dropping it frees everything it holds.
struct Watch {
    core: Arc<Core>,
    kind: Arc<Kind>,
    id: u64,
    selection: Selection,
    form: Form,
    /// What is sent before the first change: the state, then perhaps a bookmark that says so.
    initial: std::vec::IntoIter<Arc<Stored>>,
    initial_end: Option<u64>,
    changes: VecDeque<Arc<Change>>,
    /// All changes up to this revision were sent, or are in `changes`.
    cursor: Arc<AtomicU64>,
    /// The newest revision that this watcher has seen everything of.
    seen: u64,
    /// The version that a watch from the future began at: nothing up to it is sent, bookmarks included. Otherwise 0.
    silent_until: u64,
    wake: Arc<Notify>,
    epoch: u64,
    deadline: Instant,
    bookmark_at: Option<Instant>,
}

impl Watch {
    fn begin(
        core: &Arc<Core>,
        call: &Call,
        selection: Selection,
        form: Form,
        options: &WatchOptions,
    ) -> Answer<Self> {
        let kind = call.kind.clone();
        let mut store = core.store();
        let from_state = options.initial_events.unwrap_or(matches!(options.version, None | Some(0)));
        let mut initial = Vec::new();
        let revision = if from_state {
            // A replica that lags shows an old state and then catches up.
            let revision = call.at_most.filter(|_| options.version.is_some()).unwrap_or(store.revision());
            let (objects, revision) = match store.objects_at(&kind, revision) {
                Ok(objects) => (objects, revision),
                Err(_) => (store.objects(&kind), store.revision()),
            };
            initial = select(&objects, &selection, None).collect();
            revision
        } else {
            match options.version {
                None | Some(0) => store.revision(),
                Some(version) => version,
            }
        };
        if !from_state && let Err(oldest) = store.check_watchable(&kind, revision) {
            return Err(Status::expired(format!("too old resource version: {revision} ({oldest})")));
        }
        // Whoever starts from the state and takes bookmarks is told where it ends, asked or not.
        let told = from_state && options.bookmarks && call.tells_end_of_state;
        let initial_end = told.then_some(revision);
        let timeout = match options.timeout_seconds {
            // No watch lives for more than a week, so that a deadline can always be computed.
            Some(seconds) => Duration::from_secs(seconds.min(7 * 24 * 3600)),
            None => Duration::from_secs(core.random(|random| random.u64(1800..3600))),
        };
        let now = Instant::now();
        let silent_until = if revision > store.revision() { revision } else { 0 };
        let (id, cursor) = (core.next_watcher(), Arc::new(AtomicU64::new(revision)));
        let epoch = store.epoch();
        let table = store.table(&kind);
        let wake = table.subscribe(id, cursor.clone());
        drop(store);
        core.counters.watch_opened();
        let mut watch = Self {
            core: core.clone(),
            kind,
            id,
            selection,
            form,
            initial: initial.into_iter(),
            initial_end,
            changes: VecDeque::new(),
            cursor,
            seen: revision,
            silent_until,
            wake,
            epoch,
            deadline: now + timeout,
            bookmark_at: None,
        };
        if options.bookmarks {
            watch.bookmark_at = watch.next_bookmark();
        }
        Ok(watch)
    }

    /// The next line; `None` when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(stored) = self.initial.next() {
                return Some(stored.line(EventType::Added, &self.form));
            }
            if let Some(revision) = self.initial_end.take() {
                return Some(self.bookmark(revision, true));
            }
            while let Some(change) = self.changes.pop_front() {
                self.cursor.store(change.revision, Ordering::Relaxed);
                if let Some(line) = self.line(&change) {
                    return Some(line);
                }
            }
            if self.refill()? {
                continue;
            }
            let timer = self.bookmark_at.unwrap_or(self.deadline).min(self.deadline);
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(timer) => {
                    let now = Instant::now();
                    if now >= self.deadline {
                        return None;
                    }
                    if self.bookmark_at.is_some_and(|at| now >= at) {
                        self.bookmark_at = self.next_bookmark();
                        if self.seen > self.silent_until {
                            return Some(self.bookmark(self.seen, false));
                        }
                    }
                }
            }
        }
    }

    /// Takes the next changes from the history; false if there are none, `None` if the watch is over.
    fn refill(&mut self) -> Option<bool> {
        let mut store = self.core.store();
        if store.epoch() != self.epoch {
            return None;
        }
        let revision = store.revision();
        let table = store.table(&self.kind);
        // A watcher that is so far behind that its changes are gone is closed: it can come back and be told.
        let mut changes = table.history.after(self.cursor.load(Ordering::Relaxed), BATCH)?;
        let end = table.end_of(self.id);
        changes.retain(|change| end.is_none_or(|end| change.revision <= end));
        if changes.is_empty() {
            if end.is_some() {
                return None;
            }
            self.seen = self.seen.max(revision);
            self.cursor.store(self.seen, Ordering::Relaxed);
            return Some(false);
        }
        self.changes.extend(changes);
        Some(true)
    }

    /// What a change means to this watcher's selector: nothing, or a line.
    fn line(&self, change: &Change) -> Option<Bytes> {
        let before = change.old.as_ref().filter(|old| self.selection.matches(old));
        let after = change.event != EventType::Deleted && self.selection.matches(&change.object);
        match (before, after) {
            (None, false) => None,
            (None, true) => Some(change.object.line(EventType::Added, &self.form)),
            (Some(_), true) => Some(change.object.line(EventType::Modified, &self.form)),
            (Some(_), false) if change.event == EventType::Deleted => {
                Some(change.object.line(EventType::Deleted, &self.form))
            }
            (Some(old), false) => Some(change.left(old, &self.form)),
        }
    }

    fn bookmark(&self, revision: u64, initial_end: bool) -> Bytes {
        let (kind, api_version) = match &self.form {
            Form::Protobuf | Form::ProtobufMetadata => {
                let kind = self.kind.wire.filter(|_| self.form == Form::Protobuf);
                let kind = kind.unwrap_or_else(protobuf::metadata_kind);
                let object = json!({ "metadata": bookmark_metadata(revision, initial_end) });
                return protobuf::frame(kind, &json::EventType::Bookmark, &protobuf::bare(kind, &object));
            }
            Form::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            Form::Whole => (self.kind.kind.as_str(), self.kind.api_version(&self.kind.version)),
            Form::Reversioned(opening) => {
                let metadata = bookmark_metadata(revision, initial_end);
                let opening = String::from_utf8_lossy(opening);
                return format!("{{\"type\":\"BOOKMARK\",\"object\":{opening}\"metadata\":{metadata}}}}}\n")
                    .into();
            }
        };
        let metadata = bookmark_metadata(revision, initial_end);
        let (kind, api_version) = (json!(kind), json!(api_version));
        format!(
            "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":{metadata}}}}}\n"
        )
        .into()
    }

    /// About once a minute, and a little before the end.
    fn next_bookmark(&self) -> Option<Instant> {
        let every = self.core.config.bookmark_every;
        let now = Instant::now();
        let next = now + every.mul_f64(self.core.random(|random| 1.0 + random.f64() / 4.0));
        let last = self.deadline.checked_sub(LAST_BOOKMARK).unwrap_or(now);
        Some(next.min(last)).filter(|&at| at > now)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.core.store().table(&self.kind).unsubscribe(self.id);
        self.core.counters.watch_closed();
    }
}

fn bookmark_metadata(revision: u64, initial_end: bool) -> Value {
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    if initial_end {
        metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    metadata
}

/// The line or frame that says why a watch has failed.
pub(crate) fn error_line(status: &Status, coding: Coding) -> Bytes {
    let status = status.to_json();
    match coding {
        Coding::Json => format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into(),
        Coding::Protobuf => {
            let kind = protobuf::status_kind();
            protobuf::frame(kind, &json::EventType::Error, &protobuf::bare(kind, &status))
        }
    }
}

fn respond(body: Body, coding: Coding, gzip: bool) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, coding.watch_content_type());
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}
