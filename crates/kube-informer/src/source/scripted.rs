//! A source that plays a script, for tests.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use futures_core::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Answer, ListRequest, ListWatch, SourceError, WatchRequest};

/// A source that answers each request with the next line of its script, and remembers what it was asked.
///
/// A request that comes when the script is at its end waits for ever, as a silent server would; more can be added at any time.
#[derive(Clone, Default)]
pub struct ScriptedSource {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    lists: Mutex<VecDeque<Script>>,
    watches: Mutex<VecDeque<Script>>,
    more: tokio::sync::Notify,
    asked: Mutex<Vec<String>>,
}

/// One scripted answer.
pub enum Script {
    /// A failure.
    Fail(SourceError),
    /// Raw text; a watch ends after it.
    Text(String),
    /// Raw text; a watch stays open after it, silent.
    TextThenSilence(String),
    /// Raw text; a watch stays open for this long after it.
    TextFor(String, std::time::Duration),
    /// A watch that is fed by hand and ends when the sender is dropped.
    Live(mpsc::UnboundedReceiver<String>),
}

impl ScriptedSource {
    /// A source without a script.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an answer for a list.
    pub fn on_list(&self, script: Script) -> &Self {
        lock(&self.inner.lists).push_back(script);
        self.inner.more.notify_waiters();
        self
    }

    /// Adds an answer for a watch.
    pub fn on_watch(&self, script: Script) -> &Self {
        lock(&self.inner.watches).push_back(script);
        self.inner.more.notify_waiters();
        self
    }

    /// Adds a list of these objects, each with its version; names may have a namespace.
    pub fn lists(&self, version: u64, objects: &[(&str, u64)]) -> &Self {
        let items: Vec<Value> = objects.iter().map(|(key, version)| object(key, *version)).collect();
        let list = json!({"metadata": {"resourceVersion": version.to_string()}, "items": items});
        self.on_list(Script::Text(list.to_string()))
    }

    /// Adds a watch that is fed through the sender: one line of text each, see [`event`](Self::event).
    pub fn live_watch(&self) -> mpsc::UnboundedSender<String> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.on_watch(Script::Live(receiver));
        sender
    }

    /// The text of one event about an object.
    pub fn event(kind: &str, key: &str, version: u64) -> String {
        let mut line = json!({"type": kind, "object": object(key, version)}).to_string();
        line.push('\n');
        line
    }

    /// All requests so far, as text.
    pub fn asked(&self) -> Vec<String> {
        lock(&self.inner.asked).clone()
    }

    async fn answer(&self, list: bool, asked: String) -> Result<Answer, SourceError> {
        lock(&self.inner.asked).push(asked);
        let scripts = if list { &self.inner.lists } else { &self.inner.watches };
        let script = loop {
            let more = self.inner.more.notified();
            if let Some(script) = lock(scripts).pop_front() {
                break script;
            }
            more.await;
        };
        match script {
            Script::Fail(error) => Err(error),
            Script::Text(text) => Ok(Answer::json(text)),
            Script::TextThenSilence(text) => {
                let answer = Answer::json(text);
                Ok(Answer { body: answer.body.chain(futures_util::stream::pending()).boxed(), ..answer })
            }
            Script::TextFor(text, time) => {
                let answer = Answer::json(text);
                let end = tokio::time::Instant::now() + time;
                let body = answer.body.chain(futures_util::stream::pending());
                let body = body.take_until(tokio::time::sleep_until(end)).boxed();
                Ok(Answer { body, ..answer })
            }
            Script::Live(receiver) => {
                let body = futures_util::stream::unfold(receiver, |mut receiver| async move {
                    let text = receiver.recv().await?;
                    Some((Ok(text.into()), receiver))
                });
                Ok(Answer { wire: crate::object::Wire::Json, body: body.boxed() })
            }
        }
    }
}

impl ListWatch for ScriptedSource {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        let mut asked = String::from("list");
        if let Some(version) = &request.version {
            write!(asked, " from {version}").expect("writing to a string");
        }
        if let Some(limit) = request.limit {
            write!(asked, " limit {limit}").expect("writing to a string");
        }
        if let Some(token) = &request.continue_token {
            write!(asked, " continue {token}").expect("writing to a string");
        }
        self.answer(true, asked).boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        let mut asked = String::from(if request.initial_events { "stream" } else { "watch" });
        if let Some(version) = &request.version {
            write!(asked, " from {version}").expect("writing to a string");
        }
        self.answer(false, asked).boxed()
    }
}

impl std::fmt::Debug for ScriptedSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptedSource")
    }
}

fn object(key: &str, version: u64) -> Value {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    json!({"metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "resourceVersion": version.to_string()}})
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
