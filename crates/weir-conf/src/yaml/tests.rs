use proptest::prelude::*;

use crate::{ConfTree, DirectiveLine, MemoryFiles, load};

fn tree(text: &str) -> Result<ConfTree, String> {
    let files = MemoryFiles::new().with("/h2o.yaml", text);
    load("/h2o.yaml".as_ref(), "/".as_ref(), &files, |_| false, None)
        .map_err(|failure| failure.errors.render(&failure.tree.source))
}

/// Lines as nginx's language has them, without those of `http` that are there in every file.
fn shown(lines: &[DirectiveLine]) -> String {
    written(lines, &|line| !USUAL.contains(&line.name.str()))
}

fn written(lines: &[DirectiveLine], wanted: &dyn Fn(&DirectiveLine) -> bool) -> String {
    let mut out = String::new();
    for line in lines.iter().filter(|line| wanted(line)) {
        out += &line.words().map(|word| word.str()).collect::<Vec<_>>().join(" ");
        match &line.block {
            Some(block) => out += &format!(" {{ {}}} ", written(&block.lines, wanted)),
            None => out += "; ",
        }
    }
    out
}

const USUAL: &[&str] = &[
    "geo",
    "types",
    "default_type",
    "gzip_types",
    "brotli_types",
    "zstd_types",
    "gzip_min_length",
    "brotli_min_length",
    "zstd_min_length",
    "gzip_vary",
    "gzip_proxied",
    "gzip_http_version",
    "keepalive_requests",
    "keepalive_time",
    "keepalive_timeout",
    "http2",
    "client_max_body_size",
    "client_header_timeout",
    "client_body_timeout",
    "index",
    "text_error_pages",
    "file_lookup_first",
    "autoindex_format",
    "absolute_redirect",
    "merge_slashes",
    "underscores_in_headers",
    "log_not_found",
    "sendfile",
    "http2_body_preread_size",
    "large_client_header_buffers",
    "compress_hint",
    "http2_upgrade",
    "trace_name",
];

/// What a file with a host of these keys and paths becomes, all of it but the names in traces.
fn host(keys: &str) -> String {
    whole_host(keys, &|line| !line.name.is("trace_name"))
}

fn whole_host(keys: &str, wanted: &dyn Fn(&DirectiveLine) -> bool) -> String {
    let indented = keys.replace('\n', "\n    ");
    let text = format!("listen: 80\nhosts:\n  a:\n    {indented}\n");
    written(&tree(&text).unwrap_or_else(|error| panic!("{error}")).lines, wanted)
}

/// What a path of these keys becomes.
fn path(keys: &str) -> String {
    host(&format!("paths:\n  /p:\n    {}", keys.replace('\n', "\n    ")))
}

const FILE: &str = r#"
user: nobody
num-threads: 2
max-connections: 101
listen:
  port: 80
listen: &tls
  port: 443
  ssl:
    certificate-file: /c.pem
    key-file: /k.pem
hosts:
  "example.com":
    paths:
      "/":
        file.dir: /var/www
      "/img":
        file.dir: /var/img
      /app:
        proxy.reverse.url: http://127.0.0.1:8080
    access-log: /var/log/example.log
  "example.org:80":
    paths:
      /:
        redirect:
          status: 301
          url: https://example.com/
access-log:
  path: /var/log/all.log
  format: '%h "%r" %>s %{User-Agent}i'
error-log: /var/log/error.log
pid-file: /run/h2o.pid
"#;

