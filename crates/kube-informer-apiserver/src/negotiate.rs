//! What the client accepts and sends: JSON or protobuf, whole objects or metadata only, plain or compressed.

use http::{HeaderMap, HeaderValue, header};
use kube_wire::protobuf::{MEDIA_TYPE, WATCH_MEDIA_TYPE};
use serde_json::Value;

use crate::core::Call;
use crate::object::{Form, opening};
use crate::status::{Answer, Status};

/// How many clauses of an `Accept` header are looked at.
const MAX_CLAUSES: usize = 64;

/// What is asked for when metadata alone is wanted: one object, or a list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    List,
}

/// How objects stand on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Json,
    Protobuf,
}

impl Coding {
    /// In the order in which the server prefers them.
    const ALL: [Self; 2] = [Self::Json, Self::Protobuf];

    /// The coding that a content type names, whatever its parameters.
    pub(crate) fn of(content_type: &str) -> Option<Self> {
        let media = content_type.split(';').next().unwrap_or("").trim();
        Self::ALL.into_iter().find(|coding| coding.media_type() == media)
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => MEDIA_TYPE,
        }
    }

    /// The content type of an object or a list.
    pub(crate) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(self.media_type())
    }

    /// The content type of a watch.
    pub(crate) fn watch_content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => self.media_type(),
            Self::Protobuf => WATCH_MEDIA_TYPE,
        })
    }
}

/// The form of the objects in the answer.
pub(crate) fn form(call: &Call, shape: Shape) -> Answer<Form> {
    let has_protobuf = call.kind.wire.is_some();
    let chosen =
        choose(accept(&call.headers), |coding, transformation| match (transformation, coding, shape) {
            (None, Coding::Json, _) => Some(whole(call)),
            // Custom kinds have no protobuf form; their metadata has one.
            (None, Coding::Protobuf, _) => has_protobuf.then_some(Form::Protobuf),
            (Some(("PartialObjectMetadata", "meta.k8s.io", "v1")), _, Shape::One)
            | (Some(("PartialObjectMetadataList", "meta.k8s.io", "v1")), _, Shape::List) => {
                Some(match coding {
                    Coding::Json => Form::Metadata,
                    Coding::Protobuf => Form::ProtobufMetadata,
                })
            }
            _ => None,
        });
    chosen.ok_or_else(|| {
        let mut status = Status::not_acceptable(&media_types(true));
        let known = |clause: &Clause<'_>| Coding::ALL.into_iter().any(|coding| clause.names(coding));
        if clauses(accept(&call.headers)).iter().any(known) {
            // The real server has nothing to add where only the parameters do not fit.
            status.details = Value::Null;
        }
        status
    })
}

/// How a `Status` is told: as the client likes it, and as JSON if it likes nothing that there is.
pub(crate) fn status_coding(headers: &HeaderMap) -> Coding {
    choose(accept(headers), |coding, transformation| transformation.is_none().then_some(coding))
        .unwrap_or(Coding::Json)
}

/// The `Accept` header, `""` if there is none.
pub(crate) fn accept(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// Whether the client takes gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let offered = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
    offered.split(',').any(|coding| {
        let mut parts = coding.split(';').map(|part| part.trim());
        parts.next() == Some("gzip") && parts.all(|part| part != "q=0")
    })
}

/// How the request's body is encoded. A body without a content type is JSON; other types are refused, and so is
/// protobuf where what is sent has no such form.
pub(crate) fn body_coding(headers: &HeaderMap, has_protobuf: bool) -> Answer<Coding> {
    match content_type(headers) {
        "" | "application/json" | "*/*" => Ok(Coding::Json),
        MEDIA_TYPE if has_protobuf => Ok(Coding::Protobuf),
        _ => Err(Status::unsupported_media_type(&media_types(has_protobuf))),
    }
}

/// The media type of the request's body, without parameters.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.split(';').next().unwrap_or("").trim()
}

/// What an object is to be turned into: kind, group and version.
type Transformation<'a> = (&'a str, &'a str, &'a str);

/// The first thing that the client accepts and `offer` has: clauses by preference, codings by the server's.
fn choose<T>(accept: &str, offer: impl Fn(Coding, Option<Transformation<'_>>) -> Option<T>) -> Option<T> {
    if accept.trim().is_empty() {
        return offer(Coding::Json, None);
    }
    clauses(accept).iter().find_map(|clause| {
        let mut codings = Coding::ALL.into_iter().filter(|coding| clause.covers(*coding));
        codings.find_map(|coding| offer(coding, clause.transformation()))
    })
}

/// One of the things that a client accepts.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn read(text: &'a str) -> Self {
        let mut parts = text.split(';').map(|part| part.trim());
        let media = parts.next().unwrap_or("");
        // What Java's own client sends for "anything".
        let (kind, subtype) =
            if media == "*" { ("*", "*") } else { media.split_once('/').unwrap_or((media, "")) };
        let parameters: Vec<_> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
            .collect();
        let mut clause = Self { kind, subtype, parameters, quality: 1.0 };
        clause.quality = clause.get("q").and_then(|quality| quality.parse().ok()).unwrap_or(1.0);
        clause
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// Whether the clause means this coding, and no stream that nobody knows.
    fn covers(&self, coding: Coding) -> bool {
        self.names(coding) && matches!(self.get("stream"), None | Some("" | "watch"))
    }

    /// Whether the clause's media type is this coding's or covers it.
    fn names(&self, coding: Coding) -> bool {
        coding.media_type().split_once('/') == Some((self.kind, self.subtype))
            || matches!((self.kind, self.subtype), ("application" | "*", "*"))
    }

    fn transformation(&self) -> Option<Transformation<'a>> {
        let parts = ["as", "g", "v"].map(|name| self.get(name));
        parts.iter().any(Option::is_some).then(|| {
            let [kind, group, version] = parts.map(Option::unwrap_or_default);
            (kind, group, version)
        })
    }

    /// Whether the real server would ask this clause before another, which stood in front of it.
    fn comes_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }
}

/// The clauses of the header by preference: the same order as the real server's, in which what is named comes before
/// what is only covered, whatever its quality, and a quality of 0 comes last but is no refusal.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut sorted: Vec<Clause<'_>> = Vec::new();
    for clause in accept.split(',').take(MAX_CLAUSES).map(Clause::read) {
        let at = sorted.iter().rposition(|other| !clause.comes_before(other)).map_or(0, |last| last + 1);
        sorted.insert(at, clause);
    }
    sorted
}

fn media_types(has_protobuf: bool) -> String {
    let known = Coding::ALL.into_iter().filter(|coding| has_protobuf || *coding == Coding::Json);
    known.map(Coding::media_type).collect::<Vec<_>>().join(", ")
}

fn whole(call: &Call) -> Form {
    let (kind, version) = (&call.kind, &call.info.version);
    if *version == kind.version {
        Form::Whole
    } else {
        Form::Reversioned(opening(&kind.kind, &kind.api_version(version)))
    }
}
