//! Random objects of every kind, there and back. Each is made from a seed that a failure names.

mod generate;
mod hostile;
mod scatter;

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde_json::Value;

use self::generate::{any_object, any_path};
use super::{Kind, cut, from_slice, from_value};
use crate::{FieldPath, Metadata};

/// Calls `check` with random objects of every kind: the object, its bytes, and where they came from.
fn for_objects(rounds: u64, check: impl Fn(Kind, &Value, &[u8], &mut fastrand::Rng, &str)) {
    let mut kinds: Vec<Kind> = Kind::all().collect();
    kinds.sort_by_key(Kind::to_string);
    for kind in kinds {
        for seed in 0..rounds {
            let mut rng = fastrand::Rng::with_seed(seed);
            let object = any_object(&mut rng, kind);
            let from = format!("{kind}, seed {seed}: {object}");
            let bytes = from_value(kind, &object).unwrap_or_else(|error| panic!("{error}\n{from}"));
            check(kind, &object, &bytes, &mut rng, &from);
        }
    }
}

#[test]
fn every_kind_reads_from_protobuf_as_from_json() {
    for_objects(10, |kind, object, bytes, _, from| {
        let found: Value = from_slice(kind, bytes).unwrap_or_else(|error| panic!("{error}\n{from}"));
        assert_eq!(found, *object, "{from}");
    });
}

#[test]
fn fields_in_any_order_and_messages_in_pieces_read_the_same() {
    for_objects(5, |kind, object, bytes, rng, from| {
        let scattered = scatter::scatter(rng, kind, bytes);
        let found: Value = from_slice(kind, &scattered).unwrap_or_else(|error| panic!("{error}\n{from}"));
        assert_eq!(found, *object, "{from}");
    });
}

#[test]
fn every_kind_has_the_same_metadata_in_both() {
    for_objects(3, |kind, object, bytes, _, from| {
        let meta = Metadata::from_protobuf(kind, bytes).unwrap_or_else(|error| panic!("{error}\n{from}"));
        let has_meta = kind.message.fields.iter().any(
            |field| matches!(field.kind, super::schema::Type::Message(index) if super::schema::message_at(index).is_object_meta()),
        );
        if has_meta {
            let json = object.to_string();
            assert_eq!(meta, Metadata::from_json(json.as_bytes()).unwrap(), "{from}");
        }
    });
}

#[test]
fn paths_lead_to_the_same_texts_in_both() {
    for_objects(10, |kind, object, bytes, rng, from| {
        let json = object.to_string();
        let path = any_path(rng, object);
        let mut expected = path.texts(json.as_bytes()).unwrap();
        let mut found =
            path.texts_in_protobuf(kind, bytes).unwrap_or_else(|error| panic!("{path}: {error}\n{from}"));
        // The members of an object stand in another order here and there.
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{path}\n{from}");
    });
}

#[test]
fn cuts_take_out_the_same_in_both() {
    let mut seen = 0;
    let seen = std::cell::Cell::from_mut(&mut seen);
    for_objects(10, |kind, object, bytes, rng, from| {
        let paths: Vec<FieldPath> = (0..rng.usize(1..4)).map(|_| any_path(rng, object)).collect();
        let json = object.to_string();
        let Some(json_rest) = crate::path::cut(json.as_bytes(), &paths).unwrap() else {
            assert_eq!(cut(kind, bytes, &paths).unwrap(), None, "{paths:?}\n{from}");
            return;
        };
        // A field that Go always writes comes back empty: so compare after a way through protobuf for both.
        let expected = super::from_json(kind, &json_rest).unwrap();
        let expected: Value = from_slice(kind, &expected).unwrap();
        for bytes in [bytes.to_vec(), scatter::scatter(rng, kind, bytes)] {
            let rest = cut(kind, &bytes, &paths).unwrap_or_else(|error| panic!("{paths:?}: {error}\n{from}"));
            seen.set(seen.get() + usize::from(rest.is_some()));
            let rest = rest.unwrap_or(bytes);
            let found: Value =
                from_slice(kind, &rest).unwrap_or_else(|error| panic!("{paths:?}: {error}\n{from}"));
            assert_eq!(found, expected, "{paths:?}\n{from}");
        }
    });
    assert!(seen.get() > 1000, "only {} cuts cut anything", seen.get());
}

#[test]
fn typed_objects_read_from_protobuf_as_from_json() {
    fn check<T: DeserializeOwned + PartialEq + Debug + k8s_openapi::Resource>() {
        let kind = Kind::find(T::API_VERSION, T::KIND).expect(T::KIND);
        for seed in 0..30 {
            let object = any_object(&mut fastrand::Rng::with_seed(seed), kind);
            let from = format!("{kind}, seed {seed}: {object}");
            let bytes = from_value(kind, &object).unwrap();
            let found = from_slice::<T>(kind, &bytes);
            match serde_json::from_str::<T>(&object.to_string()) {
                Ok(expected) => assert_eq!(found.as_ref(), Ok(&expected), "{from}"),
                // Some types refuse null where Go writes it.
                Err(error) => {
                    assert!(found.is_err() && error.to_string().contains("null"), "{error}\n{from}");
                }
            }
        }
    }
    macro_rules! check {
        ($($path:path)*) => { $( { use $path as T; check::<T>(); } )* };
    }
    check! {
        k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration
        k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy
        k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration
        k8s_openapi::api::apps::v1::ControllerRevision
        k8s_openapi::api::apps::v1::DaemonSet
        k8s_openapi::api::apps::v1::Deployment
        k8s_openapi::api::apps::v1::ReplicaSet
        k8s_openapi::api::apps::v1::StatefulSet
        k8s_openapi::api::authentication::v1::TokenReview
        k8s_openapi::api::authorization::v1::SubjectAccessReview
        k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler
        k8s_openapi::api::batch::v1::CronJob
        k8s_openapi::api::batch::v1::Job
        k8s_openapi::api::certificates::v1::CertificateSigningRequest
        k8s_openapi::api::coordination::v1::Lease
        k8s_openapi::api::core::v1::ConfigMap
        k8s_openapi::api::core::v1::Endpoints
        k8s_openapi::api::core::v1::Event
        k8s_openapi::api::core::v1::LimitRange
        k8s_openapi::api::core::v1::Namespace
        k8s_openapi::api::core::v1::Node
        k8s_openapi::api::core::v1::PersistentVolume
        k8s_openapi::api::core::v1::PersistentVolumeClaim
        k8s_openapi::api::core::v1::Pod
        k8s_openapi::api::core::v1::PodTemplate
        k8s_openapi::api::core::v1::ReplicationController
        k8s_openapi::api::core::v1::ResourceQuota
        k8s_openapi::api::core::v1::Secret
        k8s_openapi::api::core::v1::Service
        k8s_openapi::api::core::v1::ServiceAccount
        k8s_openapi::api::discovery::v1::EndpointSlice
        k8s_openapi::api::flowcontrol::v1::FlowSchema
        k8s_openapi::api::networking::v1::Ingress
        k8s_openapi::api::networking::v1::NetworkPolicy
        k8s_openapi::api::policy::v1::PodDisruptionBudget
        k8s_openapi::api::rbac::v1::ClusterRole
        k8s_openapi::api::rbac::v1::RoleBinding
        k8s_openapi::api::resource::v1::ResourceClaim
        k8s_openapi::api::resource::v1::ResourceSlice
        k8s_openapi::api::storage::v1::CSINode
        k8s_openapi::api::storage::v1::StorageClass
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Status
        k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService
    }
}
