//! A real server with generated objects: filled once, kept in the cache, started from a copy.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::process::{cpu_s, status_mb};
use crate::settings::Settings;

/// Goes up by one when generated objects change, so that servers are filled anew.
const GENERATION: u32 = 1;

/// How many objects of every kind other than pods there are.
pub(crate) const OTHERS: usize = 1_000;

/// A running server. It is taken down when this is dropped.
pub(crate) struct ControlPlane {
    script: PathBuf,
    name: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) url: String,
    pub(crate) port: u16,
}

impl ControlPlane {
    /// A server with as many pods as asked for, and some objects of other kinds.
    pub(crate) fn with_objects(settings: &Settings) -> anyhow::Result<Self> {
        Self::with_objects_and_flags(settings, &[])
    }

    /// As [`with_objects`](Self::with_objects), with further flags for kube-apiserver.
    pub(crate) fn with_objects_and_flags(settings: &Settings, flags: &[String]) -> anyhow::Result<Self> {
        let kubernetes = settings.versions.iter().find(|(name, _)| name == "kubernetes");
        let kubernetes = kubernetes.map_or("", |(_, version)| version.as_str());
        let data = settings
            .cache
            .join(format!("data-v{GENERATION}-{kubernetes}-{}-{}", settings.pods, settings.seed));
        if !data.exists() {
            fill(settings, &data)?;
        }
        let mut options = vec![OsStr::new("--copy-of"), data.as_os_str()];
        for flag in flags {
            options.extend(["--apiserver-flag", flag].map(OsStr::new));
        }
        let plane = Self::up(settings, &options)?;
        // The server answers before its caches are warm: one list of everything that will be asked for.
        plane.read("pods", "application/vnd.kubernetes.protobuf")?;
        Ok(plane)
    }

    /// A server without objects of ours, with further flags for kube-apiserver.
    pub(crate) fn empty(settings: &Settings, flags: &[String]) -> anyhow::Result<Self> {
        let options = flags.iter().flat_map(|flag| ["--apiserver-flag", flag].map(OsStr::new));
        Self::up(settings, &options.collect::<Vec<_>>())
    }

    fn up(settings: &Settings, options: &[&OsStr]) -> anyhow::Result<Self> {
        let script = settings.root.join("testing/control-plane/control-plane");
        let name = settings.instance.clone();
        let out = Command::new(&script)
            .arg("up")
            .args(["--name", &name])
            .args(options)
            .stderr(Stdio::inherit())
            .output()?;
        if !out.status.success() {
            bail!("the control plane did not start");
        }
        let kubeconfig = PathBuf::from(String::from_utf8(out.stdout)?.trim());
        let mut plane = Self { script, name, kubeconfig, url: String::new(), port: 0 };
        let text = fs::read_to_string(&plane.kubeconfig)?;
        let (_, rest) = text.split_once("server:").context("the kubeconfig has no server")?;
        let url = rest.split_whitespace().next().unwrap_or_default().trim_matches('"');
        plane.port =
            url.rsplit(':').next().and_then(|port| port.parse().ok()).context("the server has no port")?;
        url.clone_into(&mut plane.url);
        Ok(plane)
    }

    /// Kills kube-apiserver and starts it again; it is ready when this returns.
    pub(crate) fn restart(&self) -> anyhow::Result<()> {
        self.command("kill-apiserver")?;
        self.command("restart-apiserver")
    }

    /// The processor time that kube-apiserver has taken.
    pub(crate) fn cpu_s(&self) -> anyhow::Result<f64> {
        cpu_s(self.pid()?)
    }

    /// The resident memory of kube-apiserver.
    pub(crate) fn rss_mb(&self) -> anyhow::Result<f64> {
        status_mb(self.pid()?, "VmRSS:")
    }

    fn pid(&self) -> anyhow::Result<u32> {
        let text = fs::read_to_string(self.kubeconfig.with_file_name("apiserver.pid"))?;
        Ok(text.split_whitespace().next().context("an empty pid file")?.parse()?)
    }

