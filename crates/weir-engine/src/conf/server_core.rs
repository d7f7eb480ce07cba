//! The core's directives of a virtual server: where it listens, its names, and how request heads are read.

use weir_conf::names::*;
use weir_conf::{BufferSizes, Directive, Error, LineCx, Result, Span};

use super::listen::ListenLine;
use super::registry::ConfRegistry;
use crate::inherit;
use crate::module::Module;
use crate::regex::{LetterCase, RegexPattern};
use crate::settings::server::{InvalidValues, ServerProduct, ServerSettings, server_settings};
use crate::settings::server_name::ServerName;

/// The module of the core's directives in `http` and `server`.
pub struct ServerCore;

impl Module for ServerCore {
    const NAME: &'static str = "server_core";
    type Conf = ServerCoreConf;
    const DIRECTIVES: &'static [Directive<ServerCoreConf>] = TABLE;

    fn inherit(conf: &mut ServerCoreConf, parent: &ServerCoreConf) {
        conf.inherit_settings(parent);
    }

    fn resolve(conf: &mut ServerCoreConf, _registry: &mut ConfRegistry) -> Result {
        let Some(span) = conf.span else { return Ok(()) };
        // There may be very many servers.
        conf.listens.shrink_to_fit();
        conf.names.shrink_to_fit();
        conf.written.shrink_to_fit();
        let size = conf.large_client_header_buffers.unwrap_or(LARGE_BUFFERS).size;
        if size < conf.connection_pool_size.unwrap_or(CONNECTION_POOL) {
            let message = "the \"large_client_header_buffers\" size must be equal to or greater than \"connection_pool_size\"";
            return Err(Error::new(message).at(span));
        }
        Ok(())
    }
}

