//! As much of an HTTP client as sources and exports need: one request a connection, responses whole or piece by piece.

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::time::SystemTime;

use weir_conf::split_port;
use weir_http::Method;
use weir_http::h1::{
    BodyLength, ChunkStrictness, ChunkedDecoder, HeadLimits, HeadParse, ResponseHead, TrailerLimits,
};
use weir_rt::RecvOutcome;
use weir_rt::file::errno_text;
use weir_rt::net::SockAddr;

use crate::connection::handshake;
use crate::connection::upstream_connection::{ConnectOptions, UpstreamConnection};
use crate::tls_client::SecureUpstream;
use crate::tls_client::connect::NoTls;
use weir_engine::worker::{UpstreamCloseProtocol, UpstreamCloseReason};

/// `http[s]://host[:port][/path]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceUrl {
    tls: Option<SourceTls>,
    /// As a `Host` field has it.
    host: Box<str>,
    name: Box<str>,
    port: u16,
    /// With its slash, or empty.
    pub(super) path: Box<str>,
}

impl SourceUrl {
    /// Reads an absolute URL. `trust`: what is wanted of servers that speak TLS.
    ///
    /// # Errors
    /// What is wrong with it, or with the file of trusted certificates.
    pub fn parse(text: &str, trust: &SourceTrust) -> Result<SourceUrl, String> {
        let (rest, secure) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(format!("invalid URL \"{text}\"")),
        };
        if !crate::discovery::source::is_plain(text) {
            return Err(format!("invalid URL \"{text}\""));
        }
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (name, port) = split_port(host).map_err(|_| format!("invalid port in URL \"{text}\""))?;
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        if bare.is_empty() || name.contains('@') {
            return Err(format!("no host in URL \"{text}\""));
        }
        let tls = if secure { Some(SourceTls::new(bare, trust)?) } else { None };
        let port = port.unwrap_or(if secure { 443 } else { 80 });
        Ok(SourceUrl { tls, host: host.into(), name: bare.into(), port, path: path.into() })
    }

    async fn connect(&self, timeout: u64) -> Result<UpstreamConnection, String> {
        let (name, port) = (self.name.clone(), self.port);
        let look_up = move || (&*name, port).to_socket_addrs().map(|found| found.collect::<Vec<_>>());
        let found = weir_rt::blocking(look_up).await.map_err(|error| error.to_string())?;
        let mut why = format!("{} has no address", self.name);
        for addr in found {
            match UpstreamConnection::open(
                UpstreamCloseProtocol::Http1,
                &SockAddr::from(addr),
                &ConnectOptions::default(),
                timeout,
            )
            .await
            {
                Ok(connection) => {
                    connection.end.expects(UpstreamCloseReason::Done);
                    match self.secure(&connection, timeout).await {
                        Ok(()) => return Ok(connection),
                        Err(message) => why = message,
                    }
                }
                Err(error) => {
                    why = match error.raw_os_error() {
                        Some(errno) => format!("connect() to {addr} failed ({errno}: {})", errno_text(errno)),
                        None => format!("connect() to {addr} timed out"),
                    }
                }
            }
        }
        Err(why)
    }

    /// Has the connection speak TLS, where the URL says so.
    async fn secure(&self, connection: &UpstreamConnection, timeout: u64) -> Result<(), String> {
        let Some(tls) = &self.tls else { return Ok(()) };
        match handshake::handshake(connection, &tls.secure, timeout).await {
            Ok(()) => Ok(()),
            Err(NoTls::TimedOut) => Err(TIMED_OUT.to_owned()),
            Err(NoTls::Failed(message)) => Err(message),
        }
    }

    /// Sends `body` to the URL's path; `fields` are whole lines. The response's status and the beginning of its body.
    /// `timeout`: milliseconds that nothing may happen for. To be awaited on a thread of [`weir_rt`].
    ///
    /// # Errors
    /// What went wrong.
    pub async fn post(
        &self,
        fields: &str,
        kind: &str,
        body: &[u8],
        timeout: u64,
    ) -> Result<(u16, Vec<u8>), String> {
        let target = if self.path.is_empty() { "/" } else { &*self.path };
        let mut answer = self.ask(target, fields, Some((kind, body)), timeout).await?;
        let mut said = Vec::new();
        while let Some(piece) = answer.piece(timeout).await? {
            let room = HEAD.saturating_sub(said.len());
            said.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        Ok((answer.status, said))
    }

    /// Asks for `target`; `fields` are whole lines. `body`: its media type, which is taken for responses, too, and
    /// itself. The response's head has come when this is ready.
    ///
    /// # Errors
    /// What went wrong.
    pub(super) async fn ask(
        &self,
        target: &str,
        fields: &str,
        body: Option<(&str, &[u8])>,
        timeout: u64,
    ) -> Result<SourceResponse, String> {
        let connection = self.connect(timeout).await?;
        let (method, host) = (if body.is_some() { "POST" } else { "GET" }, &self.host);
        let length = body.map_or(String::new(), |(kind, body)| {
            format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len())
        });
        let (kind, body) = body.unwrap_or((JSON, b""));
        let mut request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: weir\r\nAccept: {kind}\r\n\
             Connection: close\r\n{fields}{length}\r\n"
        )
        .into_bytes();
        request.extend_from_slice(body);
        connection.stream.send(request);
        let mut answer = SourceResponse {
            status: 0,
            fields: Vec::new(),
            connection,
            timeout,
            rest: Vec::new(),
            framing: SourceFraming::Over,
        };
        answer.head().await?;
        Ok(answer)
    }
}

