//! What nginx's `configure` would have been called with: `-V` and `ngx.config.nginx_configure()` say it, for tools and libraries that
//! look for words in it.

/// The arguments, each after a blank, as nginx writes them.
pub fn text() -> String {
    WITH.iter().map(|what| format!(" --with-{what}")).collect()
}

/// What is built in and no default of nginx's.
const WITH: [&str; 17] = [
    "debug",
    "threads",
    "file-aio",
    "pcre-jit",
    "http_v2_module",
    "http_realip_module",
    "http_gunzip_module",
    "http_gzip_static_module",
    "http_random_index_module",
    "http_auth_request_module",
    "http_secure_link_module",
    "http_stub_status_module",
    "http_sub_module",
    "http_addition_module",
    "http_ssl_module",
    "http_dav_module",
    "http_slice_module",
];
