//! Reads a watch, or a streaming list that goes on as one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use kube_wire::ResourceVersion;
use kube_wire::json::EventType;
use tokio::time::{Instant, timeout, timeout_at};

use super::check::{Check, witness_of};
use super::collected::{Collected, beside_the_workers};
use super::machine::{Ended, GRACE, Machine, Outcome, is_absent};
use super::parts::{Event, Frames};
use super::{Change, Phase, Reflector};
use crate::delta_fifo::{Delta, DeltaType};
use crate::intake::Taken;
use crate::object::Wire;
use crate::planted::{Bug, planted};
use crate::source::{Answer, History, SourceError, WatchRequest, Witness};
use crate::{ObjectKey, SetAside};

/// A watch that ends by itself this close to its time was ended by the server as asked.
const ON_TIME: Duration = Duration::from_secs(2);

const END_OF_INITIAL_EVENTS: &str = "k8s.io/initial-events-end";

/// One event, as far as the reflector is concerned.
enum Heard {
    Object {
        delta: Box<Delta>,
        version: ResourceVersion,
    },
    /// A bookmark; whether it ends the initial events of a streaming list.
    Bookmark {
        version: ResourceVersion,
        end: bool,
    },
    Aside(SetAside),
    /// An object whose key cannot be read.
    Unreadable(SetAside),
    Failed(SourceError),
    Nothing,
}

impl Heard {
    /// The version that the event says it is of.
    fn version(&self) -> Option<&ResourceVersion> {
        match self {
            Self::Object { version, .. } | Self::Bookmark { version, .. } => Some(version),
            Self::Aside(aside) => aside.version.as_ref(),
            Self::Unreadable(_) | Self::Failed(_) | Self::Nothing => None,
        }
    }
}

/// An open watch.
struct Open {
    body: BoxStream<'static, Result<Bytes, SourceError>>,
    frames: Frames,
    wire: Wire,
}

/// Why there is no next event.
enum Stop {
    Closed,
    Broken(SourceError),
    Late,
}

impl Reflector {
    /// A streaming list: everything as events, a bookmark, and on as a watch on the same connection.
    pub(super) async fn stream(&self, machine: &mut Machine) -> Outcome {
        self.status.update(|status| {
            status.phase = Phase::Streaming;
            status.counts.streams += 1;
        });
        let timeout = machine.watch_timeout();
        let request = WatchRequest { version: None, initial_events: true, timeout };
        let asked = Instant::now();
        let mut open = match self.open(request).await {
            Ok(open) => open,
            Err(error) => {
                let in_time = asked.elapsed() < self.config.request_deadline;
                let is_away = in_time && matches!(error.code(), None | Some(429 | 503));
                return if is_away { Outcome::NotBegun(error) } else { Outcome::Failed(error) };
            }
        };
        let begun = Instant::now();
        let deadline = begun + self.config.stream_deadline;
        let mut collected = Collected::new(&self.intake);
        let version = loop {
            let silence = (Instant::now() + self.config.stream_silence).min(deadline);
            let frame = match self.next_frame(&mut open, silence).await {
                Ok(frame) => frame,
                Err(Stop::Late) => return Outcome::NoEnd("no end bookmark came in time"),
                Err(Stop::Broken(error)) => return Outcome::Failed(error),
                Err(Stop::Closed) => {
                    let closed =
                        SourceError::transport("the streaming list ended", "before its end bookmark");
                    return Outcome::Failed(closed);
                }
            };
            match self.hear(open.wire, &frame, machine.trusted()) {
                Heard::Object { delta, .. } if delta.kind == DeltaType::Deleted => {
                    if !planted(Bug::DeleteInStreamIgnored) {
                        collected.remove(delta.object.key()).await;
                    }
                }
                Heard::Object { delta, .. } => {
                    collected.add(Taken { entry: delta.object, values: delta.values }).await;
                }
                Heard::Bookmark { version, end: true } => break version,
                Heard::Aside(aside) | Heard::Unreadable(aside) => collected.set_aside(aside).await,
                Heard::Failed(error) => return Outcome::Failed(error),
                Heard::Bookmark { .. } | Heard::Nothing => {}
            }
        };
        match self.complete(machine, collected, version).await {
            Outcome::Listed => self.follow(machine, open, begun, timeout).await,
            other => other,
        }
    }

