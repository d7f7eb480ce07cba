//! Where a script runs, and which functions may be called there.

/// The context of a script (`ngx.get_phase`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Phase {
    /// `init_by_lua*`
    Init = 1,
    /// `init_worker_by_lua*`
    InitWorker = 1 << 1,
    /// `exit_worker_by_lua*`
    ExitWorker = 1 << 2,
    /// `set_by_lua*`
    Set = 1 << 3,
    /// `server_rewrite_by_lua*`
    ServerRewrite = 1 << 4,
    /// `rewrite_by_lua*`
    Rewrite = 1 << 5,
    /// `access_by_lua*`
    Access = 1 << 6,
    /// `precontent_by_lua*`
    Precontent = 1 << 7,
    /// `content_by_lua*`
    Content = 1 << 8,
    /// `header_filter_by_lua*`
    HeaderFilter = 1 << 9,
    /// `body_filter_by_lua*`
    BodyFilter = 1 << 10,
    /// `log_by_lua*`
    Log = 1 << 11,
    /// `ngx.timer.at`, `ngx.timer.every`
    Timer = 1 << 12,
    /// `balancer_by_lua*`
    Balancer = 1 << 13,
    /// `ssl_client_hello_by_lua*`
    SslClientHello = 1 << 14,
    /// `ssl_certificate_by_lua*`
    SslCertificate = 1 << 15,
    /// `ssl_session_fetch_by_lua*`
    SslSessionFetch = 1 << 16,
    /// `ssl_session_store_by_lua*`
    SslSessionStore = 1 << 17,
    /// `proxy_ssl_certificate_by_lua*`
    ProxySslCertificate = 1 << 18,
    /// `proxy_ssl_verify_by_lua*`
    ProxySslVerify = 1 << 19,
    /// `init_worker_by_lua*` where it may wait (`lua_yield_everywhere`)
    InitWorkerWaits = 1 << 20,
}

impl Phase {
    /// What `ngx.get_phase` says.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Init => "init",
            Phase::InitWorker | Phase::InitWorkerWaits => "init_worker",
            Phase::ExitWorker => "exit_worker",
            Phase::Set => "set",
            Phase::ServerRewrite => "server_rewrite",
            Phase::Rewrite => "rewrite",
            Phase::Access => "access",
            Phase::Precontent => "precontent",
            Phase::Content => "content",
            Phase::HeaderFilter => "header_filter",
            Phase::BodyFilter => "body_filter",
            Phase::Log => "log",
            Phase::Timer => "timer",
            Phase::Balancer => "balancer",
            Phase::SslClientHello => "ssl_client_hello",
            Phase::SslCertificate => "ssl_cert",
            Phase::SslSessionFetch => "ssl_session_fetch",
            Phase::SslSessionStore => "ssl_session_store",
            Phase::ProxySslCertificate => "proxy_ssl_cert",
            Phase::ProxySslVerify => "proxy_ssl_verify",
        }
    }

    /// As messages have it.
    pub(crate) fn context(self) -> &'static str {
        match self {
            Phase::Init => "init_by_lua*",
            Phase::InitWorker | Phase::InitWorkerWaits => "init_worker_by_lua*",
            Phase::ExitWorker => "exit_worker_by_lua*",
            Phase::Set => "set_by_lua*",
            Phase::ServerRewrite => "server_rewrite_by_lua*",
            Phase::Rewrite => "rewrite_by_lua*",
            Phase::Access => "access_by_lua*",
            Phase::Precontent => "precontent_by_lua*",
            Phase::Content => "content_by_lua*",
            Phase::HeaderFilter => "header_filter_by_lua*",
            Phase::BodyFilter => "body_filter_by_lua*",
            Phase::Log => "log_by_lua*",
            Phase::Timer => "ngx.timer",
            Phase::Balancer => "balancer_by_lua*",
            Phase::SslClientHello => "ssl_client_hello_by_lua*",
            Phase::SslCertificate => "ssl_certificate_by_lua*",
            Phase::SslSessionFetch => "ssl_session_fetch_by_lua*",
            Phase::SslSessionStore => "ssl_session_store_by_lua*",
            Phase::ProxySslCertificate => "proxy_ssl_certificate_by_lua*",
            Phase::ProxySslVerify => "proxy_ssl_verify_by_lua*",
        }
    }

    /// As chunks and trace sites are named.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Phase::Init => "init_by_lua",
            Phase::InitWorker | Phase::InitWorkerWaits => "init_worker_by_lua",
            Phase::ExitWorker => "exit_worker_by_lua",
            Phase::Set => "set_by_lua",
            Phase::ServerRewrite => "server_rewrite_by_lua",
            Phase::Rewrite => "rewrite_by_lua",
            Phase::Access => "access_by_lua",
            Phase::Precontent => "precontent_by_lua",
            Phase::Content => "content_by_lua",
            Phase::HeaderFilter => "header_filter_by_lua",
            Phase::BodyFilter => "body_filter_by_lua",
            Phase::Log => "log_by_lua",
            Phase::Timer => "ngx.timer",
            Phase::Balancer => "balancer_by_lua",
            Phase::SslClientHello => "ssl_client_hello_by_lua",
            Phase::SslCertificate => "ssl_certificate_by_lua",
            Phase::SslSessionFetch => "ssl_session_fetch_by_lua",
            Phase::SslSessionStore => "ssl_session_store_by_lua",
            Phase::ProxySslCertificate => "proxy_ssl_certificate_by_lua",
            Phase::ProxySslVerify => "proxy_ssl_verify_by_lua",
        }
    }

    /// Whether its scripts have an exchange that is of no request.
    pub(crate) fn is_alone(self) -> bool {
        self.is_in(ALONE)
    }

    /// Whether the phase is one of `set`.
    pub(crate) fn is_in(self, set: u32) -> bool {
        self as u32 & set != 0
    }
}

/// Where output and request bodies are at hand.
pub(crate) const OUTPUT: u32 = Phase::ServerRewrite as u32
    | Phase::Rewrite as u32
    | Phase::Access as u32
    | Phase::Precontent as u32
    | Phase::Content as u32;
/// What nobody waits for.
const BY_ITSELF: u32 = Phase::Timer as u32 | Phase::InitWorkerWaits as u32;
/// What runs without a request.
const ALONE: u32 = BY_ITSELF | HANDSHAKE | Phase::SslSessionStore as u32;
/// Scripts of clients' handshakes that may wait.
const HANDSHAKE: u32 =
    Phase::SslClientHello as u32 | Phase::SslCertificate as u32 | Phase::SslSessionFetch as u32;
/// Scripts of handshakes with servers.
const PROXY_HANDSHAKE: u32 = Phase::ProxySslCertificate as u32 | Phase::ProxySslVerify as u32;
/// Where coroutines may wait.
pub(crate) const YIELDABLE: u32 = OUTPUT | BY_ITSELF | HANDSHAKE | PROXY_HANDSHAKE;
/// Where subrequests may be made.
pub(crate) const CAPTURE: u32 = Phase::Rewrite as u32 | Phase::Access as u32 | Phase::Content as u32;
/// Where there is a request.
pub(crate) const REQUEST: u32 = OUTPUT
    | Phase::Set as u32
    | Phase::HeaderFilter as u32
    | Phase::BodyFilter as u32
    | Phase::Log as u32
    | Phase::Balancer as u32
    | PROXY_HANDSHAKE;
/// Where `ngx.exit` may be called.
pub(crate) const EXIT: u32 =
    YIELDABLE | Phase::HeaderFilter as u32 | Phase::Balancer as u32 | Phase::SslSessionStore as u32;
