//! The module's directives as read.

use weir_engine::ModuleDef;
use weir_engine::conf::test::{headlines, load};
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_upstream::UpstreamModule;

use super::FastCgi;

static MODULES: [ModuleDef; CORE_MODULES.len() + 2] =
    with_core(&[ModuleDef::of::<UpstreamModule>(), ModuleDef::of::<FastCgi>()]);

#[test]
fn mistakes_have_nginx_s_words() {
    for (text, message) in [
        ("fastcgi_pass 127.0.0.1;", "no port in upstream \"127.0.0.1\""),
        ("fastcgi_pass a:1; fastcgi_pass b:1;", "\"fastcgi_pass\" directive is duplicate"),
        ("fastcgi_param A b c;", "invalid parameter \"c\""),
        ("fastcgi_split_path_info ^(.+)$;", "pattern \"^(.+)$\" must have 2 captures"),
        ("fastcgi_keep_conn maybe;", "invalid value \"maybe\" in \"fastcgi_keep_conn\" directive"),
    ] {
        let text = format!("http {{ server {{ location / {{ {text} }} }} }}");
        let found = headlines(&text, &MODULES);
        assert!(found.iter().any(|line| line.starts_with(message)), "{text}: {found:?}");
    }
    let fine = "http { server { location / { fastcgi_pass unix:/s; fastcgi_param A $uri if_not_empty; } } }";
    assert!(load(fine, &MODULES).is_ok());
}
