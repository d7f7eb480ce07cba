use super::*;
use crate::conf::test::{headlines, load, load_files};
use crate::conf::{CORE_MODULES, Configuration, LocationConf};
use weir_conf::MemoryFiles;

fn http(text: &str) -> Result<Configuration, String> {
    load(&format!("http {{\n{text}\n}}"), &CORE_MODULES)
}

fn warnings(text: &str) -> String {
    let files = MemoryFiles::new().with(crate::conf::test::FILE, format!("http {{\n{text}\n}}"));
    load_files(&files, &CORE_MODULES).1
}

/// The first location of the first server.
fn location(conf: &Configuration) -> &LocationConf {
    conf.servers().first().and_then(|server| server.locations.first()).expect("the text has a location")
}

fn core_of(text: &str) -> CoreSettings {
    let conf = http(&format!("server {{ {text} }}")).unwrap_or_else(|error| panic!("{error}"));
    location(&conf).confs.get::<HttpCoreConf>().core()
}

fn constant(script: &ValueScript) -> String {
    String::from_utf8_lossy(script.constant().unwrap_or(b"(variables)")).into_owned()
}

#[test]
fn wrong_lines_are_refused_in_nginx_words_at_their_place() {
    for (line, error) in WRONG_LINES {
        assert_eq!(headlines(&format!("http {{\n{line}\n}}"), &CORE_MODULES), [*error], "{line}");
    }
}

/// A line in `http`, and its error.
const WRONG_LINES: &[(&str, &str)] = &[
    ("root /a; root /b;", "\"root\" directive is duplicate in weir.conf:2:10"),
    (
        "root $document_root/x;",
        "the $document_root variable cannot be used in the \"root\" directive in weir.conf:2:6",
    ),
    (
        "root \"a ${realpath_root}\";",
        "the $realpath_root variable cannot be used in the \"root\" directive in weir.conf:2:6",
    ),
    ("root a$;", "invalid variable name in weir.conf:2:6"),
    ("root /a/$nothing;", "unknown \"nothing\" variable in weir.conf:2:6"),
    ("alias /a;", "\"alias\" directive is not allowed here in weir.conf:2:1"),
    ("internal;", "\"internal\" directive is not allowed here in weir.conf:2:1"),
    ("error_page 404 =x /a;", "invalid value \"=x\" in weir.conf:2:16"),
    ("error_page =200 /a;", "invalid value \"=200\" in weir.conf:2:12"),
    ("error_page 404x /a;", "invalid value \"404x\" in weir.conf:2:12"),
    ("error_page 404 499 /a;", "invalid value \"499\" in weir.conf:2:16"),
    ("error_page 200 /a;", "value \"200\" must be between 300 and 599 in weir.conf:2:12"),
    ("error_page 600 /a;", "value \"600\" must be between 300 and 599 in weir.conf:2:12"),
    ("error_page 404;", "invalid number of arguments in \"error_page\" directive in weir.conf:2:1"),
    ("keepalive_timeout x;", "\"keepalive_timeout\" directive invalid value in weir.conf:2:19"),
    ("keepalive_timeout 5 x;", "\"keepalive_timeout\" directive invalid value in weir.conf:2:21"),
    (
        "keepalive_timeout 5; keepalive_timeout 6;",
        "\"keepalive_timeout\" directive is duplicate in weir.conf:2:22",
    ),
    ("keepalive_disable msie7;", "invalid value \"msie7\" in weir.conf:2:19"),
    ("keepalive_requests x;", "\"keepalive_requests\" directive invalid number in weir.conf:2:20"),
    ("open_file_cache max=0;", "invalid \"open_file_cache\" parameter \"max=0\" in weir.conf:2:17"),
    ("open_file_cache foo;", "invalid \"open_file_cache\" parameter \"foo\" in weir.conf:2:17"),
    (
        "open_file_cache max=5 inactive=x;",
        "invalid \"open_file_cache\" parameter \"inactive=x\" in weir.conf:2:23",
    ),
    ("open_file_cache inactive=5;", "\"open_file_cache\" must have the \"max\" parameter in weir.conf:2:1"),
    ("disable_symlinks foo;", "invalid parameter \"foo\" in weir.conf:2:18"),
    ("disable_symlinks off from=/;", "\"from=\" cannot be used with \"off\" parameter in weir.conf:2:1"),
    ("disable_symlinks on on;", "duplicate parameters \"on on\" in weir.conf:2:21"),
    (
        "disable_symlinks from=/;",
        "\"disable_symlinks\" must have \"off\", \"on\" or \"if_not_owner\" parameter in weir.conf:2:1",
    ),
    ("types { a b; a c{} }", "unexpected \"{\" in weir.conf:2:17"),
    ("satisfy x;", "invalid value \"x\" in weir.conf:2:9"),
    ("limit_rate x;", "\"limit_rate\" directive invalid value in weir.conf:2:12"),
    ("limit_rate 5; limit_rate 5;", "\"limit_rate\" directive is duplicate in weir.conf:2:15"),
    ("aio x;", "\"aio\" directive invalid value in weir.conf:2:5"),
    ("directio x;", "\"directio\" directive invalid value in weir.conf:2:10"),
    ("directio off; directio 4m;", "\"directio\" directive is duplicate in weir.conf:2:15"),
    ("client_body_temp_path a 0;", "\"client_body_temp_path\" directive invalid value in weir.conf:2:25"),
    ("client_body_temp_path a x;", "\"client_body_temp_path\" directive invalid value in weir.conf:2:25"),
    ("client_body_temp_path a 5 5 5;", "\"client_body_temp_path\" directive invalid value in weir.conf:2:1"),
    (
        "client_body_temp_path a 1 2; client_body_temp_path b;",
        "\"client_body_temp_path\" directive is duplicate in weir.conf:2:30",
    ),
    ("client_max_body_size 1x;", "\"client_max_body_size\" directive invalid value in weir.conf:2:22"),
    ("client_body_timeout 1x;", "\"client_body_timeout\" directive invalid value in weir.conf:2:21"),
    ("lingering_close x;", "invalid value \"x\" in weir.conf:2:17"),
    ("max_ranges x;", "\"max_ranges\" directive invalid number in weir.conf:2:12"),
    ("output_buffers 0 5;", "\"output_buffers\" directive invalid value in weir.conf:2:16"),
    ("server_tokens x;", "invalid value \"x\" in weir.conf:2:15"),
    ("error_log e foo;", "invalid log level \"foo\" in weir.conf:2:13"),
    (
        "sendfile of;",
        "invalid value \"of\" in \"sendfile\" directive, it must be \"on\" or \"off\" in weir.conf:2:10",
    ),
    (
        "server { location / { root /a; alias /b; } }",
        "\"alias\" directive is duplicate, \"root\" directive was specified earlier in weir.conf:2:32",
    ),
    ("server { location / { alias /a; alias /b; } }", "\"alias\" directive is duplicate in weir.conf:2:33"),
    (
        "server { location @x { alias /a; } }",
        "the \"alias\" directive cannot be used inside the named location in weir.conf:2:24",
    ),
    (
        "server { location / { internal; internal; } }",
        "\"internal\" directive is duplicate in weir.conf:2:33",
    ),
];

