//! The `kube-informer` command.

mod demo;
mod sandbox;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keeps a live copy of Kubernetes resources in memory, and shows how.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows what an informer does, on a server inside this process. Touches no cluster.
    Demo(demo::Arguments),
    /// Runs a Kubernetes API server on this machine, for kubectl and programs to play with.
    Sandbox(sandbox::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    // RUST_LOG=kube_informer=debug shows what goes on inside; silent otherwise.
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let result = match Arguments::parse().command {
        Command::Demo(arguments) => demo::run(arguments).await,
        Command::Sandbox(arguments) => sandbox::run(arguments).await,
    };
    let _ = std::io::stdout().flush();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kube-informer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
