//! What a seed means: what people do to the objects, when controllers end, and what goes wrong meanwhile.

use std::time::Duration;

use fastrand::Rng;
use kube_informer_apiserver::faults::Rule;

use super::trouble;

/// All faults are over by then, except permissions that come late.
pub const TROUBLE_ENDS: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub seed: u64,
    /// What is done to each object, one after the other; the objects at the same time.
    pub stories: Vec<Vec<Step>>,
    /// What is done to each ticket, in the same way.
    pub tickets: Vec<Vec<Turn>>,
    /// When people install the kind of the tickets.
    pub installed: Duration,
    /// One controller after the other. The one after these lives on.
    pub lives: Vec<Life>,
    pub rules: Vec<Rule>,
    /// When the last of the rules ends.
    pub trouble_ends: Duration,
    /// How many of a thousand looks at the world end in a panic.
    pub panics: u32,
    pub settings: Settings,
}

/// How the controllers are built.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// `None`: the library's default.
    pub buffer_len: Option<usize>,
    /// Whether changes of deployments and tickets pass a predicate.
    pub filtered: bool,
    /// Whether the kind of the tickets is declared optional.
    pub optional: bool,
    /// How often a cleanup says that it still runs.
    pub cleanup_rounds: u32,
    pub workers: usize,
    pub retry: Retry,
    /// When somebody pauses the controller, and for how long.
    pub pauses: Vec<(Duration, Duration)>,
}

/// How failed keys are spaced.
#[derive(Debug, Clone, Copy, Default)]
pub enum Retry {
    /// Each key by itself.
    #[default]
    Alone,
    /// All keys together, too.
    Together,
    /// A few times soon, then rarely.
    FastThenSlow,
}

/// What people do to an object and its children.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Rest(Duration),
    /// As soon as the last of this name is gone.
    Create(usize),
    Scale(usize),
    /// Changes that mean nothing, so that a write with an older version has a conflict.
    Storm {
        changes: u32,
        every: Duration,
    },
    RemoveChild(usize),
    SpoilChild(usize),
    /// Gives a child to other owners, one after the other.
    GiveChild {
        slot: usize,
        to: Vec<usize>,
        every: Duration,
    },
    Delete,
}

/// What people do to a ticket. Its holder has a child for it while the ticket is on.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    Rest(Duration),
    /// Passes the ticket on, from hand to hand. A ticket that is not there is created first.
    Pass {
        to: Vec<usize>,
        every: Duration,
    },
    /// Turns it off and on again.
    Blink {
        times: u32,
        every: Duration,
    },
    SwitchOff,
    /// This many changes that concern no key.
    Note(u32),
    Remove,
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
        let count = random.usize(1..=4);
        let stories = (0..count).map(|_| story(&mut random, count)).collect();
        let tickets = (0..random.usize(0..4)).map(|_| turns(&mut random, count)).collect();
        let lives = (0..random.usize(0..12)).map(|_| life(&mut random)).collect();
        let settings = settings(&mut random);
        let mut menu = trouble::menu(&mut random);
        random.shuffle(&mut menu);
        menu.truncate(random.usize(0..=6));
        // The first rule that matches a request decides, and permissions must hold without exception.
        let late = trouble::late(&mut random, settings.optional);
        let trouble_ends = late.iter().map(|late| late.until).fold(TROUBLE_ENDS, Duration::max);
        let bursts = trouble::bursts(&mut random);
        let rules = late.into_iter().map(|late| late.rule).chain(bursts).chain(menu).collect();
        let panics = if random.bool() { random.u32(0..80) } else { 0 };
        let installed = match random.u8(0..8) {
            0..4 => Duration::ZERO,
            4..7 => millis(&mut random, 0..90_000),
            _ => Duration::from_mins(20),
        };
        Self { seed, stories, tickets, installed, lives, rules, trouble_ends, panics, settings }
    }

    /// The same stories in a perfect world.
    pub fn calm(&self) -> Self {
        Self {
            lives: Vec::new(),
            rules: Vec::new(),
            trouble_ends: TROUBLE_ENDS,
            panics: 0,
            installed: Duration::ZERO,
            ..self.clone()
        }
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

    /// Who must hold each ticket in the end; `None` if it is off or gone.
    pub fn holders(&self) -> Vec<Option<usize>> {
        let end = |turns: &Vec<Turn>| {
            let (mut holder, mut on) = (None, false);
            for turn in turns {
                match turn {
                    Turn::Pass { to, .. } => {
                        on |= holder.is_none();
                        holder = to.last().copied();
                    }
                    Turn::Blink { .. } => on = true,
                    Turn::SwitchOff => on = false,
                    Turn::Remove => holder = None,
                    Turn::Rest(_) | Turn::Note(_) => {}
                }
            }
            holder.filter(|_| on)
        };
        self.tickets.iter().map(end).collect()
    }
}

