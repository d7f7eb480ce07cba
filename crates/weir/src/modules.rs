//! The modules of this build, in the order that counts: within a phase the first runs first.

use weir_conf::Directive;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_engine::module::{BuildHooks, ProtocolSection};
use weir_engine::{Module, ModuleDef};
use weir_lua::{Lmdb, Lua, LuaKong};
use weir_modules::{
    Access, Addition, AuthBasic, AuthRequest, AuthRequire, Autoindex, Brotli, Browser, Charset, CompressHint,
    CompressStatic, Dav, EarlyHint, Echo, EditHeaders, EmptyGif, FastCgi, FastCgiSpawn, Flv, Geo, Grpc,
    Gunzip, Gzip, Headers, HeadersMore, Index, LimitConn, LimitReq, Log, Map, Memcached, Mirror, Mp4,
    NotModified, Otel, ProfileKey, Proxy, RandomIndex, Range, Realip, RedirectInside, Referer, Reproxy,
    Rewrite, Scgi, SecureLink, SetMisc, Slice, SplitClients, Ssi, Static, StatusJson, StreamCore, StreamPass,
    StreamProxy, StreamReturn, StubStatus, Sub, Subs, ThrottleResponse, TraceHeader, TryFiles, Tunnel,
    UserId, Uwsgi, Zstd,
};
use weir_server::tls::{Ssl, SslPreread};
use weir_upstream::UpstreamModule;

use crate::welcome::WelcomeModule;

/// Every module. The core's own come first, since the others read what they set.
pub static MODULES: &[ModuleDef] = &with_core::<{ CORE_MODULES.len() + OWN.len() }>(OWN);

/// All modules, of `http` and of `stream`, each once.
pub fn all_modules() -> impl Iterator<Item = &'static ModuleDef> {
    let of_stream =
        STREAM_MODULES.iter().filter(|module| MODULES.iter().all(|known| known.name != module.name));
    MODULES.iter().chain(of_stream)
}

/// The modules of `stream`, in the order that counts; all but those named `stream_...` are modules of `http`, too.
pub static STREAM_MODULES: &[ModuleDef] = &with_core::<{ CORE_MODULES.len() + STREAM_OWN.len() }>(STREAM_OWN);

const STREAM_OWN: &[ModuleDef] = &[
    ModuleDef::of::<StreamCore>(),
    ModuleDef::of::<Ssl>(),
    ModuleDef::of::<SslPreread>(),
    ModuleDef::of::<UpstreamModule>(),
    ModuleDef::of::<Log>(),
    ModuleDef::of::<Realip>(),
    ModuleDef::of::<Geo>(),
    ModuleDef::of::<Map>(),
    ModuleDef::of::<SplitClients>(),
    ModuleDef::of::<Rewrite>(),
    ModuleDef::of::<LimitConn>(),
    ModuleDef::of::<Access>(),
    ModuleDef::of::<StreamReturn>(),
    ModuleDef::of::<StreamPass>(),
    ModuleDef::of::<StreamProxy>(),
    // After all others: its scripts come at the end of their phases.
    ModuleDef::of::<Lua>(),
    ModuleDef::of::<LuaKong>(),
];

/// The module that brings `stream` along.
struct StreamSection;

impl Module for StreamSection {
    const NAME: &'static str = "stream";
    type Conf = ();
    const DIRECTIVES: &'static [Directive<()>] = &[];
    const HOOKS: BuildHooks<()> = BuildHooks { section: Some(&STREAM), ..BuildHooks::NONE };
}

static STREAM: ProtocolSection =
    ProtocolSection { name: "stream", modules: STREAM_MODULES, variables: STREAM_VARIABLES };

