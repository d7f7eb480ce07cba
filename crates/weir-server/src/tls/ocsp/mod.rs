//! Asking issuers for the state of certificates: the server's own, to be stapled ([`stapling`]), and clients'
//! ([`clients`]). Here is how a responder is asked: with GET over HTTP/1.0 (RFC 6960, appendix A.1), once, through the
//! calling thread's own loop: a client's certificate on its worker, stapling on the [thread](weir_engine::services) that no worker
//! holds up.

pub(super) mod clients;
pub(super) mod stapling;

use std::sync::Arc;

use weir_http::escape::{EscapeSet, escape};
use weir_http::h1::{HeadLimits, HeadParse, ResponseHead};
use weir_rt::RecvOutcome;
use weir_rt::net::SockAddr;

use weir_conf::split_port;
use weir_engine::resolver::{self, Resolver};
use weir_engine::worker::{UpstreamCloseProtocol, UpstreamCloseReason};
use weir_upstream::connection::upstream_connection::{ConnectOptions, UpstreamConnection};

/// The responder for an issuer, as `http://host[:port]/path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OcspResponder {
    url: String,
    /// As in the URL, with its port.
    authority: String,
    host: String,
    port: u16,
    /// Ends with a slash: the request follows.
    path: String,
}

impl OcspResponder {
    /// # Errors
    /// What is wrong with `url`, as it is written between nginx's words for that.
    pub(super) fn parse(url: &str) -> Result<OcspResponder, &'static str> {
        let rest = url.strip_prefix("http://").ok_or("invalid URL prefix")?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = split_port(authority).map_err(|_| "invalid port")?;
        let plain = url.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || !plain {
            return Err("invalid host");
        }
        let end = if path.ends_with('/') { "" } else { "/" };
        Ok(OcspResponder {
            url: url.to_owned(),
            authority: authority.to_owned(),
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: port.unwrap_or(80),
            path: format!("{path}{end}"),
        })
    }

    /// The response about the certificate `id`, unread.
    ///
    /// # Errors
    /// Why it is absent.
    async fn ask(&self, names: &ResponderNames, id: &[u8]) -> Result<Vec<u8>, String> {
        let mut last = format!("{} could not be resolved", self.host);
        for addr in self.addresses(names).await? {
            match self.exchange(&addr, id).await {
                Ok(response) => return Ok(response),
                Err(why) => last = format!("{why}, peer: {addr}"),
            }
        }
        Err(last)
    }

    async fn addresses(&self, names: &ResponderNames) -> Result<Vec<SockAddr>, String> {
        if let Some(ip) = resolver::literal(&self.host) {
            return Ok(vec![(ip, self.port).into()]);
        }
        let unresolved = |why: &dyn std::fmt::Display| format!("{} could not be resolved ({why})", self.host);
        match &names.resolver {
            Some((resolver, timeout)) => {
                let question = resolver::question(&self.host).map_err(|failure| unresolved(&failure))?;
                let found = resolver.resolve(&question, *timeout).await;
                let found = found.map_err(|failure| unresolved(&failure))?;
                Ok(found.addresses.iter().map(|ip| (*ip, self.port).into()).collect())
            }
            None if names.system => {
                let place = (self.host.clone(), self.port);
                let found = weir_rt::blocking(move || {
                    std::net::ToSocketAddrs::to_socket_addrs(&place).map(|found| found.collect::<Vec<_>>())
                });
                let found = found.await.map_err(|error| unresolved(&error))?;
                Ok(found.into_iter().map(SockAddr::from).collect())
            }
            None => Err(format!("no resolver defined to resolve {}", self.host)),
        }
    }

    async fn exchange(&self, addr: &SockAddr, id: &[u8]) -> Result<Vec<u8>, String> {
        let failed =
            |call: &str, errno: i32| format!("{call} failed ({errno}: {})", weir_rt::file::errno_text(errno));
        const ETIMEDOUT: i32 = 110;
        let UpstreamConnection { stream, timer, end, .. } =
            UpstreamConnection::open(UpstreamCloseProtocol::Http1, addr, &ConnectOptions::default(), TIMEOUT)
                .await
                .map_err(|error| failed("connect()", error.raw_os_error().unwrap_or(ETIMEDOUT)))?;
        end.expects(UpstreamCloseReason::Done);
        stream.send(self.request(id));
        timer.arm(TIMEOUT);
        let mut received = Vec::new();
        loop {
            let ended = match stream.recv(Some(&timer)).await {
                RecvOutcome::Data(bytes) => {
                    received.extend_from_slice(&bytes);
                    false
                }
                RecvOutcome::Eof => true,
                RecvOutcome::TimedOut => return Err("OCSP responder timed out".to_owned()),
                RecvOutcome::Err(errno) => return Err(failed("recv()", errno)),
            };
            if let Some(response) = body(&received, ended)? {
                return Ok(response);
            }
        }
    }

    fn request(&self, id: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        weir_http::base64::encode(&weir_tls::ocsp::request(id), &mut text);
        let mut request = format!("GET {}", self.path).into_bytes();
        escape(&mut request, &text, EscapeSet::UriComponent);
        let authority = &self.authority;
        request.extend(format!(" HTTP/1.0\r\nHost: {authority}\r\n\r\n").into_bytes());
        request
    }
}

