//! `-v` and `-V`.

use std::io::Write;
use std::process::ExitCode;

/// Tools parse it from `-V`.
pub(crate) use weir_engine::NGINX_VERSION as NGINX;

/// `-v`; as nginx's to standard error, `--version` to standard output.
pub(crate) fn short(out: &mut dyn Write) -> ExitCode {
    written(writeln!(out, "{}", product()))
}

fn written(result: std::io::Result<()>) -> ExitCode {
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `-V`, in nginx's form, since tools parse it.
pub(crate) fn long() -> ExitCode {
    say!("{}", product());
    say!("built by rustc {} (edition 2024)", env!("CARGO_PKG_RUST_VERSION"));
    say!("built with rustls 0.23.46, aws-lc-rs 1.19.0\nTLS SNI support enabled");
    match weir_rt::probe_io_uring() {
        Ok(()) => say!("event methods: io_uring epoll"),
        Err(error) => say!("event methods: epoll (io_uring can't be used here: {error})"),
    }
    let with = WITH.iter().map(|module| format!(" --with-{module}"));
    say!("configure arguments:{}", with.collect::<String>());
    ExitCode::SUCCESS
}

/// The first line of `-v`, `-V` and `-h`, in nginx's form.
pub(crate) fn product() -> String {
    format!("nginx version: nginx/{NGINX} (weir {})", env!("CARGO_PKG_VERSION"))
}

/// What is built in and no default of nginx's.
const WITH: [&str; 16] = [
    "debug",
    "threads",
    "file-aio",
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
