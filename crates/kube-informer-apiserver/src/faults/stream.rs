//! An answer on its way to the client, and what happens to it on that way.
//!
//! Pieces come in from [`pieces`](super::pieces), go through [`mangle`](super::mangle), and leave as frames. All of it
//! runs while the body is polled: no task, no thread, and dropping the body drops everything.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{Instant, sleep_until};

use super::answer::error_event;
use super::book::{Due, Position};
use super::call::Call;
use super::fault::{Fault, Stage};
use super::mangle::{can_befall, mangle};
use super::pieces::{Part, Piece, Source};
use super::{Faults, later};
use crate::{Body, BoxError};

/// An answer that faults can befall.
pub(crate) struct FaultyAnswer {
    faults: Faults,
    call: Call,
    source: Source,
    coding: Coding,
    pace: Pace,
    /// When the answer began, since the server was built.
    began: Duration,
    /// How many events or items the server has sent.
    events: u64,
    /// How many of them are on their way to the client.
    passed: u64,
    /// Rules that this answer has been offered.
    offered: Vec<u64>,
    /// What is to be sent before anything else is read.
    ready: VecDeque<Bytes>,
    /// Nothing is read or sent any more, though the connection is open.
    is_silent: bool,
    /// What happens when nothing is ready any more; none while the server still speaks.
    ending: Option<Ending>,
}

/// How bytes are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Plain,
    /// Every piece is a gzip member.
    Members,
    /// The first piece is half a gzip member.
    Truncated,
}

/// How fast they go out.
enum Pace {
    Full,
    ByteByByte,
    Drip { bytes: usize, every: Duration, next: Instant },
}

enum Ending {
    Clean,
    Reset,
    /// The server's own.
    Error(BoxError),
}

impl FaultyAnswer {
    pub(crate) fn new(faults: Faults, call: Call, source: Source, coding: Coding) -> Self {
        let began = faults.now();
        Self {
            faults,
            call,
            source,
            coding,
            pace: Pace::Full,
            began,
            events: 0,
            passed: 0,
            offered: Vec::new(),
            ready: VecDeque::new(),
            is_silent: false,
            ending: None,
        }
    }

    pub(crate) fn into_body(self) -> Body {
        let frames = stream::unfold(self, |mut answer| async move {
            let frame = answer.next().await?;
            Some((frame.map(Frame::data), answer))
        });
        // Fused: who asks an ended body for more gets nothing, not a panic.
        StreamBody::new(frames.fuse()).boxed_unsync()
    }

