//! Connections are cut, stopped and refused under twenty kinds, and the server is stopped, killed and put back to an older state: how
//! long until a change that was made after the fault is in every cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cases::{Participant, in_order, participant};
use crate::control_plane::ControlPlane;
use crate::figures::Report;
use crate::notes::Notes;
use crate::process::Process;
use crate::settings::Settings;
use crate::switch::Switch;

/// Who is not fresh after this time never will be.
const LIMIT: Duration = Duration::from_secs(120);

const FOLLOWERS: &[Participant] =
    &[participant("ours", "bench-ours", &[]), participant("client_go", "bench-go", &[])];

/// Every request is noted as it comes, whatever becomes of it.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
    "rules": [{"level": "Metadata", "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"]}]}"#;

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Report> {
    let mut report = Report::new("recover", settings.rounds);
    report.order(FOLLOWERS.iter().map(|participant| participant.name));
    report.by_figure();
    report.note(format!(
        "one process follows 20 built-in kinds, through a proxy, on a server of its own. *_ms, *_s: from the fault until one object of each kind that was \
         changed right after it is in the cache, the 20 writes included; {} s: never"
        , LIMIT.as_secs()
    ));
    report.note(
        "far: cuts 10 s apart; near: cuts 1 s after all was fresh; half_open: the proxy stops passing bytes; stopped: SIGSTOP of kube-apiserver for 40 s, \
         outage: killed for 20 s, both from the moment it is back; restored: etcd put back to an older state; overtaken: and revisions were past those of \
         the client before it could connect again; lists, watches, requests: begun meanwhile, as the server noted",
    );
    report.note(
        "connections (TLS handshakes) until all kinds were synced; server_cpu_s, server_rss_mb: what syncing 20 kinds and 10 s of quiet added to kube-apiserver",
    );
    report.note(
        "goals: *_p50_ms at most client_go's + 25, *_p99_ms at most 150, half_open_s at most 45, outage_s at most 3",
    );
    for round in 0..settings.rounds {
        for participant in in_order(FOLLOWERS, round) {
            Round::start(settings, participant)?.run(&mut report)?;
        }
    }
    Ok(report)
}

/// One participant with a server of its own.
struct Round<'a> {
    settings: &'a Settings,
    participant: &'a Participant,
    process: Process,
    marker: Process,
    switch: Switch,
    backup: PathBuf,
    log: PathBuf,
    kubeconfig: PathBuf,
    marks: usize,
    plane: ControlPlane,
    _notes: Notes,
}

impl<'a> Round<'a> {
    fn start(settings: &'a Settings, participant: &'a Participant) -> anyhow::Result<Self> {
        let notes = Notes::new(settings)?;
        let (policy, log) = (notes.path("audit-policy"), notes.path("audit.log"));
        fs::write(&policy, AUDIT_POLICY)?;
        let flags = [
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
        ];
        let plane = ControlPlane::empty(settings, &flags)?;
        let switch = Switch::start(plane.port)?;
        let kubeconfig = notes.kubeconfig_through(&plane.kubeconfig, plane.port, switch.port)?;
        let mut marker = Command::new(settings.program("bench-go"));
        let mut marker = Process::start("marker", marker.arg("mark").env("KUBECONFIG", &plane.kubeconfig))?;
        marker.tell("mark 1")?;
        marker.wait_for("marked", LIMIT)?;
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
            log,
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

        for (series, cuts, apart) in
            [("far", self.settings.either(4, 10), 10), ("near", self.settings.either(10, 30), 1)]
        {
            let mut times = vec![];
            let noted = self.noted()?;
            for _ in 0..cuts {
                sleep(Duration::from_secs(apart));
                let fault = Instant::now();
                self.switch.cut();
                times.push(self.fresh_since(fault)? * 1e3);
            }
            times.sort_by(f64::total_cmp);
            report.add(name, &format!("{series}_p50_ms"), times[times.len() / 2]);
            report.add(name, &format!("{series}_p99_ms"), times[times.len() - 1 - times.len() / 100]);
            self.requests(report, series, noted)?;
        }

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
        self.step(report, "outage", |round| {
            round.plane.command("kill-apiserver")?;
            sleep(Duration::from_secs(20));
            round.plane.command("restart-apiserver")?;
            Ok(Instant::now())
        })?;
        self.step(report, "restored", |round| {
            round.plane.restore(&round.backup)?;
            Ok(Instant::now())
        })?;
        self.fill(100)?;
        self.fresh_since(Instant::now())?;
        self.step(report, "overtaken", |round| {
            round.switch.refuse(true);
            round.switch.cut();
            round.plane.restore(&round.backup)?;
            round.mark()?;
            round.fill(1_000)?;
            round.marks -= 1;
            round.switch.refuse(false);
            Ok(Instant::now())
        })
    }

