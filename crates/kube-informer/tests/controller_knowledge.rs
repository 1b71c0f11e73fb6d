//! What a controller must know before it acts, and what it must not undo.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{api, create, settle};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_informer::controller::{Action, Context, FinalizerEvent, Request, finalizer};
use kube_informer::{Controller, InformerOptions, SharedInformerFactory};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn no_key_is_reconciled_before_every_source_was_mapped() {
    let server = common::server();
    for number in 0..400 {
        create(&api(&server), &format!("m-{number:03}"), "1").await;
    }
    let factory = SharedInformerFactory::new(server.client());
    let maps = factory.informer::<ConfigMap>();
    let selected = factory.informer_with::<ConfigMap>(InformerOptions::default().labels("app=1")).unwrap();
    factory.start();
    // The informers are read already: only the keys are still to be queued.
    factory.wait_for_sync().await.unwrap();
    let (mapped, first) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(None)));
    let (count, look, seen) = (Arc::clone(&mapped), Arc::clone(&mapped), Arc::clone(&first));
    let controller = Controller::new(maps).watches(selected, move |map| {
        *count.lock().unwrap() += 1;
        [map.key().clone()]
    });
    let run = tokio::spawn(controller.run(move |_: Request, _: Context<ConfigMap>| {
        seen.lock().unwrap().get_or_insert(*look.lock().unwrap());
        std::future::ready(Ok(Action::done()))
    }));
    tokio::time::sleep(Duration::from_mins(1)).await;
    run.abort();
    assert_eq!(*first.lock().unwrap(), Some(400), "mapped before the first reconcile");
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_others_took_off_meanwhile_is_not_put_on_again() {
    const NAME: &str = "example.com/tidy";
    let server = common::server();
    let maps = api(&server);
    let mut object = common::config_map("a", &[], &[]);
    object.metadata.finalizers = Some(vec![NAME.to_owned(), "example.com/other".to_owned()]);
    maps.create(&PostParams::default(), &object).await.unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new(factory.informer::<ConfigMap>());
    let (handle, of) = (controller.handle(), maps.clone());
    let run = tokio::spawn(controller.run(move |request: Request, context: Context<ConfigMap>| {
        let maps = of.clone();
        async move {
            let Some(object) = context.get(&request) else { return Ok(Action::done()) };
            if object.name() != "a" {
                return Ok(Action::done());
            }
            finalizer(&context, &maps.clone(), NAME, object, |event| async move {
                if let FinalizerEvent::Cleanup(_) = event {
                    // Somebody else is done with the object during the cleanup.
                    let patch = json!({"metadata": {"finalizers": [NAME]}});
                    maps.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await?;
                }
                Ok(Action::done())
            })
            .await
        }
    }));
    settle().await;
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    run.abort();
    assert!(maps.get_opt("a").await.unwrap().is_none(), "it is gone");
    assert_eq!(handle.stats().failed, 0);
}
