//! The core's directives of a virtual server: where it listens, its names, and how request heads are read.

use weir_conf::names::*;
use weir_conf::{BufferSizes, Directive, Error, LineCx, Result, Span};
use weir_http::h1::HeadLimits;

use super::listen::{ListenLine, ServerName};
use super::registry::ConfRegistry;
use crate::inherit;
use crate::module::Module;
use crate::regex::{LetterCase, RegexPattern};

/// The module of the core's directives in `http` and `server`.
pub struct ServerCore;

impl Module for ServerCore {
    const NAME: &'static str = "server_core";
    type Conf = ServerCoreConf;
    const DIRECTIVES: &'static [Directive<ServerCoreConf>] = TABLE;

    fn inherit(conf: &mut ServerCoreConf, parent: &ServerCoreConf) {
        inherit!(
            conf,
            parent,
            client_header_timeout,
            client_header_buffer_size,
            large_client_header_buffers,
            max_headers,
            ignore_invalid_headers,
            underscores_in_headers,
            invalid_header_values,
            merge_slashes,
            connection_pool_size,
            product
        );
    }

    fn resolve(conf: &mut ServerCoreConf, _registry: &mut ConfRegistry) -> Result {
        let Some(span) = conf.span else { return Ok(()) };
        if let Some(quic) = conf.quic.filter(|_| !conf.over_tcp) {
            let message = "the server listens for HTTP/3 only, which Weir does not speak yet";
            return Err(Error::new(message).at(quic).hint("add a \"listen ... ssl\" beside it"));
        }
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

/// What becomes of a field whose value holds control bytes (RFC 9110 section 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidValues {
    /// It is taken, as in nginx.
    Off,
    /// The field is left out.
    Drop,
    /// The request is refused.
    Reject,
}

impl InvalidValues {
    const NAMES: &[(&str, InvalidValues)] =
        &[("off", InvalidValues::Off), ("drop", InvalidValues::Drop), ("reject", InvalidValues::Reject)];
}

/// Whether a field's value holds control bytes other than the tab.
pub(crate) fn has_control(value: &[u8]) -> bool {
    value.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f)
}

