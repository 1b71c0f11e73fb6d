//! Shows what an informer does to somebody who has never heard of one.

mod narrator;
mod words;
mod workload;

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube_client::Api;
use kube_client::api::ListParams;
use kube_informer::reflector::ReflectorConfig;
use kube_informer::{FieldPath, IndexBy, InformerOptions, SharedInformer, SharedInformerFactory};
use kube_informer_apiserver::ApiServer;
use kube_informer_apiserver::faults::{Fault, Faults, Rule};
use kube_informer_apiserver::request::Verb;
use tokio::time::Instant;

use narrator::Narrator;
use workload::Workload;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many pods the cluster has when the demo starts.
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(10..=200_000))]
    pods: u32,
    /// For how many seconds pods come and go.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=3600))]
    seconds: u64,
    /// Makes the same cluster again.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "kube-informer demo: a Kubernetes API server and an informer, both inside this process.")?;
    writeln!(out, "No cluster is touched, nothing is installed, nothing is left behind.\n")?;

    let faults = Faults::seeded(arguments.seed);
    let server = ApiServer::builder().seed(arguments.seed).faults(faults.clone()).build();
    let mut workload = Workload::new(server.client(), arguments.seed);
    writeln!(out, "1. THE CLUSTER")?;
    let started = Instant::now();
    workload.fill(arguments.pods).await?;
    writeln!(
        out,
        "   {} pods of {} applications in {} namespaces on {} nodes, made in {:.1} s.\n",
        arguments.pods,
        workload::APPLICATIONS.len(),
        workload::namespaces().len(),
        workload::NODES,
        started.elapsed().as_secs_f64()
    )?;

    writeln!(out, "2. THE INFORMER")?;
    writeln!(
        out,
        "   It asks the server once for all pods, keeps them in memory, and from then on is told of changes"
    )?;
    writeln!(
        out,
        "   over one open connection. Whoever in the program wants to know about pods reads that memory."
    )?;
    let narrator = Narrator::new(out.is_terminal());
    let errors = narrator.clone();
    let reflector = ReflectorConfig {
        on_error: Some(Arc::new(move |error| errors.trouble(error))),
        ..ReflectorConfig::default()
    };
    let defaults = InformerOptions::default().reflector(reflector);
    let factory = SharedInformerFactory::with_defaults(server.client(), defaults);
    let pods = factory.informer::<Pod>();
    let node: FieldPath = ".spec.nodeName".parse()?;
    pods.add_index_by("node", IndexBy::field(node))?;
    let handler = pods.add_handler(narrator.clone());
    let started = Instant::now();
    factory.start();
    factory.wait_for_sync().await?;
    handler.wait_for_sync().await;
    let first = Requests::of(&server);
    writeln!(
        out,
        "   Synced: {} pods after {} ms, with {}.\n",
        pods.lister().count(),
        started.elapsed().as_millis(),
        words::counted(first.lists + first.watches, "request")
    )?;

    writeln!(out, "3. PODS COME AND GO")?;
    writeln!(
        out,
        "   For {} seconds pods are created, start, move on and go. A few of the changes that were heard:",
        arguments.seconds
    )?;
    narrator.start();
    // The connection breaks half-way, as connections do. Not before: a fault in the first list would be another story.
    let half = Duration::from_secs(arguments.seconds / 2);
    let opened = faults.clone();
    let breaks = async move {
        tokio::time::sleep(half).await;
        opened.inject(Rule::on(Fault::CutFrame).verb(Verb::Watch).resource("pods").times(1));
        std::future::pending::<()>().await;
    };
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    tokio::select! {
        result = workload.churn(until) => result?,
        () = breaks => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    wait_until_current(&pods, server.revision()).await;

    ask_questions(&mut out, &pods)?;
    summarize(&mut out, &server, &first, &pods, &narrator).await?;
    handler.close().await;
    factory.shutdown().await?;
    Ok(())
}

/// What the informer has asked of the server.
struct Requests {
    lists: u64,
    streamed: bool,
    watches: u64,
}

