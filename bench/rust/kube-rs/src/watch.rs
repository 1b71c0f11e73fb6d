//! Follows the changes of pods: notes when each is heard, or counts them.

use std::io::Write;
use std::pin::pin;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use child::{argument, number, say};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector;
use kube::runtime::reflector::store;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};

#[tokio::main]
pub(crate) async fn run() -> anyhow::Result<()> {
    let api = Api::<Pod>::all(Client::try_default().await.context("no KUBECONFIG")?);
    let (_store, writer) = store::<Pod>();
    let mut times = argument("--times").map(std::fs::File::create).transpose()?.map(std::io::BufWriter::new);
    let expected = number("--events", 0);
    let mut events = pin!(reflector(writer, crate::sync::stream(api)));
    let mut heard = 0;
    while heard < expected {
        match events.next().await.context("the stream ended")?? {
            // A thread of its own: whoever waits for the runner still has to poll the stream.
            Event::InitDone => drop(std::thread::spawn(|| say("synced"))),
            Event::Apply(pod) => {
                if let Some(times) = &mut times {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
                    writeln!(times, "{} {now}", pod.resource_version().unwrap_or_default())?;
                }
                heard += 1;
            }
            Event::Init | Event::InitApply(_) | Event::Delete(_) => {}
        }
    }
    drop(times);
    say(&format!("heard {heard}"));
    Ok(())
}
