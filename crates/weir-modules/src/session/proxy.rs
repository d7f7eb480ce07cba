//! `stream_proxy`: passes sessions to servers (nginx's `ngx_stream_proxy_module`).

use std::cell::RefCell;
use std::sync::Arc;

use weir_conf::names::{FLAG, MORE, ONE, ONE_OR_TWO, STREAM_ANY, STREAM_SERVER};
use weir_conf::{Directive, LineCx, Result, parse_size};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::{ValueScript, Variable};
use weir_engine::worker::UpstreamCloseProtocol;
use weir_engine::{Exchange, Module, Verdict, inherit};
use weir_upstream::protocol::{
    HeadProgress, IncomingHead, OutgoingRequest, SessionManners, UpstreamProtocol,
};
use weir_upstream::tls_client::client::{ClientConf, ClientTls};
use weir_upstream::tls_client::{SecureUpstream, TlsOverrides};
use weir_upstream::{FailureReason, UpstreamFamily, first_byte_times, session_times};

use crate::gateway::cgi::target::{CgiPass, SecureName, pass_requests};
use crate::gateway::family_rows::family_row;

/// The module `stream_proxy`.
pub struct StreamProxy;

impl Module for StreamProxy {
    const NAME: &'static str = "stream_proxy";
    type Conf = StreamProxyConf;
    const DIRECTIVES: &'static [Directive<StreamProxyConf>] = &[
        StreamProxyRow::new("proxy_pass", STREAM_SERVER, ONE, StreamProxyConf::set_pass)
            .syntax("proxy_pass address")
            .doc(
                "Passes sessions to the server: a host with its port, a UNIX-domain socket (`unix:path`), or an \
                 `upstream`. The address may contain variables.",
            )
            .example("stream {\n    upstream databases {\n        least_conn;\n        server 10.0.0.1:5432;\n        server 10.0.0.2:5432;\n    }\n    server {\n        listen 5432;\n        proxy_pass databases;\n    }\n}"),
        StreamProxyRow::new("proxy_bind", STREAM_ANY, ONE_OR_TWO, |c, l| {
            UpstreamFamily::set_bind(&mut c.family.bind, l)
        })
        .syntax("proxy_bind address [transparent]\nproxy_bind off")
        .doc(
            "Local address of connections to servers; it may contain variables. `transparent` allows an address that \
             is not this machine's. `off` cancels an inherited address.",
        ),
        StreamProxyRow::new("proxy_socket_keepalive", STREAM_ANY, FLAG, |c, l| {
            l.flag(&mut c.family.socket_keepalive)
        })
        .syntax("proxy_socket_keepalive on | off")
        .default("off")
        .doc("Turns TCP keepalive probes (`SO_KEEPALIVE`) on for connections to servers."),
        StreamProxyRow::new("proxy_connect_timeout", STREAM_ANY, ONE, |c, l| {
            l.time_ms(&mut c.family.connect_timeout)
        })
        .syntax("proxy_connect_timeout time")
        .default("60s")
        .doc("Timeout for establishing a connection with a server."),
        StreamProxyRow::new("proxy_timeout", STREAM_ANY, ONE, |c, l| l.time_ms(&mut c.family.read_timeout))
            .syntax("proxy_timeout time")
            .default("10m")
            .doc("Timeout after which a session ends in which neither side sends anything."),
        StreamProxyRow::new("proxy_buffer_size", STREAM_ANY, ONE, |c, l| l.size(&mut c.family.buffer_size))
            .syntax("proxy_buffer_size size")
            .default("16k")
            .doc("How much may wait to be sent to one side before no more is read from the other."),
        StreamProxyRow::new("proxy_upload_rate", STREAM_ANY, ONE, |c, l| {
            UpstreamFamily::set_rate(&mut c.upload_rate, l)
        })
        .syntax("proxy_upload_rate rate")
        .default("0")
        .doc("Bytes per second that are read from the client of a session; 0 is no limit. It may contain variables."),
        StreamProxyRow::new("proxy_download_rate", STREAM_ANY, ONE, |c, l| {
            UpstreamFamily::set_rate(&mut c.download_rate, l)
        })
        .syntax("proxy_download_rate rate")
        .default("0")
        .doc("Bytes per second that are read from the server of a session; 0 is no limit. It may contain variables."),
        StreamProxyRow::new("proxy_requests", STREAM_ANY, ONE, |c, l| l.number(&mut c.requests, ..))
            .syntax("proxy_requests number")
            .default("0")
            .doc(
                "Over UDP, the number of datagrams of a client that are one session: the next begins another. The session ends \
                 when they have been passed on and the responses that `proxy_responses` says have come, or by \
                 `proxy_timeout`. 0: all datagrams of a client are one session until it ends.",
            ),
        StreamProxyRow::new("proxy_responses", STREAM_ANY, ONE, |c, l| l.number(&mut c.responses, ..))
            .syntax("proxy_responses number")
            .doc(
                "Over UDP, the number of datagrams that are expected of the server for each of the client; with them the \
                 session ends. A server that has not sent them in `proxy_timeout` has failed. 0: none is expected, and \
                 the session ends with the client's datagram. By default their number is not known, and a session ends by \
                 `proxy_timeout`.",
            )
            .example("stream {\n    server {\n        listen 53 udp;\n        proxy_pass 10.0.0.1:53;\n        proxy_responses 1;\n        proxy_timeout 2s;\n    }\n}"),
        StreamProxyRow::new("proxy_half_close", STREAM_ANY, FLAG, |c, l| l.flag(&mut c.half_close))
            .syntax("proxy_half_close on | off")
            .default("off")
            .doc(
                "Lets each side of a session end its direction alone: the session goes on until both have. By default \
                 it ends with the first.",
            ),
        StreamProxyRow::new("proxy_next_upstream", STREAM_ANY, FLAG, StreamProxyConf::set_next_upstream)
            .syntax("proxy_next_upstream on | off")
            .default("on")
            .doc("Connects to the next server of the upstream when no connection can be established."),
        StreamProxyRow::new("proxy_next_upstream_tries", STREAM_ANY, ONE, |c, l| {
            l.number(&mut c.family.next_tries, ..)
        })
        .syntax("proxy_next_upstream_tries number")
        .default("0")
        .doc("Maximum number of servers that are tried for a session; 0 is no limit."),
        StreamProxyRow::new("proxy_next_upstream_timeout", STREAM_ANY, ONE, |c, l| {
            l.time_ms(&mut c.family.next_timeout)
        })
        .syntax("proxy_next_upstream_timeout time")
        .default("0")
        .doc("Time in which servers may be tried for a session; 0 is no limit."),
        StreamProxyRow::new("proxy_protocol", STREAM_ANY, ONE, |c, line| c.family.set_proxy_protocol(line))
            .syntax("proxy_protocol on | off | v1 | v2")
            .default("off")
            .doc("Sends the client's addresses at the beginning of connections to servers (PROXY protocol); `on` is version 1."),
        StreamProxyRow::new("proxy_ssl", STREAM_ANY, FLAG, |c, l| l.flag(&mut c.secure))
            .syntax("proxy_ssl on | off")
            .default("off")
            .doc("Speaks TLS with servers."),
        StreamProxyRow::new("proxy_ssl_alpn", STREAM_ANY, MORE, StreamProxyConf::set_alpn)
            .syntax("proxy_ssl_alpn protocol ...")
            .doc("Protocols that are offered to servers (ALPN). They may contain variables; those that are empty are left out."),
        family_row!(ssl_session_reuse, "proxy_ssl_session_reuse").within(STREAM_ANY),
        family_row!(ssl_protocols, "proxy_ssl_protocols").within(STREAM_ANY),
        family_row!(ssl_ciphers, "proxy_ssl_ciphers").within(STREAM_ANY),
        family_row!(ssl_name, "proxy_ssl_name").within(STREAM_ANY),
        family_row!(ssl_server_name, "proxy_ssl_server_name").within(STREAM_ANY),
        family_row!(ssl_verify, "proxy_ssl_verify").within(STREAM_ANY),
        family_row!(ssl_verify_depth, "proxy_ssl_verify_depth").within(STREAM_ANY),
        family_row!(ssl_trusted_certificate, "proxy_ssl_trusted_certificate").within(STREAM_ANY),
        family_row!(ssl_crl, "proxy_ssl_crl").within(STREAM_ANY),
        family_row!(ssl_certificate, "proxy_ssl_certificate").within(STREAM_ANY),
        family_row!(ssl_certificate_key, "proxy_ssl_certificate_key").within(STREAM_ANY),
        family_row!(ssl_certificate_cache, "proxy_ssl_certificate_cache").within(STREAM_ANY),
        family_row!(ssl_password_file, "proxy_ssl_password_file").within(STREAM_ANY),
        family_row!(ssl_conf_command, "proxy_ssl_conf_command").within(STREAM_ANY),
    ];

    const VARIABLES: &'static [Variable] = &[
        Variable::new("upstream_first_byte_time", first_byte_times).volatile(),
        Variable::new("upstream_session_time", session_times).volatile(),
    ];

    fn inherit(conf: &mut StreamProxyConf, parent: &StreamProxyConf) {
        conf.family.inherit(&parent.family);
        conf.ssl.inherit(&parent.ssl);
        inherit!(conf, parent, upload_rate, download_rate, half_close, secure, alpn, requests, responses);
    }

    fn resolve(conf: &mut StreamProxyConf, registry: &mut ConfRegistry) -> Result {
        let family = &mut conf.family;
        family.buffering = Some(false);
        family.request_buffering = Some(false);
        family.without_files = true;
        family.max_temp_file_size = Some(0);
        // A client that has said all may still want to hear.
        family.ignore_client_abort = Some(true);
        family.read_timeout.get_or_insert(TIMEOUT);
        let size = *family.buffer_size.get_or_insert(BUFFER);
        family.buffers = Some(weir_conf::BufferSizes { number: 8, size });
        family.resolve("proxy", &[], registry)?;
        let Some(pass) = &mut conf.pass else { return Ok(()) };
        pass.resolve(registry)?;
        if conf.secure == Some(true) {
            pass.always_secure();
            conf.ssl.resolve("proxy", registry)?;
        }
        Ok(())
    }

    fn install(conf: &StreamProxyConf, plan: &mut PlanBuilder<'_>) {
        pass_requests(plan, Self::NAME, conf.pass.as_ref(), &conf.family, |_| SessionProtocol {
            tls: conf.ssl.tls(),
            alpn: OfferedProtocols::new(conf.alpn.as_deref().unwrap_or_default()),
            half_close: conf.half_close.unwrap_or(false),
            upload_rate: conf.upload_rate.clone(),
            download_rate: conf.download_rate.clone(),
            requests: conf.requests.unwrap_or(0),
            responses: conf.responses,
        });
    }
}

