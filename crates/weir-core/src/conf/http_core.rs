//! The core's directives of a location: one slot each as written, inheritance, and the [`Core`] they make.
//!
//! The table stands in `table`, setters that need more than a stock one in `set`.

mod set;
mod table;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use weir_conf::{Bufs, Directive, Error};
use weir_http::mime::Types;

use super::Matcher;
use super::core::{
    Alias, Core, DisableSymlinks, ErrorPage, FileCache, IfModifiedSince, InFileOnly, Lingering, ServerTokens,
};
use super::registry::Registry;
pub use super::temp_path::{TempPath, TempPaths};
use crate::inherit;
use crate::log::{ErrorLog, LogSpec};
use crate::module::Module;
use crate::plan::InsertedInstruction;
use crate::resolver::{DEFAULT_TIMEOUT, Resolver};
use crate::variable::{Script, Variable};

/// The module of the core's directives in `http`, `server` and `location`.
pub struct HttpCore;

impl Module for HttpCore {
    const NAME: &'static str = "http_core";
    type Conf = HttpCoreConf;
    const DIRECTIVES: &'static [Directive<HttpCoreConf>] = table::TABLE;
    const VARIABLES: &'static [Variable] = crate::variable::core::VARIABLES;

    fn inherit(conf: &mut HttpCoreConf, parent: &HttpCoreConf) {
        inherit!(conf, parent, root, types, default_type, internal, satisfy_any, error_pages);
        inherit!(conf, parent, recursive_error_pages, client_max_body_size, client_body_buffer_size);
        inherit!(conf, parent, client_body_timeout, client_body_in_file_only, client_body_in_single_buffer);
        inherit!(conf, parent, client_body_temp_path, keepalive_timeout, keepalive_header);
        inherit!(conf, parent, keepalive_requests, keepalive_time, keepalive_min_timeout);
        inherit!(conf, parent, keepalive_disable, send_timeout, lingering_close, lingering_time);
        inherit!(
            conf,
            parent,
            lingering_timeout,
            limit_rate,
            limit_rate_after,
            reset_timedout_connection,
            early_hints
        );
        inherit!(conf, parent, server_tokens, tcp_nodelay, tcp_nopush, sendfile, sendfile_max_chunk);
        inherit!(conf, parent, auth_delay, if_modified_since, etag, max_ranges, chunked_transfer_encoding);
        inherit!(conf, parent, absolute_redirect, server_name_in_redirect, port_in_redirect, msie_padding);
        inherit!(conf, parent, log_not_found, log_subrequest, open_file_cache, open_file_cache_valid);
        inherit!(conf, parent, open_file_cache_min_uses, open_file_cache_errors, disable_symlinks);
        inherit!(
            conf,
            parent,
            subrequest_output_buffer_size,
            msie_refresh,
            post_action,
            resolver,
            resolver_timeout
        );
        // The logs were opened with the lines that name them: both or none.
        if conf.error_log.is_none() {
            inherit!(conf, parent, error_log, error_log_open);
        }
    }

    /// Defaults that need to know where paths begin, and the error log: a block without `error_log` has the one of
    /// the block around it, `http` that of the main context.
    fn resolve(conf: &mut HttpCoreConf, registry: &mut Registry) -> Result<(), Error> {
        if conf.root.is_none() {
            let html = registry.paths.prefix.join("html").into_os_string().into_encoded_bytes();
            conf.root = Some(Root { path: Script::literal(&html), alias: None });
        }
        let prefix = &registry.paths.prefix;
        let temp = conf.client_body_temp_path.get_or_insert_with(|| TempPath {
            path: Arc::new(prefix.join("client_body_temp")),
            levels: [0; 3],
        });
        let folder = temp.path.clone();
        registry.shared::<TempPaths>().add(&folder);
        conf.open_error_log(registry)
    }
}