/// How names of responders are found.
#[derive(Clone, Debug)]
pub(super) struct ResponderNames {
    /// With the milliseconds that it may take.
    pub(super) resolver: Option<(Arc<Resolver>, u64)>,
    /// Without a resolver the system is asked, as nginx does when it starts.
    pub(super) system: bool,
}

/// The whole body of a response; `None`: more must come.
fn body(received: &[u8], ended: bool) -> Result<Option<Vec<u8>>, String> {
    let limits = HeadLimits { max_line: MOST_HEAD, max_head: MOST_HEAD, ..HeadLimits::default() };
    let mut head = ResponseHead::default();
    match head.parse(received, &limits) {
        Ok(HeadParse::Complete) => {}
        Ok(HeadParse::Incomplete { .. }) if !ended && received.len() < MOST => return Ok(None),
        Ok(HeadParse::Incomplete { .. }) => return Err(CLOSED.to_owned()),
        Err(error) => return Err(format!("OCSP responder: {}", error.message())),
    }
    if head.status != 200 {
        return Err(format!("OCSP responder answered with status {}", head.status));
    }
    let kind = head.fields.iter().find(|field| field.name.of(received).eq_ignore_ascii_case(b"content-type"));
    let kind = kind.map_or(&b""[..], |field| field.value.of(received));
    if !kind.eq_ignore_ascii_case(b"application/ocsp-response") {
        let kind = String::from_utf8_lossy(kind);
        return Err(format!("OCSP responder sent invalid \"Content-Type\" header: \"{kind}\""));
    }
    let body = &received[head.len..];
    if body.len() > MOST {
        return Err("OCSP responder sent a response that is too large".to_owned());
    }
    match head.content_length.map(|length| usize::try_from(length).unwrap_or(usize::MAX)) {
        Some(length) if body.len() >= length => Ok(Some(body[..length].to_vec())),
        None if ended => Ok(Some(body.to_vec())),
        _ if ended => Err(CLOSED.to_owned()),
        _ => Ok(None),
    }
}

/// Milliseconds until a responder must have taken the connection, and between two pieces of its response, as in nginx.
const TIMEOUT: u64 = 60_000;
const MOST_HEAD: usize = 8 * 1024;
/// Bytes of a response; one with a whole chain of certificates has 5 KB.
const MOST: usize = 64 * 1024;
const CLOSED: &str = "OCSP responder prematurely closed connection";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_responders() {
        let responder = OcspResponder::parse("http://ocsp.example.com:8080/a").expect("an address");
        assert_eq!((responder.host.as_str(), responder.port), ("ocsp.example.com", 8080));
        let request = String::from_utf8(responder.request(&[0xff; 3])).expect("text");
        assert!(request.starts_with("GET /a/MAkwBzAFMAP%2F%2F%2F8%3D HTTP/1.0\r\n"), "{request}");
        assert!(request.ends_with("\r\nHost: ocsp.example.com:8080\r\n\r\n"), "{request}");
        let six = OcspResponder::parse("http://[::1]").expect("an address");
        assert_eq!((six.host.as_str(), six.port, six.path.as_str()), ("::1", 80, "/"));
        for wrong in ["https://a/", "a", "http://", "http://a:x/", "http:///", "http://a b/"] {
            assert!(OcspResponder::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn answers_end_by_length_or_with_the_connection() {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/ocsp-response\r\n";
        let with_length = format!("{head}Content-Length: 3\r\n\r\nabcd");
        for cut in 0..with_length.len() - 1 {
            assert_eq!(body(&with_length.as_bytes()[..cut], false), Ok(None), "{cut}");
            assert!(body(&with_length.as_bytes()[..cut], true).is_err(), "{cut}");
        }
        assert_eq!(body(with_length.as_bytes(), false), Ok(Some(b"abc".to_vec())));
        let without = format!("{head}\r\nabc");
        assert_eq!(body(without.as_bytes(), false), Ok(None));
        assert_eq!(body(without.as_bytes(), true), Ok(Some(b"abc".to_vec())));
        assert!(body(b"HTTP/1.1 404 Not Found\r\n\r\n", false).is_err());
        assert!(body(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", false).is_err());
    }
}
