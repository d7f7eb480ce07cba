//! `grpc_pass`: requests answered by gRPC servers (nginx's `ngx_http_grpc_module`).
//!
//! gRPC is HTTP/2 with trailers and streams that go on in both directions at once: nothing of it is buffered here. What
//! speaks HTTP/2 to servers is the core's.

mod pass;

use std::sync::Arc;

use weir_conf::names::{ANY, FLAG, LOCATION, LOCATION_IF, MORE, ONE, ONE_OR_TWO, TWO};
use weir_conf::{Args, Directive, Result};
use weir_engine::conf::registry::Registry;
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Module, Text, Unnamed, Verdict, inherit};
use weir_http::Known;
use weir_upstream::config::directives::IGNORED;
use weir_upstream::protocol::{Framing, Head, Incoming, Outgoing, Protocol};
use weir_upstream::tls_client::Secure;
use weir_upstream::tls_client::client::{ClientConf, ClientTls};
use weir_upstream::{Family, Reason, pass_to};

use crate::gateway::proxy::pass::Goal;
use crate::gateway::proxy::request::{self, Fields, SetHeaders};
use pass::Pass;

/// The module.
pub struct Grpc;

impl Module for Grpc {
    const NAME: &'static str = "grpc";
    type Conf = GrpcConf;
    const DIRECTIVES: &'static [Directive<GrpcConf>] = &[
        Row::new("grpc_pass", LOCATION.or(LOCATION_IF), ONE, |c, l| {
            l.ext::<Registry>().claim_content(Self::NAME);
            Pass::set(&mut c.pass, l)
        })
            .doc("Has requests answered by a gRPC server, or by one of a group; grpc:// or grpcs:// may stand before."),
        Row::new("grpc_set_header", ANY, TWO, |c, l| request::set_header(&mut c.set_headers, l))
            .doc("A field of requests to servers; an empty value leaves the field out."),
        Row::new("grpc_bind", ANY, ONE_OR_TWO, |c, l| Family::set_bind(&mut c.family.bind, l))
            .doc("The local address that connections to servers begin at."),
        Row::new("grpc_socket_keepalive", ANY, FLAG, |c, l| l.flag(&mut c.family.socket_keepalive))
            .doc("Probes connections to servers (SO_KEEPALIVE)."),
        Row::new("grpc_socket_rcvbuf", ANY, ONE, |c, l| l.size(&mut c.family.socket_rcvbuf))
            .doc("How much the kernel keeps of what servers send (SO_RCVBUF); 0: as it likes."),
        Row::new("grpc_socket_sndbuf", ANY, ONE, |c, l| l.size(&mut c.family.socket_sndbuf))
            .doc("How much the kernel keeps of what is sent to servers (SO_SNDBUF); 0: as it likes."),
        Row::new("grpc_connect_timeout", ANY, ONE, |c, l| l.time_ms(&mut c.family.connect_timeout))
            .doc("How long a connection to a server may take."),
        Row::new("grpc_send_timeout", ANY, ONE, |c, l| l.time_ms(&mut c.family.send_timeout))
            .doc("How long a server may take nothing of a request."),
        Row::new("grpc_read_timeout", ANY, ONE, |c, l| l.time_ms(&mut c.family.read_timeout))
            .doc("How long a server may send nothing of an answer."),
        Row::new("grpc_buffer_size", ANY, ONE, |c, l| l.size(&mut c.family.buffer_size))
            .doc("The longest head of an answer."),
        Row::new("grpc_intercept_errors", ANY, FLAG, |c, l| l.flag(&mut c.family.intercept_errors))
            .doc("Applies error_page to answers of servers, too."),
        Row::new("grpc_next_upstream", ANY, MORE, |c, l| l.bits(&mut c.family.next_upstream, &Reason::WORDS))
            .doc("When the next server is asked."),
        Row::new("grpc_next_upstream_tries", ANY, ONE, |c, l| l.number(&mut c.family.next_tries, ..))
            .doc("How many servers are asked at most; 0: all."),
        Row::new("grpc_next_upstream_timeout", ANY, ONE, |c, l| l.time_ms(&mut c.family.next_timeout))
            .doc("For how long other servers are asked; 0: without limit."),
        Row::new("grpc_pass_header", ANY, ONE, |c, l| l.push(&mut c.family.pass_headers))
            .doc("Shows the client a field that is hidden otherwise."),
        Row::new("grpc_hide_header", ANY, ONE, |c, l| l.push(&mut c.family.hide_headers))
            .doc("Hides a field of answers from the client."),
        Row::new("grpc_ignore_headers", ANY, MORE, |c, l| l.bits(&mut c.family.ignore_headers, &IGNORED))
            .doc("Does not act on these fields of answers."),
        Row::new("grpc_ssl_session_reuse", ANY, FLAG, |c, l| l.flag(&mut c.ssl.session_reuse))
            .doc("Sessions with servers are resumed; on."),
        Row::new("grpc_ssl_protocols", ANY, MORE, |c, l| c.ssl.set_protocols(l)).doc("TLSv1.2, TLSv1.3; both."),
        Row::new("grpc_ssl_ciphers", ANY, ONE, |c, l| c.ssl.set_ciphers(l))
            .doc("The ciphers of TLS 1.2 offered to servers, in OpenSSL's language."),
        Row::new("grpc_ssl_name", ANY, ONE, |c, l| c.ssl.set_name(l))
            .doc("The name that servers must have and are told; the host of grpc_pass."),
        Row::new("grpc_ssl_server_name", ANY, FLAG, |c, l| l.flag(&mut c.ssl.server_name))
            .doc("Servers are told the name (SNI); off."),
        Row::new("grpc_ssl_verify", ANY, FLAG, |c, l| l.flag(&mut c.ssl.verify))
            .doc("Servers need a certificate that is trusted and has the name; off."),
        Row::new("grpc_ssl_verify_depth", ANY, ONE, |c, l| l.number(&mut c.ssl.verify_depth, ..))
            .doc("The most certificates between a server's and a trusted one; 1."),
        Row::new("grpc_ssl_trusted_certificate", ANY, ONE, |c, l| l.conf_path(&mut c.ssl.trusted_certificate))
            .doc("Whom servers' certificates must come from."),
        Row::new("grpc_ssl_crl", ANY, ONE, |c, l| l.conf_path(&mut c.ssl.crl))
            .doc("Lists of revoked certificates of servers."),
        Row::new("grpc_ssl_certificate", ANY, ONE, |c, l| c.ssl.set_certificate(l))
            .doc("The certificate that servers are shown, in PEM; variables."),
        Row::new("grpc_ssl_certificate_key", ANY, ONE, |c, l| c.ssl.set_certificate_key(l))
            .doc("Its key, in PEM."),
        Row::new("grpc_ssl_certificate_cache", ANY, Args::range(1, 3), |c, l| c.ssl.set_certificate_cache(l))
            .doc("Whether certificates with variables in their names are kept: off, max=N valid=60s inactive=10s."),
        Row::new("grpc_ssl_password_file", ANY, ONE, |c, l| l.conf_path(&mut c.ssl.password_file))
            .doc("Passwords of the key, one a line; each is tried."),
        Row::new("grpc_ssl_conf_command", ANY, TWO, |c, l| c.ssl.set_conf_command(l))
            .doc("OpenSSL's commands Ciphersuites, Groups, Curves, CipherString; VerifyMode Peer, which is so with verification on, and an error without."),
    ];

    fn nest(conf: &mut GrpcConf, parent: &GrpcConf, _: Unnamed) {
        inherit!(conf, parent, pass);
    }

    fn inherit(conf: &mut GrpcConf, parent: &GrpcConf) {
        conf.family.inherit(&parent.family);
        conf.ssl.inherit(&parent.ssl);
        inherit!(conf, parent, set_headers);
    }

    fn resolve(conf: &mut GrpcConf, registry: &mut Registry) -> Result {
        let family = &mut conf.family;
        (family.buffering, family.request_buffering) = (Some(false), Some(false));
        (family.pass_trailers, family.without_files) = (Some(true), true);
        family.max_temp_file_size = Some(0);
        family.buffers = Some(weir_conf::BufferSizes { number: 8, size: family.buffer_size.unwrap_or(4096) });
        family.resolve("grpc", &["Date", "Server"], registry)?;
        if let Some(pass) = &mut conf.pass {
            pass.resolve(registry)?;
            if pass.may_be_secure() {
                conf.ssl.http2 = true;
                conf.ssl.resolve("grpc", registry)?;
            }
        }
        Ok(())
    }

    fn install(conf: &GrpcConf, plan: &mut PlanBuilder<'_>) -> Result {
        let Some(pass) = &conf.pass else { return Ok(()) };
        let Some(settings) = conf.family.settings() else { return Ok(()) };
        let fields = Fields::new(conf.set_headers.as_deref().unwrap_or_default());
        let protocol = GrpcProtocol { fields, tls: conf.ssl.tls() };
        let target = pass.install(plan.worker)?;
        pass_to(plan, Self::NAME, protocol, settings, target);
        Ok(())
    }
}

