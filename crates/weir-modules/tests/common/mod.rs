//! A server of a test's own, with a directory for its files, asked over sockets.
#![allow(dead_code, reason = "each test file uses a part")]

use std::net::SocketAddr;
use std::sync::Arc;

use weir_engine::ModuleDef;
use weir_server::{Server, ServerOptions};
use weir_test::{Client, Response, TempDir};

/// The server; it stops with the test.
pub(crate) struct Site {
    /// Its directory; the root is `root` in it, the log `error.log`, bodies lie in `temp`.
    pub(crate) directory: TempDir,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    _server: Server,
}

impl Site {
    /// `inside` is in the server block.
    pub(crate) fn new(modules: &'static [ModuleDef], inside: &str) -> Site {
        Site::with(modules, "", inside)
    }

    /// `http` is in the http block, `inside` in the server block.
    pub(crate) fn with(modules: &'static [ModuleDef], http: &str, inside: &str) -> Site {
        let directory = TempDir::new();
        let address = SocketAddr::from(([127, 0, 0, 1], weir_test::free_port()));
        let root = directory.path().display();
        let text = format!(
            "error_log {root}/error.log info; worker_processes 1; events {{ }}
            http {{ client_body_temp_path {root}/temp; {http}
                server {{ listen {address}; root {root}/root; absolute_redirect off; {inside} }} }}"
        );
        for name in ["root", "temp"] {
            std::fs::create_dir(directory.path().join(name)).expect("a fresh folder");
        }
        let configuration = weir_engine::conf::test::load(&text, modules).unwrap_or_else(|e| panic!("{e}"));
        let server = Server::start(Arc::new(configuration), ServerOptions::default()).expect("starts");
        Site { directory, address, _server: server }
    }

    /// Puts a file into the root.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.directory.path().join("root").join(name), content).expect("writable");
    }

    /// GET with these lines as further fields, each ended by CRLF.
    pub(crate) fn get(&self, path: &str, fields: &str) -> Response {
        Client::connect(self.address)
            .request(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n"))
    }
}
