//! Whether the server still has the history that a cache was read from.
//!
//! A kube-apiserver whose etcd was restored from a backup accepts a watch from a version that it has not reached yet, and drops
//! every event up to it: the cluster looks quiet. An exact read at the cache's version tells. The server refuses it as too
//! large while it has not reached that version again. Afterwards the object that the cache saw change last, and the number
//! of objects, differ from what the cache has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube_wire::ResourceVersion;
use serde::Deserialize;
use tokio::time::Instant;

use super::SourceError;
use crate::ObjectKey;
use crate::object::{Kind, Uid};
use crate::planted::{Bug, planted};

/// What is asked of [`ListWatch::check`](super::ListWatch::check).
#[derive(Debug, Clone)]
pub struct CheckRequest {
    /// The version that the cache has reached.
    pub version: ResourceVersion,
    /// When the watch was lost.
    pub lost_at: Instant,
    /// When the next one was open. A check that began about then answers this one, too.
    pub resumed_at: Instant,
    /// The object that changed last, as the cache has it at that version.
    pub witness: Option<Witness>,
    /// How many objects the cache has at that version, if that is known.
    pub count: Option<usize>,
    /// Whether there was time for a restore, so that the last change alone does not tell.
    pub thorough: bool,
}

/// The last change that a cache has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    /// The object's key.
    pub key: ObjectKey,
    /// Its uid and version; `None` if it was deleted.
    pub state: Option<(Uid, ResourceVersion)>,
}

/// The answer to a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// The history is the one that the cache was read from.
    Same,
    /// It is another one, such as after a restore from a backup: only a new list helps.
    Other(&'static str),
    /// The server no longer has the version, or cannot answer such a question after a long gap. Only a new list helps.
    Expired,
    /// It may be the same, and there are so few objects that comparing all of them costs hardly more than asking further.
    Few,
    /// The source cannot tell, and the watch goes on.
    Unknown,
}

/// At most this many objects are compared whole after a long gap: they fit into one page, which costs one request.
pub(super) const FEW: usize = 500;

/// The answer of a server that does not have the version of the cache yet.
pub(super) const BEHIND: History = History::Other("the server has not reached the version of the cache");

impl History {
    /// Whether a replica that is behind for a moment would answer so, too.
    pub(crate) fn is_behind(self) -> bool {
        self == BEHIND
    }
}

/// The checks of all sources of one client, so that informers of the same kind share one.
#[derive(Debug, Clone, Default)]
pub struct Histories {
    kinds: Arc<Mutex<Kinds>>,
}

/// By kind and namespace.
type Kinds = HashMap<(Kind, Option<String>), Arc<Latest>>;

type Latest = tokio::sync::Mutex<Option<Checked>>;

/// The latest check: when its connection was lost, when it began, of which version, how, and its answer.
#[derive(Debug)]
struct Checked {
    lost_at: Instant,
    began: Instant,
    version: ResourceVersion,
    thorough: bool,
    witness: Option<Witness>,
    count: Option<usize>,
    history: History,
}

/// With this many kinds and namespaces, those that nobody asks about now are forgotten. It costs them a check of their own.
const MOST_KINDS: usize = 1000;

/// Watches that are lost within this time are lost together, and a restore takes longer than this.
const TOGETHER: Duration = Duration::from_secs(1);

impl Checked {
    /// Whether the same was looked at. After a long gap, what informers with other selectors know is not enough.
    fn asks_as(&self, request: &CheckRequest) -> bool {
        self.witness == request.witness && self.count == request.count
    }

    /// Whether this answers a request, too. A cache that was connected for longer may have read its state after a restore, so its
    /// check says nothing about one that was cut off before. Nor does a check that was over before a restore.
    fn answers(&self, request: &CheckRequest) -> bool {
        let covers = self.lost_at <= request.lost_at + TOGETHER
            && (self.version >= request.version || planted(Bug::LowerVersionAnswers))
            && self.began + TOGETHER >= request.resumed_at
            && self.thorough == request.thorough
            && (!self.thorough || self.history != History::Same || self.asks_as(request));
        let recent = self.began >= request.lost_at || planted(Bug::OldVerdictAnswers);
        // A server that has not reached a version may have reached an earlier one, of a cache that was read since.
        let reached = self.version <= request.version || planted(Bug::BehindAnswersAll);
        recent
            && match self.history {
                history if history.is_behind() => reached,
                History::Other(_) => covers || reached,
                // What a selector leaves may be few where there are many in all.
                History::Few if !planted(Bug::FewAnswersAll) => {
                    covers && request.count.is_some_and(|count| count <= FEW)
                }
                _ => covers,
            }
    }
}

impl Histories {
    /// Answers a check by one that began after the connection was lost and covers the version; else by `ask`.
    pub(super) async fn check(
        &self,
        of: (Kind, Option<String>),
        request: &CheckRequest,
        ask: impl Future<Output = Result<History, SourceError>>,
    ) -> Result<History, SourceError> {
        let latest = {
            let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
            if kinds.len() >= MOST_KINDS && !kinds.contains_key(&of) {
                kinds.retain(|_, latest| Arc::strong_count(latest) > 1);
            }
            Arc::clone(kinds.entry(of).or_default())
        };
        let mut latest = latest.lock().await;
        if let Some(checked) = latest.as_ref().filter(|checked| checked.answers(request)) {
            return Ok(checked.history);
        }
        let began = Instant::now();
        let history = ask.await?;
        if matches!(history, History::Same | History::Few | History::Other(_)) {
            let CheckRequest { version, lost_at, witness, count, thorough, .. } = request.clone();
            *latest = Some(Checked { lost_at, began, version, thorough, witness, count, history });
        }
        Ok(history)
    }
}

