//! What an operator reads in the log. One test alone: a subscriber of one thread must not meet those of others.

mod common;

use std::time::Duration;

use common::{weather, weather_of};
use kube_informer::InformerOptions;
use kube_informer::reflector::ReflectorConfig;
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

impl Lines {
    /// Warnings came at growing intervals, and hardly anything was said to work again.
    fn assert_few(&self, case: &str) {
        let lines = self.0.lock().unwrap();
        let warnings = lines.iter().filter(|line| line.starts_with("WARN")).count();
        assert!((3..=20).contains(&warnings), "{case}: {warnings} warnings: {lines:#?}");
        let recoveries = lines.iter().filter(|line| line.contains("works again")).count();
        assert!(recoveries <= 2, "{case}: {lines:#?}");
    }
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
    watches_that_expire_for_hours(&lines).await;
    comparisons_that_fail_for_hours(&lines).await;
}

/// Lists work between the watches, but that is not a recovery.
async fn watches_that_expire_for_hours(lines: &Lines) {
    for fault in [Fault::Gone, Fault::ExpiredEvent, Fault::NotFound, Fault::VersionTooLarge] {
        let config = ReflectorConfig { streaming_lists: false, ..ReflectorConfig::default() };
        let options = InformerOptions::default().reflector(config);
        let (_server, faults, _factory, informer) = weather_of(1, options).await;
        lines.0.lock().unwrap().clear();
        faults.inject(Rule::on(fault).verb(Verb::Watch));
        faults.inject(Rule::on(Fault::CutStream).verb(Verb::Watch).times(1));
        tokio::time::sleep(Duration::from_hours(10)).await;
        lines.assert_few(&format!("{fault:?}"));
        let status = &informer.status()[0];
        let since = status.failing_since.map(|since| since.elapsed()).unwrap_or_default();
        assert!(status.polling && since > Duration::from_hours(9), "{fault:?}: {status:?}");
        faults.clear();
        tokio::time::sleep(Duration::from_mins(2)).await;
        let status = &informer.status()[0];
        assert!(!status.polling && status.failing_since.is_none(), "{fault:?}: {status:?}");
    }
}

/// Watches work between the comparisons, but that is not a recovery.
async fn comparisons_that_fail_for_hours(lines: &Lines) {
    let options = InformerOptions::default().verify_every(Duration::from_mins(1));
    let (_server, faults, _factory, informer) = weather_of(1, options).await;
    lines.0.lock().unwrap().clear();
    faults.inject(Rule::on(Fault::Forbidden).verb(Verb::List));
    tokio::time::sleep(Duration::from_hours(10)).await;
    lines.assert_few("comparisons");
    let status = &informer.status()[0];
    assert!(status.doubted_since.is_some() && status.failing_since.is_none(), "{status:?}");
    assert_eq!(status.last_error_code, Some(403));
    let said = informer.health(Duration::from_mins(2)).unwrap_err().to_string();
    assert!(said.contains("cannot be compared") && said.contains("HTTP 403"), "{said}");
    faults.clear();
    tokio::time::sleep(Duration::from_mins(20)).await;
    let status = &informer.status()[0];
    assert!(status.doubted_since.is_none() && status.last_error.is_none(), "{status:?}");
}
