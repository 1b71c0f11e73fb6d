//! Where an example's cluster comes from: the server in this process, or a real one.

use std::path::PathBuf;

use kube_client::Client;
use kube_client::config::{Config, KubeConfigOptions, Kubeconfig};
use kube_informer::source::client_for_informers;

/// What can go wrong in an example, to be printed.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Which cluster the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cluster {
    /// The API server in this process, played to by a script.
    Embedded,
    /// The cluster of a kubeconfig file.
    Kubeconfig(PathBuf),
    /// The cluster that `kubectl` would use here, or the one this program runs in.
    Inferred,
}

impl Cluster {
    /// Takes `--kubeconfig PATH` or `--cluster` out of the arguments and leaves the rest.
    pub(crate) fn from_arguments(arguments: &mut Vec<String>) -> Result<Self, Error> {
        if let Some(at) = arguments.iter().position(|argument| argument == "--kubeconfig") {
            let path = arguments.get(at + 1).cloned().ok_or("--kubeconfig needs the path of a file")?;
            arguments.drain(at..=at + 1);
            return Ok(Self::Kubeconfig(path.into()));
        }
        if let Some(at) = arguments.iter().position(|argument| argument == "--cluster") {
            arguments.remove(at);
            return Ok(Self::Inferred);
        }
        Ok(Self::Embedded)
    }

    /// A client of a real cluster; `None` stands for the embedded server.
    pub(crate) async fn client(&self) -> Result<Option<Client>, Error> {
        let config = match self {
            Self::Embedded => return Ok(None),
            Self::Kubeconfig(path) => {
                let file = Kubeconfig::read_from(path)?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
            }
            Self::Inferred => Config::infer().await?,
        };
        // Not `Client::try_from`: its own retries would hide from the informer what the server says.
        Ok(Some(client_for_informers(config)?))
    }
}
