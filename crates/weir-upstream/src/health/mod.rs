//! `health_check`: servers are asked now and then whether they are well, and left out while they are not.
//!
//! The [thread](weir_engine::services) of what Weir does of its own accord checks for all workers, whatever these do: a task for
//! each upstream, which ends when its configuration is no longer in force. What is known of a server is in its
//! state, which workers share and a reload takes over. A name server's failure says nothing about a server: checked are
//! addresses.

pub(crate) mod grpc_check;
pub(crate) mod http_check;
pub(crate) mod match_block;

use std::sync::{Arc, OnceLock};

use weir_conf::{LineCx, Result, parse_number, parse_time_ms};

use crate::connection::upstream_connection::{ConnectOptions, UpstreamConnection};
use crate::health::grpc_check::GrpcCheckState;
use crate::health::http_check::{HttpCheckResult, timed_out};
use crate::health::match_block::{MatchBlocks, MatchRules};
use crate::peer::Peer;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::worker::{UpstreamCloseProtocol, UpstreamCloseReason};

/// How a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthCheckKind {
    /// A connection is enough.
    Tcp,
    Http,
    /// The health protocol of gRPC, over cleartext HTTP/2.
    Grpc,
}

/// How the servers of an upstream are checked.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    kind: HealthCheckKind,
    /// Milliseconds between the beginnings of two rounds, and what is added to it by chance for each server.
    pub(crate) interval: u64,
    pub(crate) jitter: u64,
    /// Milliseconds a check may take; never more than the interval.
    timeout: u64,
    /// Failures in a row that take a server out, successes in a row that bring it back.
    pub(crate) fails: u32,
    pub(crate) passes: u32,
    uri: Box<str>,
    /// The service that is asked for; empty: the whole server.
    grpc_service: Box<str>,
    /// The `grpc-status` of one that is well; 0 unless another is said, and then the service has to be serving.
    grpc_status: Option<u32>,
    host: Option<Box<str>>,
    /// The statuses of one that is well.
    statuses: Vec<(u16, u16)>,
    /// The `match` block that says what its response must be, in the place of `statuses`.
    matching: Option<Arc<OnceLock<MatchRules>>>,
    /// A server gets no requests before it was found healthy.
    pub(crate) mandatory: bool,
}

impl HealthCheck {
    /// `health_check [type=http|tcp|grpc] [interval=time] [jitter=time] [timeout=time] [fails=number] [passes=number]
    /// [uri=uri] [host=name] [status=200-399,... | match=name] [grpc_service=name] [grpc_status=code] [mandatory]`
    pub(crate) fn parse(line: &mut LineCx<'_>) -> Result<HealthCheck> {
        let mut check = HealthCheck {
            kind: HealthCheckKind::Http,
            interval: 5_000,
            jitter: 0,
            timeout: UNSAID,
            fails: 1,
            passes: 1,
            uri: "/".into(),
            grpc_service: "".into(),
            grpc_status: None,
            host: None,
            statuses: vec![(200, 399)],
            matching: None,
            mandatory: false,
        };
        for at in 0..line.args().len() {
            match line.arg(at).strip_prefix("match=").filter(|name| !name.is_empty()) {
                Some(name) => {
                    let (name, span) = (name.to_owned(), line.args()[at].span);
                    let registry: &mut ConfRegistry = line.ext();
                    check.matching = Some(registry.shared::<MatchBlocks>().want(&name, span));
                }
                None => check.parameter(line.arg(at)).ok_or_else(|| line.invalid_parameter(at))?,
            }
        }
        check
            .agree()
            .map_err(|parameter| line.fail(format!("\"{parameter}\" is of no use with this \"type\"")))?;
        if check.timeout == UNSAID {
            check.timeout = check.interval.min(5_000);
        }
        Ok(check)
    }

