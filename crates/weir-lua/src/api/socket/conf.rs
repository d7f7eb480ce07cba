//! `lua_socket_*`: what sockets of a block's scripts use unless a script says otherwise.

use std::rc::Rc;
use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::inherit;
use weir_engine::resolver::Resolver;
use weir_engine::settings::location::CoreSettings;
use weir_upstream::tls_client::client::{ClientConf, ClientTls};

use crate::api::socket::tcp::SocketTimeouts;

/// The settings of one block, as written.
#[derive(Clone, Default)]
pub(crate) struct SocketConf {
    /// Milliseconds.
    pub(crate) connect_timeout: Option<u64>,
    pub(crate) send_timeout: Option<u64>,
    pub(crate) read_timeout: Option<u64>,
    pub(crate) keepalive_timeout: Option<u64>,
    pub(crate) buffer_size: Option<u64>,
    pub(crate) pool_size: Option<i64>,
    pub(crate) log_errors: Option<bool>,
    /// Without effect on Linux, which has no such event; a warning says so.
    pub(crate) send_lowat: Option<u64>,
    /// `lua_ssl_…`
    pub(crate) ssl: ClientConf,
    /// One of those was said.
    pub(crate) has_ssl: bool,
}

impl SocketConf {
    /// `lua_socket_send_lowat size`
    pub(crate) fn lowat(&mut self, line: &mut LineCx<'_>) -> Result {
        line.size(&mut self.send_lowat)?;
        line.warn("\"lua_socket_send_lowat\" is not supported, ignored");
        Ok(())
    }

    /// Takes from the block around what is not set.
    pub(crate) fn inherit(&mut self, parent: &SocketConf) {
        inherit!(self, parent, connect_timeout, send_timeout, read_timeout, keepalive_timeout);
        inherit!(self, parent, buffer_size, pool_size, log_errors, send_lowat);
        self.ssl.inherit(&parent.ssl);
        self.has_ssl |= parent.has_ssl;
    }

    /// Reads the files of `lua_ssl_…`.
    ///
    /// # Errors
    /// What is wrong with them, in nginx's words.
    pub(crate) fn resolve(&mut self, registry: &ConfRegistry) -> Result {
        if !self.has_ssl {
            return Ok(());
        }
        // Whether a server is verified is for the script to say; sessions are scripts' own.
        self.ssl.verify = Some(self.ssl.trusted_certificate.is_some());
        self.ssl.session_reuse = Some(false);
        self.ssl.resolve("lua", registry)
    }
}

/// The settings of one block, for its requests.
pub(crate) struct SocketSettings {
    pub(super) timeouts: SocketTimeouts,
    /// Milliseconds.
    pub(super) keepalive_timeout: u64,
    pub(super) buffer_size: usize,
    pub(super) pool_size: i64,
    pub(super) log_errors: bool,
    /// `tcp_nodelay`
    pub(super) nodelay: bool,
    /// How servers are spoken to over TLS.
    pub(super) tls: Arc<ClientTls>,
    /// With its timeout in milliseconds.
    pub(super) resolver: Option<(Arc<Resolver>, u64)>,
}

impl SocketSettings {
    /// `lua_socket_send_timeout`, milliseconds.
    pub(crate) fn send_timeout(&self) -> u64 {
        self.timeouts.send
    }

    pub(crate) fn new(conf: &SocketConf, core: &CoreSettings) -> Rc<SocketSettings> {
        let minute = |time: Option<u64>| time.unwrap_or(60_000);
        Rc::new(SocketSettings {
            timeouts: SocketTimeouts {
                connect: minute(conf.connect_timeout),
                send: minute(conf.send_timeout),
                read: minute(conf.read_timeout),
            },
            keepalive_timeout: minute(conf.keepalive_timeout),
            buffer_size: usize::try_from(conf.buffer_size.unwrap_or(4096)).unwrap_or(usize::MAX).max(1),
            pool_size: conf.pool_size.unwrap_or(30),
            log_errors: conf.log_errors.unwrap_or(true),
            nodelay: core.tcp_nodelay,
            tls: conf.ssl.tls().unwrap_or_else(ClientConf::plain),
            resolver: core.resolver.clone(),
        })
    }
}
