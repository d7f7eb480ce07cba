//! Where a script runs, and which functions may be called there.

/// The context of a script (`ngx.get_phase`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ScriptPhase {
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
    /// `preread_by_lua*` of `stream`
    Preread = 1 << 21,
}

impl ScriptPhase {
    /// What `ngx.get_phase` says.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ScriptPhase::Init => "init",
            ScriptPhase::InitWorker | ScriptPhase::InitWorkerWaits => "init_worker",
            ScriptPhase::ExitWorker => "exit_worker",
            ScriptPhase::Set => "set",
            ScriptPhase::ServerRewrite => "server_rewrite",
            ScriptPhase::Rewrite => "rewrite",
            ScriptPhase::Access => "access",
            ScriptPhase::Precontent => "precontent",
            ScriptPhase::Content => "content",
            ScriptPhase::HeaderFilter => "header_filter",
            ScriptPhase::BodyFilter => "body_filter",
            ScriptPhase::Log => "log",
            ScriptPhase::Timer => "timer",
            ScriptPhase::Balancer => "balancer",
            ScriptPhase::SslClientHello => "ssl_client_hello",
            ScriptPhase::SslCertificate => "ssl_cert",
            ScriptPhase::SslSessionFetch => "ssl_session_fetch",
            ScriptPhase::SslSessionStore => "ssl_session_store",
            ScriptPhase::ProxySslCertificate => "proxy_ssl_cert",
            ScriptPhase::ProxySslVerify => "proxy_ssl_verify",
            ScriptPhase::Preread => "preread",
        }
    }

    /// As messages have it.
    pub(crate) fn context(self) -> &'static str {
        match self {
            ScriptPhase::Init => "init_by_lua*",
            ScriptPhase::InitWorker | ScriptPhase::InitWorkerWaits => "init_worker_by_lua*",
            ScriptPhase::ExitWorker => "exit_worker_by_lua*",
            ScriptPhase::Set => "set_by_lua*",
            ScriptPhase::ServerRewrite => "server_rewrite_by_lua*",
            ScriptPhase::Rewrite => "rewrite_by_lua*",
            ScriptPhase::Access => "access_by_lua*",
            ScriptPhase::Precontent => "precontent_by_lua*",
            ScriptPhase::Content => "content_by_lua*",
            ScriptPhase::HeaderFilter => "header_filter_by_lua*",
            ScriptPhase::BodyFilter => "body_filter_by_lua*",
            ScriptPhase::Log => "log_by_lua*",
            ScriptPhase::Timer => "ngx.timer",
            ScriptPhase::Balancer => "balancer_by_lua*",
            ScriptPhase::SslClientHello => "ssl_client_hello_by_lua*",
            ScriptPhase::SslCertificate => "ssl_certificate_by_lua*",
            ScriptPhase::SslSessionFetch => "ssl_session_fetch_by_lua*",
            ScriptPhase::SslSessionStore => "ssl_session_store_by_lua*",
            ScriptPhase::ProxySslCertificate => "proxy_ssl_certificate_by_lua*",
            ScriptPhase::ProxySslVerify => "proxy_ssl_verify_by_lua*",
            ScriptPhase::Preread => "preread_by_lua*",
        }
    }

    /// As chunks and trace sites are named.
    pub(crate) fn label(self) -> &'static str {
        match self {
            ScriptPhase::Init => "init_by_lua",
            ScriptPhase::InitWorker | ScriptPhase::InitWorkerWaits => "init_worker_by_lua",
            ScriptPhase::ExitWorker => "exit_worker_by_lua",
            ScriptPhase::Set => "set_by_lua",
            ScriptPhase::ServerRewrite => "server_rewrite_by_lua",
            ScriptPhase::Rewrite => "rewrite_by_lua",
            ScriptPhase::Access => "access_by_lua",
            ScriptPhase::Precontent => "precontent_by_lua",
            ScriptPhase::Content => "content_by_lua",
            ScriptPhase::HeaderFilter => "header_filter_by_lua",
            ScriptPhase::BodyFilter => "body_filter_by_lua",
            ScriptPhase::Log => "log_by_lua",
            ScriptPhase::Timer => "ngx.timer",
            ScriptPhase::Balancer => "balancer_by_lua",
            ScriptPhase::SslClientHello => "ssl_client_hello_by_lua",
            ScriptPhase::SslCertificate => "ssl_certificate_by_lua",
            ScriptPhase::SslSessionFetch => "ssl_session_fetch_by_lua",
            ScriptPhase::SslSessionStore => "ssl_session_store_by_lua",
            ScriptPhase::ProxySslCertificate => "proxy_ssl_certificate_by_lua",
            ScriptPhase::ProxySslVerify => "proxy_ssl_verify_by_lua",
            ScriptPhase::Preread => "preread_by_lua",
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
pub(crate) const OUTPUT: u32 = ScriptPhase::ServerRewrite as u32
    | ScriptPhase::Rewrite as u32
    | ScriptPhase::Access as u32
    | ScriptPhase::Precontent as u32
    | ScriptPhase::Preread as u32
    | ScriptPhase::Content as u32;
/// What is not waited for.
const BY_ITSELF: u32 = ScriptPhase::Timer as u32 | ScriptPhase::InitWorkerWaits as u32;
/// What runs without a request.
const ALONE: u32 = BY_ITSELF | HANDSHAKE | ScriptPhase::SslSessionStore as u32;
/// Scripts of clients' handshakes that may wait.
const HANDSHAKE: u32 = ScriptPhase::SslClientHello as u32
    | ScriptPhase::SslCertificate as u32
    | ScriptPhase::SslSessionFetch as u32;
/// Scripts of handshakes with servers.
const PROXY_HANDSHAKE: u32 = ScriptPhase::ProxySslCertificate as u32 | ScriptPhase::ProxySslVerify as u32;
/// Where coroutines may wait.
pub(crate) const YIELDABLE: u32 = OUTPUT | BY_ITSELF | HANDSHAKE | PROXY_HANDSHAKE;
/// Where subrequests may be made.
pub(crate) const CAPTURE: u32 =
    ScriptPhase::Rewrite as u32 | ScriptPhase::Access as u32 | ScriptPhase::Content as u32;
/// Where there is a request.
pub(crate) const REQUEST: u32 = OUTPUT
    | ScriptPhase::Set as u32
    | ScriptPhase::HeaderFilter as u32
    | ScriptPhase::BodyFilter as u32
    | ScriptPhase::Log as u32
    | ScriptPhase::Balancer as u32
    | PROXY_HANDSHAKE;
/// Where `ngx.exit` may be called.
pub(crate) const EXIT: u32 = YIELDABLE
    | ScriptPhase::HeaderFilter as u32
    | ScriptPhase::Balancer as u32
    | ScriptPhase::SslSessionStore as u32;
