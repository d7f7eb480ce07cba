//! The directives that every `*_pass` module has under its own prefix (`proxy_read_timeout`, `fastcgi_read_timeout`,
//! ...): written once as [`UpstreamFamily`], resolved to [`UpstreamSettings`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weir_conf::{BufferSizes, Error, LineCx, Result, Span, parse_size};
use weir_rt::net::SockAddr;

use crate::config::buffer_sizes::ResponseBufferSizes;
use crate::config::cache_directives::{CacheFamily, CacheSettings, StoreTarget};
use crate::config::failure_reason::FailureReason;
use crate::config::field_names::FieldNames;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::conf::temp_path::{TempPath, TempPaths};
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, inherit};

/// The family's settings of one block as written: `None` where the directive is absent in this block. Times are
/// milliseconds, sizes bytes.
#[derive(Clone, Debug, Default)]
pub struct UpstreamFamily {
    /// `_bind`; `Some(None)`: `off`.
    pub bind: Option<Option<BindAddress>>,
    /// `_socket_keepalive`: `Some(true)` probes idle connections (`SO_KEEPALIVE`).
    pub socket_keepalive: Option<bool>,
    /// `_socket_rcvbuf`, in bytes (`SO_RCVBUF`).
    pub socket_rcvbuf: Option<u64>,
    /// `_socket_sndbuf`, in bytes (`SO_SNDBUF`).
    pub socket_sndbuf: Option<u64>,
    /// `_send_lowat`; Linux has no such thing.
    pub send_lowat: Option<u64>,
    /// `_connect_timeout`, in milliseconds.
    pub connect_timeout: Option<u64>,
    /// `_send_timeout`, in milliseconds.
    pub send_timeout: Option<u64>,
    /// `_read_timeout`, in milliseconds.
    pub read_timeout: Option<u64>,
    /// `_buffering`: whether responses are read ahead of the client.
    pub buffering: Option<bool>,
    /// `_request_buffering`: whether requests are read whole before they are sent.
    pub request_buffering: Option<bool>,
    /// `_buffer_size`, in bytes.
    pub buffer_size: Option<u64>,
    /// `_buffers`: number, and bytes of each.
    pub buffers: Option<BufferSizes>,
    /// `_busy_buffers_size`, in bytes.
    pub busy_buffers_size: Option<u64>,
    /// The place of the last line about sizes in this block; `None` without one. Sizes that contradict each other are
    /// reported there.
    pub sizes_at: Option<Span>,
    /// `_max_temp_file_size`, in bytes.
    pub max_temp_file_size: Option<u64>,
    /// `_temp_file_write_size`, in bytes.
    pub temp_file_write_size: Option<u64>,
    /// `_temp_path`: the directory, and the lengths of its levels.
    pub temp_path: Option<TempPath>,
    /// `_next_upstream`, bits of [`FailureReason`].
    pub next_upstream: Option<u32>,
    /// `_next_upstream_tries`: how many servers a request may try.
    pub next_tries: Option<u64>,
    /// `_next_upstream_timeout`, in milliseconds.
    pub next_timeout: Option<u64>,
    /// `_ignore_client_abort`: whether the request to the server goes on when the client has left.
    pub ignore_client_abort: Option<bool>,
    /// `_intercept_errors`: whether `error_page` applies to statuses of servers.
    pub intercept_errors: Option<bool>,
    /// `_pass_request_headers`: whether the client's fields are sent to the server.
    pub pass_request_headers: Option<bool>,
    /// `_pass_request_body`: whether the client's body is sent to the server.
    pub pass_request_body: Option<bool>,
    /// `_pass_trailers`: whether the response's trailer fields are sent to the client.
    pub pass_trailers: Option<bool>,
    /// `_pass_header`: names of response fields that are sent to the client although they are hidden by default.
    pub pass_headers: Option<Vec<String>>,
    /// `_hide_header`: names of response fields that are not sent to the client.
    pub hide_headers: Option<Vec<String>>,
    /// `_ignore_headers`, bits of [`IGNORED`].
    pub ignore_headers: Option<u32>,
    /// `_limit_rate`: bytes per second read from the server, a text with variables.
    pub limit_rate: Option<ValueScript>,
    /// `_force_ranges`: whether byte ranges are served whatever the response's `Accept-Ranges`.
    pub force_ranges: Option<bool>,
    /// `proxy_protocol`; `Some(None)`: `off`.
    pub(crate) proxy_protocol: Option<Option<ProxyHeader>>,
    /// True when the module has no files: responses are never read ahead into one.
    pub without_files: bool,
    /// True when a 404 is the location's own, whatever `_intercept_errors` says: servers have no page for it.
    pub intercept_404: bool,
    /// What is cached of responses.
    pub cache: CacheFamily,
    resolved: Option<Arc<UpstreamSettings>>,
}

