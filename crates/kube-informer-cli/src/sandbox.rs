//! A Kubernetes API server on this machine.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use kube_informer_apiserver::ApiServer;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where to listen. Only this machine can reach it unless told otherwise; port 0 is any free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Lets other machines reach it. There is no authentication: think twice.
    #[arg(long)]
    allow_remote: bool,
    /// Writes a kubeconfig here; without it, the kubeconfig is printed.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut builder = ApiServer::builder();
    if arguments.allow_remote {
        builder = builder.allow_remote();
    }
    let serving = builder.build().serve(arguments.listen).await?;
    println!(
        "# A Kubernetes API server listens on {}. It keeps everything in memory. Ctrl-C ends it.",
        serving.url()
    );
    match arguments.kubeconfig {
        Some(path) => {
            std::fs::write(&path, serving.kubeconfig())
                .with_context(|| format!("cannot write {}", path.display()))?;
            println!("kubectl --kubeconfig {} get namespaces", path.display());
        }
        None => println!("{}", serving.kubeconfig()),
    }
    tokio::signal::ctrl_c().await?;
    serving.shutdown().await;
    Ok(())
}
