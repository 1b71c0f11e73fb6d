//! A proxy on loopback that cuts, stops or refuses connections when told to. TLS passes through.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::Context;

/// Ends with its process.
pub(crate) struct Switch {
    pub(crate) port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    accepted: AtomicUsize,
    refuses: AtomicBool,
    open: Mutex<Vec<Through>>,
}

/// A connection: both ends, and whether bytes still pass.
struct Through {
    ends: [TcpStream; 2],
    stopped: Arc<AtomicBool>,
}

impl Switch {
    pub(crate) fn start(to: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        let (port, state) = (listener.local_addr()?.port(), Arc::new(State::default()));
        let accepting = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                accepting.accepted.fetch_add(1, Ordering::Relaxed);
                if !accepting.refuses.load(Ordering::Relaxed) {
                    // A server that is down: the client's connection is closed.
                    let _ = accepting.connect(client, to);
                }
            }
        });
        Ok(Self { port, state })
    }

    /// Closes every connection. Returns how many there were.
    pub(crate) fn cut(&self) -> usize {
        let open = std::mem::take(&mut *self.state.open.lock().expect("nobody panics while it is held"));
        for end in open.iter().flat_map(|through| &through.ends) {
            let _ = end.shutdown(Shutdown::Both);
        }
        open.len()
    }

    /// Lets nothing through the present connections any more, which stay open. New ones work.
    pub(crate) fn stop(&self) {
        for through in &*self.state.open.lock().expect("nobody panics while it is held") {
            through.stopped.store(true, Ordering::Relaxed);
        }
    }

    /// Closes new connections at once, or lets them through again.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.state.refuses.store(refuse, Ordering::Relaxed);
    }

    pub(crate) fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::Relaxed)
    }
}

impl State {
    fn connect(&self, client: TcpStream, to: u16) -> std::io::Result<()> {
        let server = TcpStream::connect(("127.0.0.1", to))?;
        for end in [&client, &server] {
            end.set_nodelay(true)?;
        }
        let stopped = Arc::new(AtomicBool::new(false));
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (from, to, stopped) = (from.try_clone()?, to.try_clone()?, Arc::clone(&stopped));
            thread::spawn(move || copy(from, to, &stopped));
        }
        let mut open = self.open.lock().expect("nobody panics while it is held");
        open.push(Through { ends: [client, server], stopped });
        Ok(())
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, stopped: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        while stopped.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_secs(1));
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // The end of a stopped connection does not pass either.
    if !stopped.load(Ordering::Relaxed) {
        let _ = to.shutdown(Shutdown::Write);
        let _ = from.shutdown(Shutdown::Read);
    }
}