/// The PROXY protocol's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeader {
    /// A line of text.
    V1,
    /// Version 2, binary.
    V2,
}

/// `_bind address [transparent]`.
#[derive(Clone, Debug)]
pub struct BindAddress {
    /// The address, perhaps of variables.
    pub address: ValueScript,
    /// True with `transparent`: the address need not be this machine's (`IP_TRANSPARENT`).
    pub transparent: bool,
}

/// The family's settings of a location, inherited and with defaults. The fields are described at [`UpstreamFamily`].
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// The module's prefix: `proxy`.
    pub prefix: &'static str,
    /// The local address of connections (`_bind`); `None`: the kernel chooses.
    pub bind: Option<BindAddress>,
    /// True when idle connections are probed (`SO_KEEPALIVE`).
    pub socket_keepalive: bool,
    /// Bytes of the socket's receive buffer (`SO_RCVBUF`); `None`: the system's default.
    pub socket_rcvbuf: Option<u64>,
    /// Bytes of the socket's send buffer (`SO_SNDBUF`); `None`: the system's default.
    pub socket_sndbuf: Option<u64>,
    /// Milliseconds that connecting may take (`_connect_timeout`).
    pub connect_timeout: u64,
    /// Milliseconds between two successful sends (`_send_timeout`).
    pub send_timeout: u64,
    /// Milliseconds between two receives (`_read_timeout`).
    pub read_timeout: u64,
    /// True when responses are read as fast as they come, false when only as fast as the client takes them.
    pub buffering: bool,
    /// True when a request is sent only once its body is there whole.
    pub request_buffering: bool,
    /// Bytes of the longest head of a response (`_buffer_size`).
    pub buffer_size: u64,
    /// What may be read ahead of the client in memory (`_buffers`).
    pub buffers: BufferSizes,
    /// Bytes of the response that may be on their way to the client at a time (`_busy_buffers_size`); `None`: the
    /// directive is absent.
    pub busy: Option<u64>,
    /// Bytes that may be read ahead in a file; 0: nothing (`_max_temp_file_size`).
    pub max_temp_file_size: u64,
    /// Bytes that are written to the file at a time (`_temp_file_write_size`).
    pub temp_file_write_size: u64,
    /// The directory of those files, and the lengths of its levels.
    pub temp_path: TempPath,
    /// Failures after which another peer is tried: bits of [`FailureReason`].
    pub next_upstream: u32,
    /// Maximum number of tries; 0: as many as there are peers.
    pub next_tries: u64,
    /// Milliseconds after which no other server is asked; 0: no limit (`_next_upstream_timeout`).
    pub next_timeout: u64,
    /// True when the request to the server goes on although the client has left.
    pub ignore_client_abort: bool,
    /// True when `error_page` applies to statuses of the server, too.
    pub intercept_errors: bool,
    /// True when a 404 of the server is replaced by the location's own in any case.
    pub intercept_404: bool,
    /// True when the client's fields are sent to the server.
    pub pass_request_headers: bool,
    /// True when the client's body is sent to the server.
    pub pass_request_body: bool,
    /// True when the response's trailer fields are sent to the client.
    pub pass_trailers: bool,
    /// The fields that do not reach the client.
    pub(crate) hidden: FieldNames,
    /// Bits of [`IGNORED`].
    pub ignore_headers: u32,
    /// Bytes per second read from the server, computed for each response; `None` or 0: no limit.
    pub limit_rate: Option<ValueScript>,
    /// True when byte ranges are cut whatever the response's `Accept-Ranges`.
    pub force_ranges: bool,
    /// The PROXY protocol header that connections begin with; such a connection serves one client only. `None`: no
    /// header.
    pub(crate) proxy_protocol: Option<ProxyHeader>,
    /// `_cache…`; `None`: nothing is cached.
    pub cache: Option<Arc<CacheSettings>>,
    /// `_store`: the path of the file, and its permission bits; `None`: nothing is stored.
    pub store: Option<(StoreTarget, u32)>,
}

impl UpstreamSettings {
    /// Whether the request has a body that the server gets.
    #[must_use]
    pub fn passes_body(&self, x: &Exchange) -> bool {
        self.pass_request_body && (x.body.is_read() || x.body.is_pending())
    }
}

/// Gives the macro `$use` the settings of [`UpstreamFamily`] that are `None` where no line says them, after its own arguments.
macro_rules! written_settings {
    ($use:ident, $($argument:expr),+) => {
        $use!(
            $($argument),+,
            bind,
            socket_keepalive,
            socket_rcvbuf,
            socket_sndbuf,
            send_lowat,
            connect_timeout,
            send_timeout,
            read_timeout,
            buffering,
            request_buffering,
            buffer_size,
            buffers,
            busy_buffers_size,
            sizes_at,
            max_temp_file_size,
            temp_file_write_size,
            temp_path,
            next_upstream,
            next_tries,
            next_timeout,
            ignore_client_abort,
            intercept_errors,
            pass_request_headers,
            pass_request_body,
            pass_trailers,
            // nginx: a block that names fields of either kind of its own still has the other kind of the block around.
            pass_headers,
            hide_headers,
            ignore_headers,
            limit_rate,
            force_ranges,
            proxy_protocol,
        )
    };
}

