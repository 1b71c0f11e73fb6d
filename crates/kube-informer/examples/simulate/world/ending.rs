//! The faults stop: everything becomes right again, stays quiet, and ends.

use std::collections::BTreeSet;
use std::time::Duration;

use kube_informer::ObjectKey;
use kube_informer::reflector::ReflectorStatus;
use kube_informer::stats::HandlerStats;
use tokio::time::Instant;

use super::super::checker;
use super::super::resource::Resource;
use super::super::schedule::Speed;
use super::{Place, Subject, World};

/// How long the world may take to be right again after the last fault. A list that could not be read completely, and a
/// comparison that failed, are repeated after a pause that grows.
const CONVERGES_WITHIN: Duration = Duration::from_mins(15);
/// Longer than `VERIFY_EVERY`.
const QUIET: Duration = Duration::from_secs(150);
/// How long the slowest handler takes for a resync of everything.
const SLOWEST_RESYNC: Duration = Duration::from_mins(1);
/// How many changes are made when all is well, and after what time everybody has seen them.
const CHANGES: u64 = 8;
const SEEN_WITHIN: Duration = Duration::from_secs(2);

impl World<'_> {
    /// The faults stop: everything must become right again.
    pub(super) async fn heal(&mut self) {
        self.trace.line("· the faults stop");
        self.clear_faults();
        self.gate.open();
        for subject in &self.informers {
            subject.informer.start();
        }
        if self.schedule.restores() {
            self.truth.read_back().await;
        }
        // The revision moves on without a change of the objects: a scope that reaches it is in touch with the server.
        self.truth.create_namespace("healed").await;
        // No object is changed to help: only an object that was set aside is, because its content is read when it changes.
        let begun = Instant::now();
        let mut touched = false;
        let compared: Vec<u64> = self.informers.iter().map(Subject::verifications).collect();
        loop {
            self.pass(Duration::from_secs(5)).await;
            self.check(Duration::from_secs(5));
            let mut wrong = self.difference(touched).await;
            if self.schedule.healing && wrong.is_none() {
                // The body of an object that is read as metadata may be wrong unseen: only a comparison finds that.
                let waits = self.informers.iter().zip(&compared).position(|(subject, before)| {
                    subject.verifications() < before + subject.informer.status().len() as u64
                });
                wrong = waits.map(|number| format!("informer {number} was not compared with the server"));
            }
            if self.trace.first_violation().is_some() {
                return;
            }
            match wrong {
                None if touched => return,
                None => {
                    for resource in Resource::ALL {
                        let subjects = self.informers.iter().filter(|it| it.kind.resource() == resource);
                        let aside: BTreeSet<ObjectKey> =
                            subjects.flat_map(|it| checker::unread(&it.informer.snapshot())).collect();
                        self.truth.touch(resource, &aside).await;
                    }
                    touched = true;
                }
                Some(wrong) if begun.elapsed() > CONVERGES_WITHIN => {
                    self.trace.violation(format_args!("{CONVERGES_WITHIN:?} after the last fault: {wrong}"));
                    return;
                }
                Some(_) => {}
            }
        }
    }

    /// What is not right yet. Unless `exact`, objects that were set aside are left out.
    pub(super) async fn difference(&self, exact: bool) -> Option<String> {
        let revision = self.server.revision();
        for (number, subject) in self.informers.iter().enumerate() {
            let informer = &subject.informer;
            let describe = |wrong: String| {
                format!("informer {number} ({:?}) {wrong}; {:?}", subject.kind, informer.status())
            };
            if !informer.has_synced() {
                return Some(describe("has not synced".into()));
            }
            let (snapshot, namespaces) = (informer.snapshot(), informer.namespaces());
            // A store may equal the server before its reflector is in touch again; its version tells.
            let behind = informer.status().into_iter().find_map(|status| {
                let reached = snapshot.version_of(&status.scope).and_then(|version| version.as_u64());
                (reached != Some(revision)).then(|| format!("is at {reached:?} in {}", status.scope))
            });
            if let Some(behind) = behind {
                return Some(describe(format!("{behind}, the server at {revision}")));
            }
            if informer.status().iter().any(|status| status.failing_since.is_some()) {
                return Some(describe("still fails".into()));
            }
            let server = self.truth.list(subject.kind.resource()).await;
            if let Some(wrong) = checker::difference(&snapshot, subject.kind, &namespaces, &server, exact) {
                return Some(describe(wrong));
            }
        }
        for handler in &self.handlers {
            let informer = &self.informers[handler.informer].informer;
            if let Some(wrong) = handler.ledger.difference(&informer.snapshot()) {
                return Some(wrong);
            }
            // A repaired object has its version still, so that only the queue shows that a slow handler is to be told.
            let waits = |stats: &HandlerStats| stats.name == handler.ledger.name() && stats.depth > 0;
            let resyncs = handler.ledger.resync_period().is_some();
            if !resyncs && let Some(stats) = informer.stats().handlers.into_iter().find(waits) {
                return Some(format!("{} events wait for {}", stats.depth, stats.name));
            }
            if handler.stats(&self.informers[handler.informer]).is_some_and(|stats| !stats.has_synced) {
                return Some(format!("{} has not synced", handler.ledger.name()));
            }
        }
        None
    }

    /// Nothing changes for a while: nobody hears of anything, but those who asked for resyncs, who hear of everything.
    pub(super) async fn quiet(&mut self) {
        self.trace.line("· quiet");
        let events: Vec<u64> = self.handlers.iter().map(|handler| handler.ledger.events()).collect();
        let lists = self.server.stats().total();
        let listed: u64 = self.informers.iter().map(Subject::lists).sum();
        let compared: u64 = self.informers.iter().map(Subject::verifications).sum();
        let restores: u64 = self.informers.iter().map(Subject::restores).sum();
        let periods = self.handlers.iter().filter_map(|handler| handler.ledger.resync_period());
        let quiet = periods.max().map_or(QUIET, |longest| QUIET.max(longest + SLOWEST_RESYNC));
        self.pass(quiet).await;
        self.check(quiet);
        for (handler, events) in self.handlers.iter().zip(events) {
            let period = handler.ledger.resync_period().unwrap_or_default();
            handler.ledger.check_quiet(events, Instant::now() - period - SLOWEST_RESYNC);
            let snapshot = self.informers[handler.informer].informer.snapshot();
            if let Some(wrong) = handler.ledger.difference(&snapshot) {
                handler.ledger.fail(format_args!("is wrong after a quiet time: {wrong}"));
            }
        }
        let now = self.server.stats().total();
        let listed = self.informers.iter().map(Subject::lists).sum::<u64>() - listed;
        // A check of the version that failed while there were faults is made again later, and may lead to a comparison.
        let mut compared = self.informers.iter().map(Subject::verifications).sum::<u64>() - compared;
        if restores > 0 {
            // What one informer has found out is true of the others of its kind, who come to their checks later.
            compared += self.informers.iter().map(Subject::restores).sum::<u64>() - restores;
        }
        let reflectors: usize = self.informers.iter().map(|subject| subject.informer.status().len()).sum();
        if !self.schedule.healing && (listed > compared || compared > reflectors as u64) {
            self.trace.violation(format_args!("{listed} lists and {compared} checks when nothing was wrong"));
        }
        let checked = now.exact_lists - lists.exact_lists;
        if checked > 2 * reflectors as u64 {
            self.trace.violation(format_args!("{checked} checks when nothing was wrong"));
        }
        for (number, subject) in self.informers.iter().enumerate() {
            let fails = |status: &ReflectorStatus| status.failing_since.is_some() || status.polling;
            if let Some(status) = subject.informer.status().into_iter().find(fails) {
                self.trace.violation(format_args!("informer {number} fails after all is well: {status:?}"));
            }
        }
    }

    /// Without faults a change is seen at once: neither the next bookmark nor the next attempt may be what brings it.
    pub(super) async fn changes(&mut self) {
        self.trace.line("· changes without faults");
        for turn in 0..CHANGES {
            let resource = Resource::ALL[usize::from(turn % 3 == 1)];
            let object = resource.number(self.schedule.seed.wrapping_add(turn * 5));
            let web = turn % 2 == 0;
            if turn % 4 == 3 {
                self.truth.delete(object).await;
            } else if !self.truth.update(object, web).await {
                self.truth.create(object, web).await;
            }
            self.pass(SEEN_WITHIN).await;
            self.check(SEEN_WITHIN);
            for (number, subject) in self.informers.iter().enumerate() {
                let server = self.truth.list(subject.kind.resource()).await;
                let (snapshot, namespaces) = (subject.informer.snapshot(), subject.informer.namespaces());
                if let Some(wrong) = checker::difference(&snapshot, subject.kind, &namespaces, &server, true)
                {
                    self.trace
                        .violation(format_args!("informer {number} {SEEN_WITHIN:?} after a change: {wrong}"));
                }
            }
            for handler in &self.handlers {
                let snapshot = self.informers[handler.informer].informer.snapshot();
                let slow = matches!(handler.ledger.plan().speed, Speed::Slow(_));
                if !slow && let Some(wrong) = handler.ledger.difference(&snapshot) {
                    handler.ledger.fail(format_args!("{SEEN_WITHIN:?} after a change: {wrong}"));
                }
            }
        }
    }

    /// Everything ends, and nothing is left.
    pub(super) async fn end(&mut self) {
        for (snapshot, digest) in &self.kept {
            if checker::digest(snapshot) != *digest {
                self.trace.violation("a snapshot has changed");
            }
        }
        for (observed, observer) in self.informers.iter().filter_map(|subject| subject.observed.as_ref()) {
            observer.abort();
            self.numbers.snapshots += *observed.lock().expect("no panic");
        }
        if let Err(unfinished) = self.factory.shutdown().await {
            self.trace.violation(unfinished);
        }
        // A slow stream may be with its last event.
        self.pass(Duration::from_secs(5)).await;
        let (tasks, watches) = (self.factory.running_tasks(), self.server.stats().open_watches);
        if tasks > 0 || watches > 0 {
            self.trace
                .violation(format_args!("{tasks} tasks and {watches} watches are left after the shutdown"));
        }
        for handler in &mut self.handlers {
            if let Place::Streamed(task) = &mut handler.place
                && !task.is_finished()
            {
                handler.ledger.fail(format_args!("is a stream that did not end with the shutdown"));
            }
        }
    }
}
