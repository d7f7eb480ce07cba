//! `tunnel_pass`: opens connections for clients that send CONNECT (nginx's `ngx_http_tunnel_module`).
//!
//! Once the connection to the server is open the client gets 200, and from then on bytes pass in both directions.
//! Restrict the clients and targets by other modules (`auth_basic`, `if ($host ...)`).

use std::rc::Rc;

use weir_conf::names::{ANY, LOCATION, LOCATION_IF, MORE, SERVER};
use weir_conf::{ArgCount, Directive, LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::worker::UpstreamCloseProtocol;
use weir_engine::{Exchange, Module, UnnamedBlock, Verdict, inherit};
use weir_http::Method;
use weir_upstream::protocol::{HeadProgress, IncomingHead, OutgoingRequest, UpstreamProtocol};
use weir_upstream::worker_side::local_upstream::LocalUpstream;
use weir_upstream::{FailureReason, UpstreamFamily, pass_to};

use crate::gateway::cgi::target::{CgiPass, CgiTarget};
use crate::gateway::family_rows::family_row;

/// The module `tunnel`.
pub struct Tunnel;

impl Module for Tunnel {
    const NAME: &'static str = "tunnel";
    type Conf = TunnelConf;
    const DIRECTIVES: &'static [Directive<TunnelConf>] = &[
        TunnelRow::new("tunnel_pass", SERVER.or(LOCATION).or(LOCATION_IF), ArgCount::range(0, 1), TunnelConf::set_pass)
            .syntax("tunnel_pass [address]").default("$host:$request_port").doc("Connects clients that use the method CONNECT to this server, by default to the one that they ask for."),
        family_row!(bind, "tunnel_bind"),
        family_row!(socket_keepalive, "tunnel_socket_keepalive"),
        family_row!(socket_rcvbuf, "tunnel_socket_rcvbuf"),
        family_row!(socket_sndbuf, "tunnel_socket_sndbuf"),
        family_row!(connect_timeout, "tunnel_connect_timeout"),
        family_row!(send_timeout, "tunnel_send_timeout").doc("Timeout between two successive writes to the upstream server."),
        family_row!(send_lowat, "tunnel_send_lowat"),
        family_row!(buffer_size, "tunnel_buffer_size").default("16k").doc("How much may wait to be sent to one side before no more is read from the other."),
        family_row!(read_timeout, "tunnel_read_timeout").doc("Timeout after which a tunnel is closed in which neither side sends anything."),
        TunnelRow::new("tunnel_next_upstream", ANY, MORE, |c, l| l.bits(&mut c.family.next_upstream, &NEXT))
            .syntax("tunnel_next_upstream error | timeout | off ...").default("error timeout").doc("Conditions under which the next upstream server is connected to."),
        family_row!(next_upstream_tries, "tunnel_next_upstream_tries"),
        family_row!(next_upstream_timeout, "tunnel_next_upstream_timeout"),
    ];

    fn nest(conf: &mut TunnelConf, parent: &TunnelConf, _: UnnamedBlock) {
        inherit!(conf, parent, pass);
    }

    fn inherit(conf: &mut TunnelConf, parent: &TunnelConf) {
        conf.family.inherit(&parent.family);
    }

    fn resolve(conf: &mut TunnelConf, registry: &mut ConfRegistry) -> Result {
        let family = &mut conf.family;
        family.buffering = Some(false);
        family.request_buffering = Some(false);
        family.without_files = true;
        family.max_temp_file_size = Some(0);
        let size = *family.buffer_size.get_or_insert(BUFFER);
        family.buffers = Some(weir_conf::BufferSizes { number: 8, size });
        family.resolve("tunnel", &[], registry)?;
        if let Some(pass) = &mut conf.pass {
            pass.resolve(registry)?;
        }
        Ok(())
    }

    fn install(conf: &TunnelConf, plan: &mut PlanBuilder<'_>) {
        let Some(pass) = &conf.pass else { return };
        let Some(settings) = conf.family.settings() else { return };
        let target = ByConnect(pass.install(plan.worker));
        pass_to(plan, Self::NAME, TunnelProtocol, settings, target);
    }
}

/// Gives the closures of the table the type of their argument.
type TunnelRow = Directive<TunnelConf>;

/// The settings of one block.
#[derive(Default)]
pub struct TunnelConf {
    family: UpstreamFamily,
    pass: Option<CgiPass>,
}

impl TunnelConf {
    fn set_pass(&mut self, line: &mut LineCx<'_>) -> Result {
        if line.args().is_empty() {
            CgiPass::set_text(&mut self.pass, line, b"$host:$request_port")?;
        } else {
            CgiPass::set(&mut self.pass, line)?;
        }
        line.ext::<ConfRegistry>().claim_content(Tunnel::NAME);
        line.ext::<ConfRegistry>().accept_connect();
        Ok(())
    }
}

/// A target, for requests with the right method.
struct ByConnect(CgiTarget);

impl weir_upstream::PassTarget for ByConnect {
    fn rehearsed(&self, x: &mut Exchange) -> std::result::Result<weir_upstream::PassDestination, Verdict> {
        match x.request.head.method {
            Method::Connect => self.0.rehearsed(x),
            _ => Err(Verdict::Status(405)),
        }
    }

    async fn choose(&self, x: &mut Exchange) -> std::result::Result<Rc<LocalUpstream>, Verdict> {
        match x.request.head.method {
            Method::Connect => self.0.choose(x).await,
            _ => Err(Verdict::Status(405)),
        }
    }
}

/// There is nothing to speak.
struct TunnelProtocol;

impl UpstreamProtocol for TunnelProtocol {
    fn closes_as(&self) -> UpstreamCloseProtocol {
        UpstreamCloseProtocol::Tunnel
    }

    fn scheme(&self) -> &'static str {
        ""
    }

    fn opens_tunnels(&self) -> bool {
        true
    }

    fn request(&self, _x: &mut Exchange, _out: &mut OutgoingRequest) -> std::result::Result<(), Verdict> {
        Ok(())
    }

    /// Never asked: nothing is read of a server before the client has its response.
    fn head(
        &self,
        _x: &mut Exchange,
        _bytes: &[u8],
        _incoming: &mut IncomingHead,
    ) -> std::result::Result<HeadProgress, String> {
        Err("upstream sent an answer in a tunnel".to_owned())
    }
}

/// `tunnel_buffer_size`
const BUFFER: u64 = 16 * 1024;
/// The words of `tunnel_next_upstream`.
const NEXT: [(&str, u32); 3] =
    [("error", FailureReason::ERROR.0), ("timeout", FailureReason::TIMEOUT.0), ("off", FailureReason::OFF.0)];
