//! `weir lsp`: a session as editors have them, by hand and with a language client of others.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use weir_http::json::{JsonValue, JsonWriter, MessageBuffer};
use weir_test::{TempDir, require_program, skip};

/// An editor: what it sends, and what it has received.
struct Editor {
    weir: Child,
    to: Option<ChildStdin>,
    from: ChildStdout,
    buffer: MessageBuffer,
    asked: u64,
}

impl Editor {
    fn start() -> Editor {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        let mut weir = weir.arg("lsp").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let (to, from) = (weir.stdin.take(), weir.stdout.take().expect("a pipe"));
        Editor { weir, to, from, buffer: MessageBuffer::default(), asked: 0 }
    }

    fn initialized() -> Editor {
        let mut editor = Editor::start();
        let result = editor.ask("initialize", "{\"capabilities\":{}}");
        assert!(result.path(&["capabilities", "textDocumentSync", "change"]).is_some(), "{result:?}");
        editor.notify("initialized", "{}");
        editor
    }

    fn send(&mut self, message: &str) {
        self.to.as_mut().expect("open").write_all(&MessageBuffer::framed(message)).expect("it reads");
    }

    fn notify(&mut self, method: &str, parameters: &str) {
        self.send(&format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{parameters}}}"));
    }

    /// The next message.
    fn next(&mut self) -> JsonValue {
        loop {
            if let Some(message) = self.buffer.next_message().expect("framed") {
                return JsonValue::parse(&message).expect("JSON");
            }
            let mut part = [0; 4096];
            let length = self.from.read(&mut part).expect("readable");
            assert!(length > 0, "the server is gone");
            self.buffer.push(&part[..length]);
        }
    }

    /// The response to a request, `result` or `error`; what is published in the meantime is passed over.
    fn ask(&mut self, method: &str, parameters: &str) -> JsonValue {
        self.asked += 1;
        let id = self.asked;
        self.send(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{parameters}}}"
        ));
        loop {
            let message = self.next();
            if message.field("id").and_then(JsonValue::number) == Some(id) {
                let result = message.field("result").or(message.field("error"));
                return result.expect("one of both").clone();
            }
        }
    }

    fn open(&mut self, path: &Path, text: &str) {
        let parameters = JsonWriter::object(|json| {
            json.key("textDocument").nested(|json| {
                json.key("uri").text(&uri(path));
                json.key("version").raw(1);
                json.key("languageId").text("nginx");
                json.key("text").text(text);
            });
        });
        self.notify("textDocument/didOpen", &parameters);
    }

    fn change(&mut self, path: &Path, text: &str) {
        let parameters = JsonWriter::object(|json| {
            json.key("textDocument").nested(|json| json.key("uri").text(&uri(path)));
            json.key("contentChanges").list(|json| json.nested(|json| json.key("text").text(text)));
        });
        self.notify("textDocument/didChange", &parameters);
    }

    /// Asks about the place of `mark` in `text`, which is open.
    fn ask_at(&mut self, method: &str, path: &Path, text: &str, mark: &str) -> JsonValue {
        let at = text.find(mark).expect("there");
        let line = text[..at].matches('\n').count();
        let column = text[..at].rsplit('\n').next().unwrap_or_default().encode_utf16().count();
        let uri = uri(path);
        let place = format!("{{\"line\":{line},\"character\":{column}}}");
        let range = format!("{{\"start\":{place},\"end\":{place}}}");
        self.ask(
            method,
            &format!("{{\"textDocument\":{{\"uri\":\"{uri}\"}},\"position\":{place},\"range\":{range}}}"),
        )
    }

    /// What is published next for a file: `line:column message`, from 0.
    fn published(&mut self, path: &Path) -> Vec<String> {
        loop {
            let message = self.next();
            let parameters = message.field("params");
            let of = parameters.and_then(|it| it.field("uri")).and_then(JsonValue::text);
            if of != Some(&uri(path)) {
                continue;
            }
            let list = parameters.and_then(|it| it.field("diagnostics")).and_then(JsonValue::list);
            let shown = |one: &JsonValue| {
                let start = |key| one.path(&["range", "start", key]).and_then(JsonValue::number);
                let text = one.field("message").and_then(JsonValue::text).unwrap_or_default();
                let (line, column) = (start("line").unwrap_or(999), start("character").unwrap_or(999));
                format!("{line}:{column} {text}")
            };
            return list.expect("a list").iter().map(shown).collect();
        }
    }

    fn end(mut self) -> Option<i32> {
        assert_eq!(self.ask("shutdown", "null"), JsonValue::Null);
        self.notify("exit", "null");
        self.weir.wait().expect("it ends").code()
    }
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// The texts of a key of each element.
fn texts<'a>(list: &'a JsonValue, key: &str) -> Vec<&'a str> {
    list.list().expect("a list").iter().filter_map(|one| one.field(key)?.text()).collect()
}

