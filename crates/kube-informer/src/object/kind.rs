//! What a kind is called, and where the server has it.

use std::any::TypeId;
use std::fmt::{self, Write};

use kube_core::discovery::ApiResource;
use kube_core::{ClusterResourceScope, Resource};

/// Names a kind of resource: what the server calls it and whether it lives in namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(clippy::struct_field_names, reason = "Kubernetes calls it so")]
pub struct Kind {
    api_version: String,
    kind: String,
    plural: String,
    namespaced: bool,
}

impl Kind {
    /// A kind by its names, such as `("apps/v1", "Deployment", "deployments", true)`.
    pub fn new(api_version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced,
        }
    }

    /// The kind of a Rust type that knows it: a built-in type or a derived custom resource.
    pub fn of<K>() -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        let namespaced = TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>();
        Self::new(&K::api_version(&()), &K::kind(&()), &K::plural(&()), namespaced)
    }

    /// The kind of a discovered resource.
    pub fn from_resource(resource: &ApiResource, namespaced: bool) -> Self {
        Self::new(&resource.api_version, &resource.kind, &resource.plural, namespaced)
    }

    /// `group/version`, or `version` for the core group.
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// The kind's name, such as `Pod`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The name in the server's paths, such as `pods`.
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// Whether objects of this kind live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// The path of the collection on the server, in one namespace or, without one or with an empty one, in all.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        match namespace.filter(|namespace| !namespace.is_empty()) {
            Some(namespace) => {
                let namespace = escaped(namespace);
                format!("/{root}/{}/namespaces/{namespace}/{}", self.api_version, self.plural)
            }
            None => format!("/{root}/{}/{}", self.api_version, self.plural),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version, self.kind)
    }
}

/// A text as one segment of a path. A segment of dots alone would lead elsewhere, so its dots are escaped, too.
fn escaped(segment: &str) -> String {
    let dots = segment.bytes().all(|byte| byte == b'.');
    let mut text = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) || (byte == b'.' && !dots) {
            text.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Node, Pod};

    use super::*;

    #[test]
    fn types_know_their_kind_and_scope() {
        assert_eq!(Kind::of::<Pod>(), Kind::new("v1", "Pod", "pods", true));
        assert_eq!(Kind::of::<Deployment>(), Kind::new("apps/v1", "Deployment", "deployments", true));
        assert!(!Kind::of::<Node>().is_namespaced());
    }

    #[test]
    fn paths_are_the_servers() {
        assert_eq!(Kind::of::<Pod>().path(None), "/api/v1/pods");
        assert_eq!(Kind::of::<Deployment>().path(Some("a")), "/apis/apps/v1/namespaces/a/deployments");
    }
}
