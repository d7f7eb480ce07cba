//! What Weir does of its own accord goes on while no worker turns its loop: health checks, lists of servers that change, names
//! that are looked up again, the admin listener.

use std::net::{IpAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_test::{Backend, Client, NameReply, NameServer, Server, both_drivers, wait_for};

/// Each worker, by a timer: while there is a file `block`, it says so in a file of its own and is stuck.
const CONF: &str = r#"worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%;
http {
    init_worker_by_lua_block {
        local folder = "%%DIR%%/"
        ngx.timer.every(0.02, function()
            local block = io.open(folder .. "block")
            if not block then return end
            block:close()
            io.open(folder .. "blocked-" .. ngx.worker.id(), "w"):close()
            os.execute("while test -e " .. folder .. "block; do sleep 0.02; done")
        end)
    }
    resolver %%NAMES%% valid=1s ipv6=off;
    upstream checked { server 127.0.0.1:%%CHECKED%%; health_check uri=/health interval=20ms timeout=60s; }
    upstream listed { source file %%DIR%%/list.json interval=10ms; }
    upstream named { zone named 64k; server app.example:%%CHECKED%% resolve; }
    server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://checked; } }
}
"#;

/// All workers are stuck until it is dropped: a server's end waits for them.
struct Blocked(PathBuf);

impl Blocked {
    fn all(server: &Server, workers: usize) -> Blocked {
        let directory = server.dir().path();
        let blocked = Blocked(server.dir().write("block", ""));
        for worker in 0..workers {
            let says = directory.join(format!("blocked-{worker}"));
            wait_for("a stuck worker", || says.exists().then_some(()));
        }
        blocked
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // It is gone already when the directory is.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn upstream(server: &Server, name: &str) -> String {
    let request = format!("GET /upstreams/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    Client::connect(server.addr(1)).request(&request).text()
}

fn goes_on(workers: usize) {
    let checks = Arc::new(AtomicUsize::new(0));
    let count = checks.clone();
    let backend = Backend::start(move |visit| {
        while let Some(head) = visit.head() {
            if head.starts_with("GET /health") {
                count.fetch_add(1, Ordering::SeqCst);
            }
            visit.answer("served");
        }
    });
    let names = NameServer::start(|_| NameReply::Addresses(vec![IpAddr::from([127, 0, 0, 1])], 1));
    let conf = CONF
        .replace("%%WORKERS%%", &workers.to_string())
        .replace("%%NAMES%%", &names.address().to_string())
        .replace("%%CHECKED%%", &backend.port().to_string());
    let server = Server::builder(&conf).file("list.json", "[\"127.0.0.1:1\"]").start();
    wait_for("the admin listener", || TcpStream::connect(server.addr(1)).is_ok().then_some(()));
    wait_for("a check", || (checks.load(Ordering::SeqCst) > 0).then_some(()));
    assert_eq!(server.get("/").text(), "served");
    let blocked = Blocked::all(&server, workers);
    let before = checks.load(Ordering::SeqCst);
    wait_for("checks while workers are stuck", || (checks.load(Ordering::SeqCst) > before + 5).then_some(()));
    let before = names.asked();
    wait_for("look-ups while workers are stuck", || (names.asked() > before + 1).then_some(()));
    let new = server.dir().write("new.json", "[\"127.0.0.1:2\"]");
    std::fs::rename(new, server.dir().path().join("list.json")).expect("one folder");
    wait_for("the new list", || upstream(&server, "listed").contains("127.0.0.1:2").then_some(()));
    drop(blocked);
    assert_eq!(server.get("/").text(), "served");
}

both_drivers! {
    fn one_worker_is_stuck(driver) {
        goes_on(1);
    }

    fn all_workers_are_stuck(driver) {
        goes_on(2);
    }
}