    /// A watch from the version that was seen last.
    pub(super) async fn watch(&self, machine: &mut Machine) -> Outcome {
        self.status.update(|status| {
            status.phase = Phase::Connecting;
            status.counts.watches += 1;
        });
        let timeout = machine.watch_timeout();
        let mut version = machine.version().cloned();
        if planted(Bug::ResumeFromWrongVersion) {
            version = version.and_then(|version| Some((version.as_u64()? + 1).into()));
        }
        // An API without versions sends the existing objects first.
        let version = version.filter(|version| !is_absent(version));
        let request = WatchRequest { version, initial_events: false, timeout };
        let begun = Instant::now();
        match self.open(request).await {
            Ok(open) => self.follow(machine, open, begun, timeout).await,
            Err(error) => {
                self.status.update(|status| status.counts.expired += u64::from(error.is_expired()));
                Outcome::Failed(error)
            }
        }
    }

    /// Passes events on until the watch ends.
    async fn follow(
        &self,
        machine: &mut Machine,
        mut open: Open,
        begun: Instant,
        timeout: Duration,
    ) -> Outcome {
        let opened = Instant::now();
        machine.opened(opened);
        self.status.update(|status| status.phase = Phase::Watching);
        // A server or a connection so slow that it does not end what we asked it to end is as good as dead.
        let over = begun + timeout + GRACE;
        let verify_at = machine.verify_at();
        let mut last_bookmark = None;
        let mut last_frame = opened;
        let mut check: Option<Check<'_>> = None;
        let mut answered = None;
        let ended = |failure: Option<SourceError>, last_frame: Instant, dead: bool| {
            let on_time = failure.is_none() && begun.elapsed() + ON_TIME >= timeout;
            let (lasted, silent) = (opened.elapsed(), last_frame.elapsed());
            Outcome::Ended(Ended { lasted, on_time, silent, dead, failure })
        };
        loop {
            if let Some(answer) = answered.take()
                && let Some(outcome) = self.end_check(machine, answer)
            {
                return outcome;
            }
            let now = Instant::now();
            // Looked at before every event: a watch that never pauses is compared with the server as well.
            if verify_at.is_some_and(|verify| now >= verify) {
                self.was_current();
                return Outcome::Verify;
            }
            if now >= over {
                let why = "it did not end when it should have";
                return ended(Some(SourceError::late("the watch is given up", why)), last_frame, true);
            }
            let proven_at = machine.proven_after().map(|after| opened + after);
            if proven_at.is_some_and(|at| now >= at) {
                self.watch_works(machine);
                continue;
            }
            let check_at = machine.doubt().check_at(now).filter(|_| check.is_none());
            if check_at.is_some_and(|at| now >= at) {
                check = self.begin_check(machine);
                continue;
            }
            let silence = last_frame + machine.silence_limit(timeout);
            let wake = [Some(silence), verify_at, proven_at, check_at]
                .into_iter()
                .flatten()
                .fold(over, Instant::min);
            let frame = tokio::select! {
                biased;
                answer = answer_of(&mut check) => {
                    answered = Some(answer);
                    continue;
                }
                frame = self.next_frame(&mut open, wake) => frame,
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(Stop::Late) if Instant::now() < silence => continue,
                Err(Stop::Late) => {
                    self.status.update(|status| {
                        status.counts.silences += 1;
                        status.current_at = status.last_contact.or(status.current_at);
                    });
                    let dead = last_frame.elapsed() >= machine.dead_after(timeout);
                    machine.was_silent();
                    let why = "the server was silent too long";
                    return ended(
                        Some(SourceError::late("the watch is taken for dead", why)),
                        last_frame,
                        dead,
                    );
                }
                Err(Stop::Closed) => {
                    self.was_current();
                    return ended(None, last_frame, false);
                }
                Err(Stop::Broken(error)) => {
                    self.was_current();
                    let dead = error.is_timeout();
                    return ended(Some(error), last_frame, dead);
                }
            };
            last_frame = Instant::now();
            // After a restore, a known uid and version may be another object, so the event is taken as it is.
            let heard = self.hear(open.wire, &frame, false);
            if let Some(version) = heard.version()
                && machine.refuses_event(version)
            {
                let why = format!("after {:?} comes resourceVersion {version}", machine.version());
                return ended(
                    Some(SourceError::transport("the watch cannot be trusted", why)),
                    last_frame,
                    false,
                );
            }
            match heard {
                Heard::Object { mut delta, version } => {
                    self.status.update(|status| status.counts.events += 1);
                    self.pack(&mut delta);
                    let witness = match delta.kind {
                        DeltaType::Deleted => Witness { key: delta.object.key().clone(), state: None },
                        _ => witness_of(&delta.object),
                    };
                    let change = if planted(Bug::VersionPastLostEvent) && delta.kind == DeltaType::Updated {
                        Change::Advance(version.clone())
                    } else {
                        Change::Put { delta: *delta, version: Some(version.clone()) }
                    };
                    answered = self.pass_on(change, &mut check).await;
                    self.moved(machine, version, Some(witness));
                }
                Heard::Bookmark { version, .. } => {
                    self.status.update(|status| status.counts.bookmarks += 1);
                    let now = Instant::now();
                    machine.saw_bookmark(last_bookmark.replace(now).map(|last| now - last));
                    answered = self.pass_on(Change::Advance(version.clone()), &mut check).await;
                    self.moved(machine, version, None);
                }
                Heard::Aside(aside) => {
                    let version = aside.version.clone();
                    answered = self.pass_on(Change::SetAside(aside), &mut check).await;
                    machine.doubt().forget_witness();
                    if let Some(version) = version {
                        self.moved(machine, version, None);
                    }
                }
                Heard::Unreadable(aside) => {
                    self.sink.send(&self.scope, Change::SetAside(aside)).await;
                    self.was_current();
                    return Outcome::Unreadable;
                }
                Heard::Failed(error) if error.needs_list() => {
                    self.was_current();
                    self.status.update(|status| status.counts.expired += u64::from(error.is_expired()));
                    return Outcome::Lost(error);
                }
                Heard::Failed(error) => {
                    self.was_current();
                    return ended(Some(error), last_frame, false);
                }
                Heard::Nothing => {}
            }
        }
    }