/// Gives the closures of the table the type of their argument.
type StreamProxyRow = Directive<StreamProxyConf>;

/// The settings of one block; `None` where nothing was said.
#[derive(Default)]
pub struct StreamProxyConf {
    family: UpstreamFamily,
    ssl: ClientConf,
    /// `proxy_ssl`
    secure: Option<bool>,
    /// `proxy_ssl_alpn`
    alpn: Option<Vec<ValueScript>>,
    pass: Option<CgiPass>,
    upload_rate: Option<ValueScript>,
    download_rate: Option<ValueScript>,
    half_close: Option<bool>,
    requests: Option<u64>,
    responses: Option<u64>,
}

impl StreamProxyConf {
    fn set_pass(&mut self, line: &mut LineCx<'_>) -> Result {
        CgiPass::set(&mut self.pass, line)?;
        line.ext::<ConfRegistry>().claim_content(StreamProxy::NAME);
        Ok(())
    }

    /// `proxy_ssl_alpn protocol ...`
    fn set_alpn(&mut self, line: &mut LineCx<'_>) -> Result {
        let is_wrong = |name: &[u8]| name.is_empty() || name.len() > 255;
        if let Some(at) = line.args().iter().position(|word| is_wrong(word.bytes())) {
            let message = format!("invalid protocol \"{}\": a name has 1 to 255 bytes", line.arg(at));
            return Err(line.fail_arg(at, message));
        }
        let compiled =
            (0..line.args().len()).map(|at| ValueScript::compile(line, at)).collect::<Result<Vec<_>>>()?;
        line.once(&mut self.alpn, compiled)
    }

