//! `stream_ssl_preread`: what a client says to begin TLS, without ending its TLS here (nginx's
//! `ngx_stream_ssl_preread_module`): the name of the server, protocols, the version.

use std::rc::Rc;

use weir_conf::Directive;
use weir_conf::names::{FLAG, STREAM_ANY};
use weir_engine::exchange::Exchange;
use weir_engine::inherit;
use weir_engine::module::Module;
use weir_engine::phase::{Handler, LocalFuture, Phase, Verdict};
use weir_engine::plan::PlanBuilder;
use weir_engine::settings::session::SessionSettings;
use weir_engine::text::Text;
use weir_engine::transport::wire::ClientWire;
use weir_engine::variable::Variable;
use weir_rt::RecvOutcome;
use weir_tls::{HelloAcceptor, HelloFields};
use weir_trace::WaitKind;

/// The module `stream_ssl_preread`.
pub struct SslPreread;

impl Module for SslPreread {
    const NAME: &'static str = "stream_ssl_preread";
    type Conf = SslPrereadConf;
    const DIRECTIVES: &'static [Directive<SslPrereadConf>] = &[Directive::<SslPrereadConf>::new(
        "ssl_preread",
        STREAM_ANY,
        FLAG,
        |c, line| line.flag(&mut c.on),
    )
    .syntax("ssl_preread on | off")
    .default("off")
    .doc(
        "Looks at the ClientHello of a session without taking it: `$ssl_preread_server_name`, \
         `$ssl_preread_alpn_protocols` and `$ssl_preread_protocol` say what is in it, and the server that the \
         session is passed to gets it.",
    )
    .example(
        "stream {\n    map $ssl_preread_server_name $to {\n        a.example.com  10.0.0.1:443;\n        \
         default        10.0.0.2:443;\n    }\n    server {\n        listen 443;\n        ssl_preread on;\n        \
         proxy_pass $to;\n    }\n}",
    )];
    const VARIABLES: &'static [Variable] = &[
        Variable::new("ssl_preread_protocol", protocol),
        Variable::new("ssl_preread_server_name", server_name),
        Variable::new("ssl_preread_alpn_protocols", alpn),
    ];

    fn inherit(conf: &mut SslPrereadConf, parent: &SslPrereadConf) {
        inherit!(conf, parent, on);
    }

    fn install(conf: &SslPrereadConf, plan: &mut PlanBuilder<'_>) {
        if conf.on == Some(true) {
            plan.handler(Phase::Precontent, Self::NAME, HelloPreread);
        }
    }
}

/// The setting of one block.
#[derive(Default)]
pub struct SslPrereadConf {
    on: Option<bool>,
}

/// What was found, kept with the session.
#[derive(Default)]
struct PrereadHello(Option<SeenHello>);

enum SeenHello {
    /// A hello of SSL 2, which says its version and nothing else that is asked for.
    Old(u16),
    Fields(Box<HelloFields>),
}

/// What a look at the bytes so far has come to.
enum HelloLook {
    /// More bytes are needed.
    Incomplete,
    /// They do not begin TLS.
    Other,
    Seen(SeenHello),
}

struct HelloPreread;

impl Handler for HelloPreread {
    fn handle(&self, _x: &mut Exchange) -> Verdict {
        Verdict::Wait
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(preread(x))
    }
}

async fn preread(x: &mut Exchange) -> Verdict {
    let Some(wire) = x.transport.wire().cloned() else { return Verdict::Declined };
    let settings = x.plan.kept::<SessionSettings>().copied().unwrap_or_default();
    let size = usize::try_from(settings.preread_buffer_size).unwrap_or(usize::MAX);
    wire.timer.arm(settings.preread_timeout);
    loop {
        let (look, full) = {
            let input = wire.input.borrow();
            let bytes = input.bytes();
            (look(&bytes[..bytes.len().min(size)]), bytes.len() >= size)
        };
        match look {
            HelloLook::Other => return Verdict::Declined,
            HelloLook::Seen(hello) => {
                x.state::<PrereadHello>().0 = Some(hello);
                return Verdict::Declined;
            }
            HelloLook::Incomplete if full => {
                x.log_error(&"preread buffer full while prereading client data");
                return Verdict::Status(400);
            }
            HelloLook::Incomplete => {}
        }
        if !receive(x, &wire).await {
            return Verdict::Done;
        }
    }
}

