//! A Kubernetes API server in the process: for tests, demos and simulation.
//!
//! It is a tower service first and a socket second: [`ApiServer::client`] gives a [`kube_client::Client`] that talks to it
//! without a socket, so that tokio's paused clock works end to end. It stores, lists, pages, watches and refuses
//! as kube-apiserver 1.37 does, and it knows every built-in kind and every custom one that is defined through its API.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use kube_client::api::{Api, PostParams};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube_informer_apiserver::ApiServer;
//!
//! let server = ApiServer::new();
//! let api: Api<ConfigMap> = Api::default_namespaced(server.client());
//! let mut map = ConfigMap::default();
//! map.metadata.name = Some("settings".to_owned());
//! let created = api.create(&PostParams::default(), &map).await?;
//! assert!(created.metadata.uid.is_some());
//! assert_eq!(server.stats().resource("configmaps").creates, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Read in this order: [`request`] (what is asked), `server` and `route` (who answers), `storage` (what is kept), `object` (how)
//! and `protobuf` (how else), then one file for each verb. [`faults`] is the layer around it that breaks all this on purpose.

mod aggregated;
mod background;
mod backup;
pub mod body;
mod builder;
mod clock;
mod core;
mod counters;
mod crd;
mod create;
mod defaults;
mod delete;
mod discovery;
pub mod faults;
mod fields;
mod hosts;
mod kinds;
mod kubeconfig;
mod list;
mod negotiate;
mod object;
mod options;
mod patch;
mod pods;
mod pretty;
mod protobuf;
mod read;
pub mod request;
mod reviews;
mod route;
mod selection;
mod serve;
mod server;
mod status;
mod storage;
mod update;
mod watch;
mod write;

pub use backup::Backup;
pub use body::{Body, BoxError};
pub use builder::Builder;
pub use counters::{ResourceStats, Stats};
pub use request::{RequestInfo, Verb};
pub use serve::{ServeError, Serving};
pub use server::{ApiServer, ServeAtMost};

/// The guide's examples are compiled, and run where they can be.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/apiserver.md")]
struct Guide;
