//! Runs the steps of one case on both servers, each with what its own answers gave.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use serde_json::Value;

use crate::diff::{self, Mode};
use crate::normal::Normal;
use crate::script::{Case, Step};
use crate::wire;

/// How often a request that is waited for is sent, and how long apart.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(50);
/// The headers that clients act upon.
const HEADERS: &[&str] =
    &["content-type", "content-encoding", "retry-after", "warning", "vary", "allow", "location"];

/// What became of a step.
#[derive(Debug)]
pub(crate) enum Outcome {
    Same,
    Differs { request: String, differences: Vec<String> },
    Known(String),
    NoLongerKnown(String),
    Failed(String),
}

/// The two servers as one case sees them.
pub(crate) struct Steps {
    ours: Side,
    real: Option<Side>,
    namespace: String,
}

impl Steps {
    pub(crate) fn new(ours: Client, real: Option<Client>, namespace: String) -> Self {
        let side = |client| Side::new(client, &namespace);
        Self { ours: side(ours), real: real.map(side), namespace }
    }

    pub(crate) async fn run(mut self, case: &Case) -> Vec<Outcome> {
        let namespace = Step {
            method: "POST".to_owned(),
            path: "/api/v1/namespaces".to_owned(),
            body: format!("{{\"metadata\":{{\"name\":{:?}}}}}", self.namespace),
            ..Step::default()
        };
        if let Err(why) = self.answers(&namespace).await {
            return vec![Outcome::Failed(why)];
        }
        let mut outcomes = Vec::new();
        for step in &case.steps {
            match self.answers(step).await {
                Ok((ours, real)) if !step.wait => outcomes.push(compare(step, ours, real)),
                Ok(_) => {}
                Err(why) => outcomes.push(Outcome::Failed(why)),
            }
        }
        outcomes
    }

    async fn answers(&mut self, step: &Step) -> Result<(Answer, Option<Answer>), String> {
        let Some(real) = &mut self.real else {
            let ours = self.ours.answer(step).await?;
            return Ok((ours, None));
        };
        let (ours, real) = tokio::join!(self.ours.answer(step), real.answer(step));
        Ok((ours?, Some(real?)))
    }
}

fn compare(step: &Step, ours: Answer, real: Option<Answer>) -> Outcome {
    let Some(real) = real else {
        // A few refusals are errors of the server by tradition.
        let failed = ours.code >= 500 && step.known.is_none() && !matches!(ours.code, 500 | 504);
        return if failed { Outcome::Failed(format!("{} {ours:?}", step.path)) } else { Outcome::Same };
    };
    let mut differences = Vec::new();
    if ours.code != real.code {
        differences.push(format!("code: real {}, ours {}", real.code, ours.code));
    }
    for name in HEADERS {
        let value = |answer: &Answer| {
            answer.headers.get_all(*name).iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(", ")
        };
        let (real, ours) = (value(&real), value(&ours));
        if real != ours {
            differences.push(format!("{name}: real {real}, ours {ours}"));
        }
    }
    let mode = if step.subset { Mode::Subset } else { Mode::Whole };
    let (mut left, mut right) = (real.body, ours.body);
    for path in &step.ignores {
        diff::remove(&mut left, path);
        diff::remove(&mut right, path);
    }
    diff::compare("", &left, &right, mode, &mut differences);
    match (&step.known, differences.is_empty()) {
        (None, true) => Outcome::Same,
        (None, false) => Outcome::Differs { request: format!("{} {}", step.method, step.path), differences },
        (Some(why), false) => Outcome::Known(why.clone()),
        (Some(why), true) => Outcome::NoLongerKnown(why.clone()),
    }
}

/// What a server said, without what must differ.
#[derive(Debug)]
struct Answer {
    code: u16,
    headers: HeaderMap,
    /// Watches are lists of events; text that is not JSON is a string.
    body: Value,
}

/// One server, and what its answers gave so far.
struct Side {
    client: Client,
    normal: Normal,
    /// By name; a longer name is replaced before one that it begins with.
    saved: BTreeMap<String, String>,
}

impl Side {
    fn new(client: Client, namespace: &str) -> Self {
        let saved = BTreeMap::from([("ns".to_owned(), namespace.to_owned())]);
        Self { client, normal: Normal::new(namespace), saved }
    }

    async fn answer(&mut self, step: &Step) -> Result<Answer, String> {
        let mut tries = if step.wait { TRIES } else { 1 };
        loop {
            let (code, headers, body) =
                self.send(step).await.map_err(|error| format!("{} {}: {error}", step.method, step.path))?;
            tries -= 1;
            if tries > 0 && !(200..300).contains(&code) {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let content_type = headers.get("content-type").and_then(|value| value.to_str().ok());
            let raw = wire::read(content_type.unwrap_or_default(), &body);
            for (name, path) in &step.saves {
                let found = diff::at(&raw, path)
                    .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
                self.saved.insert(name.clone(), found.unwrap_or_default());
            }
            return Ok(Answer { code, headers, body: self.normal.normalise(raw) });
        }
    }

    async fn send(
        &self,
        step: &Step,
    ) -> Result<(u16, HeaderMap, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let mut request = Request::builder().method(step.method.as_str()).uri(self.fill(&step.path));
        for (name, value) in &step.headers {
            request = request.header(name, self.fill(value));
        }
        if !step.body.is_empty() && !step.headers.iter().any(|(name, _)| name == "Content-Type") {
            request = request.header("Content-Type", "application/json");
        }
        let content_type = step.headers.iter().find(|(name, _)| name == "Content-Type");
        let body = wire::write(content_type.map(|(_, value)| value.as_str()), &self.fill(&step.body));
        let request = request.body(Body::from(body))?;
        let (parts, body) = self.client.send(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok((parts.status.as_u16(), parts.headers, body))
    }

    fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in self.saved.iter().rev() {
            text = text.replace(&format!("${name}"), value);
        }
        text
    }
}