impl UpstreamFamily {
    /// Takes from the block around what is not set.
    pub fn inherit(&mut self, parent: &UpstreamFamily) {
        let conf = self;
        if conf.is_unwritten() {
            *conf = parent.clone();
            return;
        }
        written_settings!(inherit, conf, parent);
        conf.cache.inherit(&parent.cache);
    }

    /// Whether this block says nothing of the family.
    fn is_unwritten(&self) -> bool {
        macro_rules! unwritten {
            ($family:expr, $($field:ident),+ $(,)?) => {{
                // All fields: a new one is in the list of settings, or here.
                let UpstreamFamily { $($field,)+ without_files, intercept_404, cache, resolved } = $family;
                true $(&& $field.is_none())+
                    && !without_files
                    && !intercept_404
                    && cache.is_unwritten()
                    && resolved.is_none()
            }};
        }
        written_settings!(unwritten, self)
    }

    /// Checks the block and makes its [`UpstreamSettings`]. `hidden`: the fields that the protocol hides by default, beside those
    /// that are for this server ([`FOR_US`]).
    ///
    /// # Errors
    /// nginx's words for sizes that do not fit together.
    pub fn resolve(&mut self, prefix: &'static str, hidden: &[&str], registry: &mut ConfRegistry) -> Result {
        let sizes = ResponseBufferSizes::of(self);
        // As in nginx what a server or a location has in the end is checked: it may say more than `http`.
        if !registry.settles_http {
            sizes.check(prefix).map_err(|message| Error { span: self.sizes_at, ..Error::new(message) })?;
        }
        if self.resolved.is_some() {
            return Ok(()); // those of the block around, which has said all
        }
        let ResponseBufferSizes { buffer_size, buffers, max_temp_file_size, temp_file_write_size, .. } =
            sizes;
        let directory = || Arc::new(registry.paths.prefix.join(format!("{prefix}_temp")));
        let temp_path =
            self.temp_path.get_or_insert_with(|| TempPath { path: directory(), levels: [1, 2, 0] }).clone();
        if !self.without_files {
            registry.shared::<TempPaths>().add(&temp_path.path);
        }
        self.resolved = Some(Arc::new(UpstreamSettings {
            prefix,
            bind: self.bind.clone().flatten(),
            socket_keepalive: self.socket_keepalive.unwrap_or(false),
            socket_rcvbuf: self.socket_rcvbuf.filter(|bytes| *bytes > 0),
            socket_sndbuf: self.socket_sndbuf.filter(|bytes| *bytes > 0),
            connect_timeout: self.connect_timeout.unwrap_or(60_000),
            send_timeout: self.send_timeout.unwrap_or(60_000),
            read_timeout: self.read_timeout.unwrap_or(60_000),
            buffering: self.buffering.unwrap_or(true),
            request_buffering: self.request_buffering.unwrap_or(true),
            buffer_size,
            buffers,
            busy: self.busy_buffers_size,
            max_temp_file_size,
            temp_file_write_size,
            temp_path,
            next_upstream: self.next_upstream.unwrap_or(FailureReason::ERROR.0 | FailureReason::TIMEOUT.0),
            next_tries: self.next_tries.unwrap_or(0),
            next_timeout: self.next_timeout.unwrap_or(0),
            ignore_client_abort: self.ignore_client_abort.unwrap_or(false),
            intercept_errors: self.intercept_errors.unwrap_or(false),
            intercept_404: self.intercept_404,
            pass_request_headers: self.pass_request_headers.unwrap_or(true),
            pass_request_body: self.pass_request_body.unwrap_or(true),
            pass_trailers: self.pass_trailers.unwrap_or(false),
            hidden: self.hidden(hidden),
            ignore_headers: self.ignore_headers.unwrap_or(0),
            limit_rate: self.limit_rate.clone(),
            force_ranges: self.force_ranges.unwrap_or(false),
            proxy_protocol: self.proxy_protocol.flatten(),
            cache: self.cache.resolve(prefix)?,
            store: self
                .cache
                .store
                .clone()
                .flatten()
                .map(|to| (to, self.cache.store_access.unwrap_or(0o600))),
        }));
        Ok(())
    }

    /// What [`UpstreamFamily::resolve`] made, `None` before it ran. Each caller gets a copy of its own: each request
    /// counts a reference, and workers that count in one place would write the same cache line.
    pub fn settings(&self) -> Option<Arc<UpstreamSettings>> {
        self.resolved.as_deref().cloned().map(Arc::new)
    }

