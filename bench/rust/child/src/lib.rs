//! What every participant written in Rust does: speaks with the runner by lines, and gives memory back when it is to be measured.

use std::io::{Write, stdin, stdout};

/// The label that says which workload a pod belongs to.
pub const WORKLOAD_LABEL: &str = "app.kubernetes.io/name";

/// How often all objects are read, and an index is asked; on how many nodes pods are.
pub const READ_TIMES: usize = 20;
pub const READ_LOOKUPS: usize = 2_000;
pub const READ_NODES: usize = 500;

/// The label that says which round last touched an object.
pub const TOUCHED: &str = "bench.example.com/touched";

/// The kinds that are followed while a server is restarted: API version, kind, resource, and whether it has namespaces.
pub const KINDS: [(&str, &str, &str, bool); 20] = [
    ("v1", "Pod", "pods", true),
    ("v1", "Service", "services", true),
    ("v1", "ConfigMap", "configmaps", true),
    ("v1", "Secret", "secrets", true),
    ("v1", "ServiceAccount", "serviceaccounts", true),
    ("v1", "Node", "nodes", false),
    ("v1", "Namespace", "namespaces", false),
    ("v1", "Event", "events", true),
    ("v1", "ResourceQuota", "resourcequotas", true),
    ("v1", "LimitRange", "limitranges", true),
    ("apps/v1", "Deployment", "deployments", true),
    ("apps/v1", "ReplicaSet", "replicasets", true),
    ("apps/v1", "StatefulSet", "statefulsets", true),
    ("apps/v1", "DaemonSet", "daemonsets", true),
    ("batch/v1", "Job", "jobs", true),
    ("batch/v1", "CronJob", "cronjobs", true),
    ("networking.k8s.io/v1", "Ingress", "ingresses", true),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", true),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true),
];

/// Tells the runner that something is done, and waits until it has measured. Ends the process if the runner is gone.
pub fn say(moment: &str) {
    let mut out = stdout();
    let told = writeln!(out, "{moment}").and_then(|()| out.flush());
    let mut line = String::new();
    if told.is_err() || stdin().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(0);
    }
}

/// Ends this process soon after the runner's end, whatever it is doing then. A runner that is killed cannot see to that itself.
pub fn end_with_runner() {
    let runner = std::os::unix::process::parent_id();
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == runner {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        std::process::exit(0);
    });
}

/// Returns memory that is not in use to the system.
pub fn give_back() {
    // SAFETY: malloc_trim may be called at any time from any thread; it takes the allocator's own locks.
    #[allow(unsafe_code, reason = "glibc offers it to C alone")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The value of `--name VALUE` among the arguments.
pub fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.next().and(arguments.next())
}

/// Whether `--name` is among the arguments.
pub fn flag(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}

/// The number given as `--name NUMBER`, or another one.
pub fn number(name: &str, otherwise: usize) -> usize {
    argument(name).and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// A small pod as JSON, of about 600 bytes: for the cases that are about the store and not about objects.
pub fn small_pod(number: usize, version: u64) -> String {
    let (namespace, app, node) = (number % 100, number % 1_000, number % 500);
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"app-{app:04}-{number:08}","namespace":"team-{namespace:03}","uid":"8c2e6d2e-0000-4000-8000-{number:012}","resourceVersion":"{version}","labels":{{"app":"app-{app:04}","tier":"web"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"app-{app:04}","uid":"owner-{app:04}","controller":true}}]}},"spec":{{"nodeName":"node-{node:04}","containers":[{{"name":"main","image":"app-{app:04}:v1"}}]}},"status":{{"phase":"Running","podIP":"10.0.0.1","startTime":"2026-01-01T00:00:00Z"}}}}"#
    )
}

/// Writes one object after the other for a while, alone and beside threads that list or only spin, and says how many a second.
///
/// `write` gets the number of the write; `list` makes what each listing thread repeats.
pub fn write_beside_readers<F: FnMut() + Send + 'static>(mut write: impl FnMut(usize), list: impl Fn() -> F) {
    let time = std::time::Duration::from_millis(number("--millis", 2_000) as u64);
    let mut turn = 0;
    let mut update = |time: std::time::Duration| {
        let (start, first) = (std::time::Instant::now(), turn);
        while start.elapsed() < time {
            // The clock is not looked at for every write.
            for _ in 0..16 {
                write(turn);
                turn += 1;
            }
        }
        (turn - first) as f64 / start.elapsed().as_secs_f64()
    };
    update(time / 4);
    let alone = update(time);
    let one = {
        let _crowd = Crowd::start(1, &list);
        update(time)
    };
    let ten = {
        let _crowd = Crowd::start(10, &list);
        update(time)
    };
    let spinning = {
        let _crowd = Crowd::start(10, || std::hint::spin_loop);
        update(time)
    };
    say(&format!("updates {alone} {one} {ten} {spinning}"));
}

/// Threads that do something over and over until they are dropped.
pub struct Crowd {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Crowd {
    /// Starts as many threads, each of which repeats what `work` makes for it.
    pub fn start<F: FnMut() + Send + 'static>(threads: usize, work: impl Fn() -> F) -> Self {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let thread = |_| {
            let (stop, mut work) = (stop.clone(), work());
            std::thread::spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    work();
                }
            })
        };
        let threads = (0..threads).map(thread).collect();
        Self { stop, threads }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("the work of a crowd does not panic");
        }
    }
}