    /// `proxy_next_upstream on | off`
    fn set_next_upstream(&mut self, line: &mut LineCx<'_>) -> Result {
        let mut on = None;
        line.flag(&mut on)?;
        let reasons = match on {
            Some(false) => FailureReason::OFF.0,
            _ => FailureReason::ERROR.0 | FailureReason::TIMEOUT.0,
        };
        line.once(&mut self.family.next_upstream, reasons)
    }
}

/// There is nothing to speak.
struct SessionProtocol {
    /// `proxy_ssl_...`, where servers speak TLS.
    tls: Option<Arc<ClientTls>>,
    alpn: OfferedProtocols,
    half_close: bool,
    upload_rate: Option<ValueScript>,
    download_rate: Option<ValueScript>,
    /// `proxy_requests`
    requests: u64,
    /// `proxy_responses`
    responses: Option<u64>,
}

impl UpstreamProtocol for SessionProtocol {
    fn closes_as(&self) -> UpstreamCloseProtocol {
        UpstreamCloseProtocol::Tunnel
    }

    fn scheme(&self) -> &'static str {
        ""
    }

    fn secure_scheme(&self) -> &'static str {
        ""
    }

    fn secure(&self, x: &mut Exchange) -> Option<SecureUpstream> {
        if x.connection.is_flow() || x.state_if::<TlsOverrides>().is_some_and(|own| own.plain) {
            return None;
        }
        let host = x.state_if::<SecureName>()?.0.clone()?;
        let host = String::from_utf8_lossy(x.text(&host)).into_owned();
        let tls = self.alpn.offered(x, self.tls.as_ref()?);
        Some(tls.secure(x, &host))
    }

    fn opens_tunnels(&self) -> bool {
        true
    }

    fn session(&self, x: &mut Exchange) -> Option<SessionManners> {
        Some(SessionManners {
            half_close: self.half_close,
            upload_rate: rate(x, self.upload_rate.as_ref()),
            download_rate: rate(x, self.download_rate.as_ref()),
            requests: self.requests,
            responses: self.responses,
        })
    }

    fn request(&self, x: &mut Exchange, _out: &mut OutgoingRequest) -> std::result::Result<(), Verdict> {
        if let Some(bytes) = x.session() {
            bytes.is_passed.set(true);
        }
        Ok(())
    }

    /// Never asked: what a server sends is the client's.
    fn head(
        &self,
        _x: &mut Exchange,
        _bytes: &[u8],
        _incoming: &mut IncomingHead,
    ) -> std::result::Result<HeadProgress, String> {
        Err("upstream was asked for a response in a session".to_owned())
    }
}

