//! The core's directives of a location: one slot each as written, inheritance, and the [`CoreSettings`] they make.
//!
//! The table is in `table`, setters that need more than a stock one in `set`.

mod set;
mod table;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use weir_conf::{BufferSizes, Directive, Error, Span};
use weir_http::mime::MediaTypeTable;

use super::LocationMatcher;
use super::http2::Http2Conf;
use super::registry::ConfRegistry;
pub use super::temp_path::{TempPath, TempPaths};
use crate::inherit;
use crate::log::{ErrorLog, LogSpec};
use crate::module::Module;
use crate::plan::InsertedInstruction;
use crate::resolver::{DEFAULT_TIMEOUT, Resolver};
use crate::settings::location::{
    AliasedPart, CoreSettings, DisableSymlinks, ErrorPage, FileCache, IfModifiedSince, InFileOnly,
    LingeringClose, ServerTokens, SmallWrites,
};
use crate::settings::location_list::location_settings;
use crate::variable::{ValueScript, Variable};

/// The module of the core's directives in `http`, `server` and `location`.
pub struct HttpCore;

impl Module for HttpCore {
    const NAME: &'static str = "http_core";
    type Conf = HttpCoreConf;
    const DIRECTIVES: &'static [Directive<HttpCoreConf>] = table::TABLE;
    const VARIABLES: &'static [Variable] = crate::variable::core::VARIABLES;

    fn inherit(conf: &mut HttpCoreConf, parent: &HttpCoreConf) {
        conf.inherit_settings(parent);
        // The logs were opened with the lines that name them: both or none.
        if conf.error_log.is_none() {
            inherit!(conf, parent, error_log, error_log_open);
        }
    }

    /// Defaults that need to know where paths begin, and the error log: a block without `error_log` has the one of
    /// the block around it, `http` that of the main context.
    fn resolve(conf: &mut HttpCoreConf, registry: &mut ConfRegistry) -> Result<(), Error> {
        if conf.root.is_none() {
            let html = registry.paths.prefix.join("html").into_os_string().into_encoded_bytes();
            conf.root = Some(DocumentRoot { path: ValueScript::literal(&html), alias: None });
        }
        let prefix = &registry.paths.prefix;
        let temp = conf.client_body_temp_path.get_or_insert_with(|| TempPath {
            path: Arc::new(prefix.join("client_body_temp")),
            levels: [0; 3],
        });
        let directory = temp.path.clone();
        registry.shared::<TempPaths>().add(&directory);
        conf.open_error_log(registry)
    }
}

macro_rules! make_conf {
    (
        plain { $($(#[$plain_doc:meta])* $plain:ident: $plain_type:ty = $default:expr,)* }
        written { $($(#[$written_doc:meta])* $written:ident: $written_type:ty,)* }
        resolved { $($(#[$doc:meta])* $name:ident: $type:ty = |$conf:ident| $value:expr,)* }
    ) => {
        /// The settings of one block as written; `None` where nothing was. Times are milliseconds, sizes bytes.
        #[derive(Default)]
        pub struct HttpCoreConf {
            /// What the location is for; the builder sets it before the block's lines. `None` in `http` and `server`.
            pub matcher: Option<LocationMatcher>,
            /// Where the block begins; the builder sets it. `None` in `http` and `server`, which has its own (`ServerCoreConf`).
            pub place: Option<Span>,
            /// Instructions of other modules among those of `rewrite`; of this block alone.
            pub instructed: Vec<InsertedInstruction>,
            /// The module of the last directive of this block that names a content handler; `None` without one.
            pub content: Option<&'static str>,
            /// `resolver_cache`; the inner `None` is `off`.
            pub resolver_cache: Option<Option<Arc<PathBuf>>>,
            /// `open_file_cache_events`; only checked.
            pub open_file_cache_events: Option<bool>,
            /// `error_log`: all lines of the block.
            pub error_log: Option<Vec<LogSpec>>,
            /// The logs of `error_log`, once they are open; `None` before.
            pub error_log_open: Option<ErrorLog>,
            /// Directives without effect here, recorded to refuse a second one.
            pub accepted: AcceptedHttpCore,
            $($(#[$plain_doc])* pub $plain: Option<$plain_type>,)*
            $($(#[$written_doc])* pub $written: Option<$written_type>,)*
        }

        impl HttpCoreConf {
            fn inherit_settings(&mut self, parent: &HttpCoreConf) {
                inherit!(self, parent, $($plain,)* $($written,)*);
            }

            /// The settings with nginx's defaults where nothing was written. Inherited and resolved before.
            pub fn core(&self) -> CoreSettings {
                CoreSettings {
                    $($plain: match &self.$plain {
                        Some(value) => value.clone(),
                        None => $default,
                    },)*
                    $($name: {
                        let $conf = self;
                        $value
                    },)*
                }
            }
        }
    };
}

location_settings!(make_conf);

/// `root` or `alias`: the path, and which part of the URI it replaces.
#[derive(Clone, Debug)]
pub struct DocumentRoot {
    /// The directory; not relative unless it begins with a variable.
    pub path: ValueScript,
    /// With `alias`: which part of the URI the path replaces; `None` with `root`.
    pub alias: Option<AliasedPart>,
}

/// The parameters of `open_file_cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// `max=`: the number of files.
    pub max: usize,
    /// `inactive=`, milliseconds.
    pub inactive: u64,
}

/// What is checked as nginx does, and then has no effect; the reasons are in the table.
#[derive(Default)]
#[allow(missing_docs, reason = "each is the directive of the same name")]
pub struct AcceptedHttpCore {
    pub types_hash_max_size: Option<u64>,
    pub types_hash_bucket_size: Option<u64>,
    pub send_lowat: Option<u64>,
    pub output_buffers: Option<BufferSizes>,
    pub postpone_output: Option<u64>,
    pub read_ahead: Option<u64>,
    pub directio: Option<u64>,
    pub directio_alignment: Option<u64>,
}

impl HttpCoreConf {
    /// Bytes of the URI that the location's name is.
    fn location_len(&self) -> usize {
        self.matcher.as_ref().and_then(LocationMatcher::path).map_or(0, <[u8]>::len)
    }

    /// Whether `keepalive_disable` names this browser.
    fn closes_for(&self, browser: u32) -> bool {
        self.keepalive_disable.unwrap_or(MSIE6) & browser != 0
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

/// A script that is always `0` sets no limit.
fn limited(script: &Option<ValueScript>) -> Option<ValueScript> {
    script.clone().filter(|script| script.constant() != Some(b"0"))
}

/// A bit of `keepalive_disable`: `msie6`.
pub(crate) const MSIE6: u32 = 1;
/// A bit of `keepalive_disable`: `safari`.
pub(crate) const SAFARI: u32 = 2;
/// A bit of `keepalive_disable`: `none`, which only takes the default away.
pub(crate) const NO_BROWSER: u32 = 4;

/// nginx measures two of its defaults in pages of memory.
fn page() -> u64 {
    weir_rt::process::page_size() as u64
}
