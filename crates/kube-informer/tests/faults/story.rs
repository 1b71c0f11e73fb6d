//! One informer's story under faults, told as text.

use std::fmt::Write;
use std::time::Duration;

use expect_test::Expect;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{Api, Client};
use kube_informer::reflector::{Mode, ReflectorConfig};
use kube_informer::{InformerOptions, SharedInformerFactory, Storage};
use kube_informer_apiserver::ApiServer;
use kube_informer_apiserver::faults::Faults;

use crate::common::{Log, change, content, create, delete};

/// What befalls the informer, and how it is set up.
#[derive(Clone)]
pub(crate) struct Story {
    before: &'static str,
    after: &'static str,
    config: ReflectorConfig,
    gzip: bool,
}

/// Rules, one a line, that hold from before the informer starts, and from after it has synced.
pub(crate) fn story(before: &'static str, after: &'static str) -> Story {
    let config = ReflectorConfig { seed: Some(1), ..ReflectorConfig::default() };
    Story { before, after, config, gzip: false }
}

impl Story {
    /// Compares with the server every three minutes.
    pub(crate) fn verified(mut self) -> Self {
        self.config.verify_every = Some(Duration::from_mins(3));
        self
    }

    /// Takes an old list to begin with.
    pub(crate) fn stale_first_list(mut self) -> Self {
        self.config.stale_first_list = true;
        self
    }

    /// Accepts gzip.
    pub(crate) fn gzip(self) -> Self {
        Self { gzip: true, ..self }
    }

    pub(crate) async fn check(self, expected: Expect) {
        let json = self.clone().told(true).await;
        expected.assert_eq(&json);
        let protobuf = self.told(false).await;
        assert_eq!(without_problems(&protobuf), without_problems(&json), "the same story in protobuf");
    }

    async fn told(self, json: bool) -> String {
        let faults = Faults::seeded(1);
        let server = ApiServer::builder()
            .seed(1)
            .epoch("2026-01-01T00:00:00Z".parse().unwrap())
            .faults(faults.clone())
            .build();
        // Past the faults.
        let api: Api<ConfigMap> = Api::default_namespaced(Client::new(server.clone(), "default"));
        create(&api, "a", "1").await;
        create(&api, "b", "1").await;
        let inject = |script: &str| script.lines().for_each(|rule| faults.inject(rule.parse().unwrap()));
        inject(self.before);

        let options = InformerOptions::default().reflector(self.config);
        let options = if json { options.json().storage(Storage::Raw) } else { options.pack_eagerly() };
        let options = if self.gzip { options.gzip() } else { options };
        let factory = SharedInformerFactory::with_defaults(server.client(), options);
        let informer = factory.informer::<ConfigMap>();
        let log = Log::default();
        let seen = informer.add_handler(log.handler());
        factory.start();
        informer.wait_for_sync_within(Duration::from_mins(10)).await.unwrap();
        seen.wait_for_sync().await;

        inject(self.after);
        change(&api, "a", "2").await;
        create(&api, "c", "1").await;
        delete(&api, "b").await;
        tokio::time::sleep(Duration::from_mins(10)).await;

        let mut told = log.take();
        writeln!(told, "store: {}", content(&informer)).unwrap();
        let [status] = &informer.status()[..] else { panic!("one scope") };
        let asked = server.stats().resource("configmaps");
        writeln!(
            told,
            "server: {} lists, {} streaming lists, {} watches",
            asked.lists, asked.streaming_lists, asked.watches
        )
        .unwrap();
        let counts = status.counts;
        let mut met = Vec::new();
        for (name, count) in [
            ("errors", counts.errors),
            ("expired", counts.expired),
            ("set aside", counts.set_aside),
            ("of another kind", counts.wrong_kind),
            ("silences", counts.silences),
            ("restores", counts.restores),
            ("verifications", counts.verifications),
            ("repairs", informer.stats().store.repairs),
        ] {
            if count > 0 {
                met.push(format!("{count} {name}"));
            }
        }
        if let Mode::Paged(why) = status.mode {
            met.push(format!("paged: {why}"));
        }
        if met.is_empty() {
            met.push("nothing".to_owned());
        }
        writeln!(told, "met: {}", met.join(", ")).unwrap();
        for aside in informer.snapshot().set_aside() {
            writeln!(told, "aside: {:?}: {}", aside.key.as_ref().map(|key| key.to_string()), aside.problem)
                .unwrap();
        }
        let injected = faults.log().len();
        assert!(injected > 0, "no fault was met");
        factory.shutdown().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((factory.running_tasks(), server.stats().open_watches), (0, 0));
        told
    }
}

/// The story without what is wrong with objects that were set aside: that is said in the words of the format.
fn without_problems(told: &str) -> Vec<&str> {
    told.lines()
        .map(|line| if line.starts_with("aside: ") { line.split("): ").next().unwrap() } else { line })
        .collect()
}
