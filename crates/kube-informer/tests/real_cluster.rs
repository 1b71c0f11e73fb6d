//! The pipeline against a real kube-apiserver, for the kinds of users there are: typed, dynamic, custom.
//!
//! Needs a control plane of its own, which it fills and empties: `KUBE_INFORMER_TEST_KUBECONFIG` names its kubeconfig. Never
//! an ordinary `KUBECONFIG`: a test must not write to somebody's cluster.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use kube_core::dynamic::DynamicObject;
use kube_core::{ApiResource, GroupVersionKind};
use kube_informer::object::Wire;
use kube_informer::reflector::Mode;
use kube_informer::source::client_for_informers;
use kube_informer::{
    Event, HandlerOptions, IndexBy, InformerOptions, Kind, Object, SharedInformerFactory, Snapshot,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// How long the real server may take for anything, before the test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// The client of the control plane, or `None` after a line that says why not.
async fn cluster() -> Option<Client> {
    let Ok(path) = std::env::var("KUBE_INFORMER_TEST_KUBECONFIG") else {
        eprintln!(
            "skipped: needs a real control plane; this brings one: \
             testing/control-plane/control-plane run -- testing/on-control-plane"
        );
        return None;
    };
    let kubeconfig = Kubeconfig::read_from(path).expect("the kubeconfig can be read");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Some(client_for_informers(config.expect("the kubeconfig makes sense")).expect("a client"))
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

fn app_is<K>(snapshot: &Snapshot<K>, key: &str, app: &str) -> bool {
    snapshot.get(key).is_some_and(|object| object.label("app") == Some(app))
}

#[tokio::test]
async fn config_maps_of_a_real_server_are_followed_by_type() {
    let Some(client) = cluster().await else { return };
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let _ = api.delete("typed", &DeleteParams::default()).await;
    let factory = SharedInformerFactory::new(client);
    let maps = factory.informer::<ConfigMap>();
    maps.add_index_by("app", IndexBy::label("app")).unwrap();
    factory.start();
    within("the first list", factory.wait_for_sync()).await.unwrap();
    assert_eq!(maps.status()[0].mode, Mode::Streaming, "1.37 streams lists");
    assert_eq!(maps.status()[0].wire, Some(Wire::Protobuf));

    let map = serde_json::from_value(
        json!({"metadata": {"name": "typed", "labels": {"app": "a"}}, "data": {"k": "1"}}),
    );
    api.create(&PostParams::default(), &map.unwrap()).await.unwrap();
    within("the add", maps.wait_for(|now| app_is(now, "default/typed", "a"))).await;
    let patch = json!({"metadata": {"labels": {"app": "b"}}, "data": {"k": "2"}});
    let patched = api.patch("typed", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let now = within("the update", maps.wait_for(|now| app_is(now, "default/typed", "b"))).await;
    let object = now.by_index("app", "b").unwrap().into_iter().next().unwrap();
    assert_eq!(object.version().to_string(), patched.metadata.resource_version.unwrap());
    assert_eq!(object.get().unwrap().data.as_ref().unwrap()["k"], "2");
    assert!(object.get().unwrap().metadata.managed_fields.is_none(), "trimmed on arrival");
    api.delete("typed", &DeleteParams::default()).await.unwrap();
    within("the delete", maps.wait_for(|now| !now.contains("default/typed"))).await;
    factory.shutdown().await.unwrap();
}

#[tokio::test]
async fn pods_of_a_real_server_are_told_as_they_are_made_labelled_and_deleted() {
    let Some(client) = cluster().await else { return };
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let _ = api.delete("told", &at_once).await;
    let factory = SharedInformerFactory::new(client);
    let (sender, mut told) = mpsc::unbounded_channel();
    let options = HandlerOptions::default().filter(|pod: &Object<Pod>| pod.name() == "told");
    let _seen = factory.informer::<Pod>().add_handler_with(options, move |event: Event<Pod>| {
        let app = |pod: &Object<Pod>| pod.label("app").unwrap_or("-").to_owned();
        let _ = sender.send(match event {
            Event::Added { object, .. } => format!("added {}", app(&object)),
            Event::Updated { old, new } => format!("updated {} → {}", app(&old), app(&new)),
            Event::Deleted(gone) => format!("deleted {}", app(&gone.object)),
        });
        async {}
    });
    factory.start();
    within("the first list", factory.wait_for_sync()).await.unwrap();

    let pod =
        json!({"metadata": {"name": "told"}, "spec": {"containers": [{"name": "main", "image": "web"}]}});
    api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    assert_eq!(within("the add", told.recv()).await.unwrap(), "added -");
    let label = json!({"metadata": {"labels": {"app": "web"}}});
    api.patch("told", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    assert_eq!(within("the update", told.recv()).await.unwrap(), "updated - → web");
    api.delete("told", &at_once).await.unwrap();
    // A real server marks a pod as going before it goes, even at once.
    let mut last = within("what follows", told.recv()).await.unwrap();
    if last == "updated web → web" {
        last = within("the delete", told.recv()).await.unwrap();
    }
    assert_eq!(last, "deleted web");
    factory.shutdown().await.unwrap();
}

#[tokio::test]
async fn custom_resources_of_a_real_server_are_followed_as_dynamic_objects_and_as_metadata() {
    let Some(client) = cluster().await else { return };
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = serde_json::from_value(json!({
        "metadata": {"name": "gadgets.test.example.com"},
        "spec": {
            "group": "test.example.com", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            }}}],
        },
    }));
    let factory = SharedInformerFactory::new(client.clone());
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("test.example.com", "v1", "Gadget"),
        "gadgets",
    );
    // Asked for before its definition is there: it joins when it comes.
    let gadgets = factory.dynamic(&resource, true, InformerOptions::default()).unwrap();
    let metadata = factory.dynamic(&resource, true, InformerOptions::default().metadata_only()).unwrap();
    factory.start();
    let _ = definitions.create(&PostParams::default(), &definition.unwrap()).await;
    within("the first lists", factory.wait_for_sync()).await.unwrap();

    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let _ = api.delete("one", &DeleteParams::default()).await;
    within("an empty cache", gadgets.wait_for(|now| !now.contains("default/one"))).await;
    let mut gadget = DynamicObject::new("one", &resource).data(json!({"spec": {"size": 7}}));
    gadget.metadata.labels = Some([("app".to_owned(), "a".to_owned())].into());
    within("the create", api.create(&PostParams::default(), &gadget)).await.unwrap();
    let now = within("the add", gadgets.wait_for(|now| app_is(now, "default/one", "a"))).await;
    assert_eq!(now.get("default/one").unwrap().get().unwrap().data["spec"]["size"], 7);
    let now = within("the metadata", metadata.wait_for(|now| app_is(now, "default/one", "a"))).await;
    assert!(now.get("default/one").unwrap().get().unwrap().data.get("spec").is_none(), "metadata only");

    definitions.delete("gadgets.test.example.com", &DeleteParams::default()).await.unwrap();
    within("the objects to go with their definition", gadgets.wait_for(|now| now.is_empty())).await;
    factory.shutdown().await.unwrap();
}