/// Whether a value holds what ends a field, or is read as its end (RFC 9110 section 5.5).
pub(crate) fn ends_field(value: &[u8]) -> bool {
    value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

/// Whether a value has no other control bytes than folds: each line end is followed by a tab, as `$ssl_client_cert` has
/// them. Without a colon what follows is no field even for a server that takes no notice of the tab.
pub(crate) fn is_folded(value: &[u8]) -> bool {
    let mut lines = value.split(|byte| *byte == b'\n');
    let is_plain = |line: &[u8]| !has_control(line);
    lines.next().is_some_and(is_plain)
        && lines.all(|line| line.first() == Some(&b'\t') && is_plain(line) && !line.contains(&b':'))
}

/// The settings of one block as written; `None` where nothing was. Times are milliseconds, sizes bytes.
#[derive(Default)]
pub struct ServerCoreConf {
    /// The `server` word of the block, set by the builder; `None` for `http` and locations.
    pub span: Option<Span>,
    /// `listen`, in order.
    pub listens: Vec<ListenLine>,
    /// True when there is a `listen` line, also an invalid one: no address is implied.
    pub listening: bool,
    /// The first `listen ... quic`, and whether there is another `listen` beside.
    quic: Option<Span>,
    over_tcp: bool,
    /// `server_name`, all names in order.
    pub names: Vec<ServerName>,
    /// How each of the names is written, in letters as nginx keeps them, and where.
    pub written: Vec<(Vec<u8>, Span)>,
    /// `client_header_timeout`, in milliseconds.
    pub client_header_timeout: Option<u64>,
    /// `client_header_buffer_size`, in bytes.
    pub client_header_buffer_size: Option<u64>,
    /// `large_client_header_buffers`: number, and bytes of each.
    pub large_client_header_buffers: Option<BufferSizes>,
    /// `max_headers`: maximum number of fields of a request.
    pub max_headers: Option<usize>,
    /// `ignore_invalid_headers`: whether fields with invalid names are left out.
    pub ignore_invalid_headers: Option<bool>,
    /// `underscores_in_headers`: whether underscores are valid in names.
    pub underscores_in_headers: Option<bool>,
    /// `invalid_header_values`: what becomes of fields with control bytes in their values.
    pub invalid_header_values: Option<InvalidValues>,
    /// `merge_slashes`: whether adjacent slashes of a URI are merged.
    pub merge_slashes: Option<bool>,
    /// `connection_pool_size`, in bytes; only checked.
    pub connection_pool_size: Option<u64>,
    /// A `tunnel_pass` is in the server.
    pub(crate) accepts_connect: bool,
    /// `server_product`: the name in the `Server` field.
    pub product: Option<ServerProduct>,
    /// Directives without effect here, recorded to refuse a second one.
    pub accepted: AcceptedServerCore,
}

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

/// What a server needs before a request's location is known, resolved. Times are milliseconds, sizes bytes.
#[derive(Clone)]
pub struct ServerSettings {
    /// `$server_name`: the first name; empty without one.
    pub name: Vec<u8>,
    /// `server_name`, all names in order.
    pub names: Vec<ServerName>,
    /// `client_header_timeout`, in milliseconds.
    pub client_header_timeout: u64,
    /// `client_header_buffer_size`, in bytes.
    pub client_header_buffer_size: u64,
    /// `large_client_header_buffers`: number and size.
    pub large_client_header_buffers: (u64, u64),
    /// `max_headers`: how many fields a request may have.
    pub max_headers: usize,
    /// True when fields with invalid names are left out (`ignore_invalid_headers`).
    pub ignore_invalid_headers: bool,
    /// True when underscores are valid in names (`underscores_in_headers`).
    pub underscores_in_headers: bool,
    /// `invalid_header_values` for fields of clients.
    pub invalid_received: InvalidValues,
    /// What becomes of control bytes in values that the configuration's variables make, as
    /// [`ServerSettings::invalid_received`] for the client's.
    pub invalid_made: InvalidValues,
    /// True when the directive was written: all control bytes count in such values; else only those that end a field.
    pub judges_controls: bool,
    /// True when adjacent slashes of a URI are merged (`merge_slashes`).
    pub merge_slashes: bool,
    /// True when requests with the method CONNECT are taken: a `tunnel_pass` is in the server.
    pub accepts_connect: bool,
    /// The name in the `Server` field (`server_product`).
    pub product: ServerProduct,
}

/// What the server calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProduct {
    /// Without version: `weir`.
    pub name: String,
    /// With version: `weir/0.1.0`.
    pub full: String,
    /// The `Server` field with version, line end included.
    pub line_on: Vec<u8>,
    /// The `Server` field without version, line end included.
    pub line_off: Vec<u8>,
}

impl ServerProduct {
    /// From `name` or `name/version`.
    pub fn new(full: &str) -> ServerProduct {
        let name = full.split_once('/').map_or(full, |(name, _)| name);
        ServerProduct {
            name: name.to_owned(),
            full: full.to_owned(),
            line_on: format!("Server: {full}\r\n").into_bytes(),
            line_off: format!("Server: {name}\r\n").into_bytes(),
        }
    }
}

impl Default for ServerProduct {
    fn default() -> ServerProduct {
        ServerProduct::new(concat!("weir/", env!("CARGO_PKG_VERSION")))
    }
}

