//! The directives of HTTP/3 and QUIC.

use std::path::PathBuf;

use weir_conf::names::*;
use weir_conf::{Directive, LineCx, Result};
use weir_http::Version;
use weir_tls::quic::QuicKeys;

use crate::exchange::Exchange;
use crate::inherit;
use crate::module::Module;
use crate::privileged;
use crate::settings::http3::Http3Settings;
use crate::text::Text;
use crate::variable::Variable;

/// The module of HTTP/3's directives.
pub(crate) struct Http3;

impl Module for Http3 {
    const NAME: &'static str = "v3";
    type Conf = Http3Conf;
    const DIRECTIVES: &'static [Directive<Http3Conf>] = TABLE;
    const VARIABLES: &'static [Variable] = &[Variable::new("http3", http3)];

    fn inherit(conf: &mut Http3Conf, parent: &Http3Conf) {
        inherit!(conf, parent, on, max_concurrent_streams, stream_buffer_size, gso, host_key, retry);
        inherit!(conf, parent, active_connection_id_limit);
    }
}

/// The settings of one block as written; `None` where the directive is absent.
#[derive(Default)]
pub(crate) struct Http3Conf {
    on: Option<bool>,
    hq: Option<bool>,
    max_concurrent_streams: Option<u64>,
    stream_buffer_size: Option<u64>,
    gso: Option<bool>,
    /// Made of the file's content.
    host_key: Option<QuicKeys>,
    retry: Option<bool>,
    active_connection_id_limit: Option<u64>,
    bpf: Option<bool>,
}

impl Http3Conf {
    /// The server's settings with nginx's defaults.
    pub(crate) fn settings(&self) -> Http3Settings {
        Http3Settings {
            on: self.on.unwrap_or(true),
            max_concurrent_streams: self.max_concurrent_streams.map_or(128, |n| n.min(MOST) as u32),
            stream_buffer_size: self.stream_buffer_size.unwrap_or(65_536),
            connection_ids: self.active_connection_id_limit.unwrap_or(2),
            gso: self.gso.unwrap_or(false),
            retry: self.retry.unwrap_or(false),
            host_key: self.host_key.clone(),
        }
    }
}

/// As many as HTTP/2 allows.
const MOST: u64 = 0x7fff_ffff;

/// `$http3`: `h3` over QUIC, else empty.
fn http3(x: &mut Exchange) -> Option<Text> {
    Some(match x.request.head.version {
        Version::V30 => Text::Static(b"h3"),
        _ => Text::EMPTY,
    })
}

/// `http3_hq on | off`
fn hq(conf: &mut Http3Conf, line: &mut LineCx<'_>) -> Result {
    line.flag(&mut conf.hq)?;
    match conf.hq {
        Some(true) => Err(line
            .fail("\"http3_hq on\" can't be had: Weir does not speak HTTP/0.9 over QUIC")
            .hint("only programs that test implementations of QUIC speak it")),
        _ => Ok(()),
    }
}

/// `quic_host_key file`
fn host_key(conf: &mut Http3Conf, line: &mut LineCx<'_>) -> Result {
    let mut path = None::<PathBuf>;
    line.conf_path(&mut path)?;
    let path = path.unwrap_or_default();
    let secret = privileged::read(&path).map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(0);
        let why = weir_rt::file::errno_text(errno);
        line.fail_arg(0, format!("open() \"{}\" failed ({errno}: {why})", path.display()))
    })?;
    if secret.is_empty() {
        return Err(line.fail_arg(0, format!("\"{}\" zero key size", path.display())));
    }
    line.once(&mut conf.host_key, QuicKeys::from_host_key(&secret))
}

// The alias gives the closures of the table what `c` is.
type Http3Row = Directive<Http3Conf>;

const HTTP_OR_SERVER: weir_conf::Contexts = HTTP.or(SERVER);