/// What a control plane has by itself.
const KINDS: [(&str, &str, &str, bool); 18] = [
    ("v1", "Namespace", "namespaces", false),
    ("v1", "ConfigMap", "configmaps", true),
    ("v1", "Secret", "secrets", true),
    ("v1", "Service", "services", true),
    ("v1", "ServiceAccount", "serviceaccounts", true),
    ("v1", "Endpoints", "endpoints", true),
    ("v1", "Event", "events", true),
    ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true),
    ("coordination.k8s.io/v1", "Lease", "leases", true),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", true),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true),
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "flowschemas", false),
    ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", false),
    ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false),
    ("networking.k8s.io/v1", "ServiceCIDR", "servicecidrs", false),
];

#[tokio::test]
async fn objects_of_a_real_server_read_the_same_in_both_formats() {
    let Some(client) = cluster().await else { return };
    let options = || InformerOptions::default().keep_managed_fields();
    let protobuf = SharedInformerFactory::with_defaults(client.clone(), options().pack_eagerly());
    let json = SharedInformerFactory::with_defaults(client, options().json());
    let mut compared = 0;
    for (api_version, kind, plural, namespaced) in KINDS {
        let kind = Kind::new(api_version, kind, plural, namespaced);
        let [one, other] = [&protobuf, &json]
            .map(|factory| factory.informer_of::<Value>(kind.clone(), factory.defaults()).unwrap());
        for informer in [&one, &other] {
            informer.start();
            within("both lists", informer.wait_for_sync()).await.unwrap();
        }
        assert_eq!(one.status()[0].wire, Some(Wire::Protobuf), "{kind}");
        assert_eq!(other.status()[0].wire, Some(Wire::Json), "{kind}");
        for object in other.lister().list() {
            // What has changed between the two lists, or by another test, is not compared.
            let same = one.lister().get(object.key()).filter(|same| same.version() == object.version());
            if let Some(same) = same {
                assert_eq!(same.get().unwrap(), object.get().unwrap(), "{kind} {}", object.key());
                compared += 1;
            }
        }
    }
    assert!(compared > 150, "only {compared} objects were compared");
}
