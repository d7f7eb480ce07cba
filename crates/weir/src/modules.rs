//! The modules of this build, in the order that counts: within a phase the first runs first.

use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_lua::{Lmdb, Lua, LuaKong};
use weir_modules::{
    Access, Addition, AuthBasic, AuthRequest, AuthRequire, Autoindex, Brotli, Browser, Charset,
    CompressStatic, Dav, Echo, EmptyGif, FastCgi, Flv, Geo, Grpc, Gunzip, Gzip, Headers, HeadersMore, Index,
    LimitConn, LimitReq, Log, Map, Memcached, Mirror, Mp4, NotModified, Otel, ProfileKey, Proxy, RandomIndex,
    Range, Realip, RedirectInside, Referer, Rewrite, Scgi, SecureLink, SetMisc, Slice, SplitClients, Ssi,
    Static, StubStatus, Sub, Subs, TraceHeader, TryFiles, Tunnel, UserId, Uwsgi, Zstd,
};
use weir_server::tls::Ssl;
use weir_upstream::UpstreamModule;

use crate::welcome::WelcomeModule;

/// Every module. The core's own come first, since the others read what they set.
pub static MODULES: &[ModuleDef] = &with_core::<{ CORE_MODULES.len() + OWN.len() }>(OWN);

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
    ModuleDef::of::<Scgi>(),
    ModuleDef::of::<Uwsgi>(),
    ModuleDef::of::<Memcached>(),
    ModuleDef::of::<Tunnel>(),
    ModuleDef::of::<EmptyGif>(),
    ModuleDef::of::<Flv>(),
    ModuleDef::of::<Mp4>(),
    ModuleDef::of::<Echo>(),
    ModuleDef::of::<StubStatus>(),
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
    ModuleDef::of::<Range>(),
];
