//! The directives of HTTP/2.

use weir_conf::names::*;
use weir_conf::{Contexts, Directive, LineCx, Result};
use weir_http::Version;

use crate::exchange::Exchange;
use crate::inherit;
use crate::module::Module;
use crate::settings::http2::Http2Settings;
use crate::text::Text;
use crate::variable::Variable;

/// The module of HTTP/2's directives.
pub struct Http2;

impl Module for Http2 {
    const NAME: &'static str = "v2";
    type Conf = Http2Conf;
    const DIRECTIVES: &'static [Directive<Http2Conf>] = TABLE;
    const VARIABLES: &'static [Variable] = &[Variable::new("http2", http2)];

    fn inherit(conf: &mut Http2Conf, parent: &Http2Conf) {
        inherit!(
            conf,
            parent,
            on,
            upgrade,
            reprioritizes,
            max_concurrent_streams,
            body_preread_size,
            recv_buffer_size,
            chunk_size
        );
    }
}

/// The settings of one block as written; `None` where the directive is absent.
#[derive(Default)]
pub struct Http2Conf {
    /// `http2`: whether HTTP/2 is enabled.
    pub on: Option<bool>,
    /// `http2_upgrade`: whether `Upgrade: h2c` is accepted.
    pub upgrade: Option<bool>,
    /// `http2_reprioritize_blocking_assets`: whether what a page waits for goes first.
    pub reprioritizes: Option<bool>,
    /// `http2_max_concurrent_streams`: a number of streams.
    pub max_concurrent_streams: Option<u64>,
    /// `http2_body_preread_size`, in bytes.
    pub body_preread_size: Option<u64>,
    /// `http2_recv_buffer_size`, in bytes.
    pub recv_buffer_size: Option<u64>,
    /// `http2_chunk_size`, in bytes.
    pub chunk_size: Option<u64>,
    pool_size: Option<u64>,
    streams_index_size: Option<u64>,
}

impl Http2Conf {
    /// The server's settings with nginx's defaults.
    pub fn settings(&self) -> Http2Settings {
        let bytes = |size: Option<u64>, usual: u32| {
            size.map_or(usual, |size| u32::try_from(size).unwrap_or(u32::MAX).min(0x7fff_ffff))
        };
        Http2Settings {
            on: self.on.unwrap_or(false),
            upgrade: self.upgrade.unwrap_or(true),
            reprioritizes: self.reprioritizes.unwrap_or(false),
            max_concurrent_streams: bytes(self.max_concurrent_streams, 128),
            body_preread_size: bytes(self.body_preread_size, 65_536),
            recv_buffer_size: bytes(self.recv_buffer_size, 256 * 1024),
        }
    }

    /// The most bytes of a body in one frame.
    pub fn chunk(&self) -> u32 {
        self.chunk_size.map_or(8192, |size| u32::try_from(size).unwrap_or(u32::MAX))
    }
}

/// `$http2`: `h2` over TLS, `h2c` without, empty in other versions.
fn http2(x: &mut Exchange) -> Option<Text> {
    Some(match (x.request.head.version, x.connection.is_tls()) {
        (Version::V20, true) => Text::Static(b"h2"),
        (Version::V20, false) => Text::Static(b"h2c"),
        _ => Text::EMPTY,
    })
}

/// A directive that nginx has no more: it says what to write instead.
fn replaced(line: &mut LineCx<'_>, by: &str) -> Result {
    let name = line.name().to_owned();
    line.warn(format!("the \"{name}\" directive is obsolete, use the \"{by}\" directive instead"));
    Ok(())
}

/// A directive of server push, which no client takes any more.
fn ignored(line: &mut LineCx<'_>) -> Result {
    let name = line.name().to_owned();
    line.warn(format!("the \"{name}\" directive is obsolete, ignored"));
    Ok(())
}

fn pool_size(conf: &mut Http2Conf, line: &mut LineCx<'_>) -> Result {
    line.size(&mut conf.pool_size)?;
    match conf.pool_size {
        Some(size) if size < 112 => Err(line.fail("the pool size must be no less than 112")),
        Some(size) if size % 16 != 0 => Err(line.fail("the pool size must be a multiple of 16")),
        _ => Ok(()),
    }
}