    /// Passes a change on. A check goes on meanwhile, because others of its kind may wait for its end; its answer is returned.
    async fn pass_on(
        &self,
        change: Change,
        check: &mut Option<Check<'_>>,
    ) -> Option<Result<History, SourceError>> {
        let mut send = self.sink.send(&self.scope, change);
        let answer = tokio::select! {
            biased;
            () = &mut send => return None,
            answer = answer_of(check) => answer,
        };
        send.await;
        Some(answer)
    }

    /// Packs a change before it is passed on.
    fn pack(&self, delta: &mut Delta) {
        let Some(packer) = &self.intake.packer else { return };
        let state = self.intake.state.load();
        let earlier = state.objects.get(delta.object.key().as_str()).map(|slot| &slot.entry);
        if delta.kind == DeltaType::Deleted {
            packer.pack_last(&mut delta.object, earlier);
        } else if packer.pack_one(&mut delta.object, earlier) {
            let intake = Arc::clone(&self.intake);
            beside_the_workers(move || intake.review());
        }
    }

    /// Up to now the watch was open, so the cache was up to date.
    fn was_current(&self) {
        self.status.update(|status| status.current_at = Some(Instant::now()));
    }

    fn moved(&self, machine: &mut Machine, version: ResourceVersion, witness: Option<Witness>) {
        machine.moved(version, witness);
        self.status.update(|status| status.version = machine.version().cloned());
    }