    /// Copies what etcd stores; both servers are stopped meanwhile.
    pub(crate) fn backup(&self, to: &Path) -> anyhow::Result<()> {
        self.command_with("backup", &["--data".as_ref(), to.as_os_str()])
    }

    /// Puts etcd back to a backup.
    pub(crate) fn restore(&self, from: &Path) -> anyhow::Result<()> {
        self.command_with("restore", &["--copy-of".as_ref(), from.as_os_str()])
    }

    /// Reads a whole list of pods to nowhere, by `curl`: seconds, processor seconds, megabytes.
    pub(crate) fn read(&self, resource: &str, accept: &str) -> anyhow::Result<(f64, f64, f64)> {
        let folder = self.kubeconfig.parent().context("a folder")?;
        let token = fs::read_to_string(folder.join("token"))?;
        let mut curl = Command::new("curl");
        // A server indents JSON for what looks like a person.
        curl.args([
            "--user-agent",
            "bench",
            "--silent",
            "--fail",
            "--output",
            "/dev/null",
            "--write-out",
            "%{size_download}",
        ])
        .arg("--cacert")
        .arg(folder.join("ca.crt"))
        .args(["--header", &format!("Authorization: Bearer {}", token.trim())])
        .args(["--header", &format!("Accept: {accept}")])
        .arg(format!("{}/api/v1/{resource}", self.url));
        let (wall, cpu, size) = crate::process::run_to_end(&mut curl, std::time::Duration::from_secs(120))?;
        Ok((wall, cpu, size.trim().parse::<f64>()? / 1e6))
    }

    pub(crate) fn command(&self, command: &str) -> anyhow::Result<()> {
        self.command_with(command, &[])
    }

    fn command_with(&self, command: &str, options: &[&OsStr]) -> anyhow::Result<()> {
        let status = Command::new(&self.script)
            .args([command, "--name", &self.name])
            .args(options)
            .stdout(Stdio::null())
            .status()?;
        if !status.success() {
            bail!("control-plane {command} failed");
        }
        Ok(())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Err(error) = self.command("down") {
            eprintln!("{error}");
        }
    }
}

fn fill(settings: &Settings, data: &Path) -> anyhow::Result<()> {
    eprintln!("filling a server with {} pods, once; this takes minutes", settings.pods);
    fs::create_dir_all(&settings.cache)?;
    let partial = partial(data, std::process::id());
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    let plane = ControlPlane::up(settings, &["--data".as_ref(), partial.as_os_str()])?;
    let status = Command::new(settings.program("bench-go"))
        .arg("fill")
        .arg("--kubeconfig")
        .arg(&plane.kubeconfig)
        .args(["--pods", &settings.pods.to_string()])
        .args(["--others", &OTHERS.to_string()])
        .args(["--seed", &settings.seed.to_string()])
        .status()?;
    if !status.success() {
        bail!("the server could not be filled");
    }
    plane.command("compact")?;
    drop(plane);
    match fs::rename(&partial, data) {
        // Another process was first: what it filled is the same.
        Err(_) if data.exists() => fs::remove_dir_all(&partial)?,
        renamed => renamed.context("the filled server cannot be kept")?,
    }
    Ok(())
}

/// Where a process fills a server: a place of its own for each, as several may do so at once. `bench/run` removes what is
/// left there.
fn partial(data: &Path, process: u32) -> PathBuf {
    let mut name = data.as_os_str().to_owned();
    name.push(format!(".partial-{process}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fill_has_a_place_of_its_own() {
        let [few, many] = ["data-v1-1.37.1-1000-7", "data-v1-1.37.1-50000-7"].map(Path::new);
        assert_eq!(partial(few, 12), Path::new("data-v1-1.37.1-1000-7.partial-12"));
        assert_ne!(partial(few, 12), partial(many, 12));
        assert_ne!(partial(few, 12), partial(few, 13));
    }
}