fn streams_index_size(conf: &mut Http2Conf, line: &mut LineCx<'_>) -> Result {
    line.number(&mut conf.streams_index_size, 0..)?;
    match conf.streams_index_size {
        Some(size) if !size.is_power_of_two() => {
            Err(line.fail("\"http2_streams_index_size\" directive must be a power of two"))
        }
        _ => Ok(()),
    }
}

fn recv_buffer_size(conf: &mut Http2Conf, line: &mut LineCx<'_>) -> Result {
    line.size(&mut conf.recv_buffer_size)?;
    match conf.recv_buffer_size {
        // Two of nginx's states.
        Some(size) if size <= 32 => Err(line.fail("\"http2_recv_buffer_size\" directive value is too small")),
        _ => Ok(()),
    }
}

fn chunk_size(conf: &mut Http2Conf, line: &mut LineCx<'_>) -> Result {
    line.size(&mut conf.chunk_size)?;
    if conf.chunk_size == Some(0) {
        return Err(line.fail("the http2 chunk size cannot be zero"));
    }
    conf.chunk_size = conf.chunk_size.map(|size| size.min(FRAME));
    Ok(())
}

fn body_preread_size(conf: &mut Http2Conf, line: &mut LineCx<'_>) -> Result {
    line.size(&mut conf.body_preread_size)?;
    match conf.body_preread_size {
        Some(size) if size > 0x7fff_ffff => {
            Err(line.fail(format!("the maximum body preread buffer size is {}", 0x7fff_ffff)))
        }
        _ => Ok(()),
    }
}

/// The longest frame that there can be.
const FRAME: u64 = (1 << 24) - 1;

type Http2Row = Directive<Http2Conf>;

const HTTP_OR_SERVER: Contexts = HTTP.or(SERVER);
const ANY: Contexts = HTTP.or(SERVER).or(LOCATION);