    async fn open(&self, request: WatchRequest) -> Result<Open, SourceError> {
        let late = |_| SourceError::late("the watch took too long", "no answer within the deadline");
        let answer =
            timeout(self.config.request_deadline, self.source.watch(request)).await.map_err(late)??;
        self.heard(0);
        let Answer { wire, body } = answer;
        self.status.update(|status| status.shown(wire));
        Ok(Open { body, frames: Frames::of(wire), wire })
    }

    async fn next_frame(&self, open: &mut Open, deadline: Instant) -> Result<Bytes, Stop> {
        loop {
            match open.frames.next() {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(error) => return Err(Stop::Broken(error.into())),
            }
            match timeout_at(deadline, open.body.next()).await {
                Err(_) => return Err(Stop::Late),
                Ok(None) => {
                    let frames = std::mem::replace(&mut open.frames, Frames::of(open.wire));
                    return Err(frames
                        .finish()
                        .map_or_else(|error| Stop::Broken(error.into()), |()| Stop::Closed));
                }
                Ok(Some(Err(error))) => return Err(Stop::Broken(error)),
                Ok(Some(Ok(chunk))) => {
                    self.heard(chunk.len());
                    open.frames.push(&chunk);
                }
            }
        }
    }

    /// Makes sense of one event.
    fn hear(&self, wire: Wire, frame: &[u8], trusted: bool) -> Heard {
        let event = match Event::parse(wire, frame) {
            Ok(event) => event,
            Err(error) => {
                let aside =
                    SetAside { key: None, version: None, problem: error.to_string(), wrong_kind: false };
                self.note_aside(&aside);
                return Heard::Unreadable(aside);
            }
        };
        let kind = match event.kind {
            EventType::Added => DeltaType::Added,
            EventType::Modified => DeltaType::Updated,
            EventType::Deleted => DeltaType::Deleted,
            EventType::Bookmark => return self.bookmark(&event),
            EventType::Error => return Heard::Failed(event.error()),
            EventType::Other(other) => {
                tracing::warn!(event = other, "an event of unknown type");
                self.status.update(|status| status.counts.unknown_events += 1);
                return Heard::Nothing;
            }
        };
        match self.intake.take(event.object, trusted) {
            Ok(taken) => {
                let version = taken.entry.version().clone();
                let delta = Delta { values: taken.values, ..Delta::new(kind, taken.entry) };
                Heard::Object { delta: Box::new(delta), version }
            }
            Err(aside) => {
                self.note_aside(&aside);
                match (&aside.key, kind) {
                    _ if aside.wrong_kind => Heard::Nothing,
                    (Some(key), DeltaType::Deleted) => self.deleted_unread(key, &aside),
                    (Some(_), _) => Heard::Aside(aside),
                    (None, _) => Heard::Unreadable(aside),
                }
            }
        }
    }

    /// A delete whose object cannot be read, though its key can: what the store has of it is gone.
    fn deleted_unread(&self, key: &ObjectKey, aside: &SetAside) -> Heard {
        let state = self.intake.state.load();
        match (state.objects.get(key.as_str()), &aside.version) {
            (Some(slot), Some(version)) => Heard::Object {
                delta: Box::new(Delta::tombstone(Arc::clone(&slot.entry))),
                version: version.clone(),
            },
            _ if planted(Bug::UnreadDeleteLost) => Heard::Nothing,
            // It may still be on its way into the store.
            _ => Heard::Unreadable(aside.clone()),
        }
    }

    fn bookmark(&self, event: &Event<'_>) -> Heard {
        match event.object.wire.metadata(&self.intake.kind, event.object.bytes) {
            Ok(metadata) if !metadata.resource_version.is_empty() => Heard::Bookmark {
                version: (&*metadata.resource_version).into(),
                end: metadata.annotation(END_OF_INITIAL_EVENTS) == Some("true"),
            },
            // A bookmark that says nothing moves nothing.
            _ => Heard::Nothing,
        }
    }
}

/// The answer of a check, which has ended then; without a check, nothing ever.
async fn answer_of(check: &mut Option<Check<'_>>) -> Result<History, SourceError> {
    let Some(running) = check else { return std::future::pending().await };
    let answer = running.await;
    *check = None;
    answer
}
