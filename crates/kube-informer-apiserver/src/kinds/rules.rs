//! What the real server does for some kinds and not for others, found by asking one: a row for each habit.

use super::Kind;

impl Kind {
    /// Whether the server counts `metadata.generation` for the kind.
    pub(crate) fn has_generation(&self) -> bool {
        self.custom.is_some()
            || matches!(
                self.place(),
                ("", "pods" | "replicationcontrollers" | "podtemplates")
                    | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
                    | ("networking.k8s.io", "ingresses" | "ingressclasses" | "networkpolicies")
                    | ("resource.k8s.io", "deviceclasses" | "resourceslices")
                    | (
                        "admissionregistration.k8s.io"
                            | "apiextensions.k8s.io"
                            | "autoscaling"
                            | "batch"
                            | "discovery.k8s.io"
                            | "flowcontrol.apiserver.k8s.io"
                            | "policy"
                            | "scheduling.k8s.io",
                        _
                    )
            )
    }

    /// Whether a change of this part of the metadata counts as one of what is wanted.
    pub(crate) fn generation_counts(&self, metadata: &str) -> bool {
        match self.place() {
            ("apps", "deployments") => metadata == "annotations",
            ("discovery.k8s.io", "endpointslices") => metadata == "labels",
            _ => false,
        }
    }

    /// Whether DELETE answers with the object instead of a `Status`.
    pub(crate) fn delete_answers_object(&self) -> bool {
        matches!(
            self.place(),
            (
                "",
                "namespaces"
                    | "persistentvolumeclaims"
                    | "persistentvolumes"
                    | "pods"
                    | "podtemplates"
                    | "resourcequotas"
                    | "serviceaccounts"
                    | "services"
            ) | ("apiextensions.k8s.io", "customresourcedefinitions")
                | ("resource.k8s.io", _)
                | (
                    "storage.k8s.io",
                    "csidrivers"
                        | "csinodes"
                        | "storageclasses"
                        | "volumeattachments"
                        | "volumeattributesclasses"
                )
        )
    }

    /// Whether a deletion without a policy leaves dependents alone.
    pub(crate) fn orphans_by_default(&self) -> bool {
        matches!(self.place(), ("", "replicationcontrollers") | ("batch", "jobs"))
    }

    /// Whether an update must say which version it replaces.
    pub(crate) fn update_needs_version(&self) -> bool {
        self.custom.is_some()
            || matches!(
                self.place(),
                (
                    "admissionregistration.k8s.io"
                        | "apiextensions.k8s.io"
                        | "apiregistration.k8s.io"
                        | "coordination.k8s.io"
                        | "node.k8s.io"
                        | "policy",
                    _
                ) | (
                    "storage.k8s.io",
                    "csidrivers" | "csinodes" | "csistoragecapacities" | "volumeattachments"
                )
            )
    }

    /// Whether an update of an object that is not there creates it.
    pub(crate) fn update_creates(&self) -> bool {
        self.custom.is_none()
            && matches!(
                self.place(),
                ("", "endpoints" | "events" | "limitranges" | "services")
                    | (
                        "coordination.k8s.io" | "events.k8s.io" | "node.k8s.io" | "rbac.authorization.k8s.io",
                        _
                    )
            )
    }

    /// Whether the kind ends in a way of its own: without a grace period and without a new generation.
    pub(crate) fn ends_by_controller(&self) -> bool {
        matches!(self.place(), ("", "namespaces") | ("apiextensions.k8s.io", "customresourcedefinitions"))
    }

    fn place(&self) -> (&str, &str) {
        (self.group.as_str(), self.resource.as_str())
    }
}
