//! Objects as text, both ways.

use std::sync::Arc;

use kube_informer::object::Entry;
use kube_informer::{Event, Kind};
use serde_json::{Value, json};

/// One object of a script: see the [language](super).
#[derive(Debug, Clone)]
pub struct Thing {
    pub key: String,
    pub version: u64,
    uid: usize,
    labels: Vec<(String, String)>,
    broken: bool,
}

impl Thing {
    /// Reads `ns/a'@3{app=web,tier=x}!`.
    pub fn parse(text: &str) -> Self {
        let (text, broken) = text.strip_suffix('!').map_or((text, false), |text| (text, true));
        let (text, labels) = text
            .strip_suffix('}')
            .and_then(|text| text.split_once('{'))
            .map_or((text, ""), |(text, labels)| (text, labels));
        let (key, version) = text.split_once('@').unwrap_or_else(|| panic!("'{text}' is no object"));
        let name = key.trim_end_matches('\'');
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or_else(|| panic!("'{pair}' is no label"));
            (key.to_owned(), value.to_owned())
        };
        Self {
            key: name.to_owned(),
            version: version.parse().unwrap_or_else(|_| panic!("'{version}' is no version")),
            uid: key.len() - name.len(),
            labels: labels.split(',').filter(|label| !label.is_empty()).map(pair).collect(),
            broken,
        }
    }

    pub fn json(&self) -> Value {
        let (namespace, name) = self.key.split_once('/').unwrap_or(("", &self.key));
        let labels: serde_json::Map<_, _> =
            self.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if name != "!" {
            metadata["name"] = json!(name);
            metadata["uid"] = json!(format!("uid-{name}{}", "'".repeat(self.uid)));
        }
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        if self.broken {
            metadata["labels"] = json!(["labels are no list"]);
        } else if !labels.is_empty() {
            metadata["labels"] = labels.into();
        }
        json!({"metadata": metadata, "spec": {"version": self.version}})
    }

    pub fn entry(&self) -> Arc<Entry> {
        let text = self.json().to_string();
        Arc::new(Entry::from_json(&kind(), text.as_bytes()).unwrap())
    }
}

/// The kind of all things.
pub fn kind() -> Arc<Kind> {
    Arc::new(Kind::new("example.org/v1", "Thing", "things", true))
}

/// `a'@3{app=web}`.
pub fn show(entry: &Entry) -> String {
    let labels: Vec<String> = entry.labels().map(|(key, value)| format!("{key}={value}")).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    format!("{}{labels}", show_version(entry))
}

pub fn show_event<K>(event: &Event<K>) -> String {
    match event {
        Event::Added { object, initial } => {
            format!("add {}{}", show(object), if *initial { " (initial)" } else { "" })
        }
        Event::Updated { old, new } if old.is_same(new) => format!("resync {}", show(new)),
        Event::Updated { old, new } if old.uid() == new.uid() => {
            let (old, new) = (show(old), show(new));
            format!("update {old}→{}", new.split_once('@').map_or(&*new, |(_, version)| version))
        }
        Event::Updated { old, new } => format!("update {} → {}: another uid!", show(old), show(new)),
        Event::Deleted(gone) => {
            format!(
                "delete {}{}",
                show(&gone.object),
                if gone.final_state_unknown { " (missed)" } else { "" }
            )
        }
    }
}

fn show_version(entry: &Entry) -> String {
    let primes = "'".repeat(entry.uid().to_string().matches('\'').count());
    format!("{}{primes}@{}", entry.key(), entry.version())
}