/// What is wanted of a server that speaks TLS.
#[derive(Debug, Default)]
pub struct SourceTrust {
    /// `trusted_certificate=`: the path of a file of trusted certificates; `None`: the system's.
    pub file: Option<PathBuf>,
    /// `verify=off`: any certificate is trusted.
    pub blind: bool,
}

impl SourceTrust {
    /// The certificates that servers' must come from.
    fn path(&self) -> Result<Option<PathBuf>, String> {
        if self.blind {
            return Ok(None);
        }
        let system = || SYSTEM.iter().map(PathBuf::from).find(|path| path.is_file());
        let path = self.file.clone().or_else(system);
        path.map(Some).ok_or_else(|| {
            "the system has no trusted certificates: \"trusted_certificate=\" names a file".to_owned()
        })
    }
}

/// TLS, and what it was made of: made of the same it is the same.
#[derive(Clone, Debug)]
struct SourceTls {
    secure: SecureUpstream,
    of: (Option<PathBuf>, Option<SystemTime>),
}

impl SourceTls {
    fn new(name: &str, trust: &SourceTrust) -> Result<SourceTls, String> {
        let path = trust.path()?;
        let changed = path.as_ref().and_then(|path| path.metadata().ok()?.modified().ok());
        Ok(SourceTls { secure: SecureUpstream::to(name, path.as_deref())?, of: (path, changed) })
    }
}

impl PartialEq for SourceTls {
    fn eq(&self, other: &SourceTls) -> bool {
        self.of == other.of
    }
}

impl Eq for SourceTls {}

/// A response whose head is there.
pub(super) struct SourceResponse {
    pub(super) status: u16,
    fields: Vec<(String, String)>,
    connection: UpstreamConnection,
    timeout: u64,
    /// Received, and not read yet.
    rest: Vec<u8>,
    framing: SourceFraming,
}

enum SourceFraming {
    Over,
    UntilClose,
    Length(u64),
    Chunked(Box<ChunkedDecoder>),
}

impl SourceResponse {
    /// The value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    /// The whole body of a response with status 200.
    ///
    /// # Errors
    /// What went wrong; another status.
    pub(super) async fn body(mut self) -> Result<Vec<u8>, String> {
        if self.status != 200 {
            return Err(format!("the status was {}", self.status));
        }
        let mut body = Vec::new();
        while let Some(piece) = self.piece(self.timeout).await? {
            body.extend_from_slice(&piece);
            if body.len() > MOST {
                return Err("the list is too long".to_owned());
            }
        }
        Ok(body)
    }

    /// The next bytes of the body; `None`: it is over.
    ///
    /// # Errors
    /// What went wrong, or that nothing came for `timeout` milliseconds.
    pub(super) async fn piece(&mut self, timeout: u64) -> Result<Option<Vec<u8>>, String> {
        loop {
            let body = self.decode()?;
            if !body.is_empty() {
                return Ok(Some(body));
            }
            if matches!(self.framing, SourceFraming::Over) {
                return Ok(None);
            }
            if !self.receive(timeout).await? {
                return match self.framing {
                    SourceFraming::UntilClose => Ok(None),
                    _ => Err("the connection was closed within the answer".to_owned()),
                };
            }
        }
    }

    /// Frees what was received of its framing.
    fn decode(&mut self) -> Result<Vec<u8>, String> {
        let rest = std::mem::take(&mut self.rest);
        match &mut self.framing {
            SourceFraming::Over => Ok(Vec::new()),
            SourceFraming::UntilClose => Ok(rest),
            SourceFraming::Length(left) => {
                let mut rest = rest;
                rest.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= rest.len() as u64;
                if *left == 0 {
                    self.framing = SourceFraming::Over;
                }
                Ok(rest)
            }
            SourceFraming::Chunked(decoder) => {
                let (mut body, mut at, mut done) = (Vec::new(), 0, false);
                while !done && at < rest.len() {
                    let step =
                        decoder.decode(&rest[at..]).map_err(|_| "the answer is not chunked as it says")?;
                    body.extend_from_slice(&rest[at..][step.data]);
                    at += step.consumed;
                    done = step.done;
                }
                if done {
                    self.framing = SourceFraming::Over;
                }
                Ok(body)
            }
        }
    }

