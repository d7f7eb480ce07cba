//! The module's directives as read.

use weir_engine::ModuleDef;
use weir_engine::conf::test::headlines;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_upstream::UpstreamModule;

use super::Proxy;

static MODULES: [ModuleDef; CORE_MODULES.len() + 2] =
    with_core(&[ModuleDef::of::<UpstreamModule>(), ModuleDef::of::<Proxy>()]);

#[test]
fn mistakes_have_nginx_s_words() {
    for (text, message) in [
        ("http { upstream u { } }", "no servers are inside upstream"),
        (
            "http { upstream u { server 127.0.0.1; } upstream u { server 127.0.0.1; } }",
            "duplicate upstream \"u\"",
        ),
        ("http { upstream u { server 127.0.0.1 weight=0; } }", "invalid parameter \"weight=0\""),
        ("http { server { location / { proxy_pass 127.0.0.1; } } }", "invalid URL prefix"),
        ("http { server { location / { proxy_pass http://; } } }", "no host in upstream \"\""),
        ("http { proxy_cache_path c keys_zone=one:1k; }", "keys zone \"keys_zone=one:1k\" is too small"),
        ("http { proxy_cache_path c keys_zone=one; }", "invalid keys zone size \"keys_zone=one\""),
        (
            "http { proxy_cache_path c keys_zone=:1m; }",
            "\"proxy_cache_path\" must have \"keys_zone\" parameter",
        ),
        ("http { proxy_cache_path c keys_zone=one:1m levels=1:; }", "invalid \"levels\" \"levels=1:\""),
        ("http { proxy_cache_path c keys_zone=one:1m inactive=x; }", "invalid inactive value \"inactive=x\""),
        (
            "http { proxy_cache_path c keys_zone=one:1m use_temp_path=x; }",
            "invalid use_temp_path value \"use_temp_path=x\", it must be \"on\" or \"off\"",
        ),
        (
            "http { proxy_cache_path c keys_zone=one:1m manager_sleep=x; }",
            "invalid manager_sleep value \"manager_sleep=x\"",
        ),
        ("http { proxy_cache_path c keys_zone=one:1m foo=x; }", "invalid parameter \"foo=x\""),
        ("http { proxy_cache_path c keys_zone=one:1m purger=on; }", "\"purger\" belongs to nginx plus"),
        (
            "http { proxy_cache_path c keys_zone=one:1m; proxy_cache_path d keys_zone=one:1m; }",
            "duplicate zone \"one\"",
        ),
        ("http { server { location / { proxy_cache two; } } }", "\"proxy_cache\" zone \"two\" is unknown"),
        ("http { proxy_cache_valid x; }", "invalid time value \"x\""),
        ("http { proxy_cache_valid 99 1m; }", "invalid status \"99\""),
        (
            "http { proxy_cache_path c keys_zone=one:1m; proxy_cache one; proxy_store on; }",
            "\"proxy_store\" directive is incompatible with \"proxy_cache\"",
        ),
        (
            "http { proxy_store on; proxy_cache one; }",
            "\"proxy_cache\" directive is incompatible with \"proxy_store\"",
        ),
        ("http { proxy_cache_methods PUT; }", "invalid value \"PUT\""),
    ] {
        let found = headlines(text, &MODULES);
        assert!(found.iter().any(|line| line.starts_with(message)), "{text}: {found:?}");
    }
}
