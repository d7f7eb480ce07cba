//! What is done before a configuration is served, and what becomes of connections when another one takes its place.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use weir_test::{Server, TempDir, both_drivers};

/// Runs `weir -t` on `text` in `folder`; what it says, without the folder's name, and whether it is content.
fn tested(folder: &TempDir, text: &str) -> (String, bool) {
    // The usual place, logs/nginx.pid, is not in a fresh folder.
    fs::write(folder.path().join("nginx.conf"), format!("pid nginx.pid; {text}")).expect("a fresh folder");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["-t", "-c", "nginx.conf", "-p"])
        .arg(folder.path())
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    (said.replace(&format!("{}/", folder.path().display()), ""), output.status.success())
}

#[test]
fn a_test_says_how_far_the_configuration_is_good() {
    let folder = TempDir::new();
    let ok = "weir: the configuration file nginx.conf syntax is ok\n";
    let failed = "weir: configuration file nginx.conf test failed\n";
    for (text, said) in [
        ("http { }", "no \"events\" section in configuration"),
        ("events { } http { scgi_temp_path a/b; }", "mkdir() \"a/b\" failed (2: No such file or directory)"),
    ] {
        assert_eq!(tested(&folder, text), (format!("{ok}weir: [emerg] {said}\n{failed}"), false), "{text}");
    }
    let good = format!("{ok}weir: configuration file nginx.conf test is successful\n");
    assert_eq!(tested(&folder, "events { }"), (good, true));
}

#[test]
fn what_is_wrong_is_in_the_usual_log_too() {
    let folder = TempDir::new();
    fs::create_dir(folder.path().join("logs")).expect("a fresh folder");
    assert!(!tested(&folder, "nothing;").1);
    let log = fs::read_to_string(folder.path().join("logs/error.log")).expect("written");
    assert!(log.contains("[emerg]") && log.contains("unknown directive \"nothing\""), "{log}");
}

#[test]
fn folders_of_temporary_files_are_private() {
    let folder = TempDir::new();
    let text = "events { } http { access_log off; client_body_temp_path body 1 2; fastcgi_temp_path f;
        server { proxy_temp_path p; location / { uwsgi_temp_path u; } } }";
    assert!(tested(&folder, text).1);
    for name in ["body", "f", "p", "u"] {
        let meta = fs::metadata(folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((meta.is_dir(), meta.permissions().mode() & 0o777), (true, 0o700), "{name}");
    }
    assert!(!folder.path().join("client_body_temp").exists(), "nobody asked for it");
}

#[test]
fn without_http_nothing_of_it_is_made() {
    let folder = TempDir::new();
    assert!(tested(&folder, "events { }").1);
    let names: Vec<_> =
        fs::read_dir(folder.path()).expect("there").flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["nginx.conf"]);
}

both_drivers! {
    /// What waits for its first request, or for the end of one, is of the old configuration; what waits for another
    /// request is not.
    fn a_shutdown_timeout_ends_what_a_reload_left_behind(driver) {
        let conf = "worker_shutdown_timeout 10ms; http { server { listen 127.0.0.1:%%PORT%%;
            location / { return 200 WORD; } } }";
        let mut server = Server::start(&conf.replace("WORD", "old"));
        let (mut silent, mut half, mut kept) = (server.client(), server.client(), server.client());
        half.send("GET / HTTP/1.1\r\nHo");
        assert_eq!(kept.get("/").text(), "old");
        server.reload(&conf.replace("WORD", "new"));
        silent.expect_close();
        half.expect_close();
        assert_eq!(kept.get("/").text(), "new");
    }
}
