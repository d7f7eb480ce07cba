//! Directives: what is taken, what is refused, and in which words.

use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_engine::conf::{Configuration, test};

use super::*;

static MODULES: [ModuleDef; CORE_MODULES.len() + 1] = with_core(&[ModuleDef::of::<Log>()]);

fn load(http: &str) -> Configuration {
    let text = format!("error_log stderr; events {{ }} http {{ {http} }}");
    test::load(&text, &MODULES).unwrap_or_else(|errors| panic!("{errors}"))
}

fn refused(http: &str) -> String {
    let text = format!("error_log stderr; events {{ }} http {{ access_log off; {http} }}");
    let lines = test::headlines(&text, &MODULES);
    lines[0].split(" in weir.conf").next().unwrap_or_default().to_owned()
}

fn logs(conf: &weir_engine::module::ModuleConfs) -> usize {
    let conf = conf.get::<LogConf>();
    if conf.off { 0 } else { conf.open.as_ref().map_or(0, |logs| logs.len()) }
}

#[test]
fn refusals_are_nginx_words() {
    for (line, message) in [
        ("access_log off on;", "invalid parameter \"on\""),
        ("access_log /dev/null main;", "unknown log format \"main\""),
        ("access_log /dev/null main; log_format main a;", "unknown log format \"main\""),
        ("log_format main a; log_format main b;", "duplicate \"log_format\" name \"main\""),
        ("log_format combined a;", "duplicate \"log_format\" name \"combined\""),
        ("log_format main escape=x a;", "unknown log format escaping \"x\""),
        ("log_format main '$a${b';", "the closing bracket in \"b\" variable is missing"),
        ("log_format main a$;", "invalid parameter \"a$\""),
        ("log_format main $nothing_like_this;", "unknown \"nothing_like_this\" variable"),
        ("access_log /dev/null combined buffer=0;", "invalid buffer size \"0\""),
        ("access_log /dev/null combined buffer=4k flush=0;", "invalid flush time \"0\""),
        ("access_log /dev/null combined flush=1s;", "no buffer is defined for access_log \"/dev/null\""),
        ("access_log /dev/null combined gzip=10;", "invalid compression level \"10\""),
        ("access_log /dev/null combined gzipped;", "invalid parameter \"gzipped\""),
        ("access_log /dev/$host combined buffer=4k;", "buffered logs cannot have variables in name"),
        ("access_log syslog:server=127.0.0.1 combined buffer=4k;", "logs to syslog cannot be buffered"),
        ("access_log syslog:tag=a combined;", "no syslog server specified"),
        (
            "access_log /dev/null combined gzip; access_log /dev/null combined buffer=4k;",
            "access_log \"/dev/null\" already defined with conflicting parameters",
        ),
        ("open_log_file_cache inactive=1s;", "\"open_log_file_cache\" must have \"max\" parameter"),
        ("open_log_file_cache max=a;", "invalid \"open_log_file_cache\" parameter \"max=a\""),
        ("open_log_file_cache max=1 valid=;", "invalid \"open_log_file_cache\" parameter \"valid=\""),
        (
            "access_log /nonexistent/a.log;",
            "open() \"/nonexistent/a.log\" failed (2: No such file or directory)",
        ),
    ] {
        let http =
            if line.starts_with("access_log") { format!("server {{ {line} }}") } else { line.to_owned() };
        let http = http.replace("; log_format main a; }", "; } log_format main a;");
        assert_eq!(refused(&http), message, "{line}");
    }
}

#[test]
fn any_log_of_a_block_replaces_those_around() {
    let configuration = load(
        "log_format short escape=json '$status ' $uri;
        access_log /dev/null; access_log /dev/null short buffer=4k flush=1s;
        server {
            location /inherits/ { }
            location /off/ { access_log off; location /off/in/ { } }
            location /own/ { access_log /dev/null short if=$arg_a; location /own/in/ { } }
        }",
    );
    let server = &configuration.servers()[0];
    assert_eq!(logs(&server.confs), 2);
    let counts = server.locations.iter().map(|location| logs(&location.confs));
    assert_eq!(counts.collect::<Vec<_>>(), [2, 0, 1]);
    let inner =
        server.locations.iter().flat_map(|location| &location.locations).map(|inner| logs(&inner.confs));
    assert_eq!(inner.collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn the_usual_log_is_opened_for_servers_without_one_only() {
    let own = load("server { access_log /dev/null; }");
    assert_eq!(logs(&own.servers()[0].confs), 1);
    let Err(errors) = test::load("error_log stderr; events { } http { server { } }", &MODULES) else {
        panic!("the folder of the usual log is not there")
    };
    assert_eq!(errors, "open() \"/srv/weir/logs/access.log\" failed (2: No such file or directory)\n");
}

#[test]
fn logs_to_one_file_share_it_and_its_buffer() {
    let configuration =
        load("server { access_log /dev/null; location / { access_log /dev/null combined buffer=8k; } }");
    let server = &configuration.servers()[0];
    let file = |confs: &weir_engine::module::ModuleConfs| match &confs
        .get::<LogConf>()
        .open
        .as_ref()
        .expect("opened")[0]
        .to
    {
        LogDestination::File(file) => file.clone(),
        LogDestination::Script(_) => panic!("a path without variables"),
    };
    assert!(file(&server.confs) == file(&server.locations[0].confs));
}
