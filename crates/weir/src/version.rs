//! `-v`, `-V` and `-h`.

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
    eprintln!("{}", product());
    eprintln!("built by rustc {} (edition 2024)", env!("CARGO_PKG_RUST_VERSION"));
    eprintln!("built with rustls 0.23.46, aws-lc-rs 1.19.0\nTLS SNI support enabled");
    match weir_rt::probe_io_uring() {
        Ok(()) => eprintln!("event methods: io_uring epoll"),
        Err(error) => eprintln!("event methods: epoll (io_uring can't be used here: {error})"),
    }
    let with = WITH.iter().map(|module| format!(" --with-{module}"));
    eprintln!("configure arguments:{}", with.collect::<String>());
    ExitCode::SUCCESS
}

fn product() -> String {
    format!("nginx version: nginx/{NGINX} (weir {})", env!("CARGO_PKG_VERSION"))
}

/// `-h`, `--help`
pub(crate) fn help(out: &mut dyn Write) -> ExitCode {
    let commands = weir_see::commands::summary();
    let text = format!("{}\n{HELP}\n\nCommands (each has --help):\n{}", product(), commands.trim_end());
    written(writeln!(out, "{text}"))
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
const HELP: &str = "\
Usage: weir [-?hvVtTq] [-s signal] [-p prefix]
            [-e filename] [-c filename] [-g directives]
       weir [-c filename] [-p prefix] COMMAND   asks a running server

Options:
  -?,-h,--help  : this help
  -v,--version  : show version and exit
  -V            : show version and configure options then exit
  -t            : test configuration and exit
  -T            : test configuration, dump it and exit
  -q            : suppress non-error messages during configuration testing
  -s signal     : send signal to a running server: stop, quit, reopen, reload
  -p prefix     : set prefix path (default: the folder of the configuration file)
  -e filename   : set error log file
  -c filename   : set configuration file
  -g directives : set global directives out of configuration file

Without any argument Weir serves a welcome page on http://127.0.0.1:8080 and the current folder under /files/.";
