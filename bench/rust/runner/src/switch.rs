//! A proxy on loopback that cuts, stops or refuses connections when told to. TLS passes through.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;

/// How long a server may take until it accepts connections, and how often that is tried.
const LIMIT: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(2);

/// Ends with its process.
pub(crate) struct Switch {
    pub(crate) port: u16,
    to: u16,
    state: Arc<State>,
    /// Owns the listener. `None` while connections are refused.
    accepting: Option<JoinHandle<()>>,
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
        let port = listener.local_addr()?.port();
        let mut switch = Self { port, to, state: Arc::default(), accepting: None };
        switch.listen(listener);
        Ok(switch)
    }

    fn listen(&mut self, listener: TcpListener) {
        self.state.refuses.store(false, Ordering::SeqCst);
        let (state, to) = (Arc::clone(&self.state), self.to);
        self.accepting = Some(thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if state.refuses.load(Ordering::SeqCst) {
                    return;
                }
                state.accepted.fetch_add(1, Ordering::Relaxed);
                // If the server is down, the client's connection is closed.
                let _ = state.connect(client, to);
            }
        }));
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

    /// Closes the listener and every connection, as the kernel does for a server that is down.
    pub(crate) fn refuse(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            self.state.refuses.store(true, Ordering::SeqCst);
            // This connection ends the wait for the next one.
            let _ = TcpStream::connect(("127.0.0.1", self.port));
            accepting.join().expect("nothing panics while it accepts");
        }
        self.cut();
    }

    /// Accepts connections on the same port again, once the server does.
    pub(crate) fn accept(&mut self) -> anyhow::Result<()> {
        if self.accepting.is_some() {
            return Ok(());
        }
        let (port, to) = (self.port, self.to);
        until_ok(|| TcpStream::connect(("127.0.0.1", to)))
            .context("the server does not accept connections")?;
        // The standard library sets SO_REUSEADDR, so that connections that have just ended do not hold the port.
        let listener = until_ok(|| TcpListener::bind(("127.0.0.1", port))).context("the port is taken")?;
        self.listen(listener);
        Ok(())
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

fn until_ok<T>(mut attempt: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(_) if begun.elapsed() < LIMIT => thread::sleep(STEP),
            result => return result,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_is_not_accepted_and_the_port_stays() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut switch = Switch::start(server.local_addr().unwrap().port()).unwrap();
        let connect = |port| TcpStream::connect(("127.0.0.1", port));
        let mut before = connect(switch.port).unwrap();
        server.accept().unwrap();
        switch.refuse();
        assert_eq!(before.read(&mut [0]).unwrap_or(0), 0, "a connection stayed open");
        assert_eq!(connect(switch.port).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
        switch.accept().unwrap();
        connect(switch.port).unwrap();
        while switch.accepted() < 2 {
            thread::sleep(STEP);
        }
    }
}
