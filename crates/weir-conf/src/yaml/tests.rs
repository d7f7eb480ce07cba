use proptest::prelude::*;

use crate::{ConfTree, DirectiveLine, MemoryFiles, load};

fn tree(text: &str) -> Result<ConfTree, String> {
    let files = MemoryFiles::new().with("/h2o.yaml", text);
    load("/h2o.yaml".as_ref(), "/".as_ref(), &files, |_| false, None)
        .map_err(|failure| failure.errors.render(&failure.tree.source))
}

/// Lines as nginx's language has them, without what is there in every file.
fn shown(lines: &[DirectiveLine]) -> String {
    let mut out = String::new();
    for line in lines.iter().filter(|line| !["types", "default_type", "index"].contains(&line.name.str())) {
        out += &line.words().map(|word| word.str()).collect::<Vec<_>>().join(" ");
        match &line.block {
            Some(block) => out += &format!(" {{ {}}} ", shown(&block.lines)),
            None => out += "; ",
        }
    }
    out
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
    let log = FILE.find("'%h").unwrap();
    let expected = format!(
        "user nobody; worker_processes 2; error_log /var/log/error.log; pid /run/h2o.pid; \
        events {{ worker_connections 51; }} \
        http {{ log_format format-at-{log} escape=default ${{remote_addr}} \"${{request}}\" ${{status}} ${{http_user_agent}}; \
        access_log /var/log/all.log format-at-{log}; \
        server {{ server_name example.com; listen 80; listen 443 ssl; ssl_certificate /c.pem; ssl_certificate_key /k.pem; \
        access_log /var/log/all.log format-at-{log}; access_log /var/log/example.log; \
        location / {{ root /var/www; }} \
        location /img/ {{ alias /var/img/; }} location = /img {{ return 301 /img/$is_args$args; }} \
        location /app/ {{ proxy_pass http://127.0.0.1:8080/; }} location = /app {{ proxy_pass http://127.0.0.1:8080/; }} }} \
        server {{ server_name example.org; listen 80; location / {{ return 301 https://example.com$request_uri; }} }} }} "
    );
    assert_eq!(shown(&tree.lines), expected);
}

#[test]
fn settings_of_paths() {
    let tree = tree(
        "listen: 8080\nhosts:\n  '*':\n    paths:\n      /a.b:\n        redirect: http://x/y/\n        header.add: 'A: b'\n        expires: 1 day\n        file.dirlisting: ON\n",
    )
    .unwrap();
    let text = shown(&tree.lines);
    for part in [
        "access_log off; ",
        "server_name _; listen 8080 default_server; ",
        "add_header_inherit merge; add_header A b always; expires 1d; autoindex on; ",
        "if ($request_uri ~ ^/a\\.b/?([^?]*)) { return 302 http://x/y/$1$is_args$args; } return 302 http://x/y/; ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn aliases_and_merges() {
    let text = "listen: &l\n  port: 81\n  host: 127.0.0.1\nhosts:\n  a:\n    listen:\n      <<: *l\n      port: 82\n    paths: &p\n      /: {file.dir: /x}\n  b:\n    paths: *p\n";
    let text = shown(&tree(text).unwrap().lines);
    assert!(
        text.contains("server_name a; listen 127.0.0.1:81; listen 127.0.0.1:82; location / { root /x; } }"),
        "{text}"
    );
    assert!(text.contains("server_name b; listen 127.0.0.1:81; location / { root /x; } }"), "{text}");
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
            "http2-reprioritize-blocking-assets: ON",
            "unknown directive \"http2-reprioritize-blocking-assets\" in /h2o.yaml:1:1",
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
        ("a: !file x", "tags are not supported in /h2o.yaml:1:4"),
        ("--- a\n--- b\n", "more than one document in /h2o.yaml:2:5"),
        (
            "listen: 80\nhosts:\n  a:\n    paths:\n      x: {file.dir: y}",
            "a path begins with \"/\" in /h2o.yaml:5:7",
        ),
        ("listen: 80\nhosts:\n  a:\n    paths:\n      /:\n", "nothing answers \"/\" in /h2o.yaml:5:7"),
    ] {
        let errors = tree(text).map(|tree| shown(&tree.lines)).expect_err(text);
        assert!(errors.contains(expected), "{text}: {errors}");
    }
    for (text, expected) in [
        (
            "file.dir: a\n        redirect: b",
            "\"redirect\" beside \"file.dir\" is not supported: one of them answers a path in /h2o.yaml:7:9",
        ),
        ("file.dir: a$b", "\"$\" is not supported here in /h2o.yaml:6:19"),
        ("file.dir: [a]", "a single value is expected in /h2o.yaml:6:19"),
        ("redirect: {url: a, status: 200}", "invalid status \"200\" in /h2o.yaml:6:36"),
        ("file.dirlisting: maybe", "\"ON\" or \"OFF\" is expected in /h2o.yaml:6:26"),
        ("expires: soon", "invalid time \"soon\" in /h2o.yaml:6:18"),
        ("header.add: x", "\"Name: value\" is expected in /h2o.yaml:6:21"),
        ("access-log: {path: a, format: '%y'}", "unknown format \"%y\" in /h2o.yaml:6:39"),
        ("access-log: '|cat'", "logging to a program is not supported in /h2o.yaml:6:21"),
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