impl Requests {
    fn of(server: &ApiServer) -> Self {
        let pods = server.stats().resource("pods");
        Self {
            lists: pods.lists + pods.streaming_lists,
            streamed: pods.streaming_lists > 0,
            watches: pods.watches,
        }
    }
}

/// Until the copy has what the server has, or five seconds.
async fn wait_until_current(pods: &SharedInformer<Pod>, revision: u64) {
    let scope = kube_informer::delta_fifo::Scope::CLUSTER;
    let last_change = kube_informer::ResourceVersion::from(revision);
    let current = pods.wait_for_version(&scope, &last_change);
    let _ = tokio::time::timeout(Duration::from_secs(5), current).await;
}

fn ask_questions(out: &mut impl Write, pods: &SharedInformer<Pod>) -> anyhow::Result<()> {
    writeln!(out, "\n4. QUESTIONS, ANSWERED FROM MEMORY")?;
    let lister = pods.lister();
    let mut answer = |question: &str, ask: &dyn Fn() -> anyhow::Result<usize>| -> anyhow::Result<()> {
        let started = Instant::now();
        let count = ask()?;
        let took = started.elapsed();
        writeln!(out, "   {question:<48} {count:>6} pods   {:>7.1} µs", took.as_secs_f64() * 1e6)?;
        Ok(())
    };
    answer("Which pods run on node-7? (an index)", &|| Ok(lister.by_index("node", "node-7")?.count()))?;
    answer("Which pods are in the namespace shop? (a range)", &|| Ok(lister.namespace("shop").count()))?;
    answer("Which pods match app in (cart,search)? (labels)", &|| {
        Ok(lister.matching("app in (cart,search)")?.count())
    })?;
    Ok(())
}

async fn summarize(
    out: &mut impl Write,
    server: &ApiServer,
    first: &Requests,
    pods: &SharedInformer<Pod>,
    narrator: &Narrator,
) -> anyhow::Result<()> {
    let requests = Requests::of(server);
    let stats = pods.stats();
    let truth: Api<Pod> = Api::all(server.client());
    let truth = truth.list(&ListParams::default()).await?;
    let snapshot = pods.snapshot();
    let same = truth.items.iter().filter(|pod| {
        let key = format!(
            "{}/{}",
            pod.metadata.namespace.as_deref().unwrap_or_default(),
            pod.metadata.name.as_deref().unwrap_or_default()
        );
        let copy = snapshot.get(&key);
        copy.is_some_and(|copy| {
            pod.metadata.resource_version.as_deref() == Some(copy.version().to_string().as_str())
        })
    });
    let same = same.count();
    let equal = if same == truth.items.len() && same == snapshot.len() { "yes" } else { "NO" };
    writeln!(out, "\nSUMMARY")?;
    writeln!(out, "   objects    {} pods in memory; equal to the server's: {equal}", snapshot.len())?;
    let (added, updated, deleted) = narrator.heard();
    writeln!(
        out,
        "   events     the handler was called for {added} added, {updated} updated, {deleted} deleted"
    )?;
    writeln!(
        out,
        "   requests   {} LIST{}, {} WATCH: {}",
        requests.lists,
        if requests.streamed { " (streamed)" } else { "" },
        requests.watches,
        words::connection(
            narrator.troubles(),
            requests.lists - first.lists,
            requests.watches - first.watches.min(requests.watches)
        )
    )?;
    let kilobytes = |bytes: usize| bytes as f64 / 1024.0;
    writeln!(
        out,
        "   memory     {:.1} MB for the pods ({:.1} KB each){}",
        kilobytes(stats.store.bytes) / 1024.0,
        kilobytes(stats.store.bytes) / snapshot.len().max(1) as f64,
        resident_megabytes()
            .map(|all| format!("; {all:.0} MB for all of this process, server included"))
            .unwrap_or_default()
    )?;
    anyhow::ensure!(
        equal == "yes",
        "the copy is not what the server has: {same} of {} pods",
        truth.items.len()
    );
    Ok(())
}

/// What the kernel says this process holds; only Linux says so.
fn resident_megabytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<f64>().ok()? / 1024.0)
}
