//! The core's settings of a location, resolved: what every request reads.
//!
//! The directives that fill it stand in [`super::http_core`].

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use weir_http::mime::Types;

use crate::resolver::Resolver;
use crate::variable::Script;

/// The settings of one location, after inheritance and defaults. Times are milliseconds, sizes bytes.
#[derive(Clone)]
pub struct Core {
    /// Bytes of the URI that the location's name is: what the URI of a `proxy_pass` replaces; 0 for a location by
    /// regular expression or name.
    pub location_len: usize,
    /// `root`, or `alias` when [`Core::alias`] is set.
    pub root: Script,
    /// `alias`: how many bytes of the URI it replaces, or that the location is a regular expression.
    pub alias: Option<Alias>,
    /// `types`.
    pub types: Arc<Types>,
    /// `default_type`.
    pub default_type: Rc<[u8]>,
    /// `internal`.
    pub internal: bool,
    /// `satisfy any`.
    pub satisfy_any: bool,
    /// `error_page`, in order.
    pub error_pages: Arc<[ErrorPage]>,
    /// `recursive_error_pages`.
    pub recursive_error_pages: bool,
    /// `client_max_body_size`; 0 for no limit.
    pub client_max_body_size: u64,
    /// `client_body_buffer_size`.
    pub client_body_buffer_size: u64,
    /// `client_body_timeout`.
    pub client_body_timeout: u64,
    /// `client_body_in_file_only`.
    pub client_body_in_file_only: InFileOnly,
    /// `client_body_in_single_buffer`.
    pub client_body_in_single_buffer: bool,
    /// `client_body_temp_path`: the folder, and the widths of its levels.
    pub client_body_temp_path: (Arc<PathBuf>, [u8; 3]),
    /// `keepalive_timeout`, first argument; 0 closes after each response.
    pub keepalive_timeout: u64,
    /// `keepalive_timeout`, second argument, in seconds: the `Keep-Alive` field.
    pub keepalive_header: u64,
    /// `keepalive_requests`.
    pub keepalive_requests: u64,
    /// `keepalive_time`.
    pub keepalive_time: u64,
    /// `keepalive_min_timeout`: a connection idle for less is not closed when the server stops gracefully.
    pub keepalive_min_timeout: u64,
    /// `keepalive_disable msie6`: the POST requests of old browsers.
    pub keepalive_disable_msie6: bool,
    /// `keepalive_disable safari`.
    pub keepalive_disable_safari: bool,
    /// `send_timeout`, between two writes.
    pub send_timeout: u64,
    /// `lingering_close`.
    pub lingering_close: Lingering,
    /// `lingering_time`.
    pub lingering_time: u64,
    /// `lingering_timeout`.
    pub lingering_timeout: u64,
    /// `limit_rate`, bytes a second.
    pub limit_rate: Option<Script>,
    /// `limit_rate_after`, bytes.
    pub limit_rate_after: Option<Script>,
    /// `early_hints`: passed on when one is neither empty nor `0`.
    pub early_hints: Box<[Script]>,
    /// `reset_timedout_connection`.
    pub reset_timedout_connection: bool,
    /// `server_tokens`.
    pub server_tokens: ServerTokens,
    /// `tcp_nodelay`.
    pub tcp_nodelay: bool,
    /// `tcp_nopush`.
    pub tcp_nopush: bool,
    /// `sendfile`.
    pub sendfile: bool,
    /// `sendfile_max_chunk`.
    pub sendfile_max_chunk: u64,
    /// `resolver`, and `resolver_timeout` in milliseconds.
    pub resolver: Option<(Arc<Resolver>, u64)>,
    /// `auth_delay`, before a request is refused with 401.
    pub auth_delay: u64,
    /// `if_modified_since`.
    pub if_modified_since: IfModifiedSince,
    /// `etag`.
    pub etag: bool,
    /// `max_ranges`; `None` for no limit.
    pub max_ranges: Option<u64>,
    /// `http2_chunk_size`: bytes of a body in one frame.
    pub http2_chunk_size: u32,
    /// `chunked_transfer_encoding`.
    pub chunked_transfer_encoding: bool,
    /// `absolute_redirect`.
    pub absolute_redirect: bool,
    /// `server_name_in_redirect`.
    pub server_name_in_redirect: bool,
    /// `port_in_redirect`.
    pub port_in_redirect: bool,
    /// `msie_padding`.
    pub msie_padding: bool,
    /// `post_action`.
    pub post_action: Option<Arc<[u8]>>,
    /// `msie_refresh`.
    pub msie_refresh: bool,
    /// `log_not_found`.
    pub log_not_found: bool,
    /// `log_subrequest`.
    pub log_subrequest: bool,
    /// `open_file_cache`; `None` is off.
    pub open_file_cache: Option<FileCache>,
    /// `disable_symlinks`.
    pub disable_symlinks: DisableSymlinks,
    /// `subrequest_output_buffer_size`.
    pub subrequest_output_buffer_size: u64,
    /// `error_log`, the location's own or inherited.
    pub error_log: crate::log::ErrorLog,
}

/// What `alias` replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alias {
    /// This many first bytes of the URI.
    Prefix(usize),
    /// All of it: the location is a regular expression.
    Whole,
}

/// One `error_page` line, for one status.
#[derive(Clone, Debug)]
pub struct ErrorPage {
    /// The status it is for.
    pub status: u16,
    /// `=CODE`: the response's status; `Some(0)` for a bare `=`, the status of the page itself.
    pub overwrite: Option<u16>,
    /// Where to: a path, `@name`, or an address.
    pub target: Script,
}

/// `client_body_in_file_only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFileOnly {
    /// In memory as long as it fits.
    Off,
    /// In a file that stays.
    On,
    /// In a file that is removed after the request.
    Clean,
}

/// `lingering_close`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lingering {
    /// Never.
    Off,
    /// Where the client may still be sending.
    On,
    /// Always.
    Always,
}

/// `server_tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTokens {
    /// Product and version.
    On,
    /// Product only.
    Off,
    /// Product, version and build name.
    Build,
}

/// `if_modified_since`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfModifiedSince {
    /// The field is not looked at.
    Off,
    /// The same time.
    Exact,
    /// The same time or a later one.
    Before,
}

/// `open_file_cache` and its companions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCache {
    /// How many files at most.
    pub max: usize,
    /// Milliseconds without use after which one goes.
    pub inactive: u64,
    /// `open_file_cache_valid`: milliseconds after which one is looked at again.
    pub valid: u64,
    /// `open_file_cache_min_uses`.
    pub min_uses: u32,
    /// `open_file_cache_errors`.
    pub errors: bool,
}

/// `disable_symlinks`.
#[derive(Clone, Debug)]
pub enum DisableSymlinks {
    /// Links are followed.
    Off,
    /// No component may be a link; `from=` names the part of the path that is not looked at.
    On(Option<Script>),
    /// A link must belong to the owner of what it leads to.
    IfNotOwner(Option<Script>),
}
