//! Which requests reached kube-apiserver, as its audit log says.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::notes::Notes;

/// Every request is noted as it comes, whatever becomes of it.
const POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
    "rules": [{"level": "Metadata", "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"]}]}"#;

/// The user name of the writer in the audit log. It differs from those of the participants.
const WRITER: &str = "marker";

const DAY: Duration = Duration::from_hours(24);

/// The audit log of a server.
pub(crate) struct Audit {
    policy: PathBuf,
    log: PathBuf,
}

/// What a participant asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A list, or a watch that begins with one.
    List,
    /// A further page of a list.
    Page,
    /// An exact read of at most one object: whether the server still has the history that a cache was read from.
    Check,
    Watch,
    Other,
}

/// A request of a participant.
#[derive(Debug)]
pub(crate) struct Noted {
    pub(crate) asked: Asked,
    pub(crate) resource: String,
    /// The time of the day, in UTC, at which the server received it.
    at: Duration,
}

impl Noted {
    /// How long after a moment of the last day the server received it.
    pub(crate) fn after(&self, moment: SystemTime) -> Duration {
        let moment = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        let moment = Duration::new(moment.as_secs() % DAY.as_secs(), moment.subsec_nanos());
        self.at.checked_sub(moment).unwrap_or(self.at + DAY - moment.min(DAY))
    }
}

impl Audit {
    pub(crate) fn new(notes: &Notes) -> anyhow::Result<Self> {
        let audit = Self { policy: notes.path("audit-policy"), log: notes.path("audit.log") };
        fs::write(&audit.policy, POLICY)?;
        Ok(audit)
    }

    /// The flags that make kube-apiserver write the log.
    pub(crate) fn flags(&self) -> [String; 2] {
        [
            format!("--audit-policy-file={}", self.policy.display()),
            format!("--audit-log-path={}", self.log.display()),
        ]
    }

    /// The place in the log where the next request will be noted.
    pub(crate) fn place(&self) -> anyhow::Result<usize> {
        Ok(fs::read(&self.log)?.len())
    }

    /// The requests of participants from a place of the log on.
    pub(crate) fn since(&self, place: usize) -> anyhow::Result<Vec<Noted>> {
        let bytes = fs::read(&self.log)?;
        Ok(bytes[place..].split(|byte| *byte == b'\n').filter_map(read).collect())
    }
}

/// How many requests asked for this.
pub(crate) fn count(requests: &[Noted], asked: Asked) -> f64 {
    requests.iter().filter(|request| request.asked == asked).count() as f64
}

fn read(line: &[u8]) -> Option<Noted> {
    // The last line may be half written, and so may that of a server that was killed.
    let request: Value = serde_json::from_slice(line).ok()?;
    // The server asks itself, too, and the control plane's script asks whether the server is ready.
    let (uri, verb) = (request["requestURI"].as_str()?, request["verb"].as_str()?);
    if request["user"]["username"] != "admin" || request["userAgent"] == WRITER {
        return None;
    }
    if !uri.starts_with("/api") || uri.ends_with("/namespaces/default") && verb == "get" {
        return None;
    }
    let asked = match verb {
        "list" if uri.contains("continue=") => Asked::Page,
        "list" if uri.contains("resourceVersionMatch=Exact") && uri.contains("limit=1&") => Asked::Check,
        "list" => Asked::List,
        "watch" if uri.contains("sendInitialEvents=true") => Asked::List,
        "watch" => Asked::Watch,
        _ => Asked::Other,
    };
    let resource = request["objectRef"]["resource"].as_str().unwrap_or_default().to_owned();
    Some(Noted { asked, resource, at: time_of_day(request["requestReceivedTimestamp"].as_str()?)? })
}

/// Reads the time of `2026-01-31T23:59:59.123456Z`.
fn time_of_day(text: &str) -> Option<Duration> {
    let (_, time) = text.trim_end_matches('Z').split_once('T')?;
    let mut parts = time.splitn(3, ':');
    let (hours, minutes) = (parts.next()?.parse::<u64>().ok()?, parts.next()?.parse::<u64>().ok()?);
    let seconds = parts.next()?.parse::<f64>().ok()?;
    Some(Duration::from_secs(hours * 3600 + minutes * 60) + Duration::try_from_secs_f64(seconds).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(verb: &str, uri: &str, agent: &str) -> String {
        format!(
            r#"{{"verb":"{verb}","requestURI":"{uri}","userAgent":"{agent}","user":{{"username":"admin"}},
            "objectRef":{{"resource":"pods"}},"requestReceivedTimestamp":"2026-01-31T23:59:59.500000Z"}}"#
        )
    }

    #[test]
    fn requests_are_told_apart() {
        let pods = "/api/v1/pods?";
        let exact = "limit=1&resourceVersion=7&resourceVersionMatch=Exact&fieldSelector=metadata.name%3Da";
        for (verb, query, asked) in [
            ("list", "limit=500", Asked::List),
            ("list", "limit=500&continue=abc", Asked::Page),
            ("list", exact, Asked::Check),
            ("watch", "watch=true&sendInitialEvents=true", Asked::List),
            ("watch", "watch=true&resourceVersion=7", Asked::Watch),
            ("get", "", Asked::Other),
        ] {
            let noted = read(line(verb, &format!("{pods}{query}"), "ours").as_bytes()).unwrap();
            assert_eq!((noted.asked, &*noted.resource), (asked, "pods"), "{query}");
        }
        for (verb, uri, agent) in [
            ("patch", "/api/v1/namespaces/default/pods/touched", WRITER),
            ("get", "/api/v1/namespaces/default", "probe"),
            ("get", "/readyz", "probe"),
        ] {
            assert!(read(line(verb, uri, agent).as_bytes()).is_none(), "{uri}");
        }
        assert!(read(b"{\"verb\":\"li").is_none());
    }

    #[test]
    fn times_are_compared_across_midnight() {
        let noted = read(line("get", "/api/v1/pods", "ours").as_bytes()).unwrap();
        let day = UNIX_EPOCH + DAY * 20_000;
        assert_eq!(noted.after(day + Duration::from_secs(86_399)), Duration::from_millis(500));
        let early = Noted { at: Duration::from_secs(1), ..noted };
        assert_eq!(early.after(day + Duration::from_secs(86_399)), Duration::from_secs(2));
    }
}