/// Tells the closures of the table what they are given.
type Row = Directive<GrpcConf>;

/// The settings of one block.
#[derive(Default)]
pub struct GrpcConf {
    family: Family,
    ssl: ClientConf,
    pass: Option<Pass>,
    set_headers: Option<SetHeaders>,
}

/// A location's way of speaking gRPC.
struct GrpcProtocol {
    fields: Fields,
    /// `grpc_ssl_...`, where servers may speak TLS.
    tls: Option<Arc<ClientTls>>,
}

impl Protocol for GrpcProtocol {
    fn scheme(&self) -> &'static str {
        "grpc://"
    }

    fn secure_scheme(&self) -> &'static str {
        "grpcs://"
    }

    fn secure(&self, x: &mut Exchange) -> Option<Secure> {
        let host = x.state_if::<Goal>().filter(|goal| goal.https)?.host.clone()?;
        let host = String::from_utf8_lossy(x.text(&host)).into_owned();
        Some(self.tls.as_ref()?.secure(x, &host))
    }

    fn multiplexes(&self) -> bool {
        true
    }

    fn request(&self, x: &mut Exchange, out: &mut Outgoing) -> std::result::Result<(), Verdict> {
        if x.body.is_read() || x.body.is_pending() {
            out.framing = Framing::Plain;
        }
        out.uri = request::uri(x)?;
        let host = self.fields.host(x);
        let authority = request::proxy_host(x).unwrap_or(Text::EMPTY);
        let section = &mut out.section;
        section.pseudo(":method", x.arena.get(x.request.head.method_span));
        section.pseudo(":path", x.arena.get(out.uri));
        section.pseudo(":scheme", request::scheme(x));
        match &host {
            // As nginx has it, what is set is a field, and stands alone.
            Some(host) if !x.text(host).is_empty() => section.field(b"host", x.text(host)),
            Some(_) => {}
            None => section.pseudo(":authority", x.text(&authority)),
        }
        if wants_trailers(x) && !self.fields.sets("TE") {
            section.field(b"te", b"trailers");
        }
        let length = request::length(x, None, out.framing);
        self.fields.section(x, length, true, section);
        Ok(())
    }

    /// Never asked: answers come in frames.
    fn head(
        &self,
        _x: &mut Exchange,
        _bytes: &[u8],
        _incoming: &mut Incoming,
    ) -> std::result::Result<Head, String> {
        Err("upstream sent no HTTP/2".to_owned())
    }
}

/// Whether the client said that it takes trailers, which gRPC servers insist on.
fn wants_trailers(x: &Exchange) -> bool {
    let te = x.request.head.fields.iter().filter(|field| field.known == Known::Te);
    let words = te.flat_map(|field| x.arena.get(field.value).split(|byte| *byte == b','));
    words.map(<[u8]>::trim_ascii).any(|word| word.eq_ignore_ascii_case(b"trailers"))
}