const TABLE: &[Http2Row] = &[
    Http2Row::new("http2", HTTP_OR_SERVER, FLAG, |c, line| line.flag(&mut c.on))
        .syntax("http2 on | off")
        .default("off")
        .doc(
            "Enables HTTP/2 on the server's addresses: negotiated by ALPN on TLS connections, \
             on others by prior knowledge or `Upgrade: h2c`.",
        )
        .example("server {\n    listen 443 ssl;\n    http2 on;\n}"),
    Http2Row::new("http2_upgrade", HTTP_OR_SERVER, FLAG, |c, line| line.flag(&mut c.upgrade))
        .syntax("http2_upgrade on | off")
        .default("on")
        .doc("Whether requests of HTTP/1.1 with `Upgrade: h2c` change to HTTP/2 where `http2` is on."),
    Http2Row::new("http2_reprioritize_blocking_assets", HTTP_OR_SERVER, FLAG, |c, line| {
        line.flag(&mut c.reprioritizes)
    })
    .syntax("http2_reprioritize_blocking_assets on | off")
    .default("off")
    .doc(
        "Sends style sheets and scripts, for which browsers wait before they show anything, before all \
         other responses of a connection, as H2O does. Only where the client says nothing of priorities, \
         and the response has no field `Priority`.",
    ),
    Http2Row::new("http2_max_concurrent_streams", HTTP_OR_SERVER, ONE, |c, line| {
        line.number(&mut c.max_concurrent_streams, 0..)
    })
    .syntax("http2_max_concurrent_streams number")
    .default("128")
    .doc("Maximum number of concurrent streams (requests) of a connection."),
    Http2Row::new("http2_body_preread_size", HTTP_OR_SERVER, ONE, body_preread_size)
        .syntax("http2_body_preread_size size")
        .default("64k")
        .doc(
            "Amount of a request body that may be received before it is read (the initial \
             window of a stream).",
        ),
    Http2Row::new("http2_recv_buffer_size", HTTP, ONE, recv_buffer_size)
        .syntax("http2_recv_buffer_size size")
        .default("256k")
        .doc(
            "Amount of a request body that may be in transit while it is read (the window of \
             a stream).",
        ),
    Http2Row::new("http2_chunk_size", ANY, ONE, chunk_size)
        .syntax("http2_chunk_size size")
        .default("8k")
        .doc("Maximum size of a DATA frame of a response body."),
    Http2Row::new("http2_pool_size", HTTP_OR_SERVER, ONE, pool_size)
        .syntax("http2_pool_size size")
        .default("4k")
        .doc(
            "Accepted for compatibility with nginx, without effect: connections take memory \
             from the worker's free lists.",
        ),
    Http2Row::new("http2_streams_index_size", HTTP_OR_SERVER, ONE, streams_index_size)
        .syntax("http2_streams_index_size number")
        .default("32")
        .doc(
            "Accepted for compatibility with nginx, without effect: the index of streams \
             grows as needed.",
        ),
    Http2Row::new("http2_max_requests", HTTP_OR_SERVER, ONE, |_, line| replaced(line, "keepalive_requests"))
        .syntax("http2_max_requests number")
        .doc("Obsolete, with a warning: `keepalive_requests` takes its place."),
    Http2Row::new("http2_recv_timeout", HTTP_OR_SERVER, ONE, |_, line| {
        replaced(line, "client_header_timeout")
    })
    .syntax("http2_recv_timeout time")
    .doc("Obsolete, with a warning: `client_header_timeout` takes its place."),
    Http2Row::new("http2_idle_timeout", HTTP_OR_SERVER, ONE, |_, line| replaced(line, "keepalive_timeout"))
        .syntax("http2_idle_timeout time")
        .doc("Obsolete, with a warning: `keepalive_timeout` takes its place."),
    Http2Row::new("http2_max_field_size", HTTP_OR_SERVER, ONE, |_, line| {
        replaced(line, "large_client_header_buffers")
    })
    .syntax("http2_max_field_size size")
    .doc("Obsolete, with a warning: `large_client_header_buffers` takes its place."),
    Http2Row::new("http2_max_header_size", HTTP_OR_SERVER, ONE, |_, line| {
        replaced(line, "large_client_header_buffers")
    })
    .syntax("http2_max_header_size size")
    .doc("Obsolete, with a warning: `large_client_header_buffers` takes its place."),
    Http2Row::new("http2_max_concurrent_pushes", HTTP_OR_SERVER, ONE, |_, line| ignored(line))
        .syntax("http2_max_concurrent_pushes number")
        .doc("Obsolete, without effect: there is no server push."),
    Http2Row::new("http2_push", ANY, ONE, |_, line| ignored(line))
        .syntax("http2_push uri | off")
        .doc("Obsolete, without effect: there is no server push."),
    Http2Row::new("http2_push_preload", ANY, FLAG, |_, line| ignored(line))
        .syntax("http2_push_preload on | off")
        .doc("Obsolete, without effect: there is no server push."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::CORE_MODULES;
    use crate::conf::test::{headlines, load};

    #[test]
    fn settings_have_nginx_s_defaults_and_are_inherited() {
        let text =
            "events {} http { http2 on; http2_chunk_size 20m; server { http2_max_concurrent_streams 3; } }";
        let conf = load(text, &CORE_MODULES).expect("a good configuration");
        let own = conf.servers()[0].confs.get::<Http2Conf>();
        assert!(own.settings().on && own.settings().max_concurrent_streams == 3);
        assert_eq!((own.settings().body_preread_size, own.settings().recv_buffer_size), (65_536, 262_144));
        assert_eq!(own.chunk(), (1 << 24) - 1);
        assert_eq!(Http2Conf::default().chunk(), 8192);
    }

    #[test]
    fn wrong_values_are_told_in_nginx_s_words() {
        for (line, message) in [
            ("http2_recv_buffer_size 1;", "\"http2_recv_buffer_size\" directive value is too small"),
            ("http2_pool_size 100;", "the pool size must be no less than 112"),
            ("http2_pool_size 4095;", "the pool size must be a multiple of 16"),
            ("http2_streams_index_size 3;", "\"http2_streams_index_size\" directive must be a power of two"),
            ("http2_chunk_size 0;", "the http2 chunk size cannot be zero"),
            ("http2_max_concurrent_streams a;", "\"http2_max_concurrent_streams\" directive invalid number"),
            ("server { http2_recv_buffer_size 1m; }", "directive is not allowed here"),
        ] {
            let found = headlines(&format!("events {{}} http {{ {line} }}"), &CORE_MODULES);
            assert!(found.iter().any(|error| error.contains(message)), "{line}: {found:?}");
        }
    }
}