const MAIN: &str = "events {}
http {
    access_log off;
    upstream back { server 127.0.0.1:1; }
    include site.conf;
}
";
const SITE: &str = "server {
    listen 127.0.0.1:8080 http2; # \u{1f600}
    set $mine 1;
    location / { proxy_pass http://back; error_page 404 @none; }
    location @none { return 404 $host; }
}
";

/// Pipes and devices may have no writer, and standard input has the editor's own messages.
#[test]
fn pipes_and_devices_are_not_waited_for() {
    let directory = TempDir::new();
    let (pipe, conf) = (directory.path().join("pipe"), directory.path().join("nginx.conf"));
    let made = Command::new("mkfifo").arg(&pipe).status().expect("it runs");
    assert!(made.success());
    let mut editor = Editor::initialized();
    for (lines, message) in [
        ("include pipe;", "no regular file"),
        ("include /dev/stdin;", "no regular file"),
        ("map $host $a { include pipe; }", "no regular file"),
        (
            "server { listen 8443 ssl; ssl_certificate pipe; ssl_certificate_key pipe; }",
            "cannot load certificate",
        ),
    ] {
        let text = format!("events {{}}\nhttp {{ {lines} }}\n");
        editor.open(&conf, &text);
        let found = editor.published(&conf);
        assert!(found.len() == 1 && found[0].contains(message), "{lines}: {found:?}");
    }
    // A pipe of a usual name beside the file is no main configuration.
    let part = directory.path().join("part.conf");
    fs::rename(&pipe, directory.path().join("weir.conf")).expect("renamed");
    editor.open(&part, "server { lisen 80; }");
    assert!(
        editor.ask_at("textDocument/completion", &part, "server { lisen 80; }", "lisen").list().is_some()
    );
}

/// Texts that arrive while one is looked at are looked at once: as many findings are published as there was time for.
#[test]
fn what_is_typed_in_the_meantime_is_looked_at_once() {
    let directory = TempDir::new();
    let conf = directory.path().join("nginx.conf");
    let servers: String = (0..3000)
        .map(|at| format!("server {{ listen 80; server_name n{at}.test; location / {{ return 204; }} }}\n"))
        .collect();
    let text = |end: &str| format!("events {{}}\nhttp {{\n{servers}\n{end}\n}}\n");
    let mut editor = Editor::initialized();
    editor.open(&conf, &text(""));
    for at in 0..40 {
        editor.change(&conf, &text(&format!("wrong{at};")));
    }
    let mut published = 0;
    loop {
        published += 1;
        let found = editor.published(&conf);
        if found.iter().any(|finding| finding.contains("wrong39")) {
            break;
        }
    }
    assert!(published < 30, "{published} of 40 texts were looked at");
}