    async fn head(&mut self) -> Result<(), String> {
        let limits = HeadLimits { max_line: HEAD, max_head: HEAD, ..HeadLimits::default() };
        loop {
            let mut head = ResponseHead::default();
            match head.parse(&self.rest, &limits) {
                Ok(HeadParse::Complete) if (100..200).contains(&head.status) => {
                    drop(self.rest.drain(..head.len));
                }
                Ok(HeadParse::Complete) => {
                    self.take_head(&head);
                    return Ok(());
                }
                Ok(HeadParse::Incomplete { .. }) if self.rest.len() < HEAD => {
                    if !self.receive(self.timeout).await? {
                        return Err("the connection was closed without an answer".to_owned());
                    }
                }
                Ok(HeadParse::Incomplete { .. }) => return Err("the answer's head is too long".to_owned()),
                Err(error) => return Err(error.message().to_owned()),
            }
        }
    }

    fn take_head(&mut self, head: &ResponseHead) {
        let text = |span: weir_http::Span| String::from_utf8_lossy(span.of(&self.rest)).into_owned();
        self.fields = head.fields.iter().map(|field| (text(field.name), text(field.value))).collect();
        self.status = head.status;
        self.framing = match head.body_length(Method::Get) {
            BodyLength::None | BodyLength::Bytes(0) => SourceFraming::Over,
            BodyLength::Bytes(length) => SourceFraming::Length(length),
            BodyLength::Chunked => {
                let decoder = ChunkedDecoder::new(ChunkStrictness::Upstream, TrailerLimits::SKIPPED);
                SourceFraming::Chunked(Box::new(decoder))
            }
            BodyLength::UntilClose => SourceFraming::UntilClose,
        };
        self.rest.drain(..head.len);
    }

    /// `false`: the other side has closed.
    async fn receive(&mut self, timeout: u64) -> Result<bool, String> {
        self.connection.timer.arm(timeout);
        match self.connection.stream.recv(Some(&self.connection.timer)).await {
            RecvOutcome::Data(bytes) => {
                self.rest.extend_from_slice(&bytes);
                Ok(true)
            }
            RecvOutcome::Eof => Ok(false),
            RecvOutcome::TimedOut => Err(TIMED_OUT.to_owned()),
            RecvOutcome::Err(errno) => Err(format!("recv() failed ({errno}: {})", errno_text(errno))),
        }
    }

    /// Has the system find out when the other side is gone, of responses that may be silent for long.
    pub(super) fn probe(&self) {
        crate::connection::upstream_connection::probe(&self.connection);
    }
}

/// Where systems have the certificates that they trust: Debian, Fedora, SUSE, Alpine.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Nothing came in time.
pub(super) const TIMED_OUT: &str = "there was no answer in time";
/// The media type of what sources say, and are asked.
pub(super) const JSON: &str = "application/json";
/// The longest head.
const HEAD: usize = 64 * 1024;
/// The longest list, in bytes.
const MOST: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::{SourceTrust, SourceUrl};

    #[test]
    fn urls_are_read() {
        let blind = SourceTrust { blind: true, ..SourceTrust::default() };
        let url = SourceUrl::parse("http://[::1]:2379/a", &blind).expect("a URL");
        assert_eq!((&*url.host, &*url.name, url.port, &*url.path), ("[::1]:2379", "::1", 2379, "/a"));
        let url = SourceUrl::parse("http://etcd.example", &blind).expect("a URL");
        assert_eq!((&*url.name, url.port, &*url.path), ("etcd.example", 80, ""));
        let secure = SourceUrl::parse("https://etcd.example/x", &blind).expect("a URL");
        assert_eq!((&*secure.name, secure.port, secure.tls.is_some()), ("etcd.example", 443, true));
        assert_eq!(
            secure,
            SourceUrl::parse("https://etcd.example/x", &blind).expect("a URL"),
            "made of the same"
        );
        let lost = SourceTrust { file: Some("/nowhere/ca.pem".into()), blind: false };
        let why = SourceUrl::parse("https://etcd.example", &lost).expect_err("no such file");
        assert!(why.contains("\"/nowhere/ca.pem\""), "{why}");
        for wrong in ["ftp://a", "http://", "http://:1", "http://a:0", "http://u@a", "http://a b"] {
            assert!(SourceUrl::parse(wrong, &blind).is_err(), "{wrong}");
        }
    }
}