/// Receives more; `false`: nothing more comes in time, and as in nginx that is an end like any other.
async fn receive(x: &mut Exchange, wire: &Rc<ClientWire>) -> bool {
    wire.input.borrow_mut().hold();
    let shared = x.shared.clone();
    let received = Box::pin(wire.stream.recv(Some(&wire.timer)));
    match shared.waiting_for(WaitKind::ClientRead, received).await {
        RecvOutcome::Data(buf) => {
            wire.input.borrow_mut().push(buf);
            true
        }
        RecvOutcome::Eof | RecvOutcome::TimedOut | RecvOutcome::Err(_) => false,
    }
}

fn look(bytes: &[u8]) -> HelloLook {
    match *bytes {
        [] => return HelloLook::Incomplete,
        // A hello of SSL 2: two bytes of length, the message's type, the version.
        [first, _, 1, major @ (0 | 3), minor, ..] if first & 0x80 != 0 => {
            return HelloLook::Seen(SeenHello::Old(u16::from_be_bytes([major, minor])));
        }
        [first, ref rest @ ..] if first & 0x80 != 0 && rest.len() < 4 => return HelloLook::Incomplete,
        _ => {}
    }
    match HelloAcceptor::default().handle(bytes, &mut Vec::new()) {
        Ok(None) => HelloLook::Incomplete,
        Ok(Some(hello)) => HelloLook::Seen(SeenHello::Fields(Box::new(hello.fields))),
        Err(_) => HelloLook::Other,
    }
}

/// The newest version that is offered.
fn protocol(x: &mut Exchange) -> Option<Text> {
    let version = match x.state_if::<PrereadHello>()?.0.as_ref()? {
        SeenHello::Old(version) => *version,
        SeenHello::Fields(fields) => fields.versions.iter().copied().map(released).max()?,
    };
    let name = VERSIONS.iter().find(|(number, _)| *number == version)?.1;
    Some(Text::Static(name.as_bytes()))
}

/// The version whose draft `version` is, if it is one; a value that means nothing (RFC 8701) is older than all.
fn released(version: u16) -> u16 {
    match version {
        0x7f00..=0x7fff => 0x0304,
        known if VERSIONS.iter().any(|(number, _)| *number == known) => known,
        _ => 0,
    }
}

fn server_name(x: &mut Exchange) -> Option<Text> {
    let name = match x.state_if::<PrereadHello>()?.0.as_ref()? {
        SeenHello::Old(_) => None,
        SeenHello::Fields(fields) => fields.name_as_sent().map(<[u8]>::to_vec),
    };
    Some(Text::Span(x.arena.push(&name?)))
}

/// The protocols, separated by commas.
fn alpn(x: &mut Exchange) -> Option<Text> {
    let protocols = match x.state_if::<PrereadHello>()?.0.as_ref()? {
        SeenHello::Old(_) => return None,
        SeenHello::Fields(fields) => fields.alpn.join(&b','),
    };
    (!protocols.is_empty()).then(|| Text::Span(x.arena.push(&protocols)))
}

const VERSIONS: [(u16, &str); 6] = [
    (0x0002, "SSLv2"),
    (0x0300, "SSLv3"),
    (0x0301, "TLSv1"),
    (0x0302, "TLSv1.1"),
    (0x0303, "TLSv1.2"),
    (0x0304, "TLSv1.3"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn is_other(bytes: &[u8]) -> bool {
        matches!(look(bytes), HelloLook::Other)
    }

    #[test]
    fn what_is_no_hello_is_known_by_its_first_bytes() {
        assert!(matches!(look(b""), HelloLook::Incomplete));
        assert!(is_other(b"G") && is_other(b"SSH-2.0-x\r\n") && is_other(b"\x16\x02"));
        assert!(matches!(look(b"\x16\x03\x01\x00"), HelloLook::Incomplete));
    }

    #[test]
    fn a_hello_of_ssl_2_says_its_version() {
        let hello = b"\x80\x1c\x01\x03\x01\x00\x03";
        assert!(matches!(look(hello), HelloLook::Seen(SeenHello::Old(0x0301))));
        assert!(matches!(look(&hello[..3]), HelloLook::Incomplete));
    }
}
