//! Tests of the core's directives of a server.

use super::*;
use crate::conf::test::{headlines, load};
use crate::conf::{CORE_MODULES, Configuration};

fn server(text: &str) -> Configuration {
    load(&format!("http {{ server {{ {text} }} }}"), &CORE_MODULES).unwrap_or_else(|error| panic!("{error}"))
}

fn settings(text: &str) -> ServerSettings {
    server(text).servers()[0].confs.get::<ServerCoreConf>().settings()
}

fn shape(name: &ServerName) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match name {
        ServerName::Exact(name) => format!("={}", text(name)),
        ServerName::Head(name) => format!("*{}", text(name)),
        ServerName::Dot(name) => format!("?{}", text(name)),
        ServerName::Tail(name) => format!("{}*", text(name)),
        ServerName::Regex(pattern) => pattern.name(),
    }
}

#[test]
fn wrong_lines_are_refused_in_nginx_words_at_their_place() {
    for (line, error) in [
        ("server_name *x;", "server name \"*x\" is invalid in weir.conf:2:22"),
        ("server_name a *.;", "server name \"*.\" is invalid in weir.conf:2:24"),
        ("server_name .;", "server name \".\" is invalid in weir.conf:2:22"),
        ("server_name ~;", "empty regex in server name \"~\" in weir.conf:2:22"),
        (
            "server_name \"~(a\";",
            "pcre2_compile() failed: missing closing parenthesis in \"(a\" in weir.conf:2:22",
        ),
        ("connection_pool_size 10;", "the pool size must be no less than 112 in weir.conf:2:10"),
        ("request_pool_size 1001;", "the pool size must be a multiple of 16 in weir.conf:2:10"),
        (
            "large_client_header_buffers 4 100;",
            "the \"large_client_header_buffers\" size must be equal to or greater than \"connection_pool_size\" in weir.conf:2:1",
        ),
        (
            "large_client_header_buffers 0 1k;",
            "\"large_client_header_buffers\" directive invalid value in weir.conf:2:38",
        ),
        ("client_header_timeout x;", "\"client_header_timeout\" directive invalid value in weir.conf:2:32"),
        (
            "server_names_hash_max_size 5;",
            "\"server_names_hash_max_size\" directive is not allowed here in weir.conf:2:10",
        ),
        ("server_product \"a\\r\\nb\";", "invalid value \"a\\r\\nb\" in weir.conf:2:25"),
        ("server_product <b>;", "invalid value \"<b>\" in weir.conf:2:25"),
    ] {
        let text = format!("http {{\nserver {{ {line} }}\n}}");
        assert_eq!(headlines(&text, &CORE_MODULES), [error], "{line}");
    }
}

#[test]
fn a_server_without_lines_has_nginx_defaults() {
    let settings = settings("");
    assert_eq!((settings.client_header_timeout, settings.client_header_buffer_size), (60_000, 1024));
    assert!(settings.merge_slashes && settings.ignore_invalid_headers && !settings.underscores_in_headers);
    let limits = settings.limits();
    assert_eq!((limits.max_line, limits.max_head, limits.max_fields), (8192, 33 * 1024, 1000));
    assert_eq!((settings.name, settings.product.name.as_str()), (Vec::new(), "weir"));
    assert_eq!(settings.product.line_off, b"Server: weir\r\n");
}

#[test]
fn what_a_server_leaves_unset_comes_from_http() {
    let text = "http { client_header_timeout 1; merge_slashes off; server_product nginx/1.31.5; max_headers 5;
            server { client_header_timeout 2; client_header_buffer_size 16k; large_client_header_buffers 2 4k; } }";
    let conf = load(text, &CORE_MODULES).unwrap_or_else(|error| panic!("{error}"));
    let settings = conf.servers()[0].confs.get::<ServerCoreConf>().settings();
    assert_eq!((settings.client_header_timeout, settings.merge_slashes), (2_000, false));
    let limits = settings.limits();
    assert_eq!((limits.max_line, limits.max_head, limits.max_fields), (16 << 10, 24 << 10, 5));
    let product = settings.product;
    assert_eq!((product.name.as_str(), product.full.as_str()), ("nginx", "nginx/1.31.5"));
    assert_eq!(product.line_on, b"Server: nginx/1.31.5\r\n");
}

#[test]
fn every_form_of_a_name() {
    let conf = server("server_name WWW.a.b *.a.b .a.b www.* ~^x(?<v>.)$ ~X \"\" ;");
    let conf = conf.servers()[0].confs.get::<ServerCoreConf>();
    let names: Vec<_> = conf.names().iter().map(shape).collect();
    assert_eq!(names, ["=www.a.b", "*.a.b", "?.a.b", "www.*", "~ ^x(?<v>.)$", "~* X", "="]);
    assert_eq!(conf.name(), b"www.a.b");
    let hostname = server("server_name $hostname;");
    let hostname = hostname.servers()[0].confs.get::<ServerCoreConf>();
    assert_eq!(Some(hostname.name()), weir_rt::process::hostname().ok().as_deref().map(str::as_bytes));
}

#[test]
fn the_first_name_is_the_servers() {
    for (names, name) in [(".a.b c", "a.b"), ("*.a.b", "*.a.b"), ("~^A$", "~^A$"), ("\"\" a", "")] {
        assert_eq!(settings(&format!("server_name {names};")).name, name.as_bytes(), "{names}");
    }
    let nameless = server("");
    let nameless = nameless.servers()[0].confs.get::<ServerCoreConf>();
    assert_eq!(nameless.names().iter().map(shape).collect::<Vec<_>>(), ["="]);
}

#[test]
fn lines_without_effect_are_accepted() {
    let text =
        "http { server_names_hash_max_size 5; server_names_hash_bucket_size 64; variables_hash_max_size 9;
            variables_hash_bucket_size 7; server { connection_pool_size 256; request_pool_size 4k; } }";
    assert!(load(text, &CORE_MODULES).is_ok());
}