#[test]
fn warnings_do_not_stop_the_start() {
    for (line, warning) in [
        ("keepalive_disable msie6 msie6;", "duplicate value \"msie6\" in /srv/weir/conf/weir.conf:2:25\n"),
        (
            "types { a b; c b; }",
            "duplicate extension \"b\", content type: \"c\", previous content type: \"a\" in /srv/weir/conf/weir.conf:2:16\n",
        ),
    ] {
        assert!(http(line).is_ok(), "{line}");
        assert_eq!(warnings(line), warning, "{line}");
    }
}

#[test]
fn a_block_without_lines_has_nginx_defaults() {
    let core = core_of("location / { }");
    assert_eq!(constant(&core.root), "/srv/weir/html");
    assert_eq!(core.alias, None);
    assert_eq!(core.types.find(b"html"), Some(&b"text/html"[..]));
    assert_eq!(&*core.default_type, b"text/plain");
    assert_eq!((core.client_max_body_size, core.client_body_buffer_size), (1 << 20, 2 * page()));
    assert_eq!(
        (&**core.client_body_temp_path.0, core.client_body_temp_path.1),
        ("/srv/weir/client_body_temp".as_ref(), [0; 3])
    );
    assert_eq!((core.keepalive_timeout, core.keepalive_header, core.keepalive_requests), (75_000, 0, 1000));
    assert_eq!(
        (core.lingering_close, core.lingering_time, core.lingering_timeout),
        (LingeringClose::On, 30_000, 5_000)
    );
    assert!(core.keepalive_disable_msie6 && !core.keepalive_disable_safari);
    assert!(core.limit_rate.is_none() && core.open_file_cache.is_none() && core.max_ranges.is_none());
    assert!(
        core.tcp_nodelay && core.etag && core.msie_padding && core.absolute_redirect && core.log_not_found
    );
    assert!(
        !core.sendfile && !core.tcp_nopush && !core.internal && !core.satisfy_any && !core.log_subrequest
    );
}

