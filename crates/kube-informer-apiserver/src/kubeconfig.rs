//! The text of a kubeconfig file: only whoever runs a program decides where it is written.

/// A kubeconfig for a server without TLS and without credentials.
pub(crate) fn text(url: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: kube-informer
  cluster:
    server: {url}
users:
- name: kube-informer
  user: {{}}
contexts:
- name: kube-informer
  context:
    cluster: kube-informer
    user: kube-informer
    namespace: default
current-context: kube-informer
preferences: {{}}
"
    )
}
