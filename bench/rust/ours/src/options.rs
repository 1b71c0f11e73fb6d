//! What the informers of a run are asked to be, as the arguments say.

use anyhow::{Context, bail};
use child::{argument, flag};
use kube_client::Config;
use kube_informer::object::{View, Wire};
use kube_informer::source::client_for_informers;
use kube_informer::{InformerOptions, SharedInformer, SharedInformerFactory, Storage};

/// A factory for the server of `KUBECONFIG`, with `--storage packed|raw|decoded`, `--gzip` and `--json`.
pub(crate) async fn factory() -> anyhow::Result<SharedInformerFactory> {
    let config = Config::infer().await.context("no KUBECONFIG")?;
    let mut options = InformerOptions::default();
    match argument("--storage").as_deref() {
        None => {}
        Some("packed") => options = options.storage(Storage::Packed),
        Some("raw") => options = options.storage(Storage::Raw),
        Some("decoded") => options = options.storage(Storage::Decoded),
        Some(other) => bail!("unknown storage {other}"),
    }
    if flag("--gzip") {
        options = options.gzip();
    }
    if flag("--json") {
        options = options.json();
    }
    Ok(SharedInformerFactory::with_defaults(client_for_informers(config)?, options))
}

/// Makes sure that a built-in kind came as protobuf, or as JSON if that was asked for.
pub(crate) fn check_wire<K: View>(informer: &SharedInformer<K>) -> anyhow::Result<()> {
    let expected = if flag("--json") { Wire::Json } else { Wire::Protobuf };
    for status in informer.status() {
        anyhow::ensure!(status.wire == Some(expected), "the answer is {:?}, not {expected:?}", status.wire);
    }
    Ok(())
}
