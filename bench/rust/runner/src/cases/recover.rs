//! Connections are cut, stopped and refused under twenty kinds, and the server is stopped, killed and put back to an older state: how
//! long until a change that was made after the fault is in every cache.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;

use crate::audit::{Asked, Audit, Noted, count};
use crate::cases::{Participant, in_order, participant};
use crate::control_plane::ControlPlane;
use crate::figures::{Report, UNREACHED};
use crate::notes::Notes;
use crate::process::Process;
use crate::settings::Settings;
use crate::switch::Switch;

/// How many kinds each participant follows.
const KINDS: usize = 20;

/// Checks of a kind are ten seconds apart, so some of them are made this long after all was fresh.
const SETTLE: Duration = Duration::from_secs(11);

/// How long processes and the writer may take for what is not measured.
const PATIENCE: Duration = Duration::from_secs(120);

const FOLLOWERS: &[Participant] =
    &[participant("ours", "bench-ours", &[]), participant("client_go", "bench-go", &[])];

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let mut report = Report::new("recover", settings.rounds);
    report.order(FOLLOWERS.iter().map(|participant| participant.name));
    report.by_figure();
    let limit = limit(settings).as_secs();
    report.show_unreached_as(format!("not within {limit} s"));
    report.note(format!(
        "one process follows {KINDS} built-in kinds, through a proxy, on a server of its own. *_p50_ms, *_p99_ms, *_s: from the fault until one object of \
         each kind that was changed right after it is in the cache, the {KINDS} writes included, within {limit} s; the 99th percentile of fewer than 100 \
         cuts is the longest"
    ));
    report.note(
        "far: cuts 10 s apart; near: cuts 1 s after all was fresh; writes: from the cut until the writes have returned; resumed: until the server has received \
         a watch or list of the last kind. The server keeps no watch cache for events, the slowest of these kinds",
    );
    report.note(
        "half_open: the proxy stops passing bytes; stopped: SIGSTOP of kube-apiserver for 40 s; outage_N: killed for N s, while connections are refused; \
         restored: etcd put back to an older state, while connections are refused; overtaken: and revisions were past those of the client before it could \
         connect again; the last four from the moment the server is ready",
    );
    report.note(format!(
        "lists, checks (exact reads of one object), watches, requests (all of these): received by the server until {} s after all was fresh, or until the \
         limit; per_s: requests a second and informer while connections were cut",
        SETTLE.as_secs()
    ));
    report.note(
        "connections (TLS handshakes) until all kinds were synced; server_cpu_s, server_rss_mb: what syncing 20 kinds and 10 s of quiet added to kube-apiserver",
    );
    for round in 0..settings.rounds {
        for participant in in_order(FOLLOWERS, round) {
            Round::start(settings, participant)?.run(&mut report)?;
        }
    }
    for series in ["far", "near"] {
        let p50 = format!("{series}_p50_ms");
        let theirs = report.median("client_go", &p50).unwrap_or(UNREACHED);
        report.goal(&p50, theirs + 25.0, "client_go's + 25");
        report.goal(&format!("{series}_p99_ms"), 150.0, "");
        report.goal(&format!("{series}_per_s"), 1.0, "");
    }
    report.goal("half_open_s", 45.0, "");
    for seconds in outages(settings) {
        report.goal(&format!("outage_{seconds}_s"), 3.0, "");
    }
    Ok(report)
}

/// How long a participant has time to become fresh.
fn limit(settings: &Settings) -> Duration {
    Duration::from_secs(settings.either(90, 120))
}

/// How long the server is away.
fn outages(settings: &Settings) -> &'static [u64] {
    settings.either(&[20], &[20, 60])
}

/// One participant with a server of its own.
struct Round<'a> {
    settings: &'a Settings,
    participant: &'a Participant,
    process: Process,
    marker: Process,
    switch: Switch,
    backup: PathBuf,
    audit: Audit,
    kubeconfig: PathBuf,
    marks: usize,
    plane: ControlPlane,
    _notes: Notes,
}

/// When all was written, and when the participant had seen all of it.
struct Fresh {
    written: Instant,
    seen: Option<Instant>,
}

impl Fresh {
    /// How long it took since a fault.
    fn since(&self, fault: Instant) -> f64 {
        self.seen.map_or(UNREACHED, |seen| seen.saturating_duration_since(fault).as_secs_f64())
    }
}