fn settings(random: &mut Rng) -> Settings {
    Settings {
        buffer_len: [Some(1), Some(1), Some(3), None][random.usize(0..4)],
        filtered: random.bool(),
        optional: random.bool(),
        cleanup_rounds: if random.bool() { 0 } else { random.u32(1..3) },
        workers: random.usize(1..=4),
        retry: [Retry::Alone, Retry::Together, Retry::FastThenSlow][random.usize(0..3)],
        pauses: (0..random.usize(0..3))
            .map(|_| (millis(random, 0..20_000), millis(random, 0..15_000)))
            .collect(),
    }
}

fn story(random: &mut Rng, objects: usize) -> Vec<Step> {
    let mut steps = vec![Step::Rest(millis(random, 0..5_000)), Step::Create(random.usize(0..4))];
    let mut there = true;
    for _ in 0..random.usize(0..10) {
        if random.u8(0..3) > 0 {
            steps.push(Step::Rest(millis(random, 0..20_000)));
        }
        let step = match random.u8(0..10) {
            _ if !there => Step::Create(random.usize(0..4)),
            0..=2 => Step::Scale(random.usize(0..4)),
            3 | 4 => Step::Storm { changes: random.u32(1..60), every: millis(random, 1..50) },
            5 => Step::RemoveChild(random.usize(0..4)),
            6 => Step::SpoilChild(random.usize(0..4)),
            7 | 8 => {
                let to = (0..random.usize(1..5)).map(|_| random.usize(0..objects)).collect();
                Step::GiveChild { slot: random.usize(0..4), to, every: pace(random) }
            }
            _ => Step::Delete,
        };
        there = step != Step::Delete;
        steps.push(step);
    }
    steps
}

fn turns(random: &mut Rng, objects: usize) -> Vec<Turn> {
    // Two of the holders have no object.
    let pass = |random: &mut Rng| {
        let mut to: Vec<usize> = (0..random.usize(1..6)).map(|_| random.usize(0..objects + 2)).collect();
        if random.bool() {
            // There and back: merged, this looks like no change.
            to.extend_from_within(..1);
        }
        Turn::Pass { to, every: pace(random) }
    };
    let mut turns = vec![Turn::Rest(millis(random, 0..5_000)), pass(random)];
    let mut there = true;
    for _ in 0..random.usize(0..12) {
        if random.u8(0..3) > 0 {
            turns.push(Turn::Rest(millis(random, 0..15_000)));
        }
        let turn = match random.u8(0..10) {
            _ if !there => pass(random),
            0..=4 => pass(random),
            5 | 6 => Turn::Blink { times: random.u32(1..4), every: pace(random) },
            7 => Turn::SwitchOff,
            8 => Turn::Note(1),
            _ => Turn::Remove,
        };
        there = turn != Turn::Remove;
        turns.push(turn);
    }
    let holder = turns.iter().rev().find_map(|turn| match turn {
        Turn::Pass { to, .. } => to.last().copied(),
        _ => None,
    });
    if let Some(holder) = holder.filter(|_| there && random.bool()) {
        // Away and back when nothing else happens, so that nothing else brings a reconcile; behind changes that fill a buffer.
        let away = (holder + random.usize(1..objects + 2)) % (objects + 2);
        turns.push(Turn::Rest(millis(random, 60_000..180_000)));
        turns.push(Turn::Note(random.u32(1..5)));
        turns.push(Turn::Pass { to: vec![away, holder], every: Duration::ZERO });
    }
    turns
}

/// The time between hops: short, so that they arrive together.
fn pace(random: &mut Rng) -> Duration {
    if random.bool() { Duration::ZERO } else { millis(random, 0..800) }
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

pub fn millis(random: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(random.u64(range))
}