macro_rules! make_conf {
    (
        plain { $($(#[$plain_doc:meta])* $plain:ident: $plain_type:ty = $default:expr,)* }
        written { $($(#[$written_doc:meta])* $written:ident: $written_type:ty,)* }
    ) => {
        /// The settings of one block as written; `None` where nothing was. Times are milliseconds, sizes bytes.
        #[derive(Default)]
        pub struct ServerCoreConf {
            /// The `server` word of the block, set by the builder; `None` for `http` and locations.
            pub span: Option<Span>,
            /// `listen`, in order.
            pub listens: Vec<ListenLine>,
            /// True when there is a `listen` line, also an invalid one: no address is implied.
            pub listening: bool,
            /// `server_name`, all names in order.
            pub names: Vec<ServerName>,
            /// How each of the names is written, in letters as nginx keeps them, and where.
            pub written: Vec<(Vec<u8>, Span)>,
            /// A `tunnel_pass` is in the server.
            pub(crate) accepts_connect: bool,
            /// Directives without effect here, recorded to refuse a second one.
            pub accepted: AcceptedServerCore,
            $($(#[$plain_doc])* pub $plain: Option<$plain_type>,)*
            $($(#[$written_doc])* pub $written: Option<$written_type>,)*
        }

        impl ServerCoreConf {
            fn inherit_settings(&mut self, parent: &ServerCoreConf) {
                inherit!(self, parent, $($plain,)* $($written,)*);
            }

            /// The settings with nginx's defaults where nothing was written.
            pub fn settings(&self) -> ServerSettings {
                let large = self.large_client_header_buffers.unwrap_or(LARGE_BUFFERS);
                ServerSettings {
                    name: self.name().to_vec(),
                    names: self.names.clone(),
                    large_client_header_buffers: (large.number, large.size),
                    invalid_received: self.invalid_header_values.unwrap_or(InvalidValues::Off),
                    invalid_made: self.invalid_header_values.unwrap_or(InvalidValues::Drop),
                    judges_controls: self.invalid_header_values.is_some(),
                    accepts_connect: self.accepts_connect,
                    product: self.product.clone().unwrap_or_default(),
                    $($plain: self.$plain.unwrap_or($default),)*
                }
            }
        }
    };
}

server_settings!(make_conf);

/// What is checked as nginx does, and then has no effect; the reasons are in the table.
#[derive(Default)]
#[allow(missing_docs, reason = "each is the directive of the same name")]
pub struct AcceptedServerCore {
    pub request_pool_size: Option<u64>,
    pub server_names_hash_max_size: Option<u64>,
    pub server_names_hash_bucket_size: Option<u64>,
    pub variables_hash_max_size: Option<u64>,
    pub variables_hash_bucket_size: Option<u64>,
}

impl ServerCoreConf {
    /// The server's names; without `server_name` it is the empty one, for requests that have no host.
    pub fn names(&self) -> &[ServerName] {
        if self.names.is_empty() { &NAMELESS } else { &self.names }
    }

    /// Whether a name is a pattern with capture groups: then it is matched even where no other server could be meant.
    pub fn has_captures(&self) -> bool {
        self.names.iter().any(|name| matches!(name, ServerName::Regex(pattern) if pattern.groups() > 0))
    }

    /// `$server_name`: the first name as written, `example.com` for `.example.com`.
    pub fn name(&self) -> &[u8] {
        let first = self.written.first().map_or(&b""[..], |(name, _)| name);
        first.strip_prefix(b".").unwrap_or(first)
    }
}

/// `server_name name ...`
fn server_name(conf: &mut ServerCoreConf, line: &mut LineCx<'_>) -> Result {
    for (i, word) in line.args().iter().enumerate() {
        let text = word.bytes();
        let wrong = match text {
            [b'*', rest @ ..] => rest.len() < 2 || rest[0] != b'.',
            [b'.'] => true,
            _ => false,
        };
        if wrong {
            return Err(line.fail_arg(i, format!("server name \"{word}\" is invalid")));
        }
        if text.contains(&b'/') {
            line.warn_arg(i, format!("server name \"{word}\" has suspicious symbols"));
        }
        let (name, written) = match text {
            b"~" => return Err(line.fail_arg(i, format!("empty regex in server name \"{word}\""))),
            [b'~', pattern @ ..] => {
                // Hosts are lower-cased before they are matched; a pattern with a capital would never match.
                let caseless = pattern.iter().any(u8::is_ascii_uppercase);
                (
                    ServerName::Regex(RegexPattern::compile(line, i, 1, LetterCase::ignored_if(caseless))?),
                    text.to_vec(),
                )
            }
            b"$hostname" => {
                let host = weir_rt::process::hostname();
                let host =
                    host.map_err(|error| line.fail_arg(i, format!("gethostname() failed ({error})")))?;
                (ServerName::parse(host.as_bytes()), host.into_bytes())
            }
            _ => (ServerName::parse(text), text.to_ascii_lowercase()),
        };
        conf.names.push(name);
        conf.written.push((written, word.span));
    }
    Ok(())
}

/// `connection_pool_size size`, `request_pool_size size`: nginx's bounds on a 64-bit machine.
fn pool_size(line: &LineCx<'_>, slot: &mut Option<u64>) -> Result {
    line.size(slot)?;
    match *slot {
        Some(size) if size < 112 => Err(line.fail("the pool size must be no less than 112")),
        Some(size) if size % 16 != 0 => Err(line.fail("the pool size must be a multiple of 16")),
        _ => Ok(()),
    }
}

/// `server_product name[/version]`
fn server_product(conf: &mut ServerCoreConf, line: &mut LineCx<'_>) -> Result {
    let text = line.arg(0);
    // It is in a field's value and in HTML: printed characters that mean nothing in either, spaces between words among them.
    let plain = |b: u8| (b.is_ascii_graphic() || b == b' ') && !matches!(b, b'<' | b'>' | b'&' | b'"');
    if text.trim().len() != text.len() || text.is_empty() || text.starts_with('/') || !text.bytes().all(plain)
    {
        return Err(line.invalid_value(0));
    }
    line.once(&mut conf.product, ServerProduct::new(text))
}

/// `listen address[:port] [parameter ...]`
fn listen(conf: &mut ServerCoreConf, line: &mut LineCx<'_>) -> Result {
    conf.listening = true;
    let listen = ListenLine::parse(line)?;
    if line.here() == weir_conf::Contexts::STREAM_SERVER {
        refuse_in_stream(&listen, line)?;
    }
    conf.listens.push(listen);
    Ok(())
}

/// What `listen` has for HTTP alone.
fn refuse_in_stream(listen: &ListenLine, line: &LineCx<'_>) -> Result {
    let foreign = [("http2", listen.http2), ("quic", listen.quic)];
    match foreign.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(line.fail(format!("the \"{name}\" parameter is not supported in \"stream\""))),
        None => Ok(()),
    }
}

// The alias gives the closures of the table what `c` is.
type ServerCoreRow = Directive<ServerCoreConf>;

const HTTP_OR_SERVER: weir_conf::Contexts = HTTP.or(SERVER);

const TABLE: &[ServerCoreRow] = &[
    ServerCoreRow::new("listen", SERVER.or(STREAM_SERVER), MORE, listen)
        .syntax(
            "listen address[:port] [parameter] ...\n\
             listen port [parameter] ...\n\
             listen unix:path [parameter] ...",
        )
        .default("*:80")
        .doc(
            "Address on which the server accepts requests; without a `listen` it is `*:80`, \
             or `*:8000` without root privileges. Parameters: `default_server`, `ssl`, \
             `http2`, `quic` (HTTP/3, beside a line with `ssl`), `proxy_protocol`. Of the socket: `backlog`, `rcvbuf`, `sndbuf`, \
             `fastopen`, `deferred`, `bind`, `ipv6only`, `reuseport`, `so_keepalive`, \
             `setfib`; of a unix socket `mode`, `owner`, `group`. In `stream` also `udp`: datagrams.",
        )
        .example("listen 80 default_server;\nlisten [::]:443 ssl;\nlisten [::]:443 quic;\nlisten unix:/run/weir.sock;"),
    ServerCoreRow::new("server_name", SERVER.or(STREAM_SERVER), MORE, server_name)
        .syntax("server_name name ...")
        .default("\"\"")
        .doc(
            "Host names of the server: exact, with a wildcard (`*.example.com`, \
             `www.example.*`, `.example.com`), or a regular expression (`~`), whose named \
             captures become variables; `$hostname` is the machine's name.",
        )
        .example("server_name example.com *.example.com ~^(?<user>\\w+)\\.example\\.net$;"),
    ServerCoreRow::new("client_header_timeout", HTTP_OR_SERVER, ONE, |c, line| {
        line.time_ms(&mut c.client_header_timeout)
    })
    .syntax("client_header_timeout time")
    .default("60s")
    .doc("Timeout for reading the request header; then the response is 408."),
    ServerCoreRow::new("client_header_buffer_size", HTTP_OR_SERVER, ONE, |c, line| {
        line.size(&mut c.client_header_buffer_size)
    })
    .syntax("client_header_buffer_size size")
    .default("1k")
    .doc("Size of the first buffer for the request header."),
    ServerCoreRow::new("large_client_header_buffers", HTTP_OR_SERVER, TWO, |c, line| {
        line.bufs(&mut c.large_client_header_buffers)
    })
    .syntax("large_client_header_buffers number size")
    .default("4 8k")
    .doc(
        "Number and size of buffers for a large request header: a request line longer than \
         one gets 414, a field longer than one 400.",
    ),
    ServerCoreRow::new("max_headers", HTTP_OR_SERVER, ONE, |c, line| {
        line.number(&mut c.max_headers, 1..=65_535)
    })
    .syntax("max_headers number")
    .default("1000")
    .doc("Maximum number of fields in a request header; more get 400. Those that `ignore_invalid_headers` leaves out are not counted."),
    ServerCoreRow::new("ignore_invalid_headers", HTTP_OR_SERVER, FLAG, |c, line| {
        line.flag(&mut c.ignore_invalid_headers)
    })
    .syntax("ignore_invalid_headers on | off")
    .default("on")
    .doc("Ignores header fields with invalid names; `off` rejects the request with 400."),
    ServerCoreRow::new("underscores_in_headers", HTTP_OR_SERVER, FLAG, |c, line| {
        line.flag(&mut c.underscores_in_headers)
    })
    .syntax("underscores_in_headers on | off")
    .default("off")
    .doc("Accepts underscores in names of request header fields."),
    ServerCoreRow::new("invalid_header_values", HTTP_OR_SERVER, ONE, |c, line| {
        line.one_of(&mut c.invalid_header_values, InvalidValues::NAMES)
    })
    .syntax("invalid_header_values off | drop | reject")
    .doc(
        "Handling of header field values with control characters: `off` passes them, `drop` \
         omits the field, `reject` fails the request (400 for a client's, 500 for one made \
         here). By default a client's pass, and values of variables with CR, LF or NUL are \
         dropped. Weir's own.",
    ),
    ServerCoreRow::new("merge_slashes", HTTP_OR_SERVER, FLAG, |c, line| line.flag(&mut c.merge_slashes))
        .syntax("merge_slashes on | off")
        .default("on")
        .doc("Merges adjacent slashes in request URIs into one."),
    ServerCoreRow::new("server_product", HTTP_OR_SERVER, ONE, server_product)
        .syntax("server_product name[/version]")
        .doc("Name of the server in the `Server` field and on error pages. Weir's own."),
    ServerCoreRow::new("connection_pool_size", HTTP_OR_SERVER, ONE, |c, line| {
        pool_size(line, &mut c.connection_pool_size)
    })
    .syntax("connection_pool_size size")
    .default("512")
    .doc(
        "Accepted for compatibility with nginx, without effect: connections take memory from \
         the worker's free lists.",
    ),
    ServerCoreRow::new("request_pool_size", HTTP_OR_SERVER, ONE, |c, line| {
        pool_size(line, &mut c.accepted.request_pool_size)
    })
    .syntax("request_pool_size size")
    .default("4k")
    .doc(
        "Accepted for compatibility with nginx, without effect: requests take memory from the \
         worker's free lists.",
    ),
    ServerCoreRow::new("server_names_hash_max_size", HTTP_OR_STREAM, ONE, |c, line| {
        line.number(&mut c.accepted.server_names_hash_max_size, 0..)
    })
    .syntax("server_names_hash_max_size size")
    .default("512")
    .doc("Accepted for compatibility with nginx, without effect: the table of names grows as needed."),
    ServerCoreRow::new("server_names_hash_bucket_size", HTTP_OR_STREAM, ONE, |c, line| {
        line.number(&mut c.accepted.server_names_hash_bucket_size, 0..)
    })
    .syntax("server_names_hash_bucket_size size")
    .default("64")
    .doc(
        "Accepted for compatibility with nginx, without effect: the table of names has no \
         buckets of fixed size.",
    ),
    ServerCoreRow::new("variables_hash_max_size", HTTP_OR_STREAM, ONE, |c, line| {
        line.number(&mut c.accepted.variables_hash_max_size, 0..)
    })
    .syntax("variables_hash_max_size size")
    .default("1024")
    .doc(
        "Accepted for compatibility with nginx, without effect: variables are looked up when \
         the configuration is read.",
    ),
    ServerCoreRow::new("variables_hash_bucket_size", HTTP_OR_STREAM, ONE, |c, line| {
        line.number(&mut c.accepted.variables_hash_bucket_size, 0..)
    })
    .syntax("variables_hash_bucket_size size")
    .default("64")
    .doc(
        "Accepted for compatibility with nginx, without effect: variables are looked up when \
         the configuration is read.",
    ),
];

/// `large_client_header_buffers 4 8k`
const LARGE_BUFFERS: BufferSizes = BufferSizes { number: 4, size: 8 << 10 };
/// `connection_pool_size` on a 64-bit machine.
const CONNECTION_POOL: u64 = 512;
static NAMELESS: [ServerName; 1] = [ServerName::Exact(Vec::new())];

#[cfg(test)]
mod tests;
