//! Follows the changes of pods: notes when each is heard, or counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use child::{argument, flag, number, say};
use k8s_openapi::api::core::v1::Pod;
use kube_informer::{EventHandler, HandlerOptions, Object};
use tokio::sync::Notify;

/// Hears updates; notes version and time of each, if asked to.
struct Follow {
    heard: Arc<Heard>,
    decode: bool,
    times: Option<std::io::BufWriter<std::fs::File>>,
}

#[derive(Default)]
struct Heard {
    updates: AtomicUsize,
    more: Notify,
}

impl EventHandler<Pod> for Follow {
    async fn on_update(&mut self, _: Object<Pod>, new: Object<Pod>) {
        use std::io::Write;
        if self.decode {
            assert!(new.get().is_ok(), "a pod can be read");
        }
        if let Some(times) = &mut self.times {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            writeln!(times, "{} {now}", new.version()).expect("the file can be written");
        }
        self.heard.updates.fetch_add(1, Ordering::Relaxed);
        self.heard.more.notify_one();
    }
}

#[tokio::main]
pub(crate) async fn run() -> anyhow::Result<()> {
    let factory = crate::options::factory().await?;
    let informer = factory.informer::<Pod>();
    let heard = Arc::new(Heard::default());
    let times = argument("--times").map(std::fs::File::create).transpose()?.map(std::io::BufWriter::new);
    let follow = Follow { heard: Arc::clone(&heard), decode: flag("--decode"), times };
    // As large as the number of events: none may be merged, for each is counted.
    let expected = number("--events", 0);
    let options = HandlerOptions::default().buffer_len(expected.max(1024));
    let registration = informer.add_handler_with(options, follow);
    factory.start();
    factory.wait_for_sync().await?;
    registration.wait_for_sync().await;
    crate::options::check_wire(&informer)?;
    say("synced");
    while heard.updates.load(Ordering::Relaxed) < expected {
        heard.more.notified().await;
    }
    // Closing writes out what is noted.
    registration.close().await;
    say(&format!("heard {}", heard.updates.load(Ordering::Relaxed)));
    Ok(())
}
