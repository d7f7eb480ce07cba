//! Test harness: the real binary, a raw client, temporary directories.
//!
//! A test is a configuration text and what a client sees:
//!
//! ```no_run
//! let server = weir_test::Server::start("http { server { listen 127.0.0.1:%%PORT%%; return 200 hi; } }");
//! assert_eq!(server.get("/").status, 200);
//! ```
//!
//! The text is completed with what every test needs (`pid`, `error_log`, `daemon off`, `master_process off`,
//! `access_log`, `events { use … }`), without moving its lines, so that messages with line numbers can be tested.
//! `%%PORT%%` (or `%%PORT_0%%`, `%%PORT_1%%`, …) become free ports of 127.0.0.1, `%%DIR%%` the server's directory.
//! Servers listen on the loopback only. Waiting is always for a condition, up to [`DEADLINE`]; nothing is timed.
//!
//! Functions of this crate panic where a test would: with what was expected and the server's own log.
//!
//! | variable | meaning |
//! |---|---|
//! | `WEIR_BIN` | the binary under test; else `weir` in the directory above the test's own executable |
//! | `WEIR_TEST_DRIVER` | `io_uring` or `epoll`: test only this driver |
//! | `WEIR_TEST_MASTER` | `on`: servers with a master process, where the text does not say |
//! | `WEIR_REQUIRE` | `all`: a test that would be skipped fails |
//! | `WEIR_TEST_KEEP` | set: keep the temporary directories |
//! | `WEIR_TEST_NGINX` and so on | the program of that name, see [`require_program`] |
#![forbid(unsafe_code)]

mod backend;
mod client;
mod conf;
mod dir;
mod driver;
mod fastcgi;
mod names;
mod port;
mod program;
mod response;
mod server;
mod wait;

pub use backend::{Backend, BackendVisit};
pub use client::{Client, ConnectionEnd, ReadError};
pub use dir::TempDir;
pub use driver::{Driver, run_on};
pub use fastcgi::{FcgiApp, FcgiOut, FcgiRequest};
pub use names::{AskedName, NameReply, NameServer};
pub use port::{free_listener, free_port, free_ports};
pub use program::{require_program, skip};
pub use response::{MalformedResponse, ReceivedPart, RequestKind, Response};
pub use server::{ProcessExit, Server, TestServerBuilder, nginx};
pub use wait::{DEADLINE, read_some, wait_for};
pub use weir_sys::process::{ServerSignal, limit_open_files, send_signal};

/// Defines tests that run once per driver, as `NAME::io_uring` and `NAME::epoll`.
///
/// ```no_run
/// weir_test::both_drivers! {
///     /// What it guards.
///     fn keeps_alive(driver) {
///         let server = weir_test::Server::start("http { … }"); // already on this driver
///         println!("{driver:?} {}", server.port(0));
///     }
/// }
/// # fn main() {}
/// ```
/// Without io_uring on this machine the first is skipped with a printed reason, or fails under `WEIR_REQUIRE=all`.
#[macro_export]
macro_rules! both_drivers {
    ($($(#[$meta:meta])* fn $name:ident($driver:ident) $body:block)+) => {$(
        $(#[$meta])*
        #[allow(unused_variables, reason = "many tests only need a server on the driver, not its name")]
        fn $name($driver: $crate::Driver) $body

        mod $name {
            #[test]
            fn io_uring() {
                $crate::run_on($crate::Driver::IoUring, super::$name);
            }

            #[test]
            fn epoll() {
                $crate::run_on($crate::Driver::Epoll, super::$name);
            }
        }
    )+};
}
