//! kube-rs as a participant of the benchmarks.

mod readers;
mod sync;
mod watch;

fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("sync") => sync::run(),
        Some("readers") => readers::run(),
        Some("watch") => watch::run(),
        other => anyhow::bail!("usage: bench-kube-rs sync|readers|watch, not {other:?}"),
    }
}