/// A line of every directive that has an effect and may be in any block.
const LINES: &str = "default_type a/b; satisfy any; recursive_error_pages on; client_max_body_size 1g;
          client_body_buffer_size 2k; client_body_timeout 3; client_body_in_file_only clean;
          client_body_in_single_buffer on; client_body_temp_path t 1 2 3; keepalive_timeout 4 5; keepalive_requests 6;
          keepalive_time 7; keepalive_min_timeout 8; keepalive_disable safari; send_timeout 9; lingering_close always;
          lingering_time 10; lingering_timeout 11; limit_rate 12k; limit_rate_after 13k; reset_timedout_connection on;
          server_tokens build; tcp_nodelay off; tcp_nopush on; sendfile on; sendfile_max_chunk 14; auth_delay 15;
          if_modified_since before; etag off; max_ranges 16; chunked_transfer_encoding off; absolute_redirect off;
          server_name_in_redirect on; port_in_redirect off; msie_padding off; msie_refresh on; log_not_found off; log_subrequest on;
          open_file_cache max=17 inactive=18; open_file_cache_valid 19; open_file_cache_min_uses 20;
          open_file_cache_errors on; disable_symlinks if_not_owner from=/a; subrequest_output_buffer_size 21;
          resolver 127.0.0.1 valid=22; resolver_timeout 23;";

#[test]
fn every_line_reaches_what_requests_read_also_from_the_blocks_around() {
    let inside = format!("location / {{ {LINES} }}");
    for core in [core_of(&inside), core_of(&format!("{LINES} location / {{ }}"))] {
        assert_eq!((&*core.default_type, core.satisfy_any), (&b"a/b"[..], true));
        assert!(
            core.recursive_error_pages && core.client_body_in_single_buffer && core.reset_timedout_connection
        );
        assert_eq!(
            (core.client_max_body_size, core.client_body_buffer_size, core.client_body_timeout),
            (1 << 30, 2048, 3_000)
        );
        assert_eq!(core.client_body_in_file_only, InFileOnly::Clean);
        assert_eq!(
            (&**core.client_body_temp_path.0, core.client_body_temp_path.1),
            ("/srv/weir/t".as_ref(), [1, 2, 3])
        );
        assert_eq!(core.resolver.as_ref().map(|(_, timeout)| *timeout), Some(23_000));
        assert_eq!((core.keepalive_timeout, core.keepalive_header, core.keepalive_requests), (4_000, 5, 6));
        assert_eq!(
            (core.keepalive_time, core.keepalive_min_timeout, core.send_timeout),
            (7_000, 8_000, 9_000)
        );
        assert!(!core.keepalive_disable_msie6 && core.keepalive_disable_safari);
        assert_eq!(
            (core.lingering_close, core.lingering_time, core.lingering_timeout),
            (LingeringClose::Always, 10_000, 11_000)
        );
        assert_eq!(core.limit_rate.as_ref().map(constant).as_deref(), Some("12k"));
        assert_eq!(core.limit_rate_after.as_ref().map(constant).as_deref(), Some("13k"));
        assert_eq!(
            (core.server_tokens, core.sendfile_max_chunk, core.auth_delay),
            (ServerTokens::Build, 14, 15_000)
        );
        assert!(
            !core.tcp_nodelay
                && core.tcp_nopush
                && core.sendfile
                && !core.etag
                && !core.chunked_transfer_encoding
        );
        assert_eq!((core.if_modified_since, core.max_ranges), (IfModifiedSince::Before, Some(16)));
        assert!(
            !core.absolute_redirect
                && core.server_name_in_redirect
                && !core.port_in_redirect
                && !core.msie_padding
                && core.msie_refresh
        );
        assert!(!core.log_not_found && core.log_subrequest);
        let cache = FileCache { max: 17, inactive: 18_000, valid: 19_000, min_uses: 20, errors: true };
        assert_eq!((core.open_file_cache, core.subrequest_output_buffer_size), (Some(cache), 21));
        assert!(matches!(core.disable_symlinks, DisableSymlinks::IfNotOwner(Some(_))));
    }
    assert!(core_of("location / { internal; }").internal);
}

#[test]
fn lines_without_effect_are_accepted() {
    let text = "types_hash_max_size 2048; types_hash_bucket_size 64; send_lowat 1; output_buffers 1 32k;
        postpone_output 1460; read_ahead 1m; directio off; directio_alignment 4k; aio threads=x; aio_write on;";
    core_of(&format!("location / {{ {text} }}"));
}