impl<'a> Round<'a> {
    fn start(settings: &'a Settings, participant: &'a Participant) -> anyhow::Result<Self> {
        let notes = Notes::new(settings)?;
        let audit = Audit::new(&notes)?;
        let plane = ControlPlane::empty(settings, &audit.flags())?;
        let switch = Switch::start(plane.port)?;
        let kubeconfig = notes.kubeconfig_through(&plane.kubeconfig, plane.port, switch.port)?;
        let mut marker = Command::new(settings.program("bench-go"));
        let mut marker = Process::start("marker", marker.arg("mark").env("KUBECONFIG", &plane.kubeconfig))?;
        marker.tell("mark 1")?;
        marker.wait_for("marked", PATIENCE)?;
        let backup = notes.path("backup");
        plane.backup(&backup)?;
        let process = follow(settings, participant, &kubeconfig)?;
        Ok(Self {
            settings,
            participant,
            process,
            marker,
            switch,
            backup,
            audit,
            kubeconfig,
            marks: 1,
            plane,
            _notes: notes,
        })
    }

    fn run(mut self, report: &mut Report) -> anyhow::Result<()> {
        let name = self.participant.name;
        let quiet = (self.plane.cpu_s()?, self.plane.rss_mb()?);
        self.wait_for_sync()?;
        report.add(name, "connections", self.switch.accepted() as f64);
        sleep(Duration::from_secs(10));
        report.add(name, "server_cpu_s", self.plane.cpu_s()? - quiet.0);
        report.add(name, "server_rss_mb", self.plane.rss_mb()? - quiet.1);

        self.cuts(report, "far", self.settings.either(4, 10), Duration::from_secs(10))?;
        self.cuts(report, "near", self.settings.either(10, 30), Duration::from_secs(1))?;
        self.step(report, "half_open", |round| {
            round.switch.stop();
            Ok(Instant::now())
        })?;
        self.step(report, "stopped", |round| {
            round.plane.command("pause")?;
            sleep(Duration::from_secs(40));
            round.plane.command("resume")?;
            Ok(Instant::now())
        })?;
        for seconds in outages(self.settings) {
            self.step(report, &format!("outage_{seconds}"), |round| {
                round.outage(Duration::from_secs(*seconds), |plane, _| plane.command("restart-apiserver"))
            })?;
        }
        self.step(report, "restored", |round| {
            round.outage(Duration::ZERO, |plane, backup| plane.restore(backup))
        })?;
        self.fill(100)?;
        self.fresh()?;
        self.step(report, "overtaken", |round| {
            round.switch.refuse();
            round.plane.restore(&round.backup)?;
            // The same mark as the one that the participant must see: only what it reads again shows it.
            round.mark()?;
            round.marks -= 1;
            round.fill(1_000)?;
            round.switch.accept()?;
            Ok(Instant::now())
        })
    }

    /// Cuts all connections over and over.
    fn cuts(
        &mut self,
        report: &mut Report,
        series: &str,
        cuts: usize,
        apart: Duration,
    ) -> anyhow::Result<()> {
        let (mut times, mut writes, mut moments) = (vec![], vec![], vec![]);
        let place = self.audit.place()?;
        let begun = SystemTime::now();
        for _ in 0..cuts {
            sleep(apart);
            moments.push(SystemTime::now());
            let fault = Instant::now();
            self.switch.cut();
            let fresh = self.fresh()?;
            times.push(fresh.since(fault) * 1e3);
            writes.push((fresh.written - fault).as_secs_f64() * 1e3);
            if fresh.seen.is_none() {
                self.replace()?;
            }
        }
        let lasted = begun.elapsed()?;
        sleep(SETTLE);
        let requests = self.audit.since(place)?;
        let resumed = moments.iter().map(|cut| resumed(&requests, *cut));
        for (what, mut values) in [("", times), ("_writes", writes), ("_resumed", resumed.collect())] {
            values.sort_by(f64::total_cmp);
            let figures = [("p50", values.len() / 2), ("p99", values.len() - 1 - values.len() / 100)];
            for (figure, index) in figures {
                report.add(self.participant.name, &format!("{series}{what}_{figure}_ms"), values[index]);
            }
        }
        self.requests(report, series, &requests);
        let meanwhile = requests.iter().filter(|request| request.after(begun) <= lasted).count();
        let per_s = meanwhile as f64 / KINDS as f64 / lasted.as_secs_f64();
        report.add(self.participant.name, &format!("{series}_per_s"), per_s);
        Ok(())
    }

