//! Which hosts a server on a socket answers for.
//!
//! The server does not authenticate, so a web page must not be able to send requests through a browser on this machine: neither
//! under a name of its own that leads to this machine (DNS rebinding), nor by sending requests to an address of it.

use std::net::{IpAddr, SocketAddr};

use http::uri::Authority;
use http::{HeaderMap, Request, header};

use crate::status::{Answer, Status};

/// The names under which clients may address a server on a socket.
#[derive(Debug)]
pub(crate) struct Hosts {
    listens_on: IpAddr,
    named: Vec<String>,
}

impl Hosts {
    /// `named` are hosts beside the loopback ones.
    pub(crate) fn new(address: SocketAddr, named: &[String]) -> Self {
        Self { listens_on: address.ip(), named: named.to_vec() }
    }

    /// Refuses a request for another host, and one that a page of another origin sends.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Answer<()> {
        let headers = request.headers();
        let host = host(request)?;
        if !self.knows(&host) {
            let hint =
                if self.listens_on.is_loopback() { "localhost, 127.0.0.1 or [::1]" } else { "an address" };
            let shown = quoted(host.as_str());
            return Err(forbidden(format!(
                "the host {shown} is not served here: use {hint}, or allow the name when the server is started"
            )));
        }
        match headers.get(header::ORIGIN) {
            Some(origin) if !is_same_origin(origin.as_bytes(), &host) => {
                let shown = quoted(&String::from_utf8_lossy(origin.as_bytes()));
                Err(forbidden(format!(
                    "requests from the origin {shown} are not served: it is not this server's"
                )))
            }
            _ => Ok(()),
        }
    }

    fn knows(&self, host: &Authority) -> bool {
        let name = host.host();
        if name.eq_ignore_ascii_case("localhost")
            || self.named.iter().any(|known| known.eq_ignore_ascii_case(name))
        {
            return true;
        }
        let Ok(address) = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() else {
            return false;
        };
        let is_loopback = address.to_string() == "127.0.0.1" || address.to_string() == "::1";
        // Beyond loopback, which addresses lead here is not known; but no name can be made to lead to a written address.
        is_loopback || address == self.listens_on || !self.listens_on.is_loopback()
    }
}

/// The one host that the request is for. In the absolute form, the URI and the header must agree.
fn host<B>(request: &Request<B>) -> Answer<Authority> {
    let missing = || Status::bad_request("the request must name exactly one host");
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let in_header = match (hosts.next(), hosts.next()) {
        (None, _) => None,
        (Some(host), None) => {
            let host = Authority::try_from(host.as_bytes()).map_err(|_| missing())?;
            // Credentials do not belong into a host, and would hide it.
            Some(host).filter(|host| !host.as_str().contains('@')).ok_or_else(missing).map(Some)?
        }
        (Some(_), Some(_)) => return Err(missing()),
    };
    match (request.uri().authority().cloned(), in_header) {
        (Some(uri), Some(header)) if uri != header => Err(missing()),
        (Some(uri), _) if uri.as_str().contains('@') => Err(missing()),
        (Some(host), _) | (None, Some(host)) => Ok(host),
        (None, None) => Err(missing()),
    }
}

/// Whether an `Origin` names this very server, as the request itself does.
fn is_same_origin(origin: &[u8], host: &Authority) -> bool {
    let authority = origin.strip_prefix(b"http://").and_then(|rest| Authority::try_from(rest).ok());
    authority.is_some_and(|authority| authority == *host)
}

fn forbidden(message: String) -> Status {
    Status::new(403, "Forbidden", message)
}

/// A text of the client, short and on one line.
fn quoted(text: &str) -> String {
    let short: String = text.chars().take(100).collect();
    format!("{short:?}")
}

/// How refusals are encoded.
pub(crate) fn refuse(status: Status, headers: &HeaderMap) -> http::Response<crate::Body> {
    status.into_response(crate::negotiate::status_coding(headers))
}
