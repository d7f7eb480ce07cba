//! The module's directives as read.

use weir_core::ModuleDef;
use weir_core::conf::test::headlines;
use weir_core::conf::{CORE_MODULES, with_core};
use weir_core::upstream::UpstreamModule;

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
    ] {
        let found = headlines(text, &MODULES);
        assert!(found.iter().any(|line| line.starts_with(message)), "{text}: {found:?}");
    }
}