const TABLE: &[Http3Row] = &[
    Http3Row::new("http3", HTTP_OR_SERVER, FLAG, |c, line| line.flag(&mut c.on))
        .syntax("http3 on | off")
        .default("on")
        .doc("Offers HTTP/3 on the server's addresses with `quic`.")
        .example(
            "server {\n    listen 443 ssl;\n    listen 443 quic;\n    \
             add_header Alt-Svc 'h3=\":443\"; ma=86400';\n}",
        ),
    Http3Row::new("http3_hq", HTTP_OR_SERVER, FLAG, hq)
        .syntax("http3_hq on | off")
        .default("off")
        .doc("`on` is refused: HTTP/0.9 over QUIC, by which implementations of QUIC are tested with each other, is not there."),
    Http3Row::new("http3_max_concurrent_streams", HTTP_OR_SERVER, ONE, |c, line| {
        line.number(&mut c.max_concurrent_streams, ..)
    })
    .syntax("http3_max_concurrent_streams number")
    .default("128")
    .doc("Maximum number of concurrent requests of a connection."),
    Http3Row::new("http3_stream_buffer_size", HTTP_OR_SERVER, ONE, |c, line| {
        line.size(&mut c.stream_buffer_size)
    })
    .syntax("http3_stream_buffer_size size")
    .default("64k")
    .doc("Bytes that a stream may receive before they are read."),
    Http3Row::new("quic_active_connection_id_limit", HTTP_OR_SERVER, ONE, |c, line| {
        line.number(&mut c.active_connection_id_limit, ..)
    })
    .syntax("quic_active_connection_id_limit number")
    .default("2")
    .doc("Maximum number of a client's connection IDs that are stored (`active_connection_id_limit`), from 2 to 5."),
    Http3Row::new("quic_bpf", MAIN, FLAG, |c, line| line.flag(&mut c.bpf))
        .syntax("quic_bpf on | off")
        .default("off")
        .doc(
            "In nginx what lets a client's connection go on when its address changes. In Weir it does so in any case, without \
             eBPF and its privileges: workers hand packets over to each other by the connection's ID.",
        ),
    Http3Row::new("quic_gso", HTTP_OR_SERVER, FLAG, |c, line| line.flag(&mut c.gso))
        .syntax("quic_gso on | off")
        .default("off")
        .doc("Sends several packets with one system call as one large datagram (`UDP_SEGMENT`)."),
    Http3Row::new("quic_host_key", HTTP_OR_SERVER, ONE, host_key)
        .syntax("quic_host_key file")
        .doc(
            "File with a secret of any length, out of which the keys of stateless resets and address tokens are made: \
             servers with the same one take each other's. By default the process has keys of its own.",
        ),
    Http3Row::new("quic_retry", HTTP_OR_SERVER, FLAG, |c, line| line.flag(&mut c.retry))
        .syntax("quic_retry on | off")
        .default("off")
        .doc("Lets each new client show first that it receives at its address (a Retry packet)."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::CORE_MODULES;
    use crate::conf::test::{headlines, load};

    #[test]
    fn settings_have_nginxs_defaults_and_are_inherited() {
        let text = "events {} quic_bpf on; http { http3_hq off; quic_retry on; quic_active_connection_id_limit 4; http3_max_concurrent_streams 7; server { } \
                    server { listen 81; http3 off; quic_gso on; http3_max_concurrent_streams 9; http3_stream_buffer_size 1k; } }";
        let conf = load(text, &CORE_MODULES).expect("a good configuration");
        let of = |index: usize| conf.servers()[index].confs.get::<Http3Conf>().settings();
        let (first, second) = (of(0), of(1));
        assert!(
            first.on && first.connection_ids == 4 && first.retry && !first.gso && first.host_key.is_none()
        );
        assert_eq!((first.max_concurrent_streams, first.stream_buffer_size), (7, 65_536));
        assert!(!second.on && second.retry && second.gso);
        assert_eq!((second.max_concurrent_streams, second.stream_buffer_size), (9, 1024));
        let usual = Http3Conf::default().settings();
        assert!(usual.on && usual.connection_ids == 2 && !usual.retry && !usual.gso);
        assert_eq!((usual.max_concurrent_streams, usual.protocols()), (128, &[&b"h3"[..]][..]));
        assert!(second.protocols().is_empty());
    }

    #[test]
    fn wrong_values_are_reported_in_nginxs_words() {
        for (line, message) in [
            ("http { http3 maybe; }", "it must be \"on\" or \"off\""),
            ("http { http3 on; http3 on; }", "\"http3\" directive is duplicate"),
            (
                "http { http3_max_concurrent_streams a; }",
                "\"http3_max_concurrent_streams\" directive invalid number",
            ),
            ("http { http3_stream_buffer_size a; }", "\"http3_stream_buffer_size\" directive invalid value"),
            ("http { quic_active_connection_id_limit a; }", "invalid number"),
            ("http { quic_bpf off; }", "directive is not allowed here"),
            ("http { http3_hq on; }", "\"http3_hq on\" can't be had: Weir does not speak HTTP/0.9 over QUIC"),
            ("http { server { location / { http3 on; } } }", "directive is not allowed here"),
            (
                "http { quic_host_key /nowhere/a.key; }",
                "open() \"/nowhere/a.key\" failed (2: No such file or directory)",
            ),
            ("http { quic_host_key /dev/null; }", "\"/dev/null\" zero key size"),
        ] {
            let found = headlines(&format!("events {{}} {line}"), &CORE_MODULES);
            assert!(found.iter().any(|error| error.contains(message)), "{line}: {found:?}");
        }
    }
}
