//! The kinds of objects on the server, all of which one factory follows.

use kube_informer::Kind;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    ConfigMaps,
    /// Of another group, with the value in another field.
    Leases,
}

impl Resource {
    pub const ALL: [Self; 2] = [Self::ConfigMaps, Self::Leases];

    /// The kind of an object by its number: one of four is a lease.
    pub fn of(object: u64) -> Self {
        if object >> 8 & 3 == 3 { Self::Leases } else { Self::ConfigMaps }
    }

    /// The number of an object of this kind.
    pub fn number(self, object: u64) -> u64 {
        match self {
            Self::ConfigMaps => object & !(3 << 8),
            Self::Leases => object | 3 << 8,
        }
    }

    pub fn kind(self) -> Kind {
        match self {
            Self::ConfigMaps => Kind::new("v1", "ConfigMap", "configmaps", true),
            Self::Leases => Kind::new("coordination.k8s.io/v1", "Lease", "leases", true),
        }
    }

    /// Where all of them are, or those of a namespace.
    pub fn path(self, namespace: Option<&str>) -> String {
        let namespace = namespace.map(|name| format!("namespaces/{name}/")).unwrap_or_default();
        match self {
            Self::ConfigMaps => format!("/api/v1/{namespace}configmaps"),
            Self::Leases => format!("/apis/coordination.k8s.io/v1/{namespace}leases"),
        }
    }

    /// An object of this kind.
    pub fn body(self, name: &str, labels: &Value, value: &str) -> Value {
        let metadata = json!({"name": name, "labels": labels});
        match self {
            Self::ConfigMaps => json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": metadata, "data": {"v": value},
            }),
            Self::Leases => json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": metadata, "spec": {"holderIdentity": value},
            }),
        }
    }
}
