//! Commands that write configurations: `weir init`, `weir fmt`, `weir -t --fix`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use weir_test::{TempDir, free_port};

fn weir_in(directory: &Path, words: &[&str]) -> Output {
    let weir = Command::new(env!("CARGO_BIN_EXE_weir")).args(words).current_dir(directory).output();
    weir.expect("the program runs")
}

/// Standard output of the program with `words`, which must be a success.
#[track_caller]
fn says(directory: &Path, words: &[&str]) -> String {
    let output = weir_in(directory, words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it writes to standard error, with the exit status.
fn fails(directory: &Path, words: &[&str]) -> (String, Option<i32>) {
    let output = weir_in(directory, words);
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
}

const KINDS: [&str; 6] = ["proxy", "static", "spa", "php", "lua", "gateway"];

#[test]
fn each_configuration_to_begin_with_passes_the_test_and_overwrites_nothing() {
    let directory = TempDir::new();
    let path = directory.path();
    for kind in KINDS {
        let text = says(path, &["init", kind]);
        let file = format!("{kind}.conf");
        assert!(says(path, &["init", kind, &file]).contains(&format!("weir -t {file}")));
        assert_eq!(fs::read_to_string(path.join(&file)).expect("written"), text, "{kind}");
        let tested = weir_in(path, &["-t", "-q", &file]);
        assert!(tested.status.success(), "{kind}: {}", String::from_utf8_lossy(&tested.stderr));
        fs::write(path.join(&file), "mine").expect("written");
        let (message, status) = fails(path, &["init", kind, &file]);
        assert!(message.contains("File exists") && status == Some(2), "{message}");
        assert_eq!(fs::read_to_string(path.join(&file)).expect("there"), "mine");
    }
    let (message, status) = fails(path, &["init", "prxy"]);
    assert_eq!(
        (message.as_str(), status),
        ("weir: there is no configuration \"prxy\"; did you mean \"proxy\"?\n", Some(2))
    );
}

const UNTIDY: &str = "events{}\nhttp {\n\tserver{ listen   127.0.0.1:8080; }\n}\n";
const TIDY: &str = "events {}\nhttp {\n    server {\n        listen 127.0.0.1:8080;\n    }\n}\n";

#[test]
fn fmt_checks_shows_and_writes() {
    let directory = TempDir::new();
    let path = directory.path();
    fs::create_dir(path.join("logs")).expect("free");
    fs::write(path.join("a.conf"), UNTIDY).expect("written");
    fs::write(path.join("b.conf"), TIDY).expect("written");

    let checked = weir_in(path, &["fmt", "--check", "a.conf", "b.conf"]);
    assert_eq!((checked.stdout.as_slice(), checked.status.code()), (&b"a.conf\n"[..], Some(1)));
    let diff = says(path, &["fmt", "--diff", "a.conf", "b.conf"]);
    assert!(diff.starts_with("--- a.conf\n+++ a.conf\n@@ -1,4 +1,6 @@\n-events{}\n+events {}\n"), "{diff}");
    assert!(!diff.contains("b.conf"), "{diff}");
    assert_eq!(fs::read_to_string(path.join("a.conf")).expect("there"), UNTIDY);

    let untouched = fs::metadata(path.join("b.conf")).expect("there").ino();
    assert_eq!(says(path, &["fmt", "a.conf", "b.conf"]), "");
    assert_eq!(fs::read_to_string(path.join("a.conf")).expect("there"), TIDY);
    assert_eq!(fs::metadata(path.join("b.conf")).expect("there").ino(), untouched, "nothing to write");
    assert_eq!(says(path, &["fmt", "--check", "a.conf", "b.conf"]), "");
    assert!(weir_in(path, &["-t", "-q", "a.conf"]).status.success());
}

#[test]
fn fmt_keeps_mode_and_links_and_leaves_nothing_beside() {
    let directory = TempDir::new();
    let path = directory.path();
    let (file, link) = (path.join("a.conf"), path.join("link.conf"));
    fs::write(&file, UNTIDY).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("mine");
    symlink("a.conf", &link).expect("free");
    says(path, &["fmt", "link.conf"]);
    assert_eq!(fs::read_to_string(&file).expect("there"), TIDY);
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert_eq!(fs::metadata(&file).expect("there").mode() & 0o777, 0o640);
    let names: Vec<_> = fs::read_dir(path).expect("there").map(|e| e.expect("read").file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn fmt_leaves_files_with_errors_and_goes_on_with_others() {
    let directory = TempDir::new();
    let path = directory.path();
    let wrong = "http {\n  server { listen 80 }\n}\n";
    fs::write(path.join("a.conf"), wrong).expect("written");
    fs::write(path.join("b.conf"), UNTIDY).expect("written");
    fs::write(path.join("c.yaml"), "listen: 80\n").expect("written");
    let (errors, status) = fails(path, &["fmt", "a.conf", "absent.conf", "c.yaml", ".", "b.conf"]);
    assert_eq!(status, Some(2));
    assert!(errors.starts_with("weir: unexpected \"}\" in a.conf:2:22\n"), "{errors}");
    assert!(errors.contains("weir: \"absent.conf\": No such file or directory"), "{errors}");
    assert!(errors.contains("weir: \"c.yaml\" is in H2O's language"), "{errors}");
    assert!(errors.contains("weir: \".\": Is a directory"), "{errors}");
    assert_eq!(fs::read_to_string(path.join("a.conf")).expect("there"), wrong);
    assert_eq!(fs::read_to_string(path.join("b.conf")).expect("there"), TIDY);
    let (errors, status) = fails(path, &["fmt"]);
    assert!(errors.starts_with("weir: which file?") && status == Some(2), "{errors}");
}

#[test]
fn fmt_formats_standard_input() {
    let run = |words: &[&str], text: &str| {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut weir = weir.spawn().expect("the program runs");
        weir.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("read");
        let output = weir.wait_with_output().expect("it ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };
    assert_eq!(run(&["fmt", "-"], UNTIDY), (TIDY.to_owned(), String::new(), Some(0)));
    assert_eq!(run(&["fmt", "--check", "-"], UNTIDY).2, Some(1));
    let (out, errors, status) = run(&["fmt", "-"], "a {");
    assert_eq!((out.as_str(), status), ("", Some(2)));
    assert!(errors.contains("in standard input:1:4"), "{errors}");
}

const DEPRECATED: &str = "events {}
http {
    access_log off;
    error_log stderr;
    server {
        listen 127.0.0.1:%%PORT%% http2; # both
        include push.conf;
        location / { gzip_types text/html text/css; }
    }
    server { listen 127.0.0.1:%%PORT%% http2; server_name b; ssl off; }
}
";

#[test]
fn mendings_are_shown_and_written_and_the_files_then_pass_the_test() {
    let directory = TempDir::new();
    let path = directory.path();
    let text = DEPRECATED.replace("%%PORT%%", &free_port().to_string());
    fs::create_dir(path.join("logs")).expect("free");
    let (conf, push) = (path.join("a.conf"), path.join("push.conf"));
    fs::write(&conf, &text).expect("written");
    fs::write(&push, "http2_push /x;\nallow 10.1.2.3/8;\n").expect("written");

    let tested = weir_in(path, &["-t", "-e", "stderr", "a.conf"]);
    let errors = String::from_utf8_lossy(&tested.stderr);
    assert!(!tested.status.success());
    let hint = "\n\"weir -t --fix\" removes \"ssl off\", which is the default\n";
    assert!(errors.contains("/a.conf:10:") && errors.contains(hint), "{errors}");

    let shown = weir_in(path, &["-t", "--diff", "-e", "stderr", "a.conf"]);
    let diff = String::from_utf8_lossy(&shown.stdout);
    assert!(diff.contains("\n+        http2 on;\n") && diff.contains("\n-http2_push /x;\n"), "{diff}");
    assert_eq!(fs::read_to_string(&conf).expect("there"), text, "only shown");

    let fixed = weir_in(path, &["-t", "--fix", "-e", "stderr", "a.conf"]);
    let errors = String::from_utf8_lossy(&fixed.stderr);
    assert!(fixed.status.success(), "{errors}");
    assert_eq!(fixed.stdout, shown.stdout);
    for change in [
        "a.conf:10: removes \"ssl off\"",
        "a.conf:6: moves \"http2\" from \"listen\"",
        "push.conf:1: removes \"http2_push\", which has no effect",
        "push.conf:1: writes \"10.0.0.0/8\", the same network",
        "a.conf:9: removes \"text/html\", which is there already",
    ] {
        assert!(errors.contains(change), "{change}: {errors}");
    }
    assert!(!errors.contains("[warn]"), "{errors}");
    let fixed = fs::read_to_string(&conf).expect("there");
    assert!(fixed.contains("; # both\n        http2 on;\n        include"), "{fixed}");
    assert!(fixed.contains("; http2 on; server_name b; }\n"), "{fixed}");
    assert_eq!(fs::read_to_string(&push).expect("there"), "allow 10.0.0.0/8;\n");
    assert!(
        weir_in(path, &["-t", "--fix", "-q", "-e", "stderr", "a.conf"]).stdout.is_empty(),
        "nothing is left"
    );
}

#[test]
fn nothing_is_mended_that_would_load_worse_or_may_mean_two_things() {
    let directory = TempDir::new();
    let path = directory.path();
    let text =
        "events {}\nhttp {\n    ssl on;\n    server { listen 127.0.0.1:1 http2; http2 off; root /a }\n}\n";
    fs::write(path.join("a.conf"), text).expect("written");
    let tested = weir_in(path, &["-t", "--fix", "-e", "stderr", "a.conf"]);
    let errors = String::from_utf8_lossy(&tested.stderr);
    assert!(!tested.status.success() && tested.stdout.is_empty(), "{errors}");
    assert!(errors.contains("unexpected \"}\"") && !errors.contains("weir -t --fix"), "{errors}");
    assert_eq!(fs::read_to_string(path.join("a.conf")).expect("there"), text);
    let (errors, status) = fails(path, &["--fix", "a.conf"]);
    assert!(errors.contains("belong to \"-t\"") && status == Some(1), "{errors}");
}