    fn hidden(&self, default: &[&str]) -> FieldNames {
        let is_passed =
            |name: &str| self.pass_headers.iter().flatten().any(|passed| passed.eq_ignore_ascii_case(name));
        let default = default.iter().copied().chain(FOR_US).filter(|name| !is_passed(name));
        let own = self.hide_headers.iter().flatten().map(String::as_str);
        let mut hidden = FieldNames::default();
        default.chain(own).for_each(|name| hidden.add(name));
        hidden
    }

    /// `_bind address [transparent] | off`
    ///
    /// # Errors
    /// nginx's words for another parameter.
    pub fn set_bind(slot: &mut Option<Option<BindAddress>>, line: &mut LineCx<'_>) -> Result {
        if line.args().len() == 1 && line.arg(0) == "off" {
            return line.once(slot, None);
        }
        let address = ValueScript::compile(line, 0)?;
        let constant = address.constant().map(String::from_utf8_lossy);
        if constant.is_some_and(|text| local_address(&text).is_none()) {
            return Err(line.fail_arg(0, format!("invalid address \"{}\"", line.arg(0))));
        }
        let transparent = match line.args().get(1) {
            None => false,
            Some(word) if word.is("transparent") => true,
            Some(_) => return Err(line.invalid_parameter(1)),
        };
        line.once(slot, Some(BindAddress { address, transparent }))
    }

    /// `proxy_protocol on | off | v1 | v2`; `on` is version 1.
    pub fn set_proxy_protocol(&mut self, line: &mut LineCx<'_>) -> Result {
        let version = match line.arg(0) {
            "off" => None,
            "on" | "v1" => Some(ProxyHeader::V1),
            "v2" => Some(ProxyHeader::V2),
            _ => return Err(line.invalid_value(0)),
        };
        line.once(&mut self.proxy_protocol, version)
    }

    /// `_send_lowat size`, which says that it has no effect.
    ///
    /// # Errors
    /// It is no size.
    pub fn set_lowat(&mut self, line: &mut LineCx<'_>) -> Result {
        line.size(&mut self.send_lowat)?;
        line.warn(format!("\"{}\" is not supported, ignored", line.name()));
        Ok(())
    }

    /// `_limit_rate rate`, a size or a value of variables.
    ///
    /// # Errors
    /// nginx's words for a constant that is no size.
    pub fn set_rate(slot: &mut Option<ValueScript>, line: &mut LineCx<'_>) -> Result {
        let rate = ValueScript::compile(line, 0)?;
        if rate.constant().is_some_and(|text| parse_size(text).is_none()) {
            return Err(line.refuse_arg(0, "invalid value"));
        }
        line.once(slot, rate)
    }
}

/// The address that `_bind` names: of a kind that servers have, with a port or without.
pub(crate) fn local_address(text: &str) -> Option<SockAddr> {
    let literal = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = literal.parse().map(|ip: IpAddr| SocketAddr::new(ip, 0)).or_else(|_| text.parse());
    address.ok().map(SockAddr::from)
}

/// Fields that say something to this server: clients do not see them, whatever the protocol.
const FOR_US: [&str; 5] =
    ["X-Accel-Expires", "X-Accel-Redirect", "X-Accel-Limit-Rate", "X-Accel-Buffering", "X-Accel-Charset"];

/// The fields that `_ignore_headers` can name.
pub const IGNORED: [(&str, u32); 9] = [
    ("X-Accel-Redirect", ignored::REDIRECT),
    ("X-Accel-Expires", ignored::X_EXPIRES),
    ("X-Accel-Limit-Rate", ignored::LIMIT_RATE),
    ("X-Accel-Buffering", ignored::BUFFERING),
    ("X-Accel-Charset", ignored::CHARSET),
    ("Expires", ignored::EXPIRES),
    ("Cache-Control", ignored::CACHE_CONTROL),
    ("Set-Cookie", ignored::SET_COOKIE),
    ("Vary", ignored::VARY),
];

/// Bits of [`UpstreamSettings::ignore_headers`].
#[allow(missing_docs, reason = "each is the field of the same name")]
pub mod ignored {
    pub const REDIRECT: u32 = 1;
    pub(crate) const X_EXPIRES: u32 = 1 << 1;
    pub(crate) const LIMIT_RATE: u32 = 1 << 2;
    pub(crate) const BUFFERING: u32 = 1 << 3;
    pub(crate) const CHARSET: u32 = 1 << 4;
    pub(crate) const EXPIRES: u32 = 1 << 5;
    pub(crate) const CACHE_CONTROL: u32 = 1 << 6;
    pub(crate) const SET_COOKIE: u32 = 1 << 7;
    pub(crate) const VARY: u32 = 1 << 8;
}