    /// The next bytes to send; none at a clean end.
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            if self.ready.is_empty() && self.ending.is_some() {
                return self.end().await;
            }
            let faults = self.faults.clone();
            // Asked for before the rules are, so that no change falls between.
            let changed = faults.changed();
            let wake = match self.due() {
                Due::Now(fault) => {
                    self.befall(fault);
                    continue;
                }
                Due::At(time) => time.map(|time| faults.instant(time)),
            };
            let (is_ready, is_silent) = (!self.ready.is_empty(), self.is_silent);
            tokio::select! {
                biased;
                () = self.pace.wait(), if is_ready => return self.send().map(Ok),
                piece = self.source.next(), if !is_ready && !is_silent => self.take(piece),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                () = changed => {}
            }
        }
    }

    /// What is due of the faults that befall an answer as a whole.
    fn due(&mut self) -> Due {
        if self.ending.is_some() {
            return Due::At(None);
        }
        if self.ready.is_empty() {
            self.passed = self.events;
        }
        let is_paced = !matches!(self.pace, Pace::Full);
        let is_watch = self.source.event_coding().is_some();
        let is_silent = self.is_silent;
        let position = self.position(self.passed);
        self.faults.book().due(&self.call, position, &mut self.offered, |fault| match fault {
            Fault::CutStream | Fault::EndStream => true,
            // A silent connection can still die, but that is all it does.
            _ if is_silent => false,
            Fault::Drip { .. } | Fault::SplitFrames => !is_paced,
            Fault::ExpiredEvent | Fault::ErrorEvent => is_watch,
            // Decided before the headers were sent.
            Fault::GzipMembers | Fault::GzipTruncated => false,
            _ => true,
        })
    }

    /// Lets a fault befall the answer as a whole.
    fn befall(&mut self, fault: Fault) {
        match fault {
            Fault::Drip { bytes, every } => {
                self.pace = Pace::Drip { bytes: bytes.max(1), every, next: later(Instant::now(), every) };
            }
            Fault::SplitFrames => self.pace = Pace::ByteByByte,
            Fault::EndStream => self.ending = Some(Ending::Clean),
            // A dead connection does not finish what it has begun.
            Fault::CutStream => {
                self.ready.clear();
                self.ending = Some(Ending::Reset);
            }
            Fault::StallStream => {
                self.ready.clear();
                self.is_silent = true;
            }
            other => {
                let event = self.source.event_coding().and_then(|coding| error_event(&other, coding));
                if let Some(event) = event {
                    self.push(event);
                    self.ending.get_or_insert(Ending::Clean);
                }
            }
        }
    }

    /// Takes what the server sent, and lets a fault befall it.
    fn take(&mut self, piece: Option<Result<Piece, BoxError>>) {
        let piece = match piece {
            Some(Ok(piece)) => piece,
            Some(Err(error)) => {
                self.ending = Some(Ending::Error(error));
                return;
            }
            None => {
                self.ending = Some(Ending::Clean);
                return;
            }
        };
        let (piece, fault) = self.draw(piece);
        if matches!(piece.part, Part::Unread | Part::Event { .. } | Part::Item) {
            self.events += 1;
        }
        match fault {
            None => self.push(piece.bytes),
            Some(fault @ (Fault::CutFrame | Fault::TruncateFrame)) => {
                self.push(piece.bytes);
                if let Some(mut last) = self.ready.pop_back().filter(|last| last.len() > 1) {
                    last.truncate(last.len() / 2);
                    self.ready.push_back(last);
                }
                let ending = if fault == Fault::CutFrame { Ending::Reset } else { Ending::Clean };
                self.ending = Some(ending);
            }
            Some(fault) => {
                for bytes in mangle(&fault, &piece, &self.call.info) {
                    self.push(bytes);
                }
            }
        }
    }

    /// The fault for this piece. Nobody looks into an event that no rule asks about.
    fn draw(&mut self, piece: Piece) -> (Piece, Option<Fault>) {
        let position = self.position(self.events);
        let mut book = self.faults.book();
        if !book.concerns(&self.call, Stage::Event) {
            return (piece, None);
        }
        let piece = piece.classify();
        let rule = book.draw(&self.call, Stage::Event, position, |rule| {
            let is_type = match (&rule.event, &piece.part) {
                (None, _) => true,
                (Some(wanted), Part::Event { kind, .. }) => wanted == kind,
                (Some(_), _) => false,
            };
            is_type && can_befall(&rule.fault, &piece.part)
        });
        (piece, rule.map(|rule| rule.fault))
    }

    fn push(&mut self, bytes: Bytes) {
        let bytes = match self.coding {
            Coding::Plain => bytes,
            Coding::Members => kube_wire::gzip::member(&bytes).into(),
            Coding::Truncated => {
                let mut member = kube_wire::gzip::member(&bytes);
                member.truncate(member.len() / 2);
                self.ending = Some(Ending::Clean);
                member.into()
            }
        };
        if !bytes.is_empty() {
            self.ready.push_back(bytes);
        }
    }

    /// Takes as much of what is ready as the pace allows.
    fn send(&mut self) -> Option<Bytes> {
        let first = self.ready.front_mut()?;
        let len = match &mut self.pace {
            Pace::Full => first.len(),
            Pace::ByteByByte => 1,
            Pace::Drip { bytes, every, next } => {
                *next = later(Instant::now(), *every);
                *bytes
            }
        };
        if len < first.len() { Some(first.split_to(len)) } else { self.ready.pop_front() }
    }

    async fn end(&mut self) -> Option<Result<Bytes, BoxError>> {
        match self.ending.replace(Ending::Clean)? {
            Ending::Clean => None,
            Ending::Reset => {
                // Gives a socket the chance to send what came before: an error would throw it away.
                tokio::task::yield_now().await;
                Some(Err(Box::new(reset())))
            }
            Ending::Error(error) => Some(Err(error)),
        }
    }

    fn position(&self, events: u64) -> Position {
        Position { now: self.faults.now(), began: self.began, events }
    }
}

impl Pace {
    async fn wait(&self) {
        if let Self::Drip { next, .. } = self {
            sleep_until(*next).await;
        }
    }
}

/// What a client sees of a connection that dies.
pub(crate) fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset (injected fault)")
}
