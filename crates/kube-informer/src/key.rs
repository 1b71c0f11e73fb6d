//! The key of an object in a cache: `namespace/name`, or `name` where the kind has no namespaces.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Names one object of a kind: `namespace/name`, or `name` alone for cluster-scoped kinds.
///
/// Cheap to clone and ordered by namespace, then name, so that a namespace is one range of a sorted cache.
///
/// ```
/// use kube_informer::ObjectKey;
/// let key = ObjectKey::namespaced("default", "web-0");
/// assert_eq!(key.to_string(), "default/web-0");
/// assert_eq!((key.namespace(), key.name()), (Some("default"), "web-0"));
/// assert_eq!("default/web-0".parse(), Ok(key));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectKey(Arc<str>);

/// A text that is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a key: expected 'namespace/name' or 'name'")]
pub struct KeyError(String);

impl ObjectKey {
    /// The key of an object in a namespace.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self(name.into())
    }

    /// The key of an object whose namespace may be empty, as it stands in metadata.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() { Self::cluster(name) } else { Self::namespaced(namespace, name) }
    }

    /// The namespace, `None` for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    /// The name without the namespace.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// The whole key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for ObjectKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let fine = match text.split_once('/') {
            None => !text.is_empty(),
            Some((namespace, name)) => !namespace.is_empty() && !name.is_empty() && !name.contains('/'),
        };
        if fine { Ok(Self(text.into())) } else { Err(KeyError(text.to_owned())) }
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ObjectKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_printed_and_parsed_again() {
        for text in ["a", "a/b", "a.b:c/d"] {
            assert_eq!(text.parse::<ObjectKey>().unwrap().to_string(), text);
        }
        for text in ["", "/", "a/", "/a", "a/b/c"] {
            assert!(text.parse::<ObjectKey>().is_err(), "{text}");
        }
        assert_eq!(ObjectKey::new("", "a"), ObjectKey::cluster("a"));
        assert_eq!(ObjectKey::cluster("a").namespace(), None);
        assert_eq!(ObjectKey::new("n", "a").name(), "a");
    }

    #[test]
    fn a_namespace_is_one_range() {
        // '-' and '.' sort before '/', letters and digits after it: names of other namespaces must not fall between.
        let mut keys: Vec<ObjectKey> =
            ["a/x", "a-b/x", "a/y", "a.b/x", "a0/x", "ab/x"].iter().map(|key| key.parse().unwrap()).collect();
        keys.sort();
        let namespaces: Vec<_> = keys.iter().map(|key| key.namespace().unwrap()).collect();
        let mut distinct = namespaces.clone();
        distinct.dedup();
        assert_eq!(distinct.len(), 5, "{namespaces:?}");
    }
}
