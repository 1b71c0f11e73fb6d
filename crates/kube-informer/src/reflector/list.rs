//! Reads a list in pages and hands it on in one piece.

use futures_util::StreamExt;
use kube_wire::ResourceVersion;
use kube_wire::json::ListMeta;
use tokio::time::{Instant, timeout};
use tracing::info;

use super::check::witness_of;
use super::collected::Collected;
use super::machine::{Machine, Outcome, Verdict, is_absent};
use super::parts::{Items, check_kind};
use super::{Change, Phase, Reflector, Replacement};
use crate::SetAside;
use crate::delta_fifo::Delta;
use crate::object::Arrival;
use crate::planted::{Bug, planted};
use crate::source::{Answer, ListRequest, SourceError};

/// The longest list that is read: 50 million objects in pages of 500.
const MAX_PAGES: u32 = 100_000;

/// Watches over the pages of one list, so that a list without an end is given up.
///
/// One remembered token is enough to find a cycle of any length: it is replaced after 1, 2, 4, 8, … pages, so at some point
/// it is a part of the cycle, and the cycle is shorter than the time until the next replacement.
#[derive(Default)]
struct Pages {
    read: u32,
    remembered: String,
}

impl Pages {
    /// Takes the token of the next page.
    fn follow(&mut self, token: &str) -> Result<(), &'static str> {
        self.read += 1;
        if self.remembered == token && !planted(Bug::RepeatedTokenFollowed) {
            return Err("its continue tokens repeat, so it has no end");
        }
        if self.read >= MAX_PAGES {
            return Err("it has more than 100,000 pages");
        }
        if self.read.is_power_of_two() {
            token.clone_into(&mut self.remembered);
        }
        Ok(())
    }
}

impl Reflector {
    pub(super) async fn list(&self, machine: &mut Machine, limit: Option<u32>) -> Outcome {
        self.status.update(|status| {
            status.phase = Phase::Listing;
            status.counts.lists += 1;
        });
        let mut collected = Collected::new(&self.intake);
        let mut request = ListRequest { version: machine.list_version(), limit, continue_token: None };
        let mut version = None;
        let mut pages = Pages::default();
        // A comparison interrupts a watch that may work, so none of its pages may take long, whatever comes of it.
        let within = machine.verifies().map(|_| self.config.request_deadline.min(machine.compare_within()));
        if within.is_some() {
            self.status.update(|status| status.counts.verifications += 1);
        }
        loop {
            let page = self.page(&request, &mut collected, machine.trusted());
            let page = match within {
                Some(within) => timeout(within, page).await.unwrap_or_else(|_| Err(late())),
                None => page.await,
            };
            let page = match page {
                Ok(page) => page,
                Err(error) if error.is_expired() && request.continue_token.is_some() => {
                    return Outcome::PageExpired(error);
                }
                Err(error) => return Outcome::Failed(error),
            };
            // Every page shows the state of the first.
            version = version.or(page.resource_version);
            match page.continue_token {
                Some(token) => {
                    if let Err(why) = pages.follow(&token) {
                        return Outcome::Failed(SourceError::transport("the list cannot be used", why));
                    }
                    request.continue_token = Some(token);
                }
                None => break,
            }
        }
        // Some APIs, such as that of metrics, have no versions.
        self.complete(machine, collected, version.unwrap_or_else(|| "".into())).await
    }

    /// Hands a complete list on, unless it is not to be believed.
    pub(super) async fn complete(
        &self,
        machine: &mut Machine,
        list: Collected,
        version: ResourceVersion,
    ) -> Outcome {
        let (objects, set_aside) = list.finish().await;
        // Versions are numbers, or they are not: where both occur, something was garbled on the way.
        let is_odd = |delta: &Delta| {
            let of = delta.object.version();
            of.is_comparable() != version.is_comparable() && !is_absent(of)
        };
        let mixed = !is_absent(&version) && objects.iter().any(is_odd);
        if machine.refuses_list(&version, mixed) {
            let why = format!("some versions are numbers and some are not; its own is {version}");
            return Outcome::Failed(SourceError::transport("the list cannot be used", why));
        }
        let verdict = machine.judge(&version, Instant::now());
        if verdict == Verdict::Refuse {
            return Outcome::ListedOlder;
        }
        let trusted = machine.trusted();
        self.status.update(|status| {
            status.counts.restores += u64::from(verdict == Verdict::Restored);
            status.counts.items += objects.len() as u64;
        });
        // A name that could not be read may be any of them: then nothing is known to have vanished.
        machine.was_complete(set_aside.iter().all(|aside| aside.key.is_some() || aside.wrong_kind));
        let replacement = Replacement {
            objects,
            set_aside,
            version: version.clone(),
            trusted,
            verifies: machine.verifies(),
        };
        let (kind, scope, count) = (&self.intake.kind, &self.scope, replacement.objects.len());
        if verdict == Verdict::Restored {
            info!("{kind} ({scope}) was read again after a restore of the server: {count} objects");
        } else if machine.version().is_none() {
            info!("{kind} ({scope}) was read: {count} objects");
        }
        let newest = replacement.objects.iter().map(|delta| &delta.object);
        let newest = newest.max_by_key(|object| object.version().as_u64()).map(|object| witness_of(object));
        self.sink.send(&self.scope, Change::Replace(replacement)).await;
        let now = Instant::now();
        machine.listed(version.clone(), newest, now);
        self.status.update(|status| {
            status.version = Some(version);
            status.current_at = Some(now);
            status.doubted(None);
        });
        self.works("list", machine);
        Outcome::Listed
    }

    async fn page(
        &self,
        request: &ListRequest,
        collected: &mut Collected,
        trusted: bool,
    ) -> Result<ListMeta, SourceError> {
        let deadline = self.config.request_deadline;
        self.status.update(|status| status.counts.pages += 1);
        let Answer { wire, mut body } =
            timeout(deadline, self.source.list(request.clone())).await.map_err(|_| late())??;
        self.status.update(|status| status.shown(wire));
        let mut items = Items::of(wire);
        while let Some(chunk) = timeout(deadline, body.next()).await.map_err(|_| late())? {
            let chunk = chunk?;
            self.heard(chunk.len());
            items.push(&chunk);
            while let Some(item) = items.next()? {
                match self.intake.take(Arrival { wire, bytes: &item, named: None }, trusted) {
                    Ok(taken) => collected.add(taken).await,
                    Err(aside) => {
                        self.note_aside(&aside);
                        collected.set_aside(aside).await;
                    }
                }
            }
        }
        let meta = items.finish()?;
        if wire.is_protobuf() {
            check_kind(&self.intake.kind, &meta)?;
        }
        Ok(meta)
    }

    /// Notes that the server sent something.
    pub(super) fn heard(&self, bytes: usize) {
        self.status.update(|status| {
            status.last_contact = Some(Instant::now());
            status.counts.bytes += bytes as u64;
        });
    }

    pub(super) fn note_aside(&self, aside: &SetAside) {
        tracing::warn!(key = ?aside.key, problem = aside.problem, "set an object aside");
        self.status.update(|status| {
            let count =
                if aside.wrong_kind { &mut status.counts.wrong_kind } else { &mut status.counts.set_aside };
            *count += 1;
        });
    }
}

fn late() -> SourceError {
    SourceError::late("the list took too long", "no answer within the deadline")
}
