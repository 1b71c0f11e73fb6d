//! Plays a script.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_informer::handler::EventHandler;
use kube_informer::{
    Deleted, Event, HandlerOptions, InformerOptions, Kind, Object, Registration, SharedInformer,
};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::notation::{kind, show, show_event};
use super::server::Server;

struct Play {
    server: Server,
    informer: SharedInformer<Value>,
    handlers: BTreeMap<String, (Registration, Arc<Semaphore>)>,
    heard: Arc<Mutex<String>>,
}

pub async fn play(options: InformerOptions, script: &str) -> String {
    let server = Server::new();
    let informer = SharedInformer::over(Kind::clone(&kind()), server.wire(), options);
    let mut play = Play { server, informer, handlers: BTreeMap::new(), heard: Arc::default() };
    play.join("main", &[]);
    play.informer.start();
    for step in script.split('·').map(str::trim).filter(|step| !step.is_empty()) {
        let words: Vec<&str> = step.split_whitespace().collect();
        play.step(words[0], &words[1..]).await;
        settle().await;
        play.informer.snapshot().check().unwrap();
    }
    drop(play.handlers);
    std::mem::take(&mut *play.heard.lock().unwrap())
}

/// Lets everything that can happen without time passing happen.
pub async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

impl Play {
    async fn step(&mut self, verb: &str, words: &[&str]) {
        let (verb, at) =
            verb.split_once('@').map_or((verb, None), |(verb, at)| (verb, Some(at.parse().unwrap())));
        match verb {
            "list" => self.server.list(at, words).await,
            "stream" => self.server.stream(at, words, true).await,
            "stream…" => self.server.stream(at, words, false).await,
            "watch" => self.server.watch(words).await,
            "end" => self.server.end(false),
            "cut" => self.server.end(true),
            "expire" => self.server.error(410),
            "error" => self.server.error(words[0].parse().unwrap()),
            "refuse" => {
                let (code, wait) =
                    words[1].split_once('/').map_or((words[1], None), |(code, wait)| (code, Some(wait)));
                let wait = wait.map(|wait| wait.parse().unwrap());
                self.server.refuse(words[0] == "list", code.parse().unwrap(), wait).await;
            }
            "wait" => tokio::time::sleep(duration(words[0])).await,
            "join" => self.join(words[0], &words[1..]),
            "release" => self.handlers[words[0]].1.add_permits(1_000_000),
            "leave" => drop(self.handlers.remove(words[0])),
            "close" => {
                let (registration, gate) = self.handlers.remove(words[0]).expect("a handler");
                gate.add_permits(1_000_000);
                registration.close().await;
            }
            "start" => self.informer.start(),
            "stop" => self.informer.stop().await,
            "store" => self.print_store(),
            "asked" => {
                for line in self.server.take_asked() {
                    self.print(&format!("> {line}"));
                }
            }
            "status" => self.print_status(),
            "handlers" => self.print_handlers(),
            _ => panic!("'{verb}' is no step"),
        }
    }

    fn join(&mut self, name: &str, words: &[&str]) {
        let mut options = HandlerOptions::default().name(name);
        let (mut slow, mut panics) = (false, false);
        for word in words {
            options = match word.split_once('=') {
                Some(("resync", period)) => options.resync_every(duration(period)),
                Some(("buffer", len)) => options.buffer_len(len.parse().unwrap()),
                Some(("filter", label)) => {
                    let (key, value) = label.split_once('=').expect("filter=key=value");
                    let (key, value) = (key.to_owned(), value.to_owned());
                    options.filter(move |object| object.label(&key) == Some(&value))
                }
                _ => {
                    slow |= *word == "slow";
                    panics |= *word == "panic";
                    options
                }
            };
        }
        let gate = Arc::new(Semaphore::new(if slow { 0 } else { 1_000_000_000 }));
        let prefix = if name == "main" { String::new() } else { format!("{name}: ") };
        let heard = Arc::clone(&self.heard);
        let recorder = Recorder { prefix, heard, gate: Arc::clone(&gate), panics };
        let registration = self.informer.add_handler_with(options, recorder);
        self.handlers.insert(name.to_owned(), (registration, gate));
    }

    fn print_store(&self) {
        let snapshot = self.informer.snapshot();
        let objects = snapshot.iter().map(|entry| {
            let stale = if snapshot.is_stale(entry.key()) { " (stale)" } else { "" };
            format!(" {}{stale}", show(entry))
        });
        let version = snapshot.version().map_or("no version".into(), |version| format!("@{version}"));
        let aside = snapshot.set_aside().map(|aside| match &aside.key {
            Some(key) => format!(" (aside {key})"),
            None => " (aside ?)".into(),
        });
        let text: String = objects.chain(aside).collect();
        self.print(&format!("store {version}:{text}"));
    }

    fn print_status(&self) {
        for status in self.informer.status() {
            let error = status.last_error.as_deref().unwrap_or("no error");
            let version = status.version.map_or("no version".into(), |version| format!("@{version}"));
            self.print(&format!("{:?} {:?} {version}, {error}", status.phase, status.mode));
        }
    }

    fn print_handlers(&self) {
        for (name, (registration, _)) in &self.handlers {
            let stats = registration.stats();
            let synced = if stats.has_synced { "synced" } else { "not synced" };
            let mut line = format!("{name} {synced}, {} heard, {} waiting", stats.delivered, stats.depth);
            for (what, count) in [("merged", stats.merged), ("panics", stats.panics)] {
                if count > 0 {
                    write!(line, ", {count} {what}").unwrap();
                }
            }
            self.print(&line);
        }
    }

    fn print(&self, line: &str) {
        writeln!(self.heard.lock().unwrap(), "{line}").unwrap();
    }
}

/// Writes down what it hears; a slow one waits before it returns, until it is released.
struct Recorder {
    prefix: String,
    heard: Arc<Mutex<String>>,
    gate: Arc<Semaphore>,
    panics: bool,
}

impl Recorder {
    async fn hear(&self, event: Event<Value>) {
        writeln!(self.heard.lock().unwrap(), "{}{}", self.prefix, show_event(&event)).unwrap();
        self.gate.acquire().await.unwrap().forget();
    }
}

impl EventHandler<Value> for Recorder {
    async fn on_add(&mut self, object: Object<Value>, initial: bool) {
        self.hear(Event::Added { object, initial }).await;
        assert!(!self.panics, "a handler that was asked to panic");
    }

    async fn on_update(&mut self, old: Object<Value>, new: Object<Value>) {
        self.hear(Event::Updated { old, new }).await;
    }

    async fn on_delete(&mut self, deleted: Deleted<Value>) {
        self.hear(Event::Deleted(deleted)).await;
    }
}

fn duration(text: &str) -> Duration {
    let number = |unit: &str| text.strip_suffix(unit).and_then(|number| number.parse().ok());
    let millis = number("ms").map(Duration::from_millis);
    let mins = || number("m").map(Duration::from_mins);
    let hours = || number("h").map(Duration::from_hours);
    millis.or_else(|| number("s").map(Duration::from_secs)).or_else(mins).or_else(hours).expect("a duration")
}