#[test]
fn an_editor_gets_findings_and_what_it_asks_for() {
    let directory = TempDir::new();
    let (main, site) = (directory.path().join("nginx.conf"), directory.path().join("site.conf"));
    fs::write(&main, MAIN).expect("written");
    fs::write(&site, "wrong").expect("written: the open text counts");
    let mut editor = Editor::initialized();

    editor.open(&site, SITE);
    let deprecated =
        "1:4 the \"listen ... http2\" directive is deprecated, use the \"http2\" directive instead";
    assert_eq!(editor.published(&site), [deprecated], "as a part of nginx.conf");
    let misspelt = SITE.replace("404 $host", "404 $hst").replace("set $mine 1", "/* \u{1f600} */ set");
    editor.change(&site, &misspelt);
    let found = editor.published(&site);
    assert!(found.iter().any(|one| one.starts_with("2:4 unknown directive \"/*\"")), "{found:?}");
    assert!(found.iter().any(|one| one.starts_with("4:32 unknown \"hst\" variable")), "{found:?}");
    editor.change(&site, SITE);
    assert_eq!(editor.published(&site), [deprecated]);

    let actions = editor.ask_at("textDocument/codeAction", &site, SITE, "listen");
    assert_eq!(texts(&actions, "title").len(), 1, "{actions:?}");
    let edit =
        actions.list().and_then(|list| list[0].path(&["edit", "changes", &uri(&site)])).expect("edits");
    assert!(texts(edit, "newText").iter().any(|text| text.contains("http2 on;")), "{edit:?}");

    let hover = editor.ask_at("textDocument/hover", &site, SITE, "proxy_pass");
    let shown = hover.path(&["contents", "value"]).and_then(JsonValue::text).expect("text");
    assert!(shown.contains("- Compared with nginx: the same\n- Module: proxy"), "{shown}");
    let hover = editor.ask_at("textDocument/hover", &site, SITE, "host;");
    let shown = hover.path(&["contents", "value"]).and_then(JsonValue::text).expect("text");
    assert!(shown.contains("`$host`"), "{shown}");

    let names = editor.ask_at("textDocument/completion", &site, SITE, "set $mine");
    let labels = texts(&names, "label");
    assert!(labels.contains(&"server_name") && !labels.contains(&"worker_processes"), "{labels:?}");
    let parameters = editor.ask_at("textDocument/completion", &site, SITE, "http2;");
    let labels = texts(&parameters, "label");
    assert!(labels.contains(&"default_server") && labels.contains(&"rcvbuf="), "{labels:?}");
    let variables = editor.ask_at("textDocument/completion", &site, SITE, "host;");
    let labels = texts(&variables, "label");
    assert!(labels.contains(&"$mine") && labels.contains(&"$uri"), "{labels:?}");

    let place = |found: &JsonValue| {
        let one = &found.list().expect("a list")[0];
        let line = one.path(&["range", "start", "line"]).and_then(JsonValue::number);
        (one.field("uri").and_then(JsonValue::text).map(str::to_owned), line)
    };
    let found = editor.ask_at("textDocument/definition", &site, SITE, "back;");
    assert_eq!(place(&found), (Some(uri(&main)), Some(3)));
    let found = editor.ask_at("textDocument/definition", &site, SITE, "@none;");
    assert_eq!(place(&found), (Some(uri(&site)), Some(4)));
    editor.open(&main, MAIN);
    let found = editor.ask_at("textDocument/definition", &main, MAIN, "site.conf");
    assert_eq!(place(&found), (Some(uri(&site)), Some(0)));

    let formatted = editor.ask_at("textDocument/formatting", &main, MAIN, "http");
    let text = texts(&formatted, "newText").concat();
    assert!(text.contains("    upstream back {\n        server 127.0.0.1:1;\n    }\n"), "{text}");
    assert_eq!(editor.end(), Some(0));
}