#[test]
fn root_and_alias_are_full_paths_unless_they_begin_with_a_variable() {
    for (line, root, alias) in [
        ("location / { root a; }", "/srv/weir/a", None),
        ("location / { root /a/; }", "/a", None),
        ("location / { root /; }", "", None),
        ("location / { root \"\"; }", "/srv/weir/", None),
        ("location / { root $host/a; }", "(variables)", None),
        ("location /img/ { alias /a/; }", "/a/", Some(AliasedPart::Prefix(5))),
        ("location ^~ /img { alias a; }", "/srv/weir/a", Some(AliasedPart::Prefix(4))),
        ("location = /x { alias /y; }", "/y", Some(AliasedPart::Prefix(2))),
        ("location ~ ^/(.*)$ { alias /y/$1; }", "(variables)", Some(AliasedPart::Whole)),
    ] {
        let core = core_of(line);
        assert_eq!((constant(&core.root).as_str(), core.alias), (root, alias), "{line}");
    }
}

#[test]
fn a_location_inside_has_the_alias_of_the_one_around_until_it_says_otherwise() {
    let conf = http(
        "root /r; server { location /a/ { alias /x/; location /a/b { } location /a/c { root /y; } } location /d { } }",
    );
    let conf = conf.unwrap_or_else(|error| panic!("{error}"));
    let core = |location: &LocationConf| location.confs.get::<HttpCoreConf>().core();
    let outer = location(&conf);
    let (b, c) = (core(&outer.locations[0]), core(&outer.locations[1]));
    assert_eq!((constant(&b.root).as_str(), b.alias), ("/x/", Some(AliasedPart::Prefix(3))));
    assert_eq!((constant(&c.root).as_str(), c.alias), ("/y", None));
    let d = core(&conf.servers()[0].locations[1]);
    assert_eq!((constant(&d.root).as_str(), d.alias), ("/r", None));
}

#[test]
fn error_pages_are_one_for_each_status_and_replace_those_around() {
    let core = core_of(
        "error_page 400 /z; location / { error_page 404 =200 /x; error_page 500 502 =/y; error_page 497 503 = @n; }",
    );
    let pages: Vec<_> =
        core.error_pages.iter().map(|p| (p.status, p.overwrite, constant(&p.target))).collect();
    let page = |status, overwrite, target: &str| (status, overwrite, target.to_owned());
    assert_eq!(
        pages,
        [
            page(404, Some(200), "/x"),
            page(500, None, "=/y"),
            page(502, None, "=/y"),
            page(497, Some(0), "@n"),
            page(503, Some(0), "@n"),
        ]
    );
    let inherited = core_of("error_page 494 497 404 /z; location / { }");
    let overwritten: Vec<_> =
        inherited.error_pages.iter().map(|page| (page.status, page.overwrite)).collect();
    assert_eq!(overwritten, [(494, Some(400)), (497, Some(400)), (404, None)]);
}

#[test]
fn types_of_a_block_replace_those_around_and_come_from_included_files_too() {
    let files = MemoryFiles::new()
        .with(
            crate::conf::test::FILE,
            "http { include mime.types; server { location / { types { a/b x; c/d Y z; } } } }",
        )
        .with("/srv/weir/conf/mime.types", "types { text/css css; }");
    let conf = load_files(&files, &CORE_MODULES).0.unwrap_or_else(|error| panic!("{error}"));
    let own = location(&conf).confs.get::<HttpCoreConf>().core();
    assert_eq!((own.types.find(b"y"), own.types.find(b"css")), (Some(&b"c/d"[..]), None));
    let server = conf.servers()[0].confs.get::<HttpCoreConf>().core();
    assert_eq!((server.types.find(b"css"), server.types.find(b"html")), (Some(&b"text/css"[..]), None));
}

#[test]
fn a_rate_of_zero_is_none() {
    assert!(core_of("limit_rate 5; location / { limit_rate 0; }").limit_rate.is_none());
    assert!(core_of("limit_rate $host; location / { }").limit_rate.is_some());
}

#[test]
fn directories_of_temporary_files_are_known_for_who_creates_them() {
    let conf =
        http("server { client_body_temp_path /t; location / { } }").unwrap_or_else(|error| panic!("{error}"));
    let paths = &conf.shared::<TempPaths>().expect("the core adds its own").0;
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    assert_eq!(paths, ["/srv/weir/client_body_temp", "/t"]);
}
