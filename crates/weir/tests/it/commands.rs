//! The command line as a person types it: help, words that are files or directories, and what a mistyped one gets.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use weir_test::{Client, TempDir, free_port, require_program};

/// Runs the program with `words` in `directory`.
fn weir_in(directory: &Path, words: &[&str]) -> Output {
    let weir = Command::new(env!("CARGO_BIN_EXE_weir")).args(words).current_dir(directory).output();
    weir.expect("the program runs")
}

/// Standard output and error of the program with `words`, and its exit status.
fn said(words: &[&str]) -> (String, String, Option<i32>) {
    let output = weir_in(Path::new("/"), words);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// A server in the foreground, which ends with its owner; as long as its output is read, since the access log goes there.
struct Foreground {
    child: Child,
    _output: BufReader<ChildStdout>,
}

impl Drop for Foreground {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Foreground {
    /// Starts the program with `words`; it serves as soon as it has said the first line.
    fn start(directory: &Path, words: &[&str]) -> (Foreground, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(words)
            .current_dir(directory)
            .env("TMPDIR", directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        output.read_line(&mut line).expect("text");
        (Foreground { child, _output: output }, line)
    }
}

#[test]
fn help_is_the_same_by_any_name_and_goes_to_standard_output() {
    let (help, errors, status) = said(&["help"]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    assert!(help.contains("weir DIRECTORY") && help.contains("  weir trace "), "{help}");
    assert_eq!(said(&["--help"]).0, help);
    assert!(said(&["--version"]).0.starts_with("nginx version: nginx/"));
    assert_eq!(said(&["version"]), said(&["--version"]));
    // nginx's own options keep their way: scripts read standard error.
    assert_eq!((said(&["-h"]).0, said(&["-h"]).1), (String::new(), help));
    assert!(said(&["-v"]).1.starts_with("nginx version: nginx/") && said(&["-v"]).0.is_empty());
}

#[test]
fn every_command_has_help_with_an_example() {
    let (json, _, status) = said(&["help", "--json"]);
    assert_eq!(status, Some(0));
    let table = weir_http::json::JsonValue::parse(json.as_bytes()).expect("JSON");
    let commands = table.field("commands").and_then(|value| value.list()).expect("a list");
    assert!(commands.len() > 20, "{}", commands.len());
    for command in commands {
        let text = |key: &str| command.field(key).and_then(|value| value.text()).unwrap_or_default();
        let name = text("name");
        let examples = command.field("examples").and_then(|value| value.list()).expect("a list");
        assert!(!examples.is_empty() && !text("about").is_empty(), "{name}");
        let (help, errors, status) = said(&["help", name]);
        assert_eq!((errors.as_str(), status), ("", Some(0)), "{name}");
        assert!(help.starts_with(&format!("usage: weir {name}")), "{help}");
        assert!(help.contains("\nexamples:\n  weir "), "{help}");
        // No colours: standard output is no terminal.
        assert!(!help.contains('\x1b'), "{help}");
        let (own, _, status) = said(&[name, "--help"]);
        assert!(status == Some(0) && own.starts_with(&format!("usage: weir {name}")), "{own}");
    }
}

/// Each command's line in the list, and all of its help, fit a terminal of 80 columns.
#[test]
fn help_fits_80_columns() {
    let (list, _, _) = said(&["help"]);
    let names: Vec<_> =
        list.lines().filter_map(|line| line.strip_prefix("  weir ")?.split(' ').next()).collect();
    for line in list.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let (json, _, _) = said(&["help", "--json"]);
    let table = weir_http::json::JsonValue::parse(json.as_bytes()).expect("JSON");
    for command in table.field("commands").and_then(|value| value.list()).expect("a list") {
        let text = |key: &str| command.field(key).and_then(|value| value.text()).unwrap_or_default();
        let line = format!("  weir {:<14} {}", text("name"), text("summary"));
        assert!(names.contains(&text("name")) && list.lines().any(|shown| shown == line), "{line}");
        let (help, _, _) = said(&[text("name"), "--help"]);
        let long = help.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None, "weir {} --help", text("name"));
    }
}

/// A reader of the output that has seen enough (`weir -T 2>&1 | head`) ends no command with a panic.
#[test]
fn messages_without_a_reader_end_no_command() {
    let directory = TempDir::new();
    let text = "pid weir.pid; events { }\nhttp { access_log off; server { listen 127.0.0.1:0; } }\n";
    directory.write("weir.conf", text);
    let conf = directory.path().join("weir.conf").display().to_string();
    for words in [&["-t", "-c", &conf][..], &["-T", "-c", &conf], &["-V"], &["fmt", "nosuch.conf"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(words).stderr(writer).output();
        let status = output.expect("it runs").status.code();
        assert!(status.is_some_and(|status| status < 3), "{words:?}: {status:?}");
    }
}

/// The options of `weir lua` that run programs are in groups.
#[test]
fn the_many_options_of_lua_are_grouped() {
    let (help, _, _) = said(&["lua", "--help"]);
    let headings: Vec<_> =
        help.lines().filter(|line| !line.starts_with(' ') && line.ends_with(':')).collect();
    assert_eq!(headings, ["program:", "server:", "directives:", "examples:"], "{help}");
    let group = |heading: &str| {
        let lines = help.lines().skip_while(|line| *line != heading).skip(1);
        lines.take_while(|line| line.starts_with("  -")).count()
    };
    assert!(["program:", "server:", "directives:"].iter().all(|heading| (2..=8).contains(&group(heading))));
}

/// script(1) gives the program a terminal: headings are bold there, unless `NO_COLOR` is set.
#[test]
fn help_is_plain_where_no_color_is_set() {
    let Some(script) = require_program("script") else { return };
    let shown = |variable: Option<(&str, &str)>, term: &str| {
        let mut command = Command::new(&script);
        command.args(["-qec", concat!(env!("CARGO_BIN_EXE_weir"), " help trace"), "/dev/null"]);
        command.env_remove("NO_COLOR").env("TERM", term).envs(variable).stdin(Stdio::null());
        let output = command.output().expect("script runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(shown(None, "xterm").contains("\x1b[1moptions:\x1b[0m"));
    assert!(shown(Some(("NO_COLOR", "")), "xterm").contains('\x1b'), "an empty one counts as absent");
    for plain in [shown(Some(("NO_COLOR", "1")), "xterm"), shown(None, "dumb")] {
        assert!(plain.contains("options:") && !plain.contains('\x1b'), "{plain}");
    }
}

#[test]
fn help_knows_directives() {
    let (help, errors, status) = said(&["help", "client_max_body_size"]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    for part in [
        "Syntax:   client_max_body_size ",
        "Default:  client_max_body_size 1m;\n",
        "\nContext:  http, server, location",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
    let (help, ..) = said(&["help", "server"]);
    assert_eq!(help.matches("Syntax:").count(), 2, "that of http and that of upstream: {help}");
    let (_, errors, status) = said(&["help", "client_max_body_siz"]);
    assert_eq!(status, Some(2));
    assert!(errors.ends_with("did you mean \"weir help client_max_body_size\"?\n"), "{errors}");
}

#[test]
fn a_mistyped_word_gets_the_nearest_one_after_nginx_s_own_words() {
    for (words, expected) in [
        (
            &["tarce"][..],
            "weir: invalid option: \"tarce\"\nthere is no such command, file or directory; did you mean \"weir trace\"?\n",
        ),
        (
            &["absent.conf"],
            "weir: invalid option: \"absent.conf\"\nthere is no such command, file or directory; \"weir help\" lists the commands\n",
        ),
        (&["--versoin"], "weir: invalid option: \"-\"\ndid you mean \"--version\"?\n"),
        (&["-x"], "weir: invalid option: \"x\"\n"),
        (&["-s", "halt"], "weir: invalid option: \"-s halt\"\nthere are: stop, quit, reopen, reload\n"),
        (&["-c"], "weir: option \"-c\" requires file name\n"),
    ] {
        let (out, errors, status) = said(words);
        assert_eq!((out.as_str(), errors.as_str(), status), ("", expected, Some(1)), "{words:?}");
    }
    let (_, errors, status) = said(&["help", "flam"]);
    assert_eq!(
        (errors.as_str(), status),
        ("weir: \"flam\" is neither a command nor a directive; did you mean \"weir help flame\"?\n", Some(2))
    );
    let (_, errors, _) = said(&["top", "--jsn"]);
    assert_eq!(errors, "weir: unknown option \"--jsn\"; did you mean \"--json\"?\n");
}

#[test]
fn a_file_is_a_configuration_and_a_directory_is_served() {
    let directory = TempDir::new();
    let path = directory.path();
    fs::create_dir_all(path.join("site/.git")).expect("a fresh directory");
    fs::write(path.join("site/a.txt"), "hello").expect("written");
    fs::write(path.join("site/.git/config"), "secret").expect("written");
    fs::write(path.join("job.lua"), "print(1)").expect("written");
    fs::write(
        path.join("w.conf"),
        "pid w.pid; events { } http { access_log off; server { listen 127.0.0.1:0; } }",
    )
    .expect("written");
    let tested = weir_in(path, &["-t", "w.conf"]);
    assert!(
        tested.status.success()
            && String::from_utf8_lossy(&tested.stderr).contains("w.conf test is successful")
    );
    let lua = weir_in(path, &["job.lua"]);
    assert_eq!(
        String::from_utf8_lossy(&lua.stderr),
        "weir: \"job.lua\" is a Lua program, no configuration; \"weir lua job.lua\" runs it\n"
    );
    let port = free_port();
    let (_server, line) = Foreground::start(path, &["serve", "site", "--listen", &port.to_string()]);
    assert!(line.contains("/site on http://127.0.0.1:"), "{line}");
    let get = |target: &str| {
        Client::connect(format!("127.0.0.1:{port}").parse::<std::net::SocketAddr>().expect("an address"))
            .get(target)
    };
    assert_eq!(get("/a.txt").body, b"hello");
    assert!(String::from_utf8_lossy(&get("/").body).contains("a.txt"));
    assert_eq!(get("/.git/config").status, 404);
}
