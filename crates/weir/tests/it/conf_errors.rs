//! Configurations that are wrong: all of what is wrong is said in one run, at its place, in nginx's words. Where nginx
//! is installed its own words and line are compared with these.

use std::path::Path;

use weir_test::{ProcessExit, Server, TestServerBuilder};

/// A text, and what is wrong with it: line, column, message.
type Case = (&'static str, &'static [(u32, u32, &'static str)]);

/// The errors of `-t`, with this server's directory as `%%DIR%%`.
#[track_caller]
fn errors(builder: &TestServerBuilder) -> Vec<String> {
    let ProcessExit { status, stderr, .. } = builder.run(&["-t"]);
    assert!(!status.success(), "{stderr}");
    let directory = builder.dir().to_string_lossy().into_owned();
    let messages = stderr.lines().filter_map(|line| line.split_once(": [emerg] "));
    messages.map(|(_, message)| message.replace(&directory, "%%DIR%%")).collect()
}

/// `message in FILE:line:column` without the column: as nginx says it.
fn without_column(error: &str) -> &str {
    error.rsplit_once(':').map_or(error, |(error, _)| error)
}

#[track_caller]
fn check((text, expected): &Case) {
    let place = |&(line, column, message): &(u32, u32, &str)| {
        format!("{message} in %%DIR%%/nginx.conf:{line}:{column}")
    };
    let expected: Vec<String> = expected.iter().map(place).collect();
    assert_eq!(errors(&Server::builder(text)), expected, "{text}");
    let Some(nginx) = weir_test::nginx(text) else { return };
    let theirs = errors(&nginx);
    let ours = without_column(&expected[0]);
    let message = ours.rsplit_once(" in ").map_or(ours, |(message, _)| message);
    // What it finds when the whole file was read has no place in nginx.
    assert!(theirs == [ours] || theirs == [message], "nginx says {theirs:?}: {text}");
}

/// nginx takes a directory that can't be read for an empty one, and serves without the rules that are in it.
#[test]
fn a_directory_of_includes_that_cannot_be_read() {
    let text = "http {\n    include rules/*.conf;\n    include absent/*.conf;\n}";
    let builder = Server::builder(text);
    // Root may read everything, but no link that leads to itself.
    std::os::unix::fs::symlink("rules", builder.dir().join("rules")).expect("a link");
    let message = "glob() \"%%DIR%%/rules/*.conf\" failed (40: Too many levels of symbolic links)";
    assert_eq!(errors(&builder), [format!("{message} in %%DIR%%/nginx.conf:2:13")]);
}

#[test]
fn structure() {
    for case in &[
        ("http {\n    rooot html;\n}", &[(2, 5, "unknown directive \"rooot\"")][..]),
        ("\nlisten 80;", &[(2, 1, "\"listen\" directive is not allowed here")]),
        ("http {\n    server { }\n}\n}\n", &[(4, 1, "unexpected \"}\"")]),
        ("events { }\nhttp {\n    server {", &[(3, 13, "unexpected end of file, expecting \"}\"")]),
        (
            "events { }\nhttp {\n    server {\n    root a",
            &[(4, 11, "unexpected end of file, expecting \";\" or \"}\"")],
        ),
        ("http {\n    server;\n}", &[(2, 5, "directive \"server\" has no opening \"{\"")]),
        ("http {\n    root html {\n    }\n}", &[(2, 5, "directive \"root\" is not terminated by \";\"")]),
        ("http {\n    {\n}\n}", &[(2, 5, "unexpected \"{\"")]),
        ("http {\n    ;\n}", &[(2, 5, "unexpected \";\"")]),
        ("http {\n    default_type \"a\"b;\n}", &[(2, 21, "unexpected \"b\"")]),
        ("http {\n    root a b;\n}", &[(2, 5, "invalid number of arguments in \"root\" directive")]),
        ("http {\n    root a;\n    root b;\n}", &[(3, 5, "\"root\" directive is duplicate")]),
        ("events { }\nhttp { }\nhttp { }\n", &[(3, 1, "\"http\" directive is duplicate")]),
        (
            "http {\n    include missing.conf;\n}",
            &[(2, 13, "open() \"%%DIR%%/missing.conf\" failed (2: No such file or directory)")],
        ),
    ] {
        check(case);
    }
}

#[test]
fn values() {
    for case in &[
        (
            "http {\n    sendfile maybe;\n}",
            &[(2, 14, "invalid value \"maybe\" in \"sendfile\" directive, it must be \"on\" or \"off\"")][..],
        ),
        (
            "http {\n    client_max_body_size 1z;\n}",
            &[(2, 26, "\"client_max_body_size\" directive invalid value")],
        ),
        (
            "http {\n    keepalive_timeout soon;\n}",
            &[(2, 23, "\"keepalive_timeout\" directive invalid value")],
        ),
        (
            "http {\n    keepalive_requests many;\n}",
            &[(2, 24, "\"keepalive_requests\" directive invalid number")],
        ),
        (
            "http {\n    client_body_buffer_size 99999999999999999999;\n}",
            &[(2, 29, "\"client_body_buffer_size\" directive invalid value")],
        ),
        ("http {\n    satisfy some;\n}", &[(2, 13, "invalid value \"some\"")]),
        ("http {\n    error_page 99 /x;\n}", &[(2, 16, "value \"99\" must be between 300 and 599")]),
        ("http {\n    error_page four /x;\n}", &[(2, 16, "invalid value \"four\"")]),
        ("http {\n    add_header A b sometimes;\n}", &[(2, 20, "invalid parameter \"sometimes\"")]),
        ("http {\n    expires soon;\n}", &[(2, 13, "\"expires\" directive invalid value")]),
        (
            "http {\n    open_file_cache max=0;\n}",
            &[(2, 21, "invalid \"open_file_cache\" parameter \"max=0\"")],
        ),
        (
            "http {\n    open_file_cache inactive=1s;\n}",
            &[(2, 5, "\"open_file_cache\" must have the \"max\" parameter")],
        ),
        ("http {\n    access_log logs/a missing;\n}", &[(2, 23, "unknown log format \"missing\"")]),
        (
            "http {\n    log_format a '$uri';\n    log_format a '$uri';\n}",
            &[(3, 16, "duplicate \"log_format\" name \"a\"")],
        ),
        ("\nworker_processes few;", &[(2, 18, "\"worker_processes\" directive invalid value")]),
        ("\nerror_log x loud;", &[(2, 13, "invalid log level \"loud\"")]),
        ("events {\n    worker_connections -1;\n}", &[(2, 24, "invalid number \"-1\"")]),
        ("\nuser nobody-at-all;", &[(2, 6, "getpwnam(\"nobody-at-all\") failed")]),
    ] {
        check(case);
    }
}

#[test]
fn servers_and_locations() {
    for case in SERVERS_AND_LOCATIONS {
        check(case);
    }
}

const SERVERS_AND_LOCATIONS: &[Case] = &[
    ("http {\n    server {\n        return abc;\n    }\n}", &[(3, 16, "invalid return code \"abc\"")]),
    (
        "http {\n    server {\n        return 200 $nothing;\n    }\n}",
        &[(3, 20, "unknown \"nothing\" variable")],
    ),
    ("http {\n    server {\n        return 200 a$;\n    }\n}", &[(3, 20, "invalid variable name")]),
    (
        "http {\n    server {\n        return 200 ${host;\n    }\n}",
        &[(3, 20, "the closing bracket in \"host\" variable is missing")],
    ),
    (
        "http {\n    server {\n        location /x { }\n        location /x { }\n    }\n}",
        &[(4, 9, "duplicate location \"/x\"")],
    ),
    (
        "http { server {\n    location /b {\n        location /a { }\n    }\n} }",
        &[(3, 9, "location \"/a\" is outside location \"/b\"")],
    ),
    (
        "http { server {\n    location = /b {\n        location /b { }\n    }\n} }",
        &[(3, 9, "location \"/b\" cannot be inside the exact location \"/b\"")],
    ),
    (
        "http { server {\n    location /b {\n        location @a { }\n    }\n} }",
        &[(3, 9, "named location \"@a\" can be on the server level only")],
    ),
    (
        "http { server { location /a {\n    root x;\n    alias y;\n} } }",
        &[(3, 5, "\"alias\" directive is duplicate, \"root\" directive was specified earlier")],
    ),
    ("http { server {\n    location ~? /x { }\n} }", &[(2, 14, "invalid location modifier \"~?\"")]),
    (
        "http { server {\n    location ~ ( { }\n} }",
        &[(2, 16, "pcre2_compile() failed: missing closing parenthesis in \"(\"")],
    ),
    ("http { server {\n    server_name ~;\n} }", &[(2, 17, "empty regex in server name \"~\"")]),
    ("http { server {\n    listen 127.0.0.1:81 fast;\n} }", &[(2, 25, "invalid parameter \"fast\"")]),
    (
        "http { server {\n    listen 127.0.0.1:99999;\n} }",
        &[(2, 12, "invalid port in \"127.0.0.1:99999\" of the \"listen\" directive")],
    ),
    (
        "http { server {\n    listen 127.0.0.1:81;\n    listen 127.0.0.1:81;\n} }",
        &[(3, 5, "a duplicate listen 127.0.0.1:81")],
    ),
    (
        "http {\n  server { listen 127.0.0.1:81 default_server; }\n  server { listen 127.0.0.1:81 default_server; }\n}",
        &[(3, 12, "a duplicate default server for 127.0.0.1:81")],
    ),
    ("http { server { location / {\n    limit_except GETT { }\n} } }", &[(2, 18, "invalid method \"GETT\"")]),
];

#[test]
fn all_that_is_wrong_is_said_in_one_run_in_the_files_order() {
    check(&(
        "\
events { }
http {
    sendfile maybe;
    server {
        listen 127.0.0.1:81;
        rooot html;
        location /a {
            return abc;
            alias x y;
        }
        location /a { }
        index a.html b.html;
    }
    server {
        location / { keepalive_timeout soon; }
    }
}
",
        &[
            (3, 14, "invalid value \"maybe\" in \"sendfile\" directive, it must be \"on\" or \"off\""),
            (6, 9, "unknown directive \"rooot\""),
            (8, 20, "invalid return code \"abc\""),
            (9, 13, "invalid number of arguments in \"alias\" directive"),
            (11, 9, "duplicate location \"/a\""),
            (15, 40, "\"keepalive_timeout\" directive invalid value"),
        ],
    ));
}

/// nginx names the line of the next semicolon.
#[test]
fn a_forgotten_semicolon_is_shown_at_the_directive_that_lacks_it() {
    let found = errors(&Server::builder("http {\n    root html\n    index a.html;\n}"));
    assert_eq!(found, ["invalid number of arguments in \"root\" directive in %%DIR%%/nginx.conf:2:5"]);
}

#[test]
fn the_line_and_the_nearest_name_are_shown() {
    let builder = Server::builder("http {\n    server {\n        serfer_name a;\n    }\n}");
    let stderr = builder.run(&["-t"]).stderr;
    let directory = builder.dir().display();
    assert_eq!(
        stderr,
        format!(
            "weir: [emerg] unknown directive \"serfer_name\" in {directory}/nginx.conf:3:9\n        \
             serfer_name a;\n        ^^^^^^^^^^^\ndid you mean \"server_name\"?\n\
             weir: configuration file {directory}/nginx.conf test failed\n"
        )
    );
}

/// A user who tries Weir on their own file sees at once all that is missing.
#[test]
fn a_real_file_lists_everything_that_is_not_known() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/site.conf");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["shop.example.com".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).and_then(|params| params.self_signed(&key));
    let builder = Server::builder(&text)
        .file("fastcgi_params", "fastcgi_param QUERY_STRING $query_string;\n")
        .file("shop.pem", certificate.expect("signed").pem())
        .file("shop.key", key.serialize_pem());
    let unknown = |(index, line): (usize, &str)| {
        let directive = line.strip_suffix("# unknown")?.trim_start();
        let name = directive.split(' ').next().expect("a first word").trim_end_matches(';');
        let column = line.len() - line.trim_start().len() + 1;
        Some(format!("unknown directive \"{name}\" in %%DIR%%/nginx.conf:{}:{column}", index + 1))
    };
    let mut expected: Vec<String> = text.lines().enumerate().filter_map(unknown).collect();
    assert!(text.lines().count() > 150 && expected.len() > 3, "{}", expected.len());
    let mut found = errors(&builder);
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

/// Traps are shown by `-t` at their place, with the reason, and forbid nothing.
#[test]
fn traps_are_warnings_of_the_test_only() {
    let text = "http { server { listen 127.0.0.1:%%PORT%%; server_name a;
        add_header X-A 1;
        location /img/ { alias %%DIR%%; add_header X-B 1; }
        location ~ ^/(a+)+$ { return 204; } }
        server { listen 127.0.0.1:%%PORT%%; server_name a; } }";
    let builder = Server::builder(text);
    let ProcessExit { status, stderr, .. } = builder.run(&["-t"]);
    assert!(status.success(), "{stderr}");
    let directory = builder.dir().to_string_lossy().into_owned();
    let warned = stderr.replace(&directory, "DIR");
    // The column depends on how long the directory's name is.
    for expected in [
        "conflicting server name \"a\" on 127.0.0.1:",
        "[warn] \"add_header\" here replaces those of the \"server\" around it (line 2): \"X-A\" will be missing in DIR/nginx.conf:3:",
        "[warn] \"/img/a\" becomes \"DIRa\": this \"alias\" needs a slash at its end, as its location has in DIR/nginx.conf:3:32\n",
        "[warn] matching can take exponential time: \"(a+)+\" divides the same text in many ways in DIR/nginx.conf:4:20\n",
    ] {
        assert!(warned.contains(expected), "{expected}: {warned}");
    }
    let server = Server::start(text);
    assert!(!server.dir().read("error.log").contains("exponential"));
}

/// What nginx's files say of accepting and Weir does otherwise is said at its place; what both do alike is not.
#[test]
fn lines_of_accepting_that_are_ignored_are_said_by_t() {
    let run = |lines: &str| {
        let text =
            format!("events {{\n{lines} }}\nhttp {{ server {{ listen 127.0.0.1:%%PORT%%; return 204; }} }}");
        let ProcessExit { status, stderr, .. } = Server::builder(&text).run(&["-t"]);
        assert!(status.success(), "{stderr}");
        stderr
    };
    let warned = run("accept_mutex on;\nmulti_accept off;\naccept_mutex_delay 1s;");
    for (expected, line) in [
        (
            "[notice] \"accept_mutex on\" is ignored: one thread accepts for all workers and deals connections to them in ",
            2,
        ),
        ("[notice] \"multi_accept off\" is ignored: all connections that wait are accepted in ", 3),
        (
            "[notice] \"accept_mutex_delay\" is ignored: one thread accepts for all workers, none waits for a mutex in ",
            4,
        ),
    ] {
        let place = format!("nginx.conf:{line}");
        assert!(
            warned.lines().any(|found| found.contains(expected) && found.contains(&place)),
            "{expected}: {warned}"
        );
    }
    assert!(!warned.contains("[warn]"), "nginx says nothing, and Kong's tests look for warnings: {warned}");
    let silent = run("accept_mutex off; multi_accept on;");
    assert!(!silent.contains("[notice]"), "{silent}");
}