#[test]
fn a_file_of_h2o_becomes_nginx_lines() {
    let tree = tree(FILE).unwrap();
    let (log, proxy) = (FILE.find("'%h").unwrap(), FILE.find("http://127.0.0.1:8080").unwrap());
    let text = shown(&tree.lines);
    for part in [
        "user nobody =primary; worker_processes 2; error_log /var/log/error.log; pid /run/h2o.pid; events { worker_connections 51; } ",
        &format!(
            "log_format format-at-0-{log} escape=default ${{remote_addr}} \"${{request}}\" ${{status}} ${{http_user_agent}}; "
        ),
        &format!("upstream proxy-at-0-{proxy} {{ server 127.0.0.1:8080 weight=1 max_fails=0; keepalive 64; "),
        "server { server_name example.com; listen 80 default_server; listen 443 default_server ssl; \
         ssl_certificate /c.pem; ssl_certificate_key /k.pem; ssl_stapling on; ",
        &format!(
            "access_log /var/log/all.log format-at-0-{log}; access_log /var/log/example.log; location / {{ root /var/www/; }} "
        ),
        "location /img/ { alias /var/img/; } location = /img { return 301 /img/$is_args$args; } ",
        &format!("location /app/ {{ proxy_pass http://proxy-at-0-{proxy}/$request_uri_from_5; "),
        &format!("location = /app {{ proxy_pass http://proxy-at-0-{proxy}/$request_uri_from_4; "),
        "server { server_name example.org; listen 80; location / { return 301 https://example.com/$request_uri_from_1; } } ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// `rewrite` is part of the handler that it is there for.
#[test]
fn traces_have_names_of_h2o() {
    let keys = "error-doc: {status: 404, url: /x}\npaths:\n  /f: {file.dir: /x, header.add: 'A: b'}\n  \
        /r: {redirect: /y, expires: 1 day}\n  /s: {status: ON}\n  /p: {proxy.reverse.url: 'http://a:1'}";
    let text = whole_host(keys, &|line| {
        line.block.is_some() && !line.name.is("geo") && !line.name.is("types") || line.name.is("trace_name")
    });
    for part in [
        "trace_name static file; ",
        "trace_name gzip compress gzip; ",
        "server { trace_name special_response errordoc; ",
        "location = /f { trace_name special_response errordoc; trace_name rewrite file; } ",
        "location /f/ { trace_name special_response errordoc; } ",
        "location /r/ { trace_name edit_headers expires; trace_name special_response errordoc; trace_name rewrite redirect; } ",
        "location = /s { trace_name special_response errordoc; trace_name rewrite status; } ",
        "location /p/ { trace_name special_response errordoc; } ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// What holds where a file says nothing.
#[test]
fn defaults_are_those_of_h2o() {
    let text = host("paths: {/: {file.dir: /x}}");
    for part in [
        "http2 on; ",
        "keepalive_timeout 10s; ",
        "keepalive_requests 1000000000000; ",
        "client_max_body_size 1g; ",
        "index index.html index.htm index.txt; ",
        "text_error_pages on; ",
        "access_log off; ",
        "default_type application/octet-stream; ",
        "text/html htm html",
        "geo $h2o_dollar { default $; } ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn settings_of_a_path() {
    let text = path(
        "redirect: http://x/y/\nheader.add: 'A: b'\nheader.unset: [C, D]\nexpires: 2 years\nfile.dirlisting: ON\nfile.etag: OFF",
    );
    let at = text.find("edit_header").unwrap();
    for part in [
        "edit_header add A: b; edit_header unset C D; autoindex on; etag off; edit_header -s 200 201 204 206 301 302 303 304 307 merge Cache-Control: max-age=63072000; ",
        "return 302 http://x/y/$request_uri_from_3; } ",
        "return 302 http://x/y/$request_uri_from_2; } ",
    ] {
        assert!(text[at..].contains(part), "{part}: {text}");
    }
}

/// Handlers of one path are tried one after the other.
#[test]
fn handlers_in_sequence() {
    let text = host(
        "paths:\n  /:\n    file.dir: /w\n    redirect: {url: /index.php/, internal: YES}\n  /b:\n    - file.dir: /b\n    - file.dir: /c\n    - proxy.reverse.url: http://[unix:/s]/x",
    );
    for part in [
        "location / { error_page 404 = @path-0-",
        "recursive_error_pages on; log_not_found off; root /w/; } ",
        "{ rewrite ^/(.*)$ /index.php/$1 last; } ",
        "log_not_found off; alias /b/; } ",
        "root /c/; rewrite ^/b/(.*)$ /$1 break; } ",
        "/x/$request_uri_from_3; proxy_redirect http://[unix:/s]/x $scheme://$http_host/b; ",
        "server unix:/s weight=1 max_fails=0; ",
        // Without its slash a directory redirects, whatever comes next.
        "location = /b { error_page 404 = @bare-0-",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn scripts_of_an_extension() {
    let text = path(
        "file.dir: /w\nfile.custom-handler:\n  extension: [.php, .ph]\n  fastcgi.connect: {host: 127.0.0.1, port: 9000}\n  fastcgi.timeout.io: 5\nsetenv: {A: b$c}",
    );
    for part in [
        r"location ~ ^/p/(.+?\.php|.+?\.ph)(/.*)?$ { if (!-f /w/$1 ) { return 404; } fastcgi_pass fastcgi-at-0-",
        "fastcgi_read_timeout 5ms; ",
        "fastcgi_keep_conn off; ",
        "fastcgi_param SCRIPT_NAME /p/$1; fastcgi_param PATH_INFO $2; fastcgi_param SCRIPT_FILENAME /w/$1; fastcgi_param A b${h2o_dollar}c; ",
        "set $setenv_A b${h2o_dollar}c; ",
        "server 127.0.0.1:9000 weight=1 max_fails=0; } ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn programs_of_an_extension() {
    let text = path("file.dir: /w\nfile.custom-handler: {extension: default, fastcgi.spawn: 'A=1 exec $x'}");
    for part in [
        "fastcgi_spawn h2o_0_",
        " A=1 exec $x; ",
        "location ~ ^/p/([^/.]+)(/.*)?$ { if (!-f /w/$1 ) { return 404; } fastcgi_pass $fastcgi_spawned_h2o_0_",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn settings_of_proxies() {
    let text = path(
        "proxy.reverse.url:\n  backends: [http://a:81/, {url: 'http://10.0.0.1:82/', weight: 3}]\n  balancer: least-conn\nproxy.timeout.io: 7\nproxy.tunnel: ON\nproxy.preserve-host: ON\nproxy.header.set: 'B: c'",
    );
    for part in [
        "resolver local=on; ",
        "{ least_conn; zone proxy-at-0-",
        "server a:81 weight=1 resolve; server 10.0.0.1:82 weight=3; keepalive 64; ",
        "edit_request_header set B: c; ",
        "proxy_connect_timeout 7ms; proxy_read_timeout 7ms; ",
        "proxy_set_header Host $http_host; proxy_set_header Connection ; ",
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme; ",
        "proxy_set_header Via $h2o_via$h2o_via_version $http_host; proxy_upgrade on; ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let tls = path("proxy.reverse.url: https://a.example/");
    for part in [
        "server a.example:443 weight=1 resolve max_fails=0; ",
        "proxy_ssl_name a.example; ",
        "proxy_ssl_verify on; ",
    ] {
        assert!(tls.contains(part), "{part}: {tls}");
    }
}

#[test]
fn settings_of_responses() {
    let text = path(
        "status: ON\ncompress: {br: 5}\ncompress-minimum-size: 7\nerror-doc: [{status: [404, 500], url: /e.html}]\nfile.mime.addtypes: {a/b: [.c, .d]}\nfile.send-compressed: gunzip",
    );
    for part in [
        "gzip off; brotli on; brotli_comp_level 5; zstd off; ",
        "gzip_min_length 7; ",
        "error_page 500 /e.html; error_page 404 /e.html; ",
        "a/b c d; ",
        "gzip_static always; brotli_static on; zstd_static on; gunzip on; ",
        "location /p/ { gzip off; ",
        "location = /p/json { gzip off; ",
        "status_json; ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn aliases_and_merges() {
    let text = "listen: &l\n  port: 81\n  host: 127.0.0.1\nhosts:\n  a:\n    listen:\n      <<: *l\n      port: 82\n    paths: &p\n      /: {file.dir: /x}\n  b:\n    paths: *p\n";
    let text = shown(&tree(text).unwrap().lines);
    for part in [
        "server_name a; listen 127.0.0.1:82 default_server; listen 127.0.0.1:81 default_server; location / { root /x/; } }",
        "server_name b; listen 127.0.0.1:81; location / { root /x/; } }",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Which host answers: by its name and port, else the first of the address that is not strict, whatever its port.
#[test]
fn hosts_by_name_and_port() {
    let text = "listen: {port: 81, host: h}\nlisten: {port: 82, host: h}\nhosts:\n  x:\n    strict-match: ON\n    paths: {}\n  a:81:\n    paths: {}\n  a:82:\n    paths: {}\n  '*.c':\n    paths: {}\n";
    let text = shown(&tree(text).unwrap().lines);
    for part in [
        "server { server_name x; listen h:81; listen h:82; ",
        "server { server_name a; listen h:81 default_server; location / { return 404; } } server { server_name _; listen h:82 default_server; ",
        "server { server_name a; listen h:82; ",
        "server { server_name *.c; listen h:81; listen h:82; ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = "listen: {port: 81, ssl: {certificate-file: a, key-file: b}}\nlisten: 80\nhosts:\n  x:\n    listen: {port: 82, ssl: {certificate-file: c, key-file: d, ocsp-update-interval: 0, min-version: TLSv1.2}}\n    paths: {}\n";
    let text = shown(&tree(text).unwrap().lines);
    for part in [
        "listen 82 default_server ssl; listen 80 default_server; ssl_certificate c; ssl_certificate_key d; ssl_protocols TLSv1.2 TLSv1.3; location ",
        "listen 81 default_server ssl; ssl_certificate a; ssl_certificate_key b; ssl_stapling on; location ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Parameters of a socket are said once: a second line of the address must not have them.
#[test]
fn sockets_that_hosts_share() {
    let text = "tcp-fastopen: 5\nlisten: {port: 81, host: h, sndbuf: 7, proxy-protocol: ON}\nlisten: {type: unix, port: /s, permission: 600}\n\
                listen: {type: unix, port: /t}\nhosts:\n  a: {paths: {}}\n  b: {paths: {}}\n";
    let text = shown(&tree(text).unwrap().lines);
    for part in [
        "server_name a; listen h:81 default_server proxy_protocol sndbuf=7 fastopen=5; \
         listen unix:/s default_server mode=600; listen unix:/t default_server mode=755; ",
        "server_name b; listen h:81 proxy_protocol; listen unix:/s; listen unix:/t; ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn formats_of_logs() {
    let text = host(
        "access-log: {path: '|rot $x', format: '%v %{remote}p %<s %{A-B}o %<{A-B}o %{N}e %{msec}t.%{%Y/%b}t %{ssl.session-reused}x %{duration}x $1 100%%'}\npaths: {}",
    );
    for part in [
        "access_log |rot $x format-at-0-",
        "${server_name} ${remote_port} $h2o_original_status ${sent_http_a_b} ${upstream_http_a_b} ${setenv_N} ${h2o_time_msec}.${h2o_time_25592f2562} $h2o_session_reused ${request_time} ${h2o_dollar}1 100%; ",
        "map $upstream_status $h2o_original_status { default $upstream_status;  $status; } ",
        "map $msec $h2o_time_msec { ~^(?<h2o_s>\\d+)\\.(?<h2o_ms>\\d+)$ $h2o_s$h2o_ms; } ",
        "${h2o_Y}/${h2o_b}; } ",
        "server { set $setenv_N -; server_name a; ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// `!file` and `!env`, and what of them is refused.
#[test]
fn tags() {
    let load_with = |text: &str| {
        let files = MemoryFiles::new()
            .with("/h2o.conf", text)
            .with("/more.conf", "port: 81\nhost: h\n")
            .with("/self.conf", "!file self.conf\n");
        load("/h2o.conf".as_ref(), "/".as_ref(), &files, |_| false, None)
            .map(|tree| shown(&tree.lines))
            .map_err(|failure| failure.errors.render(&failure.tree.source))
    };
    let rest = "\nhosts: {a: {paths: {}}}\n";
    assert!(
        load_with(&format!("listen: !file more.conf{rest}"))
            .unwrap()
            .contains("listen h:81 default_server; ")
    );
    assert!(
        load_with(&format!("listen: {{<<: !file more.conf, port: 82}}{rest}"))
            .unwrap()
            .contains("listen h:82 ")
    );
    for (text, expected) in [
        ("listen: !file none.conf", "\"/none.conf\" failed (2: No such file or directory) in /h2o.conf:1:"),
        ("listen: !file self.conf", "more than 8 files in each other in /self.conf:1:"),
        ("listen: !env WEIR_NO_SUCH", "environment variable \"WEIR_NO_SUCH\" is not set in /h2o.conf:1:"),
        ("listen: !fil x", "unknown tag \"!fil\" in /h2o.conf:1:"),
    ] {
        let error = load_with(&format!("{text}{rest}")).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn the_language_is_seen_by_the_content() {
    let is = |path: &str, text: &str| crate::is_h2o_language(path.as_ref(), text.as_bytes());
    for text in [
        "listen: 80",
        "# a comment\n\n---\nhosts:\n  a:\n",
        "\u{feff}'listen': 80",
        "\"hosts\" : {}",
        "%YAML 1.1\n--- \nlisten:\r\n  port: 80",
        "--- {a: b}",
    ] {
        assert!(is("a.conf", text), "{text}");
    }
    for text in ["user a;", "# hosts:\nevents { }", "events\n{", "map $a:$b $c {", "", "load_module x.so;"] {
        assert!(!is("a.conf", text), "{text}");
    }
    assert!(is("a.yaml", "{listen: 80}") && is("a.yml", "") && !is("a.yaml", "events { }\nhttp {"));
    assert!(!is("a.yaml", "user a;"));
}

/// `when: early` and `all`: what a response 103 has after the steps of all levels; `final` is for others.
#[test]
fn steps_of_informational_responses_come_to_hints() {
    let text = "header.add: {header: ['Link: </a>', 'X-A: 1'], when: early}\npaths:\n  /p:\n    header.append: {header: 'link: </$b>', when: all}\n    \
                header.unset: {header: X-A, when: early}\n    header.set: 'X-C: 1'\n    file.dir: /x";
    let said = host(text);
    let hint = said.split("early_hint ").nth(1).and_then(|rest| rest.split(';').next());
    assert!(hint.is_some_and(|hint| hint.starts_with("Link </a>, </$") && hint.ends_with("b>")), "{said}");
    assert_eq!(said.matches("early_hint ").count(), 2, "of the path and of the path itself: {said}");
    assert!(said.contains("edit_header append link: </"), "{said}");
    assert!(said.contains("edit_header set X-C: 1;") && !said.contains("edit_header unset X-A"), "{said}");
}

#[test]
fn documents_of_other_servers_have_a_location() {
    let said = host(
        "error-doc: {status: [404, 499], url: 'http://b:8080/x?y'}\npaths:\n  /p: {file.dir: /x}\n  /q: {file.dir: /y}",
    );
    assert_eq!(said.matches("location @document-").count(), 1, "{said}");
    assert!(said.contains("error_page 404 @document-") && !said.contains("499"), "{said}");
    assert!(said.contains("rewrite ^ /x?y? break; proxy_pass http://document-at-"), "{said}");
    assert!(said.contains("server b:8080 weight=1 resolve"), "{said}");
}

/// Every key that H2O documents is in the table, and none refuses what is its default.
#[test]
fn keys_are_refused_with_a_reason() {
    for (text, expected) in [
        ("mruby.handler: x", "\"mruby.handler\" is not supported in /h2o.yaml:1:"),
        ("proxy.connect: ON", "\"proxy.connect\" is not supported in "),
    ] {
        let text = format!("listen: 80\nhosts: {{a: {{paths: {{/: {{{text}}}}}}}}}\n");
        let error = tree(&text).map(|tree| shown(&tree.lines)).expect_err(&text);
        let expected = expected.split(" in ").next().unwrap();
        assert!(error.contains(expected) || error.contains("is not allowed here"), "{text}: {error}");
    }
    let text = "max-delegations: 5\nreproxy: OFF\nproxy.emit-missing-date-header: ON\nlisten: 80\nhosts: {a: {paths: {}}}\n";
    assert!(tree(text).is_ok());
}

#[test]
fn what_is_wrong_is_shown_at_its_place() {
    let body = "listen: 80\nhosts:\n  a:\n    paths:\n      /:\n        ";
    for (text, expected) in [
        (
            "listn: 80",
            "unknown directive \"listn\" in /h2o.yaml:1:1\nlistn: 80\n^^^^^\ndid you mean \"listen\"?\n",
        ),
        (
            "listen: 80\nhosts:\n  a:\n    num-threads: 1",
            "\"num-threads\" directive is not allowed here in /h2o.yaml:4:5",
        ),
        ("listen: http", "invalid port \"http\" in /h2o.yaml:1:9"),
        ("listen: {port: 80, prot: 1}", "unknown parameter \"prot\" in /h2o.yaml:1:20"),
        ("listen: {ssl: {}}", "\"listen\" has no \"port\" in /h2o.yaml:1:1"),
        (
            "listen: 80\nlisten: {port: 81, ssl: {key-fil: x}}",
            "unknown parameter \"key-fil\" in /h2o.yaml:2:26",
        ),
        ("listen: 80", "\"hosts\" is missing in /h2o.yaml:1:1"),
        ("hosts: {a: {paths: {/: {file.dir: x}}}}", "nothing to listen on for host \"a\" in /h2o.yaml:1:9"),
        ("listen: [80\n", "in /h2o.yaml:"),
        ("a: *b", "in /h2o.yaml:1:"),
        ("", "the file is empty in /h2o.yaml:1:1"),
        ("--- a\n--- b\n", "more than one document in /h2o.yaml:2:5"),
        (
            "listen: 80\nhosts:\n  a:\n    paths:\n      x: {file.dir: y}",
            "a path begins with \"/\" in /h2o.yaml:5:7",
        ),
    ] {
        let errors = tree(text).map(|tree| shown(&tree.lines)).expect_err(text);
        assert!(errors.contains(expected), "{text}: {errors}");
    }
    for (text, expected) in [
        ("file.index: a$b", "\"$\" is not supported here in /h2o.yaml:6:21"),
        ("header.add: {header: 'A: b', when: erly}", "unknown parameter \"erly\" in /h2o.yaml:6:44"),
        (
            "proxy.header.add: {header: 'A: b', when: all}",
            "requests have no informational form in /h2o.yaml:6:27",
        ),
        (
            "proxy.reverse.url: [http://a/, https://b/]",
            "backends of different schemes or paths are not supported in ",
        ),
        (
            "fastcgi.spawn: {command: x, user: y}",
            "\"user\" of \"fastcgi.spawn\" is not supported in /h2o.yaml:6:37",
        ),
        ("file.dir: [a]", "a single value is expected in /h2o.yaml:6:19"),
        ("redirect: {url: a, status: 200}", "invalid status \"200\" in /h2o.yaml:6:36"),
        ("file.dirlisting: maybe", "\"ON\" or \"OFF\" is expected in /h2o.yaml:6:26"),
        ("expires: soon", "invalid time \"soon\" in /h2o.yaml:6:18"),
        ("header.add: x", "\"Name: value\" is expected in /h2o.yaml:6:21"),
        ("access-log: {path: a, format: '%y'}", "unknown format \"%y\" in /h2o.yaml:6:39"),
        ("access-log: {path: a, format: '%{%q}t'}", "\"%q\" of a time is not supported in /h2o.yaml:6:39"),
    ] {
        let errors = tree(&format!("{body}{text}")).map(|tree| shown(&tree.lines)).expect_err(text);
        assert!(errors.contains(expected), "{text}: {errors}");
    }
}

#[test]
fn aliases_do_not_multiply_without_end() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..8 {
        let before = format!("*a{}, ", n - 1).repeat(10);
        text += &format!("a{n}: &a{n} [{before}]\n");
    }
    assert!(tree(&text).expect_err("too many").contains("more than 100000 values"));
    let deep = format!("{}{}", "[".repeat(50), "]".repeat(50));
    assert!(tree(&deep).expect_err("too deep").contains("more than 32 levels"));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[a-z:\\-\\[\\]{}&*!'\"%\\n #|>é/.0-9]{0,60}", cut in 0usize..700) {
        let _ = tree(&text);
        if FILE.is_char_boundary(cut.min(FILE.len())) {
            let _ = tree(&(FILE[..cut.min(FILE.len())].to_owned() + &text));
        }
    }
}