impl ServerCoreConf {
    /// The settings with nginx's defaults where nothing was written.
    pub fn settings(&self) -> ServerSettings {
        let large = self.large_client_header_buffers.unwrap_or(LARGE_BUFFERS);
        ServerSettings {
            name: self.name().to_vec(),
            names: self.names.clone(),
            client_header_timeout: self.client_header_timeout.unwrap_or(60_000),
            client_header_buffer_size: self.client_header_buffer_size.unwrap_or(1024),
            large_client_header_buffers: (large.number, large.size),
            max_headers: self.max_headers.unwrap_or(1000),
            ignore_invalid_headers: self.ignore_invalid_headers.unwrap_or(true),
            underscores_in_headers: self.underscores_in_headers.unwrap_or(false),
            invalid_received: self.invalid_header_values.unwrap_or(InvalidValues::Off),
            invalid_made: self.invalid_header_values.unwrap_or(InvalidValues::Drop),
            judges_controls: self.invalid_header_values.is_some(),
            merge_slashes: self.merge_slashes.unwrap_or(true),
            accepts_connect: self.accepts_connect,
            product: self.product.clone().unwrap_or_default(),
        }
    }

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

impl ServerSettings {
    /// What the parser of request heads is bound by. A line is as long as the larger buffer; a head may fill the
    /// first buffer and all large ones.
    pub fn limits(&self) -> HeadLimits {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (number, large) = self.large_client_header_buffers;
        HeadLimits {
            max_line: size(large.max(self.client_header_buffer_size)),
            max_head: size(number.saturating_mul(large).saturating_add(self.client_header_buffer_size)),
            max_fields: self.max_headers,
        }
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
    // It is in a field's value and in HTML: visible characters that mean nothing in either.
    let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'<' | b'>' | b'&' | b'"');
    if text.is_empty() || text.starts_with('/') || !text.bytes().all(plain) {
        return Err(line.invalid_value(0));
    }
    line.once(&mut conf.product, ServerProduct::new(text))
}

/// `listen address[:port] [parameter ...]`
fn listen(conf: &mut ServerCoreConf, line: &mut LineCx<'_>) -> Result {
    conf.listening = true;
    match ListenLine::parse(line) {
        Ok(ListenLine { quic: true, span, .. }) => {
            conf.quic = conf.quic.or(span);
            line.warn("Weir does not speak HTTP/3 yet, the \"listen ... quic\" directive is ignored");
        }
        listen => {
            conf.over_tcp = true;
            conf.listens.push(listen?);
        }
    }
    Ok(())
}

// The alias gives the closures of the table what `c` is.
type ServerCoreRow = Directive<ServerCoreConf>;

const HTTP_OR_SERVER: weir_conf::Contexts = HTTP.or(SERVER);

const TABLE: &[ServerCoreRow] = &[
    ServerCoreRow::new("listen", SERVER, MORE, listen)
        .syntax(
            "listen address[:port] [parameter] ...\n\
             listen port [parameter] ...\n\
             listen unix:path [parameter] ...",
        )
        .default("*:80")
        .doc(
            "Address on which the server accepts requests; without a `listen` it is `*:80`, \
             or `*:8000` without root privileges. Parameters: `default_server`, `ssl`, \
             `http2`, `proxy_protocol`, and of the socket `backlog`, `rcvbuf`, `sndbuf`, \
             `fastopen`, `deferred`, `bind`, `ipv6only`, `reuseport`, `so_keepalive`, \
             `setfib`.",
        )
        .example("listen 80 default_server;\nlisten [::]:443 ssl;\nlisten unix:/run/weir.sock;"),
    ServerCoreRow::new("server_name", SERVER, MORE, server_name)
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
    .doc("Maximum number of fields in a request header; more get 400."),
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
    ServerCoreRow::new("server_names_hash_max_size", HTTP, ONE, |c, line| {
        line.number(&mut c.accepted.server_names_hash_max_size, 0..)
    })
    .syntax("server_names_hash_max_size size")
    .default("512")
    .doc("Accepted for compatibility with nginx, without effect: the table of names grows as needed."),
    ServerCoreRow::new("server_names_hash_bucket_size", HTTP, ONE, |c, line| {
        line.number(&mut c.accepted.server_names_hash_bucket_size, 0..)
    })
    .syntax("server_names_hash_bucket_size size")
    .default("64")
    .doc(
        "Accepted for compatibility with nginx, without effect: the table of names has no \
         buckets of fixed size.",
    ),
    ServerCoreRow::new("variables_hash_max_size", HTTP, ONE, |c, line| {
        line.number(&mut c.accepted.variables_hash_max_size, 0..)
    })
    .syntax("variables_hash_max_size size")
    .default("1024")
    .doc(
        "Accepted for compatibility with nginx, without effect: variables are looked up when \
         the configuration is read.",
    ),
    ServerCoreRow::new("variables_hash_bucket_size", HTTP, ONE, |c, line| {
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
