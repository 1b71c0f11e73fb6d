//! Which changes are worth a reconcile, decided by metadata alone.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::intake::panic_text;
use crate::object::Entry;
use crate::planted::{Bug, planted};

/// A change, as a predicate sees it. Nothing is decoded for it.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// What it was; `None` if it is new.
    pub old: Option<&'a Entry>,
    /// What it is; `None` if it is gone.
    pub new: Option<&'a Entry>,
}

impl Change<'_> {
    /// Whether this is provably an ordinary change: an object that is new or gone, one that is repeated as it was, or a newer
    /// version of the same object.
    ///
    /// After a restore from a backup, versions, generations and uids no longer tell what has changed.
    pub(super) fn is_ordinary(&self) -> bool {
        let (Some(old), Some(new)) = (self.old, self.new) else { return true };
        let backwards = new.version() < old.version() || new.generation() < old.generation();
        let altered = old.version() == new.version() && !std::ptr::eq(old, new) && !old.is_same_content(new);
        old.uid() == new.uid() && !backwards && (!altered || planted(Bug::AlteredIsOrdinary))
    }

    /// Whether a property is not what it was. An object that is new or gone differs in everything.
    fn differs<T: PartialEq>(&self, property: impl Fn(&Entry) -> T) -> bool {
        match (self.old, self.new) {
            (Some(old), Some(new)) => property(old) != property(new),
            _ => true,
        }
    }
}

/// Decides which changes pass, and counts those that do not.
///
/// Objects that are new or gone pass all that are ready-made; these look at updates only.
///
/// A predicate saves work; it does not select which objects a reconcile sees. A controller does not ask it about a change that
/// is not provably an ordinary one: after a restore from a backup, or after changes that were merged because they came too fast.
/// A predicate that panics lets the change pass.
#[derive(Clone)]
pub struct Predicate {
    name: String,
    passes: Arc<dyn Fn(&Change<'_>) -> bool + Send + Sync>,
    dropped: Arc<AtomicU64>,
    panicked: Arc<AtomicU64>,
}

impl Predicate {
    /// A predicate of your own.
    pub fn new(
        name: impl Into<String>,
        passes: impl Fn(&Change<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            passes: Arc::new(passes),
            dropped: Arc::default(),
            panicked: Arc::default(),
        }
    }

    /// The desired state has changed. Kinds that do not count generations never pass an update: mind which kind it is.
    ///
    /// That an object was asked to go counts as a change of generation, for the server counts it so.
    pub fn generation() -> Self {
        Self::new("generation", |change| change.differs(Entry::generation))
    }

    /// The labels have changed.
    pub fn labels() -> Self {
        Self::new("labels", |change| {
            change.differs(|entry| {
                let mut labels: Vec<(String, String)> =
                    entry.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
                labels.sort_unstable();
                labels
            })
        })
    }

    /// The annotations have changed.
    pub fn annotations() -> Self {
        Self::new("annotations", |change| change.differs(Entry::annotations_hash))
    }

    /// Anything has changed: drops what merely comes round again in a resync.
    pub fn resource_version() -> Self {
        Self::new("resourceVersion", |change| change.differs(|entry| entry.version().clone()))
    }

    /// Both must pass.
    pub fn and(self, other: Self) -> Self {
        let name = format!("({} and {})", self.name, other.name);
        Self::new(name, move |change| self.test(change) && other.test(change))
    }

    /// Both must pass, if there are two.
    pub(super) fn both(first: Option<Self>, second: Self) -> Self {
        match first {
            Some(first) => first.and(second),
            None => second,
        }
    }

    /// One must pass.
    pub fn or(self, other: Self) -> Self {
        let name = format!("({} or {})", self.name, other.name);
        Self::new(name, move |change| self.test(change) || other.test(change))
    }

    /// Lets those changes pass that this predicate drops, and drops the others.
    #[allow(clippy::should_implement_trait, reason = "beside `and` and `or`, which are no operators either")]
    pub fn not(self) -> Self {
        let name = format!("not {}", self.name);
        Self::new(name, move |change| !self.test(change))
    }

    /// What it looks at.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many changes it has dropped. Clones share the count.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Whether a change passes; if not, it is counted. If the predicate panics, the change passes.
    pub fn passes(&self, change: &Change<'_>) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.test(change))).unwrap_or(true)
    }

    /// How often it has panicked. Clones share the count.
    pub fn panicked(&self) -> u64 {
        self.panicked.load(Ordering::Relaxed)
    }

    /// As [`passes`](Self::passes), but a panic goes on to the whole combination: `not` must not turn it into a drop.
    fn test(&self, change: &Change<'_>) -> bool {
        let passes = catch_unwind(AssertUnwindSafe(|| (self.passes)(change))).unwrap_or_else(|panic| {
            let text = panic_text(panic);
            if self.panicked.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::error!(
                    predicate = self.name,
                    panic = text,
                    "a predicate panicked; the change passes"
                );
            }
            // Of the payload, which is the user's, nothing is left.
            resume_unwind(Box::new(text))
        });
        if !passes {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        passes
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Predicate({}, dropped {})", self.name, self.dropped())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Kind;

    fn entry(generation: i64, label: &str, annotation: &str, version: u64) -> Entry {
        let object = json!({"metadata": {
            "name": "a", "resourceVersion": version.to_string(), "generation": generation,
            "labels": {"l": label}, "annotations": {"a": annotation},
        }});
        let kind = Arc::new(Kind::new("v1", "Thing", "things", true));
        Entry::from_json(&kind, object.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_same_version_with_other_content_is_not_ordinary() {
        let [old, same, altered] =
            [("x", 1), ("x", 1), ("z", 1)].map(|(label, version)| entry(1, label, "y", version));
        assert!(Change { old: Some(&old), new: Some(&same) }.is_ordinary());
        assert!(!Change { old: Some(&old), new: Some(&altered) }.is_ordinary());
    }

    #[test]
    fn each_looks_at_its_own_part_of_an_update() {
        let old = entry(1, "x", "y", 1);
        let cases = [
            (Predicate::generation(), entry(2, "x", "y", 2)),
            (Predicate::labels(), entry(1, "z", "y", 2)),
            (Predicate::annotations(), entry(1, "x", "z", 2)),
            (Predicate::resource_version(), entry(1, "x", "y", 2)),
        ];
        for (predicate, changed) in cases {
            assert!(predicate.passes(&Change { old: Some(&old), new: Some(&changed) }), "{predicate:?}");
            assert!(!predicate.passes(&Change { old: Some(&old), new: Some(&old) }), "{predicate:?}");
            assert!(predicate.passes(&Change { old: None, new: Some(&old) }), "{predicate:?}");
            assert!(predicate.passes(&Change { old: Some(&old), new: None }), "{predicate:?}");
            assert_eq!(predicate.dropped(), 1);
        }
    }

    #[test]
    fn they_combine() {
        let (old, labelled) = (entry(1, "x", "y", 1), entry(1, "z", "y", 2));
        let change = Change { old: Some(&old), new: Some(&labelled) };
        assert!(Predicate::generation().or(Predicate::labels()).passes(&change));
        assert!(!Predicate::generation().and(Predicate::labels()).passes(&change));
        assert!(Predicate::generation().not().passes(&change));
        let both = Predicate::generation().and(Predicate::labels().not());
        assert_eq!(both.name(), "(generation and not labels)");
    }
}
