//! A participant in a process of its own, measured through the kernel.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// A running participant. It is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    /// With the time at which each came.
    lines: Receiver<(Instant, String)>,
    name: String,
}

/// What the kernel knew of a process when it said that something was done.
pub(crate) struct Moment {
    pub(crate) at: Instant,
    pub(crate) cpu_s: f64,
    /// What the process said after the name of the moment.
    pub(crate) words: Vec<String>,
}

impl Process {
    pub(crate) fn start(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{name} cannot be started"))?;
        let out = child.stdout.take().context("a pipe")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send((Instant::now(), line)).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines, name: name.to_owned() })
    }

    /// Waits until the process says that something is done. It waits in turn, until [`go_on`](Self::go_on).
    pub(crate) fn wait_for(&mut self, moment: &str, limit: Duration) -> anyhow::Result<Moment> {
        let (at, line) = self.lines.recv_timeout(limit).map_err(|_| {
            anyhow!("{} has not come to '{moment}' within {limit:?}, or has ended", self.name)
        })?;
        let mut words = line.split_whitespace().map(str::to_owned);
        if words.next().as_deref() != Some(moment) {
            bail!("{} said '{line}', not '{moment}'", self.name);
        }
        Ok(Moment { at, cpu_s: cpu_s(self.pid())?, words: words.collect() })
    }

    /// Lets the process go on; the time at which it does.
    pub(crate) fn go_on(&mut self) -> anyhow::Result<Instant> {
        let input = self.child.stdin.as_mut().context("a pipe")?;
        let now = Instant::now();
        input.write_all(b"\n")?;
        Ok(now)
    }

    /// Sends a line.
    pub(crate) fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        Ok(writeln!(self.child.stdin.as_mut().context("a pipe")?, "{line}")?)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn rss_mb(&self) -> anyhow::Result<f64> {
        status_mb(self.pid(), "VmRSS:")
    }

    pub(crate) fn peak_mb(&self) -> anyhow::Result<f64> {
        status_mb(self.pid(), "VmHWM:")
    }

    /// What has come through the process's connections to a port, as the kernel counts it.
    pub(crate) fn wire_mb(&self, port: u16) -> anyhow::Result<f64> {
        let target = format!("127.0.0.1:{port}");
        let out = Command::new("ss")
            .args(["-tinpHO", "dst", &target])
            .output()
            .context("ss (iproute2) is needed")?;
        let owner = format!("pid={},", self.pid());
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let bytes = text.lines().filter(|line| line.contains(&owner)).filter_map(|line| {
            let (_, rest) = line.split_once("bytes_received:")?;
            rest.split_whitespace().next()?.parse::<f64>().ok()
        });
        Ok(bytes.sum::<f64>() / 1e6)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end: seconds, processor seconds, and what it printed.
pub(crate) fn run_to_end(command: &mut Command, limit: Duration) -> anyhow::Result<(f64, f64, String)> {
    let start = Instant::now();
    let mut process = Process::start("the program", command)?;
    drop(process.child.stdin.take());
    let pid = process.pid();
    // What has ended but was not waited for still shows what it took.
    let (wall, cpu) = loop {
        if has_ended(pid)? {
            break (start.elapsed().as_secs_f64(), cpu_s(pid)?);
        }
        if start.elapsed() > limit {
            bail!("the program has not ended within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let status = process.child.wait()?;
    if !status.success() {
        bail!("the program failed: {status}");
    }
    let text = process.lines.iter().map(|(_, line)| line).collect::<Vec<_>>().join("\n");
    Ok((wall, cpu, text))
}

/// How much processor time a process has taken, its own and the kernel's for it, all threads, those that have ended, too.
pub(crate) fn cpu_s(pid: u32) -> anyhow::Result<f64> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.try_into()?)).context("the process is gone")?;
    let time = clock_gettime(clock).context("the process is gone")?;
    Ok(Duration::from(time).as_secs_f64())
}

/// Whether it has ended; it was not waited for.
fn has_ended(pid: u32) -> anyhow::Result<bool> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    // The name may contain anything, but no later ')'.
    let (_, rest) = text.rsplit_once(") ").context("an unknown format of /proc/PID/stat")?;
    Ok(rest.starts_with('Z'))
}

pub(crate) fn status_mb(pid: u32, field: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024.0 / 1e6)
}