/// The settings of one block as written; `None` where nothing was. Times are milliseconds, sizes bytes.
#[derive(Default)]
pub struct HttpCoreConf {
    /// What the location is for; the builder sets it before the block's lines. `None` in `http` and `server`.
    pub matcher: Option<Matcher>,
    /// Instructions of other modules among those of `rewrite`; of this block alone.
    pub instructed: Vec<InsertedInstruction>,
    /// The module of the last directive of this block that names a content handler.
    pub content: Option<&'static str>,
    /// `root`, `alias`.
    pub root: Option<Root>,
    /// `types`.
    pub types: Option<Arc<Types>>,
    /// `default_type`.
    pub default_type: Option<Arc<[u8]>>,
    /// `internal`.
    pub internal: Option<bool>,
    /// `satisfy any`.
    pub satisfy_any: Option<bool>,
    /// `error_page`, one for each status; the whole list replaces that of the block around.
    pub error_pages: Option<Vec<ErrorPage>>,
    /// `recursive_error_pages`.
    pub recursive_error_pages: Option<bool>,
    /// `client_max_body_size`.
    pub client_max_body_size: Option<u64>,
    /// `client_body_buffer_size`.
    pub client_body_buffer_size: Option<u64>,
    /// `client_body_timeout`.
    pub client_body_timeout: Option<u64>,
    /// `client_body_in_file_only`.
    pub client_body_in_file_only: Option<InFileOnly>,
    /// `client_body_in_single_buffer`.
    pub client_body_in_single_buffer: Option<bool>,
    /// `client_body_temp_path`.
    pub client_body_temp_path: Option<TempPath>,
    /// `keepalive_timeout`, first argument.
    pub keepalive_timeout: Option<u64>,
    /// `keepalive_timeout`, second argument, in seconds.
    pub keepalive_header: Option<u64>,
    /// `keepalive_requests`.
    pub keepalive_requests: Option<u64>,
    /// `keepalive_time`.
    pub keepalive_time: Option<u64>,
    /// `keepalive_min_timeout`.
    pub keepalive_min_timeout: Option<u64>,
    /// `keepalive_disable`, bits of [`MSIE6`] and [`SAFARI`].
    pub keepalive_disable: Option<u32>,
    /// `send_timeout`.
    pub send_timeout: Option<u64>,
    /// `lingering_close`.
    pub lingering_close: Option<Lingering>,
    /// `lingering_time`.
    pub lingering_time: Option<u64>,
    /// `lingering_timeout`.
    pub lingering_timeout: Option<u64>,
    /// `limit_rate`.
    pub limit_rate: Option<Script>,
    /// `limit_rate_after`.
    pub limit_rate_after: Option<Script>,
    /// `early_hints`.
    pub early_hints: Option<Vec<Script>>,
    /// `reset_timedout_connection`.
    pub reset_timedout_connection: Option<bool>,
    /// `server_tokens`.
    pub server_tokens: Option<ServerTokens>,
    /// `tcp_nodelay`.
    pub tcp_nodelay: Option<bool>,
    /// `tcp_nopush`.
    pub tcp_nopush: Option<bool>,
    /// `sendfile`.
    pub sendfile: Option<bool>,
    /// `sendfile_max_chunk`.
    pub sendfile_max_chunk: Option<u64>,
    /// `resolver`.
    pub resolver: Option<Arc<Resolver>>,
    /// `resolver_timeout`.
    pub resolver_timeout: Option<u64>,
    /// `resolver_cache`; the inner `None` is `off`.
    pub resolver_cache: Option<Option<Arc<PathBuf>>>,
    /// `auth_delay`.
    pub auth_delay: Option<u64>,
    /// `if_modified_since`.
    pub if_modified_since: Option<IfModifiedSince>,
    /// `etag`.
    pub etag: Option<bool>,
    /// `max_ranges`.
    pub max_ranges: Option<u64>,
    /// `chunked_transfer_encoding`.
    pub chunked_transfer_encoding: Option<bool>,
    /// `absolute_redirect`.
    pub absolute_redirect: Option<bool>,
    /// `server_name_in_redirect`.
    pub server_name_in_redirect: Option<bool>,
    /// `port_in_redirect`.
    pub port_in_redirect: Option<bool>,
    /// `msie_padding`.
    pub msie_padding: Option<bool>,
    /// `post_action`.
    pub post_action: Option<Vec<u8>>,
    /// `msie_refresh`.
    pub msie_refresh: Option<bool>,
    /// `log_not_found`.
    pub log_not_found: Option<bool>,
    /// `log_subrequest`.
    pub log_subrequest: Option<bool>,
    /// `open_file_cache`; the inner `None` is `off`.
    pub open_file_cache: Option<Option<CacheSize>>,
    /// `open_file_cache_valid`.
    pub open_file_cache_valid: Option<u64>,
    /// `open_file_cache_min_uses`.
    pub open_file_cache_min_uses: Option<u32>,
    /// `open_file_cache_errors`.
    pub open_file_cache_errors: Option<bool>,
    /// `open_file_cache_events`; means nothing here.
    pub open_file_cache_events: Option<bool>,
    /// `disable_symlinks`.
    pub disable_symlinks: Option<DisableSymlinks>,
    /// `subrequest_output_buffer_size`.
    pub subrequest_output_buffer_size: Option<u64>,
    /// `error_log`, all lines of the block.
    pub error_log: Option<Vec<LogSpec>>,
    /// The opened logs of `error_log`.
    pub error_log_open: Option<ErrorLog>,
    /// Directives without effect here, kept to refuse a second one.
    pub accepted: Accepted,
}