    /// One fault, and how long until all is fresh after it.
    fn step(
        &mut self,
        report: &mut Report,
        what: &str,
        fault: impl Fn(&mut Self) -> anyhow::Result<Instant>,
    ) -> anyhow::Result<()> {
        sleep(Duration::from_secs(2));
        let noted = self.noted()?;
        let since = fault(self)?;
        let fresh = self.fresh_since(since)?;
        report.add(self.participant.name, &format!("{what}_s"), fresh);
        self.requests(report, what, noted)
    }

    /// Marks one object of each kind, and waits until the participant has seen all of them.
    fn fresh_since(&mut self, fault: Instant) -> anyhow::Result<f64> {
        self.mark()?;
        let wanted = self.marks.to_string();
        loop {
            match self.process.wait_for("fresh", LIMIT) {
                Ok(moment) => {
                    self.process.go_on()?;
                    if moment.words.first() == Some(&wanted) {
                        return Ok((moment.at - fault).as_secs_f64());
                    }
                }
                Err(error) => {
                    eprintln!("{error}");
                    self.process = follow(self.settings, self.participant, &self.kubeconfig)?;
                    self.wait_for_sync()?;
                    return Ok(LIMIT.as_secs_f64());
                }
            }
        }
    }

    fn wait_for_sync(&mut self) -> anyhow::Result<()> {
        self.process.wait_for("synced", LIMIT)?;
        self.process.go_on()?;
        Ok(())
    }

    fn mark(&mut self) -> anyhow::Result<()> {
        self.marks += 1;
        self.marker.tell(&format!("mark {}", self.marks))?;
        self.marker.wait_for("marked", LIMIT)?;
        Ok(())
    }

    /// Changes another object this many times, so that revisions go up.
    fn fill(&mut self, changes: usize) -> anyhow::Result<()> {
        self.marker.tell(&format!("fill {changes}"))?;
        self.marker.wait_for("filled", LIMIT)?;
        Ok(())
    }

    fn noted(&self) -> anyhow::Result<usize> {
        Ok(fs::read(&self.log)?.len())
    }

    /// The requests of the participant that the server noted from a place of its log on.
    fn requests(&self, report: &mut Report, what: &str, from: usize) -> anyhow::Result<()> {
        let (lists, watches, requests) = requests(&self.log, from)?;
        for (figure, value) in [("lists", lists), ("watches", watches), ("requests", requests)] {
            report.add(self.participant.name, &format!("{what}_{figure}"), f64::from(value));
        }
        Ok(())
    }
}

fn follow(settings: &Settings, participant: &Participant, kubeconfig: &Path) -> anyhow::Result<Process> {
    let mut command = participant.command(settings, "recover");
    Process::start(participant.name, command.env("KUBECONFIG", kubeconfig))
}

fn requests(log: &Path, from: usize) -> anyhow::Result<(u32, u32, u32)> {
    let bytes = fs::read(log)?;
    let (mut lists, mut watches, mut requests) = (0, 0, 0);
    for line in bytes[from..].split(|byte| *byte == b'\n') {
        // The last line may be half written, and so may that of a server that was killed.
        let Ok(request) = serde_json::from_slice::<serde_json::Value>(line) else { continue };
        if request["user"]["username"] != "admin" || request["userAgent"] == "marker" {
            continue;
        }
        let uri = request["requestURI"].as_str().unwrap_or_default();
        if !uri.starts_with("/api") || uri.contains("/namespaces/default") && request["verb"] == "get" {
            continue;
        }
        requests += 1;
        match request["verb"].as_str().unwrap_or_default() {
            "list" => lists += 1,
            "watch" if uri.contains("sendInitialEvents=true") => lists += 1,
            "watch" => watches += 1,
            _ => {}
        }
    }
    Ok((lists, watches, requests))
}
