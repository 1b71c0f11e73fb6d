//! A script whose checks have the answers that a test gives.

use std::sync::{Arc, Mutex};

use futures_core::future::BoxFuture;
use kube_informer::source::{
    Answer, CheckRequest, History, ListRequest, ListWatch, ScriptedSource, SourceError, WatchRequest,
};
use tokio::time::Instant;

type Answers = dyn Fn(usize) -> BoxFuture<'static, Result<History, SourceError>> + Send + Sync;

#[derive(Clone)]
pub struct Checked {
    script: ScriptedSource,
    answers: Arc<Answers>,
    checks: Arc<Mutex<Vec<(Instant, CheckRequest)>>>,
}

impl Checked {
    /// The answers in turn, the last of them for good.
    pub fn new(script: &ScriptedSource, answers: &[History]) -> Self {
        let answers = answers.to_vec();
        Self::by(script, move |number| {
            let answer = answers[number.min(answers.len() - 1)];
            Box::pin(std::future::ready(Ok(answer)))
        })
    }

    /// The answer to each check by its number.
    pub fn by(
        script: &ScriptedSource,
        answers: impl Fn(usize) -> BoxFuture<'static, Result<History, SourceError>> + Send + Sync + 'static,
    ) -> Self {
        Self { script: script.clone(), answers: Arc::new(answers), checks: Arc::default() }
    }

    /// The checks so far, and when each was made.
    pub fn checks(&self) -> Vec<(Instant, CheckRequest)> {
        self.checks.lock().unwrap().clone()
    }
}

impl ListWatch for Checked {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        self.script.list(request)
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<Answer, SourceError>> {
        self.script.watch(request)
    }

    fn check(&self, request: CheckRequest) -> BoxFuture<'_, Result<History, SourceError>> {
        let mut checks = self.checks.lock().unwrap();
        checks.push((Instant::now(), request));
        (self.answers)(checks.len() - 1)
    }
}
