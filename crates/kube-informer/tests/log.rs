//! What an operator reads in the log. One test alone: a subscriber of one thread must not meet those of others.

mod common;

use std::time::Duration;

use common::weather;
use kube_informer_apiserver::Verb;
use kube_informer_apiserver::faults::{Fault, Rule};

/// Keeps the lines of the log at `info` and above.
#[derive(Clone, Default)]
struct Lines(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO && metadata.target().starts_with("kube_informer::")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut message = Message(event.metadata().level().to_string());
        event.record(&mut message);
        self.0.lock().unwrap().push(format!("{} {}", event.metadata().level(), message.0));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn failures_are_logged_at_growing_intervals_and_so_is_recovery() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    for (fault, said) in [
        (Fault::Unauthorized, "HTTP 401"),
        (Fault::Forbidden, "HTTP 403"),
        (Fault::Refuse, "cannot be reached"),
        (Fault::Gone, "HTTP 410"),
    ] {
        lines.0.lock().unwrap().clear();
        let (_server, faults, _factory, _informer) = weather().await;
        for verb in [Verb::Watch, Verb::List] {
            faults.inject(Rule::on(fault).verb(verb));
        }
        faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
        tokio::time::sleep(Duration::from_mins(10)).await;
        faults.clear();
        tokio::time::sleep(Duration::from_mins(2)).await;
        let lines = lines.0.lock().unwrap().clone();
        assert_eq!(lines[0], "INFO v1 ConfigMap (all namespaces) was read: 1 objects");
        let (recovered, failed) = lines.split_last().unwrap();
        assert!(recovered.starts_with("INFO ") && recovered.contains("works again"), "{fault:?}: {lines:#?}");
        let about: Vec<&String> = failed.iter().filter(|line| line.contains(said)).collect();
        assert!((3..=10).contains(&about.len()), "{fault:?}: {lines:#?}");
        assert!(
            about.iter().all(|line| line.starts_with("WARN ") && line.contains("; retrying in ")),
            "{lines:#?}"
        );
    }
}
