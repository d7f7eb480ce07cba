//! A large configuration, of which the master keeps texts and open logs but not what was built from them: a server that
//! comes back has it all the same, whatever has become of the files.

use std::path::PathBuf;

use weir_test::{Server, both_drivers, limit_open_files, wait_for};

use super::*;
use crate::support::tls::{self, TlsClient};

/// So many lines that the master does not keep what they make.
fn many_lines() -> String {
    let entries: String = (0..20_000).map(|i| format!("/{i} {i};\n")).collect();
    format!("map $uri $entry {{ default none; {entries} }}")
}

/// Lines of a file of the server.
fn lines_of(path: PathBuf) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

both_drivers! {
    /// Certificate and key are broken, an included file is gone, the directory of the logs is another one: at the first start,
    /// after a reload, and when the server crashes twice.
    fn a_server_that_comes_back_has_the_configuration_of_before(driver) {
        let conf = |word: &str| {
            format!(
                "master_process on; http {{ {} limit_req_zone $uri zone=z:64k rate=1000r/s; include more/*.conf;
                 server {{ listen 127.0.0.1:%%PORT%%; listen 127.0.0.1:%%PORT_1%% ssl; access_log logs/own.log;
                     ssl_certificate a.crt; ssl_certificate_key a.key;
                     location / {{ limit_req zone=z; return 200 {word}$more$entry; }} }} }}",
                many_lines()
            )
        };
        let map = |word: &str| format!("map $uri $more {{ default {word}; }}");
        let pair = tls::own("a.test");
        let mut server = Server::builder(&conf("one"))
            .file("more/a.conf", map("-a-"))
            .file("logs/x", "")
            .file("a.crt", &pair.certificate)
            .file("a.key", &pair.key)
            .allow("soon after their start")
            .allow("exited on signal 9")
            .start();
        let secure = server.addr(1);
        let ask = |path: &str| TlsClient::connect(secure, "a.test", &tls::client(true, None)).get(path, "a.test").text();
        let first = server_of(server.pid(), None);
        assert_eq!((server.get("/7").text(), ask("/8")), ("one-a-7".to_owned(), "one-a-8".to_owned()));
        let dir = server.dir().path().to_owned();
        let logged = |name: &str, count| wait_for("its lines", || (lines_of(dir.join(name)) == count).then_some(()));
        logged("logs/own.log", 2);
        for name in ["more/a.conf", "a.crt", "a.key"] {
            fs::write(dir.join(name), "broken {").expect("ours");
        }
        fs::rename(dir.join("logs"), dir.join("moved")).expect("ours");
        kill(first, "KILL");
        let second = server_of(server.pid(), Some(first));
        assert_eq!((server.get("/7").text(), ask("/8")), ("one-a-7".to_owned(), "one-a-8".to_owned()));
        logged("moved/own.log", 4);

        fs::rename(dir.join("moved"), dir.join("logs")).expect("ours");
        let mended = [("more/a.conf", map("-b-")), ("a.crt", pair.certificate.clone()), ("a.key", pair.key.clone())];
        mended.iter().for_each(|(name, text)| fs::write(dir.join(name), text).expect("ours"));
        server.reload(&conf("two"));
        wait_for("the new configuration", || (server.get("/").text() == "two-b-none").then_some(()));
        mended.iter().for_each(|(name, _)| fs::remove_file(dir.join(name)).expect("ours"));
        kill(second, "KILL");
        let third = server_of(server.pid(), Some(second));
        assert_eq!((server.get("/7").text(), ask("/8")), ("two-b-7".to_owned(), "two-b-8".to_owned()));
        kill(third, "KILL");
        server_of(server.pid(), Some(third));
        assert_eq!((server.get("/7").text(), ask("/8")), ("two-b-7".to_owned(), "two-b-8".to_owned()));
    }

    /// Want of descriptors keeps one server after the other from building: the log says so, and the first one that has them
    /// serves.
    fn a_server_that_cannot_build_is_followed_by_others_until_one_can(driver) {
        let logs: String = (0..40).map(|i| format!("access_log {i}.log;")).collect();
        let conf = format!(
            "master_process on; http {{ {} server {{ listen 127.0.0.1:%%PORT%%; {logs} return 200 v$entry; }} }}",
            many_lines()
        );
        let server = Server::builder(&conf)
            .allow("exited on signal 9")
            .allow("soon after their start")
            .allow("24: Too many open files")
            .allow("can't be built again")
            .start();
        let first = server_of(server.pid(), None);
        assert_eq!(server.get("/7").text(), "v7");
        let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it lives").count() as u64;
        let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("it lives");
        let before = limits.lines().find(|line| line.starts_with("Max open files"));
        let before = before.and_then(|line| line.split_whitespace().nth(3)?.parse().ok()).expect("a number");
        // Enough for a socket pair and what is left of a crash, not for a duplicate of each log.
        limit_open_files(server.pid(), open + 10).expect("our child");
        kill(first, "KILL");
        let failures = || server.error_log().matches("the configuration in force can't be built again").count();
        wait_for("three tries", || (failures() >= 3).then_some(()));
        let line = server.error_log_line("worker processes died 3 times soon after their start");
        assert!(line.contains("the next starts in 200 ms"), "{line}");
        limit_open_files(server.pid(), before).expect("our child");
        assert_eq!(server.get("/7").text(), "v7");
    }
}
