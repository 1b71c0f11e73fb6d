//! The same seed and the same requests: the same faults.

use http::Request;
use kube_client::client::Body;
use kube_informer_apiserver::ApiServer;
use kube_informer_apiserver::faults::{Fault, Faults, Injected, Rule, Script};

use crate::cluster::{Cluster, PODS, STREAMING, WATCH};

const RULES: &str = "\
    any: refuse probability 0.05\n\
    create|patch: unavailable probability 0.1\n\
    any: delay 20ms probability 0.2\n\
    watch: cut-stream after 2s, probability 0.3\n\
    list: split-frames every 3\n\
    watch: cut-frame probability 0.02\n\
    watch: lost-event probability 0.1\n\
    watch: duplicate-event probability 0.1\n\
    list: bad-body probability 0.1\n";

/// A list that may be stale.
const CACHED: &str = "/api/v1/namespaces/default/pods?resourceVersion=0";

/// How many sets of rules are drawn.
const SEEDS: u64 = 25;

fn cluster(faults: &Faults) -> Cluster {
    let epoch = "2026-11-01T00:00:00Z".parse().unwrap();
    let server = ApiServer::builder().seed(1).epoch(epoch).faults(faults.clone()).build();
    Cluster { client: server.client(), server, faults: faults.clone() }
}

/// Does the same things to a server with these faults, whatever comes back; gives what came back.
async fn run(faults: &Faults) -> Vec<String> {
    work(&cluster(faults)).await
}

async fn work(cluster: &Cluster) -> Vec<String> {
    let mut heard = Vec::new();
    for round in 0..30 {
        let pod = format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"p{round}"}},"spec":{{"containers":[{{"name":"a","image":"b"}}]}}}}"#
        );
        let made = cluster.send(http::Method::POST, PODS, &pod).await;
        heard.push(format!("{:?}", made.map(|answer| answer.status)));
        for uri in [PODS, WATCH, CACHED, STREAMING] {
            heard.push(match cluster.get(uri).await {
                Err(end) => format!("{end:?}"),
                Ok(mut answer) => {
                    let end = answer.read().await;
                    format!("{} {end:?} {}", answer.status, answer.text())
                }
            });
        }
    }
    heard
}

fn without_rules(log: Vec<Injected>) -> Vec<String> {
    let text = |injected: Injected| injected.to_string().split(" (rule").next().unwrap().to_owned();
    log.into_iter().map(text).collect()
}

fn seeded(seed: u64) -> Faults {
    let script: Script = format!("seed {seed}\n{RULES}").parse().unwrap();
    Faults::from(script)
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_does_the_same() {
    let (first, second, other) = (seeded(11), seeded(11), seeded(12));
    let heard = run(&first).await;
    assert_eq!(heard, run(&second).await);
    assert_eq!(first.log(), second.log());
    assert!(first.log().len() > 30, "{}", first.log().len());
    assert_ne!(heard, run(&other).await);
}

#[tokio::test(start_paused = true)]
async fn the_printed_script_does_the_same() {
    let faults = seeded(13);
    let heard = run(&faults).await;
    let again = Faults::from(faults.script().to_string().parse::<Script>().unwrap());
    assert_eq!(run(&again).await, heard);
}

#[tokio::test(start_paused = true)]
async fn what_was_injected_replays_without_chance() {
    let faults = seeded(14);
    let heard = run(&faults).await;
    let script = faults.replay().to_string();
    assert!(!script.contains("probability"));
    let again = Faults::from(script.parse::<Script>().unwrap());
    assert_eq!(run(&again).await, heard);
    assert_eq!(without_rules(again.log()), without_rules(faults.log()));
}

/// A simulation that draws from `Fault::ALL_KINDS` gets what it draws: no kind needs more than a rule that names it.
#[tokio::test(start_paused = true)]
async fn every_kind_befalls_ordinary_requests() {
    for kind in Fault::ALL_KINDS {
        let cluster = Cluster::new().await;
        cluster.faults.inject(Rule::on(kind));
        for uri in [PODS, WATCH, STREAMING] {
            let request = Request::get(uri).header("accept-encoding", "gzip").body(Body::empty()).unwrap();
            if let Ok(mut answer) = cluster.request(request).await {
                answer.read().await;
            }
        }
        assert!(cluster.faults.count(kind) > 0, "{kind}");
    }
}

/// Whatever is thrown at it, the server itself stays whole: no panic, and all is well when the faults stop.
#[tokio::test(start_paused = true)]
async fn any_faults_at_all_leave_the_server_whole() {
    for seed in 0..SEEDS {
        let faults = any_faults(seed);
        let cluster = cluster(&faults);
        work(&cluster).await;
        faults.clear();
        let (list, _) = cluster.read(PODS).await;
        assert_eq!(list.status, 200, "{}", faults.script());
    }
}

/// Whatever was drawn, the printed script does it again, and so does the replay of what it did.
#[tokio::test(start_paused = true)]
async fn any_faults_at_all_can_be_had_again() {
    for seed in 0..SEEDS {
        let faults = any_faults(seed);
        let heard = run(&faults).await;
        for script in [faults.script(), faults.replay()] {
            let again = Faults::from(script.to_string().parse::<Script>().unwrap());
            assert_eq!(run(&again).await, heard, "seed {seed}: {}\nagain: {script}", faults.script());
            assert_eq!(without_rules(again.log()), without_rules(faults.log()), "seed {seed}");
        }
    }
}

fn any_faults(seed: u64) -> Faults {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..random.usize(1..8)).fold(Faults::seeded(seed), |faults, _| {
        let kind = Fault::ALL_KINDS[random.usize(..Fault::ALL_KINDS.len())];
        faults.rule(any_rule(kind, &mut random))
    })
}

fn any_rule(fault: Fault, random: &mut fastrand::Rng) -> Rule {
    let rule = Rule::on(fault).probability(0.05 + 0.4 * random.f64());
    match random.u8(..3) {
        0 => rule.after_events(random.u64(..4)),
        1 => rule.every(random.u64(1..4)),
        _ => rule.times(random.u64(1..9)),
    }
}
