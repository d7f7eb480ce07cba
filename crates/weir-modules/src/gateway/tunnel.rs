//! `tunnel_pass`: connections for clients that ask for them with CONNECT (nginx's `ngx_http_tunnel_module`).
//!
//! The server is connected to, the client is told so, and from there on bytes pass both ways. Who may connect to what
//! is for the modules before it to say (`auth_basic`, `if ($host ...)`).

use std::rc::Rc;

use weir_conf::names::{ANY, FLAG, LOCATION, LOCATION_IF, MORE, ONE, ONE_OR_TWO, SERVER};
use weir_conf::{Args, Directive, LineCx, Result};
use weir_engine::conf::registry::Registry;
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Module, Unnamed, Verdict, inherit};
use weir_http::Method;
use weir_upstream::protocol::{Head, Incoming, Outgoing, Protocol};
use weir_upstream::worker_side::local_upstream::LocalGroup;
use weir_upstream::{Family, Reason, pass_to};

use crate::gateway::cgi::target::{Pass, Target};

/// The module.
pub struct Tunnel;

impl Module for Tunnel {
    const NAME: &'static str = "tunnel";
    type Conf = TunnelConf;
    const DIRECTIVES: &'static [Directive<TunnelConf>] = &[
        Row::new("tunnel_pass", SERVER.or(LOCATION).or(LOCATION_IF), Args::range(0, 1), TunnelConf::set_pass)
            .doc(
                "Connects clients that ask with CONNECT to a server; $host:$request_port, what they ask for.",
            ),
        Row::new("tunnel_bind", ANY, ONE_OR_TWO, |c, l| Family::set_bind(&mut c.family.bind, l))
            .doc("The local address that connections to servers begin at."),
        Row::new("tunnel_socket_keepalive", ANY, FLAG, |c, l| l.flag(&mut c.family.socket_keepalive))
            .doc("Probes connections to servers (SO_KEEPALIVE)."),
        Row::new("tunnel_socket_rcvbuf", ANY, ONE, |c, l| l.size(&mut c.family.socket_rcvbuf))
            .doc("How much the kernel keeps of what servers send (SO_RCVBUF); 0: as it likes."),
        Row::new("tunnel_socket_sndbuf", ANY, ONE, |c, l| l.size(&mut c.family.socket_sndbuf))
            .doc("How much the kernel keeps of what is sent to servers (SO_SNDBUF); 0: as it likes."),
        Row::new("tunnel_connect_timeout", ANY, ONE, |c, l| l.time_ms(&mut c.family.connect_timeout))
            .doc("How long a connection to a server may take."),
        Row::new("tunnel_send_timeout", ANY, ONE, |c, l| l.time_ms(&mut c.family.send_timeout))
            .doc("How long a server may take nothing of what is sent to it."),
        Row::new("tunnel_send_lowat", ANY, ONE, |c, l| c.family.set_lowat(l))
            .doc("Has no effect on Linux, and a warning says so."),
        Row::new("tunnel_buffer_size", ANY, ONE, |c, l| l.size(&mut c.family.buffer_size))
            .doc("How much may wait for one side before no more is read of the other; 16k."),
        Row::new("tunnel_read_timeout", ANY, ONE, |c, l| l.time_ms(&mut c.family.read_timeout))
            .doc("How long both sides may be silent."),
        Row::new("tunnel_next_upstream", ANY, MORE, |c, l| l.bits(&mut c.family.next_upstream, &NEXT))
            .doc("When the next server is connected to."),
        Row::new("tunnel_next_upstream_tries", ANY, ONE, |c, l| l.number(&mut c.family.next_tries, ..))
            .doc("How many servers are tried at most; 0: all."),
        Row::new("tunnel_next_upstream_timeout", ANY, ONE, |c, l| l.time_ms(&mut c.family.next_timeout))
            .doc("For how long other servers are tried; 0: without limit."),
    ];

    fn nest(conf: &mut TunnelConf, parent: &TunnelConf, _: Unnamed) {
        inherit!(conf, parent, pass);
    }

    fn inherit(conf: &mut TunnelConf, parent: &TunnelConf) {
        conf.family.inherit(&parent.family);
    }

    fn resolve(conf: &mut TunnelConf, registry: &mut Registry) -> Result {
        let family = &mut conf.family;
        (family.buffering, family.request_buffering) = (Some(false), Some(false));
        (family.without_files, family.max_temp_file_size) = (true, Some(0));
        let size = *family.buffer_size.get_or_insert(BUFFER);
        family.buffers = Some(weir_conf::BufferSizes { number: 8, size });
        family.resolve("tunnel", &[], registry)?;
        if let Some(pass) = &mut conf.pass {
            pass.resolve(registry)?;
        }
        Ok(())
    }

    fn install(conf: &TunnelConf, plan: &mut PlanBuilder<'_>) -> Result {
        let Some(pass) = &conf.pass else { return Ok(()) };
        let Some(settings) = conf.family.settings() else { return Ok(()) };
        let target = ByConnect(pass.install(plan.worker));
        pass_to(plan, Self::NAME, TunnelProtocol, settings, target);
        Ok(())
    }
}

/// Tells the closures of the table what they are given.
type Row = Directive<TunnelConf>;

/// The settings of one block.
#[derive(Default)]
pub struct TunnelConf {
    family: Family,
    pass: Option<Pass>,
}

impl TunnelConf {
    fn set_pass(&mut self, line: &mut LineCx<'_>) -> Result {
        if line.args().is_empty() {
            Pass::set_text(&mut self.pass, line, b"$host:$request_port")?;
        } else {
            Pass::set(&mut self.pass, line)?;
        }
        line.ext::<Registry>().claim_content(Tunnel::NAME);
        line.ext::<Registry>().accept_connect();
        Ok(())
    }
}

/// A target for those who ask by the right method.
struct ByConnect(Target);

impl weir_upstream::Target for ByConnect {
    async fn choose(&self, x: &mut Exchange) -> std::result::Result<Rc<LocalGroup>, Verdict> {
        match x.request.head.method {
            Method::Connect => self.0.choose(x).await,
            _ => Err(Verdict::Status(405)),
        }
    }
}

/// There is nothing to speak.
struct TunnelProtocol;

impl Protocol for TunnelProtocol {
    fn scheme(&self) -> &'static str {
        ""
    }

    fn opens_tunnels(&self) -> bool {
        true
    }

    fn request(&self, _x: &mut Exchange, _out: &mut Outgoing) -> std::result::Result<(), Verdict> {
        Ok(())
    }

    /// Never asked: nothing is read of a server before the client has its answer.
    fn head(
        &self,
        _x: &mut Exchange,
        _bytes: &[u8],
        _incoming: &mut Incoming,
    ) -> std::result::Result<Head, String> {
        Err("upstream sent an answer in a tunnel".to_owned())
    }
}

/// `tunnel_buffer_size`
const BUFFER: u64 = 16 * 1024;
/// The words of `tunnel_next_upstream`.
const NEXT: [(&str, u32); 3] =
    [("error", Reason::ERROR.0), ("timeout", Reason::TIMEOUT.0), ("off", Reason::OFF.0)];
