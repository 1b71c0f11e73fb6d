//! What a seed means: what people do to the objects, when controllers end, and what goes wrong meanwhile.

use std::time::Duration;

use fastrand::Rng;
use kube_informer_apiserver::Verb;
use kube_informer_apiserver::faults::{Fault, Rule};

/// All faults are over by then.
pub const TROUBLE_ENDS: Duration = Duration::from_mins(2);

/// The first connection is that of the people, whom nothing befalls.
const CONTROLLERS: std::ops::RangeInclusive<u64> = 2..=u64::MAX;

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// What is done to each object, one after the other; the objects at the same time.
    pub stories: Vec<Vec<Step>>,
    /// One controller after the other. The one after these lives on.
    pub lives: Vec<Life>,
    pub rules: Vec<Rule>,
    /// How many of a thousand looks at the world end in a panic.
    pub panics: u32,
}

/// What people do to an object and its children.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Rest(Duration),
    /// As soon as the last of this name is gone.
    Create(usize),
    Scale(usize),
    /// Changes that mean nothing, so that whoever writes with an older version has a conflict.
    Storm {
        changes: u32,
        every: Duration,
    },
    RemoveChild(usize),
    SpoilChild(usize),
    Delete,
}

/// How a controller ends, and how long there is none.
#[derive(Debug, Clone)]
pub struct Life {
    pub end: End,
    pub pause: Duration,
}

#[derive(Debug, Clone, Copy)]
pub enum End {
    /// At the await that is reached by so many polls of the controller and its reconciles.
    AfterPolls(u64),
    After(Duration),
}

impl Plan {
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let stories = (0..random.usize(1..=4)).map(|_| story(&mut random)).collect();
        let lives = (0..random.usize(0..12)).map(|_| life(&mut random)).collect();
        let mut menu = menu(&mut random);
        random.shuffle(&mut menu);
        menu.truncate(random.usize(0..=6));
        Self { seed, stories, lives, rules: menu, panics: if random.bool() { random.u32(0..80) } else { 0 } }
    }

    /// The same stories in a perfect world.
    pub fn calm(&self) -> Self {
        Self { lives: Vec::new(), rules: Vec::new(), panics: 0, ..self.clone() }
    }

    /// How many children each object must have in the end; `None` if it must be gone.
    pub fn wanted(&self) -> Vec<Option<usize>> {
        let end = |story: &Vec<Step>| {
            story.iter().fold(None, |children, step| match step {
                Step::Create(children) | Step::Scale(children) => Some(*children),
                Step::Delete => None,
                _ => children,
            })
        };
        self.stories.iter().map(end).collect()
    }
}

fn story(random: &mut Rng) -> Vec<Step> {
    let mut steps = vec![Step::Rest(millis(random, 0..5_000)), Step::Create(random.usize(0..4))];
    let mut there = true;
    for _ in 0..random.usize(0..10) {
        if random.u8(0..3) > 0 {
            steps.push(Step::Rest(millis(random, 0..20_000)));
        }
        let step = match random.u8(0..8) {
            _ if !there => Step::Create(random.usize(0..4)),
            0..=2 => Step::Scale(random.usize(0..4)),
            3 | 4 => Step::Storm { changes: random.u32(1..60), every: millis(random, 1..50) },
            5 => Step::RemoveChild(random.usize(0..4)),
            6 => Step::SpoilChild(random.usize(0..4)),
            _ => Step::Delete,
        };
        there = step != Step::Delete;
        steps.push(step);
    }
    steps
}

fn life(random: &mut Rng) -> Life {
    let end = if random.bool() {
        End::AfterPolls(random.u64(1..300))
    } else {
        End::After(millis(random, 0..20_000))
    };
    let pause = if random.bool() { Duration::ZERO } else { millis(random, 0..5_000) };
    Life { end, pause }
}

/// What can go wrong for a controller: with its writes, with its copies of the world, with the server.
fn menu(random: &mut Rng) -> Vec<Rule> {
    let write = |fault| {
        let rule = Rule::on(fault).verb(Verb::Create).verb(Verb::Update);
        rule.verb(Verb::Patch).verb(Verb::Delete)
    };
    let watch = |fault| Rule::on(fault).verb(Verb::Watch);
    let list = |fault| Rule::on(fault).verb(Verb::List).verb(Verb::Watch);
    let rules = vec![
        write(Fault::InternalError).probability(0.3),
        write(Fault::Cut).probability(0.3),
        write(Fault::Refuse).probability(0.3),
        write(Fault::Unavailable).probability(0.3),
        write(Fault::Timeout).probability(0.2),
        write(Fault::TooManyRequests { retry_after: None }).probability(0.3),
        write(Fault::Stall).probability(0.05),
        write(Fault::Delay(millis(random, 1..3_000))).probability(0.7),
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
        Rule::on(Fault::Restart).every(random.u64(20..80)),
        Rule::on(Fault::Compact).every(random.u64(5..40)),
    ];
    let bounded = |rule: Rule| {
        rule.connections(CONTROLLERS).from(millis(random, 0..60_000)).until(TROUBLE_ENDS).times(200)
    };
    rules.into_iter().map(bounded).collect()
}

fn millis(random: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(random.u64(range))
}
