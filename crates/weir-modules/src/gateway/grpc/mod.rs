//! `grpc_pass`: passes requests to gRPC servers (nginx's `ngx_http_grpc_module`).
//!
//! gRPC is HTTP/2 with trailers and streams that go on in both directions at once: nothing of it is buffered.
//! Speaking HTTP/2 to servers is the task of `weir-upstream`.

mod pass;

use std::sync::Arc;

use weir_conf::names::{ANY, LOCATION, LOCATION_IF, ONE, TWO};
use weir_conf::{Directive, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::worker::UpstreamCloseProtocol;
use weir_engine::{Exchange, Module, Text, UnnamedBlock, Verdict, inherit};
use weir_http::KnownField;
use weir_upstream::protocol::{
    HeadProgress, IncomingHead, OutgoingRequest, RequestFraming, UpstreamProtocol,
};
use weir_upstream::tls_client::SecureUpstream;
use weir_upstream::tls_client::client::{ClientConf, ClientTls};
use weir_upstream::{UpstreamFamily, UpstreamOverrides, pass_to};

use crate::gateway::family_rows::family_row;
use crate::gateway::proxy::pass::PassGoal;
use crate::gateway::proxy::request::{self, ClientFields, RequestFields, SetHeaders};
use pass::GrpcPass;

/// The module `grpc`.
pub struct Grpc;

impl Module for Grpc {
    const NAME: &'static str = "grpc";
    type Conf = GrpcConf;
    const DIRECTIVES: &'static [Directive<GrpcConf>] = &[
        GrpcRow::new("grpc_pass", LOCATION.or(LOCATION_IF), ONE, |c, l| {
            l.ext::<ConfRegistry>().claim_content(Self::NAME);
            GrpcPass::set(&mut c.pass, l)
        })
            .syntax("grpc_pass address").doc("Passes requests to a gRPC server or an `upstream`; `grpc://` (the default) or `grpcs://` may precede the address, which may contain variables."),
        GrpcRow::new("grpc_set_header", ANY, TWO, |c, l| request::set_header(&mut c.set_headers, l))
            .syntax("grpc_set_header field value").doc("Sets a header field of requests to the upstream server; a field with an empty value is not sent."),
        family_row!(bind, "grpc_bind"),
        family_row!(socket_keepalive, "grpc_socket_keepalive"),
        family_row!(socket_rcvbuf, "grpc_socket_rcvbuf"),
        family_row!(socket_sndbuf, "grpc_socket_sndbuf"),
        family_row!(connect_timeout, "grpc_connect_timeout"),
        family_row!(send_timeout, "grpc_send_timeout"),
        family_row!(read_timeout, "grpc_read_timeout"),
        family_row!(buffer_size, "grpc_buffer_size"),
        family_row!(intercept_errors, "grpc_intercept_errors"),
        family_row!(next_upstream, "grpc_next_upstream"),
        family_row!(next_upstream_tries, "grpc_next_upstream_tries"),
        family_row!(next_upstream_timeout, "grpc_next_upstream_timeout"),
        family_row!(pass_header, "grpc_pass_header"),
        family_row!(hide_header, "grpc_hide_header"),
        family_row!(ignore_headers, "grpc_ignore_headers"),
        family_row!(ssl_session_reuse, "grpc_ssl_session_reuse"),
        family_row!(ssl_protocols, "grpc_ssl_protocols"),
        family_row!(ssl_ciphers, "grpc_ssl_ciphers"),
        family_row!(ssl_name, "grpc_ssl_name"),
        family_row!(ssl_server_name, "grpc_ssl_server_name"),
        family_row!(ssl_verify, "grpc_ssl_verify"),
        family_row!(ssl_verify_depth, "grpc_ssl_verify_depth"),
        family_row!(ssl_trusted_certificate, "grpc_ssl_trusted_certificate"),
        family_row!(ssl_crl, "grpc_ssl_crl"),
        family_row!(ssl_certificate, "grpc_ssl_certificate"),
        family_row!(ssl_certificate_key, "grpc_ssl_certificate_key"),
        family_row!(ssl_certificate_cache, "grpc_ssl_certificate_cache"),
        family_row!(ssl_password_file, "grpc_ssl_password_file"),
        family_row!(ssl_conf_command, "grpc_ssl_conf_command"),
    ];

    fn nest(conf: &mut GrpcConf, parent: &GrpcConf, _: UnnamedBlock) {
        inherit!(conf, parent, pass);
    }

    fn inherit(conf: &mut GrpcConf, parent: &GrpcConf) {
        conf.family.inherit(&parent.family);
        conf.ssl.inherit(&parent.ssl);
        inherit!(conf, parent, set_headers);
    }

    fn resolve(conf: &mut GrpcConf, registry: &mut ConfRegistry) -> Result {
        let family = &mut conf.family;
        family.buffering = Some(false);
        family.request_buffering = Some(false);
        family.pass_trailers = Some(true);
        family.without_files = true;
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

    fn install(conf: &GrpcConf, plan: &mut PlanBuilder<'_>) {
        let Some(pass) = &conf.pass else { return };
        let Some(settings) = conf.family.settings() else { return };
        let fields = RequestFields::new(conf.set_headers.as_deref().unwrap_or_default());
        let protocol = GrpcProtocol { fields, tls: conf.ssl.tls() };
        let target = pass.install(plan.worker);
        pass_to(plan, Self::NAME, protocol, settings, target);
    }
}

/// Gives the closures of the table the type of their argument.
type GrpcRow = Directive<GrpcConf>;

/// The settings of one block.
#[derive(Default)]
pub struct GrpcConf {
    family: UpstreamFamily,
    ssl: ClientConf,
    pass: Option<GrpcPass>,
    set_headers: Option<SetHeaders>,
}

/// A location's way of speaking gRPC.
struct GrpcProtocol {
    fields: RequestFields,
    /// `grpc_ssl_...`, where servers may speak TLS.
    tls: Option<Arc<ClientTls>>,
}

impl UpstreamProtocol for GrpcProtocol {
    fn closes_as(&self) -> UpstreamCloseProtocol {
        UpstreamCloseProtocol::Http2
    }

    fn scheme(&self) -> &'static str {
        "grpc://"
    }

    fn secure_scheme(&self) -> &'static str {
        "grpcs://"
    }

    fn secure(&self, x: &mut Exchange) -> Option<SecureUpstream> {
        let host = x.state_if::<PassGoal>().filter(|goal| goal.https)?.host.clone()?;
        let host = String::from_utf8_lossy(x.text(&host)).into_owned();
        Some(self.tls.as_ref()?.secure(x, &host))
    }

    fn multiplexes(&self) -> bool {
        true
    }

    fn request(&self, x: &mut Exchange, out: &mut OutgoingRequest) -> std::result::Result<(), Verdict> {
        if x.body.is_read() || x.body.is_pending() {
            out.framing = RequestFraming::Plain;
        }
        out.uri = request::uri(x)?;
        let host = self.fields.host(x);
        let authority = request::proxy_host(x).unwrap_or(Text::EMPTY);
        let section = &mut out.section;
        section.pseudo(":method", x.arena.get(x.request.head.method_span));
        section.pseudo(":path", x.arena.get(out.uri));
        section.pseudo(":scheme", request::scheme(x));
        match &host {
            // As in nginx, what is set is a whole field.
            Some(host) if !x.text(host).is_empty() => section.field(b"host", x.text(host)),
            Some(_) => {}
            None => {
                let own = UpstreamOverrides::of(x).and_then(|own| own.authority.as_deref());
                section.pseudo(":authority", own.unwrap_or_else(|| x.text(&authority)));
            }
        }
        if wants_trailers(x) && !self.fields.sets("TE") {
            section.field(b"te", b"trailers");
        }
        let length = request::length(x, None, out.framing);
        self.fields.section(x, length, ClientFields::Sent, section);
        Ok(())
    }

    /// Never asked: responses come in frames.
    fn head(
        &self,
        _x: &mut Exchange,
        _bytes: &[u8],
        _incoming: &mut IncomingHead,
    ) -> std::result::Result<HeadProgress, String> {
        Err("upstream sent no HTTP/2".to_owned())
    }
}

/// Whether the client said that it takes trailers, which gRPC servers insist on.
fn wants_trailers(x: &Exchange) -> bool {
    let te = x.request.head.fields.iter().filter(|field| field.known == KnownField::Te);
    let words = te.flat_map(|field| x.arena.get(field.value).split(|byte| *byte == b','));
    words.map(<[u8]>::trim_ascii).any(|word| word.eq_ignore_ascii_case(b"trailers"))
}
