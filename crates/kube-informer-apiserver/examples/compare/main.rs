//! Sends the same requests to a real kube-apiserver and to this one, and shows where the answers differ:
//! `cargo run -p kube-informer-apiserver --example compare -- --kubeconfig PATH [CASE…]`
//!
//! Without `--kubeconfig` the cases run on this server alone, on a paused clock, and must not fail inside it.
//! The real server should be one to throw away: each case leaves a namespace behind.
//!
//! The cases are data, in `cases/`; `script` says how they are written. It ends with an error if an answer differs that is
//! not known to, or is the same though it is known to differ.

mod case;
mod diff;
mod normal;
mod script;
mod wire;

use std::time::Duration;

use futures_util::{StreamExt, stream};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use kube_informer_apiserver::ApiServer;

use crate::case::{Outcome, Steps};
use crate::script::Case;

const SCRIPTS: &[&str] = &[
    include_str!("cases/creates.txt"),
    include_str!("cases/definitions.txt"),
    include_str!("cases/deletes.txt"),
    include_str!("cases/discovery.txt"),
    include_str!("cases/generations.txt"),
    include_str!("cases/lists.txt"),
    include_str!("cases/namespaces.txt"),
    include_str!("cases/patches.txt"),
    include_str!("cases/protobuf.txt"),
    include_str!("cases/refusals.txt"),
    include_str!("cases/updates.txt"),
    include_str!("cases/watches.txt"),
];
/// How many cases run at a time.
const AT_ONCE: usize = 4;
/// How long one case may take.
const PATIENCE: Duration = Duration::from_mins(1);

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let mut arguments: Vec<_> = std::env::args().skip(1).collect();
    let kubeconfig = match arguments.iter().position(|argument| argument == "--kubeconfig") {
        Some(at) if at + 1 < arguments.len() => arguments.drain(at..at + 2).nth(1),
        Some(_) => return Err("--kubeconfig needs a path".into()),
        None => None,
    };
    let mut cases = Vec::new();
    for script in SCRIPTS {
        cases.extend(script::parse(script)?);
    }
    cases.retain(|case| {
        arguments.is_empty() || arguments.iter().any(|name| case.name.contains(name.as_str()))
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Where nothing is waited for but this server, time need not pass.
        .start_paused(kubeconfig.is_none())
        .build()?;
    runtime.block_on(run(cases, kubeconfig))
}

async fn run(cases: Vec<Case>, kubeconfig: Option<String>) -> Result<(), Error> {
    let ours = ApiServer::new().client();
    let real = match kubeconfig {
        Some(path) => Some(connect(&path).await?),
        None => None,
    };
    let prefix = format!("cmp{}", std::process::id());
    let (mut steps, mut known, mut bad) = (0, 0, 0);
    let count = cases.len();
    let mut outcomes = stream::iter(cases.into_iter().enumerate().map(|(number, case)| {
        let namespace = format!("{prefix}-{number}");
        let (ours, real) = (ours.clone(), real.clone());
        async move {
            let run = Steps::new(ours, real, namespace).run(&case);
            let outcomes = tokio::time::timeout(PATIENCE, run).await;
            (case, outcomes.unwrap_or_else(|_| vec![Outcome::Failed("took too long".to_owned())]))
        }
    }))
    .buffered(AT_ONCE);
    while let Some((case, outcomes)) = outcomes.next().await {
        steps += outcomes.len();
        let mut quiet = true;
        for (number, outcome) in outcomes.iter().enumerate() {
            let (name, number) = (&case.name, number + 1);
            match outcome {
                Outcome::Same => continue,
                Outcome::Known(why) => {
                    known += 1;
                    println!("{name}, step {number}: known: {why}");
                }
                Outcome::Differs { request, differences } => {
                    bad += 1;
                    println!("{name}, step {number}: differs: {request}");
                    for difference in differences {
                        println!("    {difference}");
                    }
                }
                Outcome::NoLongerKnown(why) => {
                    bad += 1;
                    println!("{name}, step {number}: same, though known to differ: {why}");
                }
                Outcome::Failed(why) => {
                    bad += 1;
                    println!("{name}, step {number}: failed: {why}");
                }
            }
            quiet = false;
        }
        if quiet {
            println!("{}: {}", case.name, if real.is_some() { "same" } else { "answered" });
        }
    }
    let all = format!("{count} cases, {steps} requests");
    if real.is_some() {
        println!("{all} compared, {known} differ as known, {bad} unexpectedly");
    } else {
        println!("{all} answered by this server alone: nothing was compared");
    }
    if bad > 0 { Err("this server does not answer as it should".into()) } else { Ok(()) }
}

async fn connect(path: &str) -> Result<Client, Error> {
    let mut config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await?;
    // A refusal is an answer here, not something to try again.
    config.default_retry = false;
    config.read_timeout = None;
    Ok(Client::try_from(config)?)
}