/// `proxy_ssl_alpn`, with what is offered for each list of protocols that was computed so far.
struct OfferedProtocols {
    scripts: Vec<ValueScript>,
    known: RefCell<Vec<KnownOffer>>,
}

/// What is offered with these protocols.
struct KnownOffer {
    protocols: Vec<Vec<u8>>,
    tls: Arc<ClientTls>,
}

impl OfferedProtocols {
    fn new(scripts: &[ValueScript]) -> OfferedProtocols {
        OfferedProtocols { scripts: scripts.to_vec(), known: RefCell::default() }
    }

    /// `tls` with the protocols of `x`.
    fn offered(&self, x: &mut Exchange, tls: &Arc<ClientTls>) -> Arc<ClientTls> {
        if self.scripts.is_empty() {
            return tls.clone();
        }
        let values = self.scripts.iter().map(|script| {
            let value = script.value(x);
            x.text(&value).to_vec()
        });
        let protocols: Vec<Vec<u8>> = values.filter(|name| !name.is_empty() && name.len() <= 255).collect();
        let mut known = self.known.borrow_mut();
        if let Some(offer) = known.iter().find(|offer| offer.protocols == protocols) {
            return offer.tls.clone();
        }
        let tls = Arc::new(tls.offering(protocols.clone()));
        if known.len() == MOST_LISTS {
            known.remove(0);
        }
        known.push(KnownOffer { protocols, tls: tls.clone() });
        tls
    }
}

/// More lists of protocols than these are made again each time.
const MOST_LISTS: usize = 16;

/// The rate that `script` says for `x`, in bytes a second; what is no size is no limit, as in nginx.
fn rate(x: &mut Exchange, script: Option<&ValueScript>) -> u64 {
    let Some(script) = script else { return 0 };
    let value = script.value(x);
    parse_size(x.text(&value)).unwrap_or(0)
}

/// `proxy_timeout`, in milliseconds.
const TIMEOUT: u64 = 600_000;
/// `proxy_buffer_size`
const BUFFER: u64 = 16 * 1024;