/// `.invalid` has no addresses (RFC 6761): `-t` says so, and an editor does not ask.
#[test]
fn an_editor_waits_for_no_name_server() {
    let directory = TempDir::new();
    let path = directory.path().join("nginx.conf");
    let text = "events {}
http {
    upstream back { server one.invalid; server two.invalid:81; }
    server {
        listen 127.0.0.1:0;
        set_real_ip_from proxy.invalid;
        location / { proxy_pass http://back; }
        location /b { proxy_pass http://three.invalid; mistyped; }
    }
}
";
    fs::write(&path, text).expect("written");
    let tested = Command::new(env!("CARGO_BIN_EXE_weir")).arg("-t").arg("-c").arg(&path).output();
    let tested = String::from_utf8_lossy(&tested.expect("it runs").stderr).into_owned();
    assert!(tested.contains("host not found in upstream \"one.invalid\""), "{tested}");
    let mut editor = Editor::initialized();
    editor.open(&path, text);
    let found = editor.published(&path);
    assert!(found.iter().any(|one| one == "7:55 unknown directive \"mistyped\""), "{found:?}");
    assert!(found.iter().all(|one| !one.contains("host not found")), "{found:?}");
    assert_eq!(editor.end(), Some(0));
}

#[test]
fn messages_that_mean_nothing_are_refused_and_the_session_goes_on() {
    let mut editor = Editor::start();
    let code = |error: &JsonValue| match error.field("code") {
        Some(JsonValue::Number(code)) => code.to_string(),
        other => format!("{other:?}"),
    };
    assert_eq!(code(&editor.ask("textDocument/hover", "{}")), "-32002", "before initialize");
    editor.ask("initialize", "{}");
    editor.send("{]");
    assert_eq!(editor.next().field("error").map(code), Some("-32700".to_owned()));
    editor.send("[1, 2]");
    assert_eq!(editor.next().field("error").map(code), Some("-32600".to_owned()));
    for (method, expected) in [
        ("initialize", "-32601"),
        ("workspace/symbol", "-32601"),
        ("textDocument/hover", "-32602"),
        ("textDocument/formatting", "-32602"),
    ] {
        let error = editor.ask(method, "{\"textDocument\":{\"uri\":7},\"position\":{\"line\":-1}}");
        assert_eq!(code(&error), expected, "{method}");
    }
    editor.notify("textDocument/didChange", "{\"contentChanges\":[{}]}");
    editor.notify("no/such", "[]");
    assert_eq!(editor.end(), Some(0));

    let mut editor = Editor::start();
    editor.to.as_mut().expect("open").write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
    assert_eq!(editor.weir.wait().expect("it ends").code(), Some(2), "no such stream");
    let mut editor = Editor::initialized();
    drop(editor.to.take());
    assert_eq!(editor.weir.wait().expect("it ends").code(), Some(2), "without \"exit\"");
}

#[test]
fn a_language_client_of_others_works_with_it() {
    let Some(python) = require_program("python3") else { return };
    let has_pygls =
        Command::new(&python).args(["-c", "import pygls.lsp.client"]).stderr(Stdio::null()).status();
    if !has_pygls.expect("python runs").success() {
        return skip("pygls, a Python package, is not installed");
    }
    let directory = TempDir::new();
    let text = "events {}\nhttp {\nserver {\n  listen 127.0.0.1:8080 http2;\n}\n}\n";
    fs::write(directory.path().join("a.conf"), text).expect("written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/lsp_client.py");
    let mut client = Command::new(&python);
    let client = client.arg(script).arg(env!("CARGO_BIN_EXE_weir")).arg(directory.path()).output();
    let output = client.expect("python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout.ends_with(b"passed\n"), "{errors}");
}

/// While a configuration is typed nothing comes to be of what it names: logs, temporary and cached files, the process id.
#[test]
fn an_editor_makes_no_files() {
    let directory = TempDir::new();
    let at = directory.path().display();
    let path = directory.path().join("nginx.conf");
    let text = format!(
        "pid {at}/pid;
error_log {at}/error.log;
events {{}}
http {{
    client_body_temp_path {at}/bodies 1 2;
    proxy_cache_path {at}/cached keys_zone=c:1m;
    resolver_cache {at}/names;
    access_log {at}/access.log combined buffer=32k;
    server {{
        listen 127.0.0.1:0;
        lua_ssl_key_log {at}/keys;
        location / {{ access_log {at}/location.log; error_log {at}/location-errors.log; mistyped; }}
    }}
}}
"
    );
    let mut editor = Editor::initialized();
    editor.open(&path, &text);
    let found = editor.published(&path);
    assert!(found.iter().any(|one| one.contains("unknown directive \"mistyped\"")), "{found:?}");
    editor.change(&path, &text.replace("mistyped; ", ""));
    assert_eq!(editor.published(&path), [""; 0]);
    assert!(editor.ask_at("textDocument/completion", &path, &text, "combined buffer").list().is_some());
    assert_eq!(editor.end(), Some(0));
    let made: Vec<_> = fs::read_dir(directory.path()).expect("there").collect();
    assert!(made.is_empty(), "{made:?}");
}
