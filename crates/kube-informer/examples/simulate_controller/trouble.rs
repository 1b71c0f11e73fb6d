//! What can go wrong for a controller: with its permissions, its writes, its copies of the world, with the server.

use std::time::Duration;

use fastrand::Rng;
use kube_informer_apiserver::Verb;
use kube_informer_apiserver::faults::{Fault, Rule};

use super::plan::{TROUBLE_ENDS, millis};
use super::ticket;

/// The first connection is that of the people, which no fault affects.
const CONTROLLERS: std::ops::RangeInclusive<u64> = 2..=u64::MAX;

/// A kind that controllers may not read for a while.
pub struct Late {
    pub rule: Rule,
    pub until: Duration,
}

/// Kinds that are refused from the start or from some time on, for ten seconds to twenty minutes.
///
/// A kind that is declared optional and answered with 404 counts as empty, so the tickets then are refused with 403 only.
pub fn late(random: &mut Rng, optional: bool) -> Vec<Late> {
    let mut kinds = ["deployments.apps", "configmaps", ticket::RESOURCE];
    random.shuffle(&mut kinds);
    let count = random.usize(0..6).saturating_sub(3);
    let refuse = |resource: &str| {
        let missing = random.u8(0..3) == 0 && !(optional && resource == ticket::RESOURCE);
        let fault = if missing { Fault::NotFound } else { Fault::Forbidden };
        let from = if random.bool() { Duration::ZERO } else { millis(random, 0..60_000) };
        let lasts = if random.u8(0..4) == 0 { 60_000..1_200_000 } else { 10_000..60_000 };
        let until = from + millis(random, lasts);
        let rule = Rule::on(fault).verb(Verb::List).verb(Verb::Watch).resource(resource);
        Late { rule: rule.connections(CONTROLLERS).from(from).until(until), until }
    };
    kinds[..count].iter().copied().map(refuse).collect()
}

/// Watches that end again and again and are resumed late, so that changes arrive together.
pub fn bursts(random: &mut Rng) -> Vec<Rule> {
    if random.u8(0..3) > 0 {
        return Vec::new();
    }
    let watch = |fault| Rule::on(fault).verb(Verb::Watch).connections(CONTROLLERS).until(TROUBLE_ENDS);
    let (lasts, late) = (millis(random, 1..800), millis(random, 200..5_000));
    vec![watch(Fault::EndStream).after(lasts), watch(Fault::Delay(late))]
}

/// All other faults. Each ends with [`TROUBLE_ENDS`].
pub fn menu(random: &mut Rng) -> Vec<Rule> {
    let on = |fault| Rule::on(fault).times(200);
    let write = |fault| {
        let rule = on(fault).verb(Verb::Create).verb(Verb::Update);
        rule.verb(Verb::Patch).verb(Verb::Delete)
    };
    let watch = |fault| on(fault).verb(Verb::Watch);
    let list = |fault| on(fault).verb(Verb::List).verb(Verb::Watch);
    let one = |fault, verb| on(fault).verb(verb).resource("deployments.apps");
    let rules = vec![
        write(Fault::InternalError).probability(0.3),
        write(Fault::Cut).probability(0.3),
        write(Fault::Refuse).probability(0.3),
        write(Fault::Unavailable).probability(0.3),
        write(Fault::Timeout).probability(0.2),
        write(Fault::TooManyRequests { retry_after: None }).probability(0.3),
        write(Fault::Stall).probability(0.05),
        write(Fault::Delay(millis(random, 1..3_000))).probability(0.7),
        // Finalizers: patches and the reads that resolve their conflicts.
        one(Fault::NotFound, Verb::Patch).probability(0.5),
        one(Fault::NotFound, Verb::Get).probability(0.5),
        one(Fault::Forbidden, Verb::Get),
        one(Fault::Delay(millis(random, 1..500)), Verb::Patch),
        watch(Fault::StallStream).resource("deployments.apps").after_events(random.u64(0..5)).times(2),
        watch(Fault::Delay(millis(random, 1..5_000))).probability(0.7),
        watch(Fault::Drip { bytes: random.usize(16..512), every: millis(random, 1..200) }).probability(0.5),
        watch(Fault::CutStream).after_events(random.u64(0..5)).probability(0.7),
        watch(Fault::EndStream).after(millis(random, 1..5_000)).probability(0.7),
        watch(Fault::StallStream).after_events(random.u64(0..5)).probability(0.2),
        watch(Fault::ExpiredEvent).after_events(random.u64(0..5)).probability(0.3),
        watch(Fault::ErrorEvent).after_events(random.u64(0..5)).probability(0.3),
        watch(Fault::CutFrame).probability(0.1),
        watch(Fault::DuplicateEvent).probability(0.2),
        list(Fault::Gone).probability(0.2),
        list(Fault::Unavailable).probability(0.3),
        list(Fault::StaleReplica { behind: random.u64(1..20) }),
        on(Fault::Restart).every(random.u64(20..80)),
        on(Fault::Compact).every(random.u64(5..40)),
    ];
    let bounded =
        |rule: Rule| rule.connections(CONTROLLERS).from(millis(random, 0..60_000)).until(TROUBLE_ENDS);
    rules.into_iter().map(bounded).collect()
}
