//! The settings of a location, one line each: it makes the slot as written ([`HttpCoreConf`]), its inheritance, its
//! default, and the setting that requests read ([`CoreSettings`]).
//!
//! A new directive whose setting is plain needs its row in the table and one line here; another one needs the slot as
//! written and, apart from it, what becomes of it.
//!
//! [`HttpCoreConf`]: crate::conf::http_core::HttpCoreConf
//! [`CoreSettings`]: super::location::CoreSettings

/// Gives the list to the macro `$make`, of which there are two: one makes `CoreSettings`, one `HttpCoreConf`.
macro_rules! location_settings {
    ($make:ident) => {
        $make! {
            // As written an `Option`, inherited, and what follows `=` where nothing was written.
            plain {
                /// `types`.
                types: Arc<MediaTypeTable> = Arc::new(MediaTypeTable::builtin()),
                /// `internal`.
                internal: bool = false,
                /// `satisfy any`.
                satisfy_any: bool = false,
                /// `recursive_error_pages`.
                recursive_error_pages: bool = false,
                /// `client_max_body_size`; 0 for no limit.
                client_max_body_size: u64 = 1 << 20,
                /// `client_body_buffer_size`.
                client_body_buffer_size: u64 = 2 * page(),
                /// `client_body_timeout`.
                client_body_timeout: u64 = 60_000,
                /// `client_body_in_file_only`.
                client_body_in_file_only: InFileOnly = InFileOnly::Off,
                /// `aio threads`.
                aio_threads: bool = false,
                /// `aio_write`.
                aio_write: bool = false,
                /// `client_body_in_single_buffer`.
                client_body_in_single_buffer: bool = false,
                /// `keepalive_timeout`, first argument; 0 closes after each response.
                keepalive_timeout: u64 = 75_000,
                /// `keepalive_timeout`, second argument, in seconds: the `Keep-Alive` field.
                keepalive_header: u64 = 0,
                /// `keepalive_requests`.
                keepalive_requests: u64 = 1000,
                /// `keepalive_time`.
                keepalive_time: u64 = 3_600_000,
                /// `keepalive_min_timeout`: a connection idle for less is not closed when the server stops gracefully.
                keepalive_min_timeout: u64 = 0,
                /// `send_timeout`, between two writes.
                send_timeout: u64 = 60_000,
                /// `lingering_close`.
                lingering_close: LingeringClose = LingeringClose::On,
                /// `lingering_time`.
                lingering_time: u64 = 30_000,
                /// `lingering_timeout`.
                lingering_timeout: u64 = 5_000,
                /// `reset_timedout_connection`.
                reset_timedout_connection: bool = false,
                /// `server_tokens`.
                server_tokens: ServerTokens = ServerTokens::On,
                /// `tcp_nodelay`.
                tcp_nodelay: bool = true,
                /// `tcp_nopush`.
                tcp_nopush: bool = false,
                /// `sendfile`.
                sendfile: bool = false,
                /// `sendfile_max_chunk`.
                sendfile_max_chunk: u64 = 2 << 20,
                /// `auth_delay`, before a request is refused with 401.
                auth_delay: u64 = 0,
                /// `if_modified_since`.
                if_modified_since: IfModifiedSince = IfModifiedSince::Exact,
                /// `etag`.
                etag: bool = true,
                /// `chunked_transfer_encoding`.
                chunked_transfer_encoding: bool = true,
                /// `absolute_redirect`.
                absolute_redirect: bool = true,
                /// `server_name_in_redirect`.
                server_name_in_redirect: bool = false,
                /// `port_in_redirect`.
                port_in_redirect: bool = true,
                /// `msie_padding`.
                msie_padding: bool = true,
                /// `file_lookup_first`: a file is looked for before its method is judged.
                file_lookup_first: bool = false,
                /// `text_error_pages`: pages in H2O's form.
                text_error_pages: bool = false,
                /// `msie_refresh`.
                msie_refresh: bool = false,
                /// `log_not_found`.
                log_not_found: bool = true,
                /// `log_subrequest`.
                log_subrequest: bool = false,
                /// `disable_symlinks`.
                disable_symlinks: DisableSymlinks = DisableSymlinks::Off,
                /// `subrequest_output_buffer_size`.
                subrequest_output_buffer_size: u64 = page(),
            }
            // As written an `Option`, and inherited; `resolved` says what becomes of them.
            written {
                /// `root`, `alias`.
                root: DocumentRoot,
                /// `default_type`.
                default_type: Arc<[u8]>,
                /// `error_page`, one for each status; the whole list replaces that of the block around.
                error_pages: Vec<ErrorPage>,
                /// `client_body_temp_path`.
                client_body_temp_path: TempPath,
                /// `small_file_writes`.
                small_file_writes: SmallWrites,
                /// `keepalive_disable`, bits of [`MSIE6`] and [`SAFARI`].
                keepalive_disable: u32,
                /// `limit_rate`.
                limit_rate: ValueScript,
                /// `limit_rate_after`.
                limit_rate_after: ValueScript,
                /// `early_hints`.
                early_hints: Vec<ValueScript>,
                /// `resolver`.
                resolver: Arc<Resolver>,
                /// `resolver_timeout`.
                resolver_timeout: u64,
                /// `max_ranges`.
                max_ranges: u64,
                /// `post_action`.
                post_action: Vec<u8>,
                /// `open_file_cache`; the inner `None` is `off`.
                open_file_cache: Option<CacheSize>,
                /// `open_file_cache_valid`.
                open_file_cache_valid: u64,
                /// `open_file_cache_min_uses`.
                open_file_cache_min_uses: u32,
                /// `open_file_cache_errors`.
                open_file_cache_errors: bool,
            }
            // Of the settings as written, `conf`.
            resolved {
                /// Bytes of the URI that the location's name is: what the URI of a `proxy_pass` replaces; 0 for a location
                /// by regular expression or name.
                location_len: usize = |conf| conf.location_len(),
                /// `root`, or `alias` when [`CoreSettings::alias`] is set.
                root: ValueScript =
                    |conf| conf.root.as_ref().map_or_else(|| ValueScript::literal(b"html"), |root| root.path.clone()),
                /// `alias`: how many bytes of the URI it replaces, or that the location is a regular expression.
                alias: Option<AliasedPart> = |conf| conf.root.as_ref().and_then(|root| root.alias),
                /// `default_type`.
                default_type: Rc<[u8]> = |conf| Rc::from(conf.default_type.as_deref().unwrap_or(b"text/plain")),
                /// `error_page`, in order.
                error_pages: Arc<[ErrorPage]> = |conf| Arc::from(conf.error_pages.as_deref().unwrap_or_default()),
                /// `client_body_temp_path`: the directory, and the widths of its levels.
                client_body_temp_path: (Arc<PathBuf>, [u8; 3]) = |conf| {
                    let temp = conf.client_body_temp_path.clone();
                    temp.map_or_else(Default::default, |temp| (temp.path, temp.levels))
                },
                /// `small_file_writes`; the user of `aio threads` or `aio_write` has asked for threads.
                small_file_writes: SmallWrites = |conf| {
                    let asked = conf.aio_threads == Some(true) || conf.aio_write == Some(true);
                    let default = if asked { SmallWrites::Threads } else { SmallWrites::Auto };
                    conf.small_file_writes.unwrap_or(default)
                },
                /// `keepalive_disable msie6`: the POST requests of old browsers.
                keepalive_disable_msie6: bool = |conf| conf.closes_for(MSIE6),
                /// `keepalive_disable safari`.
                keepalive_disable_safari: bool = |conf| conf.closes_for(SAFARI),
                /// `limit_rate`, bytes a second.
                limit_rate: Option<ValueScript> = |conf| limited(&conf.limit_rate),
                /// `limit_rate_after`, bytes.
                limit_rate_after: Option<ValueScript> = |conf| limited(&conf.limit_rate_after),
                /// `early_hints`: passed on when one is neither empty nor `0`.
                early_hints: Box<[ValueScript]> = |conf| conf.early_hints.clone().unwrap_or_default().into(),
                /// `resolver`, and `resolver_timeout` in milliseconds.
                resolver: Option<(Arc<Resolver>, u64)> = |conf| conf.resolver(),
                /// `max_ranges`; `None` for no limit.
                max_ranges: Option<u64> = |conf| conf.max_ranges,
                /// `http2_chunk_size`: bytes of a body in one frame.
                http2_chunk_size: u32 = |_conf| Http2Conf::default().chunk(),
                /// `post_action`.
                post_action: Option<Arc<[u8]>> =
                    |conf| conf.post_action.as_deref().filter(|it| !it.is_empty()).map(Arc::from),
                /// `open_file_cache`; `None` is off.
                open_file_cache: Option<FileCache> = |conf| conf.file_cache(),
                /// `error_log`, the location's own or inherited.
                error_log: ErrorLog = |conf| conf.error_log_open.clone().unwrap_or_default(),
            }
        }
    };
}

pub(crate) use location_settings;