    fn parameter(&mut self, text: &str) -> Option<()> {
        let positive = |value: &str| parse_time_ms(value.as_bytes()).filter(|ms| *ms > 0);
        let count = |value: &str| {
            parse_number(value.as_bytes()).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0)
        };
        match text.split_once('=') {
            None if text == "mandatory" => self.mandatory = true,
            Some(("type", "http")) => self.kind = HealthCheckKind::Http,
            Some(("type", "tcp")) => self.kind = HealthCheckKind::Tcp,
            Some(("type", "grpc")) => self.kind = HealthCheckKind::Grpc,
            Some(("grpc_service", value)) if !value.is_empty() => self.grpc_service = value.into(),
            Some(("grpc_status", value)) => {
                let number = parse_number(value.as_bytes())?;
                self.grpc_status = Some(u32::try_from(number).ok().filter(|status| *status <= LAST_STATUS)?);
            }
            Some(("interval", value)) => self.interval = positive(value)?,
            Some(("jitter", value)) => self.jitter = parse_time_ms(value.as_bytes())?,
            Some(("timeout", value)) => self.timeout = positive(value)?,
            Some(("fails", value)) => self.fails = count(value)?,
            Some(("passes", value)) => self.passes = count(value)?,
            Some(("uri", value)) if is_plain(value) && value.starts_with('/') => self.uri = value.into(),
            Some(("host", value)) if is_plain(value) && !value.is_empty() => self.host = Some(value.into()),
            Some(("status", value)) => {
                self.statuses = value.split(',').map(statuses).collect::<Option<_>>()?;
            }
            _ => return None,
        }
        Some(())
    }

    /// The parameter that says something about another type of check.
    fn agree(&self) -> std::result::Result<(), &'static str> {
        let of_grpc =
            [("grpc_service", !self.grpc_service.is_empty()), ("grpc_status", self.grpc_status.is_some())];
        let of_http = [("match", self.matching.is_some())];
        let wrong = match self.kind {
            HealthCheckKind::Grpc => of_http.iter().find(|(_, given)| *given),
            HealthCheckKind::Http | HealthCheckKind::Tcp => of_grpc.iter().find(|(_, given)| *given),
        };
        wrong.map_or(Ok(()), |(parameter, _)| Err(*parameter))
    }

    /// Asks `peer` once.
    pub(crate) async fn ask(&self, upstream: &str, peer: &Peer) -> std::result::Result<(), String> {
        let how = ConnectOptions { local: peer.bind.as_ref(), ..ConnectOptions::default() };
        let connection =
            UpstreamConnection::open(UpstreamCloseProtocol::Check, &peer.addr, &how, self.timeout)
                .await
                .map_err(|error| match error.raw_os_error() {
                    Some(errno) => {
                        format!("connect() failed ({errno}: {})", weir_rt::file::errno_text(errno))
                    }
                    None => timed_out(),
                })?;
        connection.end.expects(UpstreamCloseReason::Done);
        let host = self.host.as_deref().unwrap_or(upstream);
        match self.kind {
            HealthCheckKind::Tcp => Ok(()),
            HealthCheckKind::Http => self.ask_http(&connection, host).await,
            HealthCheckKind::Grpc => self.ask_grpc(&connection, host).await,
        }
    }

    /// Its service must be serving; where another status than 0 is wanted, that status is enough.
    async fn ask_grpc(&self, connection: &UpstreamConnection, host: &str) -> std::result::Result<(), String> {
        connection.timer.arm(self.timeout);
        let answer = grpc_check::ask(connection, host, &self.grpc_service).await?;
        match (answer.status, answer.serving) {
            (status, _) if status != self.grpc_status.unwrap_or(0) => {
                Err(format!("the gRPC status was {status}"))
            }
            (0, serving) if serving != GrpcCheckState::Serving => Err(format!("the service is {serving}")),
            _ => Ok(()),
        }
    }

    async fn ask_http(&self, connection: &UpstreamConnection, host: &str) -> std::result::Result<(), String> {
        let uri = &self.uri;
        let request =
            format!("GET {uri} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: weir\r\nConnection: close\r\n\r\n");
        connection.stream.send(request.into_bytes());
        connection.timer.arm(self.timeout);
        let mut answer = HttpCheckResult::head(connection).await?;
        let matching = self.matching.as_ref().and_then(|matching| matching.get());
        let status = answer.status();
        let well = match matching {
            Some(matching) => matching.status(status),
            None => self.statuses.iter().any(|(from, to)| (*from..=*to).contains(&status)),
        };
        if !well {
            return Err(format!("the status was {status}"));
        }
        let Some(matching) = matching else { return Ok(()) };
        if matching.needs_body() {
            answer.read_body(connection).await?;
        }
        matching.judge(&answer)
    }
}

/// `200` or `200-399`
pub(crate) fn statuses(text: &str) -> Option<(u16, u16)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse().ok().filter(|status| (100..600).contains(status));
    let (from, to): (u16, u16) = (number(from)?, number(to)?);
    (from <= to).then_some((from, to))
}

/// Nothing that would end a line or a word of a request.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The last status that gRPC has (UNAUTHENTICATED).
const LAST_STATUS: u32 = 16;
/// No `timeout=`: no longer than the interval, and five seconds at most.
const UNSAID: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_numbers_and_ranges() {
        assert_eq!(statuses("204"), Some((204, 204)));
        assert_eq!(statuses("200-399"), Some((200, 399)));
        for wrong in ["", "99", "600", "300-200", "2xx", "200-"] {
            assert_eq!(statuses(wrong), None, "{wrong}");
        }
    }
}
