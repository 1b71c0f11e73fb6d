//! The server of a scenario: a scripted source that notes when it was asked what.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::StreamExt;
use kube_informer::source::{
    Answer, ListRequest, ListWatch, Script, ScriptedSource, SourceError, WatchRequest,
};
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::notation::Thing;

#[derive(Clone)]
pub struct Server {
    source: ScriptedSource,
    asked: Arc<Mutex<Asked>>,
    open: Option<UnboundedSender<String>>,
}

#[derive(Debug)]
struct Asked {
    since: Instant,
    lines: Vec<String>,
    answered: usize,
}

/// What the library talks to.
pub struct Wire(Server);

/// A line that stands for a connection that breaks.
const BREAK: &str = "break";

impl Server {
    pub fn new() -> Self {
        let asked = Asked { since: Instant::now(), lines: Vec::new(), answered: 0 };
        Self { source: ScriptedSource::new(), asked: Arc::new(Mutex::new(asked)), open: None }
    }

    pub fn wire(&self) -> Wire {
        Wire(self.clone())
    }

    /// Answers a list, once it is asked for.
    pub async fn list(&mut self, at: Option<u64>, words: &[&str]) {
        let more = words.last() == Some(&"…next");
        let things = things(&words[..words.len() - usize::from(more)]);
        let mut metadata = json!({"resourceVersion": newest(at, &things).to_string()});
        if more {
            metadata["continue"] = json!(format!("page-{}", self.asked().answered));
        }
        let items: Vec<_> = things.iter().map(Thing::json).collect();
        let text = json!({"metadata": metadata, "items": items}).to_string();
        self.answer(|source| source.on_list(Script::Text(text))).await;
    }

    /// Answers a streaming list, once it is asked for; with its end bookmark if it is to have one.
    pub async fn stream(&mut self, at: Option<u64>, words: &[&str], ends: bool) {
        self.open().await;
        let things = things(words);
        for thing in &things {
            self.say(&json!({"type": "ADDED", "object": thing.json()}));
        }
        if ends {
            self.bookmark(newest(at, &things), true);
        }
    }

    /// Says events on the open watch, or on a new one once it is asked for.
    pub async fn watch(&mut self, words: &[&str]) {
        if self.open.as_ref().is_none_or(UnboundedSender::is_closed) {
            self.open().await;
        }
        for word in words {
            let (sign, thing) = word.split_at(1);
            let event = match sign {
                "+" => "ADDED",
                "~" => "MODIFIED",
                "-" => "DELETED",
                "*" => {
                    let (version, end) =
                        thing.strip_suffix('!').map_or((thing, false), |version| (version, true));
                    self.bookmark(version.parse().unwrap(), end);
                    continue;
                }
                "?" => {
                    self.say(&json!({"type": "SURPRISE", "object": {}}));
                    continue;
                }
                _ => panic!("'{word}' is no event"),
            };
            self.say(&json!({"type": event, "object": Thing::parse(thing).json()}));
        }
    }

    /// Ends the open watch, in the ordinary way or with a break.
    pub fn end(&mut self, broken: bool) {
        let open = self.open.take().expect("an open watch");
        if broken {
            let _ = open.send(BREAK.to_owned());
        }
    }

    /// Ends the open watch with an error event.
    pub fn error(&mut self, code: u16) {
        self.say(&json!({"type": "ERROR", "object": status(code)}));
        self.open = None;
    }

    /// Refuses the next list or watch.
    pub async fn refuse(&mut self, list: bool, code: u16, retry_after: Option<u64>) {
        let wait = retry_after.map(Duration::from_secs);
        let error = SourceError::from_response(code, status(code).to_string().as_bytes(), wait);
        let answer = Script::Fail(error);
        self.answer(|source| if list { source.on_list(answer) } else { source.on_watch(answer) }).await;
    }

    /// The requests since the last time, each with its time.
    pub fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked().lines)
    }

    async fn open(&mut self) {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        self.answer(|source| source.on_watch(Script::Live(receiver))).await;
        self.open = Some(sender);
    }

    fn bookmark(&self, version: u64, end: bool) {
        let annotations = if end { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
        let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
        self.say(&json!({"type": "BOOKMARK", "object": {"metadata": metadata}}));
    }

    fn say(&self, event: &serde_json::Value) {
        let open = self.open.as_ref().expect("an open watch");
        // If nobody listens any more, that is for the output to show.
        let _ = open.send(format!("{event}\n"));
    }

    /// Puts an answer into the script and waits until it was taken.
    async fn answer(&self, put: impl FnOnce(&ScriptedSource) -> &ScriptedSource) {
        let before = self.asked().answered;
        put(&self.source);
        for _ in 0..100_000 {
            super::play::settle().await;
            if self.asked().answered > before {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nobody asked; the requests were {:?}", self.asked().lines);
    }

    fn note(&self, text: &str) {
        let mut asked = self.asked();
        let at = asked.since.elapsed().as_secs_f64();
        asked.lines.push(format!("{at:.1}s {text}"));
    }

    fn asked(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.asked.lock().unwrap()
    }
}

impl ListWatch for Wire {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        self.asked_for(self.0.source.list(request))
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        self.asked_for(self.0.source.watch(request))
    }
}

impl Wire {
    fn asked_for<'a>(
        &'a self,
        answer: BoxFuture<'a, Result<Answer, SourceError>>,
    ) -> BoxFuture<'a, Result<Answer, SourceError>> {
        Box::pin(async move {
            // The scripted source writes a request down when it is first polled.
            let mut answer = answer;
            let first = futures_util::poll!(&mut answer);
            self.0.note(self.0.source.asked().last().expect("just asked"));
            let answer = match first {
                std::task::Poll::Ready(answer) => answer,
                std::task::Poll::Pending => answer.await,
            };
            self.0.asked().answered += 1;
            let Answer { wire, body } = answer?;
            let body = body.map(|chunk| match chunk {
                Ok(chunk) if chunk == BREAK => {
                    Err(SourceError::transport("the connection broke", "reset by peer"))
                }
                other => other,
            });
            Ok(Answer { wire, body: body.boxed() })
        })
    }
}

fn things(words: &[&str]) -> Vec<Thing> {
    words.iter().map(|word| Thing::parse(word)).collect()
}

fn newest(at: Option<u64>, things: &[Thing]) -> u64 {
    at.or_else(|| things.iter().map(|thing| thing.version).max())
        .expect("an empty list needs a version: list@1")
}

fn status(code: u16) -> serde_json::Value {
    let (reason, message) = match code {
        403 => ("Forbidden", "you may not"),
        410 => ("Expired", "too old resource version"),
        429 => ("TooManyRequests", "too many requests"),
        _ => ("InternalError", "trouble"),
    };
    json!({"kind": "Status", "reason": reason, "message": message, "code": code})
}