/// A list of metadata, as far as a check reads it.
#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    metadata: ListMetadata,
    #[serde(default)]
    items: Option<Vec<Item>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    continue_token: String,
    remaining_item_count: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct Item {
    metadata: ItemMetadata,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ItemMetadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
}

impl Listed {
    /// Judges an exact list by the version that was asked for; `None` if it is of that version.
    pub(super) fn misses(&self, version: &ResourceVersion) -> Option<History> {
        let found = ResourceVersion::from(&*self.metadata.resource_version);
        if found == *version {
            return None;
        }
        // Some servers answer an exact request with what they have now.
        let behind = found.as_u64().is_some_and(|found| found > 0) && found < *version;
        Some(if behind { BEHIND } else { History::Unknown })
    }

    /// How many objects there are, if the page says so.
    pub(super) fn count(&self) -> Option<usize> {
        let items = self.items.as_ref().map_or(0, Vec::len);
        match self.metadata.remaining_item_count {
            Some(remaining) => Some(items + remaining),
            None => self.metadata.continue_token.is_empty().then_some(items),
        }
    }

    /// Whether the list shows a witness as the cache has it; `None` if it is about another object, as from a server that ignores
    /// field selectors.
    pub(super) fn shows(&self, witness: &Witness) -> Option<bool> {
        let item = self.items.as_ref().and_then(|items| items.first()).map(|item| &item.metadata);
        if let Some(item) = item {
            let found = (Some(&*item.namespace).filter(|namespace| !namespace.is_empty()), &*item.name);
            if found != (witness.key.namespace(), witness.key.name()) && !planted(Bug::OtherObjectTaken) {
                return None;
            }
        }
        Some(match (item, &witness.state) {
            (None, None) => true,
            (Some(item), Some((uid, version))) => {
                *uid == *item.uid && ResourceVersion::from(&*item.resource_version) == *version
            }
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Listed {
        serde_json::from_str(text).unwrap()
    }

    fn request(lost_at: Instant) -> CheckRequest {
        CheckRequest {
            version: "5".into(),
            witness: None,
            count: None,
            lost_at,
            resumed_at: lost_at,
            thorough: false,
        }
    }

    fn pods(namespace: &str) -> (Kind, Option<String>) {
        (Kind::of::<k8s_openapi::api::core::v1::Pod>(), Some(namespace.to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_restore_that_was_found_out_before_says_nothing_about_a_later_loss() {
        let histories = Histories::default();
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_mins(1));
        for (lost_at, truth) in [(now, BEHIND), (later, History::Same)] {
            let found = histories.check(pods("a"), &request(lost_at), std::future::ready(Ok(truth))).await;
            assert_eq!(found.unwrap(), truth);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_that_nobody_asks_about_are_forgotten() {
        let histories = Histories::default();
        let now = Instant::now();
        for number in 0..3 * MOST_KINDS {
            let (of, request) = (pods(&format!("n-{number}")), request(now));
            histories.check(of, &request, std::future::ready(Ok(History::Same))).await.unwrap();
        }
        assert!(histories.kinds.lock().unwrap().len() <= MOST_KINDS);
    }

    #[test]
    fn a_page_counts_what_follows_it_if_the_server_says_so() {
        let counts = [
            (r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#, Some(0)),
            (r#"{"metadata":{"resourceVersion":"7"},"items":null}"#, Some(0)),
            (r#"{"metadata":{"continue":"x","remainingItemCount":4},"items":[{"metadata":{}}]}"#, Some(5)),
            (r#"{"metadata":{"continue":"x"},"items":[{"metadata":{}}]}"#, None),
        ];
        for (text, count) in counts {
            assert_eq!(listed(text).count(), count, "{text}");
        }
    }

    #[test]
    fn a_server_that_ignores_exact_is_restored_only_if_it_is_behind() {
        let at = |version: &str| listed(&format!(r#"{{"metadata":{{"resourceVersion":"{version}"}}}}"#));
        let version = ResourceVersion::from("7");
        assert_eq!(at("7").misses(&version), None);
        assert_eq!(at("9").misses(&version), Some(History::Unknown));
        assert_eq!(at("").misses(&version), Some(History::Unknown));
        assert!(matches!(at("5").misses(&version), Some(History::Other(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_answers_another_only_if_it_covers_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let request = |version: &str, thorough, resumed| CheckRequest {
            version: version.into(),
            lost_at: at(10),
            resumed_at: at(resumed),
            witness: None,
            count: None,
            thorough,
        };
        let checked = |history| Checked {
            lost_at: at(10),
            began: at(20),
            version: "7".into(),
            thorough: true,
            witness: None,
            count: None,
            history,
        };
        let answers =
            |version, thorough, resumed| checked(History::Same).answers(&request(version, thorough, resumed));
        assert!(answers("7", true, 20) && answers("5", true, 20));
        assert!(!answers("9", true, 20), "the cache is past what was checked");
        assert!(!answers("7", false, 20), "it was asked otherwise");
        assert!(!answers("7", true, 30), "there was a loss after the check");
        let short = Checked { thorough: false, ..checked(History::Same) };
        assert!(!short.answers(&request("7", true, 20)), "the last change alone does not tell");
        let counted = Checked { count: Some(3), ..checked(History::Same) };
        assert!(!counted.answers(&request("7", true, 20)), "another informer asked for something else");
        let few = |count| CheckRequest { count, ..request("7", true, 20) };
        assert!(checked(History::Few).answers(&few(Some(FEW))));
        assert!(!checked(History::Few).answers(&few(Some(FEW + 1))), "another informer may have a selector");
        assert!(!checked(History::Few).answers(&few(None)));
        assert!(checked(History::Other("")).answers(&request("9", false, 30)), "it concerns everybody");
    }
}