/// Of the variables of modules that are of `http`, too, those that sessions have.
const STREAM_VARIABLES: &[&str] = &[
    "binary_remote_addr",
    "connection",
    "hostname",
    "limit_conn_status",
    "lua_alloc",
    "lua_cpu_time",
    "msec",
    "nginx_version",
    "pid",
    "proxy_protocol_addr",
    "proxy_protocol_port",
    "proxy_protocol_server_addr",
    "proxy_protocol_server_port",
    "proxy_protocol_tlv_",
    "realip_remote_addr",
    "realip_remote_port",
    "remote_addr",
    "remote_port",
    "server_addr",
    "server_name",
    "server_port",
    "ssl_alpn_protocol",
    "ssl_cipher",
    "ssl_ciphers",
    "ssl_client_cert",
    "ssl_client_fingerprint",
    "ssl_client_i_dn",
    "ssl_client_raw_cert",
    "ssl_client_s_dn",
    "ssl_client_serial",
    "ssl_client_sigalg",
    "ssl_client_v_end",
    "ssl_client_v_remain",
    "ssl_client_v_start",
    "ssl_client_verify",
    "ssl_curve",
    "ssl_curves",
    "ssl_protocol",
    "ssl_server_name",
    "ssl_session_id",
    "ssl_session_reused",
    "ssl_sigalg",
    "ssl_sigalgs",
    "status",
    "time_iso8601",
    "time_local",
    "upstream_addr",
    "upstream_bytes_received",
    "upstream_bytes_sent",
    "upstream_cause",
    "upstream_connect_time",
];

/// The modules that are not the core's.
pub(crate) const OWN: &[ModuleDef] = &[
    ModuleDef::of::<Ssl>(),
    ModuleDef::of::<UpstreamModule>(),
    ModuleDef::of::<Log>(),
    ModuleDef::of::<ProfileKey>(),
    ModuleDef::of::<Otel>(),
    ModuleDef::of::<Realip>(),
    ModuleDef::of::<Geo>(),
    ModuleDef::of::<Map>(),
    ModuleDef::of::<SplitClients>(),
    ModuleDef::of::<Referer>(),
    ModuleDef::of::<Browser>(),
    ModuleDef::of::<SecureLink>(),
    ModuleDef::of::<SetMisc>(),
    ModuleDef::of::<Rewrite>(),
    // After rewrite: what it sets for requests comes at the end of that phase.
    ModuleDef::of::<HeadersMore>(),
    ModuleDef::of::<EditHeaders>(),
    ModuleDef::of::<ThrottleResponse>(),
    ModuleDef::of::<Reproxy>(),
    ModuleDef::of::<CompressHint>(),
    ModuleDef::of::<LimitReq>(),
    ModuleDef::of::<LimitConn>(),
    ModuleDef::of::<Access>(),
    ModuleDef::of::<AuthBasic>(),
    ModuleDef::of::<AuthRequest>(),
    ModuleDef::of::<AuthRequire>(),
    ModuleDef::of::<RedirectInside>(),
    ModuleDef::of::<TryFiles>(),
    ModuleDef::of::<Mirror>(),
    ModuleDef::of::<Proxy>(),
    ModuleDef::of::<Grpc>(),
    ModuleDef::of::<FastCgi>(),
    ModuleDef::of::<FastCgiSpawn>(),
    ModuleDef::of::<Scgi>(),
    ModuleDef::of::<Uwsgi>(),
    ModuleDef::of::<Memcached>(),
    ModuleDef::of::<Tunnel>(),
    ModuleDef::of::<EmptyGif>(),
    ModuleDef::of::<Flv>(),
    ModuleDef::of::<Mp4>(),
    ModuleDef::of::<Echo>(),
    ModuleDef::of::<StubStatus>(),
    ModuleDef::of::<StatusJson>(),
    ModuleDef::of::<WelcomeModule>(),
    ModuleDef::of::<Dav>(),
    ModuleDef::of::<RandomIndex>(),
    ModuleDef::of::<Index>(),
    ModuleDef::of::<Autoindex>(),
    ModuleDef::of::<CompressStatic>(),
    ModuleDef::of::<Static>(),
    ModuleDef::of::<Slice>(),
    ModuleDef::of::<NotModified>(),
    ModuleDef::of::<Headers>(),
    ModuleDef::of::<EarlyHint>(),
    ModuleDef::of::<TraceHeader>(),
    ModuleDef::of::<UserId>(),
    ModuleDef::of::<Subs>(),
    ModuleDef::of::<Addition>(),
    ModuleDef::of::<Sub>(),
    ModuleDef::of::<Charset>(),
    ModuleDef::of::<Ssi>(),
    ModuleDef::of::<Gunzip>(),
    ModuleDef::of::<Gzip>(),
    ModuleDef::of::<Brotli>(),
    ModuleDef::of::<Zstd>(),
    ModuleDef::of::<Lua>(),
    ModuleDef::of::<LuaKong>(),
    ModuleDef::of::<Lmdb>(),
    ModuleDef::of::<StreamSection>(),
    ModuleDef::of::<Range>(),
];
