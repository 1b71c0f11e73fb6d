//! A slow link: a proxy on loopback that lets only so many bytes through in a second.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

/// How much is let through at once: a hundredth of a second of a fast link.
const CHUNK: usize = 16 << 10;

/// Ends with its process; connections end with their ends.
pub(crate) struct Link {
    pub(crate) port: u16,
}

impl Link {
    /// A link to a port; what comes from there shares so many bytes a second.
    pub(crate) fn start(to: u16, bytes_per_second: u64) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        let port = listener.local_addr()?.port();
        let pace =
            Arc::new(Pace { bytes_per_second: bytes_per_second as f64, free_at: Mutex::new(Instant::now()) });
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let (Ok(up_from), Ok(up_to)) = (client.try_clone(), server.try_clone()) else { continue };
                let pace = Arc::clone(&pace);
                thread::spawn(move || copy(up_from, up_to, |_| {}));
                thread::spawn(move || copy(server, client, |bytes| pace.wait(bytes)));
            }
        });
        Ok(Self { port })
    }
}

/// When the next bytes may pass.
struct Pace {
    bytes_per_second: f64,
    free_at: Mutex<Instant>,
}

impl Pace {
    fn wait(&self, bytes: usize) {
        let until = {
            let mut free_at = self.free_at.lock().expect("nobody panics while it is held");
            *free_at = (*free_at).max(Instant::now())
                + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
            *free_at
        };
        thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, wait: impl Fn(usize)) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        wait(read);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