    /// One fault, and how long until all is fresh after it.
    fn step(
        &mut self,
        report: &mut Report,
        what: &str,
        fault: impl FnOnce(&mut Self) -> anyhow::Result<Instant>,
    ) -> anyhow::Result<()> {
        let place = self.audit.place()?;
        let since = fault(self)?;
        let fresh = self.fresh()?;
        report.add(self.participant.name, &format!("{what}_s"), fresh.since(since));
        if fresh.seen.is_some() {
            sleep(SETTLE);
        }
        self.requests(report, what, &self.audit.since(place)?);
        // Only now, so that the requests of the next process are not counted.
        if fresh.seen.is_none() { self.replace() } else { Ok(()) }
    }

    /// Kills kube-apiserver, and lets `start` start it again. Connections are refused until it accepts them; it is ready at the time
    /// that is returned.
    fn outage(
        &mut self,
        length: Duration,
        start: impl FnOnce(&ControlPlane, &Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Instant> {
        self.switch.refuse();
        self.plane.command("kill-apiserver")?;
        sleep(length);
        let switch = &mut self.switch;
        thread::scope(|scope| {
            let accepting = scope.spawn(|| switch.accept());
            start(&self.plane, &self.backup)?;
            let ready = Instant::now();
            accepting.join().expect("nothing panics while it waits")?;
            Ok(ready)
        })
    }

    /// Marks one object of each kind, and waits until the participant has seen all of them, or for the limit.
    fn fresh(&mut self) -> anyhow::Result<Fresh> {
        let written = self.mark()?;
        let (wanted, deadline) = (self.marks.to_string(), Instant::now() + limit(self.settings));
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.process.wait_for("fresh", left) {
                Ok(moment) => {
                    self.process.go_on()?;
                    if moment.words.first() == Some(&wanted) {
                        return Ok(Fresh { written, seen: Some(moment.at) });
                    }
                }
                Err(error) => {
                    eprintln!("{error}");
                    return Ok(Fresh { written, seen: None });
                }
            }
        }
    }

    /// Starts the participant again, because it does not become fresh.
    fn replace(&mut self) -> anyhow::Result<()> {
        self.process = follow(self.settings, self.participant, &self.kubeconfig)?;
        self.wait_for_sync()
    }

    fn wait_for_sync(&mut self) -> anyhow::Result<()> {
        self.process.wait_for("synced", PATIENCE)?;
        self.process.go_on()?;
        Ok(())
    }

    /// Changes one object of each kind, and returns when that was done.
    fn mark(&mut self) -> anyhow::Result<Instant> {
        self.marks += 1;
        self.marker.tell(&format!("mark {}", self.marks))?;
        Ok(self.marker.wait_for("marked", PATIENCE)?.at)
    }

    /// Makes this many objects, so that revisions go up.
    fn fill(&mut self, objects: usize) -> anyhow::Result<()> {
        self.marker.tell(&format!("fill {objects}"))?;
        self.marker.wait_for("filled", PATIENCE).context("the server cannot be filled")?;
        Ok(())
    }

    fn requests(&self, report: &mut Report, what: &str, requests: &[Noted]) {
        let counts = [
            ("lists", count(requests, Asked::List)),
            ("checks", count(requests, Asked::Check)),
            ("watches", count(requests, Asked::Watch)),
            ("requests", requests.len() as f64),
        ];
        for (figure, value) in counts {
            report.add(self.participant.name, &format!("{what}_{figure}"), value);
        }
    }
}

fn follow(settings: &Settings, participant: &Participant, kubeconfig: &Path) -> anyhow::Result<Process> {
    let mut command = participant.command(settings, "recover");
    Process::start(participant.name, command.env("KUBECONFIG", kubeconfig))
}

/// How many milliseconds after a cut the server has received a watch or list of the last kind.
fn resumed(requests: &[Noted], cut: SystemTime) -> f64 {
    let mut first = HashMap::new();
    for request in requests.iter().filter(|request| matches!(request.asked, Asked::Watch | Asked::List)) {
        let after = request.after(cut);
        // A request from before the cut seems to come almost a day after it.
        if after < PATIENCE {
            let known = first.entry(&*request.resource).or_insert(after);
            *known = after.min(*known);
        }
    }
    match first.values().max() {
        Some(last) if first.len() == KINDS => last.as_secs_f64() * 1e3,
        _ => UNREACHED,
    }
}
