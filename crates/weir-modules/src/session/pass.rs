//! `stream_pass`: passes connections to other addresses of the configuration (nginx's `ngx_stream_pass_module`).

use weir_conf::names::{ONE, STREAM_SERVER};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::log::LogLevel;
use weir_engine::plan::PlanBuilder;
use weir_engine::transport::passed::SessionPass;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Handler, Module, Verdict};
use weir_rt::net::SockAddr;

/// The module `stream_pass`.
pub struct StreamPass;

impl Module for StreamPass {
    const NAME: &'static str = "stream_pass";
    type Conf = StreamPassConf;
    const DIRECTIVES: &'static [Directive<StreamPassConf>] = &[Directive::new(
        "pass",
        STREAM_SERVER,
        ONE,
        StreamPassConf::set,
    )
    .syntax("pass address")
    .doc(
        "Passes the connection to another address of the configuration, of `http` or `stream`, without a second connection. The \
         address is an IP address with its port, or a UNIX-domain socket (`unix:path`); it may contain variables. The connection \
         goes on as if it had been accepted there: with the client's address, and TLS if that was ended here. The session has no line in the log; \
         its limits hold until the connection ends.",
    )
    .example("http {\n    server {\n        listen 127.0.0.1:8000;\n    }\n}\nstream {\n    server {\n        listen 12345 ssl;\n        ssl_certificate     example.com.crt;\n        ssl_certificate_key example.com.key;\n        pass 127.0.0.1:8000;\n    }\n}")];

    fn install(conf: &StreamPassConf, plan: &mut PlanBuilder<'_>) {
        if let Some(to) = &conf.to {
            plan.content(Self::NAME, ConnectionPasser(to.clone()));
        }
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct StreamPassConf {
    to: Option<PassAddress>,
}

impl StreamPassConf {
    fn set(&mut self, line: &mut LineCx<'_>) -> Result {
        let value = ValueScript::compile(line, 0)?;
        let to = match value.constant() {
            Some(text) => PassAddress::Fixed(parse(text).map_err(|reason| line.fail_arg(0, reason))?),
            None => PassAddress::Computed(value),
        };
        line.ext::<ConfRegistry>().claim_content(StreamPass::NAME);
        line.once(&mut self.to, to)
    }
}

/// Where connections go on.
#[derive(Clone)]
enum PassAddress {
    Fixed(SockAddr),
    /// Computed for each.
    Computed(ValueScript),
}

impl PassAddress {
    fn of(&self, x: &mut Exchange) -> std::result::Result<SockAddr, String> {
        match self {
            PassAddress::Fixed(addr) => Ok(addr.clone()),
            PassAddress::Computed(script) => {
                let value = script.value(x);
                parse(x.text(&value))
            }
        }
    }
}

struct ConnectionPasser(PassAddress);

impl Handler for ConnectionPasser {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        let found = self.0.of(x).and_then(|addr| SessionPass::find(x, addr));
        match (found, x.session()) {
            (Ok(pass), Some(session)) => {
                *session.goes_on.borrow_mut() = Some(pass);
                Verdict::Done
            }
            (Err(reason), _) => {
                x.log(LogLevel::Error, &reason);
                Verdict::Status(500)
            }
            (_, None) => Verdict::Status(500),
        }
    }
}

/// An address with its port, or a path. A name isn't looked up: connections are accepted on addresses.
fn parse(text: &[u8]) -> std::result::Result<SockAddr, String> {
    let text = String::from_utf8_lossy(text);
    text.parse().map_err(|_| format!("no addresses in pass \"{text}\""))
}
