//! `weir attach`: a stock nginx seen from outside. Skipped where probes on other processes may not be set.

use std::cell::Cell;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use weir_test::{Backend, Server, TempDir, nginx, wait_for};

/// A running nginx with a page that `sub_filter` works on, and a location that asks another one of its own.
fn started() -> Option<Server> {
    // Another process: of what a worker waits for that it does itself, the probes see less or more.
    static FAR: LazyLock<Backend> = LazyLock::new(|| {
        Backend::start(|visit| {
            if visit.head().is_some() {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nfar");
            }
        })
    });
    let server = nginx(
        &"http {
            server {
                listen 127.0.0.1:%%PORT_0%%;
                location / { return 404; }
                location /page/ { alias %%DIR%%/; sub_filter_once off; sub_filter span div; }
                location /far/ { proxy_pass http://127.0.0.1:@FAR@/; }
                location /denied { deny all; }
            }
        }"
        .replace("@FAR@", &FAR.port().to_string()),
    )?
    .file("page.html", "<span>text</span>\n".repeat(400).as_str())
    .start();
    Some(server)
}

fn attach(pid: u32, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("attach").arg(pid.to_string()).args(["-t", "80s"]).args(words).stdin(Stdio::null());
    command
}

/// Whether this machine and its user may; the reason is printed if not.
fn may(pid: u32) -> bool {
    static REASON: OnceLock<String> = OnceLock::new();
    let said = REASON.get_or_init(|| {
        let output = attach(pid, &["-n", "1", "-t", "0s"]).output().expect("it runs");
        String::from_utf8_lossy(&output.stderr).into_owned()
    });
    if said.contains(" probes; ") {
        return true;
    }
    assert!(
        said.contains("no uprobes") || said.contains("needs root") || said.contains("no probe on"),
        "{said}"
    );
    eprintln!("skipped: {}: {said}", std::thread::current().name().unwrap_or("a test"));
    false
}

/// One test at a time: the kernel takes the probes of all of them away one after the other.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `weir attach` says, while requests for `path` come one after the other.
fn seen(server: &Server, words: &[&str], path: &str) -> String {
    let mut child = attach(server.serving_pid(), words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let over = Cell::new(false);
    wait_for("end of weir attach", || {
        if !over.get() {
            server.get(path);
            // To remove the probes may take a minute, in which some thousands of connections would not be missed.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        child.try_wait().expect("our child").inspect(|_| over.set(true))
    });
    let output = child.wait_with_output().expect("our child");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    // What takes so long in the end.
    let removed =
        said.lines().find_map(|line| line.strip_prefix("weir: removing ")?.strip_suffix(" probes..."));
    assert!(removed.is_some_and(|count| count.parse::<u32>().is_ok_and(|count| count > 20)), "{said}");
    String::from_utf8(output.stdout).expect("text")
}

/// Names of lines with their depth: how a tree begins each.
fn names(tree: &str) -> Vec<(usize, String)> {
    let line = |line: &str| {
        let (before, behind) = line.split_once("-> ")?;
        Some((before.len(), behind.split("  ").next().unwrap_or_default().to_owned()))
    };
    tree.lines().filter_map(line).collect()
}

#[test]
fn a_stock_nginx_is_drawn_as_weir_draws_itself() {
    let _turn = turn();
    let Some(server) = started() else { return };
    if !may(server.serving_pid()) {
        return;
    }
    let tree = seen(&server, &["/page/", "-n", "1"], "/page/page.html");
    assert!(tree.starts_with("GET /page/page.html  "), "{tree}");
    let lines = names(&tree);
    let at = |depth: usize, name: &str| {
        let found = lines.iter().position(|line| *line == (depth, name.to_owned()));
        found.unwrap_or_else(|| panic!("no {name} in {tree}"))
    };
    let inside = [
        at(2, "parse"),
        at(2, "access"),
        at(5, "access"),
        at(2, "content"),
        at(5, "static"),
        at(2, "header_filter"),
        at(2, "body_filter"),
        at(5, "write"),
        at(2, "log"),
        at(5, "log"),
    ];
    assert!(inside.is_sorted(), "{tree}");
    let filters = lines.iter().filter(|line| **line == (5, "sub".to_owned())).count();
    assert_eq!(filters, 2, "as header filter and as body filter: {tree}");

    let tree = seen(&server, &["/far/", "-n", "1"], "/far/");
    let lines = names(&tree);
    assert!(lines.iter().any(|(_, name)| name == "upstream"), "{tree}");
    // What of it came when is the machine's affair.
    assert!(tree.contains(".. upstream_"), "{tree}");
}

#[test]
fn averages_can_be_saved_and_compared() {
    let _turn = turn();
    let Some(server) = started() else { return };
    if !may(server.serving_pid()) {
        return;
    }
    let dir = TempDir::new();
    let file = dir.path().join("nginx.json");
    let file = file.to_str().expect("text");
    let said = seen(&server, &["--avg", "5", "--save", file], "/denied");
    assert_eq!(said, format!("{file}: 5 requests\n"));
    let diff = Command::new(env!("CARGO_BIN_EXE_weir")).args(["diff", file, file]).output().expect("it runs");
    let text = String::from_utf8_lossy(&diff.stdout).into_owned();
    assert!(diff.status.success() && text.contains("access"), "{text}");
}

#[test]
fn what_is_killed_leaves_nothing_behind() {
    let _turn = turn();
    let Some(server) = started() else { return };
    let pid = server.serving_pid();
    if !may(pid) {
        return;
    }
    let mut child: Child =
        attach(pid, &["/never", "-n", "1"]).stderr(Stdio::null()).spawn().expect("it runs");
    let uprobes = || {
        let events = std::fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
        events
            .filter(|entry| {
                entry.path().read_link().is_ok_and(|link| link.to_string_lossy().contains("[perf_event]"))
            })
            .count()
    };
    // Its own functions, which it measures last, have eight.
    wait_for("probes", || (uprobes() > 100).then_some(()));
    assert_eq!(server.get("/page/page.html").status, 200);
    child.kill().expect("our child");
    child.wait().expect("our child");
    for _ in 0..20 {
        assert_eq!(server.get("/page/page.html").status, 200);
    }
    seen(&server, &["--avg", "1"], "/denied");
}

#[test]
fn what_is_no_nginx_is_told() {
    let mut sleep = Command::new("sleep").arg("600").spawn().expect("sleep(1) is everywhere");
    let output = attach(sleep.id(), &[]).output().expect("it runs");
    sleep.kill().expect("our child");
    sleep.wait().expect("our child");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("no nginx whose modules can be read") || said.contains("needs root"), "{said}");
    let nobody = attach(u32::MAX, &[]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("No such file"), "there is no such process");
}
