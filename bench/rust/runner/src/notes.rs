//! A folder for what a case and its processes write down.

use std::fs;
use std::path::{Path, PathBuf};

use crate::settings::Settings;

/// Removed at the end.
pub(crate) struct Notes(PathBuf);

impl Notes {
    pub(crate) fn new(settings: &Settings) -> anyhow::Result<Self> {
        let folder = settings.cache.join(&settings.instance);
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A kubeconfig with another port of this machine, for a way around.
    pub(crate) fn kubeconfig_through(
        &self,
        kubeconfig: &Path,
        port: u16,
        instead: u16,
    ) -> anyhow::Result<PathBuf> {
        let path = self.path("kubeconfig-through");
        let text = fs::read_to_string(kubeconfig)?;
        fs::write(&path, text.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{instead}")))?;
        Ok(path)
    }

    /// The kubeconfig of a server of ours, without TLS.
    pub(crate) fn kubeconfig(&self, port: &str) -> anyhow::Result<PathBuf> {
        let path = self.path("kubeconfig");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: bench, contexts: [{{name: bench, context: {{cluster: bench, user: bench}}}}], \
             users: [{{name: bench, user: {{}}}}], clusters: [{{name: bench, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]}}"
        );
        fs::write(&path, text)?;
        Ok(path)
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