/// `root` or `alias`.
#[derive(Clone, Debug)]
pub struct Root {
    /// The folder; not relative unless it begins with a variable.
    pub path: Script,
    /// Which part of the URI it replaces, for `alias`.
    pub alias: Option<Alias>,
}

/// The parameters of `open_file_cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// `max=`
    pub max: usize,
    /// `inactive=`, milliseconds.
    pub inactive: u64,
}

/// What is checked as nginx does, and then has no effect; the reasons stand in the table.
#[derive(Default)]
#[allow(missing_docs, reason = "each is the directive of the same name")]
pub struct Accepted {
    pub types_hash_max_size: Option<u64>,
    pub types_hash_bucket_size: Option<u64>,
    pub send_lowat: Option<u64>,
    pub output_buffers: Option<Bufs>,
    pub postpone_output: Option<u64>,
    pub read_ahead: Option<u64>,
    pub directio: Option<u64>,
    pub directio_alignment: Option<u64>,
    pub aio: Option<()>,
    pub aio_write: Option<bool>,
}

impl HttpCoreConf {
    /// The settings with nginx's defaults where nothing was written. Inherited and resolved before.
    pub fn core(&self) -> Core {
        let root = self.root.clone().unwrap_or_else(|| Root { path: Script::literal(b"html"), alias: None });
        let temp = self.client_body_temp_path.clone();
        let disabled = self.keepalive_disable.unwrap_or(MSIE6);
        let limited = |script: &Option<Script>| script.clone().filter(|s| s.constant() != Some(b"0"));
        let location_len = match &self.matcher {
            Some(Matcher::Exact(path) | Matcher::Prefix(path, _)) => path.len(),
            _ => 0,
        };
        Core {
            location_len,
            root: root.path,
            alias: root.alias,
            types: self.types.clone().unwrap_or_else(|| Arc::new(Types::builtin())),
            default_type: Rc::from(self.default_type.as_deref().unwrap_or(b"text/plain")),
            internal: self.internal.unwrap_or(false),
            satisfy_any: self.satisfy_any.unwrap_or(false),
            error_pages: Arc::from(self.error_pages.as_deref().unwrap_or_default()),
            recursive_error_pages: self.recursive_error_pages.unwrap_or(false),
            client_max_body_size: self.client_max_body_size.unwrap_or(1 << 20),
            client_body_buffer_size: self.client_body_buffer_size.unwrap_or_else(|| 2 * page()),
            client_body_timeout: self.client_body_timeout.unwrap_or(60_000),
            client_body_in_file_only: self.client_body_in_file_only.unwrap_or(InFileOnly::Off),
            client_body_in_single_buffer: self.client_body_in_single_buffer.unwrap_or(false),
            client_body_temp_path: temp.map_or_else(Default::default, |temp| (temp.path, temp.levels)),
            keepalive_timeout: self.keepalive_timeout.unwrap_or(75_000),
            keepalive_header: self.keepalive_header.unwrap_or(0),
            keepalive_requests: self.keepalive_requests.unwrap_or(1000),
            keepalive_time: self.keepalive_time.unwrap_or(3_600_000),
            keepalive_min_timeout: self.keepalive_min_timeout.unwrap_or(0),
            keepalive_disable_msie6: disabled & MSIE6 != 0,
            keepalive_disable_safari: disabled & SAFARI != 0,
            send_timeout: self.send_timeout.unwrap_or(60_000),
            lingering_close: self.lingering_close.unwrap_or(Lingering::On),
            lingering_time: self.lingering_time.unwrap_or(30_000),
            lingering_timeout: self.lingering_timeout.unwrap_or(5_000),
            limit_rate: limited(&self.limit_rate),
            limit_rate_after: limited(&self.limit_rate_after),
            early_hints: self.early_hints.clone().unwrap_or_default().into(),
            reset_timedout_connection: self.reset_timedout_connection.unwrap_or(false),
            server_tokens: self.server_tokens.unwrap_or(ServerTokens::On),
            tcp_nodelay: self.tcp_nodelay.unwrap_or(true),
            tcp_nopush: self.tcp_nopush.unwrap_or(false),
            sendfile: self.sendfile.unwrap_or(false),
            sendfile_max_chunk: self.sendfile_max_chunk.unwrap_or(2 << 20),
            resolver: self.resolver(),
            auth_delay: self.auth_delay.unwrap_or(0),
            if_modified_since: self.if_modified_since.unwrap_or(IfModifiedSince::Exact),
            etag: self.etag.unwrap_or(true),
            max_ranges: self.max_ranges,
            http2_chunk_size: super::http2::Http2Conf::default().chunk(),
            chunked_transfer_encoding: self.chunked_transfer_encoding.unwrap_or(true),
            absolute_redirect: self.absolute_redirect.unwrap_or(true),
            server_name_in_redirect: self.server_name_in_redirect.unwrap_or(false),
            port_in_redirect: self.port_in_redirect.unwrap_or(true),
            msie_padding: self.msie_padding.unwrap_or(true),
            post_action: self.post_action.as_deref().filter(|action| !action.is_empty()).map(Arc::from),
            msie_refresh: self.msie_refresh.unwrap_or(false),
            log_not_found: self.log_not_found.unwrap_or(true),
            log_subrequest: self.log_subrequest.unwrap_or(false),
            open_file_cache: self.file_cache(),
            disable_symlinks: self.disable_symlinks.clone().unwrap_or(DisableSymlinks::Off),
            subrequest_output_buffer_size: self.subrequest_output_buffer_size.unwrap_or_else(page),
            error_log: self.error_log_open.clone().unwrap_or_default(),
        }
    }

    /// `resolver`, and `resolver_timeout` in milliseconds.
    pub(crate) fn resolver(&self) -> Option<(Arc<Resolver>, u64)> {
        let timeout = self.resolver_timeout.unwrap_or(DEFAULT_TIMEOUT);
        self.resolver.clone().map(|resolver| (resolver, timeout))
    }

    fn file_cache(&self) -> Option<FileCache> {
        let size = self.open_file_cache.flatten()?;
        Some(FileCache {
            max: size.max,
            inactive: size.inactive,
            valid: self.open_file_cache_valid.unwrap_or(60_000),
            min_uses: self.open_file_cache_min_uses.unwrap_or(1),
            errors: self.open_file_cache_errors.unwrap_or(false),
        })
    }
}

/// A bit of `keepalive_disable`: `msie6`.
pub const MSIE6: u32 = 1;
/// A bit of `keepalive_disable`: `safari`.
pub const SAFARI: u32 = 2;
/// A bit of `keepalive_disable`: `none`, which only takes the default away.
pub const NO_BROWSER: u32 = 4;

/// nginx measures two of its defaults in pages of memory.
fn page() -> u64 {
    weir_rt::process::page_size() as u64
}
