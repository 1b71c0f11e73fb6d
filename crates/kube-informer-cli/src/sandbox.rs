//! A Kubernetes API server on this machine.

mod kubeconfig_file;

use std::net::SocketAddr;
use std::path::PathBuf;

use kube_informer_apiserver::ApiServer;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where to listen. Only this machine can reach it unless told otherwise; port 0 is any free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Lets other machines reach it. There is no authentication: think twice.
    #[arg(long)]
    allow_remote: bool,
    /// Clients may also address it by this host name; can be given more than once. Without it: localhost and loopback addresses,
    /// and with --allow-remote every numeric address.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Writes a kubeconfig to this new file; without it, the kubeconfig is printed. A file that is already there is only
    /// replaced if an earlier sandbox wrote it.
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut builder = ApiServer::builder();
    if arguments.allow_remote {
        builder = builder.allow_remote();
    }
    for host in arguments.allow_host {
        builder = builder.allow_host(host);
    }
    let serving = builder.build().serve(arguments.listen).await?;
    if let Some(path) = &arguments.kubeconfig {
        kubeconfig_file::write(path, &serving.kubeconfig())?;
    }
    println!(
        "# A Kubernetes API server listens on {}. It keeps everything in memory. Ctrl-C ends it.",
        serving.url()
    );
    match &arguments.kubeconfig {
        Some(path) => println!("kubectl --kubeconfig {} get namespaces", path.display()),
        None => println!("{}", serving.kubeconfig()),
    }
    tokio::signal::ctrl_c().await?;
    serving.shutdown().await;
    Ok(())
}
