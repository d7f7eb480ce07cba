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
    say!("configure arguments:{}", weir_engine::configure_arguments::text());
    ExitCode::SUCCESS
}

/// The first line of `-v`, `-V` and `-h`, in nginx's form. Applications that start with one version of nginx alone compare it:
/// for them `WEIR_NGINX_VERSION` has another name and version.
pub(crate) fn product() -> String {
    let name = std::env::var("WEIR_NGINX_VERSION").unwrap_or_else(|_| format!("nginx/{NGINX}"));
    format!("nginx version: {name} (weir {})", env!("CARGO_PKG_VERSION"))
}
