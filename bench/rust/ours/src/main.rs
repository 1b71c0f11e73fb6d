//! kube-informer as a participant of the benchmarks.

mod options;
mod queue;
mod readers;
mod reads;
mod recover;
mod restart;
mod sync;
mod watch;

fn main() -> anyhow::Result<()> {
    child::end_with_runner();
    match std::env::args().nth(1).as_deref() {
        Some("sync") => sync::run(),
        Some("queue") => {
            queue::run();
            Ok(())
        }
        Some("readers") => readers::run(),
        Some("reads") => reads::run(),
        Some("recover") => recover::run(),
        Some("restart") => restart::run(),
        Some("watch") => watch::run(),
        other => {
            anyhow::bail!("usage: bench-ours sync|queue|readers|reads|recover|restart|watch, not {other:?}")
        }
    }
}
